"""The layout of a stored message, and a plain codec that reads and writes one at a time.

This is the readable statement of the format: the tests hold the vectorised decoder against it,
and the decoder lets it word every complaint. Records follow one another; the way to the next is
TOTALSIZE, never a computed length, for later brokers may append fields.

Any bytes whatever either decode or raise `MessageFormatError`.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from rocketmq_spark.errors import MessageFormatError, UsageError
from rocketmq_spark.wire.compression import (
    COMPRESSED,
    COMPRESSION_MASK,
    SYS_FLAGS,
    ZLIB,
    compress,
    decompress,
)
from rocketmq_spark.wire.properties import decode_properties as decode_properties
from rocketmq_spark.wire.properties import decode_text as decode_text
from rocketmq_spark.wire.properties import encode_properties as encode_properties

# MessageDecoder.MESSAGE_MAGIC_CODE and _V2: V2 gives the topic's length two bytes in place of one.
MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB

# MessageSysFlag.
MULTI_TAGS = 0x2
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
UNWRAP = NEED_UNWRAP | INNER_BATCH  # only both together make a record an inner batch

# MessageConst.
KEYS, TAGS, UNIQ_KEY = "KEYS", "TAGS", "UNIQ_KEY"

MAX_TOPIC_V1 = 127

# TOTALSIZE MAGIC BODYCRC QUEUEID FLAG QUEUEOFFSET PHYSICALOFFSET SYSFLAG BORNTIMESTAMP
_HEAD = struct.Struct(">iIIiiqqiq")
# RECONSUMETIMES, PREPARED TRANSACTION OFFSET, body length
_TAIL = struct.Struct(">iqi")
_LONG, _INT, _SHORT, _BYTE = (struct.Struct(">" + code) for code in "qihb")
_V4, _V6 = struct.Struct(">4si"), struct.Struct(">16si")
PREFIX_V4 = _HEAD.size + _V4.size + _LONG.size + _V4.size + _TAIL.size  # up to the body: 88 bytes
MIN_RECORD = PREFIX_V4 + 1 + 2  # neither body, topic nor properties

# size, magic, crc, flag, body length; MessageDecoder.encodeMessage leaves magic and crc at 0.
_ITEM = struct.Struct(">iiiii")


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as a consumer sees it: the body decompressed, an inner batch taken apart."""

    topic: str
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: str = "0.0.0.0:0"
    store_timestamp: int = 0
    store_host: str = "0.0.0.0:0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body: bytes = b""
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def msg_id(self) -> str:
        """The id given by the producer, or where it gave none, the place in the commit log."""
        return self.properties.get(UNIQ_KEY) or offset_id(self.store_host, self.physical_offset)

    @property
    def keys(self) -> str | None:
        return self.properties.get(KEYS)

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One message of a batch, on its way to a broker or inside an inner batch."""

    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0


# --- small values -----------------------------------------------------------------------------


def crc32(data: bytes | memoryview) -> int:
    """UtilAll.crc32: without the sign bit."""
    return zlib.crc32(data) & 0x7FFFFFFF


def java_hash(text: str) -> int:
    """String.hashCode, by which brokers compare tags and producers pick a queue for a key."""
    value = 0
    for unit in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        value = (value * 31 + unit[0]) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@lru_cache(maxsize=4096)
def host_text(packed: bytes) -> str:
    """`10.0.0.1:5000` or `[fe80::1]:5000`, from an address and its port as four bytes."""
    address = ipaddress.ip_address(packed[:-4])
    port = int.from_bytes(packed[-4:], "big", signed=True)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def pack_host(text: str) -> bytes:
    """The inverse of `host_text`."""
    address, colon, port = text.rpartition(":")
    try:
        if not colon:
            raise ValueError("no port")
        packed = ipaddress.ip_address(address.removeprefix("[").removesuffix("]")).packed
        return packed + _INT.pack(int(port))
    except (ValueError, struct.error) as problem:
        raise UsageError(f"{text!r} is no address with a port: {problem}") from problem


def offset_id(store_host: str, physical_offset: int) -> str:
    """MessageDecoder.createMessageId: broker address and commit-log position in hexadecimal."""
    return (pack_host(store_host) + _LONG.pack(physical_offset)).hex().upper()


# --- batches ----------------------------------------------------------------------------------


def encode_batch_item(item: BatchItem) -> bytes:
    """One message as SEND_BATCH_MESSAGE carries it."""
    properties = encode_properties(item.properties)
    size = _ITEM.size + len(item.body) + _SHORT.size + len(properties)
    head = _ITEM.pack(size, 0, 0, item.flag, len(item.body))
    return b"".join((head, item.body, _SHORT.pack(len(properties)), properties))


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of SEND_BATCH_MESSAGE, and of a record that is an inner batch."""
    return b"".join(map(encode_batch_item, items))


def batch_spans(
    raw: bytes | memoryview, where: str = "", at: int = 0, end: int | None = None
) -> Iterator[tuple[int, int, int, int, int]]:
    """Flag, body start and end, properties start and end of each item in `raw[at:end]`.

    By its lengths, as Java's consumers and brokers go; the item's own size is not looked at.
    """
    start, end = at, len(raw) if end is None else end
    count = 0
    while at < end:
        body = at + _ITEM.size
        if body > end:
            raise MessageFormatError(
                f"{where}: batch item {count} at byte {at - start} of the body is cut short"
            )
        _, _, _, flag, size = _ITEM.unpack_from(raw, at)
        names = body + size + _SHORT.size
        if size < 0 or names > end:
            raise MessageFormatError(
                f"{where}: batch item {count} at byte {at - start} of the body: "
                f"its body of {size} bytes does not fit"
            )
        (length,) = _SHORT.unpack_from(raw, names - _SHORT.size)
        at, item = names + length, at
        if length < 0 or at > end:
            raise MessageFormatError(
                f"{where}: batch item {count} at byte {item - start} of the body: "
                f"its properties of {length} bytes do not fit"
            )
        yield flag, body, body + size, names, at
        count += 1


def decode_batch_items(raw: bytes | memoryview, where: str = "batch") -> list[BatchItem]:
    """The inverse of `encode_batch`."""
    view = memoryview(raw)
    return [
        BatchItem(bytes(view[body:end]), decode_properties(bytes(view[names:stop])), flag)
        for flag, body, end, names, stop in batch_spans(view, where)
    ]


# --- records ----------------------------------------------------------------------------------


def encode_message(
    message: StoredMessage,
    *,
    magic: int | None = None,
    body: bytes | None = None,
    properties: bytes | None = None,
) -> bytes:
    """The record that decodes to `message`, or, of an inner batch, to its items.

    The SYSFLAG says how the body is compressed; its address bits follow the hosts. `magic`
    defaults to what a broker picks for the topic. `body` and `properties` are stored bytes to
    write in place of the message's own, whatever they hold.
    """
    topic = message.topic.encode()
    if magic is None:
        magic = MAGIC_V2 if len(topic) > MAX_TOPIC_V1 else MAGIC_V1
    born, stored = pack_host(message.born_host), pack_host(message.store_host)
    sys_flag = message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 if len(born) == _V6.size else 0
    sys_flag |= STORE_HOST_V6 if len(stored) == _V6.size else 0
    if body is None:
        body = _pack_body(sys_flag, message.body)
    if properties is None:
        properties = encode_properties(message.properties)
    try:
        rest = b"".join(
            (
                born,
                _LONG.pack(message.store_timestamp),
                stored,
                _TAIL.pack(message.reconsume_times, message.prepared_transaction_offset, len(body)),
                body,
                (_BYTE if magic == MAGIC_V1 else _SHORT).pack(len(topic)),
                topic,
                _SHORT.pack(len(properties)),
                properties,
            )
        )
        head = _HEAD.pack(
            _HEAD.size + len(rest),
            magic,
            crc32(body),
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            sys_flag,
            message.born_timestamp,
        )
    except struct.error as problem:
        raise UsageError(f"a field does not fit into a stored message: {problem}") from problem
    return head + rest


def _pack_body(sys_flag: int, body: bytes) -> bytes:
    if not sys_flag & COMPRESSED or not body:
        return body
    bits = sys_flag & COMPRESSION_MASK
    kind = ZLIB if bits == 0 else next((k for k, b in SYS_FLAGS.items() if b == bits), hex(bits))
    return compress(kind, body)


def decode_messages(raw: bytes | bytearray | memoryview, where: str = "") -> list[StoredMessage]:
    """Every message of a pull's body, in order. `where` names the queue in complaints."""
    view = memoryview(raw)
    at, messages = 0, []
    while at < len(view):
        record, end = read_record(view, at, where)
        place = record_place(where, at, record.queue_offset)
        record = decompressed(record, place)
        if record.sys_flag & UNWRAP == UNWRAP:
            messages += unwrap(record, place)
        else:
            messages.append(record)
        at = end
    return messages


def decompressed(record: StoredMessage, where: str = "") -> StoredMessage:
    """The record with its body as the producer gave it, and no longer marked as compressed."""
    if not record.sys_flag & COMPRESSED or not record.body:
        return record
    body = decompress(record.sys_flag, record.body, where)
    return replace(record, body=body, sys_flag=record.sys_flag & ~COMPRESSED)


def unwrap(record: StoredMessage, where: str = "") -> list[StoredMessage]:
    """The messages of an inner batch, as MessageDecoder.decodeMessage makes them."""
    return [
        replace(
            record,
            queue_offset=record.queue_offset + number,
            flag=item.flag,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=item.body,
            properties=item.properties,
        )
        for number, item in enumerate(decode_batch_items(record.body, where))
    ]


def record_place(where: str, at: int, queue_offset: int | None = None) -> str:
    """Where a complaint is about: the queue as the caller names it, byte, queue offset."""
    place = f"message at byte {at}"
    if queue_offset is not None:
        place += f", queue offset {queue_offset}"
    return f"{where}: {place}" if where else place


def read_record(view: memoryview, at: int, where: str = "") -> tuple[StoredMessage, int]:
    """The record at this byte with its body as it is stored, and where the next one begins."""
    left = len(view) - at
    if left < _HEAD.size:
        problem = f"only {left} bytes are left, too few for a message"
        raise MessageFormatError(f"{record_place(where, at)}: {problem}")
    (size, magic, _, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp) = (
        _HEAD.unpack_from(view, at)
    )

    def complaint(problem: str) -> MessageFormatError:
        return MessageFormatError(f"{record_place(where, at, queue_offset)}: {problem}")

    # The magic first: where it is wrong, no other field means anything.
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise complaint(f"magic 0x{magic:08X} is no message's")
    if size < MIN_RECORD:
        raise complaint(f"a size of {size} bytes is too small for a message")
    end = at + size
    if end > len(view):
        raise complaint(f"it takes {size} bytes, and only {left} are left")

    born_form = _V6 if sys_flag & BORN_HOST_V6 else _V4
    store_form = _V6 if sys_flag & STORE_HOST_V6 else _V4
    topic_form = _BYTE if magic == MAGIC_V1 else _SHORT
    born = at + _HEAD.size
    stored = born + born_form.size + _LONG.size
    tail = stored + store_form.size
    body = tail + _TAIL.size
    if body + topic_form.size + _SHORT.size > end:
        raise complaint(f"a size of {size} bytes is too small for its addresses")
    reconsume_times, prepared, length = _TAIL.unpack_from(view, tail)
    topic = body + length + topic_form.size
    if length < 0 or topic + _SHORT.size > end:
        raise complaint(f"its body of {length} bytes does not fit into its {size}")
    (length,) = topic_form.unpack_from(view, topic - topic_form.size)
    names = topic + length + _SHORT.size
    if length < 0 or names > end:
        raise complaint(f"its topic of {length} bytes does not fit into its {size}")
    (length,) = _SHORT.unpack_from(view, names - _SHORT.size)
    if length < 0 or names + length > end:
        raise complaint(f"its properties of {length} bytes do not fit into its {size}")

    return (
        StoredMessage(
            topic=decode_text(bytes(view[topic : names - _SHORT.size])),
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            born_host=host_text(bytes(view[born : born + born_form.size])),
            store_timestamp=_LONG.unpack_from(view, stored - _LONG.size)[0],
            store_host=host_text(bytes(view[stored:tail])),
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared,
            body=bytes(view[body : topic - topic_form.size]),
            properties=decode_properties(bytes(view[names : names + length])),
        ),
        end,
    )
