"""One conversation: answers find their askers, and the server's own questions get an answer."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.errors import FrameError
from rocketmq_spark.wire import frame as frame_module
from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.buffer import FrameBuffer, Landing
from rocketmq_spark.wire.frame import (
    BINARY_HEADER,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Buffer,
    Frame,
    encode,
)
from rocketmq_spark.wire.session import Answer, Command, Series, SeriesAnswer, Session
from tests.wire.test_frame import QUICK, feed, pulled, same


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


def test_each_of_a_series_is_the_request_it_stands_for() -> None:
    ours, plain = Session(), Session()
    asked = [((0, 32), "first"), ((2**40, 1), "second")]
    data = ours.series(SERIES, asked) + ours.series(SERIES, [((7, 8), "third")])
    asked.append(((7, 8), "third"))
    requests = feed(FrameBuffer(), data)
    assert same(requests, [sent(plain.request(SERIES.command(numbers))) for numbers, _ in asked])
    assert requests[1].ext == {
        "topic": '%d "T"',
        "queueId": "3",
        "queueOffset": str(2**40),
        "maxMsgNums": "1",
    }
    assert ours.pending == ["first", "second", "third"]
    assert ours.series(SERIES, []) == b""


def test_each_of_a_series_is_signed_and_has_its_namespace() -> None:
    account = Credentials("user", "secret")
    for session in (Session(account), Session(namespace="space"), Session(account, "space")):
        asked = [((5, 6), "first"), ((7, 8), "second")]
        requests = feed(FrameBuffer(), session.series(SERIES, asked))
        assert [request.ext["queueOffset"] for request in requests] == ["5", "7"]
        assert session.pending == ["first", "second"]
        for request in requests:
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


# --- answers to a series ----------------------------------------------------------------------

# What an answer gives: its token, where it leads, its code and its body.
Gist = tuple[Any, int, int, bytes]


class Asking:
    """A session that has asked for a series, and what it makes of the answers."""

    def __init__(self, tokens: str) -> None:
        self.session = Session()
        self.landing = Landing()
        self.session.receive_into(self.landing)
        self.landing.tidy([], 1 << 20)
        asked = [((number, 1), token) for number, token in enumerate(tokens)]
        requests = feed(FrameBuffer(), self.session.series(SERIES, asked))
        self.numbers = {token: r.opaque for token, r in zip(tokens, requests, strict=True)}

    def pulled(self, token: str, after: int, most: int = 900, body: bytes = b"") -> bytes:
        return framed(pulled(after, self.numbers[token], most), body)

    def receive(self, data: bytes, at_once: int = 1 << 30) -> list[SeriesAnswer]:
        answers = []
        while data:
            room = self.session.writable()
            count = min(len(room), len(data), at_once)
            room[:count] = data[:count]
            answers += self.session.received_series(count)
            data = data[count:]
        return answers

    def gist(self, answer: SeriesAnswer) -> Gist:
        token, frame, after, at, end = answer
        after = int(frame.ext.get("nextBeginOffset", -1)) if after is None else after
        return token, after, frame.code, bytes(self.landing.memory[at:end])


def framed(header: str, body: bytes = b"", missing: int = 0) -> bytes:
    raw = header.encode()
    return struct.pack(">II", 4 + len(raw) + len(body) - missing, len(raw)) + raw + body


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The headers that are parsed from now on."""
    seen: list[bytes] = []

    def decode_json(raw: bytes, body: Buffer) -> Frame:
        seen.append(raw)
        return real(raw, body)

    real = frame_module._decode_json
    monkeypatch.setattr(frame_module, "_decode_json", decode_json)
    return seen


def test_answers_that_are_alike_share_a_frame_and_only_the_first_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = Asking("abcd")
    parsed = counted(monkeypatch)
    stream = [
        asking.pulled("c", 32, body=b"C" * 50),
        asking.pulled("a", 64, 901, body=b"A"),
        asking.pulled("d", 9_000_000_000, 10_000_000_000),
        asking.pulled("b", 128, body=b"B" * 7),
    ]
    answers = asking.receive(b"".join(stream))
    assert list(map(asking.gist, answers)) == [
        ("c", 32, 0, b"C" * 50),
        ("a", 64, 0, b"A"),
        ("d", 9_000_000_000, 0, b""),
        ("b", 128, 0, b"B" * 7),
    ]
    assert len(parsed) == 1
    assert [after for _, _, after, _, _ in answers] == [None, 64, 9_000_000_000, 128]
    _, second, third, fourth = [frame for _, frame, *_ in answers]
    assert second is third is fourth
    assert (second.remark, second.body) == ("FOUND", b"")
    assert asking.session.pending == []


def test_an_answer_that_is_not_like_the_last_one_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = Asking("abcdef")
    parsed = counted(monkeypatch)
    other = (b'BrokerId":"0"', b'BrokerId":"1"')
    stream = [
        asking.pulled("a", 1),
        asking.pulled("b", 2),
        asking.pulled("c", 3).replace(*other),
        asking.pulled("d", 4).replace(*other),
        asking.pulled("e", 5),
        asking.pulled("f", 6),
    ]
    answers = asking.receive(b"".join(stream))
    assert [token for token, *_ in answers] == list("abcdef")
    assert [after for _, _, after, _, _ in answers] == [None, 2, None, 4, None, 6]
    assert len(parsed) == 3
    assert [frame.ext["suggestWhichBrokerId"] for _, frame, *_ in answers] == list("001100")


def test_errors_have_their_own_numbers_and_are_no_pattern_for_others() -> None:
    asking = Asking("abcd")
    error = (b'"code":0', b'"code":9')
    stream = [
        asking.pulled("a", 1),
        asking.pulled("b", 2, 100).replace(*error),
        asking.pulled("c", 3, 101).replace(*error),
        asking.pulled("d", 4),
    ]
    answers = asking.receive(b"".join(stream))
    assert [after for _, _, after, _, _ in answers] == [None, None, None, 4]
    assert [frame.ext["maxOffset"] for _, frame, *_ in answers[1:3]] == ["100", "101"]


@pytest.mark.parametrize("at_once", [1, 100])
def test_answers_to_a_series_in_pieces(at_once: int) -> None:
    asking = Asking("abc")
    stream = [asking.pulled(token, n, body=b"x" * n) for n, token in enumerate("abc")]
    answers = asking.receive(b"".join(stream), at_once)
    assert list(map(asking.gist, answers)) == [(t, n, 0, b"x" * n) for n, t in enumerate("abc")]


def test_an_answer_of_a_series_that_nobody_waits_for_is_dropped() -> None:
    asking = Asking("ab")
    stray = framed(pulled(5, 77))
    assert asking.receive(stray) == []
    twice = asking.pulled("a", 1) * 2 + stray + asking.pulled("a", 1)
    assert [token for token, *_ in asking.receive(twice)] == ["a"]
    assert asking.session.pending == ["b"]
    assert asking.session.replies() == b""


def test_a_series_asker_without_a_token_is_answered() -> None:
    session = Session()
    requests = feed(FrameBuffer(), session.series(SERIES, [((n, 1), None) for n in range(3)]))
    data = b"".join(framed(pulled(n, request.opaque)) for n, request in enumerate(requests))
    session.writable()[: len(data)] = data
    assert [token for token, *_ in session.received_series(len(data))] == [None] * 3


def test_the_servers_question_among_answers_to_a_series_is_refused() -> None:
    asking = Asking("ab")
    question = encode(Frame(307, 9, 0, {"consumerGroup": "g"}))
    oneway = encode(Frame(40, 8, ONEWAY_FLAG))
    stream = asking.pulled("a", 1) + question + oneway + asking.pulled("b", 2)
    assert [asking.gist(a)[:2] for a in asking.receive(stream)] == [("a", 1), ("b", 2)]
    refusal = sent(asking.session.replies())
    assert (refusal.code, refusal.opaque, refusal.flag) == (3, 9, RESPONSE_FLAG)


def test_a_question_is_no_answer_however_much_it_looks_like_one() -> None:
    asking = Asking("ab")
    questions = [asking.pulled(token, 1).replace(b'"flag":1', b'"flag":0') for token in "abab"]
    assert asking.receive(b"".join(questions)) == []
    assert asking.session.pending == ["a", "b"]
    refused = feed(FrameBuffer(), asking.session.replies())
    assert [frame.opaque for frame in refused] == [asking.numbers[token] for token in "abab"]


def test_answers_to_a_series_with_binary_headers() -> None:
    asking = Asking("abcd")

    def binary(token: str, after: int, body: bytes) -> bytes:
        ext = {"nextBeginOffset": str(after)}
        number = asking.numbers[token]
        return encode(Frame(0, number, RESPONSE_FLAG, ext, body=body), BINARY_HEADER)

    stream = [
        asking.pulled("a", 1, body=b"A"),
        binary("b", 2, b"BB"),
        asking.pulled("c", 3, body=b"CCC"),
        binary("d", 4, b""),
    ]
    answers = asking.receive(b"".join(stream))
    assert list(map(asking.gist, answers)) == [
        ("a", 1, 0, b"A"),
        ("b", 2, 0, b"BB"),
        ("c", 3, 0, b"CCC"),
        ("d", 4, 0, b""),
    ]


def test_a_binary_header_before_so_much_that_its_kind_could_be_a_length() -> None:
    asking = Asking("a")
    asking.landing.tidy([], 18 << 20)
    body = b"0123456789abcdef" * (17 << 16)
    raw = encode(Frame(0, asking.numbers["a"], RESPONSE_FLAG, body=body), BINARY_HEADER)
    [answer] = asking.receive(raw)
    assert asking.gist(answer) == ("a", -1, 0, body)


@pytest.mark.parametrize("known", [False, True], ids=["first", "alike"])
@pytest.mark.parametrize(
    ("garbled", "says"),
    [
        (lambda header: struct.pack(">II", 8, 0xFFF) + b"abcd", "4095"),
        # All of its header is there, but the frame ends before.
        (lambda header: framed(header, missing=1), "says its header has"),
        (lambda header: framed(header, missing=3), "says its header has"),
        (lambda header: struct.pack(">I", 3) + b"abc", "too short"),
        (lambda header: struct.pack(">I", 0), "too short"),
        (lambda header: struct.pack(">IB", 4 + 2, 2) + b"\x00\x00\x02{}", "header kind 2"),
        (lambda header: framed(header.replace('"opaque":2', '"opaque":02')), "JSON header"),
        (lambda header: framed("GET / HTTP"), "GET / HTTP"),
    ],
    ids=["longer", "one short", "three short", "3", "0", "kind", "zero", "http"],
)
def test_garbage_among_answers_to_a_series_is_a_frame_error(
    known: bool, garbled: Callable[[str], bytes], says: str
) -> None:
    asking = Asking("ab")
    assert asking.numbers["b"] == 2
    if known:
        asking.receive(asking.pulled("a", 1))
    with pytest.raises(FrameError, match=says):
        asking.receive(garbled(pulled(5, 2)))


@QUICK
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdefgh"),
            st.integers(0, 99),
            st.integers(0, 99),
            st.sampled_from(["", "", "", "code", "flag", "minOffset", "remark", "order", "binary"]),
            st.binary(max_size=20),
        ),
        max_size=12,
    ),
    st.integers(1, 2000),
)
def test_answers_to_a_series_are_those_that_anybody_would_get(
    said: list[tuple[str, int, int, str, bytes]], at_once: int
) -> None:
    asking = Asking("abcdefgh")
    change = {
        "code": ('"code":0', '"code":20'),
        "flag": ('"flag":1', '"flag":0'),
        "minOffset": ('"minOffset":"0"', '"minOffset":"7"'),
        "remark": ("FOUND", "SOME\\u0041"),
        "order": ('"flag":1,', '"flag" : 1 ,'),
    }
    data = b""
    for token, after, most, kind, body in said:
        number = asking.numbers[token]
        header = pulled(after, number, most)
        if kind == "binary":
            ext = {"nextBeginOffset": str(after)}
            data += encode(Frame(0, number, RESPONSE_FLAG, ext, body=body), BINARY_HEADER)
        else:
            data += framed(header.replace(*change[kind]) if kind else header, body)
    plain = Session()
    plain.series(SERIES, [((0, 1), token) for token in asking.numbers])
    expected = [
        (token, int(frame.ext["nextBeginOffset"]), frame.code, bytes(frame.body))
        for token, frame in receive(plain, data)
    ]
    assert list(map(asking.gist, asking.receive(data, at_once))) == expected
    assert asking.session.pending == plain.pending
    assert asking.session.replies() == plain.replies()
