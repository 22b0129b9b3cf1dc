"""What the Java client sends and does, seen by ours."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import pytest

from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.local_cluster import LocalCluster
from tests.waiting import until

from .witness import Row, Witness, differences, rows

MEBIBYTE = 1024 * 1024
NOISE = random.Random(5).randbytes(4 * MEBIBYTE)


def settled(client: Client, queue: MessageQueue, end: int) -> list[Row]:
    until(lambda: client.offsets(queue)[1] >= end, what=f"{queue} reaching {end}")
    return rows(client, queue)


@pytest.mark.parametrize(
    "compression, bits", [("none", 0), ("default", 0x300), ("lz4", 0x100), ("zstd", 0x200)]
)
def test_bodies_written_by_java(
    client: Client, witness: Witness, topic: str, compression: str, bits: int
) -> None:
    queue = client.queues(topic)[0]
    bodies = [b"x", b"squeeze me " * 1000, b"s" * (4 * MEBIBYTE), NOISE[: 3 * MEBIBYTE]]
    sent = [witness.send(topic, Message(b), queue, compression) for b in bodies]
    assert [s.queue_offset for s in sent] == [0, 1, 2, 3]

    found = settled(client, queue, 4)
    assert [row["body"] for row in found] == bodies
    assert [row["sysFlag"] & 0x700 for row in found] == [0, bits, bits, bits]
    assert [row["msgId"] for row in found] == [s.msg_id for s in sent]
    assert not differences(found, witness.read(queue, 0, 4))


def test_messages_written_by_java(client: Client, witness: Witness, topic: str) -> None:
    queue = client.queues(topic)[-1]
    messages = [
        Message("text ✓", tags="A", keys="k1 k2", properties={"a": "1", "ключ": "зн"}, flag=7),
        Message(bytes(range(256)), properties={"sep": "l\x01r"}),
        Message("t", tags="a b", flag=-1),
    ]
    for message in messages:
        witness.send(topic, message, queue)
    witness.send_batch(queue, [Message(f"b{i}", keys=f"k{i}", tags="B") for i in range(100)])

    found = settled(client, queue, 103)
    assert [row["body"] for row in found[:3]] == [m.payload for m in messages]
    assert [row["body"] for row in found[3:]] == [f"b{i}".encode() for i in range(100)]
    assert found[0]["properties"]["ключ"] == "зн"
    assert found[1]["properties"]["sep"] == "l\x01r"
    assert not differences(found, witness.read(queue, 0, 103))


def test_equal_sharding_keys_go_to_the_queue_java_would_choose(
    client: Client, witness: Witness, topic: str
) -> None:
    # The third key's hash is Java's smallest int, whose absolute value is itself.
    keys = ["order-1", "中文", "polygenelubricants", "", "k" * 50]
    ours = client.send(topic, [Message("m", sharding_key=key) for key in keys])
    for key, result in zip(keys, ours, strict=True):
        java = witness.send(topic, Message("m", sharding_key=key))
        assert (java.broker_name, java.queue_id) == (
            result.queue.broker_name,
            result.queue.queue_id,
        ), key


# --- inner batches ------------------------------------------------------------------------


def test_inner_batches(client: Client, witness: Witness, new_topic: Callable[..., str]) -> None:
    """A topic that stores a whole batch as one record: every message, from any offset."""
    topic = new_topic(1, attributes={"queue.type": "BatchCQ"})
    queue = client.queues(topic)[0]
    java = [Message(f"j{i}", tags="T", keys=f"k{i}", properties={"n": str(i)}) for i in range(10)]
    witness.send_batch(queue, java)
    client.send(topic, [Message(f"p{i}", flag=i, queue=queue) for i in range(7)])
    witness.send(topic, Message("single"), queue)
    big = [Message(b"q" * 1000 + str(i).encode(), queue=queue) for i in range(600)]
    client.send(topic, big)
    bodies = [m.payload for m in java] + [f"p{i}".encode() for i in range(7)]
    bodies += [b"single"] + [m.payload for m in big]

    found = settled(client, queue, len(bodies))
    assert [row["body"] for row in found] == bodies
    assert [row["queueOffset"] for row in found] == list(range(len(bodies)))
    assert [row["keys"] for row in found[:10]] == [f"k{i}" for i in range(10)]
    assert [row["flag"] for row in found[10:17]] == list(range(7))
    assert len({row["msgId"] for row in found}) == len(bodies)
    assert {row["sysFlag"] & 0x80 for row in found} == {0, 0x80}  # the broker did make batches
    for start, end in ((0, 1), (5, 12), (9, 18), (17, 18), (300, 301), (16, len(bodies))):
        part = rows(client, queue, start, end)
        assert part == found[start:end], (start, end)
    assert not differences(found, witness.read(queue, 0, len(bodies)))


# --- static topics ------------------------------------------------------------------------


def test_static_topic_before_and_after_its_queues_move(
    cluster: LocalCluster, local_client: Client, local_witness: Witness
) -> None:
    """A logical queue goes on across brokers: its offsets, its reads and its writes."""
    client, topic = local_client, f"static_{uuid.uuid4().hex[:8]}"

    cluster.mqadmin("updateStaticTopic", "-t", topic, "-qn", "2", "-b", "broker-a")
    queues = client.queues(topic)
    assert queues == local_witness.queues(topic)
    assert [q.queue_id for q in queues] == [0, 1]
    queue = queues[0]
    first = [f"a{i}" for i in range(50)]
    client.send(topic, [Message(b, queue=queue) for b in first])
    assert [row["body"].decode() for row in settled(client, queue, 50)] == first

    cluster.mqadmin("remappingStaticTopic", "-t", topic, "-b", "broker-b")
    second = [f"b{i}" for i in range(40)]
    # Our client still believes the old route, and finds its way by itself.
    sent = client.send(topic, [Message(b, queue=queue) for b in second])
    until(lambda: client.offsets(queue)[1] > sent[-1].queue_offset)
    low, high = client.offsets(queue)
    assert (low, high) == local_witness.offsets(queue)
    found = rows(client, queue, low, high)
    assert [row["body"].decode() for row in found] == first + second
    assert [row["queueOffset"] for row in found[50:]] == [s.queue_offset for s in sent]
    assert {row["queueId"] for row in found} == {0}
    assert not differences(found, local_witness.read(queue, low, high))
    # A client that never knew another route, and ranges on both sides of the move.
    with Client(cluster.name_server, timeout=15) as fresh:
        assert rows(fresh, queue, low, high) == found
        for start in (49, 50, sent[0].queue_offset, high - 1):
            assert rows(fresh, queue, start, high) == [
                row for row in found if row["queueOffset"] >= start
            ]


# --- namespaces of RocketMQ 4 -------------------------------------------------------------


def test_namespace(client: Client, name_server: str, witness: Witness) -> None:
    """`shop%orders` to the broker is `orders` to whoever works in the namespace `shop`."""
    namespace = f"shop{uuid.uuid4().hex[:6]}"
    with Client(name_server, namespace=namespace, timeout=15) as inside:
        inside.create_topic("orders", 1)
        assert inside.topics() == ["orders"]
        assert f"{namespace}%orders" in client.topics()
        queue = inside.queues("orders")[0]
        assert queue.topic == "orders"
        (ours,) = inside.send("orders", [Message("ours", queue=queue)])
        assert ours.queue == queue
        with witness.namespace(namespace):
            witness.send("orders", Message("java's"), queue)
            until(lambda: inside.offsets(queue)[1] == 2)
            # Java leaves the namespace in a name that it decodes, and takes it off for the user.
            theirs = [{**row, "topic": "orders"} for row in witness.read(queue, 0, 2)]
        found = rows(inside, queue)
        assert [row["body"] for row in found] == [b"ours", b"java's"]
        assert {row["topic"] for row in found} == {"orders"}
        assert not differences(found, theirs)
        outside = MessageQueue(f"{namespace}%orders", queue.broker_name, queue.queue_id)
        assert [row["body"] for row in rows(client, outside)] == [b"ours", b"java's"]

        inside.commit("billing", queue, 1)
        assert inside.committed("billing", queue) == 1
        assert client.committed(f"{namespace}%billing", outside) == 1
        assert client.committed("billing", outside) is None
        with witness.namespace(namespace), witness.consumer("live", "orders") as client_id:
            assert until(lambda: inside.consumers("live")) == [client_id]
            until(lambda: len(witness.consumed("live")) == 2)  # ours, too
        inside.delete_topic("orders")
        assert f"{namespace}%orders" not in client.topics()


# --- messages that were refused and come again --------------------------------------------


def test_retry_topic(client: Client, witness: Witness, topic: str) -> None:
    """A consumer refuses a message: it stands in the group's retry topic with its history."""
    group = f"g_{uuid.uuid4().hex[:8]}"
    retry = f"%RETRY%{group}"
    with witness.consumer(group, topic, refuse_first=True):
        client.send(topic, [Message("again", tags="T", keys="k")])
        until(lambda: witness.consumed(group))

        def stored() -> list[Row]:
            return [row for queue in client.queues(retry) for row in rows(client, queue)]

        (row,) = until(stored)
    assert retry not in client.topics()
    assert retry in client.topics(system=True)
    assert row["topic"] == retry
    assert row["body"] == b"again"
    assert row["reconsumeTimes"] == 1
    assert (row["tags"], row["keys"]) == ("T", "k")
    assert row["properties"]["RETRY_TOPIC"] == topic
    queue = MessageQueue(retry, row["brokerName"], row["queueId"])
    assert not differences([row], witness.read(queue, 0, 1))
