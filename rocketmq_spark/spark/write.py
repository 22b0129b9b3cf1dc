"""The sink's writers. A task hands its rows to a client as Arrow and returns when all are stored.

Every row is acknowledged by a broker before its task says so. A task or a batch that is repeated
sends its rows again; the row key tells the copies apart from other rows.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rocketmq_spark.client.write import Written
from rocketmq_spark.core.sink_options import NATIVE, SinkOptions
from rocketmq_spark.errors import RocketMQError
from rocketmq_spark.spark.clients import sending_client
from rocketmq_spark.spark.native import write_natively
from rocketmq_spark.spark.news import let_news_through

try:  # Spark 4.1 and later
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    ARROW_STREAMS = True
except ImportError:
    ARROW_STREAMS = False
    DataSourceStreamArrowWriter = DataSourceStreamWriter  # type: ignore[misc,assignment]

log = logging.getLogger(__name__)

# How many rows become an Arrow batch where Spark gives single ones.
_ROWS_AT_ONCE = 4096
# The types of all columns that the sink takes.
_ARROW = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int
    bytes: int
    retries: int


class _Writer:
    """What both kinds share. `query` is the same in every task of a batch write."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._query = uuid.uuid4().hex[:16]

    def _write(self, batches: Iterator[Any]) -> WriterCommitMessage:
        let_news_through()
        task = TaskContext.get()
        partition = task.partitionId() if task else 0
        written = self._send(batches, partition, self._row_key(task, partition))
        level = logging.WARNING if written.unsafe else logging.INFO
        log.log(level, "task %d wrote %s", partition, written)
        return TaskWritten(written.rows, written.bytes, written.retries)

    def _send(self, batches: Iterator[Any], partition: int, row_key: str) -> Written:
        def place(row: int) -> str:
            return f"row {row} of partition {partition}"

        try:
            if self._options.client == NATIVE:
                return write_natively(batches, self._options, row_key, place)
            client = sending_client(self._options)
            writer = client.writer(self._options.topic or "", row_key=row_key, place=place)
            try:
                for batch in batches:
                    writer.write(batch)
                return writer.close()
            finally:
                writer.abandon()
        except RocketMQError as error:
            raise type(error)(str(error)) from None  # one frame for Spark to show

    def _row_key(self, task: Any, partition: int) -> str:
        """How the keys of this task's rows begin; the same when the task runs again."""
        if not self._options.row_key:
            return ""
        query = task.getLocalProperty("sql.streaming.queryId") if task else None
        batch = task.getLocalProperty("streaming.sql.batchId") if task else None
        if query and batch:
            return f"{query}/{batch}/{partition}/"
        return f"{self._query}/{partition}/"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options!r}>"


class RocketMQBatchWriter(_Writer, DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("wrote %s", _total(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning("a write has failed; of its tasks that ended, %s stay", _total(messages))


class RocketMQStreamWriter(_Writer, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._write(iterator if ARROW_STREAMS else self._as_arrow(iterator))

    def _as_arrow(self, rows: Iterator[Any]) -> Iterator[Any]:
        kinds = [(field.name, field.dataType.simpleString()) for field in self._schema.fields]
        while chunk := list(itertools.islice(rows, _ROWS_AT_ONCE)):
            columns = [
                pa.array([_value(row[at]) for row in chunk], _ARROW[kind])
                for at, (_, kind) in enumerate(kinds)
            ]
            yield pa.RecordBatch.from_arrays(columns, [name for name, _ in kinds])

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.info("batch %d: wrote %s", batchId, _total(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("batch %d has failed and will be sent again", batchId)


def _value(value: Any) -> Any:
    """As Arrow wants it: Spark's times are local ones that do not say so."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc)
    return list(value.items()) if isinstance(value, dict) else value


def _total(messages: Sequence[WriterCommitMessage | None]) -> str:
    done = [message for message in messages if isinstance(message, TaskWritten)]
    return f"{sum(m.rows for m in done)} rows in {len(done)} tasks"
