"""The columns a message becomes, and how each is made from a table of positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_spark.wire.message import host_text
from rocketmq_spark.wire.records import Rows
from rocketmq_spark.wire.spans import Ints, laid_over, numbers, packed, steps

_MOMENT = pa.timestamp("us", tz="UTC")

# Exactly what PySpark makes of the same columns written as DDL: it compares the first batch of
# a task strictly, down to which fields may be null.
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("msgId", pa.string()),
        ("keys", pa.string()),
        ("tags", pa.string()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("bornTimestamp", _MOMENT),
        ("storeTimestamp", _MOMENT),
        ("bornHost", pa.string()),
        ("storeHost", pa.string()),
        ("reconsumeTimes", pa.int32()),
        ("flag", pa.int32()),
        ("sysFlag", pa.int32()),
        ("consumerId", pa.string()),
    ]
)

# The fields of the stored prefix that a column is made from, beside the queue offset.
FIELDS: dict[str, tuple[str, ...]] = {
    "msgId": ("store_host", "physical_offset"),
    "bornTimestamp": ("born_timestamp",),
    "storeTimestamp": ("store_timestamp",),
    "bornHost": ("born_host",),
    "storeHost": ("store_host",),
    "reconsumeTimes": ("reconsume_times",),
    "flag": ("flag",),
    "sysFlag": ("sys_flag",),
}

# Columns that come out of the properties.
FROM_PROPERTIES = frozenset({"msgId", "keys", "tags", "properties"})

_MAX_MILLIS = (2**63 - 1) // 1000


def timestamps(millis: Ints) -> Any:
    """Milliseconds as Spark's timestamps; null where it has no number for the moment."""
    micros = millis * 1000
    if len(millis) and (millis.max() > _MAX_MILLIS or millis.min() < -_MAX_MILLIS):
        outside = (millis > _MAX_MILLIS) | (millis < -_MAX_MILLIS)
        return numbers(micros, _MOMENT, ~outside)
    return numbers(micros, _MOMENT)


class Repeated:
    """Columns of one value, for batch after batch: slices of one array, made as long as needed."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, Any]] = {}

    def column(self, name: str, value: Any, rows: int) -> Any:
        made = self._made.get(name)
        if made is None or made[0] != value or len(made[1]) < rows:
            made = value, _repeat(value, SCHEMA.field(name).type, rows)
            self._made[name] = made
        return made[1].slice(0, rows)


def _repeat(value: str | int | None, kind: Any, rows: int) -> Any:
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, int):
        return numbers(np.full(rows, value, np.int32), kind)
    text = value.encode()
    return laid_over(np.frombuffer(text * rows, np.uint8), steps(rows, len(text)), kind)


def hosts(rows: Rows, name: str, repeated: Repeated) -> Any:
    """The text of each row's address."""
    field = FIELDS[name][0]
    addresses = rows.hosts[field]
    if len(addresses) == 1:
        return repeated.column(name, host_text(addresses[0]), len(rows))
    texts = [host_text(each).encode() for each in addresses]
    return packed(texts, pa.string()).take(numbers(rows.fields[field], pa.int32()))


def message_ids(rows: Rows, unique: Any) -> Any:
    """The producers' ids, and where there is none, the id made of broker and commit-log offset."""
    if not unique.null_count:
        return unique
    brokers = [address.hex().upper().encode() for address in rows.hosts["store_host"]]
    made = pc.binary_join_element_wise(
        packed(brokers, pa.string()).take(numbers(rows.fields["store_host"], pa.int32())),
        _hexadecimal(rows.fields["physical_offset"]),
        _repeat("", pa.string(), len(rows)),
    )
    return pc.coalesce(unique, made)


_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)


def _hexadecimal(values: Ints) -> Any:
    """Each as sixteen digits."""
    digits = _HEX[values.astype(">i8").view(np.uint8)]
    offsets = np.arange(0, 16 * len(values) + 1, 16, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)
