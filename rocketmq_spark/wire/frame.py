"""Frames with JSON or binary headers.

A frame is: length (4 bytes, of all that follows), header kind (1), header length (3), header, body.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from rocketmq_spark.errors import FrameError

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

_LENGTH = struct.Struct(">I")
_LENGTHS = struct.Struct(">II")  # of a frame and of its JSON header, whose kind 0 takes no bits
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
    # Of a received frame: where in its buffer's memory the body begins.
    at: int = field(default=0, compare=False)

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
    fields = [f"{_quote(name)}:".replace("%", "%%") + "%s" for name in names]
    return _json_header("%d", "%d", "%d", "%d", fields)


def _json_header(code: object, version: object, opaque: object, flag: object, fields: Any) -> str:
    return (
        f'{{"code":{code},"language":"{LANGUAGE}","version":{version},"opaque":{opaque},'
        f'"flag":{flag},"extFields":{{{",".join(fields)}}}}}'
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


def json_pattern(code: int, ext: Mapping[str, str], varying: Iterable[str]) -> bytes:
    """The header of requests that differ only in `varying`: to be filled with the request's own
    number and then with a number for each of those fields."""
    fixed = [f"{_quote(name)}:{_quote(value)}".replace("%", "%%") for name, value in ext.items()]
    fields = [*fixed, *(f'{_quote(name)}:"%d"' for name in varying)]
    return _json_header(code, VERSION, "%d", 0, fields).encode()


def fill_in(pattern: bytes, *numbers: int) -> bytes:
    """The bytes of a request without a body, from its pattern."""
    header = pattern % numbers
    return _LENGTHS.pack(4 + len(header), len(header)) + header


def decode(data: memoryview, start: int, end: int, memory: HeaderMemory | None = None) -> Frame:
    """The frame between these places, without its length. The body is a view, not a copy."""
    if end - start < 4:
        raise FrameError(f"a frame of {end - start} bytes is too short to hold a header")
    word = _LENGTH.unpack_from(data, start)[0]
    kind, at = word >> 24, start + 4 + (word & 0xFFFFFF)
    if at > end:
        raise FrameError(
            f"a frame of {end - start} bytes says its header has {at - start - 4} bytes; "
            "the peer does not speak RocketMQ's remoting protocol"
        )
    header, body = data[start + 4 : at].tobytes(), data[at:end]
    if kind == JSON_HEADER:
        frame = memory.decode(header, body) if memory else _decode_json(header, body)
    elif kind == BINARY_HEADER:
        frame = _decode_binary(header, body)
    else:
        raise FrameError(f"unknown header kind {kind}; only 0 (JSON) and 1 (binary) exist")
    frame.at = at
    return frame


_OFFSET = b'"nextBeginOffset":"'
_OPAQUE = b'"opaque":'
_ZERO = ord("0")


class HeaderMemory:
    """Reads JSON headers, and only two numbers of those that are otherwise like the last one.

    Answers to a series of pulls are. The rest is compared byte for byte, so what comes out is
    always what the JSON parser would say.
    """

    def __init__(self) -> None:
        self._known: Frame | None = None
        self._ext: dict[str, str] = {}
        # The parts of its header before, between and after the two numbers.
        self._before = self._between = self._after = b""

    def decode(self, header: bytes, body: memoryview) -> Frame:
        before, after, known = self._before, self._after, self._known
        if known and header.startswith(before) and header.endswith(after):
            numbers = header[len(before) : len(header) - len(after)]
            offset, _, opaque = numbers.partition(self._between)
            # Only as Java writes them: Python takes more for a number.
            if offset.isdigit() and opaque.isdigit() and opaque[0] != _ZERO and len(opaque) <= 10:
                ext = self._ext.copy()
                ext["nextBeginOffset"] = offset.decode()
                return Frame(
                    known.code, int(opaque), known.flag, ext, known.remark, body, known.version
                )
        frame = _decode_json(header, body)
        self._learn(header, frame)
        return frame

    def _learn(self, header: bytes, frame: Frame) -> None:
        before, name, tail = header.partition(_OFFSET)
        offset, quote, tail = tail.partition(b'"')
        between, second, tail = tail.partition(_OPAQUE)
        opaque, comma, after = tail.partition(b",")
        # A name may be written in another way, or stand in another place.
        once = header.count(b"nextBeginOffset") == 1 == header.count(b"opaque")
        as_read = (frame.ext.get("nextBeginOffset", "").encode(), b"%d" % frame.opaque)
        if once and b"\\" not in header and as_read == (offset, opaque):
            self._before, self._after = before + name, comma + after
            self._between = quote + between + second
            self._known, self._ext = replace(frame, body=b""), dict(frame.ext)


def _decode_json(raw: bytes, body: Buffer) -> Frame:
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
