"""The data source `rocketmq`: its name, its columns, and who reads."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from rocketmq_spark.client.metadata import parse_name_servers
from rocketmq_spark.core.options import BATCH, STREAM, SourceOptions, read_options
from rocketmq_spark.core.plan_options import plan_options
from rocketmq_spark.errors import RocketMQError, UsageError
from rocketmq_spark.spark import members
from rocketmq_spark.spark.read import RocketMQBatchReader, RocketMQStreamReader
from rocketmq_spark.spark.schema import chosen_columns, own_schema

log = logging.getLogger(__name__)


class RocketMQDataSource(DataSource):
    """Apache RocketMQ topics as a table that grows.

    >>> spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876") \\
    ...     .option("topic", "orders").load()

    All options are in the README.
    """

    # Where `register` keeps the live executors; empty without it.
    members_file = ""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        try:
            _checked(dict(options), "")
        except RocketMQError as error:
            # Spark shows a user every frame; this one is enough, the sentence says the rest.
            raise type(error)(str(error)) from None

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return own_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _checked(dict(self.options), BATCH)
        return RocketMQBatchReader(options, chosen_columns(schema), self.members_file)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = _checked(dict(self.options), STREAM)
        return RocketMQStreamReader(options, chosen_columns(schema), self.members_file)


def _checked(given: dict[str, str], kind: str) -> SourceOptions:
    """Everything that can be wrong without asking a broker is refused here, with the reason."""
    options = read_options(given, kind)
    try:
        parse_name_servers(options.name_server)
    except UsageError as error:
        raise UsageError(f"option nameServer: {error}") from error
    members.check(options.executors)
    plan_options(options)
    return options


def register(spark: Any) -> None:
    """Let the planner of this session follow the live executors.

    Not needed to find the source: it makes `executors=auto` exact. Only a classic session knows
    its executors; through Spark Connect it registers the source and no more.
    """
    source: type[RocketMQDataSource] = RocketMQDataSource
    watcher = None
    try:
        spark.sparkContext  # noqa: B018 - a Connect session raises here
    except Exception:
        pass
    else:
        watcher = members.Watcher(lambda: members.live_executors(spark))
        source = type("RocketMQDataSource", (RocketMQDataSource,), {"members_file": watcher.file})
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if watcher is not None:
            watcher.close()
        # Spark 4.0 keeps to the source that it has found by itself (mended by SPARK-51919).
        if error.getErrorClass() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        log.warning(
            "this Spark cannot follow its live executors for a source that it has found by itself; "
            "set the option executors to a number of slots or to group, or use Spark 4.1 or later"
        )
