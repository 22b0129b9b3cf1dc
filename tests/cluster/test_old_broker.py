"""RocketMQ 4.9.7 with its ACL 1.0: what differs from 5 must not be seen."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator

import pytest

from rocketmq_spark.client import Client, Message
from rocketmq_spark.client.pull import COMPACTING
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import AuthenticationError, UnsupportedRequestError
from rocketmq_spark.local_cluster import LocalCluster
from rocketmq_spark.wire import commands
from tests.waiting import until

from .test_metadata import check_offset_at, parsed_headers, spaced_messages, table
from .test_security import check_send_read_commit
from .witness import Row, Witness, differences, rows


@pytest.fixture(scope="module")
def old() -> Iterator[LocalCluster]:
    # Shorter than RocketMQ's own 1 s, 5 s and 10 s.
    delays = {"messageDelayLevel": "1s 2s 3s"}
    with LocalCluster(version="4.9.7", acl=True, config=delays) as running:
        yield running


@pytest.fixture(scope="module")
def client(old: LocalCluster) -> Iterator[Client]:
    with Client(
        old.name_server, access_key=old.access_key, secret_key=old.secret_key, timeout=15
    ) as client:
        yield client


@pytest.fixture(scope="module")
def witness(old: LocalCluster) -> Iterator[Witness]:
    account = [f"-Dwitness.accessKey={old.access_key}", f"-Dwitness.secretKey={old.secret_key}"]
    witness = Witness(old, jvm_args=account)
    yield witness
    witness.close()


@pytest.fixture
def queue(client: Client) -> Iterator[MessageQueue]:
    topic = f"t_{uuid.uuid4().hex[:12]}"
    client.create_topic(topic, 1)
    yield client.queues(topic)[0]
    client.delete_topic(topic)


def settled(client: Client, queue: MessageQueue, end: int) -> list[Row]:
    until(lambda: client.offsets(queue)[1] >= end)
    return rows(client, queue)


def test_every_feature_both_ways(client: Client, witness: Witness, queue: MessageQueue) -> None:
    messages = [
        Message("текст 🚀", tags="A", keys="k1 k2", properties={"a": "1", "ключ": "зн"}, flag=7),
        Message(bytes(range(256)), properties={"sep": "l\x01r"}),
        Message("squeeze me " * 1000),
        Message(b"z" * (4 * 1024 * 1024)),
        Message(random.Random(9).randbytes(4 * 1024 * 1024)),  # does not compress
    ]
    for message in messages[:-1]:
        witness.send(queue.topic, message, queue)
    # Java would compress it nevertheless, to more than a broker takes.
    witness.send(queue.topic, messages[-1], queue, compression="none")
    witness.send_batch(queue, [Message(f"b{i}", tags="B") for i in range(40)])
    ours = [Message(m.body, m.tags, m.keys, m.properties, m.flag, queue=queue) for m in messages]
    client.send(queue.topic, [*ours, Message(b"", tags="empty", queue=queue)])

    found = settled(client, queue, 51)
    expected = [m.payload for m in messages]
    expected += [f"b{i}".encode() for i in range(40)] + expected + [b""]
    assert [row["body"] for row in found] == expected
    assert (found[45]["tags"], found[45]["keys"], found[45]["flag"]) == ("A", "k1 k2", 7)
    assert found[45]["properties"]["ключ"] == "зн"
    theirs = witness.read(queue, 0, 51)
    for row in theirs:
        row[
            "sysFlag"
        ] &= ~1  # "compressed", which Java's clients of 4.9 leave on what they unpacked
    assert not differences(found, theirs)


def test_delay_levels(client: Client, queue: MessageQueue) -> None:
    sent_at = time.time() * 1000
    client.send(
        queue.topic,
        [
            Message(f"{level}", tags="T", keys="k", delay_level=level, queue=queue)
            for level in (3, 2, 1)
        ],
    )
    found = settled(client, queue, 3)
    assert {row["body"] for row in found} == {b"1", b"2", b"3"}
    for row in found:
        assert row["storeTimestamp"] >= sent_at + 1000 * int(row["body"]) - 100
        assert (row["tags"], row["keys"]) == ("T", "k")


def test_offset_at_is_exact_though_the_broker_gives_the_nearest(
    client: Client, queue: MessageQueue
) -> None:
    check_offset_at(client, queue, spaced_messages(client, queue))


def test_filters(client: Client, witness: Witness, queue: MessageQueue) -> None:
    tags = ["Aa", "BB", ""]
    client.send(
        queue.topic,
        [
            Message(str(i), tags=tags[i % 3], properties={"n": str(i)}, queue=queue)
            for i in range(900)
        ],
    )
    until(lambda: client.offsets(queue)[1] == 900)
    for how, theirs, expected in (
        ({"sub_expression": "Aa"}, {"tags": "Aa"}, range(0, 900, 3)),
        ({"sub_expression": "none"}, {"tags": "none"}, ()),
        ({"sql_expression": "n > 895"}, {"sql": "n > 895"}, range(896, 900)),
    ):
        assert [r["queueOffset"] for r in rows(client, queue, **how)] == list(expected)
        java = witness.read(queue, 0, 900, **theirs)  # type: ignore[arg-type]
        assert [r["queueOffset"] for r in java] == list(expected)


def test_topics_offsets_and_groups(
    old: LocalCluster, client: Client, witness: Witness, queue: MessageQueue
) -> None:
    client.send(queue.topic, [Message(f"m{i}", queue=queue) for i in range(40)])
    until(lambda: client.offsets(queue) == (0, 40))
    assert client.topic_offsets(queue.topic) == {queue: (0, 40)}
    assert witness.offsets(queue) == (0, 40)
    assert witness.queues(queue.topic) == client.queues(queue.topic) == [queue]
    listed = {fields[0] for fields in table(old.mqadmin("topicList"))}
    assert set(client.topics(system=True)) == listed

    group = f"g_{uuid.uuid4().hex[:8]}"
    with witness.consumer(group, queue.topic) as client_id:
        until(lambda: len(witness.consumed(group)) == 40)
        assert until(lambda: client.consumers(group)) == [client_id]
    until(lambda: client.committed(group, queue) == 40)
    client.commit(group, queue, 4)
    assert client.committed(group, queue) == 4
    # Where the queue ends and where the group is; this version of mqadmin takes 3 s to stop.
    said = table(old.mqadmin("consumerProgress", "-g", group))
    progress = [fields[1:5] for fields in said if fields[0] == queue.topic]
    assert progress == [["broker-a", "0", "40", "4"]]
    fresh = f"fresh_{group}"
    client.commit(fresh, queue, 7)  # a group this broker has never heard of
    assert client.committed(fresh, queue) == 7


def test_headers_are_alike(
    client: Client, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parsed_headers(client, queue, monkeypatch) < 20


def test_it_says_that_it_is_too_old_for_compacted_topics(
    client: Client, queue: MessageQueue
) -> None:
    """So it is not asked for them, which it would not understand."""
    ask = client._metadata.ask_queue_broker
    said = ask(queue, lambda name: commands.get_min_offset(queue, name), "cannot ask for")
    assert 0 < said.version < COMPACTING
    with pytest.raises(UnsupportedRequestError):
        client._metadata.is_compacted(queue)


def test_a_security_token_and_a_namespace_of_5_are_signed(
    old: LocalCluster, queue: MessageQueue
) -> None:
    with old.client(timeout=15, security_token="token-of-a-day", namespace_v2="shop") as client:
        check_send_read_commit(client, queue)


def test_wrong_accounts_are_refused(old: LocalCluster, queue: MessageQueue) -> None:
    assert old.access_key and old.secret_key
    for access_key, secret_key in (
        (old.access_key, "not-the-secret"),
        ("nobody-known", old.secret_key),
        ("", ""),
    ):
        started = time.monotonic()
        # A read that tried again would do so for three times the timeout.
        with Client(
            old.name_server, access_key=access_key, secret_key=secret_key, timeout=60
        ) as client:
            for ask in (client.offsets, lambda q, client=client: rows(client, q, 0, 1)):
                with pytest.raises(AuthenticationError) as caught:
                    ask(queue)
                assert queue.topic in str(caught.value)
                assert old.brokers["broker-a"].address in str(caught.value)
                assert secret_key not in str(caught.value) or not secret_key
        assert time.monotonic() - started < 120
