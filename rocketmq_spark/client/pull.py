"""Reads one offset range of one queue: many stateless pulls in flight, rows out in order.

What an answer means is decided in `_judge`; what to ask for is decided by the window; this module
sends, receives, changes brokers and is patient.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.metadata import Metadata, reading_addresses
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.client.reading import Filter, PullSettings
from rocketmq_spark.client.refusals import (
    gone,
    leads_nowhere,
    not_there,
    passed_over,
    refused,
)
from rocketmq_spark.client.retry import FIRST_PAUSE, LONGEST_PAUSE
from rocketmq_spark.client.watch import Watch, overtaken
from rocketmq_spark.client.window import Ask, Piece, Window, runs
from rocketmq_spark.core.model import MASTER_ID, MessageQueue, Route
from rocketmq_spark.errors import (
    FrameError,
    NetworkError,
    ResponseError,
    RocketMQError,
    TopicNotFoundError,
    during,
)
from rocketmq_spark.wire import commands
from rocketmq_spark.wire.answers import before, first_offset, number
from rocketmq_spark.wire.buffer import FrameBuffer, Landing
from rocketmq_spark.wire.decode import Decoder
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import SeriesAnswer
from rocketmq_spark.wire.walk import insist_on_record

log = logging.getLogger(__name__)

FOUND = 0
NOT_FOUND = 19
RETRY_IMMEDIATELY = 20
OFFSET_MOVED = 21

# Broker's words (GetMessageStatus) that tell apart what one code says.
_RESET = "OFFSET_RESET"
_REMOVING = "MESSAGE_WAS_REMOVING"
_NO_MATCH = "NO_MATCHED_MESSAGE"
# MQVersion of 5.0.0: older brokers have no compacted topics.
COMPACTING = 413

# A broker ends an answer there (maxTransferBytesOnMessageInMemory) unless one message is larger.
_USUAL_ANSWER = 256 * 1024
# One of so many parts of a batch is decoded when the broker has nothing for us at the moment.
_LEAST_SHARE = 4
# Memory for answers beside that for one batch.
_MOST_BESIDE = 8 * 1024 * 1024

# How a broker says that offsets are stored as they are asked for.
_NO_DELTA = (None, "", "0")


class _TryAgainError(Exception):
    """Leave this connection and come back after a pause."""

    def __init__(self, reason: RocketMQError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class RangeReader:
    """One read of one range: an iterator of RecordBatches in offset order."""

    def __init__(
        self,
        metadata: Metadata,
        pool: Pool,
        queue: MessageQueue,
        start: int,
        end: int,
        decoder: Decoder,
        settings: PullSettings,
        selection: Filter,
    ) -> None:
        self._metadata = metadata
        self._pool = pool
        self._queue = queue
        self._decoder = decoder
        self._settings = settings
        self._filter = selection
        self._window = Window(
            start,
            end,
            # With a filter an answer says where the next may start, so there is nothing to overlap.
            depth=1 if selection.selects else settings.in_flight,
            max_bytes=settings.window_bytes,
            largest_step=settings.largest_pull,
        )
        # Answers stay where they were received until they are decoded.
        self._landing: Landing | None = None
        self._prefer = MASTER_ID
        self._suggested: str | None = None  # by the last answer
        self._compacted: bool | None = None  # whether the topic is, if that was asked for
        self._judged: Frame | None = None  # what those like it mean is known
        self._delta = 0  # what the last answer says to add to the offsets in it
        self._routed = False
        self._failures = 0  # since the last progress
        self._failed: set[str] = set()  # addresses, since the last progress
        self._last_progress = 0.0
        self._batches = self._read()

    def __iter__(self) -> RangeReader:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    @property
    def position(self) -> int:
        """Everything before it has been handed out; after an error, where to go on. But if some
        messages cannot be decoded, it is behind the batch that they are in."""
        return self._window.position

    def close(self) -> None:
        """Stop reading; the connection is free again."""
        self._batches.close()

    def _read(self) -> Generator[Any, None, None]:
        try:
            yield from self._read_all()
        finally:
            # However it ends, whoever keeps the reader need not keep its memory.
            self._window.forget_ready()
            self._judged = None
            if self._landing:
                self._pool.keep_landing(self._landing)
                self._landing = None

    def _read_all(self) -> Iterator[Any]:
        self._last_progress = time.monotonic()  # not before somebody reads
        if self._filter.subscription.kind == commands.SQL92:
            what = f"cannot filter by {self._filter.subscription.expression!r} in"
            self._metadata.ask_queue_broker(self._queue, self._check_filter, what)
        while not self._window.done:
            address = ""
            try:
                route = self._route()
                address = self._choose(reading_addresses(route, self._queue, self._prefer))
                broker_name = route.serving_broker(self._queue)
                deadline = time.monotonic() + self._settings.timeout
                with self._pool.connection(address, deadline) as connection:
                    yield from self._pump(connection, broker_name)
            except _TryAgainError as again:
                self._recover(again.reason, address)
            except (NetworkError, FrameError, ResponseError) as error:
                self._leave(during(f"cannot read {self._queue}", error), address)
            except RocketMQError as error:
                self._leave(error, address)

    def _route(self) -> Route:
        try:
            route = self._metadata.route(self._queue.topic)
        except TopicNotFoundError as error:
            if not self._routed:
                raise
            # With its last broker a topic is gone from the name server, until that is back.
            raise _TryAgainError(error) from error
        self._routed = True
        return route

    def _pump(self, connection: Connection, broker_name: str) -> Iterator[Any]:
        """Ask, receive and hand on, until the range is done or another broker is to be asked."""
        window, prefer, settings = self._window, self._prefer, self._settings
        landing = self._landing = self._landing or self._pool.lend_landing()
        watch = Watch(settings.timeout)
        pulls = commands.pulls(settings.group, self._queue, broker_name, self._filter.subscription)
        landing.drop_unfinished()
        if landing.full:
            self._make_room(landing)
        connection.receive_into(landing)
        try:
            while not window.done:
                asks = window.asks() if self._prefer == prefer else []
                if asks:
                    requests = [(ask[:2], ask) for ask in asks]  # by offset and count
                    connection.submit_series(pulls, requests, time.monotonic() + settings.timeout)
                    watch.sent(window.oldest, asks[-1])
                if self._worth_decoding(landing, connection):
                    # New pulls are on their way, so the broker works while we decode.
                    yield from self._decode(window.take(settings.batch_bytes), landing.memory)
                    # However long the reader of the batch took, it is not the broker's silence.
                    self._last_progress = time.monotonic()
                elif landing.full:
                    self._make_room(landing)
                elif oldest := window.oldest:
                    answers = connection.receive_series(time.monotonic() + settings.timeout)
                    self._take(answers, landing.memory, connection.address)
                    if window.overtaken(oldest, watch.later(oldest)):
                        raise overtaken(connection.address)
                else:
                    return  # nothing in flight and told to go elsewhere
        finally:
            for ask in window.flying:
                window.failed(ask)
            if connection.idle:
                connection.receive_into(FrameBuffer())

    def _worth_decoding(self, landing: Landing, connection: Connection) -> bool:
        """A whole batch is there, or a part of one while there is nothing else to do."""
        takable, batch = self._window.takable, self._settings.batch_bytes
        if takable >= batch or self._window.complete:
            return True
        if landing.full:
            return takable >= -(-batch // 2)  # better decoded than moved
        return takable >= -(-batch // _LEAST_SHARE) and not connection.readable()

    def _make_room(self, landing: Landing) -> None:
        """In the memory for answers: only what waits for its turn is kept, and moved together.

        With room for two of the usual batches, little waits when the memory is full.
        """
        waiting = self._window.waiting()
        batch = self._settings.batch_bytes
        usual = batch + min(batch, _MOST_BESIDE) + _USUAL_ANSWER
        size = max(len(landing.memory), min(4 * len(landing.memory), usual))
        places = landing.tidy([piece.span for piece in waiting], size)
        for piece, at in zip(waiting, places, strict=True):
            self._window.moved(piece, at)

    def _check_filter(self, _: str) -> Any:
        group, topic = self._settings.group, self._queue.topic
        return commands.check_filter(group, topic, self._filter.subscription)

    def _take(self, answers: list[SeriesAnswer], memory: memoryview, address: str) -> None:
        """Hand the messages of answers to the window; raise what an answer means otherwise."""
        judged, delta = self._judged, self._delta
        as_asked, others = [], []
        for answer in answers:
            ask, frame, after, at, end = answer
            # A header like one that was judged means the same.
            usual = frame is judged and after == ask.end
            if usual and first_offset(memory, at, end) == ask.offset - delta:
                as_asked.append((ask, (at, end)))
            else:
                others.append(answer)
        if as_asked:
            self._window.as_asked(as_asked, delta)
            self._progress()
        for answer in others:
            self._take_other(answer, memory, address)

    def _take_other(self, answer: SeriesAnswer, memory: memoryview, address: str) -> None:
        """An answer with a new header, or with other messages than those that were asked for.

        A broker that is removing a file passes over what was in it and gives the rest. So whatever
        is missing at the beginning is asked for by itself: either the broker says then that it has
        been removed, or it passes over it again, which is no loss only in a compacted topic.
        """
        window = self._window
        ask, frame, after, at, end = answer
        if frame is not self._judged or after is None:
            after = self._judge(ask, frame, after, address)
        if end > at:
            insist_on_record(memory, (at, end), self._decoder.where)
        first = first_offset(memory, at, end)
        first = ask.offset if first is None else first + self._delta
        empty = at == end and frame.code == FOUND
        if empty or after <= max(first, ask.offset):
            raise _TryAgainError(leads_nowhere(self._queue, ask.offset, after, address))
        if first > ask.offset and not self._filter.selects:
            if first < ask.end:
                ask = window.began_late(ask, first)
            elif ask.extra:
                window.failed(ask)
                return
            elif not self._is_compacted(frame):
                raise passed_over(self._queue, ask.offset, first, address)
        if after > ask.end and window.followed(ask):
            end = before(memory, at, end, ask.end - self._delta)
        self._progress()
        window.answered(ask, after, (at, end), self._delta, first < ask.offset)

    def _is_compacted(self, frame: Frame) -> bool:
        """Whether the topic is; `frame` is from its broker."""
        if self._compacted is None:
            new = frame.version >= COMPACTING
            self._compacted = new and self._metadata.is_compacted(self._queue)
        return self._compacted

    def _judge(self, ask: Ask, frame: Frame, known: int | None, address: str) -> int:
        """What an answer means that is not like the last one: up to where it leads, or an error.

        If where it leads is `known`, a frame that it shares with others does not say it.
        """
        code, remark = frame.code, frame.remark
        self._judged = None
        if code in (FOUND, NOT_FOUND, RETRY_IMMEDIATELY):
            after = number(frame, "nextBeginOffset", address) if known is None else known
            self._follow_suggestion(frame)
        if code == FOUND:
            delta = frame.ext.get("offsetDelta")
            self._delta = 0 if delta in _NO_DELTA else number(frame, "offsetDelta", address)
            # A frame that was parsed for this answer alone does not come again.
            self._judged = None if known is None else frame
            return after
        if code in (NOT_FOUND, RETRY_IMMEDIATELY):
            if code == RETRY_IMMEDIATELY and remark == _REMOVING:
                raise gone(self._queue, ask.offset, frame, address)
            # A 19 may lead on too, and so may a slave's 20 for the same: to the next index file, or
            # to the first message there is. Then messages are missing, but for the gaps that static
            # topics have where they moved.
            skips = remark == _NO_MATCH or bool(self._route().owners)
            if after > ask.offset and code == RETRY_IMMEDIATELY and skips:
                return after
            missing = not_there(self._queue, ask.offset, self._window.end, frame, address)
            raise _TryAgainError(missing)
        if code == OFFSET_MOVED:
            # A reset of the group by an operator is told once, to whoever asks first; it is about
            # the group's own offsets, not about the range we were given.
            if remark == _RESET:
                raise _TryAgainError(refused(self._queue, frame, address))
            raise gone(self._queue, ask.offset, frame, address)
        error = refused(self._queue, frame, address)
        if isinstance(error, TopicNotFoundError) and self._served_by_slave(address):
            raise _TryAgainError(error)  # it has not heard of a young topic yet
        if error.retriable:
            raise _TryAgainError(error)
        raise error

    def _decode(self, pieces: list[Piece], memory: memoryview) -> Iterator[Any]:
        for run in runs(pieces):
            for batch in self._decode_run(run, memory):
                if batch.num_rows:
                    yield batch

    def _decode_run(self, run: list[Piece], memory: memoryview) -> Iterable[Any]:
        return self._decoder.batches(
            memory,
            start=run[0].offset,
            end=min(run[-1].end, self._window.end),
            offset_delta=run[0].delta,
            tags=self._filter.tags,
            max_unpacked=self._settings.batch_bytes,
            parts=[piece.span for piece in run],
        )

    # --- patience -----------------------------------------------------------------------------

    def _choose(self, addresses: list[str]) -> str:
        """The best that has not failed since the last progress; when all have, from the start."""
        if self._failed.issuperset(addresses):
            self._failed.clear()
        return next(address for address in addresses if address not in self._failed)

    def _progress(self) -> None:
        if self._failures:
            self._failures = 0
            self._failed.clear()
        self._last_progress = time.monotonic()

    def _leave(self, reason: RocketMQError, address: str) -> None:
        """This connection is of no use any more."""
        if reason.refresh_route:
            self._metadata.forget_route(self._queue.topic)
        if not reason.retriable:
            raise reason
        self._recover(reason, address)

    def _recover(self, reason: RocketMQError, address: str) -> None:
        """Wait before the next try, or give up."""
        self._failures += 1
        self._failed.add(address)
        pause = min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE)
        if time.monotonic() + pause - self._last_progress > self._settings.patience:
            raise reason
        log.debug("reading %s: %s; trying again in %.2f s", self._queue, reason.message, pause)
        self._metadata.forget_route(self._queue.topic)
        time.sleep(pause)

    def _follow_suggestion(self, frame: Frame) -> None:
        suggested = frame.ext.get("suggestWhichBrokerId")
        if suggested != self._suggested:
            self._suggested = suggested
            if suggested and suggested.isdigit():
                self._prefer = int(suggested)

    def _served_by_slave(self, address: str) -> bool:
        route = self._route()
        broker = route.brokers.get(route.serving_broker(self._queue))
        return broker is not None and broker.master != address
