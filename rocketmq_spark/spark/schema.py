"""Columns as Spark sees them: the source's, a user's choice of them, and those of the sink."""

from __future__ import annotations

import difflib

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rocketmq_spark.errors import UsageError
from rocketmq_spark.wire.decode import SCHEMA


def own_schema() -> StructType:
    """Every column there is."""
    return from_arrow_schema(SCHEMA)


def chosen_columns(schema: StructType) -> list[str]:
    """The names in `schema`; each must be a column of ours with its type."""
    ours = {field.name: field.dataType for field in own_schema().fields}
    for field in schema.fields:
        own = ours.get(field.name)
        if own is None:
            raise UsageError(
                f"the schema asks for a column {field.name!r}: there are {', '.join(ours)}"
            )
        # As text, for whether a map's values may be null is not the user's to say.
        if own.simpleString() != field.dataType.simpleString():
            raise UsageError(
                f"the schema asks for {field.name} as {field.dataType.simpleString()}: it is "
                f"{own.simpleString()}; read it so and cast it"
            )
    if not schema.fields:
        raise UsageError(f"the schema has no columns: choose some of {', '.join(ours)}")
    return [field.name for field in schema.fields]


# What the sink takes, and as which types.
SINK_COLUMNS = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "keys": ("string",),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "shardingKey": ("string",),
    "queueId": ("int",),
    "brokerName": ("string",),
    "delayLevel": ("int",),
    "deliverAt": ("timestamp", "bigint"),
    "flag": ("int",),
}


def check_sink_columns(schema: StructType, topic: str | None) -> None:
    """Refuse a DataFrame that the sink cannot write; `topic` is the option."""
    given = [field.name for field in schema.fields]
    for field in schema.fields:
        types = SINK_COLUMNS.get(field.name)
        if types is None:
            near = difflib.get_close_matches(field.name, SINK_COLUMNS, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else "drop it, or put it into properties."
            raise UsageError(
                f"column {field.name!r} is none that can be written: {hint} "
                f"There are {', '.join(SINK_COLUMNS)}"
            )
        if given.count(field.name) > 1:
            raise UsageError(f"column {field.name!r} is there twice")
        if field.dataType.simpleString() not in types:
            raise UsageError(
                f"column {field.name} is {field.dataType.simpleString()} and must be "
                f"{' or '.join(types)}: cast it"
            )
    if "body" not in given:
        raise UsageError(f"column body is missing, binary or string: there are {', '.join(given)}")
    if "topic" not in given and topic is None:
        raise UsageError("nowhere to write: set the option topic, or add a column topic")
    if "brokerName" in given and "queueId" not in given:
        raise UsageError("column brokerName needs queueId: together they name a queue")
