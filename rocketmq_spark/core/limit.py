"""A batch's limit, shared over the queues so that none starves."""

from __future__ import annotations

from collections.abc import Sequence


def share(sizes: Sequence[int], limit: int, turn: int) -> list[int]:
    """How much of each size to take: `limit` in all, or everything if that is less.

    In proportion to the sizes, but at least 1 of everything that is not empty: 100 of 900, 100
    and 1 are 89, 10 and 1. Where even that is too much, `limit` of them get 1 each, and `turn`
    says whose turn it is (see `_in_turn`).
    """
    if sum(sizes) <= limit:
        return list(sizes)
    waiting = [index for index, size in enumerate(sizes) if size]
    if limit < len(waiting):
        chosen = _in_turn(waiting, len(sizes), limit, turn)
        return [int(index in chosen) for index in range(len(sizes))]
    return _in_proportion(sizes, waiting, limit)


def _in_proportion(sizes: Sequence[int], waiting: Sequence[int], limit: int) -> list[int]:
    result = [0] * len(sizes)
    total = sum(sizes)
    # Smallest first: whose share would be below 1 gets 1, and the others share what is left.
    ascending = sorted(waiting, key=sizes.__getitem__)
    small = 0
    while limit * sizes[ascending[small]] < total:
        result[ascending[small]] = 1
        limit -= 1
        total -= sizes[ascending[small]]
        small += 1
    rest = ascending[small:]
    # Rounding down leaves a few over; they go to the largest fractions, so the sum is exact.
    fractions = []
    for index in rest:
        result[index], fraction = divmod(limit * sizes[index], total)
        fractions.append((-fraction, index))
    left = limit - sum(result[index] for index in rest)
    for _, index in sorted(fractions)[:left]:
        result[index] += 1
    return result


def _in_turn(waiting: Sequence[int], places: int, limit: int, turn: int) -> set[int]:
    """Which `limit` of the `waiting` are served, with no memory but the turn.

    The caller's turn is the sum of all start offsets: it grows by exactly `limit` with each such
    batch, and a batch that is planned again gets the same one. The places from `turn` on, `limit`
    of them, come first. These windows follow one another around the circle, so who waits is served
    within places / limit batches, whatever the others do. What the empty places leave goes around
    among those who wait, so that being behind a long empty stretch is no advantage.
    """
    window = {(turn + step) % places for step in range(limit)}
    chosen = [index for index in waiting if index in window]
    first = turn % len(waiting)
    others = [*waiting[first:], *waiting[:first]]
    chosen += [index for index in others if index not in window][: limit - len(chosen)]
    return set(chosen)
