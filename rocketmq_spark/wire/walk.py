"""Where each stored record begins and ends.

A record tells only its own size, so finding the next one is a loop. But messages of one producer
often have one size: a run of them is guessed from the first and the guess checked for all at once.
It holds for the whole run if it holds for each, because the first is right and each leads on.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from rocketmq_spark.errors import MessageFormatError
from rocketmq_spark.wire.message import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD,
    PREFIX_V4,
    read_record,
    record_place,
)
from rocketmq_spark.wire.spans import Ints, Raw, gather

# A part of a buffer, from byte to byte, that holds whole records.
Part = tuple[int, int]

# Every record has so many bytes, and most have all their numbers in them.
_HEAD = f"V{PREFIX_V4}"
_SIZE_AND_MAGIC = struct.Struct(">iI")


def find_records(raw: Raw, parts: Sequence[Part], where: str) -> tuple[Ints, Ints, Ints]:
    """Start and end of every record, part after part, and its first bytes.

    To read what is far apart costs more than to copy it, so a record's size and all else that is at
    its beginning are read at once.
    """
    filled = [part for part in parts if part[1] > part[0]]
    begins, ends = np.array(filled, np.int64).reshape(-1, 2).T
    lengths = ends - begins
    short = lengths < MIN_RECORD
    if short.any():
        which = int(np.argmax(short))
        complain(raw, int(begins[which]), where, int(ends[which]))
    first = np.maximum(gather(raw, ">i4", begins).astype(np.int64), MIN_RECORD)
    counts = lengths // first
    following = np.cumsum(counts)
    number = np.arange(following[-1] if len(following) else 0)
    number -= np.repeat(following - counts, counts)
    sizes = np.repeat(first, counts)
    starts = np.repeat(begins, counts) + number * sizes
    heads = gather(raw, _HEAD, starts)
    wrong = heads.view(">i4")[:: PREFIX_V4 // 4] != sizes
    alike = counts * first == lengths
    if alike.all() and not wrong.any():
        return starts, starts + sizes, heads
    alike[np.searchsorted(following, np.flatnonzero(wrong), side="right")] = False
    found = [
        (starts[stop - count : stop], starts[stop - count : stop] + sizes[stop - count : stop])
        if guessed
        else _one_by_one(raw, part, where)
        for part, guessed, stop, count in zip(filled, alike, following, counts, strict=True)
    ]
    starts, ends = (np.concatenate(each) for each in zip(*found, strict=True))
    return starts, ends, gather(raw, _HEAD, starts)


def _one_by_one(raw: Raw, part: Part, where: str) -> tuple[Ints, Ints]:
    unpack = struct.Struct(">I").unpack_from
    at, end = part
    bounds = [at]
    last = end - MIN_RECORD
    while at <= last:
        (size,) = unpack(raw, at)
        if size < MIN_RECORD:
            complain(raw, at, where, end)
        at += size
        bounds.append(at)
    if at != end:
        complain(raw, at if at < end else bounds[-2], where, end)
    found = np.array(bounds, np.int64)
    return found[:-1], found[1:]


def insist_on_record(raw: Raw, part: Part, where: str) -> None:
    """Before anything of what is there is believed: a record begins there and ends within."""
    at, end = part
    size, magic = _SIZE_AND_MAGIC.unpack_from(raw, at) if end - at >= MIN_RECORD else (0, 0)
    if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_RECORD <= size <= end - at:
        complain(raw, at, where, end)


def complain(raw: Raw, at: int, where: str, end: int | None = None) -> NoReturn:
    """Say what is wrong with the record there, as the plain codec sees it."""
    read_record(memoryview(raw)[:end], at, where)
    raise MessageFormatError(f"{record_place(where, at)}: its lengths do not add up")
