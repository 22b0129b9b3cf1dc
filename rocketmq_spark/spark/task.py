"""The executor's side: one partition's ranges, pulled and handed to Spark as Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from rocketmq_spark.core.model import OffsetRange
from rocketmq_spark.core.options import SourceOptions
from rocketmq_spark.spark.clients import client_for


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
    for part in partition.ranges:
        yield from client.read(
            part.queue,
            part.start,
            part.end,
            columns,
            sub_expression=options.sub_expression,
            sql_expression=options.sql_expression or "",
            consumer_id=partition.member,
        )
