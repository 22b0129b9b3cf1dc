"""Topics, queues, offsets and groups: what our client says, mqadmin and the Java client say too."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketmq_spark.client import Client, Message
from rocketmq_spark.client.pull import COMPACTING
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.local_cluster import LocalCluster
from rocketmq_spark.wire import commands, frame
from tests.waiting import until

from .witness import Witness, rows


def table(said: str) -> list[list[str]]:
    """The lines of one of mqadmin's tables, without its headings."""
    lines = (line.split() for line in said.splitlines())
    return [fields for fields in lines if fields and not fields[0].startswith("#")]


@pytest.fixture(scope="module")
def filled(local_client: Client) -> Iterator[str]:
    """Two queues on each broker with 0, 1, 2 ... messages."""
    topic = f"t_filled_{uuid.uuid4().hex[:8]}"
    local_client.create_topic(topic, 2)
    for count, queue in enumerate(local_client.queues(topic)):
        local_client.send(topic, [Message(f"{i}", queue=queue) for i in range(count)])
    until(lambda: sum(high for _, high in local_client.topic_offsets(topic).values()) == 6)
    yield topic
    local_client.delete_topic(topic)


def test_mqadmin_sees_the_same_topics(
    cluster: LocalCluster, local_client: Client, filled: str
) -> None:
    everything = {fields[0] for fields in table(cluster.mqadmin("topicList"))}
    assert set(local_client.topics(system=True)) == everything
    ours = local_client.topics()
    assert filled in ours
    assert not {"broker-a", "broker-b", cluster.cluster_name, "TBW102"} & set(ours)
    assert not [t for t in ours if t.startswith(("rmq_sys_", "%", "RMQ_SYS_", "SCHEDULE_"))]


def test_mqadmin_sees_the_same_offsets(
    cluster: LocalCluster, local_client: Client, filled: str
) -> None:
    theirs = {
        MessageQueue(filled, name, int(queue)): (int(low), int(high))
        for name, queue, low, high, *_ in table(cluster.mqadmin("topicStatus", "-t", filled))
        if name in cluster.brokers
    }
    assert sorted(high for _, high in theirs.values()) == [0, 1, 2, 3]
    assert local_client.topic_offsets(filled) == theirs
    assert {q: local_client.offsets(q) for q in local_client.queues(filled)} == theirs


def test_java_sees_the_same_queues_and_offsets(
    local_client: Client, local_witness: Witness, filled: str
) -> None:
    queues = local_client.queues(filled)
    assert queues == local_witness.queues(filled) == local_client.writable_queues(filled)
    for queue in queues:
        assert local_client.offsets(queue) == local_witness.offsets(queue)


def test_mqadmin_sees_the_same_brokers(cluster: LocalCluster, local_client: Client) -> None:
    theirs = {
        (name, int(broker_id)): address
        for _, name, broker_id, address, *_ in table(cluster.mqadmin("clusterList"))
    }
    ours = {
        (broker.broker_name, broker_id): address
        for broker in local_client.brokers()
        for broker_id, address in broker.addresses.items()
    }
    assert ours == theirs
    assert {address for _, address in ours.items()} == {
        node.address for node in cluster.brokers.values()
    }


def test_a_topic_is_made_changed_and_deleted(local_client: Client) -> None:
    client, topic = local_client, f"t_life_{uuid.uuid4().hex[:8]}"
    client.create_topic(topic, 2, brokers=["broker-b"])
    assert client.queues(topic) == [MessageQueue(topic, "broker-b", i) for i in (0, 1)]
    client.create_topic(topic, 3, read_queues=5, brokers=["broker-a"])
    assert len(client.queues(topic)) == 7
    assert len(client.writable_queues(topic)) == 5
    client.create_topic(topic, 5, perm=4)  # readable only
    assert len(client.queues(topic)) == 10
    assert client.writable_queues(topic) == []
    client.delete_topic(topic)
    assert topic not in client.topics()


# --- times --------------------------------------------------------------------------------


def test_offset_at_is_the_first_message_not_before(
    client: Client, witness: Witness, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    queue = client.queues(topic)[0]
    stored = spaced_messages(client, queue)
    check_offset_at(client, queue, stored)
    for millis in (0, stored[0], stored[20], stored[-1]):
        assert client.offset_at(queue, millis) == witness.search(queue, millis)


def test_offset_at_of_an_empty_queue(client: Client, topic: str) -> None:
    queue = client.queues(topic)[0]
    assert client.offset_at(queue, 0) == 0
    assert client.offset_at(queue, int(time.time() * 1000) + 10_000) == 0


def spaced_messages(client: Client, queue: MessageQueue) -> list[int]:
    """Send groups of messages with one store time each, and time in between."""
    for sent in range(8, 49, 8):
        client.send(queue.topic, [Message(f"{i}", queue=queue) for i in range(8)])
        until(lambda sent=sent: client.offsets(queue)[1] == sent)  # type: ignore[misc]
        (last,) = rows(client, queue, sent - 1, sent, columns=["storeTimestamp"])
        until(lambda last=last: time.time() * 1000 > last["storeTimestamp"] + 3)  # type: ignore[misc]
    return [row["storeTimestamp"] for row in rows(client, queue, columns=["storeTimestamp"])]


def check_offset_at(client: Client, queue: MessageQueue, stored: list[int]) -> None:
    assert len(set(stored)) < len(stored), "no two messages of one time: nothing is tested"
    assert len(set(stored)) >= 6
    moments = {0, 1, int(time.time() * 1000) + 100_000}
    moments |= {moment + shift for moment in stored for shift in (-1, 0, 1)}
    for millis in sorted(moments):
        expected = next((i for i, t in enumerate(stored) if t >= millis), len(stored))
        assert client.offset_at(queue, millis) == expected, (millis, stored)


# --- groups -------------------------------------------------------------------------------


def test_a_group_without_progress_has_none(client: Client, topic: str) -> None:
    queue = client.queues(topic)[0]
    client.send(topic, [Message("x", queue=queue)])
    assert client.committed(f"nobody_{uuid.uuid4().hex[:8]}", queue) is None
    assert client.consumers("nobody_at_all") == []


def test_commits_go_up_and_down(client: Client, topic: str) -> None:
    group = f"g_{uuid.uuid4().hex[:8]}"
    queues = client.queues(topic)
    for offset in (0, 7, 3):
        for queue in queues:
            client.commit(group, queue, offset + queue.queue_id)
        assert [client.committed(group, q) for q in queues] == [offset + q.queue_id for q in queues]


def test_compacted_topics_are_known(
    cluster: LocalCluster, local_client: Client, filled: str
) -> None:
    """Old messages of such a topic are missing without being lost."""
    topic = f"t_compacted_{uuid.uuid4().hex[:8]}"
    where = ["-c", cluster.cluster_name, "-t", topic]
    cluster.mqadmin("updateTopic", *where, "-a", "+cleanup.policy=COMPACTION")
    until(lambda: topic in local_client.topics())
    metadata, queue = local_client._metadata, local_client.queues(filled)[0]
    said = metadata.ask_queue_broker(queue, lambda name: commands.get_min_offset(queue, name), "x")
    assert said.version >= COMPACTING
    assert [metadata.is_compacted(local_client.queues(t)[0]) for t in (topic, filled)] == [
        True,
        False,
    ]
    local_client.delete_topic(topic)


def parsed_headers(client: Client, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of the 188 or more answers that bring 6,000 messages are parsed."""
    client.send(queue.topic, [Message(f"{n}", queue=queue) for n in range(6000)])
    until(lambda: client.offsets(queue)[1] == 6000)
    counted = []
    parse = frame._decode_json

    def count(header: bytes, body: Any) -> Any:
        if b"nextBeginOffset" in header:
            counted.append(header)
        return parse(header, body)

    monkeypatch.setattr(frame, "_decode_json", count)
    assert sum(batch.num_rows for batch in client.read(queue, 0, 6000)) == 6000
    return len(counted)


def test_headers_of_a_real_broker_are_alike(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parsed_headers(client, client.queues(topic)[0], monkeypatch) < 20


def test_a_live_consumer_and_its_progress(
    cluster: LocalCluster, local_client: Client, local_witness: Witness
) -> None:
    client = local_client
    topic, group = f"t_live_{uuid.uuid4().hex[:8]}", f"g_live_{uuid.uuid4().hex[:8]}"
    client.create_topic(topic, 2)
    client.send(topic, [Message(f"m{i}") for i in range(40)])
    queues = client.queues(topic)
    with local_witness.consumer(group, topic) as client_id:
        until(lambda: len(local_witness.consumed(group)) == 40)
        until(lambda: client.consumers(group))
        assert client.consumers(group) == [client_id]
        assert client_id in cluster.mqadmin("consumerConnection", "-g", group)
    # It commits when it stops; then nobody is left.
    until(lambda: [client.committed(group, q) for q in queues] == [10] * 4)
    until(lambda: client.consumers(group) == [])

    client.commit(group, queues[0], 4)
    progress = {
        MessageQueue(topic, fields[1], int(fields[2])): (int(fields[3]), int(fields[4]))
        for fields in table(cluster.mqadmin("consumerProgress", "-g", group, "-t", topic))
        if fields[0] == topic
    }
    assert progress == {q: (10, 4 if q == queues[0] else 10) for q in queues}
    # The next consumer begins where we said.
    with local_witness.consumer(group, topic):
        again = until(lambda: (c := local_witness.consumed(group)) and len(c) >= 6 and c)
    assert sorted(row["queueOffset"] for row in again) == [4, 5, 6, 7, 8, 9]
    client.delete_topic(topic)
