"""A landing keeps frames where they came until it is told which of them to keep."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.errors import FrameError
from rocketmq_spark.wire.buffer import FrameBuffer, Landing
from rocketmq_spark.wire.frame import RESPONSE_FLAG, Frame, HeaderMemory, decode, encode
from tests.wire.test_frame import QUICK, feed


def frame(number: int, size: int) -> Frame:
    return Frame(0, number, RESPONSE_FLAG, body=bytes([number % 251]) * size)


def body_at(landing: Landing, received: Frame) -> bytes:
    return bytes(landing.memory[received.at : received.at + len(received.body)])


@QUICK
@given(
    st.lists(st.integers(0, 30_000), min_size=1, max_size=20),
    st.integers(1, 40_000),
    st.integers(0, 2**32),
)
def test_kept_frames_and_the_unfinished_one_survive_every_tidying(
    sizes: list[int], at_once: int, seed: int
) -> None:
    dice = random.Random(seed)
    landing = Landing()
    kept: list[tuple[int, int, bytes]] = []  # place, size, content
    stream = memoryview(b"".join(encode(frame(n, size)) for n, size in enumerate(sizes)))
    came = 0
    while len(stream):
        room = landing.writable()
        count = min(len(room), len(stream), at_once)
        room[:count] = stream[:count]
        stream = stream[count:]
        for each in landing.received(count):
            assert bytes(each.body) == body_at(landing, each)
            kept.append((each.at, len(each.body), bytes(each.body)))
            came += 1
        if landing.full or dice.random() < 0.3:
            kept = [each for each in kept if dice.random() < 0.5]
            places = landing.tidy([(at, at + size) for at, size, _ in kept], dice.randrange(50_000))
            kept = [(at, size, body) for at, (_, size, body) in zip(places, kept, strict=True)]
            assert not landing.full
        for at, size, body in kept:
            assert landing.memory[at : at + size] == body
    assert came == len(sizes)


def test_memory_is_used_again_when_there_is_enough() -> None:
    landing = Landing()
    landing.tidy([], 100_000)
    memory = landing.memory
    for number in range(20):
        [one] = feed(landing, encode(frame(number, 40_000)))
        assert body_at(landing, one) == bytes([number]) * 40_000
        landing.tidy([], 100_000)
    assert landing.memory is memory


def test_a_landing_goes_on_with_what_another_buffer_has_begun() -> None:
    whole = encode(frame(7, 20_000))
    for cut in (0, 1, 4, 100, len(whole) - 1):
        first, landing = FrameBuffer(), Landing()
        landing.tidy([], 100_000)
        [kept] = feed(landing, encode(frame(3, 5_000)))
        assert feed(first, whole[:cut]) == []
        landing.take_over(first)
        [done] = feed(landing, whole[cut:])
        assert body_at(landing, done) == bytes([7]) * 20_000
        assert body_at(landing, kept) == bytes([3]) * 5_000


def test_an_unfinished_frame_is_forgotten_with_its_connection() -> None:
    landing = Landing()
    [kept] = feed(landing, encode(frame(3, 500)))
    assert feed(landing, encode(frame(4, 900))[:600]) == []
    landing.drop_unfinished()
    [after] = feed(landing, encode(frame(5, 700)))
    assert body_at(landing, kept) == bytes([3]) * 500
    assert body_at(landing, after) == bytes([5]) * 700


# --- headers that are alike -------------------------------------------------------------------

HEADER = (
    '{"code":0,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%s","maxOffset":"%s"},'
    '"flag":1,"language":"JAVA","opaque":%s,"serializeTypeCurrentRPC":"JSON","version":513}'
)

TWICE = '{"nextBeginOffset":"5","code":0,"opaque":N,"opaque":9,"flag":1}'
BEFORE = '{"code":0,"extFields":{"nextBeginOffset":"5"},"opaque":N,"flag":1,"opaque":9}'
SPELLED = (
    '{"code":0,"extFields":{"a\\"nextBeginOffset":"%s","nextBeginOffse\\u0074":"%s"},'
    '"flag":1,"opaque":1,"version":513}'
)
SPACED = (
    '{"nextBeginOffset":"%s","code":0,"extFields":{"nextBeginOffset" :"%s"},'
    '"flag":1,"opaque":1,"version":513}'
)
LAST = '{"code":0,"extFields":{"nextBeginOffset":"7"},"flag":1,"opaque":N}'


def read(header: str, memory: HeaderMemory | None = None) -> Frame:
    data = header.encode()
    raw = memoryview(len(data).to_bytes(4, "big") + data + b"body")
    return decode(raw, 0, len(raw), memory)


@pytest.mark.parametrize(
    "headers",
    [
        [HEADER % (32, 900, 1), HEADER % (64, 900, 2), HEADER % (128, 900, 30)],
        [HEADER % (32, 900, 1), HEADER % (32, 901, 2), HEADER % (32, 900, 3)],
        [HEADER % ("-1", 900, 1), HEADER % (5, 900, 2), HEADER % ("", 900, 3)],
        [HEADER % (5, 900, -2), HEADER % (6, 900, 3), HEADER % (6, 900, -3)],
        # The offset is not where it belongs, or what is read first is not what counts.
        ['{"nextBeginOffset":"5","code":0,"opaque":1,"flag":1}'] * 2,
        [TWICE.replace("N", number) for number in "98"],
        [LAST.replace("N", number) for number in "12"],
        [HEADER % (5, 900, 1), HEADER % (5, 900, 0)],
        # Something before or behind both numbers is another.
        [HEADER % (5, 900, 1), (HEADER % (6, 900, 2)).replace('Id":"0"', 'Id":"1"')],
        [HEADER % (5, 900, 1), (HEADER % (6, 900, 2)).replace("513", "514")],
        # A name stands twice, or is written in two ways, and the other one counts.
        [BEFORE.replace("N", number) for number in "98"],
        [SPELLED % ("5", "5"), SPELLED % ("9", "5")],
        [SPACED % ("5", "5"), SPACED % ("9", "5")],
    ],
)
def test_a_remembered_header_says_what_the_parser_would(headers: list[str]) -> None:
    memory = HeaderMemory()
    seen = [read(header, memory) for header in headers]
    assert seen == [read(header) for header in headers]
    # Each has fields of its own: what one asker does to them is no concern of the next.
    seen[0].ext["mine"] = "x"  # type: ignore[index]
    assert "mine" not in read(headers[0], memory).ext


def test_a_remembered_header_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = HeaderMemory()
    read(HEADER % (32, 900, 1), memory)
    monkeypatch.setattr("rocketmq_spark.wire.frame._decode_json", None)
    like = read(HEADER % (64, 900, 2), memory)
    assert (like.opaque, like.ext["nextBeginOffset"]) == (2, "64")
    with pytest.raises(TypeError):
        read(HEADER % (64, 901, 2), memory)


@pytest.mark.parametrize("opaque", ["007", "9" * 5000])
def test_a_remembered_header_refuses_what_the_parser_refuses(opaque: str) -> None:
    memory = HeaderMemory()
    read(HEADER % (32, 900, 1), memory)
    with pytest.raises(FrameError):
        read(HEADER % (64, 900, opaque), memory)
