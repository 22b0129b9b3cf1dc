"""Offset ranges cut into pieces: to a number, to a size, or until everyone has the same."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from rocketmq_spark.core.allocate.by_lag import deal
from rocketmq_spark.core.model import OffsetRange

# A queue by its number in a sorted list, and a range of it. Tuples, for they sort and compare fast.
Part = tuple[int, int, int]

# Beyond this much above the average a member's surplus is worth a cut. Below, the cost of reading
# one queue from two tasks outweighs the moment that is won.
_TOLERANCE_PERCENT = 10


def records(ranges: Iterable[OffsetRange]) -> int:
    return sum(part.end - part.start for part in ranges)


def piece_counts(
    sizes: Sequence[int], at_least: int | None = None, largest: int | None = None
) -> list[int]:
    """Into how many pieces to cut partitions of these sizes, none of which is 0.

    No piece is larger than `largest`. If there are then fewer than `at_least`, the partition with
    the largest pieces is cut once more, until there are enough or every piece is one message.
    """
    counts = [-(-size // largest) if largest else 1 for size in sizes]
    missing = (at_least or 0) - sum(counts)
    heap = [
        (-size / count, index)
        for index, (size, count) in enumerate(zip(sizes, counts, strict=True))
        if count < size
    ]
    heapq.heapify(heap)
    while missing > 0 and heap:
        _, index = heap[0]
        counts[index] += 1
        missing -= 1
        if counts[index] < sizes[index]:
            heapq.heapreplace(heap, (-sizes[index] / counts[index], index))
        else:
            heapq.heappop(heap)
    return counts


def cut(ranges: Sequence[OffsetRange], pieces: int) -> list[tuple[OffsetRange, ...]]:
    """The ranges, end to end, cut into pieces that differ by at most one message."""
    if pieces == 1:
        return [tuple(ranges)]
    total = records(ranges)
    result: list[tuple[OffsetRange, ...]] = []
    piece: list[OffsetRange] = []
    room = total // pieces
    for whole in ranges:
        start = whole.start
        while start < whole.end:
            end = min(whole.end, start + room)
            piece.append(OffsetRange(whole.queue, start, end))
            room -= end - start
            start = end
            if not room:
                result.append(tuple(piece))
                piece = []
                done = len(result)
                room = total * (done + 1) // pieces - total * done // pieces
    return result


def level(parts: Sequence[Part], takers: int) -> list[list[Part]]:
    """The parts dealt to `takers` so that all end together, cut only where that is needed.

    One queue holds 80, five hold 4, two takers. The one queue alone is more than half of it all,
    so it is cut: 50 for the first taker; 30 and the five others for the second.
    """
    owned: list[list[Part]] = [[] for _ in range(takers)]
    if not parts:
        return owned
    average = -(-sum(end - start for _, start, end in parts) // takers)
    pieces = [piece for whole in parts for piece in _at_most(whole, average)]
    pieces.sort(key=_shortfall)
    sizes = [end - start for _, start, end in pieces]
    loads = [0] * takers
    for piece, size, taker in zip(pieces, sizes, deal(sizes, takers), strict=True):
        owned[taker].append(piece)
        loads[taker] += size
    if max(loads) * 100 > average * (100 + _TOLERANCE_PERCENT):
        _hand_over(owned, loads, average)
    return owned


def _shortfall(part: Part) -> int:
    """Sorts the longest first."""
    _, start, end = part
    return start - end


def _at_most(whole: Part, size: int) -> list[Part]:
    queue, first, last = whole
    if last - first <= size:
        return [whole]
    return [(queue, start, min(start + size, last)) for start in range(first, last, size)]


def _hand_over(owned: list[list[Part]], loads: list[int], average: int) -> None:
    """What is above the average goes to those below it.

    A surplus always fits in the piece that came last: it was dealt to the least loaded, who was
    not above the average then. And since the average is rounded up, there is room for all.
    """
    below = (taker for taker, load in enumerate(loads) if load < average)
    taker = -1
    for giver, load in enumerate(loads):
        surplus = load - average
        while surplus > 0:
            if taker < 0 or loads[taker] == average:
                taker = next(below)
            moved = min(surplus, average - loads[taker])
            queue, start, end = owned[giver].pop()
            if end - moved > start:
                owned[giver].append((queue, start, end - moved))
            owned[taker].append((queue, end - moved, end))
            loads[taker] += moved
            surplus -= moved
