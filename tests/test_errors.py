"""Exceptions: the code table, the words, the flags, and pickling as Spark does it."""

from __future__ import annotations

import inspect
import pickle

import pytest

from rocketmq_spark import errors
from rocketmq_spark.client.outgoing import SendResult
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import (
    BrokerError,
    ConnectError,
    NetworkError,
    RocketMQError,
    SendError,
    all_of,
    during,
    for_code,
    from_answer,
    reworded,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, RocketMQError)
]


def flags(kind: type[RocketMQError]) -> str:
    return "retry " * kind.retriable + "refresh" * kind.refresh_route


@pytest.mark.parametrize(
    ("code", "name", "decision"),
    [
        (1, "ServerFaultError", "retry "),
        (2, "BusyError", "retry "),
        (3, "UnsupportedRequestError", ""),
        (10, "NotStoredSafelyError", "retry "),
        (11, "NotStoredSafelyError", "retry "),
        (12, "NotStoredSafelyError", "retry "),
        (13, "IllegalMessageError", ""),
        (14, "UnavailableError", "retry refresh"),
        (15, "UnsupportedRequestError", ""),
        (16, "NoPermissionError", ""),
        (17, "TopicNotFoundError", "refresh"),
        (21, "OffsetOutOfRangeError", ""),
        (22, "OffsetNotFoundError", ""),
        (23, "BadExpressionError", ""),
        (26, "GroupNotFoundError", ""),
        (29, "BadParameterError", ""),
        (215, "BusyError", "retry "),
        (501, "NotLeaderError", "retry refresh"),
        (1500, "GoAwayError", "retry refresh"),
        (604, "BrokerError", ""),
        (-1000, "BrokerError", ""),
    ],
)
def test_the_class_and_the_decision_of_a_code(code: int, name: str, decision: str) -> None:
    kind = for_code(code, "")
    assert (kind.__name__, flags(kind)) == (name, decision)


@pytest.mark.parametrize(
    ("code", "remark", "name"),
    [
        (16, "check signature failed", "AuthenticationError"),
        (16, "User:ghost is not found", "AuthenticationError"),
        (16, "authentication failed", "AuthenticationError"),
        (
            16,
            "User:u has no permission to access Topic:T, no matched policies",
            "NoPermissionError",
        ),
        (1, "AclException: No accessKey is configured", "AuthenticationError"),
        (1, "AclException: No acl config for ghost", "AuthenticationError"),
        (1, "AclException: check signature failed for accessKey=ak", "AuthenticationError"),
        (1, "org.apache.rocketmq.acl.common.AclException: no", "NoPermissionError"),
        (1, "does not support consumer to filter message by SQL92", "BadExpressionError"),
        (1, "java.lang.NullPointerException", "ServerFaultError"),
        (2, "signature", "BusyError"),
    ],
)
def test_accounts_are_told_apart_by_the_words(code: int, remark: str, name: str) -> None:
    assert for_code(code, remark).__name__ == name


def test_an_answer_says_what_where_why_and_what_to_do() -> None:
    remark = "check signature failed.\nsee https://example.org\n  at java.lang.Thread"
    error = from_answer(16, remark, "cannot read T/b/0", "10.0.0.1:10911")
    assert str(error) == (
        "cannot read T/b/0: 10.0.0.1:10911 answered code 16: check signature failed. "
        "Check the access key and the secret key."
    )
    assert (error.code, error.remark) == (16, remark)


def test_an_answer_without_words() -> None:
    error = from_answer(604, " ", "cannot", "h:1")
    assert error.message == "cannot: h:1 answered code 604"
    assert str(error) == "cannot: h:1 answered code 604. Look into that server's log."


# What they say is all written where they are raised, or there are only subclasses of them.
WITHOUT_ADVICE = {
    "RocketMQError",
    "UsageError",
    "ProtocolError",
    "NetworkError",
    "SendError",
    "ClusterError",
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_advice_follows_the_message(kind: type[RocketMQError]) -> None:
    assert bool(kind.advice) != (kind.__name__ in WITHOUT_ADVICE)
    error = kind("what, where")
    assert error.message == "what, where"
    assert str(error) == (f"what, where. {kind.advice}" if kind.advice else "what, where")
    assert kind.advice == "" or (kind.advice[0].isupper() and kind.advice.endswith("."))


def test_the_advice_is_given_once() -> None:
    inner = ConnectError("no connection to h:1")
    assert str(ConnectError(f"cannot ask: {inner}")) == f"cannot ask: {inner}"
    assert str(RocketMQError()) == ""


def test_other_words_change_nothing_else() -> None:
    error = from_answer(2, "Java's words", "cannot ask", "h:1")
    other = reworded(error, "cannot list: h:1 is busy")
    assert type(other) is errors.BusyError
    assert (other.message, other.code, other.remark) == (
        "cannot list: h:1 is busy",
        2,
        "Java's words",
    )
    assert error.message == "cannot ask: h:1 answered code 2: Java's words"
    assert reworded(SendError("1 of 2", [1, 2]), "2 of 2").results == [1, 2]


def test_several_failures_are_one_that_names_each() -> None:
    refused = from_answer(3, "what?", "cannot ask", "h:1")
    busy = from_answer(2, "busy", "cannot ask", "h:2")
    error = all_of("cannot ask", [refused, busy])
    assert type(error) is errors.BusyError  # it may pass
    assert error.message == ("cannot ask: h:1 answered code 3: what?; h:2 answered code 2: busy")
    assert type(all_of("cannot ask", [refused])) is errors.UnsupportedRequestError


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_exception_survives_pickling(kind: type[RocketMQError]) -> None:
    error = kind("what, where, why")
    if isinstance(error, BrokerError):
        error = type(error)("what, where, why", code=99, remark="Java's words")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.message, str(copy)) == ("what, where, why", str(error))
    assert vars(copy) == vars(error)


def test_a_send_error_survives_pickling_with_its_results() -> None:
    queue = MessageQueue("T", "b", 0)
    error = SendError(
        "1 of 2",
        [
            SendResult("SEND_OK", "id1", queue, 5),
            SendResult("FAILED", "id2", queue, error=from_answer(2, "busy", "w", "h:1")),
        ],
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (SendError, "1 of 2")
    assert [r.status for r in copy.results] == ["SEND_OK", "FAILED"]
    assert copy.results[0] == error.results[0]
    assert copy.results[1].error.code == 2


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_exception_explains_itself(kind: type[RocketMQError]) -> None:
    assert kind.__doc__
    assert kind.__name__.endswith("Error")


def test_all_network_trouble_but_bad_tls_may_pass() -> None:
    for kind in CLASSES:
        if issubclass(kind, NetworkError):
            assert kind.retriable == (kind is not errors.TlsError)


def test_a_usage_error_is_a_value_error() -> None:
    assert issubclass(errors.UsageError, ValueError)


def test_a_reworded_error_keeps_its_cause() -> None:
    try:
        raise ConnectError("refused") from OSError("the reason")
    except ConnectError as error:
        told = during("cannot ask", error)
    assert str(told) == f"cannot ask: refused. {ConnectError.advice}"
    assert isinstance(told.__cause__, OSError)


def test_a_reworded_error_does_not_hide_where_it_came_from() -> None:
    error = during("cannot ask", ConnectError("refused"))
    assert not error.__suppress_context__
