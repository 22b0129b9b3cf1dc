"""Frames: the bytes Java writes, cut anywhere, and anything else refused with our own error."""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.errors import FrameError, FrameTooLargeError
from rocketmq_spark.wire.answers import number
from rocketmq_spark.wire.buffer import FrameBuffer
from rocketmq_spark.wire.frame import (
    BINARY_HEADER,
    JSON_HEADER,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Buffer,
    Frame,
    LikeHeaders,
    decode,
    encode,
)

QUICK = settings(derandomize=True, deadline=None, max_examples=100)

# From the 5.4.0 jars (PROTOCOL section j).
GOLDEN = bytes.fromhex(
    "00000035"  # length of what follows
    "01" + "00002f"  # binary header, of 47 bytes
    "000b"  # code 11
    "03"  # PYTHON
    "01ed"  # version 493
    "00000007"  # opaque
    "00000000"  # flag
    "00000000"  # no remark
    "0000001a"  # 26 bytes of fields
    "0007" + b"queueId".hex() + "00000001" + b"0".hex() + "0005" + b"topic".hex() + "00000001"
    "54"
    "7879"  # body
)
GOLDEN_FRAME = Frame(11, 7, 0, {"queueId": "0", "topic": "T"}, body=b"xy")


def feed(buffer: FrameBuffer, data: Buffer, at_once: int | None = None) -> list[Frame]:
    """What `buffer` makes of `data` when the network gives at most `at_once` bytes at a time."""
    frames: list[Frame] = []
    view = memoryview(data)
    while len(view):
        room = buffer.writable()
        assert len(room) > 0
        count = min(len(view), len(room), at_once or len(view))
        room[:count] = view[:count]
        frames += buffer.received(count)
        view = view[count:]
    return frames


def contents(frame: Frame) -> tuple[object, ...]:
    return (
        frame.code,
        frame.opaque,
        frame.flag,
        dict(frame.ext),
        frame.remark,
        bytes(frame.body),
        frame.version,
    )


def same(left: Iterable[Frame], right: Iterable[Frame]) -> bool:
    return [contents(f) for f in left] == [contents(f) for f in right]


SAMPLES = [
    GOLDEN_FRAME,
    Frame(0, 1, RESPONSE_FLAG, {"nextBeginOffset": "32"}, "FOUND", bytes(range(256)) * 300),
    Frame(17, -5, RESPONSE_FLAG, {}, "没有这个主题", b"", 409),
    Frame(40, 2_000_000_000, ONEWAY_FLAG, {"consumerGroup": "g"}),
]


def test_golden_bytes_of_java() -> None:
    assert encode(GOLDEN_FRAME, BINARY_HEADER) == GOLDEN
    [frame] = feed(FrameBuffer(), GOLDEN)
    assert contents(frame) == contents(GOLDEN_FRAME)


def test_json_header_has_javas_members() -> None:
    raw = encode(Frame(11, 7, 0, {"topic": "T"}, body=b"xy"))
    length, word = struct.unpack_from(">II", raw)
    assert length == len(raw) - 4
    assert word >> 24 == JSON_HEADER
    assert json.loads(raw[8 : 8 + word]) == {
        "code": 11,
        "language": "PYTHON",
        "version": 493,
        "opaque": 7,
        "flag": 0,
        "extFields": {"topic": "T"},
    }
    assert raw[8 + word :] == b"xy"


@pytest.mark.parametrize("kind", [JSON_HEADER, BINARY_HEADER])
@pytest.mark.parametrize("at_once", [None, 1, 7, 1000], ids=["whole", "bytes", "sevens", "1000"])
def test_frames_come_out_however_the_stream_is_cut(kind: int, at_once: int | None) -> None:
    stream = b"".join(encode(frame, kind) for frame in SAMPLES)
    assert same(feed(FrameBuffer(), stream, at_once), SAMPLES)


@pytest.mark.parametrize("kind", [JSON_HEADER, BINARY_HEADER])
def test_trailing_bytes_wait_for_the_rest(kind: int) -> None:
    first, second = encode(SAMPLES[0], kind), encode(SAMPLES[1], kind)
    for cut in (1, 3, 4, 5, 8, len(second) - 1):
        buffer = FrameBuffer()
        assert same(feed(buffer, first + second[:cut]), SAMPLES[:1])
        assert same(feed(buffer, second[cut:]), SAMPLES[1:2])


def test_bodies_stay_whole_while_the_buffer_moves_on() -> None:
    buffer = FrameBuffer()
    sent = [Frame(0, n, RESPONSE_FLAG, body=bytes([n]) * (n * 997)) for n in range(200)]
    stream = b"".join(map(encode, sent))
    assert same(feed(buffer, stream, at_once=50_000), sent)


def test_a_body_larger_than_every_buffer() -> None:
    frame = Frame(0, 1, RESPONSE_FLAG, body=b"0123456789" * 500_000)
    assert same(feed(FrameBuffer(), encode(frame)), [frame])


def test_an_empty_value_is_left_out_of_a_binary_header() -> None:
    # The server would read null, and its signature check would fail.
    [frame] = feed(FrameBuffer(), encode(Frame(1, 1, ext={"a": "", "b": "x"}), BINARY_HEADER))
    assert frame.ext == {"b": "x"}


def test_json_values_that_are_no_text_become_text() -> None:
    header = b'{"code":0,"opaque":3,"flag":1,"extFields":{"offset":12,"none":null},"remark":null}'
    raw = memoryview(struct.pack(">I", len(header)) + header)
    frame = decode(raw, 0, len(raw))
    assert frame.ext == {"offset": "12", "none": ""}
    assert frame.remark == ""
    assert frame.version == 0


def with_header(kind: int, header: bytes, body: bytes = b"") -> bytes:
    size = 4 + len(header) + len(body)
    return struct.pack(">II", size, kind << 24 | len(header)) + header + body


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (struct.pack(">I", 0), "too short"),
        (struct.pack(">I", 3) + b"abc", "too short"),
        (struct.pack(">II", 8, 0x00000FFF) + b"abcd", "4095"),
        (with_header(2, b"{}"), "header kind 2"),
        (with_header(JSON_HEADER, b"GET / HTTP"), "GET / HTTP"),
        (with_header(JSON_HEADER, b'{"opaque":1}'), "code"),
        (with_header(JSON_HEADER, b'{"code":"1","opaque":1}'), "whole numbers"),
        (with_header(JSON_HEADER, b'{"code":1,"opaque":1,"extFields":[1]}'), "extFields"),
        (with_header(JSON_HEADER, b"[]"), "cannot be read"),
        (with_header(JSON_HEADER, b"[" * 100_000), "cannot be read"),
        (with_header(JSON_HEADER, b"\xff\xfe\xfd"), "cannot be read"),
        (with_header(BINARY_HEADER, b"\x00\x0b\x03"), "binary header"),
        (with_header(BINARY_HEADER, b"\x00" * 13 + struct.pack(">i", -1)), "-1 bytes"),
        (with_header(BINARY_HEADER, b"\x00" * 13 + struct.pack(">i", 9) + b"abc"), "9 bytes"),
        (with_header(BINARY_HEADER, b"\x00" * 17 + struct.pack(">ih", 2, 1)), "1 bytes"),
        (with_header(BINARY_HEADER, b"\x00" * 13 + struct.pack(">i", 1) + b"\xff"), "binary"),
    ],
)
def test_garbage_is_a_frame_error_that_says_what(raw: bytes, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        feed(FrameBuffer(), raw)


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 ", b"SSH-2.0-", b"\x15\x03\x03\x00\x02\x02"])
def test_other_protocols_are_refused_by_their_first_bytes(greeting: bytes) -> None:
    with pytest.raises(FrameTooLargeError, match="does not speak RocketMQ"):
        feed(FrameBuffer(), greeting)


def test_an_oversized_frame_is_refused_before_it_is_received() -> None:
    buffer = FrameBuffer(max_frame=100)
    assert feed(buffer, encode(Frame(1))) != []
    with pytest.raises(FrameTooLargeError, match="101 bytes is announced, more than the 100"):
        feed(buffer, struct.pack(">I", 101))


def test_repr_shows_names_and_sizes_but_no_values() -> None:
    frame = Frame(11, 7, 0, {"SecurityToken": "hush", "Signature": "sig"}, body=b"secret")
    text = repr(frame)
    assert text == "<request code=11 opaque=7 ext=['SecurityToken', 'Signature'] body=6 bytes>"
    assert repr(Frame(0, 1, RESPONSE_FLAG)).startswith("<response code=0")


names = st.text(min_size=1, max_size=8)
frames = st.builds(
    Frame,
    code=st.integers(0, 32767),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    ext=st.dictionaries(names, names, max_size=4),
    remark=st.text(max_size=10),
    body=st.binary(max_size=50),
    version=st.integers(0, 32767),
)


@QUICK
@given(st.lists(st.tuples(frames, st.sampled_from([0, 1])), max_size=5), st.integers(1, 100))
def test_any_frames_in_any_cuts(sent: list[tuple[Frame, int]], at_once: int) -> None:
    stream = b"".join(encode(frame, kind) for frame, kind in sent)
    assert same(feed(FrameBuffer(), stream, at_once), [frame for frame, _ in sent])


@QUICK
@given(st.binary(max_size=60))
def test_any_bytes_are_frames_or_a_frame_error(raw: bytes) -> None:
    try:
        feed(FrameBuffer(max_frame=1000), raw)
    except FrameError as error:
        assert str(error)


@QUICK
@given(
    st.sampled_from([0, 1]),
    st.one_of(
        st.binary(max_size=40),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["code", "opaque", "flag", "extFields", "remark", "version"]),
                    inner,
                )
            ),
        ).map(lambda value: json.dumps(value).encode()),
    ),
)
def test_any_header_is_a_frame_or_a_frame_error(kind: int, header: bytes) -> None:
    try:
        [frame] = feed(FrameBuffer(), with_header(kind, header))
    except FrameError as error:
        assert str(error)
    else:
        assert all(isinstance(value, str) for value in frame.ext.values())
        assert repr(frame)


@QUICK
@given(frames, st.sampled_from([0, 1]), st.data())
def test_a_flipped_byte_is_another_frame_or_a_frame_error(
    frame: Frame, kind: int, data: st.DataObject
) -> None:
    raw = bytearray(encode(frame, kind))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        feed(FrameBuffer(max_frame=1 << 16), raw)
    except FrameError as error:
        assert str(error)


# --- headers that are alike -------------------------------------------------------------------

# Of a 5.5.0 broker: the answer to a pull.
PULLED = (
    '{"code":0,"extFields":{"suggestWhichBrokerId":"0","groupSysFlag":"0","nextBeginOffset":"%s",'
    '"maxOffset":"%s","minOffset":"0","topicSysFlag":"0"},"flag":1,"language":"JAVA","opaque":%s,'
    '"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":513}'
)
FIRST = PULLED % (32, 50000, 1)
SWAPPED = '"maxOffset":"50000","nextBeginOffset":"64"'


def pulled(after: object, opaque: object, most: object = 50000) -> str:
    return PULLED % (after, most, opaque)


def parsed(header: bytes) -> Frame:
    return decode(memoryview(struct.pack(">I", len(header)) + header), 0, 4 + len(header))


def read_or_learn(headers: LikeHeaders, header: str | bytes) -> bool:
    """As a session does it. What is read without the parser is what the parser says."""
    raw = header.encode() if isinstance(header, str) else header
    found = headers.read(raw)
    if found is None:
        with contextlib.suppress(FrameError):
            headers.learn(raw, parsed(raw))
        return False
    like, after, opaque = found
    frame = parsed(raw)
    assert (number(frame, "nextBeginOffset"), frame.opaque) == (after, opaque)
    numbers = {name: like.ext[name] for name in ("nextBeginOffset", "maxOffset")}
    assert number(frame, "maxOffset") >= 0
    assert replace(frame, opaque=like.opaque, ext={**frame.ext, **numbers}) == like
    return True


@pytest.mark.parametrize(
    "header",
    [
        pulled(64, 2),
        pulled(64, 2, 50001),
        pulled(32, 1),
        pulled(0, 2147483647, 0),
        pulled(10**18 - 1, 3, 10**18 - 1),
    ],
)
def test_a_header_that_is_like_the_last_one_is_not_parsed(
    header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = LikeHeaders()
    assert not read_or_learn(headers, FIRST)
    assert read_or_learn(headers, header)
    monkeypatch.setattr("rocketmq_spark.wire.frame._decode_json", None)
    assert headers.read(header.encode()) is not None


def test_what_is_shared_has_everything_but_the_body() -> None:
    headers = LikeHeaders()
    body = memoryview(b"some large body")
    headers.learn(FIRST.encode(), replace(parsed(FIRST.encode()), body=body))
    found = headers.read(pulled(64, 2).encode())
    assert found == (parsed(FIRST.encode()), 64, 2)
    assert headers.read(pulled(96, 3).encode())[0] is found[0]  # type: ignore[index]


def test_nothing_is_like_what_was_never_learnt() -> None:
    headers = LikeHeaders()
    for header in (FIRST.encode(), b"", b"{}", b"1"):
        assert headers.read(header) is None


@pytest.mark.parametrize(
    "header",
    [
        # Another value, before, between or behind the numbers; or another length of one.
        pulled(64, 2).replace('"code":0', '"code":1'),
        pulled(64, 2).replace('BrokerId":"0"', 'BrokerId":"1"'),
        pulled(64, 2).replace('minOffset":"0"', 'minOffset":"1"'),
        pulled(64, 2).replace('"flag":1', '"flag":0'),
        pulled(64, 2).replace("FOUND", "FOUNDS"),
        pulled(64, 2).replace("513", "514"),
        # A field more, or less.
        pulled(64, 2).replace('"minOffset":"0",', ""),
        pulled(64, 2).replace('"minOffset":"0",', '"minOffset":"0","offsetDelta":"9",'),
        pulled(64, 2).replace('{"code"', '{"opaque":7,"code"'),
        pulled('64","nextBeginOffset":"65', 2),
        pulled(64, 2, '50000","maxOffset":"50000'),
        pulled(64, '2,"opaque":3'),
        # Another order, another spelling, white space.
        pulled(64, 2).replace('"nextBeginOffset":"64","maxOffset":"50000"', SWAPPED),
        pulled(64, 2).replace('"nextBeginOffset":"64","maxOffset":"50000"', '"maxOffset":"64"'),
        pulled(64, 2).replace("nextBeginOffset", "nextBeginOffse\\u0074"),
        pulled(64, 2).replace(":", ": "),
        pulled(" 64", 2),
        pulled("64 ", 2),
        pulled(64, " 2"),
        pulled(64, "2 "),
        pulled(64, 2) + " ",
        " " + pulled(64, 2),
        # No number, or not as Java writes one.
        pulled("", 2),
        pulled("-1", 2),
        pulled("+1", 2),
        pulled("1_0", 2),
        pulled("x", 2),
        pulled("\u0661", 2),
        pulled("\u00b2", 2),
        pulled(64, 2, ""),
        pulled(64, 2, "-1"),
        pulled(64, -2),
        pulled(64, "+2"),
        pulled(64, "02"),
        pulled(64, "0"),
        pulled(64, "2.0"),
        pulled(64, "2e1"),
        pulled(64, '"2"'),
        pulled(64, "null"),
        pulled(64, ""),
        pulled(64, "9" * 5000),
        pulled("9" * 5000, 2),
        # Parts that overlap, or are left out.
        FIRST[: FIRST.index("32")],
        FIRST[: FIRST.index("32")] + FIRST[FIRST.index(',"remark"') :],
        FIRST[: FIRST.index("32")] + FIRST[FIRST.index(',"remark"') + 1 :],
        FIRST.replace('","maxOffset":"', ""),
        FIRST.replace('"opaque":', ""),
        FIRST[1:],
        FIRST[:-1],
        "",
    ],
)
def test_a_header_that_is_not_quite_alike_is_left_to_the_parser(header: str) -> None:
    headers = LikeHeaders()
    assert not read_or_learn(headers, FIRST)
    assert headers.read(header.encode()) is None
    # And whatever was made of it, those like the first are still understood.
    read_or_learn(headers, header)
    read_or_learn(headers, pulled(96, 3))
    assert read_or_learn(headers, pulled(128, 4))


def test_leading_zeros_of_a_field_are_what_they_are_to_everybody() -> None:
    headers = LikeHeaders()
    read_or_learn(headers, FIRST)
    found = headers.read(pulled("0064", 2, "007").encode())
    assert found is not None and found[1:] == (64, 2)
    assert number(parsed(pulled("0064", 2).encode()), "nextBeginOffset") == 64


def test_another_header_is_learnt_in_the_place_of_the_last() -> None:
    headers = LikeHeaders()
    read_or_learn(headers, FIRST)
    other = PULLED.replace('minOffset":"0"', 'minOffset":"9"')
    assert not read_or_learn(headers, other % (64, 50000, 2))
    assert read_or_learn(headers, other % (96, 50000, 3))
    assert not read_or_learn(headers, pulled(128, 4))
    assert read_or_learn(headers, pulled(160, 5))


@pytest.mark.parametrize(
    "pattern",
    [
        # The offsets are not where they belong, so the fields have none.
        '{"nextBeginOffset":"N","maxOffset":"9","code":0,"opaque":1,"flag":1}',
        '{"code":0,"more":{"nextBeginOffset":"N","maxOffset":"9"},"opaque":1,"flag":1}',
        '{"extFields":{"nextBeginOffset":"N","maxOffset":"9"},"extFields":{},"code":0,"opaque":1,'
        '"flag":1}',
        # A name stands twice, or is written in two ways, and the other one counts.
        '{"code":0,"extFields":{"nextBeginOffset":"N","maxOffset":"9"},"opaque":N,"opaque":5,'
        '"flag":1}',
        '{"opaque":5,"code":0,"extFields":{"nextBeginOffset":"5","maxOffset":"9"},"opaque":N,'
        '"flag":1,"opaque":5}',
        '{"code":0,"extFields":{"nextBeginOffset":"N","maxOffset":"9","nextBeginOffset":"5"},'
        '"opaque":1,"flag":1}',
        '{"code":0,"extFields":{"nextBeginOffset":"N","maxOffset":"9","nextBeginOffse\\u0074":"5"},'
        '"opaque":1,"flag":1}',
        '{"code":0,"extFields":{"nextBeginOffset":"N","maxOffset":"9","nextBeginOffset" :"5"},'
        '"opaque":1,"flag":1}',
        '{"code":0,"extFields":{"nextBeginOffset":"5","maxOffset":"9"},"opaque":N,"flag":1,'
        '"opa\\u0071ue":5}',
        '{"code":0,"extFields":{"nextBeginOffset":"5","maxOffset":"9"},"opaque":N,"flag":1,'
        '"opaque" :5}',
        # It belongs to something else than the header.
        '{"code":0,"extFields":{"nextBeginOffset":"5","maxOffset":"9","x":{"opaque":N,"y":1}},'
        '"opaqu\\u0065":5,"flag":1}',
        # In another order, or the last: left to the parser, though it could be understood.
        '{"code":0,"opaque":N,"extFields":{"nextBeginOffset":"N","maxOffset":"9"},"flag":1}',
        '{"code":0,"extFields":{"maxOffset":"9","nextBeginOffset":"N"},"opaque":1,"flag":1}',
        '{"code":0,"extFields":{"nextBeginOffset":"N","maxOffset":"9"},"flag":1,"opaque":N}',
    ],
)
def test_a_header_that_could_be_misunderstood_is_not_learnt(pattern: str) -> None:
    headers = LikeHeaders()
    for number_in_it in "5678":
        assert not read_or_learn(headers, pattern.replace("N", number_in_it))


NUMBERS = st.one_of(
    st.integers(0, 2**63).map(str),
    st.integers(0, 9).map("0{}".format),
    st.integers(-5, 2**31).map(str),
    st.sampled_from(
        ["", "0", "00", "007", "-1", "+1", "1.0", "1e3", " 5", "5 ", "1_0", "\u0663", "\u00b2"]
    ),
    st.sampled_from(["9" * 30, "9" * 4200, "9" * 5000, "true", "null", '"5"', '5","maxOffset":"6']),
)
FRAGMENTS = st.one_of(
    st.binary(max_size=3),
    st.text('0123456789"\\,:{} -+.eE\u0663', max_size=3).map(str.encode),
)
# Names that are in a header already, in all the ways to write them.
MEMBERS = [
    b'"nextBeginOffset":"7",',
    b'"nextBeginOffset" :"7",',
    b'"nextBeginOffse\\u0074":"7",',
    b'"nextBeginOffset":"7","maxOffset":"8",',
    b'"maxOffset":"7",',
    b'"opaque":7,',
    b'"opaque" :7,',
    b'"opa\\u0071ue":7,',
    b'"extFields":{},',
]


def with_other_numbers(raw: bytes) -> Iterable[bytes]:
    """Headers like this one, each but for one of the numbers in it."""
    for found in re.finditer(rb"[0-9]+", raw):
        yield raw[: found.start()] + b"12" + raw[found.end() :]


@pytest.mark.parametrize("member", MEMBERS, ids=bytes.decode)
def test_a_member_that_stands_twice_anywhere_says_what_the_parser_would(member: bytes) -> None:
    # With the numbers of the second, so that both say the same at first.
    usual = pulled(7, 7, 7).encode()
    for at in [at for at, byte in enumerate(usual, 1) if byte in b",{"]:
        raw = usual[:at] + member + usual[at:]
        for changed in with_other_numbers(raw):
            headers = LikeHeaders()
            read_or_learn(headers, raw)
            read_or_learn(headers, changed)


@st.composite
def headers_of_a_broker(draw: st.DrawFn) -> bytes:
    """One as it should be; or with an odd number, or with a part cut out or put in."""
    numbers = [str(draw(st.integers(1, 2**40))) for _ in range(3)]
    kind = draw(st.sampled_from(["plain", "number", "fragment"]))
    if kind == "number":
        numbers[draw(st.integers(0, 2))] = draw(NUMBERS)
    raw = pulled(*numbers).encode()
    if kind == "fragment":
        at = draw(st.integers(0, len(raw)))
        raw = raw[:at] + draw(FRAGMENTS) + raw[at + draw(st.sampled_from([0, 1, 2, 12])) :]
    return raw


@settings(QUICK, max_examples=400)
@given(st.lists(headers_of_a_broker(), min_size=1, max_size=4), st.booleans())
def test_whatever_comes_a_header_says_what_the_parser_would(
    raws: list[bytes], usual_first: bool
) -> None:
    headers = LikeHeaders()
    if usual_first:
        assert not read_or_learn(headers, FIRST)
    for raw in raws:
        read_or_learn(headers, raw)
        read_or_learn(headers, raw)
        for changed in with_other_numbers(raw):
            read_or_learn(headers, changed)
