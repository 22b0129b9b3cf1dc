"""`spark.readStream`: what a user of Structured Streaming sees of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_spark.client import Client, Message
from tests.waiting import until

from .queries import (
    ADMISSION_CONTROL,
    COLUMNS,
    Source,
    limits_batches,
    numbered,
    reached,
    report,
    send,
)

pytestmark = pytest.mark.compat


def test_a_stream(
    client: Client, source: Source, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2, brokers=[client.brokers()[0].broker_name])
    first, second = client.queues(topic)
    send(client, topic, [Message(body, queue=first) for body in numbered("a", 5)])
    stream = source.with_options(topic=topic, startingOffsets="earliest", executors="m1,m2")
    with stream.start(tmp_path, COLUMNS) as run:
        assert run.wait_for(5) == numbered("a", 5)
        send(client, topic, [Message(body, queue=second) for body in numbered("b", 5)])
        assert run.wait_for(10) == numbered("a", 5) + numbered("b", 5)
        assert {row["consumerId"] for row in run.rows} == {"m1", "m2"}


@limits_batches
def test_what_a_progress_tells(
    client: Client, source: Source, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2, brokers=[client.brokers()[0].broker_name])
    broker = client.queues(topic)[0].broker_name
    send(client, topic, [Message(body, queue=q) for q in client.queues(topic) for body in "12345"])
    stream = source.with_options(topic=topic, startingOffsets="earliest", executors="m1,m2")
    with stream.start(tmp_path, COLUMNS) as run:
        ends = {topic: {broker: {"0": 5, "1": 5}}}
        told = run.wait_for_progress(
            lambda r: r["offsets"] == ends and r["behindLatest"]["max"] == 0
        )
        assert told["behindLatest"] == {"min": 0, "max": 0, "avg": 0.0}
        assert told["lagMillis"] == 0
        assert told["members"] == ["m1", "m2"]
        assert told["rebalance"] == {"why": "first plan", "dropped": 0, "kept": 0, "added": 2}


def test_nothing_more_to_read_is_no_batch_and_no_job(
    client: Client, source: Source, topic: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--connect"):
        pytest.skip("Spark Connect does not tell of jobs")
    send(client, topic, numbered("a", 10))
    with source.start(tmp_path, COLUMNS, topic=topic, startingOffsets="earliest") as run:
        run.wait_for(10)
        tracker = source.spark.sparkContext.statusTracker()
        group = str(run.query.runId)
        until(lambda: "Waiting" in run.query.status["message"])
        before = sorted(tracker.getJobIdsForGroup(group))
        assert before
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            assert sorted(tracker.getJobIdsForGroup(group)) == before
            time.sleep(0.1)
        assert sum(run.batches) == 10


@limits_batches
def test_how_far_behind(
    client: Client, source: Source, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2, brokers=[client.brokers()[0].broker_name])
    first, second = client.queues(topic)
    send(client, topic, [Message(body, queue=first) for body in numbered("a", 30)])
    send(client, topic, [Message(body, queue=second) for body in numbered("b", 10)])
    sent = time.time() * 1000
    run = source.run_now(
        tmp_path, COLUMNS, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20
    )
    first_told, last_told = (report(progress) for progress in run.query.recentProgress[:2])
    assert first_told["behindLatest"] == {"min": 5, "max": 15, "avg": 10.0}
    assert 0 < first_told["lagMillis"] <= time.time() * 1000 - sent + 60_000
    assert last_told["behindLatest"] == {"min": 0, "max": 0, "avg": 0.0}


def test_a_filter_that_matches_nothing_still_moves_on(
    client: Client, source: Source, topic: str, tmp_path: Path
) -> None:
    send(client, topic, [Message(body, tags="A") for body in numbered("a", 40)])
    stream = source.with_options(topic=topic, startingOffsets="earliest")
    nothing = stream.run_now(tmp_path, COLUMNS, subExpression="B", maxOffsetsPerTrigger=25)
    assert nothing.bodies == []
    assert nothing.batches == [0, 0] if ADMISSION_CONTROL else [0]
    assert sum(reached(tmp_path).values()) == 40
    # What was passed over is not read again, even without the filter.
    send(client, topic, [Message("new", tags="A")])
    again = stream.run_now(tmp_path, COLUMNS, sqlExpression="TAGS = 'A'")
    assert again.bodies == ["new"]


def test_every_member_reads_everything_when_broadcasting(
    client: Client, source: Source, topic: str, tmp_path: Path
) -> None:
    send(client, topic, numbered("a", 12))
    run = source.run_now(
        tmp_path,
        COLUMNS,
        topic=topic,
        startingOffsets="earliest",
        messageModel="BROADCASTING",
        executors="m1,m2",
        maxOffsetsPerTrigger=10,
    )
    for member in ("m1", "m2"):
        mine = [row["body"].decode() for row in run.rows if row["consumerId"] == member]
        assert sorted(mine) == numbered("a", 12)
    assert len(run.rows) == 24
