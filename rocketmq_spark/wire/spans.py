"""Bytes from many places of one buffer into one array.

Arrow arrays are laid over numpy's memory here. What turns Python's or numpy's values into Arrow's
or back (`pa.array`, `pa.scalar`, a plain value given to a function of `pc`, `to_numpy`,
`np.asarray`) is not used to decode: the first such call imports pandas where there is one, which
takes a third of a second and 45 MB that a reader has no use for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Raw = bytes | bytearray | memoryview
Ints = npt.NDArray[Any]

# Bytes of a span, on average, from which joining them in Python is faster than Arrow, which does
# not know their sum.
_LONG = 8 * 1024


def gather(raw: Any, dtype: str | np.dtype[Any], at: Ints) -> Ints:
    """A value of this type from each of these bytes, aligned or not."""
    form = np.dtype(dtype)
    size = form.itemsize
    # Void elements are copied whole; with the real type numpy goes field by field, much slower.
    shape = (max(len(raw) - size + 1, 0),)
    view: Ints = np.ndarray(shape, f"V{size}", raw, strides=(1,))
    return view[at].view(form)


def pick(data: Any, starts: Ints, ends: Ints, kind: Any, rows: Ints | None = None) -> Any:
    """An Arrow array of the bytes between these positions; `rows` reorders, -1 gives null.

    Long spans are joined by Python, in memory of the right size; others of one length are copied by
    numpy in half the time. The rest Arrow copies fastest when it takes every second element of an
    array laid over the data, in which what is between the spans are elements too. Where spans go
    backwards those in between have a negative length, which nobody sees because nobody takes them.
    """
    count = len(starts)
    if count and rows is None and (ends - starts).sum() >= count * _LONG:
        view = memoryview(data)
        return packed(
            [view[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)], kind
        )
    width = int(ends[0] - starts[0]) if count and rows is None else 0
    if width and (ends - starts == width).all():
        return laid_over(gather(data, f"V{width}", starts), steps(count, width), kind)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[:-1:2], offsets[1::2] = starts, ends
    offsets[-1] = len(data) if count else 0
    spans = pa.Array.from_buffers(
        kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    if rows is None:
        return spans.take(numbers(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32()))
    return spans.take(numbers(2 * rows.astype(np.int32), pa.int32(), rows >= 0))


def numbers(values: Ints, kind: Any, valid: Ints | None = None) -> Any:
    """An Arrow array over the memory of these numbers, which must be as wide as `kind` says; null
    where they are not `valid`."""
    plain = np.ascontiguousarray(values)
    assert 8 * plain.itemsize == kind.bit_width
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(plain), [mask, pa.py_buffer(plain)])


def truths(array: Any) -> Ints:
    """A new Arrow array of truth values without nulls, for numpy."""
    assert not array.offset and not array.null_count
    bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, count=len(array), bitorder="little").view(np.bool_)


def packed(texts: Sequence[Raw], kind: Any) -> Any:
    """An Arrow array of these texts, copied end to end."""
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return laid_over(np.frombuffer(b"".join(texts), np.uint8), offsets, kind)


def equal_texts(texts: Ints) -> Any:
    """An Arrow string array of the rows of a byte matrix."""
    count, width = texts.shape
    return laid_over(texts, steps(count, width), pa.string())


def repeated_ends(widths: Sequence[int], rows: int) -> Ints:
    """Offsets of texts end to end: of these `widths`, again for each row."""
    ends = np.cumsum(widths)
    offsets = np.zeros(rows * len(widths) + 1, np.int32)
    lines = offsets[1:].reshape(rows, len(widths))
    np.add(np.arange(rows)[:, None] * ends[-1], ends, out=lines, casting="unsafe")
    return offsets


def steps(count: int, width: int) -> Ints:
    """Offsets of `count` texts of one `width`."""
    offsets: Ints = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return offsets


def laid_over(data: Ints, offsets: Ints, kind: Any) -> Any:
    """An Arrow array of the bytes of `data` between these offsets."""
    assert data.nbytes < 2**31  # what offsets can count
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
