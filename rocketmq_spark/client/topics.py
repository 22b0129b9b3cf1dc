"""Makes, changes and deletes topics, which is done at every master and shown by name servers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rocketmq_spark.client.metadata import Metadata, masters
from rocketmq_spark.client.retry import retry
from rocketmq_spark.core.model import PERM_READ, PERM_WRITE
from rocketmq_spark.errors import (
    TopicNotFoundError,
    UnavailableError,
    UsageError,
    all_of,
)
from rocketmq_spark.wire import commands


class TopicAdmin:
    def __init__(self, metadata: Metadata, timeout: float) -> None:
        self._metadata = metadata
        self._timeout = timeout

    def create(
        self,
        topic: str,
        read_queues: int,
        write_queues: int,
        perm: int = PERM_READ | PERM_WRITE,
        attributes: Mapping[str, str] | None = None,
        brokers: Sequence[str] | None = None,
    ) -> None:
        command = commands.create_topic(topic, read_queues, write_queues, perm, attributes or {})
        chosen = self._metadata.brokers()
        if brokers is not None:
            unknown = sorted(set(brokers) - {b.broker_name for b in chosen})
            if unknown:
                raise UsageError(
                    f"cannot create topic {topic} on {', '.join(unknown)}: the cluster has "
                    f"{', '.join(b.broker_name for b in chosen)}"
                )
            chosen = [b for b in chosen if b.broker_name in brokers]
        self._metadata.ask_masters(command, f"cannot create topic {topic}", chosen)
        self._await_route(topic, {b.broker_name for b in chosen if b.master}, read_queues)

    def _await_route(self, topic: str, names: set[str], read_queues: int) -> None:
        """Brokers tell the name server at once, but not before they answer us."""
        deadline = self._deadline()

        def attempt() -> None:
            self._metadata.forget_route(topic)
            try:
                route = self._metadata.route(topic, deadline)
            except TopicNotFoundError as error:
                raise UnavailableError(error.message) from error
            known = {q.broker_name for q in route.queues if q.read_queues == read_queues}
            if not names <= known:
                missing = ", ".join(sorted(names - known))
                raise UnavailableError(
                    f"topic {topic} was created, but the name server does not show it on {missing}"
                )

        retry(attempt, deadline, lambda: None)

    def delete(self, topic: str) -> None:
        """Everywhere, also if some servers cannot be told: the error then names those."""
        what = f"cannot delete topic {topic}"
        addresses = masters(self._metadata.route(topic).brokers.values(), what)
        failures = self._metadata.tell_each(addresses, commands.delete_topic_in_broker(topic), what)
        if len(failures) < len(addresses):  # otherwise all of it is there, and its route stays
            command = commands.delete_topic_in_name_server(topic)
            servers = self._metadata.name_servers.addresses
            failures += self._metadata.tell_each(servers, command, what)
        self._metadata.forget_route(topic)
        if failures:
            raise all_of(what, failures) from failures[0]

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout
