"""The properties of many messages at once: cut into names and values without a loop.

The rules are those of `properties.decode_properties`. What almost every producer writes (each item
ended, no separator inside a value) is recognised by one look at the separators; the rest takes a
longer way to the same table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rocketmq_spark.wire.properties import decode_text
from rocketmq_spark.wire.spans import Ints, Raw, numbers, packed, pick

# Above this many properties in one message, repeated names are looked for by a plain loop.
_CROWD = 16
_ODD = np.uint64(0x9E3779B97F4A7C15)  # spreads small numbers over 64 bits


class PropertyTable:
    """Names and values of all rows, as positions in one buffer of property bytes."""

    def __init__(self, data: Raw, starts: Ints, ends: Ints) -> None:
        encoded = _as_text(pick(data, starts, ends, pa.binary()))
        _, offsets, text = encoded.buffers()
        self._rows = len(starts)
        bounds = np.frombuffer(offsets, np.int32)[: self._rows + 1].astype(np.int64)
        # Eight bytes more, so that the first eight of any name can be read as one number.
        self._text = np.empty(int(bounds[-1]) + 8, np.uint8)
        self._text[-8:] = 0
        if text is not None:
            self._text[:-8] = np.frombuffer(text, np.uint8)[: bounds[-1]]
        self._words: Ints = np.ndarray((len(self._text) - 7,), "V8", self._text, strides=(1,))
        self._start, self._equals, self._end = _cut(self._text[:-8], bounds)
        # The first property of each row, and one more: the offsets of the map column.
        self._first = np.searchsorted(self._start, bounds)
        self._row = np.repeat(np.arange(self._rows), np.diff(self._first))
        self._length = self._equals - self._start
        self._head = self._read_heads()

    def _read_heads(self) -> Ints:
        """The first eight bytes of each name as a number; shorter names have leading zeros."""
        heads: Ints = self._words[self._start].view(">u8").astype(np.uint64)
        heads >>= (64 - 8 * np.minimum(self._length, 8)).astype(np.uint64)
        return heads

    def find(self, name: str) -> Any:
        """The value of this property (at most eight bytes long) for each row, null without it."""
        word = np.uint64(int.from_bytes(name.encode(), "big"))
        found = np.flatnonzero(self._head == word)
        found = found[self._length[found] == len(name)]
        starts, ends = self._equals[found] + 1, self._end[found]
        rows = self._row[found]
        if len(found) == self._rows and (rows == np.arange(self._rows)).all():
            return pick(self._text, starts, ends, pa.string())
        which = np.full(self._rows, -1)
        which[rows] = np.arange(len(found))  # of a repeated name, the last
        return pick(self._text, starts, ends, pa.string(), which)

    def column(self) -> Any:
        """All of them as a map column without repeated names."""
        start, equals, end, first = self._start, self._equals, self._end, self._first
        repeated = self._repeated()
        if repeated:
            keep = np.ones(len(start), np.bool_)
            keep[repeated] = False
            start, equals, end = start[keep], equals[keep], end[keep]
            first = np.append(0, np.cumsum(keep))[first]
        names = pick(self._text, start, equals, pa.string())
        values = pick(self._text, equals + 1, end, pa.string())
        return pa.MapArray.from_arrays(numbers(first.astype(np.int32), pa.int32()), names, values)

    def _repeated(self) -> list[int]:
        """Properties followed by another of the same name in the same row."""
        # A name's number: equal for equal names of one row, and hardly ever equal otherwise.
        mixed = self._head + (self._length + (self._row << 8)).astype(np.uint64) * _ODD
        longer = np.flatnonzero(self._length > 8)
        if len(longer):
            mixed[longer] += self._words[self._equals[longer] - 8].view(">u8") * _ODD
        counts = np.diff(self._first)
        most = int(counts.max(initial=0))
        repeated: list[int] = []
        for distance in range(1, min(most, _CROWD + 1)):
            same = np.flatnonzero(mixed[distance:] == mixed[:-distance])
            repeated += [i for i in same.tolist() if self._same_name(i, i + distance)]
        if most > _CROWD:
            for row in np.flatnonzero(counts > _CROWD).tolist():
                repeated += self._repeated_in(range(self._first[row], self._first[row + 1]))
        return repeated

    def _name(self, item: int) -> bytes:
        return self._text[self._start[item] : self._equals[item]].tobytes()

    def _same_name(self, one: int, other: int) -> bool:
        same_row = self._row[one] == self._row[other]
        return bool(same_row) and self._name(one) == self._name(other)

    def _repeated_in(self, items: range) -> list[int]:
        last: dict[bytes, int] = {}
        repeated = []
        for item in items:
            name = self._name(item)
            if name in last:
                repeated.append(last[name])
            last[name] = item
        return repeated


def _as_text(encoded: Any) -> Any:
    """The same if all of it is UTF-8, else repaired, as Java does on reading."""
    try:
        encoded.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return packed([decode_text(text).encode() for text in encoded.to_pylist()], pa.binary())
    return encoded


def _cut(text: Ints, bounds: Ints) -> tuple[Ints, Ints, Ints]:
    """Start, separator and end of every property in `text`, whose rows lie between `bounds`."""
    marks = np.flatnonzero(text < 3)
    pairs = len(marks) // 2
    if (
        2 * pairs == len(marks)
        # Separators take turns, with a name or a value of at least one byte before each.
        and (text[marks].view("<u2") == 0x0201).all()
        and (np.diff(marks, prepend=-1) > 1).all()
        and (text[bounds[1:][bounds[1:] > 0] - 1] == 2).all()
    ):
        equals, ends = np.ascontiguousarray(marks.reshape(pairs, 2).T)
        starts = np.zeros(pairs, np.int64)
        starts[1:] = ends[:-1] + 1
        return starts, equals, ends

    # An item ends before each 0x02 and where its row does; the next begins behind that 0x02.
    ends = np.unique(np.append(np.flatnonzero(text == 2), bounds[1:]))
    starts = np.append(0, ends[:-1] + (text[ends[:-1]] == 2))
    ones = np.append(np.flatnonzero(text == 1), len(text))
    equals = ones[np.searchsorted(ones, np.minimum(starts, len(text)))]
    valid = (equals > starts) & (equals < ends - 1)
    return starts[valid], equals[valid], ends[valid]
