"""Where everything is: stored records as a table of positions, one row a message.

Nothing here copies a body or reads a property. Every length is checked for all records at once;
what does not fit is handed to the plain codec of `message.py`, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from rocketmq_spark.errors import BodyError, UsageError
from rocketmq_spark.wire.compression import COMPRESSED, decompress
from rocketmq_spark.wire.message import (
    BORN_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_V6,
    UNWRAP,
    batch_spans,
    record_place,
)
from rocketmq_spark.wire.spans import Ints, Raw, gather
from rocketmq_spark.wire.walk import Part, complain, find_records

# Arrow's binary and string arrays count their bytes in 32 bits.
MAX_BYTES = 2**31 - 1

# Bytes behind a body up to which those of all records are copied side by side, and how many of a
# line, on average, may be none of its own.
_WIDEST_TAIL = 512
_MOST_WASTED = 16

_ADDRESSES = BORN_HOST_V6 | STORE_HOST_V6
_FORM_SHIFT = BORN_HOST_V6.bit_length() - 1  # these two bits of SYSFLAG as a number 0 to 3


def _prefix(form: int) -> np.dtype[np.void]:
    """All before the body, for one of the four combinations of address families."""
    born, stored = "V20" if form & 1 else "V8", "V20" if form & 2 else "V8"
    return np.dtype(
        [
            ("size", ">i4"),
            ("magic", ">u4"),
            ("crc", ">u4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", born),
            ("store_timestamp", ">i8"),
            ("store_host", stored),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


_PREFIXES = [_prefix(form) for form in range(4)]
_PREFIX_SIZES = np.array([prefix.itemsize for prefix in _PREFIXES])
_NATIVE = {name: kind[0].newbyteorder("=") for name, kind in (_PREFIXES[0].fields or {}).items()}
_HOSTS = ("born_host", "store_host")


@dataclass(slots=True)
class Rows:
    """Messages as columns: numbers in `fields`, body and properties as spans of `data`.

    A host field holds an index into `hosts[name]`, the few distinct packed addresses.
    """

    data: Raw
    where: str
    fields: dict[str, Ints]
    hosts: dict[str, list[bytes]]
    body_start: Ints
    body_end: Ints
    names_start: Ints
    names_end: Ints
    # The properties again, if they lie side by side: those of a row at the beginning of its line.
    names: Ints | None = None

    def __len__(self) -> int:
        return len(self.body_start)

    def take(self, which: Ints | slice) -> Rows:
        """Only these rows, by index, by mask or as a slice."""
        return Rows(
            self.data,
            self.where,
            {name: values[which] for name, values in self.fields.items()},
            self.hosts,
            self.body_start[which],
            self.body_end[which],
            self.names_start[which],
            self.names_end[which],
            None if self.names is None else self.names[which],
        )

    def place(self, row: int) -> str:
        """Where a complaint about this row is about."""
        at, offset = self.fields["at"][row], self.fields["queue_offset"][row]
        return record_place(self.where, int(at), int(offset))


def read_rows(
    raw: Raw, fields: Collection[str], where: str = "", parts: Sequence[Part] | None = None
) -> Rows:
    """One row for each record, with these fields of the prefix and those that this room needs.

    Records lie in `parts` of `raw`, in the order of the rows; without it, all over `raw`.
    """
    if len(raw) > MAX_BYTES:
        raise UsageError(
            f"{where}: {len(raw)} bytes of messages at once; Arrow takes {MAX_BYTES} at most"
        )
    starts, ends, heads = find_records(raw, [(0, len(raw))] if parts is None else parts, where)
    wanted = {"magic", "sys_flag", "queue_offset", "body_length", *fields}
    columns, hosts, body = _read_prefixes(raw, starts, ends, heads, wanted, where)

    magic = columns.pop("magic")
    length = columns.pop("body_length").astype(np.int64)
    body_end = body + length
    topic = body_end + 1
    first = magic == MAGIC_V1
    second = None
    if not first.all():
        second = ~first
        _insist(first | (magic == MAGIC_V2), raw, starts, where)
        topic += second
    _insist((length >= 0) & (topic + 2 <= ends), raw, starts, where)
    tails = None if second is not None else _read_tails(raw, body_end, ends)
    if tails is None:
        length = gather(raw, ">i1", topic - 1).astype(np.int64)
    else:
        length = tails[:, 0].astype(np.int8).astype(np.int64)
    if second is not None:
        length[second] = gather(raw, ">i2", topic[second] - 2)
    names = topic + length + 2
    _insist((length >= 0) & (names <= ends), raw, starts, where)
    if tails is not None and (length == length[0]).all():
        tails = tails[:, 1 + int(length[0]) :]
        length = np.ascontiguousarray(tails[:, :2]).view(">i2").ravel().astype(np.int64)
        tails = tails[:, 2:]
    else:
        length, tails = gather(raw, ">i2", names - 2).astype(np.int64), None
    names_end = names + length
    _insist((length >= 0) & (names_end <= ends), raw, starts, where)
    columns["at"] = starts
    return Rows(raw, where, columns, hosts, body, body_end, names, names_end, tails)


def _read_tails(raw: Raw, body_end: Ints, ends: Ints) -> Ints | None:
    """What is behind each body, side by side, if that is of about one size: the rest of each line
    is what comes next in `raw`."""
    width = int((ends - body_end).max(initial=0))
    wasted = width * len(ends) - int((ends - body_end).sum())
    if not 0 < width <= _WIDEST_TAIL or wasted > _MOST_WASTED * len(ends):
        return None
    if int(body_end.max()) + width > len(raw):
        return None
    return gather(raw, f"V{width}", body_end).view(np.uint8).reshape(-1, width)


def _insist(right: Ints, raw: Raw, starts: Ints, where: str) -> None:
    if not right.all():
        complain(raw, int(starts[np.argmin(right)]), where)


def _read_prefixes(
    raw: Raw, starts: Ints, ends: Ints, heads: Ints, wanted: Collection[str], where: str
) -> tuple[dict[str, Ints], dict[str, list[bytes]], Ints]:
    """Fields by name, the addresses that host fields are numbers of, and where bodies begin."""
    hosts: dict[str, list[bytes]] = {name: [] for name in _HOSTS if name in wanted}
    prefix = heads.view(_PREFIXES[0])  # all of it up to the first address is right
    form = prefix["sys_flag"] & _ADDRESSES
    if not form.any():
        # Every record is long enough for this prefix, or it would not be one.
        return _fields(prefix, wanted, hosts), hosts, starts + prefix.itemsize
    form = (form >> _FORM_SHIFT).astype(np.intp)
    body = starts + _PREFIX_SIZES[form]
    _insist(body + 3 <= ends, raw, starts, where)
    columns: dict[str, Ints] = {}
    for number in np.flatnonzero(np.bincount(form)):
        rows = np.flatnonzero(form == number)
        part = _fields(gather(raw, _PREFIXES[number], starts[rows]), wanted, hosts)
        for name, values in part.items():
            columns.setdefault(name, np.empty(len(starts), values.dtype))[rows] = values
    return columns, hosts, body


def _fields(
    prefix: Ints, wanted: Collection[str], hosts: dict[str, list[bytes]]
) -> dict[str, Ints]:
    return {
        name: _number_hosts(prefix[name], hosts[name])
        if name in hosts
        else prefix[name].astype(_NATIVE[name])
        for name in wanted
    }


def _number_hosts(packed: Ints, known: list[bytes]) -> Ints:
    """For each address its place in `known`, which grows by what is new."""
    if not len(packed):
        return np.empty(0, np.int32)
    plain = np.ascontiguousarray(packed)
    words = plain.view(np.uint64 if plain.itemsize == 8 else np.uint32).reshape(len(plain), -1)
    if (words == words[0]).all():  # one producer, or the one broker that stored all of them
        known.append(words[0].tobytes())
        return np.full(len(plain), len(known) - 1, np.int32)
    form = pa.binary(packed.dtype.itemsize)
    buffer = pa.py_buffer(plain)
    encoded = pa.Array.from_buffers(form, len(packed), [None, buffer]).dictionary_encode()
    base = len(known)
    known += encoded.dictionary.to_pylist()
    numbers: Ints = np.frombuffer(encoded.indices.buffers()[1], np.int32)[: len(packed)] + base
    return numbers


# --- bodies that have to be opened ------------------------------------------------------------


def decompress_bodies(rows: Rows, wanted: bool, most: int | None = None) -> Iterator[Rows]:
    """The rows with compressed bodies replaced by their content, so that spans stay in order.

    They come in runs whose unpacked bodies take `most` bytes, or one body more; all in one without
    it. If bodies are not wanted, only those of inner batches are unpacked, whose messages are
    hidden inside. The bit in SYSFLAG goes in any case, as with `message.decompressed`.
    """
    sys_flag = rows.fields["sys_flag"]
    packed = (sys_flag & COMPRESSED != 0) & (rows.body_end > rows.body_start)
    if not packed.any():
        yield rows
        return
    rows.fields["sys_flag"] = np.where(packed, sys_flag & ~COMPRESSED, sys_flag)
    if not wanted:
        packed &= is_inner_batch(rows)
    view, first, size = memoryview(rows.data), 0, 0
    bodies: dict[int, bytes] = {}
    for row in np.flatnonzero(packed).tolist():
        start, end = int(rows.body_start[row]), int(rows.body_end[row])
        body = decompress(int(sys_flag[row]), view[start:end], rows.place(row))
        if bodies and most is not None and size + len(body) > most:
            yield _opened(rows, first, row, bodies)
            bodies, first, size = {}, row, 0
        bodies[row] = body
        size += len(body)
        if len(rows.data) + size > MAX_BYTES:
            raise BodyError(
                f"{rows.place(row)}: with this body the decompressed messages take "
                f"{len(rows.data) + size} bytes, and Arrow takes {MAX_BYTES} at once; ask for fewer"
            )
    yield _opened(rows, first, len(rows), bodies)


def _opened(rows: Rows, first: int, stop: int, bodies: dict[int, bytes]) -> Rows:
    """Rows first to stop, these bodies in the place of the packed ones."""
    part = rows.take(slice(first, stop))
    base = int(part.body_start[0])
    view = memoryview(rows.data)[base : int(part.names_end[-1])]
    copied = 0
    pieces: list[bytes | memoryview] = []
    grown = np.zeros(len(part), np.int64)
    for row, body in bodies.items():
        start, end = int(rows.body_start[row]) - base, int(rows.body_end[row]) - base
        pieces += (view[copied:start], body)
        copied = end
        grown[row - first] = len(body) - (end - start)
    pieces.append(view[copied:])
    after = np.cumsum(grown) - base
    part.data = b"".join(pieces)
    part.body_start = part.body_start + (after - grown)
    part.body_end = part.body_end + after
    part.names_start = part.names_start + after
    part.names_end = part.names_end + after
    return part


def is_inner_batch(rows: Rows) -> Ints:
    """Which rows are records that hold a batch: both bits, as MessageDecoder asks."""
    inner: Ints = rows.fields["sys_flag"] & UNWRAP == UNWRAP
    return inner


def unwrap_batches(rows: Rows, inner: Ints, most: int | None = None) -> Iterator[Rows]:
    """Each inner batch replaced by its items, in order; see `message.unwrap` for what they keep.

    They come in runs of `most` messages, or one batch more; all in one without it.
    """
    view = memoryview(rows.data)
    first = held = 0
    items: list[Ints] = []
    for row in np.flatnonzero(inner).tolist():
        if most is not None and held + row - first >= most:
            yield _unwrapped(rows.take(slice(first, row)), inner[first:row], items)
            first, held, items = row, 0, []
        spans = batch_spans(
            view, rows.place(row), int(rows.body_start[row]), int(rows.body_end[row])
        )
        items.append(np.fromiter(chain.from_iterable(spans), np.int64).reshape(-1, 5))
        held += len(items[-1]) - 1
    yield _unwrapped(rows.take(slice(first, None)), inner[first:], items)


def _unwrapped(rows: Rows, inner: Ints, items: list[Ints]) -> Rows:
    """These rows with the items of their inner batches."""
    counts = np.ones(len(rows), np.int64)
    counts[inner] = [len(each) for each in items]
    source = np.repeat(np.arange(len(rows)), counts)
    number = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows.names = None  # items have their own
    unwrapped = rows.take(source)
    which = inner[source]
    flag, body, body_end, names, names_end = np.concatenate([np.empty((0, 5), int), *items]).T
    unwrapped.body_start[which], unwrapped.body_end[which] = body, body_end
    unwrapped.names_start[which], unwrapped.names_end[which] = names, names_end
    unwrapped.fields["queue_offset"] += number
    if "flag" in unwrapped.fields:
        unwrapped.fields["flag"][which] = flag
    if "reconsume_times" in unwrapped.fields:
        unwrapped.fields["reconsume_times"][which] = 0
    return unwrapped
