"""Who shares the queues, and what their processes keep: connections, and little memory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import rocketmq_spark
from rocketmq_spark.client import Client
from rocketmq_spark.core.options import read_options
from rocketmq_spark.local_cluster import LocalCluster
from rocketmq_spark.spark.members import Watcher, live_executors, members, slots
from tests.bench.memory_probe import fill
from tests.waiting import until

from .driver import ROOT, Driver, Stream, descendants, progress
from .queries import COLUMNS, Source, bodies, numbered, report, send, written

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# What a worker may reach, whatever the backlog.
WORKER_LIMIT = 250 * 10**6


@pytest.fixture
def source(spark: SparkSession, name_server: str, topic: str) -> Source:
    options = {"nameServer": name_server, "topic": topic, "startingOffsets": "earliest"}
    return Source(spark, options)


def readers(source: Source, **options: object) -> list[str]:
    found = source.batch("consumerId string", **options).distinct().collect()
    return sorted(row.consumerId for row in found)


# --- the option executors ---------------------------------------------------------------------


def test_members_by_number_and_by_name(source: Source, client: Client, topic: str) -> None:
    send(client, topic, numbered("a", 80))
    assert readers(source, executors=3) == ["slot@0", "slot@1", "slot@2"]
    assert readers(source, executors="10.0.0.7@2, 10.0.0.7@1") == ["10.0.0.7@1", "10.0.0.7@2"]


def test_auto_is_this_machine_and_after_register_the_live_executors(
    source: Source, spark: SparkSession, client: Client, topic: str
) -> None:
    send(client, topic, numbered("a", 80))
    cores = os.cpu_count() or 1
    guess = {f"localhost@driver#{slot}" for slot in range(cores)}
    assert set(readers(source)) <= guess

    registered = spark.newSession()  # what is registered counts for one session
    rocketmq_spark.register(registered)
    assert live_executors(registered) == [("localhost", "driver", 2)]
    ids = slots(live_executors(registered))
    assert readers(Source(registered, source.options)) == ids
    assert set(readers(source)) <= guess


def test_a_plan_sees_what_the_watcher_saw_last() -> None:
    chosen = read_options({"nameServer": "localhost:1", "topic": "T"})
    live = [("10.0.0.8", "2", 1), ("10.0.0.7", "1", 2)]
    watcher = Watcher(lambda: list(live))
    try:
        assert members(chosen, watcher.file) == ["10.0.0.8@2#0", "10.0.0.7@1#0", "10.0.0.7@1#1"]
        live.pop()
        until(lambda: members(chosen, watcher.file) == ["10.0.0.8@2#0"], what="one has gone")
    finally:
        watcher.close()
    assert not Path(watcher.file).exists()
    assert len(members(chosen, watcher.file)) == (os.cpu_count() or 1)  # nobody says, so a guess


# --- executors that come and go ---------------------------------------------------------------


@pytest.mark.slow
def test_live_executors_are_followed(
    client: Client, name_server: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """One of two is killed; Spark starts a third. A plan follows each step and no row is lost."""
    topic, folder = new_topic(4), tmp_path / "stream"
    options = {"nameServer": name_server, "topic": topic, "startingOffsets": "earliest"}
    sent: list[str] = []

    def reports() -> list[dict[str, object]]:
        return [told for told in map(report, progress(folder)) if told.get("members")]

    def executors(told: dict[str, object]) -> set[str]:
        members = told["members"]
        assert isinstance(members, list)
        return {member.partition("@")[2] for member in members}

    driver = Driver(tmp_path / "driver", [Stream(str(folder), options)], "local-cluster[2,1,1024]")
    with driver:

        def planned_for(*ids: str) -> Callable[[], bool]:
            wanted = {f"{name}#0" for name in ids}
            return lambda: driver.check() is None and wanted in map(executors, reports())

        def changed(why: str) -> bool:
            """Whether a line of the log tells of this rebalance, and of nothing else."""
            lines = driver.log.splitlines()
            return any(" rocketmq: rebalance: " in s and s.endswith(f": {why}") for s in lines)

        with _sending(client, topic, sent):
            until(planned_for("0", "1"), what="a plan for both executors")
            (victim,) = driver.processes("--executor-id 0 ")
            os.kill(victim, signal.SIGKILL)
            until(planned_for("1"), what="a plan for the one that is left")
            until(planned_for("1", "2"), what="a plan with the new one")
        until(lambda: driver.check() is None and len(written(folder)) >= len(sent), what="all rows")
        driver.stop()
    assert bodies(written(folder)) == sent
    assert changed("1 member left (127.0.0.1@0#0)")
    assert changed("1 member joined (127.0.0.1@2#0)")
    shown = [told["rebalance"] for told in reports()]
    # Two brokers of four queues each: half of them moves.
    expected = {"why": "1 member left (127.0.0.1@0#0)", "dropped": 4, "kept": 4, "added": 4}
    assert expected in shown


@contextlib.contextmanager
def _sending(client: Client, topic: str, sent: list[str]) -> Iterator[None]:
    """A few messages at a time, all the time."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.2):
            some = [f"{len(sent) + n:06d}" for n in range(8)]
            sent.extend(some)
            send(client, topic, some)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# --- connections ------------------------------------------------------------------------------


@linux_only
def test_connections_are_kept_between_tasks_and_batches(
    source: Source, cluster: LocalCluster, client: Client, topic: str, tmp_path: Path
) -> None:
    """One for each broker and worker, however many batches it has read."""
    ports = {int(info.address.rpartition(":")[2]) for info in cluster.brokers.values()}
    batches = 6
    seen: set[tuple[int, int, int]] = set()
    before = _worker_connections(ports)
    own = source.with_options(executors=2, consumerGroup="kept")  # so that nobody's is shared
    with own.start(tmp_path / "s", COLUMNS) as run:
        for number in range(batches):
            send(client, topic, numbered(f"{number}-", 16))
            run.wait_for(16 * (number + 1))
            seen |= _worker_connections(ports)
    mine = seen - before
    assert mine
    lines = {(pid, port) for pid, port, _ in mine}
    assert len(lines) == len(mine), f"more than one connection for a worker and a broker: {mine}"
    assert len(mine) < batches * 2


def _worker_connections(ports: set[int]) -> set[tuple[int, int, int]]:
    """Of Spark's Python workers: process, broker's port, own port."""
    found = set()
    for pid in _workers():
        inodes = set()
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(str(entry.readlink()))
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
                words = line.split()
                own, other = (int(words[at].rpartition(":")[2], 16) for at in (1, 2))
                if other in ports and f"socket:[{words[9]}]" in inodes:
                    found.add((pid, other, own))
    return found


def _workers() -> list[int]:
    """Spark's Python workers below this process; the daemon that forks them is no worker."""
    found = descendants(os.getpid())
    daemons = {pid for pid, _, line in found if "pyspark.daemon" in line}
    return [pid for pid, parent, _ in found if parent in daemons]


FORK = """
import json, os, sys
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.options import read_options
from rocketmq_spark.spark.clients import client_for

name_server, topic, broker, count = sys.argv[1:]
options = read_options({"nameServer": name_server, "topic": topic})

def read():
    queue = MessageQueue(topic, broker, 0)
    return sum(b.num_rows for b in client_for(options).read(queue, 0, int(count)))

mine = client_for(options)
told = [mine is client_for(options), read()]
ours, theirs = os.pipe()
child = os.fork()
if not child:
    answer = json.dumps([client_for(options) is not mine, read()])
    os.write(theirs, answer.encode())
    os._exit(0)
os.waitpid(child, 0)
print(json.dumps([told, json.loads(os.read(ours, 1000)), [mine is client_for(options), read()]]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_makes_its_own_connections(
    client: Client, name_server: str, topic: str
) -> None:
    queue = client.queues(topic)[0]
    message = rocketmq_spark.Message
    send(client, topic, [message("x", queue=queue) for _ in range(50)])
    done = subprocess.run(
        [sys.executable, "-c", FORK, name_server, topic, queue.broker_name, "50"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[True, 50], [True, 50], [True, 50]]


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.slow
@linux_only
@pytest.mark.parametrize("case, count", [("4 MiB", 40), ("1 KiB", 100_000)])
def test_a_worker_stays_small(
    source: Source,
    client: Client,
    new_topic: Callable[..., str],
    case: str,
    count: int,
) -> None:
    topic = new_topic(1)
    assert fill(client, topic, case, count) == count
    until(lambda: sum(high for _, high in client.topic_offsets(topic).values()) == count)
    rows = source.batch(topic=topic, minPartitions=2)
    counted = rows.agg(f.count("queueOffset"), f.sum(f.length("body"))).collect()[0]
    assert counted[0] == count
    assert counted[1] > 100 * 10**6
    peaks = [_peak(pid) for pid in _workers()]
    assert peaks
    assert 60 * 10**6 < max(peaks) < WORKER_LIMIT, [f"{peak / 1e6:.0f} MB" for peak in peaks]


def _peak(pid: int) -> int:
    """The largest resident size of a process so far; 0 if it has ended."""
    with contextlib.suppress(OSError, ValueError):
        words = Path(f"/proc/{pid}/status").read_text().split()
        return int(words[words.index("VmHWM:") + 1]) * 1024
    return 0
