"""One connection: answers, deadlines, and one failure that fails everything."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from rocketmq_spark.client.connection import Connection
from rocketmq_spark.errors import (
    ConnectionLostError,
    FrameError,
    FrameTooLargeError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.buffer import Landing
from rocketmq_spark.wire.frame import ONEWAY_FLAG, Frame
from rocketmq_spark.wire.session import Command, Series, Session
from tests.client.scripted import (
    CUT,
    Handler,
    Reply,
    ScriptedStream,
    answer,
    in_turn,
    mirror,
    silent,
)

SOON = time.monotonic() + 3600


def connect(handler: Handler, at_once: int = 1 << 30) -> tuple[Connection, ScriptedStream]:
    stream = ScriptedStream(handler, at_once)
    return Connection("b:1", stream, Session()), stream


@pytest.mark.parametrize("at_once", [1, 5, 1 << 30])
def test_one_question_and_its_answer(at_once: int) -> None:
    connection, stream = connect(mirror, at_once)
    assert bytes(connection.call(Command(11, {}, b"hello"), SOON).body) == b"hello"
    assert stream.requests[0].code == 11
    assert connection.idle


def test_many_at_once_are_one_write_and_answers_keep_their_tokens() -> None:
    stream = ScriptedStream(silent)
    connection = Connection("b:1", stream, Session())
    connection.submit([(Command(11, {}, name.encode()), name) for name in "abc"], SOON)
    assert len(stream.deadlines) == 1
    stream.push(*[Frame(0, r.opaque, 1, body=r.body) for r in reversed(stream.requests)])
    answers = connection.receive(SOON)
    assert [(token, bytes(frame.body)) for token, frame in answers] == [
        ("c", b"c"),
        ("b", b"b"),
        ("a", b"a"),
    ]


def test_what_is_left_waiting_makes_it_busy() -> None:
    connection, stream = connect(in_turn((), answer()))
    connection.submit([(Command(11, {}), "first"), (Command(11, {}), "second")], SOON)
    assert [token for token, _ in connection.receive(SOON)] == ["second"]
    assert not connection.idle
    assert repr(connection) == "<Connection b:1 1 in flight>"
    stream.push(Frame(0, stream.requests[0].opaque, 1))
    assert [token for token, _ in connection.receive(SOON)] == ["first"]
    assert connection.idle


def test_silence_is_a_timeout_and_the_end_of_the_connection() -> None:
    connection, stream = connect(silent)
    with pytest.raises(RequestTimeoutError):
        connection.call(Command(11, {}), SOON)
    assert connection.broken
    assert stream.closed
    assert not connection.idle
    with pytest.raises(ConnectionLostError):
        connection.call(Command(11, {}), SOON)


def test_the_deadline_is_handed_down_to_every_write_and_read() -> None:
    connection, stream = connect(mirror, at_once=10)
    connection.call(Command(11, {}, b"hello"), SOON)
    assert set(stream.deadlines) == {SOON}


def test_a_trickle_is_no_answer() -> None:
    """A peer that always has a byte, or a question of its own, does not put off the deadline."""

    class Chatty(ScriptedStream):
        def recv_into(self, view: memoryview, deadline: float) -> int:
            self.push(Frame(40, 1, ONEWAY_FLAG))
            return super().recv_into(view, deadline)

    stream = Chatty(silent)
    connection = Connection("b:1", stream, Session())
    began = time.monotonic()
    with pytest.raises(RequestTimeoutError, match="b:1 did not answer"):
        connection.call(Command(11, {}), began + 0.1)
    assert time.monotonic() - began < 2
    assert connection.broken


def test_the_end_fails_everything_at_once() -> None:
    connection, _ = connect(in_turn((), (), CUT))
    connection.submit([(Command(11, {}), n) for n in range(3)], SOON)
    with pytest.raises(ConnectionLostError):
        connection.receive(SOON)
    assert connection.broken
    assert repr(connection) == "<Connection b:1 broken>"


def test_answers_that_came_before_the_end_are_not_lost() -> None:
    connection, _ = connect(in_turn(answer(), (answer(), CUT)))
    connection.submit([(Command(11, {}), n) for n in range(2)], SOON)
    assert [token for token, _ in connection.receive(SOON)] == [0, 1]


@pytest.mark.parametrize(
    ("garbage", "error"),
    [(b"HTTP/1.1 400 Bad Request\r\n", FrameTooLargeError), (b"\x00\x00\x00\x01x", FrameError)],
)
def test_garbage_names_the_peer_and_ends_it(garbage: bytes, error: type[RocketMQError]) -> None:
    connection, stream = connect(in_turn(garbage))
    with pytest.raises(error, match=r"^b:1: ") as caught:
        connection.call(Command(11, {}), SOON)
    assert type(caught.value) is error
    assert connection.broken
    assert stream.closed


def test_the_servers_question_is_answered_while_waiting_for_ours() -> None:
    def ask_back(request: Frame) -> Iterable[Reply]:
        yield Frame(307, 77)
        yield answer(body=b"x")

    connection, stream = connect(ask_back)
    assert bytes(connection.call(Command(11, {}), SOON).body) == b"x"
    assert [(r.code, r.opaque) for r in stream.replies] == [(3, 77)]


def test_refresh_answers_what_was_asked_meanwhile() -> None:
    connection, stream = connect(mirror)
    connection.call(Command(11, {}), SOON)
    stream.push(Frame(307, 5), Frame(40, 6, ONEWAY_FLAG))
    assert connection.refresh()
    assert [r.opaque for r in stream.replies] == [5]
    assert connection.idle


def test_refresh_notices_the_end() -> None:
    connection, stream = connect(mirror)
    connection.call(Command(11, {}), SOON)
    assert connection.refresh()
    stream.end()
    assert not connection.refresh()
    assert not connection.idle


def test_refresh_lets_the_rest_of_a_tls_record_come() -> None:
    """The socket is readable then, and there is nothing to read yet."""

    class Partly(ScriptedStream):
        def readable(self) -> bool:
            return True

    stream = Partly(silent)
    connection = Connection("b:1", stream, Session())
    assert connection.refresh()
    assert not stream.closed
    stream.push(Frame(307, 5))
    assert connection.refresh()
    assert [reply.opaque for reply in stream.replies] == [5]


def test_refresh_notices_garbage() -> None:
    connection, stream = connect(mirror)
    stream.push(b"HTTP/1.1 408 Request Timeout")
    assert not connection.refresh()
    assert stream.closed


def test_after_go_away_nobody_else_gets_it() -> None:
    connection, _ = connect(in_turn(answer(1500)))
    assert connection.call(Command(11, {}), SOON).code == 1500
    assert not connection.broken
    assert not connection.idle


# --- answers to a series ----------------------------------------------------------------------

SERIES = Series(11, {"topic": "T"}, ("queueOffset", "maxMsgNums"))


def pulled(after: int, code: int = 0) -> Frame:
    return answer(code, "FOUND", b"x" * after, nextBeginOffset=after, maxOffset=9, minOffset=0)


def asking(handler: Handler, tokens: str, at_once: int = 1 << 30) -> tuple[Connection, Landing]:
    connection, _ = connect(handler, at_once)
    landing = Landing()
    connection.receive_into(landing)
    asked = [((number, 1), token) for number, token in enumerate(tokens)]
    connection.submit_series(SERIES, asked, SOON)
    return connection, landing


def test_a_series_is_one_write_and_its_answers_keep_their_tokens() -> None:
    connection, stream = connect(in_turn(pulled(5), pulled(6), pulled(7)))
    connection.submit_series(SERIES, [((n, 32), token) for n, token in enumerate("abc")], SOON)
    assert stream.writes == [3]
    assert [request.ext["queueOffset"] for request in stream.requests] == ["0", "1", "2"]
    answers = connection.receive_series(SOON)
    assert [(token, after) for token, _, after, _, _ in answers] == [
        ("a", None),
        ("b", 6),
        ("c", 7),
    ]
    assert connection.idle
    assert set(stream.deadlines) == {SOON}


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_answers_to_a_series_are_waited_for_until_there_is_one(at_once: int) -> None:
    connection, landing = asking(in_turn(pulled(5), pulled(6)), "ab", at_once)
    for token, size in (("a", 5), ("b", 6)):
        [(given, _, _, at, end)] = connection.receive_series(SOON)
        assert (given, bytes(landing.memory[at:end])) == (token, b"x" * size)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_go_away_among_answers_to_a_series(place: int) -> None:
    replies = [pulled(5), pulled(6), pulled(7)]
    replies[place] = pulled(5, code=1500)
    connection, _ = asking(in_turn(*replies), "abc")
    answers = connection.receive_series(SOON)
    assert [token for token, *_ in answers] == ["a", "b", "c"]
    assert [frame.code == 1500 for _, frame, *_ in answers] == [n == place for n in range(3)]
    assert connection.draining
    assert not connection.idle
    assert not connection.broken


def test_answers_to_a_series_without_go_away_leave_the_connection_as_it_was() -> None:
    connection, _ = asking(in_turn(pulled(5), pulled(6)), "ab")
    connection.receive_series(SOON)
    assert not connection.draining


def test_the_servers_question_is_answered_while_waiting_for_a_series() -> None:
    connection, stream = connect(in_turn((Frame(307, 77), pulled(5))))
    connection.submit_series(SERIES, [((0, 1), "a")], SOON)
    assert [token for token, *_ in connection.receive_series(SOON)] == ["a"]
    assert [(r.code, r.opaque) for r in stream.replies] == [(3, 77)]


def test_only_questions_are_no_answer_to_a_series() -> None:
    class Chatty(ScriptedStream):
        def recv_into(self, view: memoryview, deadline: float) -> int:
            self.push(Frame(40, 1, ONEWAY_FLAG))
            return super().recv_into(view, deadline)

    connection = Connection("b:1", Chatty(silent), Session())
    began = time.monotonic()
    connection.submit_series(SERIES, [((0, 1), "a")], SOON)
    with pytest.raises(RequestTimeoutError, match="b:1 did not answer"):
        connection.receive_series(began + 0.1)
    assert connection.broken


def test_a_full_buffer_gives_no_answers_to_a_series() -> None:
    connection, landing = asking(in_turn(answer(body=bytes(100_000))), "a", 5000)
    assert connection.receive_series(SOON) == []
    assert landing.full
    landing.tidy([], 200_000)
    [(token, _, _, at, end)] = connection.receive_series(SOON)
    assert (token, end - at) == ("a", 100_000)


@pytest.mark.parametrize(
    ("garbage", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", FrameTooLargeError),
        (b"\x00\x00\x00\x01x", FrameError),
        (b"\x00\x00\x00\x05\x00\x00\x00\xffx", FrameError),
        (b"\x00\x00\x00\x05\x07\x00\x00\x00x", FrameError),
    ],
)
def test_garbage_for_a_series_names_the_peer_and_ends_it(
    garbage: bytes, error: type[RocketMQError]
) -> None:
    connection, stream = connect(in_turn(pulled(5), garbage))
    connection.submit_series(SERIES, [((n, 1), n) for n in range(2)], SOON)
    with pytest.raises(error, match=r"^b:1: ") as caught:
        connection.receive_series(SOON)
    assert type(caught.value) is error
    assert connection.broken
    assert stream.closed


def test_the_end_fails_a_series_but_not_what_came_before_it() -> None:
    connection, _ = asking(in_turn(pulled(5), CUT), "ab")
    assert [token for token, *_ in connection.receive_series(SOON)] == ["a"]
    with pytest.raises(ConnectionLostError):
        connection.receive_series(SOON)
    assert connection.broken


def test_no_secret_in_any_text() -> None:
    session = Session(Credentials("ak", "hush-secret", "hush-token"), "ns")
    connection = Connection("b:1", ScriptedStream(in_turn(b"\x00\x00\x00\x01x")), session)
    texts = [repr(connection), repr(session)]
    with pytest.raises(FrameError) as caught:
        connection.call(Command(11, {"topic": "T"}), SOON)
    texts += [repr(connection), str(caught.value), repr(caught.value)]
    assert "hush" not in " ".join(texts)
