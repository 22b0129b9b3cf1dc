"""The vectorised encoder against the plain one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.wire import encode
from rocketmq_spark.wire.message import BatchItem, encode_batch, java_hash

QUICK = settings(derandomize=True, deadline=None, max_examples=100)

TEXT = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]))
ROW = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=40),
        "keys": st.none() | TEXT,
        "properties": st.none() | st.dictionaries(TEXT.filter(bool), st.none() | TEXT, max_size=3),
        "flag": st.integers(-(1 << 31), (1 << 31) - 1),
    }
)
MAP = pa.map_(pa.string(), pa.string())


def plain(row: dict[str, Any], unique: str, number: int) -> BatchItem:
    users = {k: v for k, v in (row["properties"] or {}).items() if v is not None}
    own = {"KEYS": row["keys"]} if row["keys"] else {}
    # A repeated name is written twice, as a dictionary cannot; so user's names are kept apart.
    renamed = {f"u{name}": value for name, value in users.items()}
    properties = {**renamed, **own, "UNIQ_KEY": unique, "ROW": f"q/{number}"}
    return BatchItem(row["body"], properties, row["flag"])


@QUICK
@given(st.lists(ROW, max_size=12), st.integers(0, 3), st.integers(0, 1 << 47))
def test_all_rows_at_once_are_the_same_bytes(
    rows: list[dict[str, Any]], skipped: int, first: int
) -> None:
    maps = [
        None if r["properties"] is None else [(f"u{k}", v) for k, v in r["properties"].items()]
        for r in rows
    ]
    # Slices, for offsets that do not begin at 0 are what Spark and we ourselves make.
    count = max(len(rows) - skipped, 0)
    bodies = pa.array([r["body"] for r in rows], pa.binary()).slice(skipped)
    keys = pa.array([r["keys"] for r in rows], pa.string()).slice(skipped)
    properties = pa.array(maps, MAP).slice(skipped)
    numbers = np.arange(100, 100 + count)
    parts = [
        *encode.property_map(properties),
        *encode.property_column("KEYS", keys),
        *encode.unique_keys("UNIQ_KEY", "AB" * 10, first, count),
        *encode.numbered("ROW", "q/", numbers),
    ]
    flags = np.array([r["flag"] for r in rows], np.int32)[skipped:]
    items = encode.encode_items(bodies, parts, flags)
    expected = [
        plain(row, f"{'AB' * 10}{first + at:012X}", 100 + at)
        for at, row in enumerate(rows[skipped:])
    ]
    assert bytes(items.data[items.starts[0] : items.starts[-1]]) == encode_batch(expected)
    for at, item in enumerate(expected):
        assert bytes(items.slice(at, at + 1)) == encode_batch([item])


@QUICK
@given(st.lists(st.none() | st.text(), max_size=20))
def test_hashes_are_javas(texts: list[str | None]) -> None:
    texts = [None if t is None else t.encode("utf-8", "ignore").decode() for t in texts]
    hashes = encode.java_hashes(pa.array(texts, pa.string()))
    assert hashes.tolist() == [java_hash(text or "") for text in texts]


def test_entries_under_a_null_map_do_not_count() -> None:
    offsets = pa.array([0, 1, 2, 3], pa.int32())
    entries = pa.array(["a", "b", "c"]), pa.array(["1", "2", "3"])
    full = pa.MapArray.from_arrays(offsets, *entries)
    bitmap = pa.py_buffer(bytes([0b101]))
    holed = pa.Array.from_buffers(
        MAP, 3, [bitmap, full.buffers()[1]], children=[full.cast(MAP).values]
    )
    (texts,) = encode.property_map(holed)
    assert texts.to_pylist() == [b"a\x011\x02", b"", b"c\x013\x02"]
