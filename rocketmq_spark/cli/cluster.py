"""`rocketmq-spark cluster` and `jars`: a real RocketMQ for people who want to play with one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from rocketmq_spark.cli.console import Console
from rocketmq_spark.local_cluster import LocalCluster, find_java, resolve

_console = Console(stderr=True)


# Where there is no terminal to draw on (CI, a pipe), a line now and then says it is alive.
_SECONDS_BETWEEN_LINES = 15.0


@contextmanager
def _telling(console: Console, first: str) -> Iterator[Callable[[str], None]]:
    """Shows what is going on: one line that changes, or a few lines that stay."""
    if console.is_terminal:
        with console.status(first) as status:
            yield status.update
        return
    last = time.monotonic()

    def tell(words: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            console.print(words, highlight=False)

    yield tell


@contextmanager
def started(console: Console, **settings: object) -> Iterator[LocalCluster]:
    """A cluster, with a line that says what it is waiting for until it is there."""
    with _telling(console, "starting RocketMQ") as tell:
        cluster = LocalCluster(progress=tell, **settings)  # type: ignore[arg-type]
        cluster.open()
    with closing(cluster):
        yield cluster


def serve(
    brokers: int, slaves: int, name_servers: int, release: str, topics: tuple[str, ...]
) -> None:
    enough = threading.Event()
    settings = {
        "brokers": brokers,
        "slaves": slaves,
        "name_servers": name_servers,
        "version": release,
    }
    with started(_console, **settings) as cluster:
        # From here on Ctrl-C and `kill` end it in order. Before, Python's own way is quicker, and
        # the guard cleans up.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: enough.set())
        for topic in topics:
            cluster.create_topic(topic)
        for name, info in {**cluster.name_servers, **cluster.brokers}.items():
            _console.print(f"{name:<16} {info.address}", highlight=False)
        _console.print("Ctrl-C stops it and removes its data. The address to use:")
        print(cluster.name_server, flush=True)
        enough.wait()
        _console.print("stopping")


def fetch(releases: Iterable[str]) -> None:
    """All at once: a download asks for one thing after the other and mostly waits."""
    find_java()
    wanted = list(dict.fromkeys(releases))
    with (
        _telling(_console, f"looking for RocketMQ {', '.join(wanted)}") as tell,
        ThreadPoolExecutor(len(wanted)) as threads,
    ):
        list(threads.map(lambda release: resolve(release, tell), wanted))
