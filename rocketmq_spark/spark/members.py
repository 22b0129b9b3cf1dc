"""Who shares the queues: the executor slots, as ids such as `10.0.0.7@3#0`.

The planner runs in a process of its own that knows nothing of Spark's executors. `register` puts
a thread into the user's own process, which does, and keeps a small private file up to date; the
planner, on the same machine, reads it before each plan. Without `register`, the machine's cores
are the best guess there is.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketmq_spark.core.options import SourceOptions
from rocketmq_spark.core.parse import names
from rocketmq_spark.errors import UsageError

log = logging.getLogger(__name__)

AUTO = "auto"
GROUP = "group"  # see group.py
# How often the live executors are looked at; one look takes some milliseconds.
_REFRESH_SECONDS = 1.0

Executor = tuple[str, str, int]  # host, id, cores


def check(text: str) -> None:
    """Refuse what `members` could not read."""
    _fixed(text)


def members(options: SourceOptions, file: str = "") -> list[str]:
    """The ids of now; `file` is the one that `register` keeps."""
    fixed = _fixed(options.executors)
    if fixed is not None:
        return fixed
    executors = _read(file) if file else []
    return slots(executors) if executors else _guess(bool(file))


def slots(executors: list[Executor]) -> list[str]:
    """One id for each core of each executor."""
    return [f"{host}@{name}#{slot}" for host, name, cores in executors for slot in range(cores)]


def _fixed(text: str) -> list[str] | None:
    if text.lower() in (AUTO, GROUP):
        return None
    if re.fullmatch(r"\d+", text):
        if int(text) == 0:
            raise UsageError("option executors is 0: somebody has to read")
        width = len(str(int(text) - 1))
        return [f"slot@{number:0{width}d}" for number in range(int(text))]
    try:
        return list(names(text))
    except ValueError as error:
        raise UsageError(f"option executors is {text!r}: {error}") from error


_warned = False


def _guess(registered: bool) -> list[str]:
    global _warned
    cores = os.cpu_count() or 1
    if not registered and not _warned:
        _warned = True  # once for each process is enough
        log.warning(
            "the planner cannot see Spark's executors and plans for the %d cores of the driver's "
            "machine; call rocketmq_spark.register(spark), or set the option executors",
            cores,
        )
    return slots([("localhost", "driver", cores)])


def _read(file: str) -> list[Executor]:
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
        return [(str(host), str(name), int(cores)) for host, name, cores in found]
    except (OSError, ValueError):
        return []  # the session has ended, or has just begun


# --- in the user's process --------------------------------------------------------------------


class Watcher:
    """Keeps a file of the live executors, until its session ends."""

    def __init__(self, look: Callable[[], list[Executor]]) -> None:
        self._look = look
        self._folder = Path(tempfile.mkdtemp(prefix="rocketmq-spark-members-"))
        self.file = str(self._folder / "executors.json")
        self._ended = threading.Event()
        atexit.register(self.close)
        self._write(look())
        self._thread = threading.Thread(target=self._run, name="rocketmq-members", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_REFRESH_SECONDS):
            try:
                self._write(self._look())
            except Exception as error:
                # Py4J raises many kinds when the JVM has gone; there is nobody left to plan for.
                log.debug("no longer watching the executors: %s", error)
                self.close()

    def _write(self, executors: list[Executor]) -> None:
        new = self._folder / "executors.new"
        new.write_text(json.dumps(executors), encoding="utf-8")
        new.replace(self.file)  # a reader sees the old file or the new one, never a half

    def close(self) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder)


def live_executors(spark: Any) -> list[Executor]:
    """The executors that can run tasks, as the driver's own status store lists them."""
    found = []
    listed = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    for index in range(listed.size()):
        summary = listed.apply(index)
        if summary.totalCores() > 0:  # the driver of a cluster has none
            host = summary.hostPort().rsplit(":", 1)[0]
            found.append((str(host), str(summary.id()), int(summary.totalCores())))
    return found
