"""Properties of messages that are alike: the same names in the same order, values of one length.

One producer writes such messages by the million. They form a matrix, a row a message, in which
every name and every value is a block of columns, so nothing has to be searched in them row by row.
Whatever is not exactly like that is left to `PropertyTable`, whose answers these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from rocketmq_spark.wire.spans import Ints, Raw, equal_texts, gather, numbers, strings

_NAME_ENDS, _VALUE_ENDS = 1, 2
# Beyond this the matrix has few rows, and the other way is as fast.
_WIDEST = 4096


@dataclass(frozen=True, slots=True)
class LikeProperties:
    """The names, the width of each value, and the values of all rows side by side."""

    names: list[bytes]
    widths: list[int]
    values: Ints

    def find(self, name: str) -> Any:
        """The value of this property for each row, null without it."""
        wanted = name.encode()
        if wanted not in self.names:
            return pa.nulls(len(self.values), pa.string())
        which = self.names.index(wanted)
        start = sum(self.widths[:which])
        return equal_texts(self.values[:, start : start + self.widths[which]])

    def column(self) -> Any:
        """All of them as a map column."""
        rows, count = len(self.values), len(self.names)
        room = 1 << (rows - 1).bit_length()
        names = _again_and_again(tuple(self.names), room).slice(0, rows * count)
        values = strings(self.values, rows, self.widths)
        first = np.arange(0, rows * count + 1, count, dtype=np.int32)
        return pa.MapArray.from_arrays(numbers(first, pa.int32()), names, values)


@lru_cache(maxsize=4)
def _again_and_again(names: tuple[bytes, ...], rows: int) -> Any:
    """The same for batch after batch, so it is kept: for some more rows than one has."""
    text = np.frombuffer(b"".join(names) * rows, np.uint8)
    return strings(text, rows, [len(name) for name in names])


def read_like(data: Raw, starts: Ints, ends: Ints) -> LikeProperties | None:
    """The properties between these positions, if they are all alike and plain ASCII."""
    width = int(ends[0] - starts[0]) if len(starts) else 0
    if not 0 < width <= _WIDEST or not (ends - starts == width).all():
        return None
    first = bytes(memoryview(data)[int(starts[0]) : int(ends[0])])
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
    return LikeProperties(names, widths, values)
