"""Asking name servers, which are interchangeable: start anywhere, stay with one that answers, go on
to the next when it does not."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rocketmq_spark.client.pool import Pool
from rocketmq_spark.client.transport import share
from rocketmq_spark.errors import (
    NetworkError,
    ProtocolError,
    RocketMQError,
    UnsupportedRequestError,
    all_of,
)
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Command

T = TypeVar("T")


class NameServers:
    def __init__(self, servers: Sequence[str], pool: Pool, timeout: float) -> None:
        self.addresses = list(servers)
        self._pool = pool
        self._timeout = timeout
        self._current = random.randrange(len(self.addresses))

    def ask(
        self,
        command: Command,
        what: str,
        read: Callable[[Frame], T],
        deadline: float | None = None,
    ) -> T:
        """What `read` makes of the answer of the first that gives one."""
        deadline = deadline or time.monotonic() + self._timeout
        failures: list[RocketMQError] = []
        first, count = self._current, len(self.addresses)
        for tried in range(count):
            index = (first + tried) % count
            until = share(deadline, count - tried)
            try:
                found = self._pool.query(self.addresses[index], command, what, until, read)
            except RocketMQError as error:
                if not _is_the_servers_own(error):
                    raise
                failures.append(error)
                continue
            self._current = index
            return found
        raise failures[0] if count == 1 else all_of(what, failures)

    def __str__(self) -> str:
        return "; ".join(self.addresses)


def _is_the_servers_own(error: RocketMQError) -> bool:
    """Trouble that another server need not have; a topic that does not exist is the same to all."""
    own = NetworkError | ProtocolError | UnsupportedRequestError
    return error.retriable or isinstance(error, own)
