"""The executor's side: one partition's ranges, pulled and handed to Spark as Arrow."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import InputPartition

from rocketmq_spark.client import Client
from rocketmq_spark.core.model import OffsetRange
from rocketmq_spark.core.options import SourceOptions
from rocketmq_spark.errors import DataLossError, OffsetOutOfRangeError, TopicNotFoundError
from rocketmq_spark.spark.clients import client_for
from rocketmq_spark.spark.group import announce

log = logging.getLogger(__name__)

# Between two looks at a broker that may be back.
_PAUSE = 0.2


@dataclass
class RocketMQPartition(InputPartition):
    """What travels to a task: who reads what. Everything else is in the reader."""

    member: str
    ranges: tuple[OffsetRange, ...]

    def __repr__(self) -> str:
        return f"<partition of {self.member}: {' '.join(map(str, self.ranges))}>"


def read_partition(
    partition: RocketMQPartition, options: SourceOptions, columns: Sequence[str]
) -> Iterator[Any]:
    """RecordBatches; the rows of a queue in offset order."""
    client = client_for(options)
    still_here = announce(client, options)
    for part in partition.ranges:
        for batch in read_range(client, part, partition.member, options, columns):
            still_here()
            yield from at_most(batch, options.batch_bytes)


def at_most(batch: Any, size: int) -> Iterator[Any]:
    """The batch, in even pieces if it is larger; a single message cannot be cut.

    The client ends a batch with whole answers of the broker, so it may be a little larger than it
    was told, and much larger where bodies were compressed.
    """
    pieces = min(-(-batch.nbytes // size), batch.num_rows)
    if pieces <= 1:
        yield batch
        return
    step = -(-batch.num_rows // pieces)
    for start in range(0, batch.num_rows, step):
        yield from at_most(batch.slice(start, step), size)


def read_range(
    client: Client,
    part: OffsetRange,
    member: str,
    options: SourceOptions,
    columns: Sequence[str],
) -> Iterator[Any]:
    """One range in full; or what there is of it, if that is accepted."""
    at, end = part.start, part.end
    patience = options.timeout * max(1, options.retries)
    deadline = time.monotonic() + patience
    while at < end:
        reader = client.read(
            part.queue,
            at,
            end,
            columns,
            sub_expression=options.sub_expression,
            sql_expression=options.sql_expression or "",
            consumer_id=member,
        )
        try:
            yield from reader
            return
        except TopicNotFoundError:
            # It was there when the batch was planned; with its last broker it is gone for now.
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)
            at = reader.position
        except OffsetOutOfRangeError as error:
            # The messages were there when the batch was planned and are not any more.
            if options.fail_on_data_loss:
                raise DataLossError(error.message, code=error.code, remark=error.remark) from None
            wanted = replace(part, start=reader.position, end=end)
            at, end = _what_is_left(client, wanted, patience)
            left = f"only {at} to {end} are" if at < end else "nothing is"
            log.warning("data loss accepted: of %s %s left", wanted, left)


def _what_is_left(client: Client, wanted: OffsetRange, patience: float) -> tuple[int, int]:
    """Start and end of what a broker still has of a range that it has refused to give in full."""
    deadline = time.monotonic() + patience
    while True:
        low, high = client.offsets(wanted.queue)
        left = max(wanted.start, low), min(wanted.end, high)
        if left != (wanted.start, wanted.end):
            return left
        if time.monotonic() >= deadline:
            return wanted.end, wanted.end
        # A broker removes a file first and moves its first offset some seconds later.
        time.sleep(_PAUSE)
