"""The nouns: queues, routes and ranges, frozen and ordered.

Ordering is part of the meaning. RocketMQ's load balancing works because everyone sorts queues
the same way: by topic, then broker name, then queue id as a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Bits of a topic's `perm`, from RocketMQ's PermName.
PERM_READ = 4
PERM_WRITE = 2

MASTER_ID = 0


@dataclass(frozen=True, order=True, slots=True)
class MessageQueue:
    """The unit of all balancing: one queue of one topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


@dataclass(frozen=True, order=True, slots=True)
class OffsetRange:
    """Messages [start, end) of a queue."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.queue}[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class QueueData:
    """What a route says of one broker's share of a topic."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)


@dataclass(frozen=True, slots=True)
class BrokerData:
    """A broker name and where its master (id 0) and slaves listen."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str] = field(default_factory=dict)

    @property
    def master(self) -> str | None:
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True, slots=True)
class StaticOwner:
    """Which broker serves a static topic's queue at present."""

    broker_name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Route:
    """Who stores a topic. For a static topic `owners` maps each public queue to its broker."""

    topic: str
    queues: tuple[QueueData, ...] = ()
    brokers: Mapping[str, BrokerData] = field(default_factory=dict)
    owners: Mapping[MessageQueue, StaticOwner] = field(default_factory=dict)

    def readable_queues(self) -> list[MessageQueue]:
        """Sorted; also those of a broker whose master is down, for a slave may serve them."""
        if self.owners:
            return sorted(self.owners)
        return self._expand((q.broker_name, q.read_queues) for q in self.queues if q.readable)

    def writable_queues(self) -> list[MessageQueue]:
        """Sorted; only where a master is there to take the message."""
        if self.owners:
            return sorted(q for q, owner in self.owners.items() if self._master(owner.broker_name))
        return self._expand(
            (q.broker_name, q.write_queues)
            for q in self.queues
            if q.writable and self._master(q.broker_name)
        )

    def serving_broker(self, queue: MessageQueue) -> str:
        """The broker name to ask for `queue`: its own, but for static topics the owner's."""
        owner = self.owners.get(queue)
        return owner.broker_name if owner else queue.broker_name

    def _master(self, broker_name: str) -> str | None:
        broker = self.brokers.get(broker_name)
        return broker.master if broker else None

    def _expand(self, counts: Iterable[tuple[str, int]]) -> list[MessageQueue]:
        return sorted(
            MessageQueue(self.topic, broker_name, queue_id)
            for broker_name, count in counts
            for queue_id in range(count)
        )
