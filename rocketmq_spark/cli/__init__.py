"""The command line. This module alone must load without its extra, to say what to install."""

from __future__ import annotations

import io
import sys


def main() -> None:
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as missing:
        sys.exit(
            f"rocketmq-spark: the command line needs the package {missing.name}: "
            "pip install 'rocketmq-spark[cli]'"
        )
    from rocketmq_spark.cli.app import run

    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter of a name shows a question mark in its place.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run())
