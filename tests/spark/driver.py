"""A driver in a process of its own, to be killed or to have executors: `Driver` starts one.

It runs streams into folders as `queries.Source` does, so that a test goes on with them in its own
session. A stream can be made to stall, which gives a batch a middle to be killed in:

`task`    once `folder/stall` exists, a task stops after its first rows, which it notes down
`driver`  the very first batch stops before it has done anything

Each progress becomes a line of `folder/progress`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import rocketmq_spark
from tests.spark.connect import ROOT, ConnectServer
from tests.spark.queries import COLUMNS, Row, too_busy
from tests.waiting import PATIENCE, until

_STALL_SECONDS = 300.0


@dataclass
class Stream:
    folder: str
    options: dict[str, str]
    stall: str = ""


@dataclass
class Driver:
    """Runs until it is stopped or killed, or the `with` block ends."""

    folder: Path
    streams: list[Stream]
    master: str = "local[2]"
    conf: dict[str, str] = field(default_factory=dict)
    connect: bool = False

    def __enter__(self) -> Driver:
        self.folder.mkdir(parents=True, exist_ok=True)
        told = {
            "folder": str(self.folder),
            "master": self.master,
            "conf": self.conf,
            "connect": self.connect,
            "streams": [vars(stream) for stream in self.streams],
        }
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", json.dumps(told)],
                cwd=self.folder,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "SPARK_HOME": str(_spark_home(self.folder / "spark")),
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def processes(self, words: str = "") -> list[int]:
        """Ids of what it has started (JVMs, workers), of those with `words` in their command."""
        return [pid for pid, _, line in descendants(self._process.pid) if words in line]

    def check(self) -> None:
        assert self._process.poll() is None, f"the driver has ended:\n{self.log[-4000:]}"

    def kill(self) -> None:
        """kill -9, of the JVM, of the Python that is the user's, and of what they have started:
        a worker that sleeps would not notice that they have gone."""
        workers = self.processes()
        for pid in (*self.processes("SparkSubmit"), self._process.pid, *workers):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        until(lambda: not any(map(_alive, workers)), what="the end of all workers")

    def stop(self) -> None:
        (self.folder / "stop").touch()
        assert self._process.wait(PATIENCE) == 0, self.log[-4000:]


def progress(folder: Path) -> list[Row]:
    """Every progress so far of the stream in `folder`."""
    file = folder / "progress"
    lines = file.read_text("utf-8").splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def half_done(folder: Path) -> list[Row]:
    """What stalled tasks had read before they were killed."""
    return [row for file in folder.glob("half-*") for row in json.loads(file.read_text("utf-8"))]


def _spark_home(folder: Path) -> Path:
    """The installed Spark by links: a local cluster writes into its SPARK_HOME."""
    import pyspark

    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


def descendants(pid: int) -> list[tuple[int, int, str]]:
    """Children and theirs: id, parent's id, command."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    processes = [(int(row[0]), int(row[1]), row[2] if len(row) > 2 else "") for row in rows]
    found, parents = [], {pid}
    while children := [process for process in processes if process[1] in parents]:
        found += children
        parents = {process[0] for process in children}
    return found


def _alive(pid: int) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip()[:1] not in ("", "Z")


# --- in the driver's process ------------------------------------------------------------------


def main() -> None:
    told = json.loads(sys.argv[1])
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **told["conf"],
    }
    with ExitStack() as stack:
        _run(_session(stack, told, conf), told)


def _session(stack: ExitStack, told: Row, conf: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    if told["connect"]:
        log = Path(told["folder"]) / "server.log"
        server = stack.enter_context(ConnectServer(log, told["master"], conf))
        return SparkSession.builder.remote(server.url).getOrCreate()
    builder = SparkSession.builder.master(told["master"])
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _run(spark: Any, told: Row) -> None:
    rocketmq_spark.register(spark)
    running = [(Path(s["folder"]), _start(spark, Stream(**s))) for s in told["streams"]]
    known: set[str] = set()
    while not (Path(told["folder"]) / "stop").exists():
        for number, (folder, query) in enumerate(running):
            failure = query.exception()
            if failure is not None and too_busy(failure):
                running[number] = folder, _start(spark, Stream(**told["streams"][number]))
            elif failure is not None:
                raise failure
            for each in query.recentProgress:
                key = f"{each['runId']}{each['batchId']}{each['timestamp']}"
                if key not in known:
                    known.add(key)
                    with (folder / "progress").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(json.loads(each.json)) + "\n")
        time.sleep(0.1)
    for _, query in running:
        query.stop()
    spark.stop()


def _start(spark: Any, stream: Stream) -> Any:
    folder = Path(stream.folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = spark.readStream.format("rocketmq").schema(COLUMNS).options(**stream.options).load()
    if stream.stall == "task":
        rows = rows.mapInArrow(_stall_in_task(stream.folder), COLUMNS)
    if stream.stall == "driver":
        writer = rows.writeStream.foreachBatch(lambda _, number: _stall_in_driver(folder))
    else:
        writer = rows.writeStream.format("parquet").option("path", str(folder / "rows"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def _stall_in_driver(folder: Path) -> None:
    (folder / "stalled").touch()
    time.sleep(_STALL_SECONDS)


def _stall_in_task(folder: str) -> Any:
    def through(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if Path(folder, "stall").exists():
                half = Path(folder, f"half-{uuid.uuid4().hex}")
                rows = batch.drop_columns(["body", "consumerId"]).to_pylist()
                half.write_text(json.dumps(rows), "utf-8")
                Path(folder, "stalled").touch()
                time.sleep(_STALL_SECONDS)

    return through


if __name__ == "__main__":
    main()
