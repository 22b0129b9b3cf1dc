"""A stream whose source costs next to nothing: it gives one batch in memory again and again.

What Spark takes from it is the most that it can take from any source in Python. The rows are real
ones of a topic, so that they have its columns and sizes. Spark's Python workers import this module:
they find it in the folder in which the benchmark was started.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from rocketmq_spark.client import Client
from tests.bench.peers import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# With messages of 1 KiB about 8 MB, which is what our source gives Spark at once.
BATCH_ROWS = 7000


@contextmanager
def memory_stream(
    spark: SparkSession, topic: Topic, slots: int, schema: StructType
) -> Iterator[DataFrame]:
    """As many rows as the topic has, in `slots` partitions."""
    spark.dataSource.register(MemorySource)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.arrow"
        _save(topic, file)
        reader = spark.readStream.format(MemorySource.name()).schema(schema)
        yield reader.options(file=str(file), rows=str(topic.messages), slots=str(slots)).load()


def _save(topic: Topic, file: Path) -> None:
    """The first rows of the topic's first queue, as a file with one record batch."""
    first = topic.ranges[0]
    end = min(first.start + BATCH_ROWS, first.end)
    with Client(topic.name_server) as client:
        # A stream's rows name who has read them, so these must as well.
        batches = list(client.read(first.queue, first.start, end, consumer_id="memory"))
    batch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


class MemorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "memory_rows"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        given = self.options
        return MemoryReader(given["file"], int(given["rows"]), int(given["slots"]))


@dataclass
class MemoryPartition(InputPartition):
    rows: int


@dataclass
class MemoryReader(DataSourceStreamReader):
    """An offset is how many rows were given; there is nothing to commit."""

    file: str
    rows: int
    slots: int

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        return {"rows": self.rows}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Even shares, which together are all rows whatever their number."""
        rows = end["rows"] - start["rows"]
        ends = [rows * number // self.slots for number in range(self.slots + 1)]
        return [MemoryPartition(b - a) for a, b in itertools.pairwise(ends)]

    def read(self, partition: Any) -> Iterator[Any]:
        with pa.memory_map(self.file) as mapped:
            batch = pa.ipc.open_file(mapped).get_batch(0)
            for first in range(0, partition.rows, batch.num_rows):
                yield batch.slice(0, partition.rows - first)
