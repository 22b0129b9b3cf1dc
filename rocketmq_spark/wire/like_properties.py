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

from rocketmq_spark.wire.spans import Ints, Raw, equal_texts, gather, numbers, strings

_NAME_ENDS, _VALUE_ENDS = 1, 2
# Beyond this the matrix has few rows, and the other way is as fast.
_WIDEST = 4096
# A batch with more different stretches than this is faster done the other way.
_MOST_STRETCHES = 8
# What the names of many rows may take in memory to be kept for the next batch: enough for a batch
# of 8 MiB with messages of 1 KiB and five properties.
_KEPT_BYTES = 512 * 1024


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

    names: list[bytes]
    widths: list[int]
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
        names = _repeat_names(tuple(self.names), rows)
        values = strings(self.values, rows, self.widths)
        first = np.arange(0, rows * count + 1, count, dtype=np.int32)
        return pa.MapArray.from_arrays(numbers(first, pa.int32()), names, values)


def _repeat_names(names: tuple[bytes, ...], rows: int) -> Any:
    """All names, again for each row: the same in batch after batch, so they are kept."""
    room = _KEPT_BYTES // sum(len(name) + 4 for name in names)
    if rows > room:
        return _make_names(names, rows)
    return _keep_names(names, room).slice(0, rows * len(names))


def _make_names(names: tuple[bytes, ...], rows: int) -> Any:
    text = np.frombuffer(b"".join(names) * rows, np.uint8)
    return strings(text, rows, [len(name) for name in names])


_keep_names = lru_cache(maxsize=4)(_make_names)


def read_like(data: Raw, starts: Ints, ends: Ints) -> LikeProperties | None:
    """The properties between these positions, if they are alike and plain ASCII."""
    if not len(starts):
        return None
    widths = ends - starts
    changes = np.flatnonzero(widths[1:] != widths[:-1]) + 1
    if len(changes) >= _MOST_STRETCHES:
        return None
    stretches = []
    for first, stop in pairwise([0, *changes.tolist(), len(starts)]):
        stretch = _read_stretch(data, starts[first:stop], int(widths[first]))
        if stretch is None:
            return None
        stretches.append(stretch)
    return LikeProperties(stretches)


def _read_stretch(data: Raw, starts: Ints, width: int) -> _Stretch | None:
    """Properties of this width that begin at these positions."""
    if not 0 < width <= _WIDEST:
        return None
    first = bytes(memoryview(data)[int(starts[0]) : int(starts[0]) + width])
    items = [item.split(b"\x01") for item in first.split(b"\x02")[:-1]]
    if not first.endswith(b"\x02") or not all(len(i) == 2 and i[0] and i[1] for i in items):
        return None
    names = [name for name, _ in items]
    if len(set(names)) < len(names) or not first.isascii() or b"\x00" in first:
        return None
    matrix = gather(data, f"V{width}", starts).view(np.uint8).reshape(-1, width)
    # Names and separators are at the same places in all rows, so there nothing differs.
    fixed = np.frombuffer(
        b"".join([b"\xff" * (len(n) + 1) + bytes(len(v)) + b"\xff" for n, v in items]), np.uint8
    )
    differs = matrix ^ matrix[0]
    differs &= fixed
    if differs.any():
        return None
    widths = [len(value) for _, value in items]
    values = np.empty((len(starts), sum(widths)), np.uint8)
    at = column = 0
    for name, value in items:
        after = at + len(name) + 1
        at, following = after + len(value) + 1, column + len(value)
        values[:, column:following] = matrix[:, after : at - 1]
        column = following
    # In one look: no separator or NUL inside a value, and nothing beyond ASCII.
    if (values - np.uint8(_VALUE_ENDS + 1) > 0x7F - (_VALUE_ENDS + 1)).any():
        return None
    return _Stretch(names, widths, values)
