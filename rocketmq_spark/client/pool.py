"""Live connections by address: lent to one caller at a time, kept while they are good.

A pool outlives forks (a child starts with none of its parent's connections) and needs no
housekeeping thread: what has been idle too long is closed when anybody comes by.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rocketmq_spark.client.connection import GO_AWAY, Connection
from rocketmq_spark.errors import (
    ConnectionLostError,
    NetworkError,
    ProtocolError,
    during,
    from_answer,
)
from rocketmq_spark.wire.buffer import Landing
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Command

SUCCESS = 0

# Servers close a connection that has been silent for 120 s; half of it leaves no race.
IDLE_SECONDS = 60.0

# Memory for answers that is kept for whoever reads next: so many, and as large as two batches of
# Spark's usual size.
_SPARE_LANDINGS = 2
_LARGEST_SPARE = 20 * 1024 * 1024

Connect = Callable[[str, float], Connection]

T = TypeVar("T")


class Pool:
    def __init__(self, connect: Connect, idle_seconds: float = IDLE_SECONDS) -> None:
        self._connect = connect
        self._idle_seconds = idle_seconds
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        # Taken again by the same thread when the garbage collector, at any moment, ends a read that
        # nobody finished: that gives its connection back.
        self._lock = threading.RLock()
        self._idle: dict[str, list[tuple[float, Connection]]] = {}  # with when it came back
        self._spares: list[Landing] = []  # used in single steps, so without the lock

    @contextmanager
    def connection(self, address: str, deadline: float) -> Iterator[Connection]:
        """A connection nobody else uses meanwhile. It goes back unless something is left on it."""
        connection = self._take(address) or self._connect(address, deadline)
        try:
            yield connection
        finally:
            if connection.idle:
                self._give_back(connection)
            else:
                connection.close()

    def lend_landing(self) -> Landing:
        """Memory to receive many answers into: what another reader has used, for to grow it anew
        took a twelfth of the time of reading 50,000 messages."""
        try:
            return self._spares.pop()
        except IndexError:
            return Landing()

    def keep_landing(self, landing: Landing) -> None:
        """What it holds is needed no more, nor is the memory, by the one who gives it."""
        if len(self._spares) < _SPARE_LANDINGS and len(landing.memory) <= _LARGEST_SPARE:
            landing.clear()
            self._spares.append(landing)

    def ask(self, address: str, command: Command, what: str, deadline: float) -> Frame:
        """The answer to `command`. Whatever goes wrong is an exception that starts with `what`, and
        so is anything but success."""
        try:
            frame = self._call(address, command, deadline)
            if frame.code == GO_AWAY:
                # The server drains the connections it has; it still takes new ones.
                self.forget(address)
                frame = self._call(address, command, deadline)
        except (NetworkError, ProtocolError) as error:
            raise during(what, error) from error
        if frame.code != SUCCESS:
            raise from_answer(frame.code, frame.remark, what, address)
        return frame

    def query(
        self,
        address: str,
        command: Command,
        what: str,
        deadline: float,
        read: Callable[[Frame], T],
    ) -> T:
        """What `read` makes of the answer; one that it cannot read is an exception like others."""
        frame = self.ask(address, command, what, deadline)
        try:
            return read(frame)
        except ProtocolError as error:
            raise during(f"{what}: {address}", error) from error

    def _call(self, address: str, command: Command, deadline: float) -> Frame:
        try:
            with self.connection(address, deadline) as connection:
                return connection.call(command, deadline)
        except ConnectionLostError:
            # The server may have closed an idle connection at the moment we took it. Every
            # question asked this way may be asked twice, so one more try on a new one is right.
            self.forget(address)
            with self.connection(address, deadline) as connection:
                return connection.call(command, deadline)

    def forget(self, address: str) -> None:
        """Close the idle connections to `address`."""
        self._forked()
        with self._lock:
            gone = self._idle.pop(address, [])
        for _, connection in gone:
            connection.close()

    def close(self) -> None:
        self._forked()
        with self._lock:
            gone = self._connections()
            self._idle.clear()
        self._spares.clear()
        for connection in gone:
            connection.close()

    def _take(self, address: str) -> Connection | None:
        self._forked()
        while True:
            with self._lock:
                expired = self._pop_expired()
                waiting = self._idle.get(address)
                connection = waiting.pop()[1] if waiting else None
            for old in expired:
                old.close()
            if connection is None or connection.refresh():
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        self._forked()
        with self._lock:
            kept = self._idle.setdefault(connection.address, [])
            kept.append((time.monotonic(), connection))

    def _pop_expired(self) -> list[Connection]:
        oldest = time.monotonic() - self._idle_seconds
        expired = []
        for kept in list(self._idle.values()):
            while kept and kept[0][0] < oldest:
                expired.append(kept.pop(0)[1])
        return expired

    def _connections(self) -> list[Connection]:
        return [connection for kept in self._idle.values() for _, connection in kept]

    def _forked(self) -> None:
        # Not under the lock: at the fork another thread of the parent may have held it.
        if self._pid != os.getpid():
            inherited = self._connections()
            self._start_over()
            for connection in inherited:
                connection.close()  # this process's copy only; the parent's goes on

    def __repr__(self) -> str:
        counts = ", ".join(f"{a}: {len(c)}" for a, c in sorted(self._idle.items()) if c)
        return f"<Pool idle: {counts or 'none'}>"
