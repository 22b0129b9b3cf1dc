"""Exactly once through a crash: a batch is sent twice, and every order still counts once.

    python examples/exactly_once.py

orders -> sink -> received (with copies, after a crash) -> dropDuplicates -> sink -> clean
"""

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

# Spark starts its workers with this; without it they would run whatever python3 is on the PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import DataFrame, SparkSession

from rocketmq_spark import Client, LocalCluster, Message

ORDERS = 1000
TOPICS = ("example_placed", "example_received", "example_clean")
PLACED, RECEIVED, CLEAN = TOPICS


class Pipeline:
    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self.spark, self.address, self.folder = spark, address, folder

    def read(self, topic: str) -> DataFrame:
        reader = self.spark.readStream.format("rocketmq").option("nameServer", self.address)
        return reader.option("topic", topic).option("startingOffsets", "earliest").load()

    def write(self, frame: DataFrame, topic: str) -> None:
        """Send all that is there now."""
        query = (
            frame.writeStream.format("rocketmq")
            .option("nameServer", self.address)
            .option("topic", topic)
            .option("checkpointLocation", str(self.folder / topic))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def forget_last_commit(self, topic: str) -> None:
        """As if the driver had died after the last rows were sent and before it noted that."""
        commits = self.folder / topic / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (commits / name).unlink(missing_ok=True)


def wait_for(client: Client, topic: str, count: int) -> None:
    """A broker acknowledges a message a moment before it can be read."""
    while sum(high for _, high in client.topic_offsets(topic).values()) < count:
        time.sleep(0.05)


def main() -> None:
    with ExitStack() as stack:
        address = os.environ.get("ROCKETMQ_SPARK_NAMESRV")
        if not address:
            address = stack.enter_context(LocalCluster()).name_server
        client = stack.enter_context(Client(address, timeout=15))
        for topic in TOPICS:
            client.create_topic(topic, queues=2)
            stack.callback(client.delete_topic, topic)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = spark.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        pipeline = Pipeline(spark, address, folder)

        client.send(PLACED, [Message(f"order {n}", keys=f"order-{n}") for n in range(ORDERS)])
        wait_for(client, PLACED, ORDERS)

        orders = pipeline.read(PLACED).select("body", "keys")
        pipeline.write(orders, RECEIVED)
        pipeline.forget_last_commit(RECEIVED)
        pipeline.write(orders, RECEIVED)  # the same batch again, with the same row keys
        wait_for(client, RECEIVED, 2 * ORDERS)
        print(f"{ORDERS} orders placed, {2 * ORDERS} received: a batch was sent twice")

        received = pipeline.read(RECEIVED).selectExpr(
            "body", "keys", "properties['SPARK_ROW'] AS rowKey"
        )
        pipeline.write(received.dropDuplicates(["rowKey"]).drop("rowKey"), CLEAN)
        wait_for(client, CLEAN, ORDERS)

        clean = spark.read.format("rocketmq").option("nameServer", address).option("topic", CLEAN)
        rows = clean.load().select("keys").collect()
        print(f"{len(rows)} clean, {len({row['keys'] for row in rows})} of them different")


if __name__ == "__main__":
    main()
