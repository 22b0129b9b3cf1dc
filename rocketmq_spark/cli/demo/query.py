"""The demo's Spark: a session on this machine, and the query that counts orders.

The demo is a user of Spark like any other, so of the command line this module alone knows pyspark.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketmq_spark.cli.demo.orders import TOPIC
from rocketmq_spark.cli.demo.tally import Piece
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Members of the plan: enough to see queues move between them, few enough for a small machine.
SLOTS = 3

_SETTINGS = {
    "spark.master": f"local[{SLOTS}]",
    "spark.app.name": "rocketmq-spark demo",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # For a minute's run, Java's thorough compiler costs more than it gains.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

Take = Callable[[int, list[Piece]], None]


def check_installed() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise ClusterError("the demo runs Spark: pip install 'rocketmq-spark[spark,cli]'")


@contextmanager
def session(log: Path) -> Iterator[SparkSession]:
    """A session whose Java process writes to a file of its own, not across our screen."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    # Spark's workers must run this very Python, whatever a user's shell says, and nothing listens
    # beyond this machine.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = SparkConf().setAll(list(_SETTINGS.items()))
    with log.open("wb") as said:
        output = {"stdout": said, "stderr": said}
        try:
            gateway = launch_gateway(settings, output)  # type: ignore[no-untyped-call]
            context = SparkContext(gateway=gateway, conf=settings)
        except PySparkRuntimeError as error:
            words = log.read_text("utf-8", "replace").strip().splitlines()
            raise ClusterError(f"Spark did not start: {(words or [str(error)])[-1]}") from error
    try:
        yield SparkSession(context)
    finally:
        context.stop()


@contextmanager
def counting(
    spark: SparkSession, name_server: str, folder: Path, take: Take
) -> Iterator[StreamingQuery]:
    """Runs the query; after each micro-batch, `take` gets what has changed."""

    def changed(frame: DataFrame, batch: int) -> None:
        take(batch, [_piece(row) for row in frame.collect()])

    query = (
        _counted(spark, name_server)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(changed)
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


def _counted(spark: SparkSession, name_server: str) -> DataFrame:
    """Orders and amounts for each second and tag, and who read them from where.

    The seconds keep each list of numbers short, whatever the length of the run.
    """
    from pyspark.sql import functions as f

    orders = (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", TOPIC)
        .option("startingOffsets", "earliest")
        .option("discoveryInterval", "1s")  # a demo has no 30 s to wait for a new queue
        .load()
    )
    content = f.from_json(f.col("body").cast("string"), "number bigint, cents bigint")
    return (
        orders.withColumn("order", content)
        .groupBy(
            f.window("storeTimestamp", "1 second").alias("second"),
            *("tags", "brokerName", "queueId", "consumerId"),
        )
        .agg(
            f.collect_list("order.number").alias("numbers"),
            f.count("*").alias("orders"),
            f.sum("order.cents").alias("cents"),
        )
    )


def _piece(row: Any) -> Piece:
    return Piece(
        second=row.second.start.timestamp(),
        tag=row.tags,
        queue=MessageQueue(TOPIC, row.brokerName, row.queueId),
        member=row.consumerId,
        numbers=tuple(row.numbers),
        orders=row.orders,
        cents=row.cents,
    )
