"""A place in a consumer group: a connection to each broker, and a heartbeat on it now and then.

Nothing runs in the background: whoever works in the group calls `beat` as it works, and brokers
forget a member that has not worked for two minutes, or whose process has ended. A broker knows a
member by its connection, so these are not the pool's, which come and go. On it a broker asks what
operators want to know, which is answered, too, whenever `beat` is called.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.pool import SUCCESS, Connect
from rocketmq_spark.errors import RocketMQError, from_answer
from rocketmq_spark.wire.session import Command

log = logging.getLogger(__name__)

# As often as Java clients do (ClientConfig.heartbeatBrokerInterval).
BEAT_SECONDS = 30.0
# A broker that has hung up believes that we have left; but it may be on its way down, or do so with
# everybody.
_AFTER_A_LOSS = 5.0


class Membership:
    def __init__(
        self,
        metadata: Metadata,
        connect: Connect,
        heartbeat: Command,
        timeout: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metadata = metadata
        self._connect = connect
        self._heartbeat = heartbeat
        self._timeout = timeout
        self._now = now
        self._beaten = float("-inf")
        self._connections: dict[str, Connection] = {}

    def beat(self) -> None:
        """Tell every broker, unless that was a moment ago. Work goes on if one does not hear it:
        a failure is no more than a line in the log."""
        self._answer()
        if self._now() - self._beaten < BEAT_SECONDS:
            return
        try:
            addresses = {a for b in self._metadata.brokers() for a in b.addresses.values()}
        except RocketMQError as error:
            log.debug("no heartbeat: %s", error)
            return
        finally:
            self._beaten = self._now()
        for address in self._connections.keys() - addresses:
            self._connections.pop(address).close()
        for address in sorted(addresses):
            try:
                self._tell(address)
            except RocketMQError as error:
                log.debug("no heartbeat to %s: %s", address, error)

    def _answer(self) -> None:
        """What brokers have asked meanwhile: a look at each connection, some microseconds."""
        for address, connection in list(self._connections.items()):
            if not connection.refresh() or connection.draining:
                del self._connections[address]
                connection.close()
                self._beaten = min(self._beaten, self._now() + _AFTER_A_LOSS - BEAT_SECONDS)

    def _tell(self, address: str) -> None:
        deadline = time.monotonic() + self._timeout
        connection = self._connections.pop(address, None)
        if connection is None:
            connection = self._connect(address, deadline)
        frame = connection.call(self._heartbeat, deadline)
        self._connections[address] = connection
        if frame.code != SUCCESS:
            raise from_answer(frame.code, frame.remark, "cannot join the group", address)

    def close(self) -> None:
        """Leave: brokers forget a member whose connection has ended."""
        while self._connections:
            self._connections.popitem()[1].close()

    def __repr__(self) -> str:
        return f"<Membership known to {len(self._connections)} brokers>"
