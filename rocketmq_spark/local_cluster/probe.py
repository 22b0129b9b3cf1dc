"""Asks one server one real request, which is what "ready" means.

A client would go to whichever name server answers; here each of them must, so every question has
its address and a connection of its own.
"""

from __future__ import annotations

import json
import ssl
import time
from contextlib import closing
from dataclasses import dataclass

from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.transport import open_stream
from rocketmq_spark.errors import RocketMQError
from rocketmq_spark.local_cluster.security import Account
from rocketmq_spark.wire import answers, commands
from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Command, Session

_TIMEOUT = 5.0

# From RocketMQ's RequestCode: what only a caretaker asks.
_GET_BROKER_CONFIG = Command(26, {})
_GET_BROKER_HA_STATUS = Command(907, {})


@dataclass(frozen=True)
class Probe:
    """Knows how this cluster wants to be asked."""

    tls: ssl.SSLContext | None
    account: Account | None

    def registered(self, name_server: str) -> set[str] | None:
        """The broker addresses this name server knows; None when it does not answer."""
        frame = self._ask(name_server, commands.get_cluster_info())
        if frame is None:
            return None
        brokers = answers.cluster_brokers(frame.body)
        return {address for broker in brokers for address in broker.addresses.values()}

    def brokers_of(self, name_server: str, topic: str) -> set[str]:
        """The names of the brokers that this name server gives a topic's queues to."""
        frame = self._ask(name_server, commands.get_route(topic))
        if frame is None:
            return set()
        return {queues.broker_name for queues in answers.route(topic, frame.body).queues}

    def answers(self, broker: str) -> bool:
        return self._ask(broker, _GET_BROKER_CONFIG) is not None

    def replicas(self, master: str) -> int:
        """How many slaves are copying from a master (5.x only)."""
        frame = self._ask(master, _GET_BROKER_HA_STATUS)
        if frame is None:
            return 0
        return len(json.loads(bytes(frame.body)).get("haConnectionInfo") or ())

    def _ask(self, address: str, command: Command) -> Frame | None:
        """None if it refuses or is not there: the caller asks again until its patience ends."""
        account = self.account
        credentials = Credentials(account.access_key, account.secret_key) if account else None
        deadline = time.monotonic() + _TIMEOUT
        try:
            stream = open_stream(address, deadline, self.tls)
            with closing(Connection(address, stream, Session(credentials))) as connection:
                frame = connection.call(command, deadline)
        except RocketMQError:
            return None
        return frame if frame.code == 0 else None
