"""The plain codec: golden bytes, what Java reads, and the wording of complaints."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.errors import BodyError, MessageFormatError, UsageError
from rocketmq_spark.wire.compression import COMPRESSED
from rocketmq_spark.wire.message import (
    BORN_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    PREFIX_V4,
    STORE_HOST_V6,
    UNWRAP,
    BatchItem,
    StoredMessage,
    crc32,
    decode_batch_items,
    decode_messages,
    decode_properties,
    encode_batch,
    encode_batch_item,
    encode_message,
    encode_properties,
    host_text,
    java_hash,
    offset_id,
    pack_host,
)

QUICK = settings(derandomize=True, deadline=None, max_examples=50)

GOLDEN = StoredMessage(
    topic="T",
    queue_id=2,
    queue_offset=100,
    physical_offset=4096,
    flag=5,
    born_timestamp=1_700_000_000_000,
    born_host="10.0.0.1:5000",
    store_timestamp=1_700_000_000_123,
    store_host="10.0.0.2:10911",
    reconsume_times=1,
    body=b"hello",
    properties={"k": "v", "TAGS": "TagA"},
)
GOLDEN_FIELDS = {
    "TOTALSIZE": "0000006f",
    "MAGIC": "daa320a7",
    "BODYCRC": "3610a686",
    "QUEUEID": "00000002",
    "FLAG": "00000005",
    "QUEUEOFFSET": "0000000000000064",
    "PHYSICALOFFSET": "0000000000001000",
    "SYSFLAG": "00000000",
    "BORNTIMESTAMP": "0000018bcfe56800",
    "BORNHOST": "0a000001" + "00001388",
    "STORETIMESTAMP": "0000018bcfe5687b",
    "STOREHOST": "0a000002" + "00002a9f",
    "RECONSUMETIMES": "00000001",
    "PREPARED": "0000000000000000",
    "BODY": "00000005" + "68656c6c6f",
    "TOPIC": "01" + "54",
    "PROPERTIES": "000e" + "6b017602" + "54414753015461674102",
}
GOLDEN_BYTES = bytes.fromhex("".join(GOLDEN_FIELDS.values()))


def test_golden_record() -> None:
    assert encode_message(GOLDEN) == GOLDEN_BYTES
    assert decode_messages(GOLDEN_BYTES) == [GOLDEN]
    assert decode_messages(memoryview(GOLDEN_BYTES * 3)) == [GOLDEN] * 3
    assert PREFIX_V4 == 88


def test_ids_keys_and_tags() -> None:
    assert GOLDEN.msg_id == "0A00000200002A9F0000000000001000"
    assert offset_id("10.0.0.2:10911", 4096) == GOLDEN.msg_id
    assert len(offset_id("[::1]:10911", 4096)) == 56
    assert (GOLDEN.keys, GOLDEN.tags) == (None, "TagA")
    assert replace(GOLDEN, properties={"UNIQ_KEY": "id", "KEYS": "a b"}).msg_id == "id"


def test_golden_batch_item() -> None:
    item = BatchItem(b"hello", {"WAIT": "true", "TAGS": "TagA"})
    golden = bytes.fromhex(
        "0000002f"  # size
        "00000000"  # magic
        "00000000"  # crc
        "00000000"  # flag
        "00000005" + "68656c6c6f" + "0014" + "5741495401747275650254414753015461674102"
    )
    assert encode_batch_item(item) == golden
    assert decode_batch_items(golden * 2) == [item, item]


def test_hashes() -> None:
    assert crc32(b"hello") == 907060870
    tags = ["TagA", "中文", "order-1", "", "\U0001f680"]
    assert [java_hash(tag) for tag in tags] == [2598919, 646394, -1207111310, 0, 1773027]


@pytest.mark.parametrize(
    ("text", "packed"),
    [("10.0.0.1:5000", "0a00000100001388"), ("[fe80::1]:80", "fe80" + "00" * 13 + "0100000050")],
)
def test_hosts(text: str, packed: str) -> None:
    assert pack_host(text).hex() == packed
    assert host_text(bytes.fromhex(packed)) == text


@pytest.mark.parametrize("text", ["", "10.0.0.1", "example.org:80", "10.0.0.1:http", "1.1.1.1:9e9"])
def test_no_host(text: str) -> None:
    with pytest.raises(UsageError, match="no address with a port"):
        pack_host(text)


# --- properties -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (b"", {}),
        (b"a\x01b\x02c\x01\x02\x01x\x02d\x01e\x01f\x02g", {"a": "b", "d": "e\x01f"}),
        (b"a\x01b\x02a\x01c", {"a": "c"}),
        (b"a\x01b\x02a\x01\x02", {"a": "b"}),  # an empty value is no value
        (b"\x02\x02a\x01b", {"a": "b"}),
        (b"a\x01\x01", {"a": "\x01"}),
        (b"\xe4\x01\xb8\xad\x02", {"\ufffd": "\ufffd\ufffd"}),
        (b"a\x01\xed\xa0\x80\x02", {"a": "\ufffd"}),  # Java: one for a whole surrogate
    ],
)
def test_reading_properties(stored: bytes, read: dict[str, str]) -> None:
    assert decode_properties(stored) == read


@QUICK
@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: not {"\x01", "\x02"} & set(name)),
        st.text(min_size=1).filter(lambda value: "\x02" not in value),
    )
)
def test_properties_there_and_back(properties: dict[str, str]) -> None:
    try:
        assert decode_properties(encode_properties(properties)) == properties
    except UsageError:
        assert any(not text.isprintable() for pair in properties.items() for text in pair)


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"": "v"}, "needs a name; its value is 'v'"),
        ({"a\x01b": "v"}, r"name 'a\\x01b' holds"),
        ({"a\x02": "v"}, r"name 'a\\x02' holds"),
        ({"name": "v\x02"}, "value of property 'name' holds"),
        ({"name": "\ud800"}, "'name' is not valid text"),
        ({"short": "v", "long": "x" * 32760}, "32774 bytes, .* 32767; the longest is 'long'"),
    ],
)
def test_properties_that_would_not_come_back(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        encode_properties(properties)


def test_the_longest_properties() -> None:
    properties = {"n": "x" * (32767 - 3)}
    assert decode_properties(encode_properties(properties)) == properties
    assert encode_properties({"empty": ""}) == b"empty\x01\x02"


# --- forms ------------------------------------------------------------------------------------


def test_both_magics_and_all_addresses() -> None:
    long = replace(GOLDEN, topic="%RETRY%" + "t" * 130)
    assert encode_message(long)[4:8] == MAGIC_V2.to_bytes(4, "big")
    for message in (GOLDEN, long):
        for born in ("10.0.0.1:5000", "[fe80::1]:5000"):
            for stored in ("10.0.0.2:10911", "[::1]:10911"):
                given = replace(message, born_host=born, store_host=stored)
                flags = BORN_HOST_V6 * ("[" in born) | STORE_HOST_V6 * ("[" in stored)
                assert decode_messages(encode_message(given)) == [replace(given, sys_flag=flags)]
    assert decode_messages(encode_message(GOLDEN, magic=MAGIC_V2)) == [GOLDEN]


@pytest.mark.parametrize("bits", [0x1, 0x101, 0x201, 0x301])
def test_compressed_bodies_lose_their_mark_as_in_java(bits: int) -> None:
    message = replace(GOLDEN, sys_flag=bits, body=b"a" * 500)
    stored = encode_message(message)
    assert len(stored) < 300
    assert decode_messages(stored) == [replace(message, sys_flag=bits & ~COMPRESSED)]
    empty = replace(GOLDEN, sys_flag=bits, body=b"")
    assert decode_messages(encode_message(empty)) == [empty]


@pytest.mark.parametrize("bits", [0, 0x201])
def test_inner_batch(bits: int) -> None:
    items = [BatchItem(b"one", {"KEYS": "1"}, 8), BatchItem(b"", {}), BatchItem(b"3", {"a": "b"})]
    record = replace(GOLDEN, sys_flag=UNWRAP | bits, body=encode_batch(items))
    first, second, third = decode_messages(encode_message(record))
    assert first == replace(
        GOLDEN,
        sys_flag=UNWRAP | bits & ~COMPRESSED,
        reconsume_times=0,
        flag=8,
        body=b"one",
        properties={"KEYS": "1"},
    )
    assert (second.queue_offset, second.body, second.properties) == (101, b"", {})
    assert (third.queue_offset, third.body, third.properties) == (102, b"3", {"a": "b"})
    # One bit alone means nothing.
    assert decode_messages(encode_message(replace(record, sys_flag=0x80)))[0].body == record.body


def test_fields_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="does not fit"):
        encode_message(replace(GOLDEN, flag=2**31))
    with pytest.raises(UsageError, match="does not fit"):
        encode_message(replace(GOLDEN, topic="t" * 128), magic=MAGIC_V1)


# --- complaints -------------------------------------------------------------------------------


def patched(position: int, form: str, value: int, record: bytes = GOLDEN_BYTES) -> bytes:
    changed = bytearray(record)
    struct.pack_into(form, changed, position, value)
    return bytes(changed)


BODY = PREFIX_V4
BROKEN = {
    "cut short in the head": (GOLDEN_BYTES[:20], "only 20 bytes are left"),
    "cut short": (GOLDEN_BYTES[:-1], "it takes 111 bytes, and only 110 are left"),
    "size zero": (patched(0, ">i", 0), "a size of 0 bytes is too small"),
    "size negative": (patched(0, ">i", -1), "a size of -1 bytes is too small"),
    "size too large": (patched(0, ">i", 2**31 - 1), "it takes 2147483647 bytes"),
    "size below its addresses": (
        patched(0, ">i", 91, patched(36, ">i", BORN_HOST_V6))[:91],
        "too small for its addresses",
    ),
    "magic": (patched(4, ">I", 0xCBD43194), "magic 0xCBD43194 is no message's"),
    "body too long": (patched(84, ">i", 30), "its body of 30 bytes does not fit into its 111"),
    "body negative": (patched(84, ">i", -1), "its body of -1 bytes does not fit"),
    "topic too long": (patched(BODY + 5, ">b", 16), "its topic of 16 bytes does not fit"),
    "topic negative": (patched(BODY + 5, ">b", -1), "its topic of -1 bytes does not fit"),
    "properties too long": (patched(BODY + 7, ">h", 15), "its properties of 15 bytes do not fit"),
    "properties negative": (patched(BODY + 7, ">h", -1), "its properties of -1 bytes do not fit"),
    "compression": (patched(36, ">i", 0x501), "compression type 5"),
    "no zlib": (patched(36, ">i", 0x301), "the zlib body of 5 bytes will not decompress"),
    "no batch": (patched(36, ">i", UNWRAP), "batch item 0 at byte 0 of the body is cut short"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_complaints_say_what_and_where(name: str) -> None:
    record, problem = BROKEN[name]
    with pytest.raises(MessageFormatError) as raised:
        decode_messages(GOLDEN_BYTES + record, "T/b-a/0")
    words = str(raised.value)
    assert problem in words
    assert words.startswith("T/b-a/0: message at byte 111")
    assert ("queue offset 100" in words) == (len(record) > 28)
    assert isinstance(raised.value, BodyError) == (name in ("compression", "no zlib"))


def test_broken_batch_items() -> None:
    item = encode_batch_item(BatchItem(b"hello", {"k": "v"}))
    for broken, problem in [
        (item[:10], "is cut short"),
        (patched(16, ">i", 12, item), "its body of 12 bytes does not fit"),
        (patched(16, ">i", -1, item), "its body of -1 bytes does not fit"),
        (patched(25, ">h", 5, item), "its properties of 5 bytes do not fit"),
        (patched(25, ">h", -1, item), "its properties of -1 bytes do not fit"),
    ]:
        with pytest.raises(MessageFormatError, match=f"here: batch item 1 at byte 31 .*{problem}"):
            decode_batch_items(item + broken, "here")
    # Java goes by the lengths, and so do we.
    assert decode_batch_items(patched(0, ">i", 0, item))[0].body == b"hello"


@QUICK
@given(st.binary(max_size=200))
def test_garbage(raw: bytes) -> None:
    with suppress(MessageFormatError):
        decode_messages(raw)
    with suppress(MessageFormatError):
        decode_batch_items(raw)


# --- what Java reads --------------------------------------------------------------------------

JAVA = Path(__file__).parent.parent / "data" / "java_messages.jsonl"


def as_java_sees(message: StoredMessage) -> dict[str, Any]:
    view = asdict(message) | {name: getattr(message, name) for name in ("msg_id", "keys", "tags")}
    view["body"] = message.body.hex()
    for name in ("born_host", "store_host"):
        packed = pack_host(view[name])
        view[name] = [packed[:-4].hex(), int.from_bytes(packed[-4:], "big")]
    return view


@pytest.mark.parametrize("line", JAVA.read_text().splitlines(), ids=lambda _: "record")
def test_records_read_as_java_reads_them(line: str) -> None:
    recorded = json.loads(line)
    messages = decode_messages(bytes.fromhex(recorded["record"]))
    seen = [as_java_sees(message) for message in messages]
    for java, ours in zip(recorded["messages"], seen, strict=True):
        if java["sys_flag"] & UNWRAP == UNWRAP:
            # Java's client adds WAIT to what it unwraps, and forgets the id where there is no
            # UNIQ_KEY; both are its own doing, and stand in no stored byte.
            java["properties"].pop("WAIT", None)
            ours["properties"].pop("WAIT", None)
            java["msg_id"] = java["msg_id"] or ours["msg_id"]
    assert seen == recorded["messages"]
