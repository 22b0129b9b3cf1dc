"""A message's properties as RocketMQ writes them: name, 0x01, value, 0x02, and again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocketmq_spark.errors import UsageError

MAX_PROPERTIES = 32767  # the length is a signed 16-bit number

# Java replaces a surrogate written as UTF-8 by one U+FFFD; Python would write one for each byte.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def decode_text(data: bytes) -> str:
    """new String(data, UTF_8): whatever is not UTF-8 becomes U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """MessageDecoder.messageProperties2String. What would read back otherwise is refused.

    An empty value is written as Java writes it; every reader takes the property for absent.
    """
    parts: list[bytes] = []
    for name, value in properties.items():
        if not name:
            raise UsageError(f"a property needs a name; its value is {value!r}")
        if "\x01" in name or "\x02" in name:
            raise UsageError(
                f"property name {name!r} holds U+0001 or U+0002, by which RocketMQ separates"
            )
        if "\x02" in value:
            raise UsageError(
                f"the value of property {name!r} holds U+0002, by which RocketMQ separates"
            )
        try:
            parts.append(f"{name}\x01{value}\x02".encode())
        except UnicodeEncodeError as problem:
            raise UsageError(f"property {name!r} is not valid text: {problem.reason}") from problem
    encoded = b"".join(parts)
    if len(encoded) > MAX_PROPERTIES:
        longest = max(properties, key=lambda name: len(name) + len(properties[name]))
        raise UsageError(
            f"the properties take {len(encoded)} bytes, and RocketMQ stores at most "
            f"{MAX_PROPERTIES}; the longest is {longest!r}"
        )
    return encoded


def decode_properties(data: bytes) -> dict[str, str]:
    """MessageDecoder.string2messageProperties.

    An item without a name, without a value or without the separator is left out; of a repeated
    name the last value stays; a value may hold U+0001.
    """
    properties: dict[str, str] = {}
    for item in data.split(b"\x02"):
        name, _, value = item.partition(b"\x01")
        if name and value:
            properties[decode_text(name)] = decode_text(value)
    return properties
