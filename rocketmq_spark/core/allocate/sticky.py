"""STICKY: average, moving as little as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    shares = _shares(len(queues), members, held)
    result: Allocation = {}
    kept: set[MessageQueue] = set()
    for member in members:
        result[member] = held[member][: shares[member]]
        kept.update(result[member])
    homeless = iter([queue for queue in queues if queue not in kept])
    place = {queue: number for number, queue in enumerate(queues)}
    for member in members:
        owned = result[member]
        missing = shares[member] - len(owned)
        if missing:
            owned.extend(next(homeless) for _ in range(missing))
            owned.sort(key=place.__getitem__)
    return result


def _held(
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    previous: Mapping[str, Sequence[MessageQueue]],
) -> Allocation:
    """What is left of the plan before: present members, present queues, each queue once."""
    owner: dict[MessageQueue, str] = {}
    for member in members:
        for queue in previous.get(member, ()):
            owner.setdefault(queue, member)
    held: Allocation = {member: [] for member in members}
    for queue in queues:
        if queue in owner:
            held[owner[queue]].append(queue)
    return held


def _shares(count: int, members: Sequence[str], held: Allocation) -> dict[str, int]:
    size, larger = divmod(count, len(members))
    # Stable: who can fill a larger share comes first, and among equals the members' order holds.
    by_need = sorted(members, key=lambda member: len(held[member]) <= size)
    return {member: size + (rank < larger) for rank, member in enumerate(by_need)}
