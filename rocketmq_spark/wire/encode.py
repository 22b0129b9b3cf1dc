"""Arrow columns to the items of SEND_BATCH_MESSAGE, all rows at once.

`message.encode_batch_item` is the plain statement of the same bytes, and the tests hold this
against it. Nothing here loops over rows: lengths are subtracted offsets, heads are one structured
array, and Arrow joins the parts of all rows into one buffer, of which every request is a slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_spark.wire.message import java_hash

# size, magic, crc, flag, body length; magic and crc stay 0, as MessageDecoder.encodeMessage has it.
_HEAD = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body", ">i4")]
)
_SHORT = 2
_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
_ID_DIGITS = 12
_NAME_END, _VALUE_END = b"\x01", b"\x02"


@dataclass(frozen=True, slots=True)
class Items:
    """Encoded items back to back: row i is `data[starts[i]:starts[i + 1]]`."""

    data: memoryview
    starts: Any

    def slice(self, first: int, end: int) -> memoryview:
        return self.data[self.starts[first] : self.starts[end]]


def encode_items(bodies: Any, properties: Sequence[Any], flags: Any = 0) -> Items:
    """Bodies are a binary array without nulls, properties the parts of `property_lengths`; flags
    are numbers, or one for all."""
    count = len(bodies)
    body_lengths, property_sizes = lengths(bodies), property_lengths(properties, count)
    heads = np.zeros(count, _HEAD)
    heads["size"] = _HEAD.itemsize + body_lengths + _SHORT + property_sizes
    heads["flag"] = flags
    heads["body"] = body_lengths
    joined = join(
        _fixed_width(heads, _HEAD.itemsize),
        bodies,
        _fixed_width(property_sizes.astype(">i2"), _SHORT),
        *properties,
    )
    return Items(memoryview(joined.buffers()[2] or b""), starts(joined))


def property_lengths(parts: Sequence[Any], count: int) -> Any:
    """How long each row's properties are: parts are arrays, and bytes that are in every row."""
    sizes = np.zeros(count, np.int64)
    for part in parts:
        sizes += len(part) if isinstance(part, bytes) else lengths(part)
    return sizes


# --- properties -------------------------------------------------------------------------------


def property_column(name: str, values: Any) -> list[Any]:
    """`name` 0x01 value 0x02 for each row; nothing where the value is null or empty."""
    values = values.cast(pa.binary())
    values = pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, pa.binary()), values)
    if not values.null_count:
        return [name.encode() + _NAME_END, values, _VALUE_END]
    texts = join(name.encode() + _NAME_END, values, _VALUE_END, nulls="emit_null")
    return [pc.fill_null(texts, b"")]


def unique_keys(name: str, prefix: str, first: int, count: int) -> list[Any]:
    """The same, of ids that begin with `prefix` and end in the numbers from `first` on."""
    numbers = np.arange(first, first + count, dtype=np.uint64).astype(">u8")
    digits = _HEX[numbers.view(np.uint8).reshape(count, 8)[:, 8 - _ID_DIGITS // 2 :]]
    ends = _fixed_width(np.ascontiguousarray(digits), _ID_DIGITS)
    return [f"{name}\x01{prefix}".encode(), ends, _VALUE_END]


def numbered(name: str, prefix: str, rows: Any) -> list[Any]:
    """The same, of `prefix` and the row's number."""
    texts = pa.array(rows).cast(pa.string()).cast(pa.binary())
    return [f"{name}\x01{prefix}".encode(), texts, _VALUE_END]


def property_map(maps: Any, dropped: Any = None) -> list[Any]:
    """All entries of each row's map, one after the other; `dropped` marks entries to leave out.

    Entries without a value are left out, too.
    """
    names, values, edges = map_entries(maps)
    entries = join(
        names.cast(pa.binary()), _NAME_END, values.cast(pa.binary()), _VALUE_END, nulls="emit_null"
    )
    if dropped is not None:
        entries = pc.if_else(pa.array(dropped), pa.scalar(None, pa.binary()), entries)
    entries = pc.fill_null(entries, b"")
    # The entries of a row lie side by side, so its text begins where its first entry does.
    bounds = starts(entries)[edges].astype(np.int32)
    data = entries.buffers()[2] or pa.py_buffer(b"")
    return [pa.Array.from_buffers(pa.binary(), len(maps), [None, pa.py_buffer(bounds), data])]


def map_entries(maps: Any) -> tuple[Any, Any, Any]:
    """Names and values of all entries, and where each row's begin, with one more for the end."""
    edges = np.asarray(maps.offsets).astype(np.int64)
    names = maps.keys[edges[0] : edges[-1]]
    values = maps.items[edges[0] : edges[-1]]
    if not maps.null_count:
        return names, values, edges - edges[0]
    # A null map may have entries underneath.
    there, counts = np.asarray(maps.is_valid()), np.diff(edges)
    kept = pa.array(np.repeat(there, counts))
    edges = np.concatenate(([0], np.cumsum(np.where(there, counts, 0))))
    return names.filter(kept), values.filter(kept), edges


def rows_of_entries(edges: Any, marked: Any) -> Any:
    """Which rows have an entry that is marked."""
    before = np.concatenate(([0], np.cumsum(marked)))
    return before[edges[1:]] > before[edges[:-1]]


# --- keys -------------------------------------------------------------------------------------


def java_hashes(texts: Any) -> Any:
    """`message.java_hash` of every text; null counts as empty.

    Step by step through the characters, each step for all rows.
    """
    texts = pc.fill_null(texts.cast(pa.string()), "")
    ascii_only = np.asarray(pc.string_is_ascii(texts))
    sizes = np.where(ascii_only, lengths(texts), 0)
    begins = starts(texts)[:-1]
    buffer = texts.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    hashes = np.zeros(len(texts), np.uint32)
    for at in range(int(sizes.max(initial=0))):
        rows = np.nonzero(sizes > at)[0]
        hashes[rows] = hashes[rows] * np.uint32(31) + data[begins[rows] + at]
    signed = hashes.view(np.int32).astype(np.int64)
    for row in np.nonzero(~ascii_only)[0]:
        signed[row] = java_hash(texts[int(row)].as_py())
    return signed


# --- arrays -----------------------------------------------------------------------------------


def join(*parts: Any, nulls: str = "skip") -> Any:
    """One binary array of all parts, row by row; bytes stand for the same in every row."""
    scalars = [pa.scalar(p, pa.binary()) if isinstance(p, bytes) else p for p in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()), null_handling=nulls)


def starts(array: Any) -> Any:
    """Where each value of a binary or string array begins in its data, and the last one ends."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)


def lengths(array: Any) -> Any:
    return np.diff(starts(array))


def _fixed_width(values: Any, width: int) -> Any:
    offsets = np.arange(len(values) + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
