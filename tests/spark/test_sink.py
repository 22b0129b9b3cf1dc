"""The sink's writers as Spark calls them, without a Spark, against real brokers."""

from __future__ import annotations

import datetime
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import StructType

from rocketmq_spark.client import Client
from rocketmq_spark.errors import SendError, UsageError
from rocketmq_spark.spark import write as writers
from rocketmq_spark.spark.schema import SINK_COLUMNS, check_sink_columns
from rocketmq_spark.spark.source import RocketMQDataSource
from rocketmq_spark.spark.write import _ARROW, RocketMQStreamWriter, TaskWritten
from tests.waiting import PATIENCE, until

ALL = (
    "body binary, topic string, keys string, tags string, properties map<string,string>, "
    "shardingKey string, queueId int, brokerName string, delayLevel int, deliverAt timestamp, "
    "flag int"
)


def schema(text: str) -> StructType:
    """Without a Spark, a schema cannot be parsed; JSON can."""
    fields = []
    for part in text.replace("map<string,string>", "map").split(","):
        name, kind = part.split()
        full: Any = {"binary": "binary", "string": "string", "int": "integer"}.get(kind, kind)
        full = {"bigint": "long"}.get(kind, full)
        if kind == "map":
            full = {"type": "map", "keyType": "string", "valueType": "string"}
            full["valueContainsNull"] = True
        fields.append({"name": name, "type": full, "nullable": True, "metadata": {}})
    return StructType.fromJson({"type": "struct", "fields": fields})


def arrow(columns: str, rows: list[dict[str, Any]]) -> Any:
    fields = [(f.name, _ARROW[f.dataType.simpleString()]) for f in schema(columns).fields]
    return pa.RecordBatch.from_pylist(rows, pa.schema(fields))


def write(
    name_server: str, columns: str, rows: list[dict[str, Any]], **options: str
) -> TaskWritten:
    given = {"nameServer": name_server, **options}
    writer = RocketMQDataSource(given).writer(schema(columns), False)
    done = writer.write(iter([arrow(columns, rows)]))
    assert isinstance(done, TaskWritten)
    writer.commit([done])
    return done


def stored(client: Client, topic: str, count: int) -> list[dict[str, Any]]:
    """All messages of the topic, once there are so many."""

    def total() -> int:
        return sum(end for _, end in client.topic_offsets(topic).values())

    until(lambda: total() >= count, PATIENCE, f"{count} messages in {topic}, not {total()}")
    return [
        {**row, "properties": dict(row["properties"])}
        for queue, (start, end) in client.topic_offsets(topic).items()
        for batch in client.read(queue, start, end)
        for row in batch.to_pylist()
    ]


def test_every_column(client: Client, name_server: str, new_topic: Callable[..., str]) -> None:
    first, second = new_topic(), new_topic()
    broker = client.brokers()[-1].broker_name
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=3)
    rows: list[dict[str, Any]] = [
        {"body": b"\x00plain\xff", "keys": "k1 k2", "tags": "new", "flag": -7},
        {"body": b"other", "topic": second, "properties": {"price": "7", "ü": "ß"}},
        {"body": b"key", "shardingKey": "order-1"},
        {"body": b"queue", "queueId": 2, "brokerName": broker},
        {"body": b"level", "delayLevel": 1},
        {"body": b"timed", "deliverAt": soon},
        {"body": b"large " * 1000},
        {"body": b""},
    ]
    assert write(name_server, ALL, rows, topic=first).rows == len(rows)
    found = {row["body"]: row for row in stored(client, first, len(rows) - 1)}
    (other,) = stored(client, second, 1)
    assert set(found) == {row["body"] for row in rows} - {b"other"}
    plain = found[b"\x00plain\xff"]
    assert (plain["keys"], plain["tags"], plain["flag"]) == ("k1 k2", "new", -7)
    assert {"price": "7", "ü": "ß"}.items() <= other["properties"].items()
    queues = sorted(client.writable_queues(first))
    chosen = queues[1207111310 % len(queues)]  # Java's hash of order-1, without its sign
    key = found[b"key"]
    assert (key["brokerName"], key["queueId"]) == (chosen.broker_name, chosen.queue_id)
    assert (found[b"queue"]["brokerName"], found[b"queue"]["queueId"]) == (broker, 2)
    level, timed = found[b"level"], found[b"timed"]
    second_less = datetime.timedelta(seconds=1)  # brokers round times down to it
    assert level["storeTimestamp"] - level["bornTimestamp"] >= 0.9 * second_less
    assert timed["storeTimestamp"] >= soon - second_less
    ids = [row["msgId"] for row in found.values()]
    keys = [row["properties"]["SPARK_ROW"] for row in (*found.values(), other)]
    assert len(set(ids)) == len(ids) and len(set(keys)) == len(rows)


def test_rows_in_place_of_arrow(
    client: Client, name_server: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark 4.0 gives a stream's writer."""
    monkeypatch.setattr(writers, "ARROW_STREAMS", False)
    monkeypatch.setattr(writers, "_ROWS_AT_ONCE", 7)
    columns = "body string, properties map<string,string>, deliverAt timestamp"
    options = {"nameServer": name_server, "topic": topic, "checkpointLocation": "/nowhere"}
    writer = RocketMQDataSource(options).streamWriter(schema(columns), False)
    assert isinstance(writer, RocketMQStreamWriter)
    soon = datetime.datetime.now() + datetime.timedelta(seconds=3)
    due = {5: soon}  # a local time that does not say so, as Spark has it
    rows = (Row(body=f"b{n}", properties={"n": str(n)}, deliverAt=due.get(n)) for n in range(30))
    done = writer.write(rows)
    assert isinstance(done, TaskWritten) and done.rows == 30
    writer.commit([done], 4)
    writer.abort([None], 5)
    found = stored(client, topic, 30)
    assert {row["body"].decode()[1:] for row in found} == {str(n) for n in range(30)}
    assert all(row["properties"]["n"] == row["body"].decode()[1:] for row in found)
    (timed,) = [row for row in found if row["body"] == b"b5"]
    assert timed["storeTimestamp"] >= soon.astimezone() - datetime.timedelta(seconds=1)


def test_an_empty_task(name_server: str, topic: str) -> None:
    assert write(name_server, "body string", [], topic=topic).rows == 0


def test_a_retry_topic(client: Client, name_server: str) -> None:
    group = f"g_{uuid.uuid4().hex[:8]}"
    retries = f"%RETRY%{group}"
    client.create_topic(retries, 1)
    try:
        write(name_server, "body string, topic string", [{"body": "x", "topic": retries}] * 2)
        assert len(stored(client, retries, 2)) == 2
    finally:
        client.delete_topic(retries)


def test_nobody_is_there(topic: str) -> None:
    begin = time.monotonic()
    with pytest.raises(SendError, match="row 0 of partition 0 cannot be sent: "):
        write("127.0.0.1:1", "body string", [{"body": "x"}], topic=topic, sendTimeout="2s")
    assert time.monotonic() - begin < PATIENCE


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("topic string", "column body is missing, binary or string: there are topic"),
        ("body int", "column body is int and must be binary or string: cast it"),
        ("body string, tag string", "column 'tag' is none that can be written: did you mean tags?"),
        ("body string, zzz string", "'zzz' is none that can be written: drop it, or put it into"),
        ("body string, body string", "column 'body' is there twice"),
        ("body string, queueId bigint", "column queueId is bigint and must be int: cast it"),
        ("body string, deliverAt string", "deliverAt is string and must be timestamp or bigint"),
        ("body string, brokerName string", "column brokerName needs queueId"),
    ],
)
def test_wrong_columns(columns: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_sink_columns(schema(columns), "T")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_columns_are_taken() -> None:
    check_sink_columns(schema(ALL), None)
    assert set(SINK_COLUMNS) == set(schema(ALL).fieldNames())


@pytest.mark.parametrize(
    ("options", "overwrite", "words"),
    [
        ({}, False, "nowhere to write: set the option topic, or add a column topic"),
        ({"topic": "T"}, True, "a topic cannot be overwritten: write with mode append"),
        ({"topic": "T", "startingOffsets": "earliest"}, False, "unknown option 'startingOffsets'"),
        ({"topic": "T", "client": "native", "tls": "true"}, False, "does not know the option tls"),
    ],
)
def test_wrong_options(options: dict[str, str], overwrite: bool, words: str) -> None:
    ours = RocketMQDataSource({"nameServer": "127.0.0.1:1", **options})
    for make in (ours.writer, ours.streamWriter):
        with pytest.raises(UsageError) as caught:
            make(schema("body string"), overwrite)
        assert words in str(caught.value)


def test_the_complaint_fits_what_was_meant() -> None:
    with pytest.raises(UsageError, match="retries is '-1'"):
        RocketMQDataSource({"nameServer": "127.0.0.1:1", "topic": "T", "retries": "-1"})
    with pytest.raises(UsageError, match="option batch is 'x'"):
        RocketMQDataSource({"nameServer": "127.0.0.1:1", "producerGroup": "g", "batch": "x"})
    reader = RocketMQDataSource({"nameServer": "127.0.0.1:1", "batch": "1m"})
    with pytest.raises(UsageError, match="unknown option 'batch'"):
        reader.schema()


# --- the other client -------------------------------------------------------------------------


def test_what_the_native_client_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = RocketMQDataSource({"nameServer": "127.0.0.1:1", "topic": "T", "client": "native"})
    with pytest.raises(UsageError, match="client=native cannot write the column queueId"):
        ours.writer(schema("body string, queueId int"), False)
    for name in [n for n in sys.modules if n.partition(".")[0] == "rocketmq"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rocketmq", None)
    monkeypatch.setitem(sys.modules, "rocketmq.client", None)
    writer = ours.writer(schema("body string"), False)
    with pytest.raises(UsageError, match=r"pip install 'rocketmq-spark\[native\]'"):
        writer.write(iter([arrow("body string", [{"body": "x"}])]))
