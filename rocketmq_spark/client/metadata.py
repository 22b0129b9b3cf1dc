"""Facts about topics, queues and groups, asked of name servers and brokers.

Everything here speaks wire names (a namespace is already wrapped on).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

from rocketmq_spark.client.name_servers import NameServers
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.client.retry import retry
from rocketmq_spark.client.transport import parse_address, share
from rocketmq_spark.core.model import BrokerData, MessageQueue, Route
from rocketmq_spark.errors import (
    GroupNotFoundError,
    NetworkError,
    NoPermissionError,
    NotLeaderError,
    OffsetNotFoundError,
    RocketMQError,
    ServerFaultError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedRequestError,
    UsageError,
    all_of,
)
from rocketmq_spark.wire import answers, commands
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Command

# Told of a broker that is left out, and why.
Unreachable = Callable[[str, RocketMQError], None]

# How often Java clients ask for a route again.
ROUTE_SECONDS = 30.0

T = TypeVar("T")


def parse_name_servers(text: str) -> list[str]:
    """`host:port;host:port`; a comma is taken too, for it is the commonest slip."""
    servers = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    if not servers:
        raise UsageError("no name server address: write host:port, several separated by ;")
    for server in servers:
        parse_address(server)
    return list(dict.fromkeys(servers))


class Metadata:
    def __init__(
        self, name_server: str, pool: Pool, timeout: float, route_seconds: float = ROUTE_SECONDS
    ) -> None:
        self.name_servers = NameServers(parse_name_servers(name_server), pool, timeout)
        self._pool = pool
        self._timeout = timeout
        self._route_seconds = route_seconds
        # Read and written in single steps, so threads need no lock, and a fork finds none held.
        self._routes: dict[str, tuple[float, Route]] = {}

    # --- name servers -------------------------------------------------------------------------

    def route(self, topic: str, deadline: float | None = None) -> Route:
        """Who stores `topic`: what we knew a moment ago, or asked anew."""
        asked_at, known = self._routes.get(topic, (0.0, None))
        if known is not None and time.monotonic() - asked_at < self._route_seconds:
            return known

        what = f"cannot find topic {topic}"
        command = commands.get_route(topic)
        route = self.name_servers.ask(
            command, what, lambda frame: answers.route(topic, frame.body), deadline
        )
        self._routes[topic] = (time.monotonic(), route)
        return route

    def forget_route(self, topic: str) -> None:
        self._routes.pop(topic, None)

    def brokers(self) -> list[BrokerData]:
        return self.name_servers.ask(
            commands.get_cluster_info(),
            "cannot list the brokers",
            lambda frame: answers.cluster_brokers(frame.body),
        )

    def topics(self) -> tuple[set[str], set[str]]:
        """All topics, and those of them that are RocketMQ's own."""

        def ask(command: Command) -> set[str]:
            what = "cannot list the topics"
            return self.name_servers.ask(command, what, lambda f: answers.topic_list(f.body))

        everything = ask(commands.get_all_topics())
        own = ask(commands.get_system_topics())
        # Each broker and each cluster brings a topic of its own name, and a cluster one more.
        for broker in self.brokers():
            own |= {broker.broker_name, broker.cluster, f"{broker.cluster}_REPLY_TOPIC"}
        return everything, own & everything

    # --- brokers ------------------------------------------------------------------------------

    def ask_queue_broker(
        self,
        queue: MessageQueue,
        command: Callable[[str], Command],
        what: str,
    ) -> Frame:
        """The answer of whoever serves `queue` now; see `query_queue_broker`."""
        return self.query_queue_broker(queue, command, what, lambda frame: frame)

    def query_queue_broker(
        self,
        queue: MessageQueue,
        command: Callable[[str], Command],
        what: str,
        read: Callable[[Frame], T],
        replicas: set[str] | None = None,
    ) -> T:
        """Ask whoever serves `queue` now: its master, or a slave when there is no master; what
        `read` makes of the answer.

        `command` gets the serving broker's name, which for a static topic is not the queue's.
        The name goes into `replicas` if a slave has answered.
        """
        deadline = self._deadline()

        def attempt() -> T:
            route = self.route(queue.topic, deadline)
            name = route.serving_broker(queue)
            addresses = reading_addresses(route, queue)
            failures: list[RocketMQError] = []
            for address in addresses:
                until = share(deadline, len(addresses) - len(failures))
                try:
                    found = self._pool.query(address, command(name), f"{what} {queue}", until, read)
                    if replicas is not None and address != route.brokers[name].master:
                        replicas.add(name)
                    return found
                except (NetworkError, TopicNotFoundError) as error:
                    failures.append(error)
            # The first is the master's, if there is one. A slave learns of a young topic late, so
            # its "no such topic" proves nothing while the master is only out of reach.
            raise failures[0]

        return retry(attempt, deadline, lambda: self.forget_route(queue.topic))

    def ask_masters(
        self, command: Command, what: str, only: Sequence[BrokerData] | None = None
    ) -> None:
        """Tell all masters, of the cluster or of `only` these brokers. An error is of those that
        could not be told; the others have been."""
        addresses = masters(self.brokers() if only is None else only, what)
        failures = self.tell_each(addresses, command, what)
        if failures:
            raise all_of(what, failures)

    def tell_each(
        self, addresses: Iterable[str], command: Command, what: str
    ) -> list[RocketMQError]:
        """Ask all of them, whatever one says; the failures."""
        failures: list[RocketMQError] = []
        for address in addresses:
            try:
                self._pool.ask(address, command, what, self._deadline())
            except RocketMQError as error:
                failures.append(error)
        return failures

    # --- offsets ------------------------------------------------------------------------------

    def offsets(self, queue: MessageQueue, replicas: set[str] | None = None) -> tuple[int, int]:
        """The first offset there is and the next to be written."""
        # A broker answers for any number, and makes a queue of it.
        self._await_queue(queue)
        ask = partial(
            self.query_queue_broker,
            queue,
            what="cannot ask the offsets of",
            read=lambda frame: answers.number(frame, "offset"),
            replicas=replicas,
        )
        low = ask(lambda b: commands.get_min_offset(queue, b))
        high = ask(lambda b: commands.get_max_offset(queue, b))
        # Some stores answer -1 for a queue that was never written.
        return max(0, low), max(0, high)

    def _await_queue(self, queue: MessageQueue) -> None:
        """Return when the route of its topic has `queue`: it may be younger than what we know."""
        deadline = self._deadline()

        def attempt() -> None:
            if not _has_queue(self.route(queue.topic, deadline), queue):
                raise _not_in_route(queue)

        retry(attempt, deadline, lambda: self.forget_route(queue.topic))

    def search_offset(self, queue: MessageQueue, millis: int) -> tuple[int, int]:
        """The broker's own answer, which is only a hint on old brokers, and its version."""
        return self.query_queue_broker(
            queue,
            lambda b: commands.search_offset(queue, b, millis),
            f"cannot search the time {millis} in",
            lambda frame: (answers.number(frame, "offset"), frame.version),
        )

    def topic_offsets(
        self,
        topic: str,
        skip: Unreachable | None = None,
        avoid: Collection[str] = (),
        replicas: set[str] | None = None,
    ) -> dict[MessageQueue, tuple[int, int]]:
        """Offsets of all readable queues, with one request per broker where brokers allow it.

        Without `skip` a broker that cannot be reached is an error; with it, it is only told. Those
        to `avoid` are not asked. The names of those whose slave has answered go into `replicas`.
        """
        route = self.route(topic)
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in route.readable_queues():
            by_broker.setdefault(route.serving_broker(queue), []).append(queue)
        found: dict[MessageQueue, tuple[int, int]] = {}
        for name, queues in by_broker.items():
            if name in avoid:
                continue
            try:
                known = {} if route.owners else self._broker_offsets(queues[0], name, replicas)
                found.update({q: known.get(q) or self.offsets(q, replicas) for q in queues})
            except RocketMQError as error:
                if skip is None or not error.retriable:
                    raise
                self.forget_route(topic)
                skip(name, error)
        return found

    def _broker_offsets(
        self, queue: MessageQueue, name: str, replicas: set[str] | None
    ) -> dict[MessageQueue, tuple[int, int]]:
        """All queues of one broker at once; nothing where it does not answer that."""
        command = commands.get_topic_stats(queue.topic, name)
        try:
            return self.query_queue_broker(
                queue,
                lambda _: command,
                "cannot ask the offsets of",
                lambda frame: answers.topic_stats(frame.body),
                replicas,
            )
        except (UnsupportedRequestError, NoPermissionError, TopicNotFoundError):
            return {}  # a proxy, an account without GET, a slave that has not heard of it yet

    # --- groups -------------------------------------------------------------------------------

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        try:
            return self.query_queue_broker(
                queue,
                lambda b: commands.query_consumer_offset(group, queue, b),
                f"cannot ask the offset of group {group} in",
                lambda frame: answers.number(frame, "offset"),
            )
        except OffsetNotFoundError:
            return None

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        def update() -> None:
            self.ask_queue_broker(
                queue,
                lambda b: commands.update_consumer_offset(group, queue, b, offset),
                f"cannot commit offset {offset} of group {group} in",
            )

        try:
            update()
        except GroupNotFoundError:
            # Brokers from 5.3 on take offsets only of groups they know.
            try:
                self.create_group(group)
            except RocketMQError as failure:
                try:
                    update()  # it may be another broker that could not be told
                except GroupNotFoundError:
                    raise failure from None
            else:
                update()

    def create_group(self, group: str) -> None:
        self.ask_masters(commands.create_group(group), f"cannot create group {group}")

    def consumers(self, group: str) -> list[str]:
        """Live members. Every member tells every broker, but not at the same moment, and a broker
        that is down may be registered still: what the others say is enough."""
        members: set[str] = set()
        failure: NetworkError | None = None
        answered = False
        for broker in self.brokers():
            if broker.master is None:
                continue
            what = f"cannot list the members of group {group}"
            try:
                members.update(
                    self._pool.query(
                        broker.master,
                        commands.get_consumer_list(group),
                        what,
                        self._deadline(),
                        lambda frame: answers.consumer_ids(frame.body),
                    )
                )
            except NetworkError as error:
                failure = error
                continue
            except ServerFaultError:
                pass  # the broker's way to say: nobody is there
            answered = True
        if failure is not None and not answered:
            raise failure
        return sorted(members)

    def is_compacted(self, queue: MessageQueue) -> bool:
        """Whether old messages of its topic give way to newer ones with the same key. Since 5.0."""
        what = "cannot tell whether messages were lost or compacted in"
        attributes = self.query_queue_broker(
            queue,
            lambda _: commands.topic_config(queue.topic),
            what,
            lambda frame: answers.topic_attributes(queue.topic, frame.body),
        )
        return attributes.get("cleanup.policy", "").upper() == "COMPACTION"

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def __repr__(self) -> str:
        return f"<Metadata {self.name_servers} {len(self._routes)} routes>"


def masters(brokers: Iterable[BrokerData], what: str) -> list[str]:
    """Where the masters are; raises when there is none."""
    found = [broker.master for broker in brokers if broker.master]
    if not found:
        raise UnavailableError(f"{what}: no master broker is registered at the name server")
    return found


def _has_queue(route: Route, queue: MessageQueue) -> bool:
    """Whether anybody may read or write it, or might if the topic's perm allowed it."""
    if route.owners:
        return queue in route.owners
    return any(
        q.broker_name == queue.broker_name
        and 0 <= queue.queue_id < max(q.read_queues, q.write_queues)
        for q in route.queues
    )


def _not_in_route(queue: MessageQueue) -> UnavailableError:
    return UnavailableError(
        f"{queue} is not in the route of its topic: its broker is down, or the queue is gone"
    )


def reading_addresses(route: Route, queue: MessageQueue, prefer: int = 0) -> list[str]:
    """Where `queue` can be read, best first: the broker id preferred, the master, the slaves."""
    name = route.serving_broker(queue)
    broker = route.brokers.get(name)
    if broker is None or not broker.addresses:
        if route.owners:
            raise NotLeaderError(f"no broker serves {queue} of a static topic at the moment")
        raise _not_in_route(queue)
    ids = sorted(broker.addresses, key=lambda broker_id: (broker_id != prefer, broker_id))
    return [broker.addresses[broker_id] for broker_id in ids]
