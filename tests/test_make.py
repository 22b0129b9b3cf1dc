"""The Makefile on a machine that lacks what it needs: one sentence, exit code 1, nothing begun."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not on the PATH")


def make(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A dry run, so that whatever is wrong nothing begins."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", "--directory", str(ROOT), "--no-print-directory", "--dry-run", *words],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def java_home(folder: Path, version: str) -> str:
    """The home of a program that says it is this Java."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", "utf-8")
    program.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("goal", ["demo", "test", "check"])
def test_without_java(goal: str, tmp_path: Path) -> None:
    done = make(goal, JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"JAVA_HOME={tmp_path} holds no bin/java: install Java 17")


def test_an_older_java(tmp_path: Path) -> None:
    done = make("test", f"JAVA_HOME={java_home(tmp_path, '11.0.2')}")
    assert done.returncode == 1
    (sentence,) = (done.stdout + done.stderr).splitlines()
    assert sentence.startswith(f"Java 11 ({tmp_path}/bin/java, from JAVA_HOME={tmp_path}) is too")


def test_without_python() -> None:
    done = make("demo", "PYTHON=python-of-nowhere")
    assert done.returncode == 1
    (sentence,) = (done.stdout + done.stderr).splitlines()
    assert sentence.startswith("No python-of-nowhere on PATH: install Python 3.10 or newer")


def test_what_needs_no_java(tmp_path: Path) -> None:
    for goal in ("help", "clean"):
        done = make(goal, JAVA_HOME=str(tmp_path))
        assert (done.returncode, done.stderr) == (0, "")
    assert "make demo" in make(JAVA_HOME=str(tmp_path)).stdout


def test_a_java_that_will_do(tmp_path: Path) -> None:
    done = make("check", JAVA_HOME=java_home(tmp_path, "17.0.1"))
    assert done.returncode == 0
    assert "mypy" in done.stdout
