"""A landing keeps frames where they came until it is told which of them to keep."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.errors import FrameError
from rocketmq_spark.wire.buffer import FrameBuffer, Landing
from rocketmq_spark.wire.frame import RESPONSE_FLAG, Frame, decode, encode
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


# --- where frames are -------------------------------------------------------------------------


def cut(buffer: FrameBuffer, data: bytes) -> list[tuple[int, int]]:
    buffer.writable()[: len(data)] = data
    return buffer.cut(len(data))


def test_frames_are_cut_where_they_begin_and_end() -> None:
    stream = encode(frame(1, 50)) + encode(frame(2, 0)) + encode(frame(3, 70))
    buffer = FrameBuffer()
    memory = buffer.memory
    assert cut(buffer, stream[:10]) == []
    spans = cut(buffer, stream[10:-1])
    assert len(spans) == 2
    spans += cut(buffer, stream[-1:])
    assert [decode(memory, *span) for span in spans] == [frame(1, 50), frame(2, 0), frame(3, 70)]
    # Without its length, which is right before each.
    assert [start for start, _ in spans] == [4] + [end + 4 for _, end in spans[:-1]]


def test_places_are_in_the_memory_that_the_bytes_were_received_into() -> None:
    """A buffer that is full goes on in another one at once."""
    buffer = FrameBuffer()
    memory = buffer.memory
    head = len(encode(frame(1, 0)))
    [(start, end)] = cut(buffer, encode(frame(1, len(memory) - head)))
    assert buffer.memory is not memory
    assert decode(memory, start, end) == frame(1, len(memory) - head)
    [one] = feed(buffer, encode(frame(2, len(buffer.memory) - head)))
    assert one.body.obj is not buffer.memory.obj  # type: ignore[union-attr]
    assert set(one.body) == {2}


@pytest.mark.parametrize("size", range(4))
def test_a_frame_too_short_for_a_header_is_refused_before_it_has_come(size: int) -> None:
    buffer = FrameBuffer()
    first = encode(frame(1, 5))
    with pytest.raises(FrameError, match=f"a frame of {size} bytes is too short"):
        cut(buffer, first + size.to_bytes(4, "big"))


def test_the_shortest_frame_there_can_be() -> None:
    assert cut(FrameBuffer(), bytes([0, 0, 0, 4]) + bytes(4)) == [(4, 8)]
