"""One conversation: answers find their askers, and the server's own questions get an answer."""

from __future__ import annotations

from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.buffer import FrameBuffer, Landing
from rocketmq_spark.wire.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame, encode
from rocketmq_spark.wire.session import Answer, Command, Series, Session
from tests.wire.test_frame import feed, same


def sent(data: bytes) -> Frame:
    """The one request in `data`."""
    [frame] = feed(FrameBuffer(), data)
    return frame


def receive(session: Session, data: bytes) -> list[Answer]:
    answers: list[Answer] = []
    while data:
        room = session.writable()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        answers += session.received(count)
        data = data[count:]
    return answers


def respond(request: Frame, code: int = 0, body: bytes = b"") -> bytes:
    return encode(Frame(code, request.opaque, RESPONSE_FLAG, body=body))


def test_a_request_on_the_wire() -> None:
    request = sent(Session().request(Command(11, {"topic": "T"}, b"body")))
    assert (request.code, request.flag, request.ext, bytes(request.body)) == (
        11,
        0,
        {"topic": "T"},
        b"body",
    )


def test_answers_come_in_any_order() -> None:
    session = Session()
    requests = [sent(session.request(Command(11, {}), token)) for token in "abc"]
    assert len({request.opaque for request in requests}) == 3
    assert session.pending == ["a", "b", "c"]
    late, early, last = requests[0], requests[2], requests[1]
    answers = receive(session, respond(early, body=b"C") + respond(late, body=b"A"))
    assert [(token, bytes(frame.body)) for token, frame in answers] == [("c", b"C"), ("a", b"A")]
    assert session.pending == ["b"]
    assert [token for token, _ in receive(session, respond(last))] == ["b"]
    assert session.pending == []


def test_an_answer_in_pieces() -> None:
    session = Session()
    data = respond(sent(session.request(Command(11, {}), "t")), body=b"x" * 100)
    pieces = [receive(session, data[at : at + 1]) for at in range(len(data))]
    assert [len(piece) for piece in pieces] == [0] * (len(data) - 1) + [1]


def test_an_asker_without_a_token_is_answered() -> None:
    session = Session()
    request = sent(session.request(Command(11, {})))
    assert [token for token, _ in receive(session, respond(request))] == [None]


def test_an_answer_nobody_waits_for_is_dropped() -> None:
    session = Session()
    request = sent(session.request(Command(11, {}), "t"))
    stray = Frame(0, request.opaque + 100, RESPONSE_FLAG)
    assert receive(session, encode(stray)) == []
    assert session.pending == ["t"]
    twice = respond(request) * 2
    assert [token for token, _ in receive(session, twice)] == ["t"]
    assert session.replies() == b""


def test_the_servers_question_is_answered_once_and_politely() -> None:
    session = Session()
    assert receive(session, encode(Frame(307, 9, 0, {"consumerGroup": "g"}))) == []
    refusal = sent(session.replies())
    assert (refusal.code, refusal.opaque, refusal.flag) == (3, 9, RESPONSE_FLAG)
    assert "307" in refusal.remark
    assert session.replies() == b""


def test_a_oneway_question_gets_no_answer() -> None:
    session = Session()
    assert receive(session, encode(Frame(40, 9, ONEWAY_FLAG, {"consumerGroup": "g"}))) == []
    assert session.replies() == b""


def test_the_two_directions_number_apart() -> None:
    session = Session()
    request = sent(session.request(Command(11, {}), "ours"))
    theirs = Frame(221, request.opaque)  # the same number, but a question
    assert receive(session, encode(theirs)) == []
    assert session.pending == ["ours"]
    assert sent(session.replies()).opaque == request.opaque
    assert [token for token, _ in receive(session, respond(request))] == ["ours"]


def test_requests_are_signed_over_everything_they_carry() -> None:
    account = Credentials("ak", "sk12345678")
    session = Session(account, namespace="shop")
    request = sent(session.request(Command(11, {"topic": "T"}, b"body")))
    expected = account.sign({"topic": "T", "nsd": "true", "ns": "shop"}, b"body")
    assert request.ext == expected
    assert request.ext["Signature"] != account.sign({"topic": "T"}, b"body")["Signature"]


def test_without_account_and_namespace_nothing_is_added() -> None:
    assert sent(Session().request(Command(206, {}))).ext == {}


def test_the_command_is_left_as_it_was() -> None:
    ext = {"topic": "T"}
    session = Session(Credentials("ak", "sk"), namespace="shop")
    session.request(Command(11, ext))
    assert ext == {"topic": "T"}


def test_a_frame_may_end_one_answer_and_begin_the_next() -> None:
    session = Session()
    requests = [sent(session.request(Command(11, {}), token)) for token in "ab"]
    data = b"".join(respond(r, body=b"z" * 40_000) for r in requests)
    answers = receive(session, data)
    assert same(
        [frame for _, frame in answers],
        [Frame(0, r.opaque, RESPONSE_FLAG, body=b"z" * 40_000) for r in requests],
    )


def test_repr_says_how_much_is_in_flight_and_nothing_else() -> None:
    session = Session(Credentials("ak", "hush", "token"))
    session.request(Command(11, {}), "t")
    assert repr(session) == "<Session 1 in flight>"


SERIES = Series(11, {"topic": '%d "T"', "queueId": "3"}, ("queueOffset", "maxMsgNums"))


def test_one_of_a_series_is_the_request_it_stands_for() -> None:
    ours, plain = Session(), Session()
    for numbers in ((0, 32), (2**40, 1)):
        data = ours.series(SERIES, numbers, "token")
        assert same([sent(data)], [sent(plain.request(SERIES.command(numbers)))])
    assert sent(data).ext == {
        "topic": '%d "T"',
        "queueId": "3",
        "queueOffset": str(2**40),
        "maxMsgNums": "1",
    }
    assert ours.pending == ["token", "token"]


def test_one_of_a_series_is_signed_and_has_its_namespace() -> None:
    account = Credentials("user", "secret")
    for session in (Session(account), Session(namespace="space"), Session(account, "space")):
        request = sent(session.series(SERIES, (5, 6)))
        assert request.ext["queueOffset"] == "5"
        ours = {
            name: v for name, v in request.ext.items() if name not in ("Signature", "AccessKey")
        }
        assert ("ns" in ours or "Signature" in request.ext) and (
            "Signature" not in request.ext or request.ext == account.sign(ours)
        )


def test_bytes_go_into_another_buffer_from_the_middle_of_a_frame_on() -> None:
    session = Session()
    data = respond(sent(session.request(Command(11, {}), "t")), body=b"x" * 100)
    assert receive(session, data[:50]) == []
    session.receive_into(Landing())
    assert [token for token, _ in receive(session, data[50:])] == ["t"]
