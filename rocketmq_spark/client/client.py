"""`Client`: a RocketMQ cluster, as few words as it takes."""

from __future__ import annotations

import math
import os
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from rocketmq_spark.client import names
from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.membership import Membership
from rocketmq_spark.client.metadata import Metadata, Unreachable, parse_name_servers
from rocketmq_spark.client.outgoing import Message, SendResult
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.client.pull import RangeReader
from rocketmq_spark.client.reading import Filter, PullSettings
from rocketmq_spark.client.send import Sender, SendSettings
from rocketmq_spark.client.topics import TopicAdmin
from rocketmq_spark.client.transport import Tls, open_stream, own_address
from rocketmq_spark.client.write import Writer
from rocketmq_spark.core.model import BrokerData, MessageQueue
from rocketmq_spark.errors import SendError, UsageError
from rocketmq_spark.wire import commands
from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.decode import Decoder
from rocketmq_spark.wire.heartbeat import heartbeat
from rocketmq_spark.wire.session import Session

# A day; beyond some weeks a socket's own limit is reached.
_LONGEST_TIMEOUT = 86400.0

# Brokers before it find the message nearest to a time, later ones the first not before it.
_EXACT_SEARCH_VERSION = 435  # MQVersion of 5.1.1


class Client:
    """Reads and writes a RocketMQ cluster.

    >>> with Client("127.0.0.1:9876") as client:
    ...     client.send("orders", [Message("first", tags="new")])
    ...     for queue in client.queues("orders"):
    ...         for batch in client.read(queue, *client.offsets(queue)):
    ...             print(batch.to_pylist())

    `timeout` (seconds) bounds every request, but for the system's search for a host name's address;
    `read` goes on trying for three times as long (or for `pull.patience`) before it gives up on a
    broker. It may be shared by threads, and survives a fork. `tls` is True (the system's
    authorities), a CA file, or a `Tls`. `namespace` is wrapped around names as RocketMQ 4 did;
    `namespace_v2` travels as a field of each request.
    """

    def __init__(
        self,
        name_server: str,
        *,
        access_key: str = "",
        secret_key: str = "",
        security_token: str = "",
        tls: bool | str | os.PathLike[str] | Tls = False,
        namespace: str = "",
        namespace_v2: str = "",
        timeout: float = 5.0,
        pull: PullSettings | None = None,
        sending: SendSettings | None = None,
    ) -> None:
        if bool(access_key) != bool(secret_key):
            missing = "secret_key" if access_key else "access_key"
            raise UsageError(f"an account needs both access_key and secret_key; {missing} is empty")
        if not 0 < timeout <= _LONGEST_TIMEOUT:  # which is false for NaN, too
            raise UsageError(
                f"timeout must be more than 0 and at most {_LONGEST_TIMEOUT:.0f} seconds, "
                f"not {timeout}"
            )
        self.name_server = name_server
        self._credentials = (
            Credentials(access_key, secret_key, security_token) if access_key else None
        )
        self._tls = _tls_context(tls)
        self._timeout = timeout
        self._namespace = namespace
        self._namespace_v2 = namespace_v2
        self._pool = Pool(self._connect)
        self._metadata = Metadata(name_server, self._pool, timeout)
        self._topics = TopicAdmin(self._metadata, timeout)
        pull = pull or PullSettings(patience=3 * timeout)
        self._pull = replace(pull, timeout=timeout, group=self._wire(pull.group))
        sending = sending or SendSettings()
        self._sending = replace(sending, timeout=timeout, group=self._wire(sending.group))
        self._sender = Sender(self._metadata, self._pool, self._sending)

    def _connect(self, address: str, deadline: float) -> Connection:
        stream = open_stream(address, deadline, self._tls)
        return Connection(address, stream, Session(self._credentials, self._namespace_v2))

    # --- topics and queues --------------------------------------------------------------------

    def topics(self, *, system: bool = False) -> list[str]:
        """Topic names; with `system` also RocketMQ's own and the groups' retry and dead-letter
        topics."""
        everything, own = self._metadata.topics()
        if not system:
            everything = {
                t for t in everything - own if not names.is_system(t) and not names.is_derived(t)
            }
        return sorted(
            names.unwrap(self._namespace, t)
            for t in everything
            if names.belongs(self._namespace, t) or (system and names.is_system(t))
        )

    def brokers(self) -> list[BrokerData]:
        """Every broker name with its master's and slaves' addresses."""
        return self._metadata.brokers()

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues, sorted as every RocketMQ consumer sorts them."""
        return [self._user_queue(q) for q in self._route(topic).readable_queues()]

    def writable_queues(self, topic: str) -> list[MessageQueue]:
        """The queues a producer may send to now."""
        return [self._user_queue(q) for q in self._route(topic).writable_queues()]

    def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        read_queues: int | None = None,
        perm: int = 6,
        attributes: Mapping[str, str] | None = None,
        brokers: Sequence[str] | None = None,
    ) -> None:
        """Create it with `queues` queues on each broker, or change it if it exists. Returns when
        the name server shows it."""
        if queues < 1:
            raise UsageError(f"topic {topic} needs at least one queue, not {queues}")
        read = queues if read_queues is None else read_queues
        self._topics.create(self._wire(topic), read, queues, perm, attributes, brokers)

    def delete_topic(self, topic: str) -> None:
        """Delete it, messages and all. An error names the servers that could not be told; the
        others have been."""
        self._topics.delete(self._wire(topic))

    # --- offsets ------------------------------------------------------------------------------

    def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset that can be read, and the next to be written."""
        return self._metadata.offsets(self._wire_queue(queue))

    def topic_offsets(
        self,
        topic: str,
        *,
        refresh: bool = False,
        skip: Unreachable | None = None,
        avoid: Collection[str] = (),
        replicas: set[str] | None = None,
    ) -> dict[MessageQueue, tuple[int, int]]:
        """`offsets` of every readable queue, with one request per broker.

        `refresh` asks the name server first. Without `skip`, a broker that cannot be reached is an
        error; with it, `skip` is told its name and why, and its queues are left out, as those of
        brokers to `avoid` are. A slave that answers for its master may be behind it: the names of
        such brokers go into `replicas`.
        """
        if refresh:
            self._metadata.forget_route(self._wire(topic))
        found = self._metadata.topic_offsets(self._wire(topic), skip, avoid, replicas)
        return {self._user_queue(q): bounds for q, bounds in found.items()}

    def offset_at(self, queue: MessageQueue, millis: int) -> int:
        """The first offset stored at or after `millis` (epoch, the broker's clock); the end of the
        queue when all is older."""
        low, high = self.offsets(queue)
        found, version = self._metadata.search_offset(self._wire_queue(queue), millis)
        if version >= _EXACT_SEARCH_VERSION:
            return min(max(found, low), high)
        found = high
        while low < high:
            middle = (low + high) // 2
            at, stored = self._first_stored(queue, middle, high) or (found, math.inf)
            if stored < millis:
                low = at + 1
            else:
                high, found = middle, at
        return found

    def _first_stored(self, queue: MessageQueue, start: int, end: int) -> tuple[int, int] | None:
        """The first offset in [start, end) with a message, and when that was stored."""
        for far in (start + 1, end):  # in a compacted topic there are holes
            columns = ["queueOffset", "storeTimestamp"]
            with closing(self.read(queue, start, far, columns)) as reader:
                batch = next(reader, None)
            if batch is not None:
                at, micros = (column.cast("int64")[0].as_py() for column in batch.columns)
                return at, micros // 1000
        return None

    # --- messages -----------------------------------------------------------------------------

    def read(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        columns: Sequence[str] | None = None,
        *,
        sub_expression: str = "*",
        sql_expression: str = "",
        consumer_id: str = "",
    ) -> RangeReader:
        """Messages [start, end) as an iterator of pyarrow RecordBatches, in offset order.

        `columns` picks from `rocketmq_spark.wire.decode.SCHEMA`; what is not picked is not decoded.
        `sub_expression` is tags (`A || B`), `sql_expression` is SQL92; the broker filters.
        """
        if start < 0 or end < start:
            raise UsageError(f"cannot read [{start}, {end}) of {queue}: not a range of offsets")
        decoder = Decoder(
            columns,
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            consumer_id=consumer_id,
        )
        selection = _filter(sub_expression, sql_expression)
        return RangeReader(
            self._metadata,
            self._pool,
            self._wire_queue(queue),
            start,
            end,
            decoder,
            self._pull,
            selection,
        )

    def send(self, topic: str, messages: Sequence[Message]) -> list[SendResult]:
        """Store messages and say where each is. Raises SendError, with all results, when a
        broker has not acknowledged every one."""
        wired = [
            m if m.queue is None else replace(m, queue=self._wire_queue(m.queue)) for m in messages
        ]
        try:
            results = self._sender.send(self._wire(topic), wired)
        except SendError as error:
            error.results = self._user_results(error.results)
            raise
        return self._user_results(results)

    def writer(
        self, topic: str = "", *, row_key: str = "", place: Callable[[int], str] = "row {}".format
    ) -> Writer:
        """Takes Arrow batches of many rows; see `Writer`."""
        return Writer(
            self._metadata,
            self._pool,
            self._sending,
            topic=topic,
            row_key=row_key,
            place=place,
            wire_name=self._wire,
        )

    # --- groups -------------------------------------------------------------------------------

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store `offset` as the group's progress; the group is created if need be."""
        self._metadata.commit(self._wire(group), self._wire_queue(queue), offset)

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """The group's progress, None when there is none. (Brokers of RocketMQ 4 answer 0 in place
        of None while a queue is young.)"""
        return self._metadata.committed(self._wire(group), self._wire_queue(queue))

    def consumers(self, group: str) -> list[str]:
        """Ids of the group's live members."""
        return self._metadata.consumers(self._wire(group))

    def join(
        self,
        group: str,
        client_id: str,
        topics: Sequence[str],
        *,
        sub_expression: str = "*",
        sql_expression: str = "",
    ) -> Membership:
        """A place in the group, for what reads `topics`: taken with the first `beat`."""
        wanted = _filter(sub_expression, sql_expression).subscription
        # Every member must tell the same, so a version that is a time would be a change each time.
        wanted = replace(wanted, version=1)
        command = heartbeat(
            client_id, self._wire(group), {self._wire(topic): wanted for topic in topics}
        )
        return Membership(self._metadata, self._connect, command, self._timeout)

    def own_address(self) -> str:
        """The address of this machine, as the name server sees it."""
        return own_address(parse_name_servers(self.name_server)[0])

    # --- life ---------------------------------------------------------------------------------

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        account = f" as {self._credentials.access_key}" if self._credentials else ""
        return f"<Client {self.name_server}{account}{' over TLS' if self._tls else ''}>"

    # --- names --------------------------------------------------------------------------------

    def _route(self, topic: str) -> Any:
        return self._metadata.route(self._wire(topic))

    def _wire(self, name: str) -> str:
        if not name:
            raise UsageError("a topic or group name is empty")
        return names.wrap(self._namespace, name)

    def _wire_queue(self, queue: MessageQueue) -> MessageQueue:
        return replace(queue, topic=self._wire(queue.topic)) if self._namespace else queue

    def _user_queue(self, queue: MessageQueue) -> MessageQueue:
        if not self._namespace:
            return queue
        return replace(queue, topic=names.unwrap(self._namespace, queue.topic))

    def _user_results(self, results: Sequence[SendResult]) -> list[SendResult]:
        return [replace(result, queue=self._user_queue(result.queue)) for result in results]


def _tls_context(tls: bool | str | os.PathLike[str] | Tls) -> ssl.SSLContext | None:
    if isinstance(tls, Tls):
        return tls.context()
    if isinstance(tls, bool):
        return Tls().context() if tls else None
    if isinstance(tls, str | os.PathLike):
        return Tls(ca=tls).context() if tls else None
    raise UsageError(f"tls must be True, False, a CA file or a Tls, not {type(tls).__name__}")


def _filter(sub_expression: str, sql_expression: str) -> Filter:
    tags = [tag.strip() for tag in sub_expression.split("||") if tag.strip()]
    everything = not tags or tags == ["*"]
    if sql_expression:
        if not everything:
            raise UsageError("give sub_expression or sql_expression, not both")
        # The broker compiles an expression once for each version it sees.
        version = int(time.time() * 1000)
        return Filter(commands.Subscription(sql_expression, commands.SQL92, version))
    if everything:
        return Filter()
    return Filter(commands.Subscription(" || ".join(tags)), frozenset(tags))
