"""The vectorised decoder against the plain one, for anything that can be stored or broken."""

from __future__ import annotations

import importlib.util
import inspect
import json
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketmq_spark.errors import BodyError, MessageFormatError, UsageError
from rocketmq_spark.wire.compression import COMPRESSED, SYS_FLAGS
from rocketmq_spark.wire.decode import SCHEMA, Decoder
from rocketmq_spark.wire.message import (
    INNER_BATCH,
    MAGIC_V1,
    MAGIC_V2,
    NEED_UNWRAP,
    UNWRAP,
    BatchItem,
    StoredMessage,
    decode_messages,
    encode_batch,
    encode_message,
)

QUICK = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

MICROS = 2**63 // 1000

GOOD = StoredMessage(topic="T", queue_offset=7, body=b"hello", properties={"k": "v"})


def decoder(columns: list[str] | None = None, consumer_id: str = "10.0.0.7@3#0") -> Decoder:
    return Decoder(columns, topic="orders", broker_name="b-a", queue_id=9, consumer_id=consumer_id)


def expected_row(message: StoredMessage, delta: int = 0) -> dict[str, Any]:
    """What the plain codec's message is in the columns, by the words of the schema alone."""

    def micros(millis: int) -> int | None:
        return millis * 1000 if -MICROS < millis < MICROS else None

    return {
        "topic": "orders",
        "brokerName": "b-a",
        "queueId": 9,
        "queueOffset": message.queue_offset + delta,
        "msgId": message.msg_id,
        "keys": message.keys,
        "tags": message.tags,
        "body": message.body,
        "properties": message.properties,
        "bornTimestamp": micros(message.born_timestamp),
        "storeTimestamp": micros(message.store_timestamp),
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "consumerId": "10.0.0.7@3#0",
    }


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The batch as rows; a map as a dict, which a repeated name must not shorten."""
    batch.validate(full=True)
    columns: dict[str, list[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            column = column.view(pa.int64())  # moments beyond the year 9999 included
        columns[name] = column.to_pylist()
        if name == "properties":
            pairs = columns[name]
            columns[name] = [dict(row) for row in pairs]
            assert [len(row) for row in pairs] == [len(row) for row in columns[name]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# --- anything that can be stored --------------------------------------------------------------

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**62), 2**62)
MILLIS = st.one_of(st.integers(0, 2**42), st.integers(-(2**63), 2**63 - 1))
HOST = st.builds(
    lambda address, port: f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}",
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=4), st.ip_addresses(v=6)),
    st.integers(0, 65535),
)
NAME = st.one_of(
    st.sampled_from(
        ["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "KEYS2", "TAG", "__SHARDINGKEY"]
    ),
    st.text("ab中\x00", min_size=1, max_size=20),
)
VALUE = st.one_of(st.text("xyz 文é\x00", min_size=1, max_size=12), st.text("v\x01", min_size=1))
PAIRS = st.lists(st.tuples(NAME, VALUE), max_size=6)
# Repeated names, empty names and values, no separators, missing ends, no UTF-8.
RAW_PROPERTIES = st.one_of(
    PAIRS.map(lambda pairs: "".join(f"{n}\x01{v}\x02" for n, v in pairs).encode()),
    PAIRS.map(lambda pairs: "\x02".join(f"{n}\x01{v}" for n, v in pairs * 2).encode()),
    st.lists(
        st.sampled_from(
            [
                b"\x01",
                b"\x02",
                b"a",
                b"KEYS",
                b"TAGS",
                b"UNIQ_KEY",
                b"\xe4",
                b"\xb8",
                b"\xad",
                b"\xed\xa0",
            ]
        ),
        max_size=40,
    ).map(b"".join),
    st.binary(max_size=30),
)
ITEMS = st.lists(st.builds(BatchItem, st.binary(max_size=20), PAIRS.map(dict), INT), max_size=4)
KINDS = [0, COMPRESSED, *(COMPRESSED | bits for bits in SYS_FLAGS.values())]


@st.composite
def records(draw: st.DrawFn) -> bytes:
    sys_flag = draw(st.sampled_from([0, 0, 0, *KINDS])) | draw(
        st.sampled_from([0, 0, 0, 0, 0x8, NEED_UNWRAP, INNER_BATCH, UNWRAP, UNWRAP])
    )
    inner = sys_flag & UNWRAP == UNWRAP
    message = StoredMessage(
        topic=draw(st.text("tT中", max_size=40)),
        queue_id=draw(INT),
        queue_offset=draw(st.one_of(st.integers(0, 20), LONG)),
        physical_offset=draw(st.integers(-(2**63), 2**63 - 1)),
        flag=draw(INT),
        sys_flag=sys_flag,
        born_timestamp=draw(MILLIS),
        born_host=draw(HOST),
        store_timestamp=draw(MILLIS),
        store_host=draw(HOST),
        reconsume_times=draw(INT),
        prepared_transaction_offset=draw(LONG),
        body=encode_batch(draw(ITEMS)) if inner else draw(st.binary(max_size=40)),
    )
    return encode_message(
        message,
        magic=draw(
            st.sampled_from([MAGIC_V1, MAGIC_V2])
            if len(message.topic.encode()) < 128
            else st.just(MAGIC_V2)
        ),
        properties=draw(RAW_PROPERTIES),
    )


PULLS = st.lists(records(), max_size=6)


@QUICK
@given(PULLS)
def test_all_columns_equal_the_plain_decoder(pull: list[bytes]) -> None:
    raw = b"".join(pull)
    batch = decoder().decode(raw)
    assert batch.schema.equals(SCHEMA, check_metadata=True)
    assert rows_of(batch) == [expected_row(message) for message in decode_messages(raw)]


@QUICK
@given(
    PULLS,
    st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True),
    st.one_of(st.none(), st.integers(-5, 25)),
    st.one_of(st.none(), st.integers(-5, 25)),
    st.integers(-10, 10),
    st.one_of(st.none(), st.frozensets(VALUE, max_size=3), st.just(frozenset({"x"}))),
)
def test_any_columns_range_and_tags(
    pull: list[bytes],
    columns: list[str],
    start: int | None,
    end: int | None,
    delta: int,
    tags: frozenset[str] | None,
) -> None:
    raw = b"".join(pull)
    batch = decoder(columns).decode(raw, start=start, end=end, offset_delta=delta, tags=tags)
    assert batch.schema.names == columns
    wanted = [
        expected_row(message, delta)
        for message in decode_messages(raw)
        if (start is None or message.queue_offset + delta >= start)
        and (end is None or message.queue_offset + delta < end)
        and (tags is None or message.tags in tags)
    ]
    assert rows_of(batch) == [{name: row[name] for name in columns} for row in wanted]


# --- messages that are alike ------------------------------------------------------------------


def alike(number: int, **changes: Any) -> bytes:
    """What one producer writes by the million: one layout, values of one length."""
    properties = {"UNIQ_KEY": f"7F0001{number:026X}", "KEYS": f"order-{number:04}", "TAGS": "TagA"}
    message = replace(
        GOOD,
        queue_offset=number,
        physical_offset=4711 * number,
        born_timestamp=1_700_000_000_000 + number,
        body=f"body {number:05}".encode(),
        properties=properties,
    )
    return encode_message(replace(message, **changes.pop("message", {})), **changes)


def odd(keys: bytes, first: bytes = b"UNIQ_KEY", last: bytes = b"TAGS\x01TagA\x02") -> bytes:
    """As long as the others, and different in its properties."""
    return alike(
        9, properties=first + b"\x01" + b"7" * 32 + b"\x02KEYS\x01" + keys + b"\x02" + last
    )


DEVIANTS: dict[str, bytes] = {
    "a longer body": alike(9, message={"body": b"x" * 50}),
    "another host": alike(9, message={"born_host": "10.9.9.9:1"}),
    "an IPv6 host": alike(9, message={"born_host": "[::1]:5"}),
    "no properties": alike(9, message={"properties": {}}),
    "another name": odd(b"order-0009", first=b"UNIQ_KEx"),
    "other widths": odd(b"order-00010", last=b"TAG\x01TagA\x02"),
    "a separator in a value": odd(b"order\x010009"),
    "one property more": odd(b"orde\x02a\x010009"),
    "an empty value": odd(b"\x02rder-0009"),
    "no last separator": odd(b"order-0009", last=b"TAGS\x01TagA+"),
    "text beyond ASCII": odd("ord中0009".encode()),
    "broken UTF-8": odd(b"order-\xe4009"),
    "a NUL": odd(b"order-\x00009"),
    "a compressed body": alike(
        9, message={"sys_flag": COMPRESSED | SYS_FLAGS["zlib"], "body": b"z" * 90}
    ),
}


@pytest.mark.parametrize("deviant", DEVIANTS.values(), ids=DEVIANTS)
@pytest.mark.parametrize("place", [0, 7, 15])
def test_one_of_many_is_not_alike(deviant: bytes, place: int) -> None:
    pull = [alike(number) for number in range(16)]
    pull[place] = deviant
    raw = b"".join(pull)
    assert rows_of(decoder().decode(raw)) == [expected_row(m) for m in decode_messages(raw)]


@pytest.mark.parametrize(
    "properties",
    [
        b"a\x01b\x02a\x01c\x02",
        b"KEYS\x01x\x02",
        b"\x01b\x02",
        b"a\x01b",
        b"a\x01\x01b\x02",
        "ключ\x01b\x02".encode(),
        b"",
    ],
)
def test_all_of_them_are_alike_and_odd(properties: bytes) -> None:
    raw = b"".join(alike(number, properties=properties) for number in range(5))
    assert rows_of(decoder().decode(raw)) == [expected_row(m) for m in decode_messages(raw)]


@pytest.mark.parametrize("kept", [0, 100, 256])
def test_names_of_like_properties_kept_or_not(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_spark.wire.like_properties._KEPT_BYTES", kept)
    for count in (9, 3):
        raw = b"".join(alike(number) for number in range(count))
        assert rows_of(decoder().decode(raw)) == [expected_row(m) for m in decode_messages(raw)]


@pytest.mark.parametrize("changes", [1, 7, 8, 20])
def test_stretches_of_messages_that_are_alike(
    changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter gets more digits, or another producer writes other properties for a while."""
    kinds = [{"KEYS": "7"}, {"KEYS": "10", "TAGS": "TagA"}, {"UNIQ_KEY": "5" * 32}]
    raw = b"".join(
        alike(3 * turn + number, message={"properties": kinds[turn % 3]})
        for turn in range(changes + 1)
        for number in range(3)
    )
    assert rows_of(decoder().decode(raw)) == [expected_row(m) for m in decode_messages(raw)]
    # Only where there are many stretches is it not all done with matrices.
    monkeypatch.setattr("rocketmq_spark.wire.decode.PropertyTable", None)
    with pytest.raises(TypeError) if changes > 7 else nullcontext():
        decoder(["properties"]).decode(raw)
    monkeypatch.undo()
    few = decoder(["keys", "queueOffset"]).decode(raw, tags=frozenset(["TagA"]))
    assert {row["keys"] for row in rows_of(few)} == {"10"}


@pytest.mark.parametrize("deviant", [b"", *DEVIANTS.values()], ids=["none", *DEVIANTS])
def test_parts_of_a_buffer_in_another_order(deviant: bytes) -> None:
    """As answers lie where they were received: with headers between them, and overtaken."""
    parts = [b"".join(alike(number) for number in range(at, at + 4)) for at in (0, 4, 8, 12)]
    parts[2] += deviant
    memory, spans = bytearray(b"header"), {}
    for number in (2, 0, 3, 1):
        spans[number] = (len(memory), len(memory) + len(parts[number]))
        memory += parts[number] + b"the next header" * number
    given_parts = [spans[number] for number in range(4)]
    batches = decoder().batches(memoryview(memory), parts=given_parts)
    rows = [row for batch in batches for row in rows_of(batch)]
    assert rows == [expected_row(m) for m in decode_messages(b"".join(parts))]


@pytest.mark.parametrize("sizes", [(0, 40_000, 9_000), (0, 8191, 16_384 + 1), (0, 8191, 16_384)])
def test_long_bodies_of_different_lengths(sizes: tuple[int, ...]) -> None:
    pull = [alike(n, message={"body": bytes([n]) * size}) for n, size in enumerate(sizes)]
    memory = memoryview(b"".join(reversed(pull)))
    ends = np.cumsum([len(each) for each in reversed(pull)])[::-1]
    parts = [(int(end) - len(each), int(end)) for each, end in zip(pull, ends, strict=True)]
    [batch] = decoder().batches(memory, parts=parts)
    assert rows_of(batch) == [expected_row(m) for m in decode_messages(b"".join(pull))]


@pytest.mark.parametrize("sys_flag", [0, COMPRESSED | SYS_FLAGS["zlib"]])
def test_very_many_properties_make_several_batches(
    sys_flag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_spark.wire.decode._MOST_PROPERTIES", 1000)
    raw = b"".join(alike(number, message={"sys_flag": sys_flag}) for number in range(40))
    rows = [expected_row(m) for m in decode_messages(raw)]
    batches = list(decoder().batches(raw, max_unpacked=10**9))
    assert [row for batch in batches for row in rows_of(batch)] == rows
    # Each message has 68 bytes of properties, and counts for 48 more.
    assert [batch.num_rows for batch in batches] == [8, 9, 8, 9, 6]
    assert rows_of(decoder().decode(raw)) == rows


@pytest.mark.parametrize("sys_flag", [UNWRAP, UNWRAP | COMPRESSED | SYS_FLAGS["zlib"]])
def test_very_many_items_of_inner_batches_make_several_batches(
    sys_flag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of four items, and two that are no batch: in runs of ten, or one record more."""
    monkeypatch.setattr("rocketmq_spark.wire.decode._MOST_ROWS", 10)
    body = encode_batch([BatchItem(b"item %d" % number) for number in range(4)])
    inner = [
        encode_message(StoredMessage("T", 0, 4 * number, sys_flag=sys_flag, body=body))
        for number in range(9)
    ]
    raw = b"".join([*inner[:2], alike(8), alike(9), *inner[3:]])
    rows = [expected_row(m) for m in decode_messages(raw)]
    assert len(rows) == 34
    batches = list(decoder().batches(raw, start=2, end=35, max_unpacked=10**9))
    assert [row for batch in batches for row in rows_of(batch)] == rows[2:-1]
    assert [batch.num_rows for batch in batches] == [8, 12, 11]
    assert rows_of(decoder().decode(raw)) == rows


def decode_all_kinds() -> None:
    late = alike(9, message={"born_timestamp": 2**63 - 1})
    usual = [alike(number) for number in range(5)]
    for raw in (b"".join(usual), b"".join([*usual, late, *DEVIANTS.values()])):
        decoder().decode(raw)
        decoder().decode(raw, tags=frozenset(["TagB"]))


def test_decoding_does_not_load_pandas() -> None:
    """It would cost each reader 45 MB; asked in an interpreter of its own, as Spark may load it."""
    assert importlib.util.find_spec("pandas")
    work = f"from {__name__} import decode_all_kinds; decode_all_kinds()"
    code = f"{work}; import sys; print('pandas' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "False\n", run.stderr


@QUICK
@given(st.lists(st.lists(records(), max_size=3), max_size=5), st.randoms(use_true_random=False))
def test_any_parts_in_any_order(pull: list[list[bytes]], dice: random.Random) -> None:
    pieces = [b"".join(piece) for piece in pull]
    places = list(range(len(pieces)))
    dice.shuffle(places)
    memory, spans = bytearray(), dict[int, tuple[int, int]]()
    for number in places:
        memory += dice.randbytes(dice.randrange(30))
        spans[number] = (len(memory), len(memory) + len(pieces[number]))
        memory += pieces[number]
    parts = [spans[number] for number in range(len(pieces))]
    batches = decoder().batches(memoryview(memory), parts=parts)
    rows = [row for batch in batches for row in rows_of(batch)]
    assert rows == [expected_row(m) for m in decode_messages(b"".join(pieces))]


def test_a_part_that_ends_within_a_message_is_refused() -> None:
    raw = alike(1) + alike(2)
    with pytest.raises(MessageFormatError):
        list(decoder().batches(raw, parts=[(0, len(raw) - 3)]))
    with pytest.raises(MessageFormatError):
        list(decoder().batches(raw, parts=[(0, len(raw) // 2), (len(raw) // 2, len(raw) // 2 + 9)]))


# --- anything that can be broken --------------------------------------------------------------


def plainly(raw: bytes | bytearray) -> list[dict[str, Any]]:
    return [expected_row(message) for message in decode_messages(raw, decoder().where)]


def vectorised(raw: bytes | bytearray) -> list[dict[str, Any]]:
    return rows_of(decoder().decode(raw))


def outcome(
    read: Callable[[bytes | bytearray], list[dict[str, Any]]], raw: bytes | bytearray
) -> list[dict[str, Any]] | None:
    try:
        rows = read(raw)
    except MessageFormatError as problem:
        assert "orders/b-a/9" in str(problem)
        return None
    return rows


def wrapped(row: dict[str, Any]) -> dict[str, Any]:
    """Offsets as 64-bit numbers: a broken record may count its batch beyond them."""
    return {**row, "queueOffset": (row["queueOffset"] + 2**63) % 2**64 - 2**63}


@QUICK
@given(PULLS.filter(bool), st.randoms(use_true_random=False))
def test_broken_bytes_read_the_same_or_are_refused_by_both(
    pull: list[bytes], dice: random.Random
) -> None:
    whole = bytearray(b"".join(pull))
    for _ in range(8):
        raw = bytearray(whole)
        for _ in range(dice.randrange(3)):
            raw[dice.randrange(len(raw))] = dice.choice(
                [0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)]
            )
        if dice.random() < 0.3:
            del raw[dice.randrange(len(raw) + 1) :]
        plain = outcome(plainly, raw)
        fast = outcome(vectorised, raw)
        assert fast == (None if plain is None else [wrapped(row) for row in plain])


def test_each_byte_broken_and_every_truncation() -> None:
    item = BatchItem(b"b", {"k": "v"})
    whole = (
        encode_message(replace(GOOD, sys_flag=UNWRAP, body=encode_batch([item])))
        # A topic of -2 bytes would find its properties' length, 0x00FE, within this record.
        + encode_message(replace(GOOD, body=b"hello\x00", properties={"k": "v" * 260}))
        + encode_message(GOOD, magic=MAGIC_V2)
    )
    for position in range(len(whole)):
        if whole[position - 20 : position] == b"v" * 20:
            continue
        for value in (0x00, 0x02, 0x7F, 0xFE):
            raw = bytearray(whole)
            raw[position] = value
            assert outcome(vectorised, raw) == outcome(plainly, raw), (position, value)
        assert outcome(vectorised, whole[:position]) == outcome(plainly, whole[:position])


@settings(QUICK, max_examples=100)
@given(st.binary(max_size=300))
def test_garbage_is_refused(raw: bytes) -> None:
    assert outcome(vectorised, raw) == outcome(plainly, raw)


# --- by example -------------------------------------------------------------------------------

JAVA = Path(__file__).parent.parent / "data" / "java_messages.jsonl"


def test_all_of_javas_records_at_once() -> None:
    raw = b"".join(
        bytes.fromhex(json.loads(line)["record"]) for line in JAVA.read_text().splitlines()
    )
    # test_message.py holds the plain decoder against what Java read out of them.
    assert rows_of(decoder().decode(raw)) == [expected_row(m) for m in decode_messages(raw)]


def test_schema_is_what_spark_makes_of_the_ddl() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    conversion = pytest.importorskip("pyspark.sql.pandas.types")
    text, number = types.StringType(), types.IntegerType()
    kinds = {
        "queueId": number,
        "queueOffset": types.LongType(),
        "body": types.BinaryType(),
        "properties": types.MapType(text, text),
        "bornTimestamp": types.TimestampType(),
        "storeTimestamp": types.TimestampType(),
        "reconsumeTimes": number,
        "flag": number,
        "sysFlag": number,
    }
    spark = types.StructType([types.StructField(n, kinds.get(n, text)) for n in SCHEMA.names])
    accepts = inspect.signature(conversion.to_arrow_schema).parameters
    zone = {"timezone": "UTC"} if "timezone" in accepts else {}
    made = conversion.to_arrow_schema(spark, **zone)
    assert SCHEMA.equals(made, check_metadata=True)
    assert SCHEMA.field("properties").type.item_field.nullable


@pytest.mark.parametrize("columns", [None, ["properties"], ["body", "queueOffset"]])
def test_nothing_in_nothing_out(columns: list[str] | None) -> None:
    batch = decoder(columns).decode(b"")
    assert batch.num_rows == 0
    assert batch.schema.names == (columns or SCHEMA.names)
    assert decoder(columns).decode(encode_message(GOOD), start=8).num_rows == 0


def test_unknown_columns() -> None:
    with pytest.raises(UsageError, match="no column 'offset': there are topic, brokerName"):
        decoder(["body", "offset"])


@pytest.mark.parametrize("consumer_id", ["", "10.0.0.7@3#0"])
def test_a_batch_without_rows_and_then_one_with(consumer_id: str) -> None:
    ours = decoder(None, consumer_id)
    raw = encode_message(GOOD)
    beyond = GOOD.queue_offset + 1
    for nothing in (ours.decode(b""), ours.decode(raw, start=beyond), ours.decode(raw, end=0)):
        assert nothing.num_rows == 0
        assert nothing.schema == SCHEMA
        nothing.validate(full=True)
    assert ours.decode(raw)["consumerId"].to_pylist() == [consumer_id or None]


def test_no_consumer_is_null() -> None:
    assert decoder(["consumerId"], "").decode(encode_message(GOOD)).to_pylist() == [
        {"consumerId": None}
    ]


def test_the_result_does_not_alias_its_input() -> None:
    raw = bytearray(encode_message(GOOD) * 3)
    batch = decoder().decode(raw)
    before = rows_of(batch)
    raw[:] = bytes(len(raw))
    raw += b"a bytearray that is still exported could not grow"
    assert rows_of(batch) == before


def test_bodies_not_asked_for_are_not_opened() -> None:
    raw = encode_message(replace(GOOD, sys_flag=COMPRESSED), body=b"no zlib at all")
    assert decoder(["queueOffset", "sysFlag"]).decode(raw).to_pylist() == [
        {"queueOffset": 7, "sysFlag": 0}
    ]
    with pytest.raises(
        BodyError, match="orders/b-a/9: message at byte 0, queue offset 7: the zlib"
    ):
        decoder(["body"]).decode(raw)
    assert decoder(["body"]).decode(raw, end=7).num_rows == 0


def test_properties_not_asked_for_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_spark.wire.decode.PropertyTable", None)
    raw = encode_message(GOOD)
    assert decoder(["body", "queueOffset", "bornHost"]).decode(raw).num_rows == 1


def test_a_batch_that_reaches_into_the_range() -> None:
    items = [BatchItem(b"%d" % number) for number in range(5)]
    batch = replace(GOOD, sys_flag=UNWRAP, body=encode_batch(items))
    raw = encode_message(GOOD) + encode_message(replace(batch, queue_offset=8))
    rows = decoder(["queueOffset", "body"]).decode(raw, start=110, end=112, offset_delta=100)
    assert rows.to_pylist() == [
        {"queueOffset": 110, "body": b"2"},
        {"queueOffset": 111, "body": b"3"},
    ]


def test_many_and_repeated_properties() -> None:
    pairs = [(f"name-{number % 300}", f"value-{number}") for number in range(1000)]
    crowd = "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    twins = b"a-long-name-that-ends-alike\x011\x02a-long-nose-that-ends-alike\x012\x02"
    raw = b"".join(encode_message(GOOD, properties=text) for text in (crowd, twins, twins * 2))
    assert rows_of(decoder().decode(raw)) == [expected_row(m) for m in decode_messages(raw)]


def test_one_complaint_for_both_decoders() -> None:
    good = encode_message(GOOD)
    for position in (0, 4, 84, 93, 95):
        broken = bytearray(good)
        broken[position] = 0xFF
        with pytest.raises(MessageFormatError) as fast:
            decoder(["queueOffset"]).decode(good * 2 + broken)
        with pytest.raises(MessageFormatError) as plain:
            decode_messages(good * 2 + broken, decoder().where)
        assert str(fast.value) == str(plain.value)


def test_more_than_arrow_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_spark.wire.records.MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="1019 bytes of messages at once"):
        decoder().decode(encode_message(replace(GOOD, body=b"x" * 923)))
    packed = encode_message(replace(GOOD, sys_flag=COMPRESSED, body=b"x" * 600))
    assert decoder().decode(packed).num_rows == 1
    with pytest.raises(BodyError, match="queue offset 7: with this body the decompressed"):
        decoder().decode(packed * 2)


def test_what_is_printed() -> None:
    assert repr(decoder(["body", "keys"])) == "Decoder(orders/b-a/9: body, keys)"


@pytest.mark.parametrize(
    "rows",
    [
        # Separators take turns in all of these, and yet they are not what they seem.
        [b"a\x01\x02"],
        [b"\x01a\x02"],
        [b"a\x01b\x02c\x01\x02", b"d\x01e\x02"],
        [b"a\x01b", b"c\x02"],
        [b"a\x01b", b"", b"\x02c\x01d\x02"],
        [b"", b"a\x01b\x02", b""],
        # Names that as numbers equal the ones looked for.
        [b"\x00\x00\x00\x00KEYS\x01no\x02", b"KEYS\x01yes\x02"],
        [b"UNIQ_KEY2\x01no\x02", b"UNIQ_KEY\x01yes\x02"],
        # UTF-8 only if rows ran together.
        [b"a\x01\xe4\xb8", b"\xad\x01b\x02"],
    ],
)
def test_properties_that_look_regular(rows: list[bytes]) -> None:
    raw = b"".join(encode_message(GOOD, properties=row) for row in rows)
    assert vectorised(raw) == plainly(raw)


def test_bodies_that_unpack_to_much_come_in_several_batches() -> None:
    sizes = [10, 4000, 50, 6000, 0, 9000, 20]
    packed = SYS_FLAGS["zlib"] | COMPRESSED
    messages = [
        replace(GOOD, queue_offset=at, body=b"x" * size, sys_flag=packed if size > 100 else 0)
        for at, size in enumerate(sizes)
    ]
    raw = b"".join(map(encode_message, messages))
    batches = list(decoder().batches(raw, max_unpacked=7000))
    assert [batch.column("queueOffset").to_pylist() for batch in batches] == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
    ]
    assert pa.Table.from_batches(batches).combine_chunks().to_batches() == [decoder().decode(raw)]


# --- what is behind the bodies, side by side --------------------------------------------------


def same_as_plain(raw: bytes) -> None:
    plain = decode_messages(raw)
    assert rows_of(decoder().decode(raw)) == [expected_row(message) for message in plain]


def test_properties_of_a_batch_are_not_those_of_its_record() -> None:
    items = [BatchItem(body=b"b", properties={"i": f"{n}"}) for n in range(3)]
    batch = replace(GOOD, sys_flag=UNWRAP, body=encode_batch(items), properties={"o": "x"})
    same_as_plain(encode_message(batch) * 3)


@pytest.mark.parametrize("width", [1, 100, 505, 506, 507, 3000])
def test_tails_of_any_width(width: int) -> None:
    messages = [replace(GOOD, queue_offset=n, properties={"k": f"{n}" * width}) for n in range(5)]
    same_as_plain(b"".join(map(encode_message, messages)))


@pytest.mark.parametrize("more", [1, 15, 16, 17, 90])
def test_tails_that_grow(more: int) -> None:
    """The last line would reach beyond what there is, unless something comes behind it."""
    properties = [{"k": "v"}] * 9 + [{"k": "v" * (1 + more)}, {"k": "w"}]
    raw = b"".join(encode_message(replace(GOOD, properties=each)) for each in properties)
    same_as_plain(raw)
    found = decoder().batches(raw + bytes(200), parts=[(0, len(raw))])
    assert [rows_of(batch) for batch in found] == [rows_of(decoder().decode(raw))]


def test_topics_of_different_lengths() -> None:
    messages = [
        replace(GOOD, topic="T" * length, properties={"k": "v" * (20 - length)})
        for length in (1, 9, 5, 5)
    ]
    same_as_plain(b"".join(map(encode_message, messages)))


def test_a_topic_of_negative_length() -> None:
    """128 to 255 are no lengths of a topic in the first version of the format."""
    body = b"x" * 300
    raw = bytearray(encode_message(replace(GOOD, topic="T" * 100, body=body)))
    at = raw.index(body) + len(body)
    assert raw[at] == 100
    raw += bytes(100)
    raw[:4] = len(raw).to_bytes(4, "big")
    raw[at] = 130
    with pytest.raises(MessageFormatError):
        decode_messages(bytes(raw))
    with pytest.raises(MessageFormatError):
        decoder().decode(bytes(raw))
