"""Stored messages to Arrow: the bytes of a pull in, a RecordBatch out, no loop over fields.

Everything is done for all messages at once by numpy and Arrow, and only for the columns that were
asked for; where records differ in size, a loop steps over them, for each tells only where the next
begins. A call costs some hundred microseconds whatever it is given, so give it megabytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_spark.errors import UsageError
from rocketmq_spark.wire import columns as made
from rocketmq_spark.wire.columns import FIELDS, FROM_PROPERTIES, SCHEMA
from rocketmq_spark.wire.compression import COMPRESSED
from rocketmq_spark.wire.like_properties import LikeProperties, read_like
from rocketmq_spark.wire.message import KEYS, TAGS, UNIQ_KEY, UNWRAP
from rocketmq_spark.wire.property_table import PropertyTable
from rocketmq_spark.wire.records import (
    Rows,
    decompress_bodies,
    is_inner_batch,
    read_rows,
    unwrap_batches,
)
from rocketmq_spark.wire.spans import Raw, numbers, packed, pick, truths
from rocketmq_spark.wire.walk import Part

__all__ = ["SCHEMA", "Decoder"]

_Properties = LikeProperties | PropertyTable

# Bits of SYSFLAG: the body holds something else than the message's own bytes.
_TO_BE_OPENED = COMPRESSED | UNWRAP
# Bytes of properties in a batch. Those of short names and values, each one's place being eight
# numbers, take twelve times as much memory as there are bytes.
_MOST_PROPERTIES = 3 * 1024 * 1024
# A message without any counts for so many: its places and its other columns take some hundred.
_BESIDE = 48
_MOST_ROWS = _MOST_PROPERTIES // _BESIDE


class Decoder:
    """Turns the messages of one queue into record batches of the columns asked for.

    Topic, broker and queue are those that were asked, not those that the records name: a static
    topic's records carry the numbers of a physical queue, a namespace is not the user's.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        topic: str,
        broker_name: str,
        queue_id: int,
        consumer_id: str = "",
    ) -> None:
        names = SCHEMA.names if columns is None else list(columns)
        unknown = [name for name in names if name not in SCHEMA.names]
        if unknown or not names:
            raise UsageError(
                f"no column {', '.join(map(repr, unknown))}: there are {', '.join(SCHEMA.names)}"
            )
        self.schema = pa.schema([SCHEMA.field(name) for name in names])
        self._names = names
        self._fields = {field for name in names for field in FIELDS.get(name, ())}
        self._constants = {
            "topic": topic,
            "brokerName": broker_name,
            "queueId": queue_id,
            "consumerId": consumer_id or None,
        }
        self._repeated = made.Repeated()
        self.where = f"{topic}/{broker_name}/{queue_id}"

    def __repr__(self) -> str:
        return f"Decoder({self.where}: {', '.join(self._names)})"

    def decode(
        self,
        raw: Raw,
        *,
        start: int | None = None,
        end: int | None = None,
        offset_delta: int = 0,
        tags: frozenset[str] | None = None,
    ) -> Any:
        """`batches` as one `pyarrow.RecordBatch`, however much its bodies unpack to."""
        (batch,) = self.batches(raw, start=start, end=end, offset_delta=offset_delta, tags=tags)
        return batch

    def batches(
        self,
        raw: Raw,
        *,
        start: int | None = None,
        end: int | None = None,
        offset_delta: int = 0,
        tags: frozenset[str] | None = None,
        max_unpacked: int | None = None,
        parts: Sequence[Part] | None = None,
    ) -> Iterator[Any]:
        """The messages of `raw` with queue offsets in [start, end), as record batches.

        It is one batch without `max_unpacked`. With it there are more, each made only as it is
        taken, where much memory would be needed: for compressed bodies that unpack to more than so
        many bytes, as a few stored ones may become megabytes, and for very many properties or tiny
        messages.

        `offset_delta` is the broker's, for static topics: it is added to each stored offset
        before anything is compared. `tags` keeps messages with one of these tags; a broker
        compares only their hashes. Messages lie in `parts` of `raw`, in the order of their offsets;
        without it, all over `raw`. Nothing of the result points into `raw`.
        """
        most, most_rows = (None, None) if max_unpacked is None else (_MOST_PROPERTIES, _MOST_ROWS)
        rows = read_rows(raw, self._fields, self.where, parts)
        opened = (rows.fields["sys_flag"] & _TO_BE_OPENED).any()
        if opened and parts is not None:
            # What is opened needs neighbours in their order.
            raw = b"".join([memoryview(raw)[first:stop] for first, stop in parts])
            rows = read_rows(raw, self._fields, self.where)
        rows.fields["queue_offset"] += offset_delta
        if not opened:
            for part in _in_parts(_between(rows, start, end), most):
                yield self._batch(part, tags)
            return
        some_inner = bool(is_inner_batch(rows).any())
        # A batch that begins before `start` may reach into the range.
        rows = _between(rows, None if some_inner else start, end)
        for part in decompress_bodies(rows, "body" in self._names, max_unpacked):
            inner = is_inner_batch(part)
            for some in unwrap_batches(part, inner, most_rows) if some_inner else [part]:
                for few in _in_parts(_between(some, start, end), most):
                    yield self._batch(few, tags)

    def _batch(self, rows: Rows, tags: frozenset[str] | None) -> Any:
        table = None
        if tags is not None or not FROM_PROPERTIES.isdisjoint(self._names):
            table = _properties(rows)
        if tags is not None and table is not None:
            chosen = packed([tag.encode() for tag in sorted(tags)], pa.string())
            keep = truths(pc.is_in(table.find(TAGS), value_set=chosen))
            if not keep.all():
                rows = rows.take(keep)
                table = _properties(rows)
        arrays = [self._column(name, rows, table) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, rows: Rows, table: _Properties | None) -> Any:
        if name in self._constants:
            return self._repeated.column(name, self._constants[name], len(rows))
        if name in _HOST_COLUMNS:
            return made.hosts(rows, name, self._repeated)
        if table is not None and name in FROM_PROPERTIES:
            return _PROPERTY_COLUMNS[name](rows, table)
        return _COLUMNS[name](rows)


def _properties(rows: Rows) -> _Properties:
    spans = rows.names_start, rows.names_end
    return read_like(rows.data, *spans, rows.names) or PropertyTable(rows.data, *spans)


def _in_parts(rows: Rows, most: int | None) -> Iterator[Rows]:
    """The rows in parts of not much more than `most` bytes of properties and what is like them."""
    sizes = np.cumsum(rows.names_end - rows.names_start + _BESIDE)
    if most is None or not len(rows) or sizes[-1] <= most:
        yield rows
        return
    cuts = np.flatnonzero(np.diff(sizes // most)) + 1
    for first, stop in pairwise([0, *cuts.tolist(), len(rows)]):
        yield rows.take(slice(first, stop))


def _between(rows: Rows, start: int | None, end: int | None) -> Rows:
    offsets = rows.fields["queue_offset"]
    if not len(offsets):
        return rows
    if (start is None or offsets.min() >= start) and (end is None or offsets.max() < end):
        return rows
    keep = np.ones(len(rows), np.bool_)
    if start is not None:
        keep &= offsets >= start
    if end is not None:
        keep &= offsets < end
    return rows.take(keep)


_HOST_COLUMNS = ("bornHost", "storeHost")

_COLUMNS: dict[str, Callable[[Rows], Any]] = {
    "queueOffset": lambda rows: numbers(rows.fields["queue_offset"], pa.int64()),
    "body": lambda rows: pick(rows.data, rows.body_start, rows.body_end, pa.binary()),
    "bornTimestamp": lambda rows: made.timestamps(rows.fields["born_timestamp"]),
    "storeTimestamp": lambda rows: made.timestamps(rows.fields["store_timestamp"]),
    "reconsumeTimes": lambda rows: numbers(rows.fields["reconsume_times"], pa.int32()),
    "flag": lambda rows: numbers(rows.fields["flag"], pa.int32()),
    "sysFlag": lambda rows: numbers(rows.fields["sys_flag"], pa.int32()),
}

_PROPERTY_COLUMNS: dict[str, Callable[[Rows, _Properties], Any]] = {
    "msgId": lambda rows, table: made.message_ids(rows, table.find(UNIQ_KEY)),
    "keys": lambda rows, table: table.find(KEYS),
    "tags": lambda rows, table: table.find(TAGS),
    "properties": lambda rows, table: table.column(),
}
