"""One socket and one session, used by one caller at a time.

There is no reader thread: whoever waits for an answer reads the socket. So nothing runs in the
background, a fork copies no thread, and a puller decodes while the kernel receives (docs/design.md
has the reasons). The price is that a request of the server is answered when the connection is next
used, which the pool does before it hands one out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rocketmq_spark.client.transport import Stream
from rocketmq_spark.errors import NetworkError, ProtocolError, RequestTimeoutError, during
from rocketmq_spark.wire.buffer import FrameBuffer
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Answer, Command, Series, SeriesAnswer, Session

GO_AWAY = 1500

# What makes answers of a count of received bytes.
_Received = Callable[[int], list[Any]]


class Connection:
    """Requests out, answers in. After a failure it is `broken`, and all that waited has failed."""

    def __init__(self, address: str, stream: Stream, session: Session) -> None:
        self.address = address
        self.broken = False
        self.draining = False  # the server has said GO_AWAY: new connections only
        self._stream = stream
        self._session = session
        self._early: list[Answer] = []

    def submit(self, requests: Iterable[tuple[Command, Any]], deadline: float) -> None:
        """Send requests at once; each answer will come out of `receive` with its token."""
        data = b"".join([self._session.request(command, token) for command, token in requests])
        self._guarded(self._stream.send, data, deadline)

    def submit_series(
        self, series: Series, requests: Iterable[tuple[Sequence[int], Any]], deadline: float
    ) -> None:
        """The same for requests of a series, given by their numbers."""
        self._guarded(self._stream.send, self._session.series(series, requests), deadline)

    def receive_into(self, buffer: FrameBuffer) -> None:
        """From now on, bodies of answers are views into this buffer's memory."""
        self._session.receive_into(buffer)

    def receive(self, deadline: float) -> list[Answer]:
        """At least one answer, in the order they came; none if the buffer we were given is full."""
        while not self._early and not self._session.full:
            self._early = self._guarded(self._read_until, deadline)
        answers, self._early = self._early, []
        return answers

    def receive_series(self, deadline: float) -> list[SeriesAnswer]:
        """The same for a caller who has asked for nothing but a series."""
        answers: list[SeriesAnswer] = []
        while not answers and not self._session.full:
            answers = self._guarded(self._read_until, deadline, self._session.received_series)
        return answers

    def readable(self) -> bool:
        """Something has come that was not yet received."""
        return bool(self._early) or self._stream.readable()

    def call(self, command: Command, deadline: float) -> Frame:
        """One request and its answer."""
        token = object()
        self.submit([(command, token)], deadline)
        while True:
            for asked, frame in self.receive(deadline):
                if asked is token:
                    return frame

    @property
    def idle(self) -> bool:
        """Nothing is waiting, so another caller may have it."""
        usable = not self.broken and not self.draining
        return usable and not self._session.pending and not self._early

    def refresh(self) -> bool:
        """Answer what the server asked meanwhile; False when the connection has ended."""
        try:
            while not self.broken and self._stream.readable():
                answers = self._guarded(self._look)
                if answers is None:
                    break
                self._early += answers
        except (NetworkError, ProtocolError):
            return False
        return not self.broken

    def close(self) -> None:
        self.broken = True
        self._stream.close()

    def _read_until(self, deadline: float, received: _Received | None = None) -> list[Any]:
        answers = self._read_once(deadline, received)
        if not answers and time.monotonic() >= deadline:
            # Bytes that trickle in, or the server's own requests, are no answer.
            raise RequestTimeoutError(f"{self.address} did not answer in time")
        return answers

    def _read_once(self, deadline: float, received: _Received | None = None) -> list[Any]:
        count = self._stream.recv_into(self._session.writable(), deadline)
        return self._account(count, deadline, received or self._session.received)

    def _look(self) -> list[Any] | None:
        """The answers that are there; None if it is a part of a TLS record, which says nothing."""
        now = time.monotonic()
        try:
            count = self._stream.recv_into(self._session.writable(), now)
        except RequestTimeoutError:
            return None
        return self._account(count, now, self._session.received)

    def _account(self, count: int, deadline: float, received: _Received) -> list[Any]:
        answers = received(count)
        replies = self._session.replies()
        if replies:
            self._stream.send(replies, deadline)
        if GO_AWAY in [answer[1].code for answer in answers]:
            self.draining = True
        return answers

    def _guarded(self, action: Any, *arguments: Any) -> Any:
        """What has failed once is never trusted again: its stream may be cut anywhere."""
        try:
            return action(*arguments)
        except ProtocolError as error:
            self.close()
            raise during(self.address, error) from error
        except NetworkError:
            self.close()
            raise

    def __repr__(self) -> str:
        state = "broken" if self.broken else f"{len(self._session.pending)} in flight"
        return f"<Connection {self.address} {state}>"
