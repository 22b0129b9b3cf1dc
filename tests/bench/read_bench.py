"""Messages a second of this client and of others, in one run on one real RocketMQ.

    python -m tests.bench.read_bench [--messages N] [--rounds N] [--only ceiling,read,...]

The topic has 8 queues and 400,000 messages of 1 KiB with tags, keys and a property. Rows take
turns, round after round: some rounds unmeasured, which warm the broker and the Java programs, then
those whose median is shown. The bars are judged by the median of each round's ratio. A row that did
not get every message exactly once is an error, not a result. A missed bar is shown and is not a
failure: machines differ, and so does what else they are doing.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack

from rich.console import Console
from rich.progress import Progress

from rocketmq_spark.client import PullSettings
from rocketmq_spark.local_cluster import LocalCluster
from tests.bench import native_bench, peers, table
from tests.bench.peers import Topic
from tests.bench.table import WARM_UPS, Row, Sheet, ratio, verdict
from tests.bench.topics import load

DEPTH = PullSettings().in_flight
TOPIC = "bench"

# What `Client.read` is measured by.
TIMES_LITE_PULL = 2.5
SHARE_OF_CEILING = 0.4


def rows(cluster: LocalCluster, topic: Topic) -> list[Row]:
    count = str(topic.messages)
    lite = ("LitePullBench.java", topic.name, count, "20", "32")
    pull = ("PullBench.java", topic.name, "32")
    ways = {
        "ceiling": ("(1) socket ceiling", lambda: peers.ceiling(topic, DEPTH)),
        "read": ("(2) Client.read to Arrow", lambda: peers.ours(topic, DEPTH)),
        "lite": ("(3) Java DefaultLitePullConsumer", lambda: peers.java(cluster, *lite)),
        "pull": ("(4) Java DefaultMQPullConsumer", lambda: peers.java(cluster, *pull)),
        "native": ("(5) rocketmq-client-python", lambda: peers.native(topic)),
        "body": ("    Client.read, body only", lambda: peers.ours(topic, DEPTH, ["body"])),
        "two": ("    Client.read, two processes", lambda: peers.processes(topic, DEPTH)),
    }
    made = [
        Row(key=key, title=title, open=way, messages=topic.messages)
        for key, (title, way) in ways.items()
    ]
    for row in made:
        if row.key == "native":
            row.skipped = native_bench.missing()
    return made


ROWS = ("ceiling", "read", "lite", "pull", "native", "body", "two")


# --- measuring --------------------------------------------------------------------------------


def measure(chosen: list[Row], rounds: int, progress: Progress) -> None:
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
            if done.messages != row.messages:
                raise RuntimeError(f"{row.title}: {done.messages} messages, not {row.messages}")
            if counts:
                row.rates.append(done.messages / done.seconds)
            progress.advance(task)


# --- showing ----------------------------------------------------------------------------------

HEADINGS = ("", "messages/s", "all rounds, k/s", "of (3)", "of (1)")


def cells(chosen: list[Row]) -> list[tuple[str, ...]]:
    by_key = {row.key: row for row in chosen}
    return [(row.title, *_figures(row, by_key)) for row in chosen]


def _figures(row: Row, by_key: dict[str, Row]) -> tuple[str, ...]:
    if row.rate is None:
        return (row.skipped or "-", "", "", "")
    lite, ceiling = ratio(row, by_key.get("lite")), ratio(row, by_key.get("ceiling"))
    return (
        f"{row.rate:,.0f}",
        table.k(row.rates),
        f"{lite:.2f} x" if lite else "-",
        f"{ceiling:.0%}" if ceiling else "-",
    )


def bars(chosen: list[Row]) -> list[str]:
    """A sentence for each promise that this run can judge."""
    by_key, said = {row.key: row for row in chosen}, []
    for other, least, words in (
        ("lite", TIMES_LITE_PULL, "of (3)"),
        ("ceiling", SHARE_OF_CEILING, "of (1)"),
    ):
        times = ratio(by_key.get("read"), by_key.get(other))
        if times:
            said.append(verdict(times, least, f"(2) has {times:.2f} times the rate {words}"))
    return said


def arguments() -> Namespace:
    parser = table.parser(__doc__, ROWS)
    parser.add_argument("--queues", type=int, default=8)
    return table.parsed(parser, ROWS)


def main() -> None:
    options = arguments()
    console = Console()
    before = table.machine()
    with LocalCluster() as cluster:
        with table.progress_on(console) as progress:
            topic = load(cluster, TOPIC, options.queues, options.messages, progress)
            chosen = [row for row in rows(cluster, topic) if row.key in options.only]
            measure(chosen, options.rounds, progress)
        version = cluster.version
    title = f"{options.messages:,} messages of 1 KiB in {options.queues} queues, RocketMQ {version}"
    how = f"Median of {options.rounds} rounds, rows in turn; {before}"
    sheet = Sheet(title, HEADINGS, cells(chosen))
    table.publish(console, [sheet], [*bars(chosen), how], options.markdown)


if __name__ == "__main__":
    main()
