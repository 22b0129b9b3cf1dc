"""Owns the Java processes of one cluster and ends them when the Python that wanted them is gone.

A process of its own: `python -m rocketmq_spark.local_cluster.guard FOLDER`, standard library only.
It reads one JSON request per line from stdin and answers each with one line. The end of stdin
means that its Python has ended, however it ended, SIGKILL included: then everything is killed and
FOLDER is removed. As the parent of the processes it never mistakes a reused pid for one of them:
a pid stays taken until its parent has asked how the process ended.

`start` {command, env, folder, log} -> {pid};  `poll` {pid} -> {code};  `signal` {pid, signal} -> {}
`adopt` {pid} -> {}: a process with another parent, to be killed at the end as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

_REMOVE_SECONDS = 10.0


class Guard:
    """The processes, and what may be asked about them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._adopted: dict[int, str] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        actions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "start": self._start,
            "poll": self._poll,
            "signal": self._signal,
            "adopt": self._adopt,
        }
        try:
            return actions[request["do"]](request)
        except (OSError, KeyError, ValueError) as e:
            return {"error": f"{type(e).__name__}: {e}"}

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        with Path(request["log"]).open("ab") as log:
            child = subprocess.Popen(
                request["command"],
                env=request["env"],
                cwd=request["folder"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **own_session(),
            )
        self._children[child.pid] = child
        return {"pid": child.pid}

    def _poll(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"code": self._children[request["pid"]].poll()}

    def _signal(self, request: dict[str, Any]) -> dict[str, Any]:
        self._children[request["pid"]].send_signal(request["signal"])
        return {}

    def _adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        self._adopted[request["pid"]] = started_at(request["pid"])
        return {}

    def end(self) -> None:
        """Kill everything, also what is paused, and remove the folder."""
        for child in self._children.values():
            with contextlib.suppress(OSError):
                child.kill()
        for pid, started in self._adopted.items():
            if started and started == started_at(pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
        for child in self._children.values():
            child.wait()
        # An adopted process may write its last file while the folder goes: look again.
        deadline = time.monotonic() + _REMOVE_SECONDS
        while self.folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(self.folder, ignore_errors=True)
            time.sleep(0.05)


def started_at(pid: int) -> str:
    """When a process began, in ps's words, which tells a pid that is used again. "" if gone."""
    if os.name == "nt":
        return ""
    done = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def own_session() -> dict[str, Any]:
    """Popen arguments that keep a terminal's Ctrl-C away from a process."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def serve(guard: Guard, requests: TextIO, answers: TextIO) -> None:
    try:
        for line in requests:
            print(json.dumps(guard.answer(json.loads(line))), file=answers, flush=True)
    except (BrokenPipeError, json.JSONDecodeError):
        pass  # Python died in the middle of a line
    finally:
        guard.end()


def main() -> None:
    def leave(_signal: int, _frame: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, leave)
    serve(Guard(Path(sys.argv[1])), sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
