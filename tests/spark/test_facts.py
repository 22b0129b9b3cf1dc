"""What the planner believes of brokers that come and go, without brokers and without Spark."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.offsets import Offsets
from rocketmq_spark.core.options import SourceOptions, read_options
from rocketmq_spark.errors import (
    ConnectError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
    UnavailableError,
    UsageError,
)
from rocketmq_spark.spark.facts import Facts
from rocketmq_spark.spark.planner import Planner

A0, A1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
B0 = MessageQueue("T", "broker-b", 0)


class Clock:
    """Each look at it is a second later, so that nothing is believed for longer than one look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


class FakeClient:
    """Answers with `offsets`; a broker that is an error in `down` does not."""

    def __init__(self, offsets: dict[MessageQueue, tuple[int, int]]) -> None:
        self.offsets = offsets
        self.down: dict[str, Exception] = {}
        self.looks = 0

    def queues(self, topic: str) -> list[MessageQueue]:
        if not self.offsets:
            raise TopicNotFoundError(f"no topic {topic}")
        return list(self.offsets)

    def topic_offsets(
        self, topic: str, *, refresh: bool, skip: Any, avoid: Any, replicas: set[str]
    ) -> dict[MessageQueue, tuple[int, int]]:
        self.looks += 1
        self.queues(topic)
        for name, error in self.down.items():
            if skip is None:
                raise error
            if name not in avoid:
                skip(name, error)
        return {q: limits for q, limits in self.offsets.items() if q.broker_name not in self.down}


def options(**more: str) -> SourceOptions:
    given = {"nameServer": "localhost:1", "topic": "T", "timeout": "10ms", "retries": "1"}
    if "assign" in more:
        del given["topic"]
    return read_options({**given, "startingOffsets": "earliest", "discoveryInterval": "0s", **more})


def planner_of(client: FakeClient, **more: str) -> Planner:
    chosen = options(**more)
    facts = Facts(client, chosen, Clock())  # type: ignore[arg-type]
    return Planner(chosen, facts, lambda: ["m1", "m2"])


def test_a_topic_that_vanishes_keeps_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """With its last broker a topic is gone from the name server too."""
    client = FakeClient({A0: (0, 5), A1: (0, 7)})
    planner = planner_of(client)
    first = planner.advance(Offsets.initial())
    known, client.offsets = client.offsets, {}
    for _ in range(3):
        assert planner.advance(first) is first
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
        "topic T is left out until it is back: no topic T"
    ]
    client.offsets = {**known, A1: (0, 9)}
    assert planner.advance(first).positions == {A0: 5, A1: 9}


def test_a_broker_that_vanishes_keeps_its_place(caplog: pytest.LogCaptureFixture) -> None:
    client = FakeClient({A0: (0, 5), B0: (0, 7)})
    planner = planner_of(client)
    first = planner.advance(Offsets.initial())
    client.down = {"broker-b": ConnectError("refused")}
    client.offsets = {A0: (0, 6), B0: (0, 7)}
    second = planner.advance(first)
    assert planner.advance(second) is second
    assert second.positions == {A0: 6, B0: 7}
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
        "broker broker-b is left out until it is back: refused"
    ]


def test_a_topic_that_an_earlier_run_has_read_is_down_and_not_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A query that is started while a topic's only broker is down waits for it."""
    client = FakeClient({A0: (0, 5)})
    first = planner_of(client).advance(Offsets.initial())
    known, client.offsets = client.offsets, {}
    with pytest.raises(UsageError, match="no topic T"):
        planner_of(client).advance(Offsets.initial())
    for more in ({}, {"assign": '{"T":{"broker-a":[0]}}'}):
        caplog.clear()
        client.offsets = {}
        planner = planner_of(client, **more)
        assert planner.advance(first) is first
        assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
            "topic T is left out until it is back: no topic T"
        ]
        client.offsets = {**known, A0: (0, 6)}
        assert planner.advance(first).positions == {A0: 6}


def test_a_run_that_has_pinned_its_end_does_not_stop_early() -> None:
    client = FakeClient({A0: (0, 5), B0: (0, 7)})
    planner = planner_of(client, maxOffsetsPerTrigger="6")
    planner.pin()
    first = planner.advance(Offsets.initial())
    assert sum(first.positions.values()) == 6
    client.down = {"broker-b": ConnectError("refused")}
    with pytest.raises(UnavailableError, match=r"T/broker-b/0 was there .*AvailableNow"):
        planner.advance(first)
    client.down = {}
    client.offsets = {A0: (0, 50), B0: (0, 70)}  # what came since is for the next run
    second = planner.advance(first)
    assert second.positions == {A0: 5, B0: 7}
    assert planner.advance(second) is second


def test_a_batch_of_an_earlier_run_is_planned_as_often_as_spark_asks() -> None:
    client = FakeClient({A0: (0, 5), B0: (0, 7)})
    first = planner_of(client).advance(Offsets.initial())
    again = planner_of(client)
    once = again.partitions(Offsets.initial(), first)
    assert sum(partition.records for partition in once) == 12
    assert again.partitions(Offsets.initial(), first) == once


def test_a_loss_is_an_error_or_told_once(caplog: pytest.LogCaptureFixture) -> None:
    client = FakeClient({A0: (0, 5)})
    first = planner_of(client).advance(Offsets.initial())
    client.offsets = {A0: (9, 12)}
    with pytest.raises(OffsetOutOfRangeError, match=r"4 messages .* failOnDataLoss=false"):
        planner_of(client).advance(first)
    planner = planner_of(client, failOnDataLoss="false")
    second = planner.advance(first)
    assert (second.begun, second.positions) == ({A0: 9}, {A0: 12})
    assert planner.advance(second) is second
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
        "data loss accepted: T/broker-a/0: offset 5 is wanted and 9 to 12 are there, so 4 messages "
        "were deleted before they were read; going on from 9"
    ]


def test_however_often_it_is_asked_brokers_are_asked_seldom() -> None:
    client = FakeClient({A0: (0, 5)})
    now = [100.0]
    facts = Facts(client, options(), lambda: now[0])  # type: ignore[arg-type]
    for _ in range(900):  # ten seconds of Spark's polling
        facts.bounds()
        now[0] += 1 / 90
    assert client.looks <= 45
