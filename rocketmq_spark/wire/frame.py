"""Frames with JSON or binary headers.

A frame is: length (4 bytes, of all that follows), header kind (1), header length (3), header, body.
"""

from __future__ import annotations

import json
import re
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


def fill_in(pattern: bytes, numbers: tuple[int, ...]) -> bytes:
    """The bytes of a request without a body, from its pattern."""
    header = pattern % numbers
    size = len(header)
    return _LENGTHS.pack(4 + size, size) + header


# Kind (upper bits, 0 for JSON) and size of the header of a frame that begins there, in one number.
header_word = _LENGTH.unpack_from


def decode(data: memoryview, start: int, end: int) -> Frame:
    """The frame between these places, without its length. The body is a view, not a copy."""
    word = header_word(data, start)[0]
    kind, at = word >> 24, start + 4 + (word & 0xFFFFFF)
    if at > end:
        raise FrameError(
            f"a frame of {end - start} bytes says its header has {at - start - 4} bytes; "
            "the peer does not speak RocketMQ's remoting protocol"
        )
    header, body = data[start + 4 : at].tobytes(), data[at:end]
    if kind == JSON_HEADER:
        frame = _decode_json(header, body)
    elif kind == BINARY_HEADER:
        frame = _decode_binary(header, body)
    else:
        raise FrameError(f"unknown header kind {kind}; only 0 (JSON) and 1 (binary) exist")
    frame.at = at
    return frame


class LikeHeaders:
    """Reads JSON headers that are like one parsed before, but for some numbers in them.

    Answers to a series of pulls are. The rest is compared byte for byte, so what comes out is
    always what the JSON parser would say.
    """

    def __init__(self) -> None:
        self._like: Frame | None = None  # without its body
        self._fixed = b"", b"", b"", b""  # the parts of its header around the numbers

    def read(self, header: bytes) -> tuple[Frame, int, int] | None:
        """The frame it is like, its nextBeginOffset and its opaque; None if it is not alike."""
        like = self._like
        before, first, second, after = self._fixed
        if not (like and header.startswith(before) and header.endswith(after)):
            return None
        offset, _, rest = header[len(before) : -len(after)].partition(first)
        most, _, opaque = rest.partition(second)
        # Only as Java writes them: Python takes more for a number.
        digits = offset.isdigit() and most.isdigit() and opaque.isdigit()
        long = len(offset) > _DIGITS or len(most) > _DIGITS or len(header) > LONGEST_ALIKE
        if not digits or opaque[0] == _ZERO or long:
            return None
        return like, int(offset), int(opaque)

    def learn(self, header: bytes, frame: Frame) -> None:
        """`frame` was parsed from `header`: the next ones may be like it."""
        if len(header) > LONGEST_ALIKE:
            return
        # A name may be written in another way, or stand in another place.
        once = all(
            header.count(name) == 1 for name in (b"nextBeginOffset", b"maxOffset", b"opaque")
        )
        found = _NUMBERS.fullmatch(header)
        if found and once and b"\\" not in header:
            before, offset, first, most, second, opaque, after = found.groups()
            read = (frame.ext.get("nextBeginOffset"), frame.ext.get("maxOffset"), frame.opaque)
            if read == (offset.decode(), most.decode(), int(opaque)):
                self._fixed = before, first, second, after
                self._like = replace(frame, body=b"")


# As RocketMQ's brokers write them.
_NUMBERS = re.compile(
    rb'(.*"nextBeginOffset":")(\d+)(","maxOffset":")(\d+)(".*"opaque":)([1-9]\d{0,9})(,.*)',
    re.DOTALL,
)
_ZERO = ord("0")
LONGEST_ALIKE = 4096
_DIGITS = 18  # with so many, a number is one of Java's, whatever they are


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
