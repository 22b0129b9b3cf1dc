"""A scheduled job: what has come to a topic since the last run, into Parquet, a folder a day.

It reads what is there when it starts (Trigger.AvailableNow), in bounded batches, and ends. Its
place in the topic is in the checkpoint folder, so a run that failed is made up for by the next
one, and no message is written twice. In a crontab, every night at three, never two at once:

ROCKETMQ_SPARK_NAMESRV=mq:9876
0 3 * * * cd /data && flock -n lock python daily_job.py --topic orders --output rows --checkpoint at

Exit codes: 0 done, 1 the query failed (the reason is on stderr), 2 wrong arguments.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Append new messages of a topic to Parquet files.")
    address = os.environ.get("ROCKETMQ_SPARK_NAMESRV")
    parser.add_argument(
        "--name-server",
        default=address,
        required=not address,
        help="host:port; several separated by ';'; ROCKETMQ_SPARK_NAMESRV names it too",
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("--tags", default="*", help="only these: 'new || paid'")
    parser.add_argument("--output", required=True, help="folder of the Parquet files")
    parser.add_argument("--checkpoint", required=True, help="folder that remembers the place")
    parser.add_argument("--batch", type=int, default=1_000_000, help="most messages in one batch")
    return parser.parse_args(given)


def run(spark: SparkSession, job: argparse.Namespace) -> int:
    """The exit code."""
    try:
        messages = (
            spark.readStream.format("rocketmq")
            .option("nameServer", job.name_server)
            .option("topic", job.topic)
            .option("subExpression", job.tags)
            .option("startingOffsets", "earliest")  # of the very first run; then the checkpoint
            .option("maxOffsetsPerTrigger", job.batch)
            .load()
        )
        query = (
            messages.selectExpr(
                "to_date(storeTimestamp) AS day",
                "storeTimestamp",
                "tags",
                "keys",
                "cast(body AS string) AS body",
            )
            .writeStream.partitionBy("day")
            .option("checkpointLocation", job.checkpoint)
            .trigger(availableNow=True)
            .format("parquet")
            .start(job.output)
        )
        query.awaitTermination()
    except PySparkException as error:
        print(f"daily_job: {reason(error)}", file=sys.stderr)
        return 1
    count = sum(progress["numInputRows"] for progress in query.recentProgress)
    print(f"{count} new messages of {job.topic}")
    return 0


def reason(error: PySparkException) -> str:
    """The sentence below Spark's traces: the last line that names an error of the source."""
    lines = str(error).splitlines()
    ours = [line for line in lines if line.startswith("rocketmq_spark.errors.")]
    return ours[-1].partition(": ")[2] if ours else lines[0]


if __name__ == "__main__":
    job = arguments()
    session = (
        SparkSession.builder.appName(f"daily {job.topic}")
        # Spark remembers a hundred batches unless told otherwise, and we count them all.
        .config("spark.sql.streaming.numRecentProgressUpdates", 10_000)
        .getOrCreate()
    )
    code = run(session, job)
    session.stop()
    sys.exit(code)
