"""Brokers that die while a stream writes: what was acknowledged is there, and it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketmq_spark.client import Client
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.local_cluster import LocalCluster
from tests.waiting import PATIENCE, until

TOPIC = "written"

# Brokers start and stop several times here, on a machine that may be busy with other things.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def mortal() -> Iterator[LocalCluster]:
    """Two brokers that a test may kill."""
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic(TOPIC, 4)
        yield cluster


def start(
    spark: SparkSession, name_server: str, checkpoint: Path, **options: str
) -> StreamingQuery:
    """A stream of numbers, some hundreds a second, until it is stopped."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", "300").load()
    return (
        rows.selectExpr("cast(value as string) AS body")
        .writeStream.format("rocketmq")
        .options(nameServer=name_server, topic=TOPIC, sendTimeout="3s", **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .start()
    )


def numbers(client: Client, brokers: tuple[str, ...] = ("broker-a", "broker-b")) -> list[int]:
    """All that the topic holds, copies too."""
    found: list[int] = []
    for broker in brokers:
        for queue_id in range(4):
            queue = MessageQueue(TOPIC, broker, queue_id)
            for batch in client.read(queue, *client.offsets(queue), ["body"]):
                found += [int(body.as_py()) for body in batch.column(0)]
    return found


def batches(query: StreamingQuery) -> list[int]:
    """Batches that are done."""
    failure = query.exception()
    assert failure is None, failure
    return [int(p["batchId"]) for p in query.recentProgress if p["numInputRows"]]


def written(query: StreamingQuery) -> int:
    return sum(int(p["numInputRows"]) for p in query.recentProgress)


def test_a_broker_is_killed_while_a_stream_writes(
    spark: SparkSession, mortal: LocalCluster, tmp_path: Path
) -> None:
    query = start(spark, mortal.name_server, tmp_path)
    try:
        until(lambda: len(batches(query)) >= 2, PATIENCE, "two batches")
        mortal.kill("broker-a")
        done = len(batches(query))
        until(lambda: len(batches(query)) >= done + 4, PATIENCE, "four batches with one broker")
    finally:
        query.stop()
    assert query.exception() is None
    count = written(query)
    mortal.start("broker-a")  # what it had acknowledged is still there
    with Client(mortal.name_server, timeout=15) as client:
        until(lambda: len(client.writable_queues(TOPIC)) == 8 or _forget(client), PATIENCE)
        until(lambda: len(set(numbers(client))) >= count, PATIENCE, f"{count} different rows")
        found = numbers(client)
    # A batch may have been cut off by stop() after its rows were sent.
    assert set(range(count)) <= set(found)


def _forget(client: Client) -> bool:
    client.topic_offsets(TOPIC, refresh=True, skip=lambda *_: None)
    return False


def test_all_brokers_are_gone(spark: SparkSession, mortal: LocalCluster, tmp_path: Path) -> None:
    query = start(spark, mortal.name_server, tmp_path, retries="2")
    until(lambda: len(batches(query)) >= 2, PATIENCE, "two batches")
    count = written(query)
    mortal.kill("broker-a")
    mortal.kill("broker-b")
    begin = time.monotonic()
    with pytest.raises(StreamingQueryException, match="row 0 of partition"):
        query.awaitTermination(PATIENCE)
        raise AssertionError(f"the query still runs after {time.monotonic() - begin:.0f} s")
    mortal.start("broker-a")
    mortal.start("broker-b")
    again = start(spark, mortal.name_server, tmp_path)
    try:
        until(lambda: len(batches(again)) >= 2, PATIENCE, "two batches after the restart")
    finally:
        again.stop()
    count += written(again)
    with Client(mortal.name_server, timeout=15) as client:
        until(lambda: len(set(numbers(client))) >= count, PATIENCE, f"{count} different rows")
        found = set(numbers(client))
    # Nothing is missing: the rate source numbers its rows without gaps.
    assert found >= set(range(count)) and found == set(range(max(found) + 1))
