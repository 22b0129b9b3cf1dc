"""Reads the JSON that RocketMQ's servers write, which is not always JSON.

fastjson writes map keys as they are: bare integers (`{0:"10.0.0.1:10911"}`) and even objects
(`{{"topic":"T"}:{...}}`). Answers may be either form, so standard JSON is tried first, at C speed.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rocketmq_spark.errors import ResponseError

_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"[^\s,:{}\[\]\"]+")
_VALUE = json.JSONDecoder().raw_decode

# Deep enough for every answer there is, and far from Python's own limit.
_DEEPEST = 64


def loads(raw: bytes | bytearray | memoryview, what: str = "the answer") -> Any:
    """The value in `raw`. An object used as a key becomes a tuple of its (name, value) pairs."""
    try:
        text = bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise ResponseError(f"{what} is not UTF-8 text: {error}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        value, end = _value(text, _skip(text, 0), 0)
        if _skip(text, end) != len(text):
            raise ValueError(f"unexpected text at {end}")
        return value
    except (ValueError, IndexError, TypeError) as error:
        # IndexError is text that ends too early; TypeError is a key that holds an array.
        raise ResponseError(f"{what} is not readable JSON ({error}): {text[:80]!r}") from error


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match  # it matches nothing, too
    return match.end()


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if text[at] == "{":
        return _object(text, at, depth)
    if text[at] == "[":
        return _array(text, at, depth)
    value, end = _VALUE(text, at)
    return value, end


def _check(depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} levels deep")


def _object(text: str, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    _check(depth)
    found: dict[Any, Any] = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _key(text, at, depth)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError(f"':' expected at {at}")
        value, at = _value(text, _skip(text, at + 1), depth + 1)
        found[key] = value
        at = _next(text, at, "}")
    return found, at + 1


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    _check(depth)
    found = []
    at = _skip(text, at + 1)
    while text[at] != "]":
        value, at = _value(text, at, depth + 1)
        found.append(value)
        at = _next(text, at, "]")
    return found, at + 1


def _next(text: str, at: int, close: str) -> int:
    """The position of the next item, or of the closing bracket."""
    at = _skip(text, at)
    if text[at] == ",":
        return _skip(text, at + 1)
    if text[at] != close:
        raise ValueError(f"',' or '{close}' expected at {at}")
    return at


def _key(text: str, at: int, depth: int) -> tuple[Any, int]:
    if text[at] == "{":
        value, end = _object(text, at, depth + 1)
        return tuple(value.items()), end
    if text[at] == '"':
        return _VALUE(text, at)
    bare = _BARE.match(text, at)
    if not bare:
        raise ValueError(f"a key expected at {at}")
    return bare.group(), bare.end()
