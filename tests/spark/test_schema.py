"""Columns, a user's choice of them, and mistakes, which are told when the DataFrame is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from rocketmq_spark.client import Client, Message
from rocketmq_spark.errors import UsageError
from rocketmq_spark.spark.schema import chosen_columns, own_schema
from rocketmq_spark.spark.source import RocketMQDataSource

from .queries import Source, collect, send

pytestmark = pytest.mark.compat

COLUMNS = [
    ("topic", "string"),
    ("brokerName", "string"),
    ("queueId", "int"),
    ("queueOffset", "bigint"),
    ("msgId", "string"),
    ("keys", "string"),
    ("tags", "string"),
    ("body", "binary"),
    ("properties", "map<string,string>"),
    ("bornTimestamp", "timestamp"),
    ("storeTimestamp", "timestamp"),
    ("bornHost", "string"),
    ("storeHost", "string"),
    ("reconsumeTimes", "int"),
    ("flag", "int"),
    ("sysFlag", "int"),
    ("consumerId", "string"),
]


def sentence(error: BaseException) -> str:
    """The line of ours in an error that Spark made of it."""
    lines = [line for line in str(error).splitlines() if "rocketmq_spark.errors." in line]
    assert len(lines) == 1, str(error)
    return lines[0].partition(": ")[2]


def test_every_column(client: Client, source: Source, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, brokers=[client.brokers()[0].broker_name])
    message = Message(
        b"\x00body\xff", tags="new", keys="k1 k2", properties={"price": "7", "ü": "ß"}, flag=-3
    )
    (result,) = send(client, topic, [message])
    frame = source.batch(topic=topic)
    assert frame.dtypes == COLUMNS
    assert source.stream(topic=topic).dtypes == COLUMNS

    (row,) = collect(frame)
    born, stored = row.pop("bornTimestamp"), row.pop("storeTimestamp")
    assert born is not None and stored >= born
    properties = row.pop("properties")
    assert message.properties.items() <= properties.items()
    assert properties["TAGS"] == "new"
    hosts = row.pop("bornHost"), row.pop("storeHost")
    assert all(host.startswith("127.0.0.1:") for host in hosts)
    assert row == {
        "topic": topic,
        "brokerName": result.queue.broker_name,
        "queueId": 0,
        "queueOffset": 0,
        "msgId": result.msg_id,
        "keys": "k1 k2",
        "tags": "new",
        "body": message.payload,
        "reconsumeTimes": 0,
        "flag": -3,
        "sysFlag": row["sysFlag"],
        "consumerId": "slot@0",
    }


def test_a_users_schema_picks_columns(client: Client, source: Source, topic: str) -> None:
    send(client, topic, ["one", "two"])
    schema = "queueOffset bigint, body binary, properties map<string,string>"
    found = collect(source.batch(schema, topic=topic))
    assert [list(row) for row in found] == [["queueOffset", "body", "properties"]] * 2
    assert sorted(row["body"] for row in found) == [b"one", b"two"]

    # And nothing else is decoded: these are the batches that a task hands to Spark.
    ours = RocketMQDataSource({**source.options, "topic": topic})
    wanted = StructType([StructField("queueOffset", LongType()), StructField("body", BinaryType())])
    reader = ours.reader(wanted)
    batches: list[Any] = [b for p in reader.partitions() for b in reader.read(p)]
    assert {tuple(batch.schema.names) for batch in batches} == {("queueOffset", "body")}
    assert sum(batch.num_rows for batch in batches) == 2


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("body binary, offset bigint", "the schema asks for a column 'offset': there are topic,"),
        ("body string", "the schema asks for body as string: it is binary; read it so and cast it"),
        ("queueOffset int", "the schema asks for queueOffset as int: it is bigint"),
    ],
)
def test_a_wrong_column_is_refused(source: Source, schema: str, words: str) -> None:
    """When the query first runs: with a schema, Spark asks the source nothing before."""
    with pytest.raises(Exception) as caught:
        source.batch(schema, topic="T").collect()
    assert sentence(caught.value).startswith(words)


def test_a_wrong_column_of_a_stream_is_refused(source: Source, tmp_path: Path) -> None:
    run = source.start(tmp_path, "body string", topic="T")
    with pytest.raises(StreamingQueryException) as caught:
        run.finish()
    assert "the schema asks for body as string: it is binary" in str(caught.value)


def test_a_schema_by_itself() -> None:
    assert [field.name for field in own_schema().fields] == [name for name, _ in COLUMNS]
    assert chosen_columns(own_schema()) == [name for name, _ in COLUMNS]
    with pytest.raises(UsageError, match="the schema has no columns"):
        chosen_columns(StructType([]))


# --- options ----------------------------------------------------------------------------------

MISTAKES = [
    ({"topik": "T"}, "unknown option 'topik': did you mean topic?"),
    ({"topic": "T", "topicPattern": "T.*"}, "topic and topicPattern both say which topics to read"),
    ({"topic": "T", "startingOffsets": "{"}, "startingOffsets is not JSON"),
    ({"topic": "T", "batchBytes": "many"}, "option batchBytes is 'many': write a size"),
    ({"topic": "T", "allocate.strategy": "AVGG"}, "AVGG"),
    ({"topic": "T", "executors": "0"}, "option executors is 0: somebody has to read"),
    ({"topic": "T", "nameServer": "localhost"}, "option nameServer: 'localhost' is not an address"),
    ({}, "nothing to read: set topic, topicPattern or assign"),
]


@pytest.mark.parametrize(("options", "words"), MISTAKES)
def test_a_wrong_option_is_refused_at_load(
    source: Source, options: dict[str, str], words: str
) -> None:
    for load in (source.batch, source.stream):
        with pytest.raises(AnalysisException) as caught:
            load(**options).schema  # noqa: B018 - Spark Connect asks the source only now
        assert words in sentence(caught.value)
        # One frame of Python is all that a user is shown of our inside.
        assert str(caught.value).count('File "') == 1


def test_a_wrong_option_in_sql(source: Source) -> None:
    with pytest.raises(AnalysisException) as caught:
        source.spark.sql(
            "CREATE TEMPORARY VIEW wrong USING rocketmq "
            f"OPTIONS (nameServer '{source.options['nameServer']}', topics 'T')"
        )
    assert sentence(caught.value) == "unknown option 'topics': did you mean topic?"


def test_an_option_of_the_other_kind_of_query(source: Source, tmp_path: Path) -> None:
    batch = source.batch(topic="T", maxOffsetsPerTrigger=5)
    with pytest.raises(Exception) as caught:
        batch.collect()
    words = "option maxOffsetsPerTrigger is for a stream query; this is a batch query"
    assert words in str(caught.value)
    run = source.start(tmp_path, topic="T", endingOffsets="latest")
    with pytest.raises(Exception) as caught:
        run.finish()
    words = "option endingOffsets is for a batch query; this is a stream query"
    assert words in str(caught.value)


def test_a_topic_that_is_not_there(source: Source) -> None:
    with pytest.raises(Exception) as caught:
        source.batch(topic="no_such_topic").collect()
    assert "no_such_topic" in str(caught.value)
    assert "waitForTopic" in str(caught.value)
