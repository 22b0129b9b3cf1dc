"""Every exception of this package, and the table that turns a broker's answer code into one.

The classes carry the decision, so that a retry loop reads a flag and never a class name:

`retriable`      the same request may succeed a moment later, perhaps on another broker
`refresh_route`  what we believe about who stores what is out of date; ask the name server again

A `message` says what happened and where (topic, broker, queue, offset, address); in the text of the
exception the `advice` of its class follows: what to do.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar


class RocketMQError(Exception):
    """Anything this package raises on purpose."""

    retriable: ClassVar[bool] = False
    refresh_route: ClassVar[bool] = False
    advice: ClassVar[str] = ""

    @property
    def message(self) -> str:
        """What happened and where, without the advice: to be said in other words around it."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        # An error that was made of the text of another has its advice already.
        if not self.advice or self.advice in self.message:
            return self.message
        return f"{self.message.rstrip('.')}. {self.advice}"


class UsageError(RocketMQError, ValueError):
    """The caller's mistake: an argument, an option or a file that cannot be right."""


# --- bytes that are not what they should be ---------------------------------------------------


class ProtocolError(RocketMQError):
    """The peer sent something that is not RocketMQ's protocol."""


class FrameError(ProtocolError):
    """A frame that cannot be read: garbage, a wrong length, a header that is no header."""

    advice = "Check that the address is a RocketMQ server's, and whether that expects TLS."


class FrameTooLargeError(FrameError):
    """A frame longer than anything a broker may send."""


class ResponseError(ProtocolError):
    """A well-formed answer without the content its request asks for."""

    advice = "Check what server that is, and its version."


class MessageFormatError(ProtocolError):
    """A stored message that cannot be read: wrong magic, truncated, lengths that do not add up."""

    advice = "Look at it with `mqadmin queryMsgByOffset`, or read on from a later offset."


class BodyError(MessageFormatError):
    """A message body that will not decompress, or names a compression that does not exist."""

    advice = "Look at how its producer compresses, or read on from a later offset."


# --- the network ------------------------------------------------------------------------------


class NetworkError(RocketMQError):
    """The peer could not be asked, or did not answer."""

    retriable = True
    refresh_route = True


class ConnectError(NetworkError):
    """No connection: refused, unreachable, an unknown host, or no answer within the timeout."""

    advice = "Check the address, that the server runs, and the network and firewalls between."


class TlsError(NetworkError):
    """The TLS handshake failed: a certificate that is not trusted, or a peer without TLS."""

    advice = (
        "Check the CA file and the server's certificate, that the server has TLS on, and whether "
        "it asks for a certificate of ours."
    )
    retriable = False


class ConnectionLostError(NetworkError):
    """The connection ended while requests were waiting on it."""

    advice = "Check that the server runs, its log, and whether it expects TLS or a certificate."


class RequestTimeoutError(NetworkError):
    """No answer came within the deadline of the request."""

    advice = "Check the server's load and the network, or give it a longer timeout."


# --- what brokers and name servers answer -----------------------------------------------------


class BrokerError(RocketMQError):
    """An answer code that is not success. `code` and `remark` are the server's own."""

    advice = "Look into that server's log."

    def __init__(self, message: str, *, code: int = 1, remark: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.remark = remark

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles exceptions between processes; keyword arguments need a hand.
        return (_rebuild_broker_error, (type(self), self.message, self.code, self.remark))


def _rebuild_broker_error(
    kind: type[BrokerError], message: str, code: int, remark: str
) -> BrokerError:
    return kind(message, code=code, remark=remark)


class ServerFaultError(BrokerError):
    """SYSTEM_ERROR: the server's own failure; its remark holds Java's words."""

    retriable = True


class BusyError(BrokerError):
    """The server refuses for now: overload, flow control, or a slave that may not be read."""

    advice = (
        "The server is overloaded or limits this client; try again later, or with a longer timeout."
    )
    retriable = True


class UnavailableError(BrokerError):
    """This broker cannot serve now (a slave, a full disk, shutting down); another one may."""

    advice = "Check the broker's state with `mqadmin clusterList`."
    retriable = True
    refresh_route = True


class GoAwayError(UnavailableError):
    """The server is draining its connections: open a new one and ask once more."""


class NotLeaderError(UnavailableError):
    """A static topic's queue has moved to another broker."""


class UnsupportedRequestError(BrokerError):
    """The server does not know this request: a wrong kind of server, or a wrong port."""

    advice = "Check that the address is the right kind of server and not its fast (VIP) port."


class IllegalMessageError(BrokerError):
    """The broker will never store this message: too large, or with bad properties."""

    advice = "Check the message's size and properties against the broker's maxMessageSize."


class NoPermissionError(BrokerError):
    """The account, the topic or the broker does not allow this."""

    advice = "Grant the account the rights it needs, or check the topic's perm."


class AuthenticationError(NoPermissionError):
    """Unknown access key, or a signature made with another secret key."""

    advice = "Check the access key and the secret key."


class TopicNotFoundError(BrokerError):
    """No such topic on the name server or broker that was asked."""

    advice = "Check the spelling, or create the topic first."
    refresh_route = True


class GroupNotFoundError(BrokerError):
    """The consumer group is not known to the broker."""

    advice = "Create the group with `mqadmin updateSubGroup`."


class OffsetNotFoundError(BrokerError):
    """The group has committed no offset for this queue."""

    advice = "Commit one first, or start elsewhere."


class BadExpressionError(BrokerError):
    """The broker cannot parse the filter expression, or has SQL filters switched off."""

    advice = "Check the expression; SQL92 needs enablePropertyFilter=true on the broker."


class BadParameterError(BrokerError):
    """The broker refuses a parameter of the request."""

    advice = "Check the names and numbers it was given."


class NotStoredSafelyError(BrokerError):
    """Stored, but not as durably as the broker is set to: a flush or a slave was too late."""

    advice = "Check the broker's disk and its slaves."
    retriable = True


class OffsetOutOfRangeError(BrokerError):
    """The offset wanted is below the broker's first message or above its last: data were lost."""

    advice = "Start where there are messages; a longer fileReservedTime of the broker keeps more."


class DataLossError(OffsetOutOfRangeError):
    """The same in a Spark query, which cannot begin anywhere else."""

    advice = "Set failOnDataLoss=false to go on with what there is."


class SendError(RocketMQError):
    """Some messages were not stored. `results` has a SendResult for each message, in order."""

    def __init__(self, message: str, results: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.results = list(results)


# --- our own tools ----------------------------------------------------------------------------


class ClusterError(RocketMQError):
    """A local RocketMQ could not be installed, started or stopped."""


# Codes from RocketMQ's ResponseCode and RemotingSysResponseCode. What is not here is a BrokerError.
_BY_CODE: dict[int, type[BrokerError]] = {
    1: ServerFaultError,
    2: BusyError,
    3: UnsupportedRequestError,
    10: NotStoredSafelyError,
    11: NotStoredSafelyError,
    12: NotStoredSafelyError,
    13: IllegalMessageError,
    14: UnavailableError,
    15: UnsupportedRequestError,
    16: NoPermissionError,
    17: TopicNotFoundError,
    21: OffsetOutOfRangeError,
    22: OffsetNotFoundError,
    23: BadExpressionError,
    26: GroupNotFoundError,
    29: BadParameterError,
    215: BusyError,
    501: NotLeaderError,
    1500: GoAwayError,
}


def _is_authentication(code: int, remark: str) -> bool:
    """ACL 2.0 answers 16 and ACL 1.0 answers 1; both say in words that the account is at fault."""
    words = remark.lower()
    if code == 16:
        # "User:u has no permission ..., no matched policies": the account is right, its rights not.
        if "no permission" in words or "policies" in words:
            return False
        return any(word in words for word in ("signature", "authentication", "user:", "username"))
    faults = ("signature", "no accesskey", "no acl config")
    return code == 1 and "aclexception" in words and any(fault in words for fault in faults)


def for_code(code: int, remark: str) -> type[BrokerError]:
    """The exception class for a server's answer code."""
    if _is_authentication(code, remark):
        return AuthenticationError
    if code == 1 and "aclexception" in remark.lower():
        return NoPermissionError
    if code == 1 and "support consumer to filter" in remark:
        return BadExpressionError  # enablePropertyFilter is off
    return _BY_CODE.get(code, BrokerError)


def from_answer(code: int, remark: str, what: str, where: str) -> BrokerError:
    """The exception for an answer: what was asked, of whom, its words, and what to do."""
    kind = for_code(code, remark)
    # Java's remarks go on with a link or a stack; the first line says what there is to say.
    words = (remark.strip().splitlines() or [""])[0].strip().rstrip(".")
    said = f": {words}" if words else ""
    return kind(f"{what}: {where} answered code {code}{said}", code=code, remark=remark)


E = TypeVar("E", bound=RocketMQError)


def reworded(error: E, message: str) -> E:
    """The same error, all it carries included, with another message."""
    other = copy.copy(error)
    other.args = (message,)
    if error.__cause__ is not None:  # to say that there is none would hide what came before
        other.__cause__ = error.__cause__
    return other


def during(what: str, error: E) -> E:
    """The same error, which knows of a connection or an answer only, with what that was for."""
    return reworded(error, f"{what}: {error.message}")


def all_of(what: str, failures: Sequence[RocketMQError]) -> RocketMQError:
    """One error for several servers that failed at the same. It may pass if one of them may."""
    hopeful = next((error for error in failures if error.retriable), failures[0])
    said = "; ".join(error.message.removeprefix(f"{what}: ") for error in failures)
    return reworded(hopeful, f"{what}: {said}")
