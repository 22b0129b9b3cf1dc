"""Facts about topics, queues and groups, asked of name servers and brokers.

Everything here speaks wire names (a namespace is already wrapped on). Name servers are
interchangeable: start anywhere, stay with one that answers, go on to the next when it does not.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from rocketmq_spark.client.pool import Pool
from rocketmq_spark.client.retry import retry
from rocketmq_spark.client.transport import parse_address
from rocketmq_spark.core.model import PERM_READ, PERM_WRITE, BrokerData, MessageQueue, Route
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
)
from rocketmq_spark.wire import answers, commands
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Command

# Told of a broker that is left out, and why.
Unreachable = Callable[[str, RocketMQError], None]

# How often Java clients ask for a route again.
ROUTE_SECONDS = 30.0


def parse_name_servers(text: str) -> list[str]:
    """`host:port;host:port`; a comma is taken too, for it is the commonest slip."""
    servers = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    if not servers:
        raise UsageError("no name server address: write host:port, several separated by ;")
    for server in servers:
        parse_address(server)
    return servers


class Metadata:
    def __init__(
        self, name_server: str, pool: Pool, timeout: float, route_seconds: float = ROUTE_SECONDS
    ) -> None:
        self._servers = parse_name_servers(name_server)
        self._pool = pool
        self._timeout = timeout
        self._route_seconds = route_seconds
        self._current = random.randrange(len(self._servers))
        # Read and written in single steps, so threads need no lock, and a fork finds none held.
        self._routes: dict[str, tuple[float, Route]] = {}

    # --- name servers -------------------------------------------------------------------------

    def ask_name_server(self, command: Command, what: str, deadline: float | None = None) -> Frame:
        """The answer of the first name server that gives one."""
        deadline = deadline or self._deadline()
        failure: NetworkError | None = None
        first, count = self._current, len(self._servers)
        for tried in range(count):
            index = (first + tried) % count
            share = _share(deadline, count - tried)
            try:
                frame = self._pool.ask(self._servers[index], command, what, share)
            except NetworkError as error:
                failure = error
                continue
            self._current = index
            return frame
        assert failure is not None
        if count == 1:
            raise failure
        raise type(failure)(
            f"none of the name servers {'; '.join(self._servers)} answered; the last: {failure}"
        ) from failure

    def route(self, topic: str, deadline: float | None = None) -> Route:
        """Who stores `topic`: what we knew a moment ago, or asked anew."""
        asked_at, known = self._routes.get(topic, (0.0, None))
        if known is not None and time.monotonic() - asked_at < self._route_seconds:
            return known
        frame = self.ask_name_server(
            commands.get_route(topic), f"cannot find topic {topic}", deadline
        )
        route = answers.route(topic, frame.body)
        self._routes[topic] = (time.monotonic(), route)
        return route

    def forget_route(self, topic: str) -> None:
        self._routes.pop(topic, None)

    def brokers(self) -> list[BrokerData]:
        frame = self.ask_name_server(commands.get_cluster_info(), "cannot list the brokers")
        return answers.cluster_brokers(frame.body)

    def topics(self) -> tuple[set[str], set[str]]:
        """All topics, and those of them that are RocketMQ's own."""
        what = "cannot list the topics"
        everything = answers.topic_list(self.ask_name_server(commands.get_all_topics(), what).body)
        own = answers.topic_list(self.ask_name_server(commands.get_system_topics(), what).body)
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
        replicas: set[str] | None = None,
    ) -> Frame:
        """Ask whoever serves `queue` now: its master, or a slave when there is no master.

        `command` gets the serving broker's name, which for a static topic is not the queue's.
        The name goes into `replicas` if a slave has answered.
        """
        deadline = self._deadline()

        def attempt() -> Frame:
            route = self.route(queue.topic, deadline)
            name = route.serving_broker(queue)
            addresses = reading_addresses(route, queue)
            failures: list[RocketMQError] = []
            for address in addresses:
                share = _share(deadline, len(addresses) - len(failures))
                try:
                    frame = self._pool.ask(address, command(name), f"{what} {queue}", share)
                    if replicas is not None and address != route.brokers[name].master:
                        replicas.add(name)
                    return frame
                except (NetworkError, TopicNotFoundError) as error:
                    failures.append(error)
            # The first is the master's, if there is one. A slave learns of a young topic late, so
            # its "no such topic" proves nothing while the master is only out of reach.
            raise failures[0]

        return retry(attempt, deadline, lambda: self.forget_route(queue.topic))

    def ask_masters(
        self, command: Command, what: str, only: Sequence[BrokerData] | None = None
    ) -> list[Frame]:
        """The answers of all masters (of a topic, or of the cluster)."""
        deadline = self._deadline()
        masters = [b.master for b in (self.brokers() if only is None else only) if b.master]
        if not masters:
            raise UnavailableError(f"{what}: no master broker is registered at the name server")
        return [self._pool.ask(address, command, what, deadline) for address in masters]

    # --- offsets ------------------------------------------------------------------------------

    def offsets(self, queue: MessageQueue, replicas: set[str] | None = None) -> tuple[int, int]:
        """The first offset there is and the next to be written."""
        ask = partial(self.ask_queue_broker, queue, replicas=replicas)
        what = "cannot ask the offsets of"
        low = ask(lambda b: commands.get_min_offset(queue, b), what)
        high = ask(lambda b: commands.get_max_offset(queue, b), what)
        # Some stores answer -1 for a queue that was never written.
        return max(0, answers.number(low, "offset")), max(0, answers.number(high, "offset"))

    def search_offset(self, queue: MessageQueue, millis: int) -> tuple[int, int]:
        """The broker's own answer, which is only a hint on old brokers, and its version."""
        frame = self.ask_queue_broker(
            queue,
            lambda b: commands.search_offset(queue, b, millis),
            f"cannot search the time {millis} in",
        )
        return answers.number(frame, "offset"), frame.version

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
            frame = self.ask_queue_broker(
                queue, lambda _: command, "cannot ask the offsets of", replicas
            )
        except (UnsupportedRequestError, NoPermissionError, TopicNotFoundError):
            return {}  # a proxy, an account without GET, a slave that has not heard of it yet
        return answers.topic_stats(frame.body)

    # --- groups -------------------------------------------------------------------------------

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        try:
            frame = self.ask_queue_broker(
                queue,
                lambda b: commands.query_consumer_offset(group, queue, b),
                f"cannot ask the offset of group {group} in",
            )
        except OffsetNotFoundError:
            return None
        return answers.number(frame, "offset")

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
            self.create_group(group)
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
                frame = self._pool.ask(
                    broker.master, commands.get_consumer_list(group), what, self._deadline()
                )
                members.update(answers.consumer_ids(frame.body))
            except NetworkError as error:
                failure = error
                continue
            except ServerFaultError:
                pass  # the broker's way to say: nobody is there
            answered = True
        if failure is not None and not answered:
            raise failure
        return sorted(members)

    # --- topics -------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        read_queues: int,
        write_queues: int,
        perm: int = PERM_READ | PERM_WRITE,
        attributes: Mapping[str, str] | None = None,
        brokers: Sequence[str] | None = None,
    ) -> None:
        command = commands.create_topic(topic, read_queues, write_queues, perm, attributes or {})
        chosen = self.brokers()
        if brokers is not None:
            unknown = sorted(set(brokers) - {b.broker_name for b in chosen})
            if unknown:
                raise UsageError(
                    f"cannot create topic {topic} on {', '.join(unknown)}: the cluster has "
                    f"{', '.join(b.broker_name for b in chosen)}"
                )
            chosen = [b for b in chosen if b.broker_name in brokers]
        self.ask_masters(command, f"cannot create topic {topic}", chosen)
        self._await_route(topic, {b.broker_name for b in chosen if b.master}, read_queues)

    def _await_route(self, topic: str, names: set[str], read_queues: int) -> None:
        """Brokers tell the name server at once, but not before they answer us."""
        deadline = self._deadline()

        def attempt() -> None:
            self.forget_route(topic)
            try:
                route = self.route(topic, deadline)
            except TopicNotFoundError as error:
                raise UnavailableError(str(error)) from error
            known = {q.broker_name for q in route.queues if q.read_queues == read_queues}
            if not names <= known:
                missing = ", ".join(sorted(names - known))
                raise UnavailableError(
                    f"topic {topic} was created, but the name server does not show it on {missing}"
                )

        retry(attempt, deadline, lambda: None)

    def delete_topic(self, topic: str) -> None:
        route = self.route(topic)
        self.ask_masters(
            commands.delete_topic_in_broker(topic),
            f"cannot delete topic {topic}",
            list(route.brokers.values()),
        )
        command = commands.delete_topic_in_name_server(topic)
        for server in self._servers:
            self._pool.ask(server, command, f"cannot delete topic {topic}", self._deadline())
        self.forget_route(topic)

    def is_compacted(self, queue: MessageQueue) -> bool:
        """Whether old messages of its topic give way to newer ones with the same key. Since 5.0."""
        what = "cannot tell whether messages were lost or compacted in"
        frame = self.ask_queue_broker(queue, lambda _: commands.topic_config(queue.topic), what)
        policy = answers.topic_attributes(queue.topic, frame.body).get("cleanup.policy", "")
        return policy.upper() == "COMPACTION"

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def __repr__(self) -> str:
        return f"<Metadata {'; '.join(self._servers)} {len(self._routes)} routes>"


def _share(deadline: float, left: int) -> float:
    """The deadline of the next of `left` servers to try: one that swallows packets does not eat
    the others' turn."""
    now = time.monotonic()
    return now + (deadline - now) / left


def reading_addresses(route: Route, queue: MessageQueue, prefer: int = 0) -> list[str]:
    """Where `queue` can be read, best first: the broker id preferred, the master, the slaves."""
    name = route.serving_broker(queue)
    broker = route.brokers.get(name)
    if broker is None or not broker.addresses:
        if route.owners:
            raise NotLeaderError(f"no broker serves {queue} of a static topic at the moment")
        raise UnavailableError(
            f"{queue} is not in the route of its topic: its broker is down, or the queue is gone"
        )
    ids = sorted(broker.addresses, key=lambda broker_id: (broker_id != prefer, broker_id))
    return [broker.addresses[broker_id] for broker_id in ids]
