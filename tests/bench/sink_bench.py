"""Rows a second of the sink and of other producers, in one run on one real RocketMQ.

    python -m tests.bench.sink_bench [--messages N] [--rounds N] [--only spark,java,...]

400,000 rows of 1 KiB without keys go to 8 queues of one broker, from two tasks or threads; those of
`Client.writer` from one process, and the broker's ceiling, on one connection, sends batches that
were made beforehand: about the most that a producer could reach. Rows of
the table take turns, round after round: some rounds unmeasured, which warm the broker, Spark and
the Java program, then those that count. The bars are judged by the median of each round's ratio.
The Spark row is the whole of `save()`. A pass after which the
broker does not hold all its rows is an error, not a result. A missed bar is shown and is not a
failure: machines differ. The native client sends fewer rows, for it is slow.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console

from rocketmq_spark.client import Client
from rocketmq_spark.core.sink_options import SinkOptions
from rocketmq_spark.local_cluster import LocalCluster
from tests.bench import native_bench, peers, table
from tests.bench.local_spark import local_spark
from tests.bench.peers import Pass, Way
from tests.bench.send_ceiling import SendCeiling
from tests.bench.table import WARM_UPS, Row, Sheet, ratio, verdict
from tests.bench.topics import BODY

TOPIC = "bench_sink"
QUEUES = 8
TASKS = 2
NATIVE_SHARE = 20  # it sends one of so many
# A row on the wire: its body, the head, and the properties.
_ROW_BYTES = BODY + 22 + 90
BATCH_ROWS = SinkOptions().batch // _ROW_BYTES

TIMES_JAVA = 1.5
TIMES_NATIVE = 20.0


def rows(cluster: LocalCluster, messages: int) -> list[Row]:
    few = max(1, messages // NATIVE_SHARE)
    java = ("ProduceBench.java", TOPIC, str(messages), str(TASKS), str(BATCH_ROWS), str(BODY))
    return [
        Row(
            key="spark",
            title="(1) Spark sink",
            open=lambda: spark_sink(cluster, messages),
            messages=messages,
        ),
        Row(
            key="java",
            title="(2) Java DefaultMQProducer",
            open=lambda: peers.java(cluster, *java),
            messages=messages,
        ),
        Row(
            key="native",
            title="(3) rocketmq-client-python",
            open=lambda: native(cluster, few),
            messages=few,
            skipped=native_bench.missing(),
        ),
        Row(
            key="writer",
            title="    Client.writer, one process",
            open=lambda: writer(cluster, messages),
            messages=messages,
        ),
        Row(
            key="ceiling",
            title="    the broker's ceiling",
            open=lambda: ceiling(cluster, messages),
            messages=messages,
        ),
    ]


ROWS = ("spark", "java", "native", "writer", "ceiling")


@contextmanager
def spark_sink(cluster: LocalCluster, messages: int) -> Iterator[Way]:
    noise = random.Random(1).randbytes(BODY).hex()
    with local_spark(TASKS) as spark:
        # One body for all rows, as in the Java program: what makes the rows is not measured.
        frame = spark.range(0, messages, 1, TASKS).selectExpr(f"unhex('{noise}') AS body")

        def write() -> Pass:
            begin = time.perf_counter()
            saving = frame.write.format("rocketmq").mode("append")
            saving.options(nameServer=cluster.name_server, topic=TOPIC).save()
            return Pass(messages, time.perf_counter() - begin)

        yield write


@contextmanager
def writer(cluster: LocalCluster, messages: int) -> Iterator[Way]:
    import pyarrow as pa

    noise = random.Random(1).randbytes(BODY)
    batch = pa.record_batch([pa.array([noise] * 10_000)], ["body"])
    with Client(cluster.name_server, timeout=30) as client:

        def write() -> Pass:
            begin = time.perf_counter()
            out = client.writer(TOPIC, row_key="bench/0/")
            for first in range(0, messages, batch.num_rows):
                out.write(batch.slice(0, messages - first))
            written = out.close()
            return Pass(written.rows, time.perf_counter() - begin)

        yield write


@contextmanager
def ceiling(cluster: LocalCluster, messages: int) -> Iterator[Way]:
    with Client(cluster.name_server) as client:
        address = next(broker.master for broker in client.brokers() if broker.master)
        sender = SendCeiling(address, client.writable_queues(TOPIC), BATCH_ROWS, BODY)

    def send() -> Pass:
        begin = time.perf_counter()
        return Pass(sender.send(messages), time.perf_counter() - begin)

    yield send


@contextmanager
def native(cluster: LocalCluster, messages: int) -> Iterator[Way]:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "tests.bench.native_produce", cluster.name_server]
        command += [TOPIC, str(messages), str(BODY)]

        def write() -> Pass:
            done = subprocess.run(
                command,
                env={**os.environ, "HOME": home, "PYTHONPATH": str(peers.ROOT)},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            if not lines:
                raise RuntimeError(f"native_produce gave no result:\n{done.stderr[-2000:]}")
            told = json.loads(lines[-1])
            return Pass(told["messages"], told["seconds"])

        yield write


# --- measuring --------------------------------------------------------------------------------


class Stored:
    """Counts what the broker holds, pass by pass."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._before = 0

    def check(self, title: str, messages: int) -> None:
        """Return when the broker has indexed this pass; then the next one has a fair start."""
        deadline = time.monotonic() + 120
        while True:
            total = sum(end for _, end in self._client.topic_offsets(TOPIC).values())
            if total - self._before == messages:
                self._before = total
                return
            if total - self._before > messages or time.monotonic() > deadline:
                raise RuntimeError(f"{title}: {total - self._before} rows stored, not {messages}")
            time.sleep(0.05)


def measure(chosen: list[Row], rounds: int, stored: Stored, console: Console) -> None:
    runnable = [row for row in chosen if not row.skipped]
    with ExitStack() as stack:
        ways = {row.key: stack.enter_context(row.open()) for row in runnable}
        for number in range(WARM_UPS + rounds):
            counts = number >= WARM_UPS
            for row in runnable:
                if row.key == "native" and not counts:
                    continue
                done = ways[row.key]()
                stored.check(row.title, row.messages)
                rate = done.messages / done.seconds
                if counts:
                    row.rates.append(rate)
                else:
                    console.print(f"warming up: {row.title} {rate:,.0f}", style="dim")


# --- showing ----------------------------------------------------------------------------------

HEADINGS = ("", "rows/s, median", "all rounds, k/s", "(1) is faster by")


def cells(chosen: list[Row]) -> list[tuple[str, ...]]:
    return [(row.title, *_figures(row, _times(chosen, row.key))) for row in chosen]


def _figures(row: Row, times: float | None) -> tuple[str, ...]:
    if row.rate is None:
        return (row.skipped or "-", "", "")
    shown = f"{times:.2f} x" if times and row.key != "spark" else ""
    return (f"{row.rate:,.0f}", table.k(row.rates, 1), shown)


def _times(chosen: list[Row], other: str) -> float | None:
    """How many times faster the sink was."""
    by_key = {row.key: row for row in chosen}
    return ratio(by_key.get("spark"), by_key.get(other))


def bars(chosen: list[Row]) -> list[str]:
    """A sentence for each promise that this run can judge."""
    said = []
    for other, least, words in (("java", TIMES_JAVA, "(2)"), ("native", TIMES_NATIVE, "(3)")):
        times = _times(chosen, other)
        if times is not None:
            said.append(verdict(times, least, f"(1) has {times:.2f} times the rate of {words}"))
    return said


def main() -> None:
    options = table.parsed(table.parser(__doc__, ROWS), ROWS)
    console = Console()
    before = table.machine()
    with LocalCluster() as cluster, Client(cluster.name_server, timeout=30) as client:
        cluster.create_topic(TOPIC, QUEUES)
        chosen = [row for row in rows(cluster, options.messages) if row.key in options.only]
        measure(chosen, options.rounds, Stored(client), console)
        version = cluster.version
    title = (
        f"{options.messages:,} rows of 1 KiB from {TASKS} tasks, batches of {BATCH_ROWS}, "
        f"RocketMQ {version}"
    )
    how = f"{options.rounds} rounds, rows in turn; {before}"
    sheet = Sheet(title, HEADINGS, cells(chosen))
    table.publish(console, [sheet], [*bars(chosen), how], options.markdown)


if __name__ == "__main__":
    main()
