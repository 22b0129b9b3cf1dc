"""Ways to read a topic once, each as a function that returns how many messages and how long.

Whatever takes time once (starting a process, connecting) is done by `open`, so that a pass is
nothing but reading.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rocketmq_spark.client import Client
from rocketmq_spark.client.reading import PullSettings
from rocketmq_spark.core.model import OffsetRange
from rocketmq_spark.local_cluster import LocalCluster
from tests.bench.ceiling import Ceiling

JAVA = Path(__file__).parent.parent / "java"
ROOT = Path(__file__).parent.parent.parent

# Enough for anything here; what the broker has.
_HEAP = ("-Xms512m", "-Xmx1g", "-XX:+UseParallelGC")
_PASS_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Pass:
    """One reading of the whole topic."""

    messages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Topic:
    """What is to be read, and where."""

    name: str
    ranges: Sequence[OffsetRange]
    name_server: str
    broker: str

    @property
    def messages(self) -> int:
        return sum(map(len, self.ranges))


class Way(Protocol):
    def __call__(self) -> Pass: ...


# --- this process -----------------------------------------------------------------------------


@contextmanager
def ceiling(topic: Topic, depth: int) -> Iterator[Way]:
    socket = Ceiling(topic.broker, depth)

    def read() -> Pass:
        begin = time.perf_counter()
        messages = sum(socket.read(r.queue, r.start, r.end) for r in topic.ranges)
        return Pass(messages, time.perf_counter() - begin)

    try:
        yield read
    finally:
        socket.close()


@contextmanager
def ours(topic: Topic, depth: int, columns: list[str] | None = None) -> Iterator[Way]:
    with Client(topic.name_server, pull=PullSettings(in_flight=depth)) as client:
        yield lambda: _read(client, topic.ranges, columns)


def _read(client: Client, ranges: Sequence[OffsetRange], columns: list[str] | None) -> Pass:
    messages = 0
    begin = time.perf_counter()
    for part in ranges:
        for batch in client.read(part.queue, part.start, part.end, columns):
            messages += batch.num_rows
    return Pass(messages, time.perf_counter() - begin)


# --- processes of ours ------------------------------------------------------------------------


@contextmanager
def processes(topic: Topic, depth: int, count: int = 2) -> Iterator[Way]:
    """The queues dealt out to `count` processes; the clock stops with the last of them."""
    context = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    for number in range(count):
        here, there = context.Pipe()
        share = list(topic.ranges[number::count])
        worker = context.Process(target=_work, args=(there, topic.name_server, share, depth))
        worker.start()
        pipes.append(here)
        workers.append(worker)

    def read() -> Pass:
        for pipe in pipes:
            pipe.recv()  # ready
        begin = time.perf_counter()
        for pipe in pipes:
            pipe.send(True)
        messages = sum(pipe.recv() for pipe in pipes)
        return Pass(messages, time.perf_counter() - begin)

    try:
        yield read
    finally:
        for pipe in pipes:
            pipe.close()
        for worker in workers:
            worker.join()


def _work(pipe: Any, name_server: str, ranges: list[OffsetRange], depth: int) -> None:
    with Client(name_server, pull=PullSettings(in_flight=depth)) as client:
        try:
            while True:
                pipe.send("ready")
                pipe.recv()
                pipe.send(_read(client, ranges, None).messages)
        except (EOFError, OSError):
            return  # the benchmark is over


# --- other clients ----------------------------------------------------------------------------


@contextmanager
def java(cluster: LocalCluster, source: str, *args: str) -> Iterator[Way]:
    """A program of tests/java that reads the topic once for each line it is sent."""
    quiet = cluster.folder / "home" / "conf" / "logback_tools.xml"
    flags = [*_HEAP, f"-Drmq.logback.configurationFile={quiet}"]
    with tempfile.TemporaryFile("w+") as errors:
        process = cluster.popen_java(JAVA / source, *args, jvm_args=flags, stderr=errors)
        assert process.stdin and process.stdout

        def read() -> Pass:
            process.stdin.write("\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], _PASS_SECONDS)
            line = process.stdout.readline() if ready else ""
            if not line:
                errors.seek(0)
                raise RuntimeError(f"{source} gave no result:\n{errors.read()[:2000]}")
            return _parse(line)

        try:
            yield read
        finally:
            process.stdin.close()
            process.wait(30)
            process.stdout.close()


@contextmanager
def native(topic: Topic) -> Iterator[Way]:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "tests.bench.native_bench"]
        command += [topic.name_server, topic.name, str(topic.messages)]

        def read() -> Pass:
            done = subprocess.run(
                command,
                env={**os.environ, "HOME": home, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=_PASS_SECONDS,
                check=False,
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            if not lines:
                raise RuntimeError(f"native_bench gave no result:\n{done.stderr[-2000:]}")
            return _parse(lines[-1])

        yield read


def _parse(line: str) -> Pass:
    told = json.loads(line)
    return Pass(told["messages"], told["seconds"])
