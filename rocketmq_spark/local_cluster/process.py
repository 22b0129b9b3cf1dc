"""One Java process: start, stop, kill, pause, resume; and the line to the guard that owns them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rocketmq_spark.errors import ClusterError
from rocketmq_spark.local_cluster.guard import own_session

_END_SECONDS = 30.0


class Supervisor:
    """Talks to the guard process. Closing the line, on purpose or by dying, ends everything."""

    def __init__(self, folder: Path) -> None:
        # The guard must find this package whatever put it on our path.
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "rocketmq_spark.local_cluster.guard", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
            encoding="utf-8",
            **own_session(),
        )
        self._lock = threading.Lock()
        self._pids: list[int] = []
        _open_lines.add(self)

    def __repr__(self) -> str:
        return f"<Supervisor guard={self._guard.pid} processes={len(self._pids)}>"

    def start(
        self, command: Sequence[str], env: Mapping[str, str], folder: Path, log: Path
    ) -> Process:
        answer = self.ask(
            do="start", command=list(command), env=dict(env), folder=str(folder), log=str(log)
        )
        self._pids.append(answer["pid"])
        return Process(self, answer["pid"])

    def adopt(self, pid: int) -> None:
        """Let the guard end a process that it did not start."""
        self.ask(do="adopt", pid=pid)

    def ask(self, **request: Any) -> dict[str, Any]:
        stdin, stdout = self._guard.stdin, self._guard.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            try:
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()
                line = stdout.readline()
            except (OSError, ValueError):
                line = ""
        if not line:
            raise ClusterError(
                f"The guard process {self._guard.pid} of the local cluster is gone; "
                f"Java processes {self._pids} may still run: end them by hand."
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClusterError(f"The local cluster could not {request['do']}: {answer['error']}.")
        return answer

    def close(self) -> None:
        """End everything and wait until it is gone, folder included."""
        self.hang_up()
        try:
            self._guard.wait(_END_SECONDS)
        except subprocess.TimeoutExpired as e:
            raise ClusterError(
                f"The guard process {self._guard.pid} did not end its Java processes {self._pids} "
                f"within {_END_SECONDS:.0f} s: end them by hand."
            ) from e

    def hang_up(self) -> None:
        for stream in (self._guard.stdin, self._guard.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


# A forked child (multiprocessing) inherits the line and would keep it open after its parent died.
_open_lines: weakref.WeakSet[Supervisor] = weakref.WeakSet()


def _hang_up_in_child() -> None:
    for supervisor in list(_open_lines):
        supervisor.hang_up()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hang_up_in_child)


class Process:
    """A Java process of the guard's."""

    def __init__(self, supervisor: Supervisor, pid: int) -> None:
        self._supervisor = supervisor
        self.pid = pid
        self.paused = False

    def __repr__(self) -> str:
        return f"<Process {self.pid}{' paused' if self.paused else ''}>"

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        code: int | None = self._supervisor.ask(do="poll", pid=self.pid)["code"]
        return code

    @property
    def running(self) -> bool:
        return self.code is None

    def stop(self) -> None:
        """SIGTERM, and wait. A paused process would not notice, so it is resumed."""
        self._signal(signal.SIGTERM)
        if self.paused:
            self.resume()
        self._wait_end("SIGTERM; kill it instead")

    def kill(self) -> None:
        """SIGKILL, and wait."""
        # Windows has no SIGKILL; its SIGTERM ends a process as abruptly.
        self._signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
        self._wait_end("SIGKILL; is its disk stuck?")
        self.paused = False

    def pause(self) -> None:
        if sys.platform == "win32":
            raise ClusterError("Windows cannot pause a process: use Linux or macOS for this.")
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if sys.platform == "win32":
            raise ClusterError("Windows cannot resume a process: use Linux or macOS for this.")
        self._signal(signal.SIGCONT)
        self.paused = False

    def _signal(self, number: int) -> None:
        self._supervisor.ask(do="signal", pid=self.pid, signal=int(number))

    def _wait_end(self, after: str) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while self.running:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Process {self.pid} still runs {_END_SECONDS:.0f} s after {after}."
                )
            time.sleep(0.02)
