"""The source's columns as Spark sees them, and a user's choice of them."""

from __future__ import annotations

from pyspark.sql.types import DataType, StructType

from rocketmq_spark.errors import UsageError

# Spark's words for wire.columns.SCHEMA, which a test holds against it.
COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, keys string, "
    "tags string, body binary, properties map<string,string>, bornTimestamp timestamp, "
    "storeTimestamp timestamp, bornHost string, storeHost string, reconsumeTimes int, flag int, "
    "sysFlag int, consumerId string"
)


def chosen_columns(schema: StructType) -> list[str]:
    """The names in `schema`; each must be a column of ours with its type."""
    ours = {field.name: field.dataType for field in _own_schema().fields}
    for field in schema.fields:
        own = ours.get(field.name)
        if own is None:
            raise UsageError(
                f"the schema asks for a column {field.name!r}: there are {', '.join(ours)}"
            )
        if not _same(own, field.dataType):
            raise UsageError(
                f"the schema asks for {field.name} as {field.dataType.simpleString()}: it is "
                f"{own.simpleString()}; read it so and cast it"
            )
    if not schema.fields:
        raise UsageError(f"the schema has no columns: choose some of {', '.join(ours)}")
    return [field.name for field in schema.fields]


def _own_schema() -> StructType:
    return StructType.fromDDL(COLUMNS)


def _same(own: DataType, asked: DataType) -> bool:
    # As text, for whether a map's values may be null is not the user's to say.
    return own.simpleString() == asked.simpleString()
