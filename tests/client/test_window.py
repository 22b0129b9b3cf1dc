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


def offsets(piece: Piece, memory: bytearray, end: int) -> list[int]:
    """The messages of a piece that are in its range; the rest is cut off by the decoder."""
    found = []
    at, stop = piece.span
    while at < stop:
        found.append(NUMBER.unpack_from(memory, at)[0])
        at += int.from_bytes(memory[at + 8 : at + SMALLEST], "big")
    assert at == stop
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
    memory: bytearray = field(default_factory=bytearray)
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
                    self.rows += offsets(piece, self.memory, self.end) if self.keep else []
                self.tidy()
                continue
            assert flying, f"stuck: {self.window}"
            ask = flying.pop(rng.randrange(min(len(flying), self.reorder)))
            if rng.random() < self.failing:
                self.window.failed(ask)
                continue
            after, body = self.broker.answer(ask)
            self.short += after < ask.end
            self.largest_answer = max(self.largest_answer, len(body))
            at = len(self.memory)
            self.memory += body
            self.take(ask, after, (at, len(self.memory)))
            room = max(self.max_bytes, self.batch_bytes) + self.largest_answer
            assert self.window.ready_bytes <= room
            if rng.random() < 0.1:
                self.tidy()
        assert self.window.flying == flying == []
        assert self.window.ready_bytes == 0
        return self.rows

    def take(self, ask: Ask, after: int, span: tuple[int, int]) -> None:
        first = ask.offset
        if self.keep and span[0] < span[1]:
            first = NUMBER.unpack_from(self.memory, span[0])[0]
        if ask.offset < first < ask.end:
            ask = self.window.began_late(ask, first)
        elif first >= ask.end and ask.extra:
            self.window.failed(ask)
            return
        if first == ask.offset and after == ask.end and span[0] < span[1]:
            self.window.as_asked([(ask, span)], 0)
        else:
            self.window.answered(ask, after, span)

    def tidy(self) -> None:
        """Only what waits is kept, at other places than before."""
        kept = bytearray(b"elsewhere")
        for piece in self.window.waiting():
            at = len(kept)
            kept += self.memory[slice(*piece.span)]
            assert len(kept) - at == piece.size
            self.window.moved(piece, at)
        self.memory = kept


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
    # Three fit, and a size is known before more than one is on its way: none comes for nothing.
    assert broker.answers == 20


def test_large_messages_do_not_come_in_a_flood_where_an_operator_allows_it() -> None:
    """The first answer alone may be large; what is on its way later fits in what may be held."""
    size, held = 1000, 8000
    broker = Broker(cap=lambda now: 1024, size=lambda offset: size)
    window = Window(0, 200, depth=32, max_bytes=held)
    [first] = asks = window.asks()
    assert first.wanted == 4
    memory = 0
    while not window.done:
        for ask in asks:
            after, body = broker.answer(ask)
            window.answered(ask, after, (memory, memory + len(body)))
            memory += len(body)
        window.take()
        asks = window.asks()
        assert sum(ask.wanted for ask in asks) * size <= held
    assert memory == 200 * size


def test_answers_stay_small_where_an_operator_allows_large_ones() -> None:
    reading = reader(CountingBroker(cap=lambda now: 1024), 50_000, max_bytes=1000, keep=False)
    reading.run()
    assert 32 < reading.largest_answer <= 250
    assert reading.asked < 50_000 / 32


def test_messages_that_become_larger_are_asked_for_in_smaller_numbers() -> None:
    sizes = []

    class Growing(CountingBroker):
        def answer(self, ask: Ask) -> tuple[int, bytes]:
            after, body = super().answer(ask)
            sizes.append(len(body) * (1 if ask.offset < 25_000 else 50))
            return after, bytes(sizes[-1])

    reader(Growing(cap=lambda now: 1024), 50_000, max_bytes=4000, keep=False).run()
    assert max(sizes) > 1000 >= max(sizes[-400:])


def test_a_message_beyond_all_limits_is_read_nevertheless() -> None:
    broker = Broker(size=lambda offset: 10_000)
    assert reader(broker, 5, max_bytes=100).run() == list(range(5))


def begin(window: Window) -> list[Ask]:
    """What is asked for when the first, small ask has been answered."""
    [ask] = window.asks()
    window.answered(ask, ask.end, (0, 100))
    return window.asks()


def test_before_a_size_is_known_only_a_few_are_asked_for() -> None:
    window = Window(0, 10_000, depth=32, max_bytes=1 << 20)
    [ask] = window.asks()
    assert ask == Ask(0, 4, 4)
    assert window.asks() == []
    window.answered(ask, 4, (0, 100))
    assert window.asks() == [Ask(at, 32, at + 32) for at in range(4, 4 + 6 * 32, 32)]


def test_without_any_message_a_size_is_still_not_known() -> None:
    window = Window(0, 10_000, depth=32, max_bytes=1 << 20)
    [ask] = window.asks()
    window.answered(ask, 1000, (50, 50))
    assert [ask.offset for ask in window.asks()] == [1000, 1032, 1064, 1096]


def test_the_size_of_the_first_messages_says_how_many_more_to_ask_for() -> None:
    window = Window(0, 10_000, depth=32, max_bytes=1000)
    [ask] = window.asks()
    window.answered(ask, 4, (0, 100))
    # An answer is to take a quarter of what may be held, and 250 are ten messages.
    assert window.asks()[0] == Ask(4, 10, 14)


def test_each_answer_allows_two_more_in_flight() -> None:
    window = Window(0, 100_000, depth=32, max_bytes=1 << 20)
    together = []
    for _ in range(20):
        window.asks()
        together.append(len(window.flying))
        ask = window.flying[0]
        window.answered(ask, ask.end, (0, 100))
    assert together[0] == 1
    assert all(flying <= 4 + 2 * answers for answers, flying in enumerate(together))
    assert together[5] == 4 + 2 * 5
    assert together[14] == 32


def test_a_hole_is_asked_for_before_anything_further_ahead() -> None:
    window = Window(0, 10_000, depth=4, max_bytes=1 << 20)
    first, second, *_ = begin(window)
    window.answered(second, 44, (100, 101))
    window.answered(first, 12, (101, 102))
    asks = window.asks()
    assert [(ask.offset, ask.end) for ask in asks] == [(12, 36), (44, 68)]


def test_what_is_missing_at_the_beginning_is_asked_for_by_itself() -> None:
    window = Window(0, 10_000, depth=4, max_bytes=1 << 20)
    ask, *others = begin(window)
    rest = window.began_late(ask, 10)
    assert rest == Ask(10, 26, 36)
    assert sorted(window.flying) == [rest, *others]
    window.answered(rest, 36, (100, 200))
    assert window.takable == 100  # that of the very first ask: the other has to wait
    [missing] = window.asks()
    assert missing == Ask(4, 6, 10)
    window.answered(missing, 10, (200, 230))
    assert [(piece.offset, piece.end) for piece in window.take()] == [(0, 4), (4, 10), (10, 36)]


def test_the_rest_of_a_try_for_more_is_still_one() -> None:
    window = Window(0, 10_000, depth=1, max_bytes=1 << 20)
    while not (ask := window.asks()[0]).extra:
        window.answered(ask, ask.end, (0, 100))
    rest = window.began_late(ask, ask.offset + 5)
    assert (rest.end, rest.extra, rest.wanted) == (ask.end, ask.extra, ask.wanted - 5)


def test_what_nobody_has_asked_for_yet_is_known() -> None:
    window = Window(0, 10_000, depth=4, max_bytes=1 << 20)
    asks = begin(window)
    assert [window.followed(ask) for ask in asks] == [True, True, True, False]


def test_asks_wait_for_each_other_and_a_hole_for_nobody() -> None:
    window = Window(0, 10_000, depth=8, max_bytes=1 << 20)
    while len(flying := window.asks()) < 8:
        for ask in flying:
            window.answered(ask, ask.end, (0, 32))

    def answer(short: int = 0) -> None:
        ask = flying.pop(0)
        window.answered(ask, ask.end - short, (0, 32))

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
    window.answered(ask, 800, (0, 0))
    [ask] = window.asks()
    assert ask.offset == 800
    window.answered(ask, 20_000, (0, 0))  # beyond the end
    assert window.complete
    assert [(p.offset, p.end) for p in window.take()] == [(0, 800), (800, 20_000)]
    assert window.done


def test_nothing_to_read() -> None:
    window = Window(7, 7, depth=4, max_bytes=1 << 20)
    assert window.done
    assert window.asks() == []
    assert window.take() == []


def test_what_is_known_of_an_answer_stays_with_its_piece() -> None:
    window = Window(0, 68, depth=4, max_bytes=1 << 20)
    first, second = begin(window)
    assert window.take() == [Piece(0, 4, (0, 100), 0, False)]
    window.answered(second, 68, (100, 110), delta=1000, reaches_back=True)
    assert window.take() == []  # not before what precedes it
    window.answered(first, 36, (110, 115))
    assert window.take() == [
        Piece(4, 36, (110, 115), 0, False),
        Piece(36, 68, (100, 110), 1000, True),
    ]


def test_a_piece_that_has_moved_is_the_same_but_for_its_place() -> None:
    window = Window(0, 68, depth=4, max_bytes=1 << 20)
    first, second = begin(window)
    window.answered(second, 68, (100, 110), delta=1000, reaches_back=True)
    window.answered(first, 36, (110, 115))
    waiting = window.waiting()
    assert [piece.span for piece in waiting] == [(0, 100), (100, 110), (110, 115)]
    window.moved(waiting[1], 7)
    assert window.takable == window.ready_bytes == 115
    assert [piece.offset for piece in window.waiting()] == [0, 36, 4]
    assert window.take()[-1] == Piece(36, 68, (7, 17), 1000, True)


def test_repr_is_one_line_of_where_it_stands() -> None:
    window = Window(0, 68, depth=4, max_bytes=1 << 20)
    first, _ = begin(window)
    window.take()
    window.answered(first, 36, (100, 103))
    assert repr(window) == "<Window at 4 of 68, 1 in flight, 3 bytes ready, step 32>"


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=60),
    end=st.integers(1, 3000),
    max_bytes=st.sampled_from([30_000, 1 << 20]),
    depth=st.integers(1, 40),
    delta=st.sampled_from([0, 7]),
)
def test_answers_as_asked_are_the_same_together_and_one_by_one(
    seed: int, sizes: list[int], end: int, max_bytes: int, depth: int, delta: int
) -> None:
    """But for what is forgotten when there is no room; at these sizes there is."""
    order = random.Random(seed)
    one, many = (Window(0, end, depth=depth, max_bytes=max_bytes) for _ in range(2))
    at = turn = 0
    while not one.done:
        asks = one.asks()
        assert many.asks() == asks
        flying = one.flying
        assert many.flying == flying
        order.shuffle(flying)
        came = []
        for ask in flying[: order.randint(0, len(flying))]:
            size, turn = sizes[turn % len(sizes)], turn + 1
            came.append((ask, (at, at + size)))
            at += size
        # The usual ones are taken before those from which something is to be learnt.
        step = one._step
        came.sort(key=lambda each: each[0][1:] != (step, each[0].offset + step))
        for ask, span in came:
            one.answered(ask, ask.end, span, delta)
        many.as_asked(came, delta)
        assert vars(one) == vars(many)
        if order.random() < 0.5:
            assert one.take(100) == many.take(100)


def test_very_many_empty_answers() -> None:
    """As with a filter that nothing matches for millions of messages."""
    window = Window(0, 10**9, depth=1, max_bytes=1 << 20)
    window.answered(window.asks()[0], 4, (0, 1000))
    for number in range(20_000):
        (ask,) = window.asks()
        window.answered(ask, ask.end + number % 2 * 700, (0, 0))
    assert window._typical == 1000


def test_an_answer_that_leads_beyond_all_numbers() -> None:
    window = Window(0, 1000, depth=4, max_bytes=1 << 20)
    window.answered(window.asks()[0], 10**400, (0, 1000))
    assert window.complete
