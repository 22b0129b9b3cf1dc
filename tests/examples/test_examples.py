"""Every example runs as its reader would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, name_server: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "ROCKETMQ_SPARK_NAMESRV": name_server},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_orders(name_server: str) -> None:
    assert "5 express orders out of 20" in run("orders.py", name_server)


@pytest.mark.slow
def test_exactly_once(name_server: str) -> None:
    told = run("exactly_once.py", name_server)
    assert "1000 orders placed, 2000 received" in told
    assert "1000 clean, 1000 of them different" in told


def test_the_readme_lists_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert files
    assert [name for name in sorted(files) if f"[{name}]({name})" not in text] == []
