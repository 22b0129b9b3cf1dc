"""What one trigger reads: the rules, by example and for any numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.core import trigger
from rocketmq_spark.core.model import MessageQueue

A, B, C = (MessageQueue("T", "b", number) for number in range(3))
offsets = st.integers(0, 10**9)
three = st.fixed_dictionaries({A: offsets, B: offsets, C: offsets})


def test_without_a_pin_all_is_available() -> None:
    assert trigger.available({A: 3, B: 5}, {A: 10, B: 5}) == {A: 10, B: 5}


def test_a_pinned_run_ends_where_it_was_pinned() -> None:
    starts, last = {A: 3, B: 5, C: 0}, {A: 10, B: 9, C: 4}
    # A goes on to its pin, B is past its own, and C was found later.
    assert trigger.available(starts, last, {A: 7, B: 4}) == {A: 7, B: 5, C: 0}


@given(three, three, st.none() | three)
def test_nothing_is_available_twice(
    starts: dict[MessageQueue, int],
    last: dict[MessageQueue, int],
    pinned: dict[MessageQueue, int] | None,
) -> None:
    ends = trigger.available(starts, last, pinned)
    assert all(starts[q] <= ends[q] <= max(starts[q], last[q]) for q in starts)


def test_waiting_leaves_out_what_is_empty() -> None:
    assert trigger.waiting({A: 3, B: 5}, {A: 10, B: 5}) == {A: 7}


@pytest.mark.parametrize(
    ("count", "least", "idle", "due"),
    [
        (1, None, 0, True),
        (9, 10, 59, False),
        (10, 10, 0, True),
        (9, 10, 60, True),
        (1, 10, 61, True),
    ],
)
def test_enough_or_long_enough(count: int, least: int | None, idle: float, due: bool) -> None:
    assert trigger.is_due(count, least, idle, 60) is due


def test_bytes_become_records() -> None:
    counts, sizes = {A: 100, B: 100}, {A: 10.0, B: 30.0}
    assert trigger.most_records(counts, sizes, 1000) == 50
    assert trigger.most_records(counts, sizes, 4000) == 200
    assert trigger.most_records(counts, sizes, 10**9) == 200
    assert trigger.most_records(counts, sizes, 1) == 1  # a batch always moves on
    assert trigger.most_records({A: 5}, {A: 0.0}, 1) == 5


def test_the_smallest_limit_counts() -> None:
    assert trigger.smallest([None, 5, 3]) == 3
    assert trigger.smallest([None, None]) is None


def test_the_horizon_follows_the_slowest() -> None:
    assert trigger.horizon([5000, 9000, 7000], 1.5) == 6501
    assert trigger.horizon([], 1.5) is None


@given(st.lists(offsets, min_size=1), st.floats(0, 10**6))
def test_the_slowest_can_always_be_read(times: list[int], skew: float) -> None:
    until = trigger.horizon(times, skew)
    assert until is not None
    assert min(times) < until


def test_no_queue_goes_beyond_its_reach_nor_back() -> None:
    starts, ends = {A: 3, B: 5, C: 0}, {A: 10, B: 9, C: 4}
    assert trigger.no_further(starts, ends, {A: 6, B: 2}) == {A: 6, B: 5, C: 4}


def test_behind() -> None:
    found = trigger.behind({A: 3, B: 5}, {A: 10, B: 6, C: 100})
    assert (found.least, found.most, found.average) == (1, 7, 4.0)
    assert found.fullest == (A, 3)


def test_behind_nothing() -> None:
    assert trigger.behind({}, {A: 1}) == trigger.Behind()
    done = trigger.behind({A: 3, B: 9}, {A: 3, B: 8})  # cut off in a failover
    assert (done.least, done.most, done.average, done.fullest) == (0, 0, 0.0, None)
