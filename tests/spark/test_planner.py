"""A stream's planner by itself: from offset to offset with brokers that a test makes up."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.offsets import Offsets
from rocketmq_spark.core.options import read_options
from rocketmq_spark.errors import OffsetOutOfRangeError
from rocketmq_spark.spark.facts import Bounds
from rocketmq_spark.spark.planner import Planner

A, B, C = (MessageQueue("T", "b", number) for number in range(3))


class FakeFacts:
    """Brokers of which everything is known; a message is stored each second, from 0 on."""

    def __init__(self, **queues: tuple[int, int]) -> None:
        names = {"A": A, "B": B, "C": C}
        self.queues = {names[name]: limits for name, limits in queues.items()}
        self.saved: dict[MessageQueue, int] = {}
        self.commits: list[dict[MessageQueue, int]] = []
        self.sizes = {A: 10.0, B: 10.0, C: 10.0}
        self.delays = {A: 0, B: 0, C: 0}
        self.awaited: set[str] = set()
        self.asked_complete = 0
        self.met: set[str] = set()
        self.replicas: set[str] = set()

    def bounds(self, *, complete: bool = False) -> Bounds:
        self.asked_complete += complete
        return Bounds(
            {queue: low for queue, (low, _) in self.queues.items()},
            {queue: high for queue, (_, high) in self.queues.items()},
            frozenset(self.replicas),
        )

    fresh = bounds

    def patiently(self, ask: Any) -> Any:
        return ask()

    def committed(self, queues: Any) -> dict[MessageQueue, int]:
        return {queue: self.saved[queue] for queue in queues if queue in self.saved}

    def commit(self, positions: dict[MessageQueue, int]) -> None:
        self.commits.append(dict(positions))

    def stored_at(self, queue: MessageQueue, offset: int) -> int:
        return (offset + self.delays[queue]) * 1000

    def offset_at(self, queue: MessageQueue, millis: int) -> int:
        return max(0, -(-millis // 1000) - self.delays[queue])

    def typical_size(self, queue: MessageQueue, start: int, end: int) -> float:
        return self.sizes[queue]


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def planner_of(facts: FakeFacts, **options: str) -> tuple[Planner, Clock]:
    given = {"nameServer": "h:1", "topic": "T", "executors": "m1,m2", **options}
    read = read_options(given)
    clock = Clock()
    members = read.executors.split(",")
    return Planner(read, facts, lambda: members, clock), clock  # type: ignore[arg-type]


def begin(planner: Planner) -> Offsets:
    return planner.advance(Offsets.initial())


def ranges(planner: Planner, start: Offsets, end: Offsets) -> dict[MessageQueue, tuple[int, int]]:
    return {
        part.queue: (part.start, part.end)
        for partition in planner.partitions(start, end)
        for part in partition.ranges
    }


# --- the first batch --------------------------------------------------------------------------


def test_latest_is_written_down_and_begins_nothing_later() -> None:
    facts = FakeFacts(A=(0, 5), B=(2, 7))
    planner, _ = planner_of(facts)
    end = begin(planner)
    assert (end.positions, end.begun) == ({A: 5, B: 7}, {A: 5, B: 7})
    facts.queues = {A: (0, 50), B: (2, 70)}
    # Batch 0 again, after a crash, in a new process: what it wrote counts, not what is there now.
    again, _ = planner_of(facts)
    assert ranges(again, Offsets.initial(), end) == {}
    assert ranges(again, end, again.advance(end)) == {A: (5, 50), B: (7, 70)}


@pytest.mark.parametrize(
    "start",
    [
        {"startingOffsets": "earliest"},
        {"startingOffsets": "latest"},
        {"startingOffsets": "group", "consumerGroup": "g"},
        {"startingOffsets": '{"T":{"b":{"0":-2,"1":-1}}}'},
        {"startingOffsets": '{"T":{"b":{"0":2,"1":3}}}'},
        {"startingTimestamp": "2500"},
        {"startingOffsetsByTimestamp": '{"T":{"b":{"0":1500,"1":4000}}}'},
    ],
    ids=lambda start: next(iter(start)),
)
def test_a_crash_in_the_first_batch_moves_no_start(start: dict[str, str]) -> None:
    """Whatever it was resolved from has moved since: ends, firsts, the group, even times."""
    facts = FakeFacts(A=(0, 5), B=(2, 7))
    facts.saved = {A: 3, B: 4}
    planner, _ = planner_of(facts, **start)
    end = begin(planner)
    planned = ranges(planner, Offsets.initial(), end)
    facts.queues, facts.saved = {A: (1, 50), B: (2, 70)}, {A: 20, B: 30}
    facts.delays = {A: -9, B: -9, C: 0}
    # What Spark has written of it is text, and a new process reads that.
    again, _ = planner_of(facts, **start)
    read_back = Offsets.parse(end.to_json())
    assert ranges(again, Offsets.initial(), read_back) == planned
    # And the next batch joins on to it, without a gap and without an overlap.
    assert ranges(again, read_back, again.advance(read_back)) == {
        A: (end.positions[A], 50),
        B: (end.positions[B], 70),
    }


def test_a_query_begins_only_with_every_broker() -> None:
    facts = FakeFacts(A=(0, 5))
    planner, _ = planner_of(facts)
    end = begin(planner)
    assert facts.asked_complete == 1
    planner.advance(end)
    assert facts.asked_complete == 1


def test_a_topic_that_was_waited_for_is_new_altogether() -> None:
    facts = FakeFacts(A=(0, 5))
    facts.awaited = {"T"}
    planner, _ = planner_of(facts)
    assert begin(planner).begun == {A: 0}


def test_where_a_group_is() -> None:
    facts = FakeFacts(A=(0, 5), B=(0, 7))
    facts.saved = {A: 3}
    planner, _ = planner_of(facts, startingOffsets="group", consumerGroup="g")
    assert begin(planner).begun == {A: 3, B: 7}  # a new group begins at the end


@pytest.mark.parametrize("wanted", [3, 99])
def test_a_start_that_is_not_there(wanted: int, caplog: pytest.LogCaptureFixture) -> None:
    facts = FakeFacts(A=(5, 9))
    start = f'{{"T":{{"b":{{"0":{wanted}}}}}}}'
    planner, _ = planner_of(facts, startingOffsets=start)
    with pytest.raises(
        OffsetOutOfRangeError, match=f"offset {wanted} is wanted and 5 to 9.*failOnDataLoss=false"
    ):
        begin(planner)
    planner, _ = planner_of(facts, startingOffsets=start, failOnDataLoss="false")
    assert begin(planner).begun == {A: 5 if wanted < 5 else 9}
    assert f"data loss accepted: T/b/0: offset {wanted}" in caplog.text


def test_a_group_that_is_ahead_of_the_last_look() -> None:
    """Its members read on while we ask; what we knew of the end is older than their offset."""
    facts = FakeFacts(A=(0, 5), B=(4, 7))
    facts.saved = {A: 8, B: 3}
    planner, _ = planner_of(facts, startingOffsets="group", consumerGroup="g")
    with pytest.raises(OffsetOutOfRangeError, match="offset 3 is wanted and 4 to 7"):
        begin(planner)
    facts.saved[B] = 4
    end = begin(planner)
    assert (end.begun, end.positions) == ({A: 8, B: 4}, {A: 8, B: 7})


# --- the next ones ----------------------------------------------------------------------------


def test_nothing_new_is_the_very_offset_that_came_in() -> None:
    planner, _ = planner_of(FakeFacts(A=(0, 5)))
    end = begin(planner)
    assert planner.advance(end) is end


def test_a_new_queue_begins_at_its_earliest_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    facts = FakeFacts(A=(0, 5))
    planner, _ = planner_of(facts, startingOffsets="latest")
    first = begin(planner)
    facts.queues[B] = (3, 8)
    second = planner.advance(first)
    assert second.begun == {B: 3}
    assert ranges(planner, first, second) == {B: (3, 8)}
    told = planner.report()["rebalance"]
    assert told["why"] == "1 queue added (T/b/1)"
    assert [record.message for record in caplog.records] == [
        "rebalance: 0 dropped, 0 kept, 1 added: first plan",
        "rebalance: 0 dropped, 1 kept, 1 added: 1 queue added (T/b/1)",
    ]


def test_a_queue_that_vanished_keeps_its_place() -> None:
    facts = FakeFacts(A=(0, 5), B=(0, 5))
    planner, _ = planner_of(facts, startingOffsets="earliest")
    first = begin(planner)
    del facts.queues[B]
    facts.queues[A] = (0, 6)
    second = planner.advance(first)
    assert second.positions == {A: 6, B: 5}
    assert ranges(planner, first, second) == {A: (5, 6)}
    facts.queues[B] = (0, 9)
    third = planner.advance(second)
    assert ranges(planner, second, third) == {B: (5, 9)}


def test_a_slave_that_is_behind_its_master_has_lost_nothing() -> None:
    facts = FakeFacts(A=(0, 9))
    planner, _ = planner_of(facts, startingOffsets="earliest")
    end = begin(planner)
    facts.queues[A], facts.replicas = (0, 5), {"b"}
    assert planner.advance(end) is end
    facts.queues[A] = (0, 12)  # and when it has more than was read, that is read
    assert ranges(planner, end, planner.advance(end)) == {A: (9, 12)}
    facts.queues[A], facts.replicas = (0, 5), set()  # the master itself says so
    with pytest.raises(OffsetOutOfRangeError, match="offset 9 is wanted and 0 to 5 are there"):
        planner.advance(end)


def test_what_expired_is_gone_on_a_slave_too() -> None:
    facts = FakeFacts(A=(0, 9))
    planner, _ = planner_of(facts, startingOffsets="earliest")
    end = begin(planner)
    facts.queues[A], facts.replicas = (11, 15), {"b"}
    with pytest.raises(OffsetOutOfRangeError, match="offset 9 is wanted and 11 to 15 are there"):
        planner.advance(end)


def test_most_messages_and_most_bytes() -> None:
    facts = FakeFacts(A=(0, 90), B=(0, 10))
    planner, _ = planner_of(facts, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert begin(planner).positions == {A: 9, B: 1}
    planner, _ = planner_of(facts, startingOffsets="earliest", maxBytesPerTrigger="500")
    assert begin(planner).positions == {A: 45, B: 5}
    planner, _ = planner_of(
        facts, startingOffsets="earliest", maxBytesPerTrigger="500", maxOffsetsPerTrigger="20"
    )
    assert begin(planner).positions == {A: 18, B: 2}
    everything = planner.advance(Offsets.initial(), limited=False)  # Trigger.Once
    assert everything.positions == {A: 90, B: 10}


def test_wait_for_enough_but_not_for_ever() -> None:
    facts = FakeFacts(A=(0, 1))
    planner, clock = planner_of(
        facts, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="60s"
    )
    end = begin(planner)  # the first goes at once: its start must be written down
    assert end.positions == {A: 1}
    facts.queues[A] = (0, 10)
    clock.time = 59.0
    assert planner.advance(end) is end
    facts.queues[A] = (0, 11)
    end = planner.advance(end)
    assert end.positions == {A: 11}
    facts.queues[A] = (0, 12)
    clock.time = 59.0 + 59.0
    assert planner.advance(end) is end
    clock.time = 59.0 + 60.0
    assert planner.advance(end).positions == {A: 12}


def test_a_run_of_what_is_available_does_not_wait() -> None:
    facts = FakeFacts(A=(0, 1))
    planner, _ = planner_of(facts, startingOffsets="earliest", minOffsetsPerTrigger="10")
    end = begin(planner)
    facts.queues[A] = (0, 3)
    planner.pin()
    facts.queues[A] = (0, 9)
    assert planner.advance(end).positions == {A: 3}


def test_no_queue_runs_ahead_of_the_slowest() -> None:
    facts = FakeFacts(A=(0, 100), B=(0, 100), C=(0, 0))
    facts.delays[B] = 30  # B's first message is 30 s younger than A's
    planner, _ = planner_of(facts, startingOffsets="earliest", maxTimestampSkew="40s")
    first = begin(planner)
    assert first.positions == {A: 41, B: 11, C: 0}  # both up to the second 40
    second = planner.advance(first)
    assert second.positions == {A: 82, B: 52, C: 0}


# --- what others are told ---------------------------------------------------------------------


def test_a_report() -> None:
    facts = FakeFacts(A=(0, 50), B=(0, 10))
    planner, _ = planner_of(facts, startingOffsets="earliest", maxOffsetsPerTrigger="12")
    begin(planner)
    told = planner.report()
    lag = told.pop("lagMillis")
    assert lag > 10**12  # A's message 10 is of 1970
    assert told == {
        "version": 1,
        "offsets": {"T": {"b": {"0": 50, "1": 10}}},
        "behindLatest": {"min": 8, "max": 40, "avg": 24.0},
        "members": ["m1", "m2"],
        "rebalance": {"why": "first plan", "dropped": 0, "kept": 0, "added": 2},
    }


def test_a_report_of_a_query_that_is_up_to_date() -> None:
    planner, _ = planner_of(FakeFacts(A=(0, 50)))
    begin(planner)
    told = planner.report()
    assert told["behindLatest"] == {"min": 0, "max": 0, "avg": 0.0}
    assert told["lagMillis"] == 0


def test_offsets_are_mirrored_when_their_batch_is_done() -> None:
    facts = FakeFacts(A=(0, 5), B=(0, 5))
    planner, _ = planner_of(facts, startingOffsets="earliest", commitOffsets="true")
    end = begin(planner)
    assert facts.commits == []
    planner.advance(end)
    planner.advance(end)
    assert facts.commits == [{A: 5, B: 5}]
    facts.queues[A] = (0, 6)
    planner.advance(planner.advance(end))
    assert facts.commits == [{A: 5, B: 5}, {A: 6}]
