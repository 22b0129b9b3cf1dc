"""Every example runs as its reader would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, name_server: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "ROCKETMQ_SPARK_NAMESRV": name_server},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_orders(name_server: str) -> None:
    assert "5 express orders out of 20" in run("orders.py", name_server)


def test_the_readme_lists_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert files
    assert [name for name in sorted(files) if f"[{name}]({name})" not in text] == []
