"""Length-prefixed frames with JSON or binary headers, and the buffer that cuts a stream into them.

A frame is: length (4 bytes, of all that follows), header kind (1), header length (3), header, body.
"Not enough bytes yet" is an empty list, never an exception.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rocketmq_spark.errors import FrameError, FrameTooLargeError

JSON_HEADER = 0
BINARY_HEADER = 1

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

# LanguageCode.PYTHON, by name in JSON and by number in binary.
LANGUAGE = "PYTHON"
LANGUAGE_CODE = 3
# MQVersion of 5.4.0: the name server then writes standard JSON, and a stopping broker may say
# GO_AWAY, which the pool understands.
VERSION = 493

# The most message bytes that a Java broker puts in one answer (MessageStoreConfig's ceiling);
# anything longer is not RocketMQ talking.
MAX_FRAME = 128 * 1024 * 1024

# A quiet connection keeps a small buffer; one that fills it gets larger ones, up to a size where
# the cost of a new buffer no longer shows.
_FIRST_CHUNK = 16 * 1024
_LARGEST_CHUNK = 1024 * 1024

_LENGTH = struct.Struct(">I")
_BINARY_START = struct.Struct(">hbhii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")

Buffer = bytes | bytearray | memoryview

# A pull loop spends more on headers than on anything else but the messages, so JSON goes through
# the parts of `json` that do the work, without the layers that choose them anew for each call.
_quote = json.encoder.encode_basestring_ascii
_read_json = json.JSONDecoder().raw_decode


@dataclass(slots=True)
class Frame:
    """A request or a response. `ext` values are always text, as on the wire."""

    code: int
    opaque: int = 0
    flag: int = 0
    ext: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""
    body: Buffer = b""
    version: int = VERSION

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    def __repr__(self) -> str:
        # Only names of ext fields: values may be signatures, tokens or someone's data.
        kind = "response" if self.is_response else "request"
        return (
            f"<{kind} code={self.code} opaque={self.opaque} ext={sorted(self.ext)} "
            f"body={len(self.body)} bytes>"
        )


def encode(frame: Frame, kind: int = JSON_HEADER) -> bytes:
    """The bytes of `frame`, length prefix included."""
    header = _encode_json(frame) if kind == JSON_HEADER else _encode_binary(frame)
    size = 4 + len(header) + len(frame.body)
    return b"".join(
        (_LENGTH.pack(size), _LENGTH.pack(kind << 24 | len(header)), header, frame.body)
    )


def _encode_json(frame: Frame) -> bytes:
    ext = frame.ext
    values = map(_quote, ext.values())
    text = _json_shape(tuple(ext)) % (frame.code, frame.version, frame.opaque, frame.flag, *values)
    if frame.remark:
        text = f'{text[:-1]},"remark":{_quote(frame.remark)}}}'
    return text.encode()


@lru_cache(maxsize=256)
def _json_shape(names: tuple[str, ...]) -> str:
    """The header of any request with these fields, to be filled with its numbers and values."""
    fields = ",".join(f"{_quote(name)}:".replace("%", "%%") + "%s" for name in names)
    return (
        f'{{"code":%d,"language":"{LANGUAGE}","version":%d,"opaque":%d,"flag":%d,'
        f'"extFields":{{{fields}}}}}'
    )


def _encode_binary(frame: Frame) -> bytes:
    remark = frame.remark.encode()
    entries = bytearray()
    for name, value in frame.ext.items():
        # An empty value is read as null by the server and breaks its signature check.
        if value:
            raw_name, raw_value = name.encode(), value.encode()
            entries += _SHORT.pack(len(raw_name)) + raw_name + _INT.pack(len(raw_value)) + raw_value
    start = _BINARY_START.pack(frame.code, LANGUAGE_CODE, frame.version, frame.opaque, frame.flag)
    return b"".join((start, _INT.pack(len(remark)), remark, _INT.pack(len(entries)), entries))


def decode(data: memoryview) -> Frame:
    """A frame from the bytes after its length prefix. The body is a view, not a copy."""
    if len(data) < 4:
        raise FrameError(f"a frame of {len(data)} bytes is too short to hold a header")
    word = _LENGTH.unpack_from(data)[0]
    kind, header_end = word >> 24, 4 + (word & 0xFFFFFF)
    if header_end > len(data):
        raise FrameError(
            f"a frame of {len(data)} bytes says its header has {header_end - 4} bytes; "
            "the peer does not speak RocketMQ's remoting protocol"
        )
    header, body = bytes(data[4:header_end]), data[header_end:]
    if kind == JSON_HEADER:
        return _decode_json(header, body)
    if kind == BINARY_HEADER:
        return _decode_binary(header, body)
    raise FrameError(f"unknown header kind {kind}; only 0 (JSON) and 1 (binary) exist")


def _decode_json(raw: bytes, body: memoryview) -> Frame:
    try:
        text = raw.decode()
        header: Any = None
        end = -1
        if text.startswith("{"):
            header, end = _read_json(text)
        if end != len(text):
            header = json.loads(text)  # white space around it, or an error worth its words
        code, opaque, flag = header["code"], header["opaque"], header.get("flag", 0)
        ext = header.get("extFields") or {}
        if not (isinstance(code, int) and isinstance(opaque, int) and isinstance(flag, int)):
            raise TypeError("code, opaque and flag must be whole numbers")
        if not isinstance(ext, dict):
            raise TypeError("extFields must be an object")
        # Java writes every value as text; a stray number or null from elsewhere becomes text too.
        for name, value in ext.items():
            if not isinstance(value, str):
                ext[name] = "" if value is None else str(value)
        remark, version = str(header.get("remark") or ""), header.get("version")
        if not isinstance(version, int):
            version = 0
        return Frame(code, opaque, flag, ext, remark, body, version)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FrameError(f"a frame's JSON header cannot be read ({error}): {raw[:80]!r}") from error


def _decode_binary(raw: bytes, body: memoryview) -> Frame:
    try:
        code, _language, version, opaque, flag = _BINARY_START.unpack_from(raw)
        remark, position = _sized(raw, _BINARY_START.size, _INT)
        block, position = _sized(raw, position, _INT)
        ext, at = {}, 0
        while at < len(block):
            name, at = _sized(block, at, _SHORT)
            value, at = _sized(block, at, _INT)
            ext[name.decode()] = value.decode()
        return Frame(code, opaque, flag, ext, remark.decode(), body, version)
    except (struct.error, ValueError) as error:
        raise FrameError(f"a frame's binary header cannot be read ({error})") from error


def _sized(raw: bytes, position: int, length: struct.Struct) -> tuple[bytes, int]:
    """A length-prefixed piece of `raw` and the position after it."""
    size = length.unpack_from(raw, position)[0]
    start = position + length.size
    if size < 0 or start + size > len(raw):
        raise ValueError(f"a field of {size} bytes at {position} does not fit")
    return raw[start : start + size], start + size


class FrameBuffer:
    """Cuts received bytes into frames without copying their bodies.

    Bytes are received straight into `writable()`; a body is a view into that memory, which lives
    as long as somebody holds the view. A frame that does not fit in what is left of the buffer
    moves, once, to the start of a new one.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._chunk = memoryview(bytearray(_FIRST_CHUNK))
        self._start = 0  # of the first frame not yet handed out
        self._end = 0  # of what has been received

    def writable(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._chunk[self._end :]

    def received(self, count: int) -> list[Frame]:
        """Account for `count` bytes in `writable()`; the frames they complete."""
        self._end += count
        frames = []
        wanted = 4  # bytes that the frame at _start needs, as far as known
        while self._end - self._start >= 4:
            length = _LENGTH.unpack_from(self._chunk, self._start)[0]
            if length > self._max_frame:
                raise FrameTooLargeError(
                    f"a frame of {length} bytes is announced, more than the {self._max_frame} "
                    "allowed; the peer does not speak RocketMQ's remoting protocol"
                )
            wanted = 4 + length
            if self._end - self._start < wanted:
                break
            frames.append(decode(self._chunk[self._start + 4 : self._start + wanted]))
            self._start += wanted
            wanted = 4
        self._make_room(wanted)
        return frames

    def _make_room(self, wanted: int) -> None:
        if self._end < len(self._chunk) and self._start + wanted <= len(self._chunk):
            return
        size = min(len(self._chunk) * 4, _LARGEST_CHUNK)
        chunk = memoryview(bytearray(max(size, wanted)))
        kept = self._end - self._start
        chunk[:kept] = self._chunk[self._start : self._end]
        self._chunk, self._start, self._end = chunk, 0, kept
