"""The command line. This module alone must load without its extra, to say what to install."""

from __future__ import annotations

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

    sys.exit(run())
