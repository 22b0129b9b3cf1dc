"""The window against a simulated broker: whatever it does, each message once and in order."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.client.window import Ask, Piece, Window

NUMBER = struct.Struct(">q")
SMALLEST = 12  # bytes of a simulated message: its offset, its size


@dataclass
class Broker:
    """Answers a pull as a broker would; a body says which offsets it holds."""

    cap: Callable[[int], int] = lambda now: 32
    byte_cap: int = 1 << 60
    size: Callable[[int], int] = lambda offset: SMALLEST
    missing: Callable[[int], bool] = lambda offset: False  # compacted away
    overrun: int = 0  # an inner batch goes on beyond what was asked for
    answers: int = 0

    def answer(self, ask: Ask) -> tuple[int, bytes]:
        self.answers += 1
        body, after, got = bytearray(), ask.offset, 0
        most = min(ask.wanted + self.overrun, self.cap(self.answers))
        while got < most:
            if self.missing(after):
                if after >= ask.offset + ask.wanted:
                    break
                after += 1
                continue
            size = self.size(after)
            if body and len(body) + size > self.byte_cap:
                break
            body += NUMBER.pack(after) + size.to_bytes(4, "big") + bytes(size - SMALLEST)
            after += 1
            got += 1
        return after, bytes(body)


class CountingBroker(Broker):
    """Only the number of answers is of interest, not what is in them."""

    def answer(self, ask: Ask) -> tuple[int, bytes]:
        self.answers += 1
        got = min(ask.wanted, self.cap(self.answers))
        return ask.offset + got, bytes(got)


def offsets(piece: Piece, end: int) -> list[int]:
    """The messages of a piece that are in its range; the rest is cut off by the decoder."""
    found, at = [], 0
    while at < len(piece.body):
        found.append(NUMBER.unpack_from(piece.body, at)[0])
        at += int.from_bytes(piece.body[at + 8 : at + SMALLEST], "big")
    return [offset for offset in found if piece.offset <= offset < min(piece.end, end)]


@dataclass
class Reader:
    """What pull.py does with a window, without the sockets."""

    window: Window
    broker: Broker
    depth: int
    max_bytes: int
    start: int
    end: int
    largest_step: int = 1024
    batch_bytes: int = 1
    reorder: int = 1
    failing: float = 0.0
    seed: int = 0
    keep: bool = True
    asked: int = 0
    short: int = 0
    largest_answer: int = 0
    rows: list[int] = field(default_factory=list)

    def run(self) -> list[int]:
        rng, flying = random.Random(self.seed), list[Ask]()
        while not self.window.done:
            for ask in self.window.asks():
                assert self.start <= ask.offset < ask.end <= self.end
                assert ask.wanted <= self.largest_step
                assert ask.end + ask.extra <= self.end
                flying.append(ask)
                self.asked += 1
            assert len(self.window.flying) == len(flying) <= self.depth
            if self.window.takable >= self.batch_bytes or self.window.complete:
                for piece in self.window.take():
                    self.rows += offsets(piece, self.end) if self.keep else []
                continue
            assert flying, f"stuck: {self.window}"
            ask = flying.pop(rng.randrange(min(len(flying), self.reorder)))
            if rng.random() < self.failing:
                self.window.failed(ask)
                continue
            after, body = self.broker.answer(ask)
            self.short += after < ask.end
            self.largest_answer = max(self.largest_answer, len(body))
            self.window.answered(ask, after, body)
            room = max(self.max_bytes, self.batch_bytes) + self.largest_answer
            assert self.window.ready_bytes <= room
        assert self.window.flying == flying == []
        assert self.window.ready_bytes == 0
        return self.rows


def reader(
    broker: Broker,
    end: int,
    *,
    start: int = 0,
    depth: int = 32,
    max_bytes: int = 1 << 24,
    largest_step: int = 1024,
    batch_bytes: int = 1,
    reorder: int = 1,
    failing: float = 0.0,
    seed: int = 0,
    keep: bool = True,
) -> Reader:
    window = Window(start, end, depth=depth, max_bytes=max_bytes, largest_step=largest_step)
    return Reader(
        window,
        broker,
        depth,
        max_bytes,
        start,
        end,
        largest_step,
        batch_bytes,
        reorder,
        failing,
        seed,
        keep,
    )


@settings(derandomize=True, deadline=None, max_examples=120)
@given(
    start=st.integers(0, 100),
    length=st.integers(0, 250),
    depth=st.integers(1, 40),
    max_bytes=st.integers(1, 5000),
    batch_bytes=st.integers(1, 3000),
    largest_step=st.sampled_from([1, 2, 7, 32, 1024]),
    caps=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    byte_cap=st.integers(20, 3000),
    sizes=st.lists(st.integers(SMALLEST, 400), min_size=1, max_size=6),
    holes=st.sampled_from([0, 0, 2, 3, 50]),
    overrun=st.sampled_from([0, 0, 5]),
    reorder=st.integers(1, 40),
    failing=st.sampled_from([0.0, 0.0, 0.2, 0.7]),
    seed=st.integers(0, 1 << 30),
)
def test_every_offset_once_and_in_order(
    start: int,
    length: int,
    depth: int,
    max_bytes: int,
    batch_bytes: int,
    largest_step: int,
    caps: list[int],
    byte_cap: int,
    sizes: list[int],
    holes: int,
    overrun: int,
    reorder: int,
    failing: float,
    seed: int,
) -> None:
    end = start + length

    def missing(offset: int) -> bool:
        return bool(holes) and offset % holes == 1

    broker = Broker(
        cap=lambda now: caps[now // 10 % len(caps)],
        byte_cap=byte_cap,
        size=lambda offset: sizes[offset % len(sizes)],
        missing=missing,
        overrun=overrun,
    )
    rows = reader(
        broker,
        end,
        start=start,
        depth=depth,
        max_bytes=max_bytes,
        largest_step=largest_step,
        batch_bytes=batch_bytes,
        reorder=reorder,
        failing=failing,
        seed=seed,
    ).run()
    assert rows == [offset for offset in range(start, end) if not missing(offset)]


@pytest.mark.parametrize("cap", [8, 32, 64, 1024])
@pytest.mark.parametrize("reorder", [1, 16])
def test_the_brokers_cap_is_found_and_kept(cap: int, reorder: int) -> None:
    length = cap * 1000
    reading = reader(CountingBroker(cap=lambda now: cap), length, reorder=reorder, keep=False)
    reading.run()
    assert reading.asked <= 1.3 * length / cap
    # Short are those in flight before it was known, and a vain try for more once in a while.
    assert reading.short <= 80


@pytest.mark.parametrize(("before", "after"), [(8, 32), (32, 8), (32, 1024)])
def test_a_cap_that_changes_is_found_again(before: int, after: int) -> None:
    # Data go from disk to memory or back, or an operator raises the limit.
    switch = 1000
    broker = CountingBroker(cap=lambda now: before if now <= switch else after)
    length = before * switch + after * 1000
    reading = reader(broker, length, reorder=4, keep=False)
    reading.run()
    assert reading.asked <= 1.3 * 2000


def test_one_short_answer_does_not_slow_down_the_rest() -> None:
    # The end of an index file cuts an answer short once in a while.
    broker = CountingBroker(cap=lambda now: 1 if now % 500 == 0 else 32)
    reading = reader(broker, 32 * 3000, keep=False)
    reading.run()
    assert reading.asked <= 1.3 * 3000


def test_large_messages_are_few_at_a_time() -> None:
    megabyte = 1 << 20
    broker = Broker(cap=lambda now: 8, byte_cap=65536, size=lambda offset: 4 * megabyte)
    reading = reader(
        broker, 20, depth=32, max_bytes=12 * megabyte, batch_bytes=4 * megabyte, reorder=8
    )
    assert reading.run() == list(range(20))
    # Three fit: no more than the first four, sent before a size was known, ever came for nothing.
    assert broker.answers <= 20 + 8


def test_a_message_beyond_all_limits_is_read_nevertheless() -> None:
    broker = Broker(size=lambda offset: 10_000)
    assert reader(broker, 5, max_bytes=100).run() == list(range(5))


def test_before_a_size_is_known_only_a_few_are_asked_for() -> None:
    window = Window(0, 10_000, depth=32, max_bytes=1 << 20)
    asks = window.asks()
    assert [(ask.offset, ask.end) for ask in asks] == [(0, 32), (32, 64), (64, 96), (96, 128)]
    window.answered(asks[0], 32, b"x" * 100)
    assert window.asks()[0].offset == 128


def test_each_answer_allows_two_more_in_flight() -> None:
    window = Window(0, 100_000, depth=32, max_bytes=1 << 20)
    together = []
    for _ in range(20):
        window.asks()
        together.append(len(window.flying))
        ask = window.flying[0]
        window.answered(ask, ask.end, b"x" * 100)
    assert all(flying <= 4 + 2 * answers for answers, flying in enumerate(together))
    assert together[5] == 4 + 2 * 5
    assert together[14] == 32


def test_a_hole_is_asked_for_before_anything_further_ahead() -> None:
    window = Window(0, 10_000, depth=4, max_bytes=1 << 20)
    first, second, *_ = window.asks()
    window.answered(second, 40, b"x")
    window.answered(first, 8, b"x")
    asks = window.asks()
    assert [(ask.offset, ask.end) for ask in asks] == [(8, 32), (40, 64)]


def test_asks_wait_for_each_other_and_a_hole_for_nobody() -> None:
    window = Window(0, 10_000, depth=8, max_bytes=1 << 20)
    for ask in window.asks():
        window.answered(ask, ask.end, bytes(32))
    flying = window.asks()
    assert len(flying) == 8

    def answer(short: int = 0) -> None:
        ask = flying.pop(0)
        window.answered(ask, ask.end - short, bytes(32))

    answer()
    assert window.asks() == []
    answer()
    flying += window.asks()
    assert len(flying) == 8
    hole = flying[0].end - 1
    answer(short=1)
    assert [(ask.offset, ask.end) for ask in window.asks()] == [(hole, hole + 1)]


def test_a_failed_ask_comes_again_unchanged() -> None:
    window = Window(5, 15, depth=4, max_bytes=1 << 20)
    [ask] = window.asks()
    assert window.asks() == []
    window.failed(ask)
    assert window.asks() == [ask]


def test_with_depth_one_the_answer_says_where_to_go_on() -> None:
    # A filter skips far ahead; nothing in between is asked for.
    window = Window(0, 10_000, depth=1, max_bytes=1 << 20)
    [ask] = window.asks()
    window.answered(ask, 800, b"")
    [ask] = window.asks()
    assert ask.offset == 800
    window.answered(ask, 20_000, b"")  # beyond the end
    assert window.complete
    assert [(p.offset, p.end) for p in window.take()] == [(0, 800), (800, 20_000)]
    assert window.done


def test_nothing_to_read() -> None:
    window = Window(7, 7, depth=4, max_bytes=1 << 20)
    assert window.done
    assert window.asks() == []
    assert window.take() == []


def test_the_delta_of_a_static_topic_stays_with_its_piece() -> None:
    window = Window(0, 64, depth=4, max_bytes=1 << 20)
    first, second = window.asks()
    window.answered(second, 64, b"b", delta=1000)
    assert window.take() == []  # not before what precedes it
    window.answered(first, 32, b"a")
    assert window.take() == [Piece(0, 32, b"a", 0), Piece(32, 64, b"b", 1000)]


def test_repr_is_one_line_of_where_it_stands() -> None:
    window = Window(0, 64, depth=4, max_bytes=1 << 20)
    first, _ = window.asks()
    window.answered(first, 32, b"abc")
    assert repr(window) == "<Window at 0 of 64, 1 in flight, 3 bytes ready, step 32>"
