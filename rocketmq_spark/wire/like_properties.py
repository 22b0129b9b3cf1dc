"""Properties of messages that are alike: the same names in the same order, values of one length.

One producer writes such messages by the million, and changes a length now and then, as when a
counter gets one more digit. The messages between two changes form a matrix, a row a message, in
which every name and every value is a block of columns, so nothing has to be searched in them row by
row. Whatever is not exactly like that is left to `PropertyTable`, whose answers these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from rocketmq_spark.wire.spans import (
    Ints,
    Raw,
    equal_texts,
    gather,
    laid_over,
    numbers,
    repeated_ends,
)

_NAME_ENDS, _VALUE_ENDS = 1, 2
# Beyond this the matrix has few rows, and the other way is as fast.
_WIDEST = 4096
# A batch with more different stretches than this is faster done the other way.
_MOST_STRETCHES = 8
# What is the same for many rows may take so much memory to be kept for the next batch: enough for a
# batch of 8 MiB with messages of 1 KiB and five properties.
_KEPT_BYTES = 768 * 1024
_FEW = 8  # fewer rows than one of so many parts of that are not worth it


class LikeProperties:
    """Stretches of messages, in each of which all are alike."""

    def __init__(self, stretches: list[_Stretch]) -> None:
        self._stretches = stretches

    def find(self, name: str) -> Any:
        """The value of this property for each row, null without it."""
        return _joined([each.find(name) for each in self._stretches])

    def column(self) -> Any:
        """All of them as a map column."""
        return _joined([each.column() for each in self._stretches])


def _joined(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The names, the width of each value, and the values of all rows side by side."""

    names: tuple[bytes, ...]
    widths: tuple[int, ...]
    values: Ints

    def find(self, name: str) -> Any:
        wanted = name.encode()
        if wanted not in self.names:
            return pa.nulls(len(self.values), pa.string())
        which = self.names.index(wanted)
        start = sum(self.widths[:which])
        return equal_texts(self.values[:, start : start + self.widths[which]])

    def column(self) -> Any:
        rows, count = len(self.values), len(self.names)
        first, names, offsets = _repeated(self.names, self.widths, rows)
        values = laid_over(self.values, offsets[: rows * count + 1], pa.string())
        names = names.slice(0, rows * count)
        return pa.MapArray.from_arrays(first.slice(0, rows + 1), names, values)


# What is the same for each row: the number of its first property, all names, the ends of values.
_Repeated = tuple[Any, Any, Ints]


def _repeated(names: tuple[bytes, ...], widths: tuple[int, ...], rows: int) -> _Repeated:
    """For so many rows or more: the same in batch after batch, so it is kept, unless for a few."""
    room = _KEPT_BYTES // sum(len(name) + 8 for name in names)
    kept = room // _FEW <= rows <= room
    return _keep(names, widths, room) if kept else _make_repeated(names, widths, rows)


def _make_repeated(names: tuple[bytes, ...], widths: tuple[int, ...], rows: int) -> _Repeated:
    first = numbers(np.arange(0, rows * len(names) + 1, len(names), dtype=np.int32), pa.int32())
    text = np.frombuffer(b"".join(names) * rows, np.uint8)
    ends = repeated_ends([len(name) for name in names], rows)
    return first, laid_over(text, ends, pa.string()), repeated_ends(widths, rows)


_keep = lru_cache(maxsize=4)(_make_repeated)


def read_like(
    data: Raw, starts: Ints, ends: Ints, side_by_side: Ints | None = None
) -> LikeProperties | None:
    """The properties between these positions, if they are alike and plain ASCII. They are read from
    the lines of `side_by_side` if there is one."""
    if not len(starts):
        return None
    widths = ends - starts
    changes = np.flatnonzero(widths[1:] != widths[:-1]) + 1
    if len(changes) >= _MOST_STRETCHES:
        return None
    stretches = []
    for first, stop in pairwise([0, *changes.tolist(), len(starts)]):
        width = int(widths[first])
        if not 0 < width <= _WIDEST:
            return None
        if side_by_side is None:
            matrix = gather(data, f"V{width}", starts[first:stop]).view(np.uint8)
        else:
            matrix = side_by_side[first:stop, :width]
        stretch = _read_stretch(matrix.reshape(-1, width))
        if stretch is None:
            return None
        stretches.append(stretch)
    return LikeProperties(stretches)


def _read_stretch(matrix: Ints) -> _Stretch | None:
    """Properties of one width, a line each."""
    first = matrix[0].tobytes()
    items = [item.split(b"\x01") for item in first.split(b"\x02")[:-1]]
    if not first.endswith(b"\x02") or not all(len(i) == 2 and i[0] and i[1] for i in items):
        return None
    names = tuple(name for name, _ in items)
    if len(set(names)) < len(names) or not first.isascii() or b"\x00" in first:
        return None
    # Names and separators are at the same places in all rows, so there nothing differs.
    fixed = np.frombuffer(
        b"".join([b"\xff" * (len(n) + 1) + bytes(len(v)) + b"\xff" for n, v in items]), np.uint8
    )
    if (np.bitwise_or.reduce(matrix[1:] ^ matrix[:-1], axis=0) & fixed).any():
        return None
    widths = tuple(len(value) for _, value in items)
    values = np.empty((len(matrix), sum(widths)), np.uint8)
    at = column = 0
    for name, value in items:
        after = at + len(name) + 1
        at, following = after + len(value) + 1, column + len(value)
        values[:, column:following] = matrix[:, after : at - 1]
        column = following
    # In one look: no separator or NUL inside a value, and nothing beyond ASCII.
    if (values - np.uint8(_VALUE_ENDS + 1)).max() > 0x7F - (_VALUE_ENDS + 1):
        return None
    return _Stretch(names, widths, values)
