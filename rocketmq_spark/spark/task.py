"""The executor's side: one partition's ranges, pulled and handed to Spark as Arrow."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from rocketmq_spark.client import Client
from rocketmq_spark.core.model import OffsetRange
from rocketmq_spark.core.options import SourceOptions
from rocketmq_spark.errors import OffsetOutOfRangeError
from rocketmq_spark.spark.clients import client_for

log = logging.getLogger(__name__)


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
    for part in partition.ranges:
        yield from _read_range(part, partition.member, options, columns)


def _read_range(
    part: OffsetRange, member: str, options: SourceOptions, columns: Sequence[str]
) -> Iterator[Any]:
    client = client_for(options)
    at = part.start
    while at < part.end:
        reader = client.read(
            part.queue,
            at,
            part.end,
            columns,
            sub_expression=options.sub_expression,
            sql_expression=options.sql_expression or "",
            consumer_id=member,
        )
        try:
            yield from reader
            return
        except OffsetOutOfRangeError as error:
            # The messages were there when the batch was planned and are not any more.
            if options.fail_on_data_loss:
                raise OffsetOutOfRangeError(
                    f"{error}; set failOnDataLoss=false to go on with what there is",
                    code=error.code,
                    remark=error.remark,
                ) from None
            patience = options.timeout * max(1, options.retries)
            following = min(_next_there(client, part, reader.position, patience), part.end)
            log.warning(
                "data loss accepted: offsets %d to %d of %s are gone",
                reader.position,
                following,
                part.queue,
            )
            at = following


def _next_there(client: Client, part: OffsetRange, position: int, patience: float) -> int:
    """Where to go on when `position` cannot be read; the end of the range if nowhere."""
    deadline = time.monotonic() + patience
    while True:
        low, high = client.offsets(part.queue)
        if low > position:
            return low
        if position >= high or time.monotonic() >= deadline:
            return part.end
        # A broker removes a file first and moves its first offset some seconds later.
        time.sleep(0.2)
