"""Runs RocketMQ's mqadmin and single-file Java programs to their end, and judges how they went."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from rocketmq_spark.errors import ClusterError

# mqadmin exits with 0 whatever happened; a stack trace or its help text tell.
_TRACE = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error)\b", re.MULTILINE)
_REFUSED = re.compile(r"^The sub command \S+ not exist|^usage: mqadmin", re.MULTILINE)

_SHOWN_LINES = 20


def run_admin(command: Sequence[str], env: Mapping[str, str], args: Sequence[str]) -> str:
    done = run(command, env, timeout=120.0, what=f"mqadmin {' '.join(args)}")
    said = done.stdout + done.stderr
    refused = "help" not in args[:1] and _REFUSED.search(said)
    if done.returncode != 0 or refused or _TRACE.search(said):
        raise ClusterError(f"mqadmin {' '.join(args)} failed:\n{shorten(said)}")
    return done.stdout


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    timeout: float,
    what: str,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            list(command),
            env=dict(env),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as e:
        said = b"".join(_bytes(part) for part in (e.stderr, e.stdout)).decode("utf-8", "replace")
        raise ClusterError(
            f"{what} did not end within {timeout:.0f} s; it said:\n{shorten(said)}"
        ) from e
    except OSError as e:
        raise ClusterError(f"{what} could not be started: {e}.") from e


def _bytes(output: bytes | str | None) -> bytes:
    """What a process said before its time was up, which Python may not have decoded yet."""
    return output.encode() if isinstance(output, str) else output or b""


def shorten(said: str) -> str:
    """The first lines: Java names the cause first and then how it got there."""
    lines = said.strip().splitlines()
    more = [f"... ({len(lines) - _SHOWN_LINES} more lines)"] if len(lines) > _SHOWN_LINES else []
    return "\n".join(lines[:_SHOWN_LINES] + more) or "(it said nothing)"
