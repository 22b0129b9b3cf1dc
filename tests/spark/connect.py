"""A server of Spark Connect in a process of its own, on the loopback: `ConnectServer` starts one.

A client of it has no JVM, so a test that runs through it sees what Spark Connect's users have.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rocketmq_spark.local_cluster.ports import LOOPBACK, Ports

ROOT = Path(__file__).resolve().parents[2]
_READY = "ready"


class ConnectServer:
    """Runs until the `with` block ends, or the process that started it."""

    def __init__(self, log: Path, master: str, conf: Mapping[str, str]) -> None:
        self._port = Ports().one()
        self._log = log
        self._conf = {
            **conf,
            "spark.master": master,
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self._port),
        }

    @property
    def url(self) -> str:
        return f"sc://{LOOPBACK}:{self._port}"

    def __enter__(self) -> ConnectServer:
        # A client of Spark Connect marks its own environment as one.
        env = {k: v for k, v in os.environ.items() if k not in ("SPARK_CONNECT_MODE_ENABLED",)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.connect", *map("=".join, self._conf.items())],
                env={**env, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        if said != _READY:
            self.__exit__(None, None, None)
            raise AssertionError(f"no Spark Connect: {self._log.read_text('utf-8', 'replace')}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._process:  # closes its standard input, which tells it to end, and waits
            pass


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for setting in sys.argv[1:]:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(_READY, flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main()
