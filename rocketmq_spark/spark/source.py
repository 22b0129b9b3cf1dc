"""The data source `rocketmq`: its name, its columns, who reads and who writes."""

from __future__ import annotations

import logging
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from rocketmq_spark.client.metadata import parse_name_servers
from rocketmq_spark.core.declare import declared
from rocketmq_spark.core.options import BATCH, STREAM, SourceOptions, read_options
from rocketmq_spark.core.plan_options import plan_options
from rocketmq_spark.core.sink_options import NATIVE, SinkOptions, read_sink_options
from rocketmq_spark.errors import RocketMQError, UsageError
from rocketmq_spark.spark import members, native
from rocketmq_spark.spark.read import RocketMQBatchReader, RocketMQStreamReader
from rocketmq_spark.spark.schema import check_sink_columns, chosen_columns, own_schema
from rocketmq_spark.spark.write import RocketMQBatchWriter, RocketMQStreamWriter

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
        # Spark does not say yet whether this will read or write.
        try:
            _checked(self._given(), "")
        except RocketMQError as error:
            try:
                _checked_sink(self._given(), "")
            except RocketMQError as sink_error:
                writes = _fits(SinkOptions, self._given()) > _fits(SourceOptions, self._given())
                raise _short(sink_error if writes else error) from None

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        try:
            _checked(self._given(), "")  # only a reader is asked this
        except RocketMQError as error:
            raise _short(error) from None
        return own_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _checked(self._given(), BATCH)
        return RocketMQBatchReader(options, chosen_columns(schema), self.members_file)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = _checked(self._given(), STREAM)
        return RocketMQStreamReader(options, chosen_columns(schema), self.members_file)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = self._sink(schema, overwrite, BATCH)
        return RocketMQBatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        options = self._sink(schema, overwrite, STREAM)
        return RocketMQStreamWriter(options, schema)

    def _sink(self, schema: StructType, overwrite: bool, kind: str) -> SinkOptions:
        try:
            options = _checked_sink(self._given(), kind)
            if overwrite:
                raise UsageError("a topic cannot be overwritten: write with mode append")
            check_sink_columns(schema, options.topic)
            if options.client == NATIVE:
                native.check(options, schema.fieldNames())
        except RocketMQError as error:
            raise _short(error) from None
        return options

    def _given(self) -> dict[str, str]:
        # Spark hands its own option over with ours.
        return {k: v for k, v in self.options.items() if k.lower() != "checkpointlocation"}


def _short(error: RocketMQError) -> RocketMQError:
    """Spark shows a user every frame; one is enough, the sentence says the rest."""
    return type(error)(str(error))


def _fits(table: type[Any], given: dict[str, str]) -> int:
    """How many of the options are in this table."""
    names = {row.name.lower() for row in declared(table)}
    return len(names & {name.lower() for name in given})


def _checked_sink(given: dict[str, str], kind: str) -> SinkOptions:
    options = read_sink_options(given, kind)
    _check_name_server(options.name_server)
    return options


def _check_name_server(name_server: str) -> None:
    try:
        parse_name_servers(name_server)
    except UsageError as error:
        raise UsageError(f"option nameServer: {error}") from error


def _checked(given: dict[str, str], kind: str) -> SourceOptions:
    """Everything that can be wrong without asking a broker is refused here, with the reason."""
    options = read_options(given, kind)
    _check_name_server(options.name_server)
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
