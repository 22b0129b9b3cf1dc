"""Writes Arrow batches to topics: what one task of the sink does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_spark.client.balance import Balancer
from rocketmq_spark.client.dispatch import Dispatcher, SendSettings, writable
from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.outgoing import Request
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.client.rows import RowEncoder
from rocketmq_spark.errors import RocketMQError, SendError, UsageError
from rocketmq_spark.wire.frame import Frame

# Encoded at once: more gains nothing, and several tasks share a machine's memory.
_PIECE = 8 << 20

# What Spark may hand over, and what the encoder wants.
_TYPES = {
    "body": pa.binary(),
    "topic": pa.string(),
    "keys": pa.string(),
    "tags": pa.string(),
    "shardingKey": pa.string(),
    "brokerName": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "queueId": pa.int32(),
    "delayLevel": pa.int32(),
    "flag": pa.int32(),
}


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a task's rows."""

    rows: int
    bytes: int
    requests: int
    retries: int
    isolated: int
    unsafe: int

    def __str__(self) -> str:
        return (
            f"{self.rows} rows, {self.bytes} bytes in {self.requests} requests; "
            f"{self.retries} retries, brokers left out {self.isolated} times"
            + (f", {self.unsafe} not flushed or replicated in time" if self.unsafe else "")
        )


class Writer:
    """Rows in as Arrow, out as messages. `close` says what was written; without it, nothing is
    sure to be. `topic` is for rows that name none; `wire_name` is a topic's name on the wire."""

    def __init__(
        self,
        metadata: Metadata,
        pool: Pool,
        settings: SendSettings,
        *,
        topic: str = "",
        row_key: str = "",
        place: Callable[[int], str] = "row {}".format,
        wire_name: Callable[[str], str] = str,
    ) -> None:
        self._metadata = metadata
        self._topic = topic
        self._place = place
        self._wire_name = wire_name
        self._balancer = Balancer(settings.fault_latency)
        self._encoder = RowEncoder(settings, self._balancer, row_key, place)
        self._dispatcher = Dispatcher(
            metadata, pool, settings, self._stored, self._lost, self._balancer
        )
        self._given = self._rows = self._bytes = 0

    def write(self, batch: Any) -> None:
        """Send the rows of a RecordBatch, or have them on their way."""
        for piece in _pieces(_wanted_types(batch)):
            rows = np.arange(self._given, self._given + piece.num_rows)
            self._given += piece.num_rows
            for topic, part, numbers in self._by_topic(piece, rows):
                self._send(topic, part, numbers)

    def close(self) -> Written:
        """Return when every row is acknowledged."""
        self._dispatcher.flush()
        self._dispatcher.close()
        if self._rows != self._given:
            # Counted, not believed: whoever calls this forgets the rows.
            raise SendError(f"only {self._rows} of {self._given} rows were acknowledged by brokers")
        counters = self._dispatcher.counters
        return Written(
            self._rows,
            self._bytes,
            counters.requests,
            counters.retries,
            self._balancer.isolations,
            counters.unsafe,
        )

    def abandon(self) -> None:
        """Something has failed: hang up."""
        self._dispatcher.close()

    def _send(self, topic: str, batch: Any, rows: Any) -> None:
        try:
            name = self._wire_name(topic)
            queues = writable(self._metadata.route(name))
        except RocketMQError as error:
            raise SendError(f"{self._place(int(rows[0]))} cannot be sent: {error}") from error
        for request in self._encoder.requests(name, batch, rows, queues):
            self._dispatcher.put(request)

    def _by_topic(self, batch: Any, rows: Any) -> Iterator[tuple[str, Any, Any]]:
        if "topic" not in batch.schema.names:
            yield self._topic, batch, rows
            return
        coded = pc.fill_null(batch["topic"], self._topic).dictionary_encode()
        for code, topic in enumerate(coded.dictionary.to_pylist()):
            mine = np.nonzero(np.asarray(coded.indices) == code)[0]
            if not topic:
                raise UsageError(
                    f"{self._place(int(rows[mine[0]]))} has no topic, and neither has the option "
                    "topic"
                )
            whole = len(mine) == batch.num_rows
            yield topic, batch if whole else batch.take(pa.array(mine)), rows[mine]

    def _stored(self, request: Request, frame: Frame) -> None:
        self._rows += len(request.rows)
        self._bytes += len(request.body)

    def _lost(self, request: Request, error: RocketMQError) -> None:
        first, last = int(request.rows[0]), int(request.rows[-1])
        more = f" and {len(request.rows) - 1} more" if last != first else ""
        raise SendError(f"{self._place(first)}{more} could not be stored: {error}") from error


def _wanted_types(batch: Any) -> Any:
    arrays = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        wanted = _TYPES.get(field.name, field.type)
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.timestamp("ms", field.type.tz), safe=False).cast(pa.int64())
        elif field.type != wanted:
            column = column.cast(wanted)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _pieces(batch: Any) -> Iterator[Any]:
    """The batch in parts that are not too large, in order."""
    if batch.nbytes <= _PIECE or batch.num_rows <= 1:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))
