"""Runs RocketMQ's mqadmin and single-file Java programs to their end, and judges how they went."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Mapping, Sequence

from rocketmq_spark.errors import ClusterError

# mqadmin exits with 0 whatever happened; a stack trace or its help text tell.
_TRACE = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error)\b", re.MULTILINE)
_REFUSED = re.compile(r"^The sub command \S+ not exist|^usage: mqadmin", re.MULTILINE)

# The options of 5.5.0 and 4.9.7 whose value is a secret. Elsewhere -p is a perm or a path, and -s a
# subject or a size.
_SECRET_OPTIONS = {
    "createUser": "password",
    "updateUser": "password",
    "updateAclConfig": "secretKey",
}

_SHOWN_LINES = 20


def run_admin(
    command: Sequence[str], env: Mapping[str, str], args: Sequence[str], secret: str = ""
) -> str:
    """What mqadmin printed. An error shows neither `secret` nor the secrets among `args`."""
    what, hidden = f"mqadmin {' '.join(args)}", {secret, *_secrets(args)}
    done = run(command, env, timeout=120.0, what=what, hidden=hidden)
    said = done.stdout + done.stderr
    refused = "help" not in args[:1] and _REFUSED.search(said)
    if done.returncode != 0 or refused or _TRACE.search(said):
        raise ClusterError(hide(f"{what} failed:\n{shorten(said)}", hidden))
    return done.stdout


def _secrets(args: Sequence[str]) -> list[str]:
    name = _SECRET_OPTIONS.get(args[0]) if args else None
    if name is None:
        return []
    found = []
    for arg, following in zip(args, [*args[1:], ""], strict=True):
        option, equals, value = arg.lstrip("-").partition("=")
        if not (arg.startswith("-") and option.startswith(name[0])):
            continue
        # As Commons CLI reads it: -p x, --password x, --pass x, --password=x or -px.
        whole = name.startswith(option)
        found.append(arg[2:] if not whole else value if equals else following)
    return found


def hide(text: str, secrets: Collection[str]) -> str:
    # The longest first: a shorter one may be a part of it.
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    timeout: float,
    what: str,
    stdin: str | None = None,
    hidden: Collection[str] = (),
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
        problem = f"{what} did not end within {timeout:.0f} s; it said:\n{shorten(said)}"
        # Not `from e`, whose words are the whole command line.
        raise ClusterError(hide(problem, hidden)) from None
    except OSError as e:
        raise ClusterError(hide(f"{what} could not be started: {e}.", hidden)) from e


def _bytes(output: bytes | str | None) -> bytes:
    """What a process said before its time was up, which Python may not have decoded yet."""
    return output.encode() if isinstance(output, str) else output or b""


def shorten(said: str) -> str:
    """The first lines: Java names the cause first and then how it got there."""
    lines = said.strip().splitlines()
    more = [f"... ({len(lines) - _SHOWN_LINES} more lines)"] if len(lines) > _SHOWN_LINES else []
    return "\n".join(lines[:_SHOWN_LINES] + more) or "(it said nothing)"
