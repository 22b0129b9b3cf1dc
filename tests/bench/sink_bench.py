"""Rows a second of the sink and of other producers, in one run on one real RocketMQ.

    python -m tests.bench.sink_bench [--messages N] [--rounds N] [--only spark,java,...]

400,000 rows of 1 KiB without keys go to 8 queues of one broker, from two tasks or threads. Rows of
the table take turns, round after round: some rounds unmeasured, which warm the broker, Spark and
the Java program, then those that count. The bars are judged by the median of each round's ratio.
The Spark row is the whole of `save()`. A pass after which the
broker does not hold all its rows is an error, not a result. A missed bar is shown and is not a
failure: machines differ. The native client sends fewer rows, for it is slow.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from rocketmq_spark.client import Client
from rocketmq_spark.core.sink_options import SinkOptions
from rocketmq_spark.local_cluster import LocalCluster
from tests.bench import native_bench, peers
from tests.bench.peers import Pass, Way
from tests.bench.read_bench import machine

TOPIC = "bench_sink"
BODY = 1024
QUEUES = 8
TASKS = 2
WARM_UPS = 3
NATIVE_SHARE = 20  # it sends one of so many
# A row on the wire: its body, the head, and the properties.
_ROW_BYTES = BODY + 22 + 90
BATCH_ROWS = SinkOptions().batch // _ROW_BYTES

TIMES_JAVA = 1.5
TIMES_NATIVE = 20.0


@dataclass(slots=True)
class Row:
    key: str
    title: str
    open: Callable[[], AbstractContextManager[Way]]
    messages: int
    skipped: str = ""
    rates: list[float] = field(default_factory=list)


def rows(cluster: LocalCluster, messages: int) -> list[Row]:
    few = max(1, messages // NATIVE_SHARE)
    java = (TOPIC, str(messages), str(TASKS), str(BATCH_ROWS), str(BODY))
    return [
        Row("spark", "(1) Spark sink", lambda: spark_sink(cluster, messages), messages),
        Row(
            "java",
            "(2) Java DefaultMQProducer",
            lambda: peers.java(cluster, "ProduceBench.java", *java),
            messages,
        ),
        Row(
            "native",
            "(3) rocketmq-client-python",
            lambda: native(cluster, few),
            few,
            skipped=native_bench.missing(),
        ),
        Row(
            "writer", "    Client.writer, one process", lambda: writer(cluster, messages), messages
        ),
    ]


ROWS = ("spark", "java", "native", "writer")


@contextmanager
def spark_sink(cluster: LocalCluster, messages: int) -> Iterator[Way]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    noise = random.Random(1).randbytes(BODY).hex()
    # One body for all rows, as in the Java program: what makes the rows is not measured.
    frame = spark.range(0, messages, 1, TASKS).selectExpr(f"unhex('{noise}') AS body")

    def write() -> Pass:
        begin = time.perf_counter()
        saving = frame.write.format("rocketmq").mode("append")
        saving.options(nameServer=cluster.name_server, topic=TOPIC).save()
        return Pass(messages, time.perf_counter() - begin)

    try:
        yield write
    finally:
        spark.stop()


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


def ratio(chosen: list[Row], other: str) -> float | None:
    """The median over the rounds of how many times faster the sink was."""
    by_key = {row.key: row.rates for row in chosen}
    ours, theirs = by_key.get("spark"), by_key.get(other)
    if not ours or not theirs:
        return None
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def report(chosen: list[Row]) -> list[str]:
    lines = [
        "| | rows/s, median | all rounds, k/s | (1) is faster by |",
        "|---|---:|---:|---:|",
    ]
    for row in chosen:
        if not row.rates:
            lines.append(f"| {row.title} | {row.skipped or '-'} | | |")
            continue
        each = " ".join(f"{rate / 1000:.1f}" for rate in row.rates)
        times = ratio(chosen, row.key)
        shown = f"{times:.2f} x" if times and row.key != "spark" else ""
        lines.append(f"| {row.title} | {statistics.median(row.rates):,.0f} | {each} | {shown} |")
    lines.append("")
    for other, least, words in (("java", TIMES_JAVA, "(2)"), ("native", TIMES_NATIVE, "(3)")):
        times = ratio(chosen, other)
        if times is not None:
            verdict = "pass" if times >= least else "MISS"
            lines.append(
                f"- {verdict}: (1) has {times:.2f} times the rate of {words}; bar {least:g}"
            )
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help=f"of {','.join(ROWS)}")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    chosen.only = [name.strip() for name in chosen.only.split(",") if name.strip()] or list(ROWS)
    unknown = set(chosen.only) - set(ROWS)
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}: there are {', '.join(ROWS)}")
    if min(chosen.messages, chosen.rounds) < 1:
        parser.error("--messages and --rounds are at least 1")
    return chosen


def main() -> None:
    options = arguments()
    console = Console()
    before = machine()
    with LocalCluster() as cluster, Client(cluster.name_server, timeout=30) as client:
        cluster.create_topic(TOPIC, QUEUES)
        chosen = [row for row in rows(cluster, options.messages) if row.key in options.only]
        measure(chosen, options.rounds, Stored(client), console)
        version = cluster.version
    title = (
        f"{options.messages:,} rows of 1 KiB from {TASKS} tasks, batches of {BATCH_ROWS}, "
        f"RocketMQ {version}"
    )
    notes = [f"- {options.rounds} rounds, rows in turn; {before}"]
    text = "\n".join([title, "", *report(chosen), *notes, ""])
    console.print(text, highlight=False, markup=False)
    if options.markdown:
        options.markdown.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
