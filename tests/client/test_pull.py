"""Range reads: every answer a broker can give, broken connections, and each row exactly once."""

from __future__ import annotations

import logging
import re
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.pull import RangeReader
from rocketmq_spark.client.reading import Filter, PullSettings
from rocketmq_spark.client.window import Ask
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import (
    BadExpressionError,
    BrokerError,
    BusyError,
    ConnectError,
    ConnectionLostError,
    FrameError,
    GoAwayError,
    MessageFormatError,
    NoPermissionError,
    NotLeaderError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    ResponseError,
    RocketMQError,
    ServerFaultError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from rocketmq_spark.wire import frame as frame_module
from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.buffer import Landing
from rocketmq_spark.wire.commands import SQL92, Subscription
from rocketmq_spark.wire.decode import Decoder
from rocketmq_spark.wire.frame import Buffer, Frame, encode
from rocketmq_spark.wire.message import (
    UNWRAP,
    BatchItem,
    StoredMessage,
    encode_batch,
    encode_message,
)
from tests.client.scripted import (
    CUT,
    Handler,
    Network,
    Reply,
    answer,
    in_turn,
    name_server,
    route_body,
    to_bytes,
)

QUEUE = MessageQueue("T", "b-a", 0)
MASTER, SLAVE = "a:0", "a:1"


def record(offset: int, tags: str = "") -> bytes:
    properties = {"TAGS": tags} if tags else {}
    return encode_message(
        StoredMessage("T", 0, offset, offset * 100, body=b"m%d" % offset, properties=properties)
    )


def garbage(offset: int) -> bytes:
    """No message, with this number where a message has its offset."""
    return b"\xff" * 20 + struct.pack(">q", offset) + b"\xff" * 80


class PullBroker:
    """Has the messages [low, high) and gives at most `cap` of them at once."""

    def __init__(self, high: int, low: int = 0, cap: int = 32, suggest: int = 0) -> None:
        self.low, self.high, self.cap, self.suggest = low, high, cap, suggest
        self.pulls: list[tuple[int, int]] = []
        self.settings: list[Frame] = []  # answers to the question for the topic's

    def __call__(self, request: Frame) -> Iterable[Reply]:
        if request.code == 46:
            yield answer()  # a filter that compiles
            return
        if request.code == 351:
            assert request.ext["topic"] == "T"
            yield self.settings.pop(0)
            return
        assert request.code == 11
        offset, count = int(request.ext["queueOffset"]), int(request.ext["maxMsgNums"])
        self.pulls.append((offset, count))
        yield self.pull(offset, count)

    def pull(self, offset: int, count: int) -> Frame:
        if offset < self.low:
            return self.say(21, "OFFSET_TOO_SMALL", self.low)
        if offset > self.high:
            return self.say(21, "OFFSET_OVERFLOW_BADLY", self.high)
        if offset == self.high:
            return self.say(19, "OFFSET_OVERFLOW_ONE", offset)
        after = min(offset + min(count, self.cap), self.high)
        return self.say(0, "FOUND", after, b"".join(map(record, range(offset, after))))

    def say(self, code: int, remark: str, after: int, body: bytes = b"", **ext: Any) -> Frame:
        # In the order that Java gives them.
        fields = {
            "suggestWhichBrokerId": self.suggest,
            "groupSysFlag": 0,
            "nextBeginOffset": after,
            "maxOffset": self.high,
            "minOffset": self.low,
            "topicSysFlag": 0,
        }
        return answer(code, remark, body, **{**fields, **ext})


def sometimes(broker: Handler, *instead: Iterable[Reply] | None) -> Handler:
    """The broker, but for its first answers; None lets it answer itself."""
    left = list(instead)

    def handle(request: Frame) -> Iterable[Reply]:
        chosen = left.pop(0) if left and request.code != 46 else None
        return broker(request) if chosen is None else chosen

    return handle


@pytest.fixture
def network() -> Network:
    network = Network()
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: MASTER, 1: SLAVE}})})
    return network


def reader(
    network: Network,
    start: int,
    end: int,
    selection: Filter | None = None,
    columns: list[str] | None = None,
    queue: MessageQueue = QUEUE,
    **settings: Any,
) -> RangeReader:
    pool = network.pool()
    decoder = Decoder(
        columns or ["queueOffset"],
        topic=queue.topic,
        broker_name=queue.broker_name,
        queue_id=queue.queue_id,
    )
    chosen = replace(PullSettings(timeout=2.0, patience=1.0), **settings)
    facts = Metadata("n:1", pool, 2.0)
    return RangeReader(facts, pool, queue, start, end, decoder, chosen, selection or Filter())


def rows(batches: Iterator[Any]) -> list[int]:
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def read(network: Network, start: int, end: int, **settings: Any) -> list[int]:
    return rows(reader(network, start, end, **settings))


# --- plain reading ----------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [1, 8, 32, 1024])
@pytest.mark.parametrize(("start", "end"), [(0, 1000), (17, 18), (333, 700), (5, 5)])
def test_a_range_is_read_whole_and_nothing_else(
    network: Network, cap: int, start: int, end: int
) -> None:
    broker = network.servers[MASTER] = PullBroker(1000, cap=cap)
    assert read(network, start, end) == list(range(start, end))
    assert all(offset + count <= end for offset, count in broker.pulls)
    assert SLAVE not in network.asked()


def test_answers_that_trickle_in(network: Network) -> None:
    network.servers[MASTER] = PullBroker(100)
    network.at_once = 7
    assert read(network, 0, 100) == list(range(100))


def test_a_broker_that_gives_more_than_asked_for(network: Network) -> None:
    class Generous(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            return super().pull(offset, count + 10)

    network.servers[MASTER] = Generous(1000)
    assert read(network, 10, 200) == list(range(10, 200))


def test_batches_are_of_the_size_asked_for(network: Network) -> None:
    network.servers[MASTER] = PullBroker(1000)
    size = len(record(500))
    network.at_once = 16 * size  # or all answers would be there at the first look
    batches = list(reader(network, 0, 1000, batch_bytes=100 * size))
    assert 6 <= len(batches) <= 10
    assert rows(iter(batches)) == list(range(1000))


def test_a_part_of_a_batch_while_the_broker_has_nothing_for_us(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "readable", lambda self: False)
    network.servers[MASTER] = PullBroker(1000)
    size = len(record(500))
    network.at_once = 16 * size
    batches = list(reader(network, 0, 1000, batch_bytes=100 * size))
    assert rows(iter(batches)) == list(range(1000))
    # Answers have 32 messages but for the first, and a quarter of a batch is enough.
    assert [batch.num_rows for batch in batches[:-1]] == [4 + 32] + [32] * 29


def test_what_waits_for_its_turn_moves_with_its_bytes(network: Network) -> None:
    ours = reader(network, 0, 1000)
    window = ours._window
    landing = ours._landing = Landing()
    frames = [encode(Frame(0, number, 1, body=bytes([number]) * 900)) for number in (1, 2, 3, 4)]
    stream = b"".join(frames)
    landing.writable()[: len(stream)] = stream
    places = [(frame.at, frame.at + 900) for frame in landing.received(len(stream))]
    [ask] = window.asks()
    window.answered(ask, ask.end, places[0])
    window.take()
    _, first, second, *_ = window.asks()
    window.answered(second, second.end, places[2])
    window.answered(first, first.end, places[3])
    ours._make_room(landing)
    assert [piece.span for piece in window.waiting()] == [(0, 900), (900, 1800)]
    for number, piece, ask in zip((3, 4), window.waiting(), (second, first), strict=True):
        assert landing.memory[slice(*piece.span)] == bytes([number]) * 900
        assert (piece.offset, piece.end) == (ask.offset, ask.end)


def test_a_batch_that_is_held_stays_as_it_was(network: Network) -> None:
    """Answers are joined in memory that the next batch uses again."""
    network.servers[MASTER] = PullBroker(1000)
    size = len(record(500))
    network.at_once = 16 * size
    columns = ["queueOffset", "body", "properties", "msgId"]
    reading = reader(network, 0, 1000, columns=columns, batch_bytes=100 * size)
    held, copies = [], []
    for batch in reading:
        held.append(batch)
        copies.append(batch.to_pylist())
    assert len(held) > 3
    assert [batch.to_pylist() for batch in held] == copies


def test_pulls_are_in_flight_together_up_to_the_limit(network: Network) -> None:
    held: list[Frame] = []
    most: list[int] = []
    broker = PullBroker(10_000)

    # Answers come in bundles and backwards, when no more requests come in.
    def hold(request: Frame) -> Iterable[Reply]:
        held.append(request)
        expected = 5 if most else 1
        if len(held) < expected:
            return
        most.append(len(held))
        for waiting in reversed(held):
            [reply] = broker(waiting)
            assert isinstance(reply, Frame)
            yield to_bytes(reply, waiting)
        held.clear()

    network.servers[MASTER] = hold
    # One of 4 before the size of a message is known; 5 bundles of 5 after that.
    end = 4 + 25 * 32
    assert read(network, 0, end, in_flight=5, largest_pull=32) == list(range(end))
    assert most == [1, 5, 5, 5, 5, 5]
    assert broker.pulls[0] == (0, 4)


@pytest.mark.parametrize(("end", "first"), [(3, 3), (4, 4), (1000, 4)])
def test_a_range_begins_with_one_small_pull(network: Network, end: int, first: int) -> None:
    network.servers[MASTER] = PullBroker(1000)
    assert read(network, 0, end, in_flight=32, largest_pull=32) == list(range(end))
    [stream] = [stream for address, stream in network.streams if address == MASTER]
    assert stream.writes[0] == 1
    assert stream.requests[0].ext["maxMsgNums"] == str(first)
    if end > first:
        assert stream.writes[1] == 6  # four, and two more for the answer
        assert stream.requests[1].ext["maxMsgNums"] == "32"


def test_the_reader_may_stop_in_the_middle(network: Network) -> None:
    network.servers[MASTER] = PullBroker(100_000)
    batches = reader(network, 0, 100_000, batch_bytes=1000)
    next(batches)
    batches.close()
    [stream] = [stream for address, stream in network.streams if address == MASTER]
    assert stream.closed  # answers are still on their way to it


def test_a_connection_with_nothing_left_on_it_is_kept(network: Network) -> None:
    network.servers[MASTER] = PullBroker(100)
    reading = reader(network, 0, 100)
    rows(reading)
    [stream] = [stream for address, stream in network.streams if address == MASTER]
    assert not stream.closed


def test_a_pull_asks_for_what_it_should(network: Network) -> None:
    network.servers[MASTER] = PullBroker(100)
    read(network, 40, 50, group="readers")
    [first, second] = [request for _, request in network.requests(11)]
    for request, offset, count in ((first, "40", "4"), (second, "44", "6")):
        expected = {"queueOffset": offset, "maxMsgNums": count, "consumerGroup": "readers"}
        assert {name: request.ext[name] for name in expected} == expected
        assert (request.ext["bname"], request.ext["sysFlag"]) == ("b-a", "4")


# --- every answer there is --------------------------------------------------------------------

BROKER = PullBroker(100)
NEXT_FILE = 60


@pytest.mark.parametrize(
    "instead",
    [
        BROKER.say(21, "OFFSET_RESET", 90),
        answer(2, "[PCBUSY_CLEAN_QUEUE]"),
        answer(215, "flow control"),
        answer(1, "java.lang.NullPointerException"),
        answer(14, "shutting down"),
        answer(501, "not the leader"),
        answer(1500, "go away"),
        BROKER.say(19, "OFFSET_OVERFLOW_ONE", 0),  # a slave's lag, a log cut after a failover
        BROKER.say(20, "OFFSET_TOO_SMALL", 0),  # a slave's way to say 21
        BROKER.say(0, "FOUND", 0),  # a success that leads nowhere
        BROKER.say(20, "NO_MATCHED_MESSAGE", 0),
    ],
    ids=lambda frame: f"{frame.code} {frame.remark[:20]}",
)
@pytest.mark.parametrize("first", [0, 2])
def test_what_may_pass_is_asked_again(network: Network, instead: Frame, first: int) -> None:
    broker = PullBroker(100)
    calm: list[None] = [None] * first
    network.servers[MASTER] = network.servers[SLAVE] = sometimes(broker, *calm, [instead])
    assert read(network, 0, 100) == list(range(100))


@pytest.mark.parametrize(
    ("instead", "error", "says"),
    [
        (BROKER.say(21, "OFFSET_TOO_SMALL", 7), OffsetOutOfRangeError, "OFFSET_TOO_SMALL"),
        (BROKER.say(21, "OFFSET_OVERFLOW_BADLY", 7), OffsetOutOfRangeError, r"a:0 has \[0, 100\)"),
        (BROKER.say(21, "NO_MATCHED_LOGIC_QUEUE", 0), OffsetOutOfRangeError, "T/b-a/0"),
        (BROKER.say(20, "MESSAGE_WAS_REMOVING", 50), OffsetOutOfRangeError, "expired"),
        (answer(16, "no matched policies"), NoPermissionError, "cannot read T/b-a/0: a:0"),
        (answer(16, "forbidden", forbiddenType=2), NoPermissionError, "forbidden"),
        (answer(17, "topic[T] not exist"), TopicNotFoundError, "a:0 answered code 17"),
        (answer(1, "AclException: no"), NoPermissionError, "AclException"),
        (answer(23, "parse"), BadExpressionError, "enablePropertyFilter"),
        (answer(24, "subscription"), BrokerError, "code 24"),
        (answer(0, "FOUND", b""), ResponseError, "nextBeginOffset"),
        (answer(0, "FOUND", b"", nextBeginOffset="x"), ResponseError, "nextBeginOffset"),
        (BROKER.say(0, "FOUND", 5, offsetDelta="x"), ResponseError, "offsetDelta"),
        (BROKER.say(0, "FOUND", 5, offsetDelta=-(10**23)), ResponseError, "Java's long"),
        (BROKER.say(0, "FOUND", 5, b"no message"), MessageFormatError, "T/b-a/0"),
        (BROKER.say(0, "FOUND", 5, garbage(0)), MessageFormatError, "magic 0xFFFFFFFF"),
        # What stands in the place of an offset is not believed, nor what seems to be missing then.
        (BROKER.say(0, "FOUND", 5, garbage(3)), MessageFormatError, "magic 0xFFFFFFFF"),
        (BROKER.say(0, "FOUND", 5, garbage(1000)), MessageFormatError, "magic 0xFFFFFFFF"),
        (BROKER.say(0, "FOUND", 2000, garbage(1000)), MessageFormatError, "magic 0xFFFFFFFF"),
        (BROKER.say(0, "FOUND", 5, record(3)[:-1]), MessageFormatError, "only 9. are left"),
    ],
    ids=lambda value: f"{value.code} {value.remark[:20]}" if isinstance(value, Frame) else None,
)
def test_what_will_not_pass_is_raised_at_once(
    network: Network, instead: Frame, error: type[RocketMQError], says: str
) -> None:
    network.servers[MASTER] = in_turn(instead)
    began = time.monotonic()
    with pytest.raises(error, match=says) as caught:
        read(network, 0, 5, patience=30.0)
    assert type(caught.value) is error
    assert time.monotonic() - began < 5
    assert SLAVE not in network.asked()


def test_a_success_that_leads_nowhere_is_told(network: Network) -> None:
    network.servers[MASTER] = network.servers[SLAVE] = in_turn(BROKER.say(0, "FOUND", 0))
    says = "cannot read offset 0 of T/b-a/0: a:[01] answers without .* go on with 0. Look into"
    with pytest.raises(ServerFaultError, match=says):
        read(network, 0, 5, patience=0.2)


def test_what_matches_nothing_is_passed_over(network: Network) -> None:
    class Holey(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            if 10 <= offset < NEXT_FILE:
                return self.say(20, "NO_MATCHED_MESSAGE", NEXT_FILE)
            return super().pull(offset, min(count, 10 - offset) if offset < 10 else count)

    broker = network.servers[MASTER] = Holey(100)
    assert read(network, 0, 100) == [*range(10), *range(NEXT_FILE, 100)]
    assert len(broker.pulls) < 20


def test_a_hole_in_the_index_is_waited_for(network: Network) -> None:
    hole = BROKER.say(19, "OFFSET_FOUND_NULL", NEXT_FILE)
    network.servers[MASTER] = sometimes(PullBroker(100), [hole])
    assert read(network, 0, 100) == [*range(100)]


@pytest.mark.parametrize("tags", [None, frozenset({"A"})], ids=["all", "filtered"])
def test_a_hole_that_stays_is_data_loss(network: Network, tags: frozenset[str] | None) -> None:
    """Wherever the broker would lead us: to the next index file, or beyond the range."""
    for after in (NEXT_FILE, 1000):
        network.servers[MASTER] = in_turn(BROKER.say(19, "OFFSET_FOUND_NULL", after))
        network.servers[SLAVE] = network.servers[MASTER]
        selection = Filter(Subscription("A"), tags) if tags else Filter()
        with pytest.raises(OffsetOutOfRangeError, match=r"nothing there \(OFFSET_FOUND_NULL\)"):
            read(network, 10, 100, selection=selection, patience=0.2)


class Removing(PullBroker):
    """The messages before `gone` are removed: passed over, and said only if all of a pull are."""

    gone = 0

    def pull(self, offset: int, count: int) -> Frame:
        after = min(offset + min(count, self.cap), self.high)
        left = range(max(offset, self.gone), after)
        if not left:
            return self.say(20, "MESSAGE_WAS_REMOVING", after)
        return self.say(0, "FOUND", after, b"".join(map(record, left)))


@pytest.mark.parametrize(
    ("gone", "when", "missing"),
    [(32, 30, (30, 2)), (44, 34, (34, 10)), (588, 578, (578, 10))],
    ids=["first", "second", "like those before"],
)
def test_messages_removed_from_the_beginning_of_an_answer_are_data_loss(
    network: Network, gone: int, when: int, missing: tuple[int, int]
) -> None:
    class RemovingLater(Removing):
        def pull(self, offset: int, count: int) -> Frame:
            if offset >= when:
                self.gone = gone
            return super().pull(offset, count)

    broker = network.servers[MASTER] = RemovingLater(1000)
    with pytest.raises(OffsetOutOfRangeError, match=f"cannot read offset {missing[0]} of T/b-a/0"):
        read(network, 30, 1000)
    assert missing in broker.pulls  # by itself


@pytest.mark.parametrize("delta", [-20, 1000])
def test_messages_removed_are_data_loss_wherever_they_are_stored(
    network: Network, delta: int
) -> None:
    class Elsewhere(PullBroker):
        """Stored under other offsets; those before 44 are gone when the first have been read."""

        def pull(self, offset: int, count: int) -> Frame:
            after = min(offset + min(count, self.cap), self.high)
            left = range(max(offset, 44 if offset > 30 else 0), after)
            if not left:
                return self.say(20, "MESSAGE_WAS_REMOVING", after)
            body = b"".join(record(number + delta) for number in left)
            return self.say(0, "FOUND", after, body, offsetDelta=-delta)

    broker = network.servers[MASTER] = Elsewhere(1000)
    with pytest.raises(OffsetOutOfRangeError, match="cannot read offset 34 of T/b-a/0"):
        read(network, 30, 1000)
    assert (34, 10) in broker.pulls


def test_messages_removed_before_those_asked_for_besides_are_data_loss(network: Network) -> None:
    class Probed(Removing):
        def pull(self, offset: int, count: int) -> Frame:
            if count > 32 and not self.gone:
                self.gone = offset + 32
            return super().pull(offset, count)

    broker = network.servers[MASTER] = Probed(1000, cap=1000)
    with pytest.raises(OffsetOutOfRangeError, match="MESSAGE_WAS_REMOVING"):
        read(network, 0, 1000)
    assert broker.gone


def test_a_compacted_topic_has_holes(network: Network) -> None:
    kept = [*range(5), *range(40, 47), 60, *range(90, 1000, 7)]

    class Compacted(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            found = [n for n in kept if n >= offset][: min(count, self.cap)]
            if not found:
                return self.say(20, "NO_MATCHED_MESSAGE", self.high)
            return self.say(0, "FOUND", found[-1] + 1, b"".join(map(record, found)))

    broker = network.servers[MASTER] = Compacted(1000)
    policy = answer(body=b'{"attributes":{"cleanup.policy":"COMPACTION"}}')
    broker.settings = [policy, policy]  # asked for once by each reader
    assert read(network, 0, 1000) == kept
    assert read(network, 7, 600) == [n for n in kept if 7 <= n < 600]
    assert not broker.settings


@pytest.mark.parametrize(
    "settings",
    [
        answer(body=b'{"attributes":{"cleanup.policy":"DELETE"}}'),
        answer(body=b'{"attributes":{}}'),
        answer(body=b'{"attributes":null}'),
        None,  # 4.9, which is not asked
    ],
    ids=["delete", "none", "null", "old"],
)
def test_messages_passed_over_are_data_loss(network: Network, settings: Frame | None) -> None:
    """A broker looks for messages beyond those that are asked for, so it need not say anything."""

    class PassingOver(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            found = super().pull(44 if 34 <= offset < 44 else offset, count)
            return replace(found, version=found.version if settings else 412)

    broker = network.servers[MASTER] = PassingOver(1000)
    broker.settings = [settings] if settings else []
    words = "cannot read offset 34 of T/b-a/0: a:0 passes over it and goes on with 44"
    with pytest.raises(OffsetOutOfRangeError, match=words):
        read(network, 30, 1000)
    assert (34, 10) in broker.pulls  # by itself


def test_who_may_not_know_whether_messages_are_lost_is_told(network: Network) -> None:
    class PassingOver(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            return super().pull(max(offset, 44), count)

    broker = network.servers[MASTER] = PassingOver(1000)
    broker.settings = [answer(16, "no permission")]
    with pytest.raises(NoPermissionError, match="whether messages were lost or compacted in T/b-a"):
        read(network, 30, 1000)
    broker.settings = [answer(3, "request type 351 not supported")]  # a proxy of 5.x
    with pytest.raises(UnsupportedRequestError, match="lost or compacted"):
        read(network, 30, 1000)


def test_patience_ends_though_the_broker_answers_everything_else(network: Network) -> None:
    class PassingOver(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            return super().pull(max(offset, 44), count)

    broker = network.servers[MASTER] = PassingOver(1000)
    broker.settings = [answer(2, "busy")] * 10_000
    with pytest.raises(BusyError):
        read(network, 30, 1000, patience=0.5)


@pytest.mark.parametrize("remark", ["OFFSET_FOUND_NULL", "OFFSET_TOO_SMALL"])
def test_a_slave_that_leads_on_for_what_is_missing(network: Network, remark: str) -> None:
    """It says 20 where its master says 19 or 21."""

    class Missing(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            return self.say(20, remark, 500) if 34 <= offset < 500 else super().pull(offset, count)

    network.servers[MASTER] = network.servers[SLAVE] = Missing(1000)
    with pytest.raises(OffsetOutOfRangeError, match="cannot read offset 34 of T/b-a/0"):
        read(network, 30, 1000, patience=0.3)


@pytest.mark.parametrize("always", [False, True])
def test_a_first_record_beyond_where_an_answer_leads(network: Network, always: bool) -> None:
    """No broker says so; but whatever is said, no row comes twice and no read hangs."""

    class Confused(PullBroker):
        said = 0

        def pull(self, offset: int, count: int) -> Frame:
            if offset >= 34 and (always or not self.said):
                self.said += 1
                return self.say(0, "FOUND", offset + 3, record(offset + 5))
            return super().pull(offset, count)

    network.servers[MASTER] = network.servers[SLAVE] = Confused(1000)
    if always:
        with pytest.raises(BrokerError):
            read(network, 30, 1000, patience=0.3)
    else:
        assert read(network, 30, 1000) == [*range(30, 1000)]


def test_found_but_nothing_given(network: Network) -> None:
    class Empty(PullBroker):
        said = 0

        def pull(self, offset: int, count: int) -> Frame:
            if offset >= 34 and not self.said:
                self.said = 1
                return self.say(0, "FOUND", offset + count)
            return super().pull(offset, count)

    network.servers[MASTER] = Empty(1000)
    assert read(network, 30, 1000) == [*range(30, 1000)]


def test_who_keeps_a_reader_does_not_keep_its_memory(network: Network) -> None:
    network.servers[MASTER] = PullBroker(4)
    batches = reader(network, 0, 4)
    assert sum(batch.num_rows for batch in batches) == 4
    assert batches._judged is None


def test_patience_begins_when_somebody_reads(network: Network) -> None:
    network.servers[MASTER] = sometimes(PullBroker(10), [answer(2, "busy")])
    batches = reader(network, 0, 10, patience=0.3)
    time.sleep(0.4)
    assert sum(batch.num_rows for batch in batches) == 10


def test_giving_up_raises_the_last_error(network: Network) -> None:
    network.servers[MASTER] = sometimes(in_turn(answer(215, "second")), [answer(2, "first")])
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: MASTER}})})
    began = time.monotonic()
    with pytest.raises(BusyError, match="cannot read T/b-a/0: a:0 answered code 215: second"):
        read(network, 0, 10, patience=0.5)
    assert 0.2 < time.monotonic() - began < 20
    assert 2 <= len(network.requests(11)) < 10  # with growing pauses, not in a rush


@pytest.mark.parametrize(
    ("instead", "error"),
    [
        (answer(1, "NullPointerException"), ServerFaultError),
        (answer(501, "moved"), NotLeaderError),
        (answer(1500, "draining"), GoAwayError),
        (BROKER.say(19, "OFFSET_OVERFLOW_ONE", 0), OffsetOutOfRangeError),
        ((), RequestTimeoutError),
        (CUT, ConnectionLostError),
        (b"\0" * 8, FrameError),
    ],
    ids=["1", "501", "1500", "19", "silence", "cut", "garbage"],
)
def test_what_never_passes_is_given_up(
    network: Network, instead: Any, error: type[RocketMQError]
) -> None:
    network.servers[MASTER] = network.servers[SLAVE] = in_turn(instead)
    with pytest.raises(error) as caught:
        read(network, 0, 10, patience=0.2)
    assert type(caught.value) is error
    # What was done, and what to do.
    assert re.match(r"cannot read (offset 0 of )?T/b-a/0", str(caught.value))
    assert str(caught.value).endswith(f". {error.advice}")


def test_beyond_the_end_of_the_queue_says_where_it_ends(network: Network) -> None:
    network.servers[MASTER] = network.servers[SLAVE] = PullBroker(100)
    with pytest.raises(
        OffsetOutOfRangeError, match=r"offset 100 of T/b-a/0 up to 120.* 100\. Start where"
    ):
        read(network, 90, 120, patience=0.2)


def test_messages_that_arrive_while_waiting(network: Network) -> None:
    # A slave lags, or the end was planned from another broker: what is not there yet may come.
    broker = PullBroker(50)

    def grow(request: Frame) -> Iterable[Reply]:
        if len(broker.pulls) > 5:
            broker.high = 100
        return broker(request)

    network.servers[MASTER] = network.servers[SLAVE] = grow
    assert read(network, 0, 100, in_flight=1) == list(range(100))


def test_patience_begins_anew_with_every_progress(network: Network) -> None:
    broker = PullBroker(320)
    rough: list[Iterable[Reply] | None] = [[answer(2)], None] * 10
    network.servers[MASTER] = network.servers[SLAVE] = sometimes(broker, *rough)
    assert read(network, 0, 320, in_flight=1, largest_pull=32, patience=0.15) == list(range(320))


def test_after_go_away_another_connection_is_used(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: MASTER}})})
    broker = PullBroker(10)
    network.servers[MASTER] = sometimes(broker, [answer(1500)])
    assert read(network, 0, 10) == list(range(10))
    closed = [stream.closed for address, stream in network.streams if address == MASTER]
    assert closed == [True, False]


def test_no_such_topic_makes_the_route_forgotten(network: Network) -> None:
    network.servers[MASTER] = in_turn(answer(17, "not exist"))
    pool = network.pool()
    facts = Metadata("n:1", pool, 2.0)
    decoder = Decoder(["queueOffset"], topic="T", broker_name="b-a", queue_id=0)
    for _ in range(2):
        with pytest.raises(TopicNotFoundError):
            rows(RangeReader(facts, pool, QUEUE, 0, 5, decoder, PullSettings(), Filter()))
    assert len(network.requests(105)) == 2


# --- broken connections -----------------------------------------------------------------------


@pytest.mark.parametrize("cut_at", [0, 3, 50, 700])
def test_a_connection_cut_in_mid_frame_loses_nothing_and_doubles_nothing(
    network: Network, cut_at: int
) -> None:
    broker = PullBroker(400)
    served: list[int] = []

    def cutting(request: Frame) -> Iterable[Reply]:
        served.append(1)
        [reply] = broker(request)
        if len(served) % 5 == 0 and len(served) < 50:
            assert isinstance(reply, Frame)
            yield to_bytes(reply, request)[:cut_at]
            yield CUT
        else:
            yield reply

    network.servers[MASTER] = network.servers[SLAVE] = cutting
    assert read(network, 0, 400, patience=5.0) == list(range(400))
    assert len(network.streams) > 3


def test_answers_received_before_the_cut_are_used(network: Network) -> None:
    broker = PullBroker(128)
    network.servers[MASTER] = sometimes(broker, None, None, [CUT])
    network.servers[SLAVE] = broker
    assert read(network, 0, 128, largest_pull=32) == list(range(128))
    assert broker.pulls.count((0, 4)) == broker.pulls.count((4, 32)) == 1


def test_a_master_that_is_gone_is_read_on_from_the_slave(network: Network) -> None:
    slave = network.servers[SLAVE] = PullBroker(100)
    assert read(network, 0, 100) == list(range(100))
    assert sum(min(count, 32) for _, count in slave.pulls) == 100


def test_a_broker_that_is_gone_altogether(network: Network) -> None:
    with pytest.raises(ConnectError):
        read(network, 0, 100, patience=0.2)


def test_a_broker_that_comes_back_elsewhere(network: Network) -> None:
    routes = {"T": route_body({"b-a": {0: "old:0"}})}
    network.servers["n:1"] = name_server(routes)
    broker = PullBroker(200)

    def leaving(request: Frame) -> Iterable[Reply]:
        if len(broker.pulls) < 3:
            return broker(request)
        routes["T"] = route_body({"b-a": {0: "new:0"}})
        return [CUT]

    network.servers["old:0"], network.servers["new:0"] = leaving, broker
    assert read(network, 0, 200) == list(range(200))


def test_a_name_server_that_is_away_for_a_moment(network: Network) -> None:
    network.servers[MASTER] = PullBroker(10)
    network.servers["n:1"] = sometimes(network.servers["n:1"], [CUT], [CUT])
    assert read(network, 0, 10) == list(range(10))


def test_garbage_in_place_of_an_answer_is_final(network: Network) -> None:
    network.servers[MASTER] = in_turn(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(RocketMQError, match=r"a:0: .*does not speak RocketMQ"):
        read(network, 0, 10)


# --- slaves -----------------------------------------------------------------------------------


def test_the_brokers_suggestion_is_followed(network: Network) -> None:
    master = network.servers[MASTER] = PullBroker(1000, suggest=1)
    slave = network.servers[SLAVE] = PullBroker(1000, suggest=1)
    assert read(network, 0, 1000) == list(range(1000))
    assert master.pulls == [(0, 4)]  # nothing else was on its way when the first answer came
    assert len(slave.pulls) > 20


def test_a_suggested_broker_that_does_not_exist(network: Network) -> None:
    master = network.servers[MASTER] = PullBroker(1000, suggest=7)
    assert read(network, 0, 1000) == list(range(1000))
    assert len(master.pulls) < 50


def test_a_slave_that_may_not_be_read_sends_us_back_to_the_master(network: Network) -> None:
    master = network.servers[MASTER] = PullBroker(500, suggest=1)
    network.servers[SLAVE] = in_turn(answer(2, "slave read is not enabled"))
    assert read(network, 0, 500, patience=5.0) == list(range(500))
    # And there we stay, though it goes on to suggest the slave.
    visits = [address for address, _ in network.streams if address != "n:1"]
    assert visits == [MASTER, SLAVE]  # the master's connection is used again
    assert network.asked(11)[SLAVE] <= 32
    assert len(master.pulls) > 10


def test_a_slave_that_has_not_heard_of_a_young_topic(network: Network) -> None:
    network.servers[MASTER] = PullBroker(500, suggest=1)
    network.servers[SLAVE] = in_turn(answer(17, "topic[T] not exist"))
    assert read(network, 0, 200, patience=5.0) == list(range(200))


def test_a_slave_that_lags_sends_us_back_to_the_master(network: Network) -> None:
    class Slave(PullBroker):
        """With a master alive, whatever is not FOUND is 20 and a hint to ask the master."""

        def pull(self, offset: int, count: int) -> Frame:
            if offset < self.high:
                return super().pull(offset, count)
            return self.say(20, "OFFSET_OVERFLOW_ONE", offset)

    network.servers[MASTER] = PullBroker(300)
    network.servers[SLAVE] = Slave(40)
    network.servers[MASTER] = sometimes(network.servers[MASTER], [CUT], [CUT], [CUT], [CUT])
    assert read(network, 0, 300) == list(range(300))


# --- headers that are mostly alike ------------------------------------------------------------


def answers_parsed(monkeypatch: pytest.MonkeyPatch) -> list[Frame]:
    """Answers to pulls whose headers go through the JSON parser from now on."""
    seen: list[Frame] = []
    real = frame_module._decode_json

    def decode_json(raw: bytes, body: Buffer) -> Frame:
        frame = real(raw, body)
        if frame.is_response and "maxOffset" in frame.ext:
            seen.append(frame)
        return frame

    monkeypatch.setattr(frame_module, "_decode_json", decode_json)
    return seen


class Live(PullBroker):
    """Messages come in while we read."""

    def pull(self, offset: int, count: int) -> Frame:
        self.high += 7
        return super().pull(offset, count)


def test_on_a_live_topic_one_header_is_parsed_and_few_are_judged(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = answers_parsed(monkeypatch)
    judged: list[Frame] = []
    real = RangeReader._judge

    def judge(self: RangeReader, ask: Ask, frame: Frame, *more: Any) -> int:
        judged.append(frame)
        return real(self, ask, frame, *more)

    monkeypatch.setattr(RangeReader, "_judge", judge)
    broker = network.servers[MASTER] = Live(9_990)
    assert read(network, 0, 3000) == list(range(3000))
    assert len(broker.pulls) > 50
    assert broker.high > 10_000  # with a digit more than before
    assert len(parsed) == 1
    assert len(judged) == 2  # that one, and the first of those like it


def test_the_next_read_of_a_connection_takes_nothing_from_the_last(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its answers are like one that was parsed for somebody else."""
    parsed = answers_parsed(monkeypatch)
    network.servers[MASTER] = Live(1000)
    pool = network.pool()
    decoder = Decoder(["queueOffset"], topic="T", broker_name="b-a", queue_id=0)
    for start, end in ((500, 900), (0, 400), (3, 5), (600, 1000), (0, 1)):
        facts = Metadata("n:1", pool, 2.0)
        settings = PullSettings(patience=0.0)
        ours = RangeReader(facts, pool, QUEUE, start, end, decoder, settings, Filter())
        assert rows(ours) == list(range(start, end))
    assert [address for address, _ in network.streams].count(MASTER) == 1
    assert len(parsed) == 1


def test_a_suggestion_in_mid_range_is_followed(network: Network) -> None:
    class Tired(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            self.suggest = int(len(self.pulls) > 30)
            return super().pull(offset, count)

    master = network.servers[MASTER] = Tired(3000)
    slave = network.servers[SLAVE] = PullBroker(3000, suggest=1)
    assert read(network, 0, 3000, in_flight=8, largest_pull=32) == list(range(3000))
    # It was followed at once, and what was on its way then was used.
    assert 30 < len(master.pulls) <= 30 + 8
    assert len(slave.pulls) > 50
    asked = master.pulls + slave.pulls
    assert sum(count for _, count in asked) == 3000


@pytest.mark.parametrize("in_flight", [1, 16])
def test_a_suggestion_taken_back_is_followed_too(network: Network, in_flight: int) -> None:
    """To and fro on two connections, each with its own headers."""

    class Restless(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            self.suggest = offset // 500 % 2
            return super().pull(offset, count)

    master = network.servers[MASTER] = Restless(2500)
    slave = network.servers[SLAVE] = Restless(2500)
    assert read(network, 0, 2500, in_flight=in_flight, largest_pull=32) == list(range(2500))
    assert master.pulls and slave.pulls
    for asked, odd in ((master.pulls, 0), (slave.pulls, 1)):
        wrong = [offset for offset, _ in asked if offset // 500 % 2 != odd]
        assert len(wrong) <= 5 * in_flight  # those on their way when it was said


def test_each_connection_has_headers_of_its_own(network: Network) -> None:
    """To and fro, and what comes on each is always alike there: but not what the other says."""

    class Moved(PullBroker):
        delta = 0

        def pull(self, offset: int, count: int) -> Frame:
            after = min(offset + min(count, self.cap), self.high)
            body = b"".join(record(number - self.delta) for number in range(offset, after))
            return self.say(0, "FOUND", after, body, offsetDelta=self.delta)

    master = network.servers[MASTER] = Moved(400, cap=8, suggest=1)
    slave = network.servers[SLAVE] = Moved(400, cap=8, suggest=0)
    slave.delta = -5
    assert read(network, 0, 400, in_flight=1) == list(range(400))
    assert abs(len(master.pulls) - len(slave.pulls)) <= 1
    assert len(network.streams) == 3  # with the name server's


def test_a_suggestion_is_taken_back_by_the_next_that_is_like_those_before(
    network: Network,
) -> None:
    class Unsure(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            if offset == 4:
                return PullBroker(self.high, suggest=1).say(20, "NO_MATCHED_MESSAGE", 6)
            return super().pull(offset, count)

    network.servers[MASTER] = Unsure(40)
    network.servers[SLAVE] = PullBroker(40)
    # One pull of 2, and then three together, of which the second is the unsure one.
    assert read(network, 0, 40, in_flight=3, largest_pull=2) == [*range(4), *range(6, 40)]
    assert not network.asked(11)[SLAVE]


@pytest.mark.parametrize("in_flight", [1, 16])
def test_a_delta_that_changes_in_mid_range_is_that_of_its_answer(
    network: Network, in_flight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = answers_parsed(monkeypatch)

    class Moved(PullBroker):
        """Each thousand is stored elsewhere, and the last one where it should be."""

        def pull(self, offset: int, count: int) -> Frame:
            part = offset // 1000
            delta = (0, 1000, 30, 0)[part]
            after = min(offset + min(count, self.cap), 1000 * (part + 1))
            body = b"".join(record(number - delta) for number in range(offset, after))
            # It is not said on a topic that is not static.
            said = {"offsetDelta": delta} if part < 3 else {}
            return self.say(0, "FOUND", after, body, **said)

    broker = network.servers[MASTER] = Moved(4000)
    assert read(network, 0, 4000, in_flight=in_flight) == list(range(4000))
    assert len(parsed) < len(broker.pulls) / 2  # most were alike


ALIKE_BUT = [
    answer(2, "[PCBUSY_CLEAN_QUEUE]"),
    BROKER.say(2, "FOUND", 800),
    BROKER.say(21, "OFFSET_RESET", 800),
    BROKER.say(19, "OFFSET_FOUND_NULL", 800),
    BROKER.say(20, "NO_MATCHED_MESSAGE", 0),
    BROKER.say(0, "FOUND", 0),
]


@pytest.mark.parametrize("in_flight", [1, 16])
@pytest.mark.parametrize("instead", ALIKE_BUT, ids=lambda frame: f"{frame.code} {frame.remark}")
def test_an_error_in_mid_range_is_seen_and_so_is_its_end(
    network: Network, instead: Frame, in_flight: int
) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: MASTER}})})
    broker = PullBroker(1000, cap=32)
    calm: list[None] = [None] * 6
    network.servers[MASTER] = sometimes(broker, *calm, [instead], *calm, [instead], [instead])
    got = read(network, 0, 1000, in_flight=in_flight, patience=5.0)
    assert got == list(range(1000))


def test_an_error_that_is_final_is_seen_in_mid_range(network: Network) -> None:
    calm: list[None] = [None] * 20
    gone = PullBroker(1000).say(21, "OFFSET_TOO_SMALL", 900)
    network.servers[MASTER] = sometimes(PullBroker(1000), *calm, [gone])
    with pytest.raises(OffsetOutOfRangeError, match="OFFSET_TOO_SMALL"):
        read(network, 0, 1000)


def test_what_matches_nothing_is_passed_over_in_mid_range(network: Network) -> None:
    """Some answers in a row without a message, whose headers are alike too."""

    class Sparse(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            if 400 <= offset < 700:
                return self.say(20, "NO_MATCHED_MESSAGE", min(offset + 50, 700))
            return super().pull(offset, min(count, 400 - offset) if offset < 400 else count)

    broker = network.servers[MASTER] = Sparse(1000)
    selection = Filter(Subscription("a"))
    assert read(network, 0, 1000, selection=selection) == [*range(400), *range(700, 1000)]
    assert [offset for offset, _ in broker.pulls if 400 <= offset < 700] == [*range(400, 700, 50)]


def test_an_error_tells_of_the_queue_as_it_is_now(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: MASTER}})})

    class Growing(PullBroker):
        def pull(self, offset: int, count: int) -> Frame:
            if offset < 50:
                return super().pull(offset, min(count, 50 - offset))
            self.high += 1
            return self.say(19, "OFFSET_FOUND_NULL", offset)

    broker = network.servers[MASTER] = Growing(50)
    with pytest.raises(OffsetOutOfRangeError, match="nothing there") as caught:
        read(network, 0, 100, in_flight=1, patience=0.3)
    assert broker.high > 51
    assert caught.value.message.endswith(f"its queue ends at {broker.high}")


# --- static topics, inner batches, filters ----------------------------------------------------


def test_a_static_topics_offsets_are_moved_by_the_delta(network: Network) -> None:
    mapping = {
        "bname": "b-a",
        "scope": "__global__",
        "totalQueues": 1,
        "epoch": 1,
        "currIdMap": {"0": 3},
    }
    route = route_body({"b-a": {0: MASTER}}, static={"b-a": mapping})
    network.servers["n:1"] = name_server({"T": route})

    class Moved(PullBroker):
        """Offsets from 50 on are stored from 0 on, on this broker."""

        def pull(self, offset: int, count: int) -> Frame:
            after = min(offset + min(count, 8), self.high, 50 if offset < 50 else self.high)
            delta = 50 if offset >= 50 else 0
            body = b"".join(record(number - delta) for number in range(offset, after))
            return self.say(0, "FOUND", after, body, offsetDelta=delta)

    network.servers[MASTER] = Moved(100)
    queue = MessageQueue("T", "__syslo__global__", 0)
    assert read(network, 10, 90, queue=queue) == list(range(10, 90))
    [(_, request), *_] = network.requests(11)
    assert (request.ext["bname"], request.ext["queueId"]) == ("b-a", "0")

    class Gap(Moved):
        """Where it moved there are numbers that no message ever had."""

        def pull(self, offset: int, count: int) -> Frame:
            if 40 <= offset < 50:
                return self.say(20, "OFFSET_OVERFLOW_ONE", 50)
            return super().pull(offset, min(count, 40 - offset) if offset < 40 else count)

    network.servers[MASTER] = Gap(100)
    assert read(network, 10, 90, queue=queue) == [*range(10, 40), *range(50, 90)]


def test_two_pulls_that_meet_inside_an_inner_batch_give_its_messages_once(
    network: Network,
) -> None:
    size = 20  # messages in each batch; pulls of 32 begin and end inside of one

    def batch(first: int) -> bytes:
        items = [BatchItem(b"m%d" % number) for number in range(first, first + size)]
        message = StoredMessage(
            "T",
            0,
            first,
            sys_flag=UNWRAP,
            properties={"INNER_NUM": str(size), "INNER_BASE": str(first)},
        )
        return encode_message(message, body=encode_batch(items))

    class Batching(PullBroker):
        """Gives whole batches: the first holds the offset asked for, the last may go beyond."""

        def pull(self, offset: int, count: int) -> Frame:
            first = offset - offset % size
            last = offset + min(count, self.cap)
            starts = range(first, last, size)
            return self.say(0, "FOUND", starts[-1] + size, b"".join(map(batch, starts)))

    network.servers[MASTER] = Batching(10_000)
    assert read(network, 7, 307) == list(range(7, 307))


def tagged(offset: int) -> str:
    return "AaAa" if offset % 3 == 0 else "BBBB"  # equal to Java's hash


@pytest.mark.parametrize("subscription", [Subscription("AaAa"), Subscription("a > 1", SQL92, 9)])
def test_with_a_filter_pulls_go_one_by_one_where_the_answer_says(
    network: Network, subscription: Subscription
) -> None:
    pulls: list[int] = []

    def filtering(request: Frame) -> Iterable[Reply]:
        if request.code == 46:
            yield answer()
            return
        offset = int(request.ext["queueOffset"])
        assert request.ext["subscription"] == subscription.expression
        assert request.ext["expressionType"] == subscription.kind
        pulls.append(offset)
        if offset == 300:  # a window without any match
            yield BROKER.say(20, "NO_MATCHED_MESSAGE", 400)
            return
        body = b"".join(
            record(number, tagged(number)) for number in range(offset, offset + 100, 10)
        )
        yield BROKER.say(0, "FOUND", offset + 100, body)

    network.servers[MASTER] = filtering
    tags = frozenset({"AaAa"}) if subscription.kind != SQL92 else None
    selected = read(network, 0, 600, selection=Filter(subscription, tags))
    given = [*range(0, 300, 10), *range(400, 600, 10)]
    # The broker compares hashes, which are equal here; the client compares the tags.
    assert selected == [n for n in given if tags is None or n % 3 == 0]
    assert pulls == [0, 100, 200, 300, 400, 500]


def test_with_a_filter_what_does_not_match_is_not_asked_for_again(network: Network) -> None:
    class Filtering(PullBroker):
        """The first message of an answer is one that matches, not the one asked for."""

        def pull(self, offset: int, count: int) -> Frame:
            found = [number for number in range(offset, offset + 20) if number % 20 > 1]
            return self.say(0, "FOUND", offset + 20, b"".join(map(record, found)))

    broker = network.servers[MASTER] = Filtering(200)
    selected = read(network, 0, 200, selection=Filter(Subscription("a")))
    assert selected == [number for number in range(200) if number % 20 > 1]
    assert [offset for offset, _ in broker.pulls] == list(range(0, 200, 20))


@pytest.mark.parametrize(
    "refusal",
    [
        answer(23, "parse failed"),
        answer(1, "The broker does not support consumer to filter message by SQL92"),
    ],
)
def test_a_filter_that_will_not_compile_is_refused_before_anything_is_read(
    network: Network, refusal: Frame
) -> None:
    network.servers[MASTER] = in_turn(refusal)
    with pytest.raises(BadExpressionError, match="cannot filter by 'a >' in T/b-a/0"):
        read(network, 0, 10, selection=Filter(Subscription("a >", SQL92, 9)))
    assert not network.requests(11)


def test_a_removed_file_is_data_loss_with_a_filter_too(network: Network) -> None:
    network.servers[MASTER] = sometimes(
        PullBroker(100), [BROKER.say(20, "MESSAGE_WAS_REMOVING", 40)]
    )
    selection = Filter(Subscription("a > 1", SQL92, 9))
    with pytest.raises(OffsetOutOfRangeError, match="expired"):
        read(network, 0, 100, selection=selection)


# --- secrets ----------------------------------------------------------------------------------


def test_no_secret_in_logs_or_errors(caplog: pytest.LogCaptureFixture) -> None:
    network = Network(Credentials("ak", "hush-secret", "hush-token"))
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: MASTER}})})
    network.servers[MASTER] = in_turn(answer(2, "busy"))
    with caplog.at_level(logging.DEBUG), pytest.raises(BusyError) as caught:
        read(network, 0, 10, patience=0.2)
    assert "trying again" in caplog.text
    assert network.requests(11)[0][1].ext["SecurityToken"] == "hush-token"
    for text in (caplog.text, str(caught.value), repr(caught.value), repr(network.requests())):
        assert "hush" not in text


# --- memory for answers -----------------------------------------------------------------------


class LargeMessages(PullBroker):
    """Messages of some kilobytes, so that few of them fill the memory."""

    def pull(self, offset: int, count: int) -> Frame:
        after = min(offset + min(count, self.cap), self.high)
        stored = [StoredMessage("T", 0, n, n, body=bytes(4000)) for n in range(offset, after)]
        return self.say(0, "FOUND", after, b"".join(map(encode_message, stored)))


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("at_once", [5_000, 20_000, 1 << 30])
def test_memory_does_not_grow_with_the_range(
    network: Network, filtered: bool, at_once: int
) -> None:
    network.servers[MASTER] = LargeMessages(4000, cap=8)
    network.at_once = at_once
    selection = Filter(Subscription("a")) if filtered else None
    batch = 200_000
    ours = reader(network, 0, 4000, selection, batch_bytes=batch, window_bytes=1_000_000)
    largest, seen = 0, 0
    for got in ours:
        seen += got.num_rows
        if ours._landing:
            largest = max(largest, len(ours._landing.memory))
    assert seen == 4000
    # Two batches, an answer, and what waits for a missing one.
    assert largest <= 2 * batch + 256 * 1024 + 2_000_000 * (not filtered)
    assert ours._landing is None  # given back at the end


@pytest.mark.parametrize("batch_bytes", [1, 2, 100])
def test_the_smallest_batches(network: Network, batch_bytes: int) -> None:
    network.servers[MASTER] = PullBroker(700)
    assert read(network, 0, 700, batch_bytes=batch_bytes) == list(range(700))


def test_memory_filled_by_what_the_server_asks_is_no_lost_connection(network: Network) -> None:
    """A request of the server that ends just where the memory does leaves no room to receive."""
    broker = PullBroker(100)
    head = len(encode(Frame(40, 1)))
    memory = len(Landing().memory)

    def handle(request: Frame) -> Iterable[Reply]:
        if not broker.pulls:
            yield encode(Frame(40, 1, body=bytes(memory - head)))
        yield from broker(request)

    network.servers[MASTER] = handle
    network.at_once = memory
    assert read(network, 0, 100) == list(range(100))
    assert [address for address, _ in network.streams].count(MASTER) == 1


def landings_used(network: Network, batch_bytes: int, wanted: int) -> list[Any]:
    """Of three reads one after the other; each is checked."""
    pool = network.pool()
    decoder = Decoder(["queueOffset", "body"], topic="T", broker_name="b-a", queue_id=0)
    used = []
    for _ in range(3):
        facts, settings = Metadata("n:1", pool, 2.0), PullSettings(batch_bytes=batch_bytes)
        ours = RangeReader(facts, pool, QUEUE, 0, wanted, decoder, settings, Filter())
        offsets: list[int] = []
        for batch in ours:
            used.append(ours._landing)
            offsets += batch.column(0).to_pylist()
        assert offsets == list(range(wanted))
        assert ours._landing is None
    assert len(network.streams) == 2  # the name server's and the broker's
    return used


# The client's own batches, and those of a stream.
@pytest.mark.parametrize("batch_bytes", [4 << 20, 8 << 20])
def test_the_next_read_has_the_memory_of_the_last(network: Network, batch_bytes: int) -> None:
    network.servers[MASTER] = LargeMessages(6000, cap=8)
    used = landings_used(network, batch_bytes, 6000)
    assert len(set(map(id, used))) == 1
    assert len(used[0].memory) > 2 * batch_bytes


def test_memory_that_grew_too_large_is_not_kept(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_spark.client.pool._LARGEST_SPARE", 1000)
    network.servers[MASTER] = LargeMessages(400, cap=8)
    assert len(set(map(id, landings_used(network, 50_000, 400)))) == 3


def test_a_reader_that_is_closed_early_gives_its_memory_back(network: Network) -> None:
    network.servers[MASTER] = LargeMessages(400, cap=8)
    ours = reader(network, 0, 400, batch_bytes=50_000)
    next(ours)
    landing = ours._landing
    ours.close()
    assert ours._landing is None
    assert not ours._window.waiting()
    assert ours._pool.lend_landing() is landing
