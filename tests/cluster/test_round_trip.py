"""What our client sends, read back by itself and by the Java client."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from rocketmq_spark.client import Client, Message, PullSettings, SendSettings
from rocketmq_spark.errors import UsageError
from rocketmq_spark.local_cluster import LocalCluster
from tests.waiting import until

from .witness import Row, Witness, differences, rows

MEBIBYTE = 1024 * 1024
NOISE = random.Random(7).randbytes(4 * MEBIBYTE)  # does not compress
COMPRESSIONS = {"zlib": 0x300, "lz4": 0x100, "zstd": 0x200}

FEATURES = {
    "text": Message("héllo, 世界 🚀"),
    "binary": Message(bytes(range(256))),
    "tags": Message("t", tags="Aa"),
    "keys": Message("k", keys="order-1 order-2 заказ"),
    "properties": Message("p", properties={"a": "1", "ключ": "значение 🚀", "sp ace": "x=y;z,"}),
    "value with a separator": Message("s", properties={"sep": "left\x01right"}),
    "long properties": Message("l", properties={f"p{i}": "v" * 100 for i in range(250)}),
    "everything": Message("e", tags="T", keys="k", properties={"p": "v"}, flag=42),
    "flags": Message("f", flag=-(2**31)),
    "empty": Message(b""),
    "empty with properties": Message(b"", tags="T", properties={"p": "v"}),
    "just too small to compress": Message("x" * 4095),
    "just large enough to compress": Message("y" * 4096),
    "4 MiB that compress": Message(b"ab" * (2 * MEBIBYTE)),
    "4 MiB that do not": Message(NOISE),
}


def check_row(row: Row, message: Message) -> None:
    assert row["body"] == message.payload
    assert row["tags"] == (message.tags or None)
    assert row["keys"] == (message.keys or None)
    assert row["flag"] == message.flag
    assert message.properties.items() <= row["properties"].items()


def test_every_feature_of_a_message(client: Client, witness: Witness, topic: str) -> None:
    queue = client.queues(topic)[0]
    messages = [
        Message(m.body, m.tags, m.keys, m.properties, m.flag, queue=queue)
        for m in FEATURES.values()
    ]
    before = int(time.time() * 1000)
    results = client.send(topic, messages)
    after = int(time.time() * 1000)

    assert [r.queue for r in results] == [queue] * len(messages)
    assert [r.queue_offset for r in results] == list(range(len(messages)))  # in our order
    assert all(r.ok and r.status == "SEND_OK" for r in results)
    until(lambda: client.offsets(queue) == (0, len(messages)))
    ours = rows(client, queue)
    assert [row["queueOffset"] for row in ours] == list(range(len(messages)))
    for row, message, result in zip(ours, messages, results, strict=True):
        check_row(row, message)
        assert row["msgId"] == result.msg_id == row["properties"]["UNIQ_KEY"]
        assert before <= row["bornTimestamp"] <= row["storeTimestamp"] <= after
        assert (row["topic"], row["brokerName"], row["queueId"]) == (
            topic,
            queue.broker_name,
            queue.queue_id,
        )
    assert not differences(ours, witness.read(queue, 0, len(messages)))


def test_ids_find_messages(client: Client, witness: Witness, topic: str) -> None:
    """Both ids, the producer's and the broker's, are what RocketMQ takes them for."""
    results = client.send(topic, [Message("in a batch"), Message("x" * 5000), Message("too")])
    for result in results:
        stored = witness.view(topic, result.offset_msg_id)
        assert stored["queueOffset"] == result.queue_offset
        assert stored["queueId"] == result.queue.queue_id
        assert stored["properties"]["UNIQ_KEY"] == result.msg_id


def test_mqadmin_finds_messages_by_key(
    cluster: LocalCluster, local_client: Client, unique_topic: str
) -> None:
    (result,) = local_client.send(unique_topic, [Message("found", keys="order-77 order-78")])

    def found() -> list[str]:
        said = cluster.mqadmin("queryMsgByKey", "-t", unique_topic, "-k", "order-78")
        return next((line.split() for line in said.splitlines() if result.msg_id in line), [])

    # The index is built a moment after the message is stored.
    expected = [result.msg_id, str(result.queue.queue_id), str(result.queue_offset)]
    assert until(found)[:3] == expected


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_here_and_read_by_both(
    client: Client, name_server: str, witness: Witness, topic: str, compression: str
) -> None:
    queue = client.queues(topic)[0]
    bodies = [b"tiny", b"squeeze me " * 1000, NOISE[:5000], b"z" * (4 * MEBIBYTE)]
    with Client(
        name_server, timeout=15, sending=SendSettings(compression=compression)
    ) as compressing:
        compressing.send(topic, [Message(body, queue=queue) for body in bodies])

    until(lambda: client.offsets(queue)[1] == len(bodies))
    ours = rows(client, queue)
    assert [row["body"] for row in ours] == bodies
    bits = COMPRESSIONS[compression]
    # Too small; yes; gains nothing; yes. The type's bits stay when the body has been unpacked.
    assert [row["sysFlag"] & 0x700 for row in ours] == [0, bits, 0, bits]
    assert not differences(ours, witness.read(queue, 0, len(bodies)))


def test_delay_levels_and_timers_arrive_late(
    client: Client, witness: Witness, new_topic: Callable[..., str]
) -> None:
    """Levels 1 and 2 are one and five seconds; Java's message of a level comes as late as ours."""
    topic = new_topic(1)
    deliver_at = int(time.time() * 1000) + 3000
    sent_at = time.time() * 1000
    client.send(
        topic,
        [
            Message("now", tags="A"),
            Message("level 1", tags="A", delay_level=1, keys="k"),
            Message("level 2", tags="A", delay_level=2, keys="k", properties={"p": "v"}),
            Message("at a time", tags="A", deliver_at=deliver_at, properties={"p": "v"}),
        ],
    )
    witness.send(topic, Message("java's level 2", "A", "k", {"p": "v"}, delay_level=2))

    def everything() -> list[Row]:
        return [row for queue in client.queues(topic) for row in rows(client, queue)]

    until(lambda: len(everything()) == 5)
    found = {row["body"].decode(): row for row in everything()}
    # A broker's clock is ours, but it counts in its own steps; a timer's wheel turns once a second.
    for body, due in (
        ("level 1", sent_at + 900),
        ("level 2", sent_at + 4900),
        ("java's level 2", sent_at + 4900),
        ("at a time", deliver_at - 1000),
    ):
        assert found[body]["storeTimestamp"] >= due, body
        assert found[body]["tags"] == "A"
        assert body == "level 1" or found[body]["properties"]["p"] == "v"
        assert body == "at a time" or found[body]["keys"] == "k"
    assert found["now"]["storeTimestamp"] < found["level 1"]["storeTimestamp"]
    ours, javas = (found[name]["properties"] for name in ("level 2", "java's level 2"))
    assert ours["DELAY"] == javas["DELAY"] == "2"
    assert javas.keys() - ours.keys() == {"WAIT"}
    for queue in client.queues(topic):
        end = client.offsets(queue)[1]
        assert not differences(rows(client, queue), witness.read(queue, 0, end))


def test_messages_spread_over_all_queues_and_none_is_lost(client: Client, topic: str) -> None:
    bodies = [f"m{i}" for i in range(5000)]
    results = client.send(topic, [Message(body) for body in bodies])
    queues = client.queues(topic)
    until(lambda: sum(high for _, high in client.topic_offsets(topic).values()) == len(bodies))
    counts = {queue: client.offsets(queue)[1] for queue in queues}
    assert set(counts.values()) == {len(bodies) // len(queues)}

    found = {
        (queue, row["queueOffset"]): row["body"].decode()
        for queue in queues
        for row in rows(client, queue, columns=["queueOffset", "body"])
    }
    assert found == {(r.queue, r.queue_offset): b for r, b in zip(results, bodies, strict=True)}


@pytest.mark.parametrize("start, end", [(0, 1), (0, 1000), (31, 33), (500, 500), (999, 1000)])
def test_any_range_is_read_exactly(
    client: Client, thousand: tuple[str, list[bytes]], start: int, end: int
) -> None:
    topic, bodies = thousand
    queue = client.queues(topic)[0]
    found = rows(client, queue, start, end, columns=["body", "queueOffset"])
    assert [row["body"] for row in found] == bodies[start:end]
    assert [row["queueOffset"] for row in found] == list(range(start, end))


def test_the_shape_of_a_pipeline_changes_nothing(
    name_server: str, thousand: tuple[str, list[bytes]]
) -> None:
    topic, bodies = thousand
    for settings in (
        PullSettings(in_flight=1, largest_pull=1),
        PullSettings(in_flight=64, largest_pull=7),
        PullSettings(window_bytes=1, batch_bytes=1),
        PullSettings(in_flight=3, largest_pull=2048, batch_bytes=1 << 30),
    ):
        with Client(name_server, timeout=15, pull=settings) as client:
            queue = client.queues(topic)[0]
            assert [r["body"] for r in rows(client, queue, columns=["body"])] == bodies, settings


def test_messages_that_no_broker_takes_are_refused_before_any_is_sent(
    client: Client, topic: str
) -> None:
    good = Message("good")
    for bad, words in (
        (Message(b"x" * (4 * MEBIBYTE + 1)), "message 1 cannot be sent"),
        (Message("x", properties={"p": "v" * 33000}), "message 1 cannot be sent"),
        (Message("x", properties={"": "v"}), "message 1 cannot be sent"),
        (Message("", delay_level=1), "message 1 cannot be sent"),
    ):
        with pytest.raises(UsageError, match=words):
            client.send(topic, [good, bad])
    assert set(client.topic_offsets(topic).values()) == {(0, 0)}


@pytest.fixture(scope="module")
def thousand(client: Client) -> tuple[str, list[bytes]]:
    """A topic with one queue of a thousand bodies of any size up to 3 kB."""
    random_ = random.Random(11)
    bodies = [random_.randbytes(random_.randrange(3000)) for _ in range(1000)]
    topic = f"t_thousand_{random_.randrange(10**9)}_{int(time.time())}"
    name = client.brokers()[0].broker_name
    client.create_topic(topic, 1, brokers=[name])
    queue = client.queues(topic)[0]
    client.send(topic, [Message(body, queue=queue) for body in bodies])
    until(lambda: client.offsets(queue)[1] == len(bodies))
    return topic, bodies


@pytest.fixture
def unique_topic(local_client: Client) -> str:
    topic = f"t_ids_{time.time_ns()}"
    local_client.create_topic(topic, 1)
    return topic
