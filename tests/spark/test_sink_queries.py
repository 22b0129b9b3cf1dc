"""The sink in real queries: batch and stream, order, replay, and mistakes as a user sees them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from rocketmq_spark.client import Client
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.wire.message import java_hash
from tests.waiting import PATIENCE

from .queries import Source, collect, numbered, send
from .test_sink import stored


def save(frame: DataFrame, name_server: str, **options: str) -> None:
    writer = frame.write.format("rocketmq").option("nameServer", name_server)
    writer.options(**options).mode("append").save()


def run(frame: DataFrame, name_server: str, checkpoint: Path, **options: str) -> None:
    """A stream, to its end."""
    query = (
        frame.writeStream.format("rocketmq")
        .option("nameServer", name_server)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE), f"still running after {PATIENCE} s"


@pytest.mark.compat
def test_a_batch_of_two_tasks(client: Client, source: Source, name_server: str, topic: str) -> None:
    frame = source.spark.range(0, 5000, 1, 2).selectExpr(
        "cast(id as string) AS body", "concat('k', id) AS keys", "'new' AS tags"
    )
    save(frame, name_server, topic=topic)
    found = stored(client, topic, 5000)
    assert sorted(int(row["body"]) for row in found) == list(range(5000))
    assert len({row["msgId"] for row in found}) == 5000
    assert len({row["properties"]["SPARK_ROW"] for row in found}) == 5000
    assert all(row["keys"] == f"k{row['body'].decode()}" for row in found)
    spread = Counter((row["brokerName"], row["queueId"]) for row in found)
    assert len(spread) == 8
    assert sorted(row["body"] for row in collect(source.batch(topic=topic))) == sorted(
        row["body"] for row in found
    )


@pytest.mark.compat
def test_order_by_key_and_many_topics(
    client: Client, source: Source, name_server: str, new_topic: Callable[..., str]
) -> None:
    topics = [new_topic(), new_topic()]
    frame = source.spark.range(0, 3000, 1, 1).selectExpr(
        "cast(id as string) AS body",
        "concat('key-', id % 17) AS shardingKey",
        f"if(id % 2 = 0, '{topics[0]}', '{topics[1]}') AS topic",
    )
    save(frame, name_server, batch="2k")
    for half, topic in enumerate(topics):
        found = stored(client, topic, 1500)
        assert sorted(int(r["body"]) for r in found) == list(range(half, 3000, 2))
        queues = sorted(client.writable_queues(topic))
        by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in found:
            key = row["properties"]["__SHARDINGKEY"]
            where = MessageQueue(topic, row["brokerName"], row["queueId"])
            assert where == queues[abs(java_hash(key)) % len(queues)]
            by_key[key].append((row["queueOffset"], int(row["body"])))
        for places in by_key.values():
            numbers = [number for _, number in sorted(places)]
            assert numbers == sorted(numbers)


@pytest.mark.compat
def test_a_replayed_batch_has_the_same_row_keys(
    client: Client, source: Source, name_server: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    placed, received = new_topic(2), new_topic(2)
    send(client, placed, numbered("a", 100))
    rows = source.stream(topic=placed, startingOffsets="earliest").select("body")
    run(rows, name_server, tmp_path, topic=received)
    first = stored(client, received, 100)
    for name in ("0", ".0.crc"):  # the driver died before it noted the batch as done
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    run(rows, name_server, tmp_path, topic=received)
    both = stored(client, received, 200)

    copies: dict[str, list[bytes]] = defaultdict(list)
    for row in both:
        copies[row["properties"]["SPARK_ROW"]].append(row["body"])
    assert len(copies) == 100 and len(first) == 100
    assert all(len(bodies) == 2 and bodies[0] == bodies[1] for bodies in copies.values())
    assert len({row["msgId"] for row in both}) == 200

    send(client, placed, numbered("b", 50))
    run(rows, name_server, tmp_path, topic=received)
    keys = {row["properties"]["SPARK_ROW"] for row in stored(client, received, 250)}
    assert len(keys) == 150


@pytest.mark.slow
def test_through_the_native_client(
    client: Client, source: Source, name_server: str, topic: str
) -> None:
    pytest.importorskip("rocketmq")
    frame = source.spark.range(0, 200, 1, 2).selectExpr(
        "cast(concat('a', char(0), 'b', id) as binary) AS body",
        "concat('k', id) AS keys",
        "'new' AS tags",
        "map('price', cast(id as string)) AS properties",
        "if(id % 2 = 0, concat('s', id % 5), null) AS shardingKey",
    )
    save(frame, name_server, topic=topic, client="native")
    found = stored(client, topic, 200)
    assert {row["body"] for row in found} == {b"a\x00b%d" % n for n in range(200)}
    assert len({row["properties"]["SPARK_ROW"] for row in found}) == 200
    for row in found:
        number = row["body"][3:].decode()
        assert (row["keys"], row["tags"]) == (f"k{number}", "new")
        assert row["properties"]["price"] == number


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("id AS body", "column body is bigint and must be binary or string: cast it"),
        ("'x' AS body, 'y' AS tag", "column 'tag' is none that can be written: did you mean tags?"),
        ("'x' AS body, id % 9 AS bodys", "did you mean body?"),
    ],
)
def test_a_wrong_column(
    source: Source, name_server: str, topic: str, tmp_path: Path, columns: str, words: str
) -> None:
    frame = source.spark.range(3).selectExpr(*columns.split(", "))
    with pytest.raises(Exception) as caught:
        save(frame, name_server, topic=topic)
    assert words in str(caught.value)


@pytest.mark.slow
def test_mistakes_of_a_stream(
    client: Client, source: Source, name_server: str, topic: str, tmp_path: Path
) -> None:
    send(client, topic, ["one"])
    rows = source.stream(topic=topic, startingOffsets="earliest")
    with pytest.raises(StreamingQueryException, match="column 'queueOffset' is none that can be"):
        run(rows, name_server, tmp_path / "a", topic=topic)
    with pytest.raises(Exception, match="unknown option 'topik': did you mean topic"):
        run(rows.select("body"), name_server, tmp_path / "b", topik=topic)


def test_a_row_that_cannot_be_sent_is_named(source: Source, name_server: str, topic: str) -> None:
    frame = source.spark.range(0, 10, 1, 2).selectExpr(
        "'x' AS body", "if(id = 7, concat('a', char(2)), 'b') AS keys"
    )
    with pytest.raises(Exception) as caught:
        save(frame, name_server, topic=topic)
    assert "row 2 of partition 1 cannot be sent: the value of property 'KEYS'" in str(caught.value)
    with pytest.raises(Exception) as caught:
        save(frame.select("body"), name_server, topic="no_such_topic")
    assert "cannot find topic no_such_topic" in str(caught.value)
