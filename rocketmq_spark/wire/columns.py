"""The columns a message becomes, and how each is made from a table of positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_spark.wire.message import host_text
from rocketmq_spark.wire.records import Rows
from rocketmq_spark.wire.spans import Ints

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
        ("bornTimestamp", pa.timestamp("us", tz="UTC")),
        ("storeTimestamp", pa.timestamp("us", tz="UTC")),
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
    outside = (millis > _MAX_MILLIS) | (millis < -_MAX_MILLIS)
    micros = millis * 1000
    mask = outside if outside.any() else None
    return pa.array(micros, pa.int64(), mask=mask).view(pa.timestamp("us", tz="UTC"))


def hosts(rows: Rows, field: str) -> Any:
    """The text of each row's address."""
    texts = pa.array([host_text(packed) for packed in rows.hosts[field]], pa.string())
    if len(texts) == 1:
        return pa.repeat(texts[0], len(rows))
    return texts.take(pa.array(rows.fields[field]))


def message_ids(rows: Rows, unique: Any) -> Any:
    """The producers' ids, and where there is none, the id made of broker and commit-log offset."""
    if not unique.null_count:
        return unique
    brokers = pa.array([packed.hex().upper() for packed in rows.hosts["store_host"]], pa.string())
    made = pc.binary_join_element_wise(
        brokers.take(pa.array(rows.fields["store_host"])),
        _hexadecimal(rows.fields["physical_offset"]),
        "",
    )
    return pc.coalesce(unique, made)


_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)


def _hexadecimal(numbers: Ints) -> Any:
    """Each as sixteen digits."""
    digits = _HEX[numbers.astype(">i8").view(np.uint8)]
    offsets = np.arange(0, 16 * len(numbers) + 1, 16, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers)
