"""BY_LAG: the same amount of work for everyone, not the same number of queues."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import UsageError


def by_lag(
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    *,
    weights: Mapping[MessageQueue, int] | None = None,
) -> Allocation:
    """Longest first: each queue, heaviest before lighter, to the member with the least so far.

    q0 to q4 hold 70, 30, 20, 20 and 10 messages, among two members, 80 and 70 (AVG: 120 and 30):

        m1   q0 q4
        m2   q1 q2 q3

    The fullest member has at most 4/3 of what the best possible answer gives it (Graham 1969).
    Ties go to the member with fewer queues, then to the first. Queues with nothing to read, and
    those without a weight, weigh nothing and are dealt so that the counts are even.
    """
    _check(weights or {})
    sizes = [weights.get(queue, 0) for queue in queues] if weights else [0] * len(queues)
    heavy = [number for number, size in enumerate(sizes) if size]
    heavy.sort(key=lambda number: -sizes[number])
    owned: list[list[int]] = [[] for _ in members]
    for number, taker in zip(heavy, deal([sizes[n] for n in heavy], len(members)), strict=True):
        owned[taker].append(number)
    idle = [number for number, size in enumerate(sizes) if not size]
    for number, taker in zip(idle, deal_idle(len(idle), list(map(len, owned))), strict=True):
        owned[taker].append(number)
    return {
        member: [queues[number] for number in sorted(own)]
        for member, own in zip(members, owned, strict=True)
    }


def deal(weights: Sequence[int], takers: int) -> list[int]:
    """For each weight, in the order given, the taker with the least load so far."""
    loads = [(0, 0, index) for index in range(takers)]
    chosen = []
    for weight in weights:
        load, count, index = loads[0]
        chosen.append(index)
        heapq.heapreplace(loads, (load + weight, count + 1, index))
    return chosen


def deal_idle(count: int, held: Sequence[int]) -> list[int]:
    """For each of `count` queues that weigh nothing, the taker who holds the fewest queues."""
    counts = [(number, index) for index, number in enumerate(held)]
    heapq.heapify(counts)
    chosen = []
    for _ in range(count):
        number, index = counts[0]
        chosen.append(index)
        heapq.heapreplace(counts, (number + 1, index))
    return chosen


def _check(weights: Mapping[MessageQueue, int]) -> None:
    for queue, weight in weights.items():
        if weight < 0:
            raise UsageError(f"the weight of {queue} is {weight}; a weight must be 0 or more")
