"""Brokers that fail while a stream runs, or before it starts: it waits for them and loses nothing.

One cluster of a master and a slave that follows it at its own pace; each test leaves both running.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.local_cluster import LocalCluster
from tests.waiting import until

from .queries import COLUMNS, Source, numbered, send, written

MASTER, SLAVE = "broker-a", "broker-a-slave"
# Every broker has its topic from the start: a slave hears of others once a minute.
QUEUE = MessageQueue("BenchmarkTest", MASTER, 0)

# Brokers start and stop in each of them.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pair() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1, slaves=1) as running:
        yield running


@pytest.fixture(scope="module")
def client(pair: LocalCluster) -> Iterator[Client]:
    with pair.client(timeout=15) as client:
        yield client


@pytest.fixture
def source(pair: LocalCluster, spark: SparkSession, client: Client) -> Source:
    """A stream of one queue, from now on."""
    _, end = client.offsets(QUEUE)
    options = {
        "nameServer": pair.name_server,
        "assign": json.dumps({QUEUE.topic: {MASTER: [0]}}),
        "startingOffsets": json.dumps({QUEUE.topic: {MASTER: {"0": end}}}),
        "executors": "2",
    }
    return Source(spark, options)


def messages(name: str, count: int) -> list[Message]:
    return [Message(body, queue=QUEUE) for body in numbered(name, count)]


def test_a_slave_that_is_behind_its_master_looks_like_no_loss(
    pair: LocalCluster, client: Client, source: Source, tmp_path: Path
) -> None:
    with source.start(tmp_path, COLUMNS) as run:
        send(client, QUEUE.topic, messages("a", 10))
        run.wait_for(10)
        pair.stop(SLAVE)
        send(client, QUEUE.topic, messages("b", 20))
        run.wait_for(30)
        _, end = client.offsets(QUEUE)
        pair.kill(MASTER)
        try:
            pair.start(SLAVE)
            # The slave has less than was read, and the planner sees it.
            run.wait_for_progress(lambda told: 0 < _told(told) < end)
        finally:
            pair.start(MASTER)
        until(lambda: client.offsets(QUEUE)[1] == end, what="the master is back")
        send(client, QUEUE.topic, messages("c", 5))
        found = run.wait_for(35)
    assert found == numbered("a", 10) + numbered("b", 20) + numbered("c", 5)


def _told(report: dict[str, object]) -> int:
    """The latest offset of the queue in a progress, 0 if it is not there."""
    topics = report.get("offsets", {})
    assert isinstance(topics, dict)
    return int(topics.get(QUEUE.topic, {}).get(MASTER, {}).get("0", 0))


def test_a_stream_is_started_again_while_its_only_broker_is_down(
    pair: LocalCluster, client: Client, source: Source, tmp_path: Path
) -> None:
    """Without its broker the topic is unknown to the name server, as if it were never made."""
    send(client, QUEUE.topic, messages("a", 10))
    source.run_now(tmp_path, COLUMNS)
    send(client, QUEUE.topic, messages("b", 10))
    pair.stop(SLAVE)
    pair.kill(MASTER)
    try:
        run = source.start(tmp_path, COLUMNS)
        until(
            lambda: run.check() is None and run.query.lastProgress is not None,
            what="a progress without the broker",
        )
        run.check()
    finally:
        pair.start(MASTER)
        pair.start(SLAVE)
    with run:
        assert run.wait_for(10) == numbered("b", 10)
    assert len(written(tmp_path)) == 20
