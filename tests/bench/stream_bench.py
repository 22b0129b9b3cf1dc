"""Rows a second of the Spark source, in one run on one real RocketMQ and one Spark with two slots.

    python -m tests.bench.stream_bench [--messages N] [--rounds N] [--only client,all,...]

Both topics have 8 queues and 400,000 messages of 1 KiB; in the skewed one a queue holds 80 %. Every
query is a Trigger.AvailableNow to the `noop` sink, which reads all. Its rate is that of the batch:
the time is `triggerExecution` of Spark's progress, from planning to the commit. The rate by the
whole query, from `start()` to its end, stands beside it. Rows take turns, round after round:
some rounds unmeasured, then those that count. Ratios are medians of each round's ratio. A row whose
progress does not count every message once is an error, not a result. A missed bar is shown and is
not a failure: machines differ.

One row reads no broker: as many rows come out of memory, so that it shows what Spark itself can
take from Python. With row (1), which has no Spark, it tells how near (2) is to what the machine
allows.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from rocketmq_spark.client import Client, Message, PullSettings
from rocketmq_spark.local_cluster import LocalCluster
from tests.bench import peers, table
from tests.bench.local_spark import local_spark
from tests.bench.peers import Pass, Topic, Way
from tests.bench.table import Row, Sheet, ratio, verdict
from tests.bench.topics import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SLOTS = 2
QUEUES = 8
# Each row but the first is a query of Spark's, so that one round warms it seven times.
WARM_UPS = 2
# Of 35 messages the first queue gets 28, which is 80 %, and the seven others one each.
SKEWED = [0] * 28 + list(range(1, QUEUES))
# How long a job waits for each row, as one does that looks something up: no processor is used.
WAIT = 20e-6

SHARE_OF_CLIENT = 0.6
TIMES_AVG = 1.5

# The fixed cost of a micro-batch: topics of so many queues, read in so many batches of one message
# of each queue. The first batches of a query are slower and do not count.
FIXED_QUEUES = (1, 8, 64)
FIXED_BATCHES = 25
FIXED_WARM_UPS = 5

IDLE_SECONDS = 5.0
_PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class QueryPass(Pass):
    """One query: `seconds` are those of its batches, `wall` from its start to its end."""

    wall: float


@dataclass(slots=True, kw_only=True)
class StreamRow(Row):
    base: str = ""  # the row that it is compared with
    walls: list[float] = field(default_factory=list)


class Source:
    """Streams from one cluster into one Spark."""

    def __init__(self, spark: SparkSession, name_server: str) -> None:
        self._spark = spark
        self._name_server = name_server

    def stream(self, topic: str, schema: str = "", **options: str) -> DataFrame:
        reader = self._spark.readStream.format("rocketmq").options(
            nameServer=self._name_server,
            topic=topic,
            startingOffsets="earliest",
            executors=str(SLOTS),
            **options,
        )
        return (reader.schema(schema) if schema else reader).load()

    def from_memory(self, topic: Topic) -> AbstractContextManager[DataFrame]:
        """As many rows as the topic has, with the same columns, but without a broker."""
        from tests.bench.memory_source import memory_stream

        return memory_stream(self._spark, topic, SLOTS, self.stream(topic.name).schema)

    @contextmanager
    def started(self, frame: DataFrame, **trigger: Any) -> Iterator[StreamingQuery]:
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(**trigger).start()
            try:
                yield query
            finally:
                query.stop()

    def batches(self, frame: DataFrame) -> list[Any]:
        """The progress of each batch of a Trigger.AvailableNow that had rows."""
        with self.started(frame, availableNow=True) as query:
            if not query.awaitTermination(_PATIENCE):
                raise RuntimeError(f"a query was not done after {_PATIENCE:.0f} s")
            return [told for told in query.recentProgress if told["numInputRows"]]

    def jobs(self, query: StreamingQuery) -> int:
        """How many jobs Spark has started for a query."""
        return len(self._spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId)))


def rows(source: Source, even: Topic, skewed: Topic) -> list[StreamRow]:
    depth = PullSettings().in_flight
    body = "body binary"

    def skew(strategy: str, **schema: str) -> DataFrame:
        return source.stream(skewed.name, **schema, **{"allocate.strategy": strategy})

    def job(strategy: str) -> DataFrame:
        return skew(strategy, schema=body).mapInArrow(_waiting, body)

    def row(key: str, title: str, frame: Callable[[], DataFrame], base: str) -> StreamRow:
        return StreamRow(
            key=key, title=title, open=_query(source, frame), messages=even.messages, base=base
        )

    wait = f"{WAIT * 1e6:.0f} us of waiting a row"
    return [
        StreamRow(
            key="client",
            title="(1) Client.read, two processes",
            open=lambda: peers.processes(even, depth, SLOTS),
            messages=even.messages,
        ),
        row("all", "(2) stream, all columns", lambda: source.stream(even.name), "client"),
        row("body", "(3) stream, body only", lambda: source.stream(even.name, body), "client"),
        row("avg", "(4) skewed, AVG, reading only", lambda: skew("AVG"), ""),
        row("lag", "(5) skewed, BY_LAG, reading only", lambda: skew("BY_LAG"), "avg"),
        row("avgjob", f"(6) skewed, AVG, {wait}", lambda: job("AVG"), ""),
        row("lagjob", f"(7) skewed, BY_LAG, {wait}", lambda: job("BY_LAG"), "avgjob"),
        StreamRow(
            key="memory",
            title="(8) stream from memory, all columns",
            open=lambda: _memory(source, even),
            messages=even.messages,
            base="client",
        ),
    ]


ROWS = ("client", "all", "body", "avg", "lag", "avgjob", "lagjob", "memory", "fixed", "idle")


def _waiting(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        time.sleep(WAIT * batch.num_rows)
        yield batch


def _query(
    source: Source, frame: Callable[[], DataFrame]
) -> Callable[[], AbstractContextManager[Way]]:
    @contextmanager
    def opened() -> Iterator[Way]:
        loaded = frame()

        def read() -> QueryPass:
            begin = time.perf_counter()
            told = source.batches(loaded)
            wall = time.perf_counter() - begin
            return QueryPass(
                sum(each["numInputRows"] for each in told),
                sum(map(_milliseconds, told)) / 1e3,
                wall,
            )

        yield read

    return opened


@contextmanager
def _memory(source: Source, topic: Topic) -> Iterator[Way]:
    with source.from_memory(topic) as frame, _query(source, lambda: frame)() as read:
        yield read


def _milliseconds(progress: Any) -> int:
    return int(progress["durationMs"]["triggerExecution"])


# --- measuring --------------------------------------------------------------------------------


def measure(chosen: list[StreamRow], rounds: int, progress: Progress) -> None:
    """Some rounds that do not count, then `rounds` that do, over all rows in turn."""
    plan = [(row, number >= WARM_UPS) for number in range(WARM_UPS + rounds) for row in chosen]
    with ExitStack() as stack:
        ways = {row.key: stack.enter_context(row.open()) for row in chosen}
        task = progress.add_task("reading", total=len(plan))
        for row, counts in plan:
            progress.update(task, description=row.title)
            done = ways[row.key]()
            if done.messages != row.messages:
                raise RuntimeError(f"{row.title}: {done.messages} messages, not {row.messages}")
            rate = done.messages / done.seconds
            when = "" if counts else "warming up: "
            progress.console.print(f"{when}{row.title} {rate:,.0f}", style="dim")
            if counts:
                row.rates.append(rate)
                if isinstance(done, QueryPass):
                    row.walls.append(done.messages / done.wall)
            progress.advance(task)


def fixed_costs(
    cluster: LocalCluster, source: Source, progress: Progress
) -> dict[int, tuple[list[int], list[int]]]:
    """For so many queues, the milliseconds of each batch, and what of them `addBatch` took, which
    plans the query and runs its tasks."""
    costs = {}
    for queues in FIXED_QUEUES:
        messages = FIXED_BATCHES * queues
        topic = load(cluster, f"bench_fixed_{queues}", queues, messages, progress)
        progress.add_task(f"batches of {queues} queues", total=None)
        told = source.batches(source.stream(topic.name, maxOffsetsPerTrigger=str(queues)))
        sizes = [each["numInputRows"] for each in told]
        if sizes != [queues] * FIXED_BATCHES:
            raise RuntimeError(f"not {FIXED_BATCHES} batches of {queues} messages: {sizes}")
        late = told[FIXED_WARM_UPS:]
        costs[queues] = (
            [_milliseconds(each) for each in late],
            [int(each["durationMs"]["addBatch"]) for each in late],
        )
    return costs


def idle_jobs(cluster: LocalCluster, source: Source, progress: Progress) -> int:
    """How many jobs a stream starts in some seconds without news.

    Before and after, a message arrives and makes a batch, so that we know the stream is alive and
    its jobs are counted."""
    progress.add_task("a stream with nothing to do", total=None)
    name = "bench_idle"
    cluster.create_topic(name, 1)
    with (
        Client(cluster.name_server, timeout=30) as client,
        source.started(source.stream(name), processingTime="0 seconds") as query,
    ):

        def one_batch() -> int:
            """Jobs so far, after a message was sent and read."""
            before, batches = source.jobs(query), _read(query)
            client.send(name, [Message(b"news")])
            deadline = time.monotonic() + _PATIENCE
            while _read(query) == batches or query.status["isTriggerActive"]:
                if query.exception() or time.monotonic() > deadline:
                    raise RuntimeError(f"a message was not read: {query.exception()}")
                time.sleep(0.05)
            after = source.jobs(query)
            if after <= before:
                raise RuntimeError("a batch with a message has started no job")
            return after

        begin = one_batch()
        time.sleep(IDLE_SECONDS)
        started = source.jobs(query) - begin
        one_batch()
        return started


def _read(query: StreamingQuery) -> int:
    return sum(told["numInputRows"] for told in query.recentProgress)


# --- showing ----------------------------------------------------------------------------------

RATES = ("", "rows/s of the batch", "all rounds, k/s", "against", "rows/s of the whole query")
COSTS = ("queues", "ms a batch, median", "of them addBatch", "least", "most", "batches")


def rate_cells(chosen: list[StreamRow]) -> list[tuple[str, ...]]:
    by_key = {row.key: row for row in chosen}
    cells = []
    for row in chosen:
        base = by_key.get(row.base)
        times = ratio(row, base)
        against = f"{times:.2f} x {base.title[:3]}" if base and times else ""
        wall = f"{statistics.median(row.walls):,.0f}" if row.walls else ""
        cells.append((row.title, f"{row.rate or 0:,.0f}", table.k(row.rates), against, wall))
    return cells


def cost_cells(costs: dict[int, tuple[list[int], list[int]]]) -> list[tuple[str, ...]]:
    cells = []
    for queues, (whole, added) in costs.items():
        figures = (statistics.median(whole), statistics.median(added), min(whole), max(whole))
        cells.append((str(queues), *(f"{each:.0f}" for each in figures), str(len(whole))))
    return cells


def bars(chosen: list[StreamRow]) -> list[str]:
    """A sentence for each promise that this run can judge."""
    by_key = {row.key: row for row in chosen}
    said = []
    for key, least in (("all", SHARE_OF_CLIENT), ("lag", TIMES_AVG), ("lagjob", TIMES_AVG)):
        row = by_key.get(key)
        base = by_key.get(row.base) if row else None
        times = ratio(row, base)
        if row and base and times:
            words = f"{row.title[:3]} has {times:.2f} times the rate of {base.title[:3]}"
            said.append(verdict(times, least, words))
    return said


def shared_cores(chosen: list[StreamRow]) -> list[str]:
    """How near (2) is to what the machine allows, as far as (1) and (8) can tell.

    A stream has to do both: read and decode like (1), hand over to Spark like (8). Where each of
    them alone keeps the cores busy, the times of a row add up: 1/A + 1/B for their rates A and B.
    A share above 1 is noise, or a core that was idle in one of them.
    """
    by_key = {row.key: row for row in chosen}
    three = [by_key.get(key) for key in ("client", "memory", "all")]
    rates = [row.rates for row in three if row and row.rates]
    if len(rates) < len(three):
        return []
    rounds = [(a, a * b / (a + b), c) for a, b, c in zip(*rates, strict=True)]
    most = statistics.median(bound / client for client, bound, _ in rounds)
    reached = statistics.median(stream / bound for _, bound, stream in rounds)
    return [
        f"if (1) and (8) each keep the cores busy, the work of both on the same cores leaves a "
        f"stream {most:.2f} times the rate of (1); (2) has {reached:.2f} of that"
    ]


def main() -> None:
    options = table.parsed(table.parser(__doc__, ROWS), ROWS)
    console = Console()
    before = table.machine()
    sheets, notes = [], []
    with LocalCluster() as cluster, local_spark(SLOTS) as spark:
        source = Source(spark, cluster.name_server)
        with table.progress_on(console) as progress:
            even = load(cluster, "bench_even", QUEUES, options.messages, progress)
            skewed = load(cluster, "bench_skewed", QUEUES, options.messages, progress, SKEWED)
            chosen = [row for row in rows(source, even, skewed) if row.key in options.only]
            if chosen:
                measure(chosen, options.rounds, progress)
                title = f"{options.messages:,} messages of 1 KiB in {QUEUES} queues, {SLOTS} slots"
                title += f", RocketMQ {cluster.version}, Spark {spark.version}"
                sheets.append(Sheet(title, RATES, rate_cells(chosen)))
                notes += bars(chosen) + shared_cores(chosen)
            if "fixed" in options.only:
                costs = fixed_costs(cluster, source, progress)
                title = f"The fixed cost of a micro-batch on {SLOTS} slots, one message a queue"
                sheets.append(Sheet(title, COSTS, cost_cells(costs)))
            if "idle" in options.only:
                started = idle_jobs(cluster, source, progress)
                words = f"{started} jobs in {IDLE_SECONDS:.0f} s of a stream without news"
                notes.append(f"{'MISS' if started else 'pass'}: {words}, the bar is 0")
    notes.append(f"{options.rounds} rounds, rows in turn; {before}")
    table.publish(console, sheets, notes, options.markdown)


if __name__ == "__main__":
    main()
