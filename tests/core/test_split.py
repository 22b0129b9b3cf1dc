"""Pieces join to what was cut, and are of the promised sizes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.core.model import MessageQueue, OffsetRange
from rocketmq_spark.core.split import Part, cut, level, piece_counts, records


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [
        OffsetRange(MessageQueue("T", "b", number), 100 * number, 100 * number + size)
        for number, size in enumerate(sizes)
    ]


def joined(pieces: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Refuses a gap or an overlap."""
    by_queue: dict[MessageQueue, list[OffsetRange]] = defaultdict(list)
    for piece in pieces:
        assert piece.end > piece.start
        by_queue[piece.queue].append(piece)
    result = []
    for queue, parts in by_queue.items():
        parts.sort(key=lambda part: part.start)
        for left, right in itertools.pairwise(parts):
            assert left.end == right.start
        result.append(OffsetRange(queue, parts[0].start, parts[-1].end))
    return sorted(result)


some_sizes = st.lists(st.integers(1, 90), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("sizes", "at_least", "largest", "counts"),
    [
        ([10, 10], None, None, [1, 1]),
        ([10, 10], 2, None, [1, 1]),
        ([30, 10], 4, None, [3, 1]),
        ([30, 10], None, 10, [3, 1]),
        ([31, 10], None, 10, [4, 1]),
        ([30, 10], 5, 10, [4, 1]),
        ([2, 1], 99, None, [2, 1]),
        ([], 7, 7, []),
    ],
)
def test_piece_counts(
    sizes: list[int], at_least: int | None, largest: int | None, counts: list[int]
) -> None:
    assert piece_counts(sizes, at_least, largest) == counts


@given(some_sizes, st.integers(1, 200), st.one_of(st.none(), st.integers(1, 100)))
def test_as_many_pieces_as_asked_if_there_are_messages(
    sizes: list[int], at_least: int, largest: int | None
) -> None:
    counts = piece_counts(sizes, at_least, largest)
    assert sum(counts) >= min(at_least, sum(sizes))
    assert all(1 <= count <= size for count, size in zip(counts, sizes, strict=True))
    if largest:
        assert all(-(-s // c) <= largest for s, c in zip(sizes, counts, strict=True))


@given(some_sizes, st.integers(1, 60))
def test_cut_gives_even_pieces_of_everything(sizes: list[int], pieces: int) -> None:
    ranges = ranges_of(sizes)
    pieces = min(pieces, sum(sizes))
    parts = cut(ranges, pieces)
    assert len(parts) == pieces
    assert joined(piece for part in parts for piece in part) == ranges
    amounts = [records(part) for part in parts]
    assert max(amounts) - min(amounts) <= 1


def parts_of(sizes: list[int]) -> list[Part]:
    return [(number, 100 * number, 100 * number + size) for number, size in enumerate(sizes)]


def amounts(owned: list[list[Part]]) -> list[list[int]]:
    return [[end - start for _, start, end in parts] for parts in owned]


def test_level_cuts_a_queue_that_is_too_much_for_one() -> None:
    assert amounts(level(parts_of([80, 4, 4, 4, 4, 4]), 2)) == [[50], [30, 4, 4, 4, 4, 4]]


def test_level_leaves_queues_whole_where_that_is_even_enough() -> None:
    parts = parts_of([50, 49, 52, 50])
    assert sorted(part for owned in level(parts, 2) for part in owned) == parts


def test_level_cuts_five_equal_queues_among_four() -> None:
    assert [sum(own) for own in amounts(level(parts_of([80] * 5), 4))] == [100] * 4


def test_level_of_nothing() -> None:
    assert level([], 3) == [[], [], []]


@given(some_sizes, st.integers(1, 9))
def test_level_reads_everything_once_and_all_end_together(sizes: list[int], takers: int) -> None:
    owned = level(parts_of(sizes), takers)
    assert len(owned) == takers
    pieces = (OffsetRange(MessageQueue("T", "b", n), s, e) for own in owned for n, s, e in own)
    assert joined(pieces) == ranges_of(sizes)
    average = -(-sum(sizes) // takers)
    assert max(sum(own) for own in amounts(owned)) * 10 <= average * 11
    # Cuts are few: at most one for each member and side.
    assert sum(map(len, owned)) <= len(sizes) + 2 * takers
