"""One connection's conversation, without the connection: numbers requests and matches answers.

The two directions number their requests apart, so an incoming frame is looked at for being a
response first, and only then for its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.buffer import FrameBuffer
from rocketmq_spark.wire.frame import (
    LONGEST_ALIKE,
    RESPONSE_FLAG,
    Buffer,
    Frame,
    LikeHeaders,
    decode,
    encode,
    fill_in,
    header_word,
    json_pattern,
)

SUCCESS = 0
REQUEST_CODE_NOT_SUPPORTED = 3

_LARGEST = 0x7FFFFFFF  # number of a request: Java's int
_NOBODY = object()  # in the place of the token that nobody gave


@dataclass(frozen=True, slots=True)
class Command:
    """What to ask: a request code, its fields and its body. commands.py makes them."""

    code: int
    ext: Mapping[str, str]
    body: Buffer = b""


class Series:
    """Requests that differ only in the numbers of some fields."""

    def __init__(self, code: int, ext: Mapping[str, str], varying: Sequence[str]) -> None:
        self.pattern = json_pattern(code, ext, varying)
        self._code = code
        self._ext = ext
        self._varying = varying

    def command(self, numbers: Sequence[int]) -> Command:
        """One of them."""
        varying = zip(self._varying, map(str, numbers), strict=True)
        return Command(self._code, {**self._ext, **dict(varying)})


# Whatever the asker attached to a request, and the response. A plain tuple is the cheapest, and a
# read makes one for every few messages.
Answer = tuple[Any, Frame]
# The same for one of a series, and where its body begins and ends in the memory it was received
# into. Answers whose headers are alike but for their numbers have one frame in common, which has
# those of the first of them and no body, and their nextBeginOffset is beside it.
SeriesAnswer = tuple[Any, Frame, int | None, int, int]


class Session:
    """Requests in flight on one connection, oldest first.

    `namespace` is RocketMQ's namespace v2, which travels as a field of every request.
    """

    def __init__(self, credentials: Credentials | None = None, namespace: str = "") -> None:
        self._credentials = credentials
        self._fields = {"nsd": "true", "ns": namespace} if namespace else {}
        self._buffer = FrameBuffer()
        self._headers = LikeHeaders()
        self._opaque = 0
        self._pending: dict[int, Any] = {}
        self._replies = bytearray()

    def request(self, command: Command, token: Any = None) -> bytes:
        """The bytes to send. The answer will carry `token`."""
        ext: Mapping[str, str] = command.ext
        if self._fields:
            ext = {**ext, **self._fields}
        if self._credentials:
            ext = self._credentials.sign(ext, command.body)
        return encode(Frame(command.code, self._number(token), 0, ext, body=command.body))

    def _number(self, token: Any) -> int:
        """Of the next request."""
        self._opaque = self._opaque + 1 & _LARGEST
        self._pending[self._opaque] = token
        return self._opaque

    def series(self, series: Series, requests: Iterable[tuple[Sequence[int], Any]]) -> bytes:
        """`request` for many of a series, each given by its numbers and its token, at a fraction of
        the cost if nothing has to be signed."""
        if self._credentials or self._fields:
            return b"".join([self.request(series.command(n), token) for n, token in requests])
        pattern, pending, opaque = series.pattern, self._pending, self._opaque
        asked = []
        for numbers, token in requests:
            opaque = opaque + 1 & _LARGEST
            pending[opaque] = token
            asked.append(fill_in(pattern, (opaque, *numbers)))
        self._opaque = opaque
        return b"".join(asked)

    def receive_into(self, buffer: FrameBuffer) -> None:
        """From now on, bytes are received into this buffer."""
        buffer.take_over(self._buffer)
        self._buffer = buffer

    @property
    def full(self) -> bool:
        """Whoever gave the buffer has to make room in it."""
        return self._buffer.full

    def writable(self) -> memoryview:
        """Memory for the next received bytes."""
        return self._buffer.writable()

    def received(self, count: int) -> list[Answer]:
        """Answers completed by the `count` bytes now in `writable()`.

        An answer nobody waits for (its asker gave up) is dropped. What the server asks of us is
        refused politely: this client has nothing to say about consumers, but silence would make
        an operator's command hang.
        """
        frames = self._buffer.received(count)
        answers = [(self._token(frame), frame) for frame in frames]
        return [answer for answer in answers if answer[0] is not _NOBODY]

    def received_series(self, count: int) -> list[SeriesAnswer]:
        """The same for answers to a series: a header that is like the last one is not parsed."""
        answers: list[SeriesAnswer] = []
        memory, headers = self._buffer.memory, self._headers
        read, forget = headers.read, self._pending.pop
        for start, end in self._buffer.cut(count):
            # Far away if the header is binary, for its kind is in the upper bits.
            at = start + 4 + header_word(memory, start)[0]
            fits = at <= end and at - start <= LONGEST_ALIKE
            header = memory[start + 4 : at].tobytes() if fits else b""
            if alike := read(header):
                frame, after, opaque = alike
                token = forget(opaque, _NOBODY)
            else:
                frame, after = decode(memory, start, end), None
                token = self._token(frame)
                # Numbers in an error are told to somebody; those of its like would not be its own.
                if frame.code == SUCCESS and frame.is_response:
                    headers.learn(header, frame)
                at = frame.at
            if token is not _NOBODY:
                answers.append((token, frame, after, at, end))
        return answers

    def _token(self, frame: Frame) -> Any:
        """Of the request that this answers."""
        if frame.flag & RESPONSE_FLAG:
            return self._pending.pop(frame.opaque, _NOBODY)
        self._refuse(frame)
        return _NOBODY

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
