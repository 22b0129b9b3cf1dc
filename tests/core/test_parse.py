"""Texts as users write them: what is taken, and with which words the rest is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.core import parse

PARSERS = [
    parse.text,
    parse.boolean,
    parse.duration,
    parse.size,
    parse.whole(1),
    parse.one_of("A", "B"),
    parse.names,
    parse.pairs,
    parse.pattern,
]


@pytest.mark.parametrize(
    ("parser", "written", "value"),
    [
        (parse.text, "  a b ", "a b"),
        (parse.boolean, "true", True),
        (parse.boolean, " FALSE ", False),
        (parse.duration, "500ms", 0.5),
        (parse.duration, "2s", 2.0),
        (parse.duration, "15m", 900.0),
        (parse.duration, "1.5 H", 5400.0),
        (parse.duration, "1d", 86400.0),
        (parse.duration, "7", 7.0),
        (parse.duration, "0s", 0.0),
        (parse.size, "65536", 65536),
        (parse.size, "512k", 512 * 1024),
        (parse.size, "8m", 8 << 20),
        (parse.size, "8 MB", 8 << 20),
        (parse.size, "8MiB", 8 << 20),
        (parse.size, "1g", 1 << 30),
        (parse.size, "2T", 2 << 40),
        (parse.whole(0), "0", 0),
        (parse.whole(1), " 42 ", 42),
        (parse.whole(1), "007", 7),
        (parse.whole(1), "9" * 18, 10**18 - 1),
        (parse.one_of("CLUSTERING", "BROADCASTING"), "broadcasting", "BROADCASTING"),
        (parse.names, "a", ("a",)),
        (parse.names, " b, a ,c,", ("b", "a", "c")),
        (parse.pairs, "10.0.1.=idc1, b = c", {"10.0.1.": "idc1", "b": "c"}),
    ],
)
def test_taken(parser: Callable[[str], Any], written: str, value: Any) -> None:
    found = parser(written)
    assert found == value
    assert type(found) is type(value)


def test_a_pattern_is_for_whole_names() -> None:
    assert parse.pattern(" orders_.* ").fullmatch("orders_eu")


@pytest.mark.parametrize(
    ("parser", "written", "words"),
    [
        (parse.text, "  ", "it is empty"),
        (parse.boolean, "yes", "write true or false"),
        (parse.boolean, "1", "write true or false"),
        (parse.duration, "soon", "500ms, 2s or 15m"),
        (parse.duration, "-1s", "500ms, 2s or 15m"),
        (parse.duration, "1 week", "500ms, 2s or 15m"),
        (parse.duration, "٣s", "500ms, 2s or 15m"),
        (parse.size, "0", "512k, 8m or 1g"),
        (parse.size, "1.5g", "512k, 8m or 1g"),
        (parse.size, "8 apples", "512k, 8m or 1g"),
        (parse.whole(1), "0", "whole number, at least 1"),
        (parse.whole(0), "-1", "whole number, at least 0"),
        (parse.whole(1), "1_000", "whole number, at least 1"),
        (parse.whole(1), "1e3", "whole number, at least 1"),
        (parse.whole(1), "9" * 5000, "whole number, at least 1"),
        (parse.one_of("all", "topic"), "both", "write one of all, topic"),
        (parse.names, " , ", "separated by commas"),
        (parse.names, "a,b,a", "a is there twice"),
        (parse.pattern, "(", "not a regular expression"),
        (parse.pairs, "a=1,b", "'b' is no pair; write name=value"),
        (parse.pairs, "a=1,a=2", "a is there twice"),
    ],
)
def test_refused(parser: Callable[[str], Any], written: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parser(written)


@given(st.sampled_from(PARSERS), st.text(max_size=20))
def test_whatever_is_written_is_taken_or_refused(
    parser: Callable[[str], Any], written: str
) -> None:
    try:
        parser(written)
    except ValueError as error:
        assert str(error)
