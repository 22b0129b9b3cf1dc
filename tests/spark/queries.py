"""Queries of a test: short to write, read back row for row, and the same on every kind of session.

A stream goes to files, for those survive a restart and are there for Spark Connect too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from rocketmq_spark.client import Client, Message
from rocketmq_spark.client.outgoing import SendResult
from rocketmq_spark.core.offsets import Offsets, Positions
from rocketmq_spark.spark.read import ADMISSION_CONTROL
from tests.waiting import PATIENCE, until

# Where a row was stored, what it is, and who read it.
COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, body binary, "
    "consumerId string"
)

# Spark says how much a batch may hold, and asks for what its progress tells, from 4.2 on.
limits_batches = pytest.mark.skipif(not ADMISSION_CONTROL, reason="Spark 4.2 and later")

Row = dict[str, Any]


def send(client: Client, topic: str, messages: Iterable[Message | str]) -> list[SendResult]:
    """Send, and return when all can be read: a broker acknowledges a moment before that."""
    results = client.send(topic, [Message(m) if isinstance(m, str) else m for m in messages])
    ends: dict[Any, int] = {}
    for result in results:
        ends[result.queue] = max(ends.get(result.queue, 0), result.queue_offset + 1)
    for queue, end in ends.items():
        until(lambda q=queue, e=end: client.offsets(q)[1] >= e, what=f"{queue} reaches {end}")
    return results


@dataclass(frozen=True)
class Source:
    """Where to read, and the options that all queries of a test share."""

    spark: SparkSession
    options: dict[str, str]

    def with_options(self, **options: object) -> Source:
        return Source(self.spark, {**self.options, **_texts(options)})

    def batch(self, schema: str = "", **options: object) -> DataFrame:
        reader = self.spark.read.format("rocketmq").options(**{**self.options, **_texts(options)})
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, schema: str = "", **options: object) -> DataFrame:
        reader = self.spark.readStream.format("rocketmq")
        reader = reader.options(**{**self.options, **_texts(options)})
        return (reader.schema(schema) if schema else reader).load()

    def run_now(self, folder: Path, schema: str = "", **options: object) -> Run:
        """Trigger.AvailableNow, to its end."""
        run = self.start(folder, schema, available_now=True, **options)
        run.finish()
        return run

    def start(
        self,
        folder: Path,
        schema: str = "",
        *,
        available_now: bool = False,
        interval: str = "0 seconds",
        **options: object,
    ) -> Run:
        """A stream into `folder`, which keeps the rows and the checkpoint; start it there again
        and it goes on."""
        before = set(_files(folder))
        writer = (
            self.stream(schema, **options)
            .writeStream.format("parquet")
            .option("path", str(folder / "rows"))
            .option("checkpointLocation", str(folder / "checkpoint"))
        )
        trigger = {"availableNow": True} if available_now else {"processingTime": interval}
        writer = writer.trigger(**trigger)  # type: ignore[arg-type]
        return Run(writer.start(), folder, before, writer.start)


@dataclass
class Run:
    """One run of a stream, of several perhaps."""

    query: StreamingQuery
    folder: Path
    _before: set[Path]
    _start: Callable[[], StreamingQuery]

    def check(self) -> None:
        """That it has not failed; a machine that was too busy for Spark is no failure of ours."""
        failure = self.query.exception()
        if failure is not None and too_busy(failure):
            self.query = self._start()
        else:
            assert failure is None, failure

    def finish(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                ended = self.query.awaitTermination(PATIENCE)
            except StreamingQueryException as failure:
                if not too_busy(failure) or time.monotonic() > deadline:
                    raise
                self.query = self._start()
                continue
            assert ended, f"still running after {PATIENCE} s"
            return

    def stop(self) -> None:
        self.query.stop()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def rows(self) -> list[Row]:
        """What this run has written so far."""
        return written(self.folder, self._before)

    @property
    def bodies(self) -> list[str]:
        return bodies(self.rows)

    @property
    def batches(self) -> list[int]:
        """How many messages each batch of this run read."""
        return [_read_rows(p) for p in self.query.recentProgress if _is_batch(p)]

    def wait_for(self, count: int) -> list[str]:
        """The bodies, once there are so many."""

        def enough() -> list[str]:
            self.check()
            found = self.bodies
            return found if len(found) >= count else []

        return until(enough, PATIENCE, f"{count} rows") if count else self.bodies

    def wait_for_progress(self, wanted: Callable[[Row], bool]) -> Row:
        """The `latestOffset` of the first progress that is as wanted."""

        def found() -> Row | None:
            self.check()
            return next((r for r in map(report, self.query.recentProgress) if wanted(r)), None)

        return until(found, PATIENCE, "a progress that shows it") or {}


def too_busy(failure: BaseException) -> bool:
    """Spark gives the process of a stream ten seconds to start, which nothing can change; with many
    others on the machine that is too little. Nothing has happened then, so it is started again."""
    return "Python worker failed to connect back" in str(failure)


def written(folder: Path, before: Collection[Path] = ()) -> list[Row]:
    """What all runs of a stream have written, but for the files `before`."""
    return [
        row
        for path in _files(folder)
        if path not in before
        for row in parquet.read_table(path, partitioning=None).to_pylist()
    ]


def reached(folder: Path) -> Positions:
    """Where the batch ends that was planned last, as the checkpoint has it."""
    planned = (folder / "checkpoint" / "offsets").glob("[0-9]*")
    last = max(planned, key=lambda entry: int(entry.name))
    return Offsets.parse(last.read_text("utf-8").splitlines()[2]).positions


def bodies(rows: Iterable[Row]) -> list[str]:
    return sorted(bytes(row["body"]).decode() for row in rows)


def collect(frame: DataFrame) -> list[Row]:
    return [row.asDict() for row in frame.collect()]


def tasks(frame: DataFrame) -> int:
    """How many of them give rows; Spark Connect knows no other way to ask."""
    return frame.select(f.spark_partition_id()).distinct().count()


def report(progress: Any) -> Row:
    """What `reportLatestOffset` said, as it stands in a progress."""
    told = progress["sources"][0]["latestOffset"]
    return dict(json.loads(told) if isinstance(told, str) else told or {})


def numbered(prefix: str, count: int) -> list[str]:
    """`a000`, `a001` and so on: sorted as they were sent."""
    return [f"{prefix}{number:03d}" for number in range(count)]


def _is_batch(progress: Any) -> bool:
    return "addBatch" in progress["durationMs"]


def _read_rows(progress: Any) -> int:
    """Of its sources: the sum is missing in a progress that came through Spark Connect."""
    return sum(int(source["numInputRows"]) for source in progress["sources"])


def _texts(options: dict[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def _files(folder: Path) -> list[Path]:
    """Committed ones only: the sink's log names them after it has written them all."""
    named = set()
    for entry in (folder / "rows" / "_spark_metadata").glob("[0-9]*"):
        for line in entry.read_text("utf-8").splitlines()[1:]:
            named.add(Path(json.loads(line)["path"].removeprefix("file://")))
    return sorted(named)
