"""Messages a second of this client and of others, in one run on one real RocketMQ.

    python -m tests.bench.read_bench [--messages N] [--rounds N] [--only ceiling,read,...]

The topic has 8 queues and 400,000 messages of 1 KiB with tags, keys and a property. Rows take
turns, round after round: some rounds unmeasured, which warm the broker and the Java programs, then
those whose median is shown. A row that did not get every message exactly once is
an error, not a result. A missed bar is shown and is not a failure: machines differ, and so does
what else they are doing.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rocketmq_spark.client import Client, Message, PullSettings
from rocketmq_spark.core.model import MessageQueue, OffsetRange
from rocketmq_spark.local_cluster import LocalCluster
from tests.bench import native_bench, peers
from tests.bench.peers import Topic, Way

DEPTH = PullSettings().in_flight
BODY = 1024
TOPIC = "bench"
_SEND_AT_ONCE = 8000
# Rounds until Java's compilers, the broker's and its clients', have little left to do.
WARM_UPS = 3

# What `Client.read` is measured by.
TIMES_LITE_PULL = 2.5
SHARE_OF_CEILING = 0.4


@dataclass(slots=True)
class Row:
    """One way to read, and how fast it was in each round."""

    key: str
    title: str
    open: Callable[[], AbstractContextManager[Way]]
    skipped: str = ""
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float | None:
        return statistics.median(self.rates) if self.rates else None


def rows(cluster: LocalCluster, topic: Topic) -> list[Row]:
    count = str(topic.messages)
    return [
        Row("ceiling", "(1) socket ceiling", lambda: peers.ceiling(topic, DEPTH)),
        Row("read", "(2) Client.read to Arrow", lambda: peers.ours(topic, DEPTH)),
        Row(
            "lite",
            "(3) Java DefaultLitePullConsumer",
            lambda: peers.java(cluster, "LitePullBench.java", topic.name, count, "20", "32"),
        ),
        Row(
            "pull",
            "(4) Java DefaultMQPullConsumer",
            lambda: peers.java(cluster, "PullBench.java", topic.name, "32"),
        ),
        Row(
            "native",
            "(5) rocketmq-client-python",
            lambda: peers.native(topic),
            skipped=native_bench.missing(),
        ),
        Row("body", "    Client.read, body only", lambda: peers.ours(topic, DEPTH, ["body"])),
        Row("two", "    Client.read, two processes", lambda: peers.processes(topic, DEPTH)),
    ]


ROWS = ("ceiling", "read", "lite", "pull", "native", "body", "two")


# --- the topic --------------------------------------------------------------------------------


def load(cluster: LocalCluster, queues: int, messages: int, progress: Progress) -> Topic:
    """A topic with so many messages, the same number in each queue as far as that goes."""
    cluster.create_topic(TOPIC, queues)
    noise = random.Random(1).randbytes(BODY + 4096)
    task = progress.add_task("loading", total=messages)
    with Client(cluster.name_server, timeout=30) as client:
        parts = client.queues(TOPIC)
        for first in range(0, messages, _SEND_AT_ONCE):
            numbers = range(first, min(first + _SEND_AT_ONCE, messages))
            client.send(
                TOPIC,
                [
                    Message(
                        noise[n % 4096 : n % 4096 + BODY],
                        tags=f"Tag{'ABC'[n % 3]}",
                        keys=f"order-{n}",
                        properties={"region": f"eu-{n % 5}"},
                        queue=parts[n % queues],
                    )
                    for n in numbers
                ],
            )
            progress.advance(task, len(numbers))
        found = _indexed(client, messages)
        broker = next(b.master for b in client.brokers() if b.master)
    ranges = [OffsetRange(queue, *bounds) for queue, bounds in sorted(found.items())]
    return Topic(TOPIC, ranges, cluster.name_server, broker)


def _indexed(client: Client, messages: int) -> dict[MessageQueue, tuple[int, int]]:
    """The queues' bounds once they hold all messages: a broker acknowledges before it indexes."""
    deadline = time.monotonic() + 60
    while True:
        found = client.topic_offsets(TOPIC)
        stored = sum(end - start for start, end in found.values())
        if stored == messages:
            return found
        if stored > messages or time.monotonic() > deadline:
            raise RuntimeError(f"{messages} messages were sent and {stored} are stored")
        time.sleep(0.1)


# --- measuring --------------------------------------------------------------------------------


def measure(chosen: list[Row], messages: int, rounds: int, progress: Progress) -> None:
    """Some rounds that do not count, then `rounds` that do, over all rows in turn."""
    runnable = [row for row in chosen if not row.skipped]
    plan = [(row, False) for _ in range(WARM_UPS) for row in runnable if row.key != "native"]
    plan += [(row, True) for _ in range(rounds) for row in runnable]
    with ExitStack() as stack:
        ways = {row.key: stack.enter_context(row.open()) for row in runnable}
        task = progress.add_task("reading", total=len(plan))
        for row, counts in plan:
            progress.update(task, description=f"{'' if counts else 'warming up: '}{row.title}")
            done = ways[row.key]()
            if done.messages != messages:
                raise RuntimeError(f"{row.title}: {done.messages} messages, not {messages}")
            if counts:
                row.rates.append(done.messages / done.seconds)
            progress.advance(task)


# --- showing ----------------------------------------------------------------------------------

HEADINGS = ("", "messages/s", "all rounds, k/s", "of (3)", "of (1)")


def cells(chosen: list[Row]) -> list[tuple[str, ...]]:
    rates = {row.key: row.rate for row in chosen}
    return [(row.title, *_figures(row, rates.get("lite"), rates.get("ceiling"))) for row in chosen]


def _figures(row: Row, lite: float | None, ceiling: float | None) -> tuple[str, ...]:
    rate = row.rate
    if rate is None:
        return (row.skipped or "-", "", "", "")
    return (
        f"{rate:,.0f}",
        " ".join(f"{each / 1000:.0f}" for each in row.rates),
        f"{rate / lite:.2f} x" if lite else "-",
        f"{rate / ceiling:.0%}" if ceiling else "-",
    )


def bars(chosen: list[Row]) -> list[str]:
    """A sentence for each promise that this run can judge."""
    rates = {row.key: row.rate for row in chosen}
    read, said = rates.get("read"), []
    for other, least, words in (
        ("lite", TIMES_LITE_PULL, "of (3)"),
        ("ceiling", SHARE_OF_CEILING, "of (1)"),
    ):
        base = rates.get(other)
        if read and base:
            verdict = "pass" if read / base >= least else "MISS"
            said.append(
                f"{verdict}: (2) has {read / base:.2f} times the rate {words}, the bar is {least}"
            )
    return said


def machine() -> str:
    load_average = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores{load_average}, Python {platform.python_version()}"


def markdown(title: str, table: list[tuple[str, ...]], notes: list[str]) -> str:
    lines = [title, "", f"| {' | '.join(HEADINGS)} |", "|---|" + "---:|" * (len(HEADINGS) - 1)]
    lines += [f"| {' | '.join(row)} |" for row in table]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes), ""])


def show(console: Console, title: str, table: list[tuple[str, ...]], notes: list[str]) -> None:
    drawn = Table(*HEADINGS, title=title, title_justify="left")
    for column in drawn.columns[1:]:
        column.justify = "right"
    for row in table:
        drawn.add_row(*row)
    console.print(drawn)
    for note in notes:
        console.print(note, style="bold red" if note.startswith("MISS") else "", highlight=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--only", default="", help=f"of {','.join(ROWS)}")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    chosen.only = [name.strip() for name in chosen.only.split(",") if name.strip()] or list(ROWS)
    unknown = set(chosen.only) - set(ROWS)
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}: there are {', '.join(ROWS)}")
    if min(chosen.messages, chosen.rounds, chosen.queues) < 1:
        parser.error("--messages, --rounds and --queues are at least 1")
    return chosen


def main() -> None:
    options = arguments()
    console = Console()
    before = machine()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with LocalCluster() as cluster:
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
            topic = load(cluster, options.queues, options.messages, progress)
            chosen = [row for row in rows(cluster, topic) if row.key in options.only]
            measure(chosen, options.messages, options.rounds, progress)
        version = cluster.version
    title = f"{options.messages:,} messages of 1 KiB in {options.queues} queues, RocketMQ {version}"
    how = f"Median of {options.rounds} rounds, rows in turn; {before}"
    table, notes = cells(chosen), [*bars(chosen), how]
    show(console, title, table, notes)
    if options.markdown:
        options.markdown.write_text(markdown(title, table, notes), "utf-8")


if __name__ == "__main__":
    main()
