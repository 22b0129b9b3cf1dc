"""The demo from beginning to end: start, count, add a queue, add a broker, check."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.text import Text

from rocketmq_spark.cli.cluster import started
from rocketmq_spark.cli.console import Console
from rocketmq_spark.cli.demo import query as spark_side
from rocketmq_spark.cli.demo.orders import TOPIC, Producer, faults, totals
from rocketmq_spark.cli.demo.screen import Moment, Screen, verdict_table
from rocketmq_spark.cli.demo.tally import Assignment, Tally
from rocketmq_spark.cli.plan_view import print_grid
from rocketmq_spark.client import Client
from rocketmq_spark.core.grid import rebalance_grid
from rocketmq_spark.core.rebalance import rebalance
from rocketmq_spark.errors import ClusterError
from rocketmq_spark.local_cluster import LocalCluster, find_java
from rocketmq_spark.spark.source import register

_BROKERS = 2
_QUEUES = 3  # on each broker, at first
# How long a scene stays, so that eyes can follow; and how long anything may take on a busy machine.
_SCENE_SECONDS = 5.0
_PATIENCE_SECONDS = 180.0
# With no micro-batch for so long, what has not been counted never will be.
_SILENCE_SECONDS = 60.0
_LOOKS_PER_SECOND = 5


def show(rate: int) -> None:
    find_java()  # before anything is shown
    spark_side.check_installed()
    began = time.monotonic()
    console = Console()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketmq-demo-")))
        cluster = stack.enter_context(started(console, brokers=_BROKERS))
        client = stack.enter_context(Client(cluster.name_server, timeout=15))
        client.create_topic(TOPIC, _QUEUES)
        console.print(
            f"RocketMQ {cluster.version} runs: a name server, {_BROKERS} brokers with {_QUEUES} "
            f"queues of topic {TOPIC} each.",
            highlight=False,
        )
        spark = stack.enter_context(_started_spark(console, folder))
        tally = Tally()
        counting = spark_side.counting(spark, cluster.name_server, folder, tally.take)
        screen = Screen(console)
        producer = Producer(client, rate)
        producer.start()
        stack.callback(producer.finish)
        play = _Play(screen, cluster, client, producer, tally, stack.enter_context(counting))
        try:
            with screen.live():
                play.scenes()
        except KeyboardInterrupt:
            console.print("Stopping.")
            raise
        play.verdict(time.monotonic() - began)


@contextmanager
def _started_spark(console: Console, folder: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        with console.status("starting Spark"):
            spark = stack.enter_context(spark_side.session(folder / "spark.log"))
            register(spark)  # the plan follows the slots that are really there
        console.print(
            f"Spark {spark.version} runs, with {spark_side.SLOTS} slots.\n", highlight=False
        )
        yield spark


class _Play:
    def __init__(
        self,
        screen: Screen,
        cluster: LocalCluster,
        client: Client,
        producer: Producer,
        tally: Tally,
        query: Any,
    ) -> None:
        self._screen = screen
        self._cluster = cluster
        self._client = client
        self._producer = producer
        self._tally = tally
        self._query = query
        self._sent = 0
        # An interrupt in the midst of a call to Spark would confuse the calls that tidy up, so it
        # waits for a moment between two.
        self._interrupted = threading.Event()
        signal.signal(signal.SIGINT, lambda *_: self._interrupted.set())

    def scenes(self) -> None:
        self._screen.doing("Spark counts the orders by tag")
        before = self._plan_of_now()
        self._enjoy()

        self._screen.doing("A queue is added on broker-a, while orders flow")
        self._client.create_topic(TOPIC, _QUEUES + 1, brokers=["broker-a"])
        before = self._rebalanced(before)
        self._enjoy()

        self._screen.doing("A broker is added, while orders flow")
        added = self._cluster.add_broker()
        self._client.create_topic(TOPIC, _QUEUES, brokers=[added])
        self._rebalanced(before)
        self._enjoy()

        self._screen.doing("No more orders; Spark counts the last of them")
        self._sent = self._producer.finish()
        self._wait(self._over, "Spark has counted all orders")
        self._query.processAllAvailable()  # what was sent twice might come after the last

    def verdict(self, seconds: float) -> None:
        """Exit code 1 if an order is missing or was counted twice."""
        console = self._screen.console
        told = self._tally.totals()
        console.print(
            "Sent, and counted by Spark:",
            "",
            verdict_table(totals(range(self._sent)), told),
            "",
            sep="\n",
        )
        found = faults(self._sent, self._tally.numbers(), told)
        if found:
            raise ClusterError(f"the demo failed: {'; '.join(found)}")
        console.print(
            Text(
                f"{self._sent:,} orders sent, {self._sent:,} counted: none lost, none twice.",
                "bold green",
            ),
            f"It took {seconds:.0f} s, {self._tally.batch + 1} micro-batches and two rebalances.",
            sep="\n",
            highlight=False,
        )

    # --- scenes -------------------------------------------------------------------------------

    def _rebalanced(self, before: Assignment) -> Assignment:
        after = self._plan_of_now()
        print_grid(self._screen.console, rebalance_grid(rebalance(before, after)))
        return after

    def _over(self) -> bool:
        silence = time.monotonic() - self._tally.changed
        return silence > _SILENCE_SECONDS or self._moment().counted >= self._sent

    def _plan_of_now(self) -> Assignment:
        """Who reads which queue, as the rows of one batch tell: their column `consumerId`."""
        queues = set(self._client.queues(TOPIC))
        seen: list[Assignment] = []

        def complete() -> bool:
            seen[:] = [self._tally.assignment]
            return {queue for its in seen[0].values() for queue in its} == queues

        self._wait(complete, f"Spark has read from all {len(queues)} queues")
        return seen[0]

    def _enjoy(self) -> None:
        until = time.monotonic() + _SCENE_SECONDS
        self._wait(lambda: time.monotonic() >= until, "the scene is over")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            self._screen.update(self._moment())
            if self._interrupted.wait(1 / _LOOKS_PER_SECOND):
                raise KeyboardInterrupt
            self._producer.check()
            failure = self._query.exception()
            if failure is not None:
                raise ClusterError(f"the demo's query failed: {str(failure).splitlines()[0]}")
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the demo failed: waited {_PATIENCE_SECONDS:.0f} s until {what}"
                )

    def _moment(self) -> Moment:
        progress = self._query.lastProgress
        rate = progress["processedRowsPerSecond"] if progress else 0.0
        totals_now = self._tally.totals()
        return Moment(self._tally.batch, self._producer.sent, totals_now, rate)
