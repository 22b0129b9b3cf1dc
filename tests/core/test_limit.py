"""The limit is met exactly, in proportion, and nobody starves."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.core.limit import share

sizes = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 10**12)), max_size=30)


@pytest.mark.parametrize(
    ("have", "limit", "taken"),
    [
        ([900, 100], 100, [90, 10]),
        ([900, 100, 1], 100, [89, 10, 1]),
        ([10**12, 1, 1, 0], 3, [1, 1, 1, 0]),
        ([5, 5], 100, [5, 5]),
        ([5, 5], 10, [5, 5]),
        ([7, 7, 7], 10, [4, 3, 3]),
        ([], 5, []),
        ([0, 0], 1, [0, 0]),
    ],
)
def test_examples(have: list[int], limit: int, taken: list[int]) -> None:
    assert share(have, limit, turn=0) == taken


@given(sizes, st.integers(1, 10**12), st.integers(0, 10**6))
def test_exact_and_never_more_than_there_is(have: list[int], limit: int, turn: int) -> None:
    taken = share(have, limit, turn)
    assert sum(taken) == min(limit, sum(have))
    assert all(0 <= t <= h for t, h in zip(taken, have, strict=True))


@given(sizes, st.integers(0, 10**12), st.integers(0, 10**6))
def test_everyone_gets_something_when_there_is_enough(
    have: list[int], more: int, turn: int
) -> None:
    waiting = sum(1 for h in have if h)
    taken = share(have, max(1, waiting + more), turn)
    assert all(t >= 1 for t, h in zip(taken, have, strict=True) if h)


@given(sizes, st.integers(1, 10**12), st.integers(0, 10**6))
def test_who_has_more_gets_no_less(have: list[int], limit: int, turn: int) -> None:
    if limit < sum(1 for h in have if h):
        return
    pairs = sorted(zip(have, share(have, limit, turn), strict=True))
    # One message of rounding apart.
    assert all(a[1] <= b[1] + 1 for a, b in itertools.pairwise(pairs))


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 12])
def test_with_fewer_places_than_queues_all_are_served_in_turn(limit: int) -> None:
    starts, ends = [0] * 13, [10**6] * 13
    for _ in range(130):
        taken = share([e - s for s, e in zip(starts, ends, strict=True)], limit, sum(starts))
        assert sum(taken) == limit
        starts = [s + t for s, t in zip(starts, taken, strict=True)]
    assert max(starts) - min(starts) <= 1


def test_two_neighbours_among_many_empty_queues_are_served_alike() -> None:
    starts, ends = [0] * 100, [0] * 100
    ends[5] = ends[6] = 10**6
    for _ in range(1000):
        taken = share([e - s for s, e in zip(starts, ends, strict=True)], 1, sum(starts))
        starts = [s + t for s, t in zip(starts, taken, strict=True)]
    assert abs(starts[5] - starts[6]) <= 20


@pytest.mark.parametrize("seed", range(20))
def test_nobody_waits_longer_than_one_round_whatever_the_others_do(seed: int) -> None:
    rng = random.Random(seed)
    queues, limit = rng.randint(3, 20), rng.randint(1, 2)
    rounds = -(-queues // limit)
    patient = rng.randrange(queues)
    starts, ends = [0] * queues, [0] * queues
    ends[patient] = 10**6
    waited = 0
    for _ in range(400):
        # Others come and go in ways made to disturb.
        for queue in range(queues):
            if queue != patient:
                ends[queue] = starts[queue] + rng.choice([0, 1, 50])
        taken = share([e - s for s, e in zip(starts, ends, strict=True)], limit, sum(starts))
        waited = 0 if taken[patient] else waited + 1
        assert waited <= rounds
        if sum(taken) < limit:
            waited = 0  # not a batch with a limit: the turn did not move on in step
        starts = [s + t for s, t in zip(starts, taken, strict=True)]
