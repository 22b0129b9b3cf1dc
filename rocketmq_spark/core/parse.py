"""Texts that users write as option values, to values: durations, sizes, yes and no, lists.

Every parser takes the text and returns a value, or raises ValueError with what it expected; the
option table puts the option's name around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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


def pairs(value: str) -> dict[str, str]:
    """`10.0.1.=idc1, 10.0.2.=idc2`"""
    found = {}
    for item in names(value):
        key, equals, inner = (part.strip() for part in item.partition("="))
        if not (key and equals and inner):
            raise ValueError(f"{item!r} is no pair; write name=value")
        if key in found:
            raise ValueError(f"{key} is there twice")
        found[key] = inner
    return found


def pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(text(value))
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
