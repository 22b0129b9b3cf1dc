"""One connection's conversation, without the connection: numbers requests and matches answers.

The two directions number their requests apart, so an incoming frame is looked at for being a
response first, and only then for its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.frame import RESPONSE_FLAG, Buffer, Frame, FrameBuffer, encode

REQUEST_CODE_NOT_SUPPORTED = 3


@dataclass(frozen=True, slots=True)
class Command:
    """What to ask: a request code, its fields and its body. commands.py makes them."""

    code: int
    ext: Mapping[str, str]
    body: Buffer = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response and whatever the asker attached to its request."""

    token: Any
    frame: Frame


class Session:
    """Requests in flight on one connection, oldest first.

    `namespace` is RocketMQ's namespace v2, which travels as a field of every request.
    """

    def __init__(self, credentials: Credentials | None = None, namespace: str = "") -> None:
        self._credentials = credentials
        self._fields = {"nsd": "true", "ns": namespace} if namespace else {}
        self._buffer = FrameBuffer()
        self._opaque = 0
        self._pending: dict[int, Any] = {}
        self._replies = bytearray()

    def request(self, command: Command, token: Any = None) -> bytes:
        """The bytes to send. The answer will carry `token`."""
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        ext: Mapping[str, str] = command.ext
        if self._fields:
            ext = {**ext, **self._fields}
        if self._credentials:
            ext = self._credentials.sign(ext, command.body)
        self._pending[self._opaque] = token
        return encode(Frame(command.code, self._opaque, 0, ext, body=command.body))

    def writable(self) -> memoryview:
        """Memory for the next received bytes."""
        return self._buffer.writable()

    def received(self, count: int) -> list[Answer]:
        """Answers completed by the `count` bytes now in `writable()`.

        An answer nobody waits for (its asker gave up) is dropped. What the server asks of us is
        refused politely: this client has nothing to say about consumers, but silence would make
        an operator's command hang.
        """
        answers = []
        for frame in self._buffer.received(count):
            if not frame.is_response:
                self._refuse(frame)
            elif frame.opaque in self._pending:
                answers.append(Answer(self._pending.pop(frame.opaque), frame))
        return answers

    def replies(self) -> bytes:
        """Bytes to send in answer to the server's own requests, once."""
        replies, self._replies = bytes(self._replies), bytearray()
        return replies

    @property
    def pending(self) -> list[Any]:
        """Tokens of requests without an answer, oldest first."""
        return list(self._pending.values())

    def _refuse(self, frame: Frame) -> None:
        if not frame.is_oneway:
            remark = f"request code {frame.code} is not supported by this client"
            self._replies += encode(
                Frame(REQUEST_CODE_NOT_SUPPORTED, frame.opaque, RESPONSE_FLAG, remark=remark)
            )

    def __repr__(self) -> str:
        return f"<Session {len(self._pending)} in flight>"
