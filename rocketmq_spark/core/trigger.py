"""What one trigger reads, and how far behind that leaves the query: arithmetic on known offsets.

Whoever calls has asked the brokers before; here is only what follows from their answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.offsets import Positions


def available(
    starts: Positions, last: Positions, pinned: Positions | None = None
) -> dict[MessageQueue, int]:
    """Where each queue could be read up to.

    `pinned` is where a Trigger.AvailableNow run ends. A queue that it does not name was found
    later, and waits for the next run.
    """
    if pinned is None:
        return {q: max(at, last[q]) for q, at in starts.items()}
    return {q: max(at, min(last[q], pinned.get(q, at))) for q, at in starts.items()}


def waiting(starts: Positions, ends: Positions) -> dict[MessageQueue, int]:
    """How many messages each queue has to read; queues without any are left out."""
    return {q: ends[q] - at for q, at in starts.items() if ends[q] > at}


def is_due(count: int, least: int | None, idle_seconds: float, longest_seconds: float) -> bool:
    """minOffsetsPerTrigger and maxTriggerDelay: whether there is enough, or it took too long."""
    return least is None or count >= least or idle_seconds >= longest_seconds


def most_records(counts: Positions, sizes: Mapping[MessageQueue, float], most_bytes: int) -> int:
    """How many messages of all queues together are about `most_bytes`, at least 1.

    `sizes` are of one message each. A limit is shared by counts, so each queue gives the same
    part of what it has: 100 messages of 10 bytes and 100 of 30 are 4,000 bytes, so 1,000 bytes
    are 50 messages.
    """
    total = sum(sizes[queue] * count for queue, count in counts.items())
    if total <= most_bytes:
        return max(1, sum(counts.values()))
    return max(1, int(sum(counts.values()) * most_bytes / total))


def smallest(limits: Iterable[int | None]) -> int | None:
    """The limit that counts, None without any."""
    return min((limit for limit in limits if limit is not None), default=None)


def horizon(next_stored: Iterable[int], skew_seconds: float) -> int | None:
    """maxTimestampSkew: the first time, in epoch milliseconds, that no queue may read yet.

    `next_stored` is when the next message of each waiting queue was stored. The slowest queue's is
    always before the horizon, so a batch is never empty because of it.
    """
    slowest = min(next_stored, default=None)
    return None if slowest is None else slowest + int(skew_seconds * 1000) + 1


def no_further(starts: Positions, ends: Positions, reached: Positions) -> dict[MessageQueue, int]:
    """`ends`, but for queues in `reached` not beyond that."""
    return {q: max(starts[q], min(end, reached.get(q, end))) for q, end in ends.items()}


@dataclass(frozen=True, slots=True)
class Behind:
    """How many messages a query has not read, over its queues."""

    least: int = 0
    most: int = 0
    average: float = 0.0
    # Of the queue with the most, and its next message; None when nothing waits.
    fullest: tuple[MessageQueue, int] | None = None


def behind(positions: Positions, last: Positions) -> Behind:
    """Queues that the query has not met yet are not counted: it does not know where they begin."""
    known = {q: max(0, end - positions[q]) for q, end in last.items() if q in positions}
    if not known:
        return Behind()
    fullest = max(known, key=lambda queue: known[queue])
    return Behind(
        least=min(known.values()),
        most=known[fullest],
        average=sum(known.values()) / len(known),
        fullest=(fullest, positions[fullest]) if known[fullest] else None,
    )
