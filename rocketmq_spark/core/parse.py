"""Texts that users write as option values, to values: durations, sizes, yes and no, lists.

Every parser takes the text and returns a value, or raises ValueError with what it expected; the
option table puts the option's name around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*", re.IGNORECASE | re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE | re.ASCII)
# Up to Java's long; int() alone would take 1_000 and a thousand digits too.
_WHOLE = re.compile(r"\s*\d{1,18}\s*", re.ASCII)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def boolean(value: str) -> bool:
    """As Spark does."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("write true or false")
    return lowered == "true"


def duration(value: str) -> float:
    """Seconds, from `500ms`, `2s`, `15m`, `1h`, `1d`; a bare number is seconds."""
    match = _DURATION.fullmatch(value)
    if not match:
        raise ValueError("write a duration such as 500ms, 2s or 15m")
    return float(match[1]) * _SECONDS[(match[2] or "s").lower()]


def size(value: str) -> int:
    """Bytes, from `65536`, `512k`, `8m`, `1g`."""
    match = _SIZE.fullmatch(value)
    if not match or int(match[1]) == 0:
        raise ValueError("write a size such as 512k, 8m or 1g")
    return int(match[1]) * _FACTORS[match[2].lower()]


def whole(least: int) -> Callable[[str], int]:
    """A parser of whole numbers from `least` on."""

    def parse(value: str) -> int:
        number = int(value) if _WHOLE.fullmatch(value) else least - 1
        if number < least:
            raise ValueError(f"write a whole number, at least {least}")
        return number

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser that takes any spelling of upper and lower case and gives the proper one."""
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(value: str) -> str:
        chosen = by_lower.get(value.strip().lower())
        if chosen is None:
            raise ValueError(f"write one of {', '.join(choices)}")
        return chosen

    return parse


def names(value: str) -> tuple[str, ...]:
    """`a, b,c`, each once."""
    found = [part.strip() for part in value.split(",") if part.strip()]
    if not found:
        raise ValueError("write one name, or several separated by commas")
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]} is there twice")
    return tuple(found)


def pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(text(value))
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error


def json_object(value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value, object_pairs_hook=_no_repeats)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(parsed, dict):
        raise ValueError("write a JSON object")
    return parsed


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        every = [name for name, _ in pairs]
        twice = next(name for name in every if every.count(name) > 1)
        raise ValueError(f"the name {twice!r} is there twice")
    return found
