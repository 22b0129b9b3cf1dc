"""fastjson's JSON, and everything that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.errors import ResponseError
from rocketmq_spark.wire.loose_json import loads

QUICK = settings(derandomize=True, deadline=None, max_examples=80)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
        ('{0:"a:1",1:"b:2"}', {"0": "a:1", "1": "b:2"}),
        ("{-1:2}", {"-1": 2}),
        ('{ 0 : { 1 : [ { } , [ ] ] } , "k" : -1.5e3 }', {"0": {"1": [{}, []]}, "k": -1500.0}),
        ('{{"topic":"t","queueId":0}:{"max":1}}', {(("topic", "t"), ("queueId", 0)): {"max": 1}}),
        ('{0:"{1:2},\\"{"}', {"0": '{1:2},"{'}),  # what is inside a string is left alone
        ('{0:"中文\\u4e2d"}', {"0": "中文中"}),
        ("[{0:1},{1:2}]", [{"0": 1}, {"1": 2}]),
    ],
)
def test_reads(text: str, value: Any) -> None:
    assert loads(text.encode()) == value


def test_any_buffer() -> None:
    assert loads(memoryview(b"{1:2}")) == loads(bytearray(b"{1:2}")) == {"1": 2}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"[",
        b"{0",
        b"{0:",
        b"{0:1",
        b"{0 1}",
        b"{0:1 2}",
        b"{:1}",
        b'{0:"unfinished}',
        b"{0:nonsense}",
        b"[{0:1}",
        b"[{0:1}}",
        b"{0:1}x",
        b"{{:1}:1}",
        b'{{"a":[1]}:1}',  # a key that cannot be one
        b"\xff\xfe",
        b"<html>",
    ],
)
def test_refuses(text: bytes) -> None:
    with pytest.raises(ResponseError, match="the list"):
        loads(text, "the list")


@pytest.mark.parametrize("bracket", [b"[", b"{", b'{"a":', b"{0:", b"[{0:"])
def test_depth_is_limited_not_recursed(bracket: bytes) -> None:
    with pytest.raises(ResponseError):
        loads(bracket * 50_000)


def test_a_refusal_shows_the_beginning_only() -> None:
    with pytest.raises(ResponseError) as caught:
        loads(b"<html>" + b"x" * 10_000, "the route")
    assert "<html>" in str(caught.value)
    assert len(str(caught.value)) < 300


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers(0, 99).map(str), inner),
)


def loosely(value: Any) -> str:
    """As fastjson writes maps with integer keys."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{loosely(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(loosely, value)) + "]"
    return json.dumps(value)


@QUICK
@given(values)
def test_bare_keys_mean_what_quoted_keys_mean(value: Any) -> None:
    assert loads(loosely(value).encode()) == value


@QUICK
@given(st.text(alphabet='{}[]:,"\\ 01ax-', max_size=30) | st.text(max_size=20))
def test_any_text_is_a_value_or_a_response_error(text: str) -> None:
    try:
        loads(text.encode("utf-8", "surrogatepass"))
    except ResponseError as error:
        assert str(error)
