"""Finds a Java that can run RocketMQ and Spark: JAVA_HOME first, then PATH.

Runs with nothing installed: `python3 -m rocketmq_spark.local_cluster.java` says nothing and exits
with 0, or says in one sentence what is wrong and exits with 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rocketmq_spark.errors import ClusterError

# Spark 4 asks for the same, so nobody needs a second Java for the demo.
OLDEST = 17

_ADVICE = f"install Java {OLDEST} or later and put it on PATH, or let JAVA_HOME name its folder"


def find_java() -> Path:
    """The `java` program to use; ClusterError says what was found instead."""
    home = os.environ.get("JAVA_HOME")
    if home:
        where = f"JAVA_HOME={home}"
        program = shutil.which("java", path=str(Path(home) / "bin"))
        if program is None:
            raise ClusterError(f"{where} holds no bin/java: {_ADVICE}.")
    else:
        where = "PATH"
        program = shutil.which("java")
        if program is None:
            raise ClusterError(f"No Java on {where}: {_ADVICE}.")
    found = version_of(program)
    if found < OLDEST:
        raise ClusterError(f"Java {found} ({program}, from {where}) is too old: {_ADVICE}.")
    return Path(program)


def version_of(program: str) -> int:
    """The feature release, such as 17; Java 8 calls itself 1.8."""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ClusterError(f"{program} -version did not run ({e}): {_ADVICE}.") from e
    said = done.stderr + done.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if done.returncode != 0 or match is None:
        first = next(iter(said.strip().splitlines()), "nothing")
        raise ClusterError(f"{program} -version said {first!r}, which is no Java: {_ADVICE}.")
    return int(match[1])


def main() -> int:
    try:
        find_java()
    except ClusterError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
