"""STICKY: average, moving as little as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue


def sticky(
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    *,
    previous: Mapping[str, Sequence[MessageQueue]] | None = None,
) -> Allocation:
    """Shares that differ by at most one; of all such answers, one that moves the fewest queues.

    m1 held q0 q1 q2 and m2 held q3 q4; m3 joins. Only q2 has to move (AVG would move two):

        m1   q0 q1
        m2   q3 q4
        m3   q2

    Without a plan before, the answer is AVG's.

    Why no answer moves fewer: a member cannot keep more than it held, nor more than its share,
    and the larger shares go first to those who held enough to fill them.
    """
    held = _held(queues, members, previous or {})
    shares = _shares(len(queues), held)
    kept = [own[:size] for own, size in zip(held, shares, strict=True)]
    settled = {number for own in kept for number in own}
    homeless = iter([number for number in range(len(queues)) if number not in settled])
    result: Allocation = {}
    for member, own, size in zip(members, kept, shares, strict=True):
        own += islice(homeless, size - len(own))
        result[member] = [queues[number] for number in sorted(own)]
    return result


def _held(
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    previous: Mapping[str, Sequence[MessageQueue]],
) -> list[list[int]]:
    """What is left of the plan before, by numbers: present members and queues, each queue once."""
    number_of = {queue: number for number, queue in enumerate(queues)}
    owners: list[int | None] = [None] * len(queues)
    for taker, member in enumerate(members):
        for queue in previous.get(member, ()):
            number = number_of.get(queue)
            if number is not None and owners[number] is None:
                owners[number] = taker
    held: list[list[int]] = [[] for _ in members]
    for number, owner in enumerate(owners):
        if owner is not None:
            held[owner].append(number)
    return held


def _shares(count: int, held: Sequence[Sequence[int]]) -> list[int]:
    size, larger = divmod(count, len(held))
    shares = [size] * len(held)
    # Stable: who can fill a larger share comes first, and among equals the members' order holds.
    by_need = sorted(range(len(held)), key=lambda taker: len(held[taker]) <= size)
    for taker in by_need[:larger]:
        shares[taker] += 1
    return shares
