"""The source's columns as Spark sees them, and a user's choice of them."""

from __future__ import annotations

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
