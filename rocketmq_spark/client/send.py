"""Sends requests to brokers: several in flight, each acknowledged, failures tried elsewhere."""

from __future__ import annotations

import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.outgoing import Message, Request, SendResult, make_requests
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.client.retry import FIRST_PAUSE
from rocketmq_spark.core.model import MessageQueue, Route
from rocketmq_spark.errors import (
    BrokerError,
    NetworkError,
    NoPermissionError,
    ProtocolError,
    RocketMQError,
    SendError,
    UnavailableError,
    from_answer,
)
from rocketmq_spark.wire import commands
from rocketmq_spark.wire.answers import number
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Command

# SendStatus by answer code: the last three are stored, if less safely than the broker should.
_STORED = {
    0: "SEND_OK",
    10: "FLUSH_DISK_TIMEOUT",
    11: "SLAVE_NOT_AVAILABLE",
    12: "FLUSH_SLAVE_TIMEOUT",
}


@dataclass(frozen=True, slots=True)
class SendSettings:
    group: str = "rocketmq_spark_writer"
    timeout: float = 5.0
    retries: int = 2
    in_flight: int = 8
    compress_above: int = 4096
    compression: str = "zlib"


class Sender:
    def __init__(self, metadata: Metadata, pool: Pool, settings: SendSettings) -> None:
        self._metadata = metadata
        self._pool = pool
        self._settings = settings
        # Producers start anywhere and go round, so that many of them do not march in step.
        self._turn = random.randrange(1 << 16)

    def send(self, topic: str, messages: Sequence[Message]) -> list[SendResult]:
        """One result a message, in their order; raises SendError when any is not stored."""
        if not messages:
            return []
        route = self._metadata.route(topic)
        requests = make_requests(
            messages,
            _writable(route),
            self._turn,
            compress_above=self._settings.compress_above,
            compression=self._settings.compression,
        )
        self._turn = (self._turn + len(messages)) % (1 << 30)
        results: dict[int, SendResult] = {}
        for attempt in range(self._settings.retries + 1):
            requests = self._send_all(route, requests, results)
            if not requests:
                break
            if attempt < self._settings.retries:
                # A broker that is busy, or whose slave has just taken over, needs a moment.
                time.sleep(FIRST_PAUSE * 2**attempt)
                route = self._asked_anew(route)
                requests = self._elsewhere(route, requests)
        ordered = [results[row] for row in range(len(messages))]
        lost = [result for result in ordered if not result.ok]
        if lost:
            raise SendError(
                f"{len(lost)} of {len(messages)} messages were not stored: {lost[0].error}", ordered
            )
        return ordered

    def _asked_anew(self, route: Route) -> Route:
        """The route as it is now; as it was, if nobody can tell or nothing could be written."""
        self._metadata.forget_route(route.topic)
        try:
            newest = self._metadata.route(route.topic)
        except RocketMQError:
            return route
        return newest if newest.writable_queues() else route

    def _elsewhere(self, route: Route, failed: list[Request]) -> list[Request]:
        """The same requests, each to another broker than the one that failed, if one is left."""
        queues = route.writable_queues()
        moved = []
        for request in failed:
            others = [q for q in queues if q.broker_name != request.queue.broker_name] or queues
            target = request.queue if request.fixed else others[self._turn % len(others)]
            self._turn += 1
            moved.append(replace(request, queue=target))
        return moved

    def _send_all(
        self, route: Route, requests: list[Request], results: dict[int, SendResult]
    ) -> list[Request]:
        """Send everything once; the requests that failed in a way worth another try."""
        by_broker: dict[str, list[Request]] = defaultdict(list)
        for request in requests:
            by_broker[route.serving_broker(request.queue)].append(request)

        def one(broker_name: str) -> list[Request]:
            broker = route.brokers.get(broker_name)
            lane = _Lane(self._pool, self._settings, broker_name, broker.master if broker else None)
            return lane.send(by_broker[broker_name], results)

        if len(by_broker) == 1:
            return one(next(iter(by_broker)))
        with ThreadPoolExecutor(len(by_broker)) as executor:
            return [request for failed in executor.map(one, by_broker) for request in failed]


def _writable(route: Route) -> list[MessageQueue]:
    queues = route.writable_queues()
    if queues:
        return queues
    what = f"cannot send to topic {route.topic}"
    if route.queues and not any(q.writable for q in route.queues):
        raise NoPermissionError(f"{what}: its perm does not allow writing", code=16)
    raise UnavailableError(f"{what}: none of its brokers has a master")


class _Line:
    """Requests in their order. Of a fixed queue the next one comes up only when the one before is
    stored, as a broker works in parallel; the others need not wait."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._ready: deque[Request] = deque()
        self._behind: dict[MessageQueue, deque[Request]] = {}
        for request in requests:
            if request.fixed and request.queue in self._behind:
                self._behind[request.queue].append(request)
                continue
            if request.fixed:
                self._behind[request.queue] = deque()
            self._ready.append(request)

    def next(self, most: int) -> list[Request]:
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def settled(self, request: Request) -> None:
        """`request` is stored, or never will be: who is behind it comes up."""
        behind = self._behind.get(request.queue) if request.fixed else None
        if behind:
            self._ready.append(behind.popleft())

    def with_followers(self, request: Request) -> list[Request]:
        """`request` and those that may not overtake it, which leave the line."""
        behind = self._behind.get(request.queue) if request.fixed else None
        followers = list(behind or ())
        if behind:
            behind.clear()
        return [request, *followers]

    def rest(self, flying: Iterable[Request]) -> list[Request]:
        """All that is left, `flying` first; nothing overtakes what it stood behind."""
        waiting, self._ready = self._ready, deque()
        return [r for first in (*flying, *waiting) for r in self.with_followers(first)]


class _Lane:
    """All that goes to one broker in one attempt."""

    def __init__(
        self, pool: Pool, settings: SendSettings, broker_name: str, address: str | None
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._broker_name = broker_name
        self._address = address

    def send(self, requests: list[Request], results: dict[int, SendResult]) -> list[Request]:
        if self._address is None:
            gone = UnavailableError(f"broker {self._broker_name} has no master now")
            return self._failed(requests, gone, results)
        line = _Line(requests)
        flying: dict[int, Request] = {}
        again: list[Request] = []
        try:
            with self._pool.connection(self._address, self._deadline()) as connection:
                while True:
                    chosen = line.next(self._settings.in_flight - len(flying))
                    flying.update((id(request), request) for request in chosen)
                    if not flying:
                        return again
                    if chosen:
                        connection.submit([(self._command(r), r) for r in chosen], self._deadline())
                    for answer in connection.receive(self._deadline()):
                        request: Request = answer.token
                        error = self._record(request, answer.frame, results)
                        del flying[id(request)]
                        if error is not None and error.retriable:
                            again += self._failed(line.with_followers(request), error, results)
                        else:
                            line.settled(request)
        except (NetworkError, ProtocolError) as error:
            # Those in flight may have been stored: sending them again can duplicate, not lose.
            rest = self._failed(line.rest(flying.values()), error, results)
            return again + rest if error.retriable else again

    def _command(self, request: Request) -> Command:
        header = commands.SendHeader(
            producer_group=self._settings.group,
            queue=request.queue,
            broker_name=self._broker_name,
            born_timestamp=int(time.time() * 1000),
            properties=request.properties,
            sys_flag=request.sys_flag,
            flag=request.flag,
        )
        make: Callable[[commands.SendHeader, bytes], Command]
        make = commands.send_batch if request.batch else commands.send
        return make(header, request.body)

    def _record(
        self, request: Request, frame: Frame, results: dict[int, SendResult]
    ) -> BrokerError | None:
        status = _STORED.get(frame.code)
        if status is None:
            what = f"cannot send to {request.queue}"
            error = from_answer(frame.code, frame.remark, what, str(self._address))
            self._failed([request], error, results)
            return error
        first = number(frame, "queueOffset")
        offset_ids = frame.ext.get("msgId", "").split(",")
        for position, (row, msg_id) in enumerate(zip(request.rows, request.msg_ids, strict=True)):
            results[row] = SendResult(
                status=status,
                msg_id=msg_id,
                queue=request.queue,
                queue_offset=first + position,
                offset_msg_id=offset_ids[position] if position < len(offset_ids) else "",
            )
        return None

    def _failed(
        self, requests: list[Request], error: RocketMQError, results: dict[int, SendResult]
    ) -> list[Request]:
        for request in requests:
            for row, msg_id in zip(request.rows, request.msg_ids, strict=True):
                results[row] = SendResult("FAILED", msg_id, request.queue, error=error)
        return requests

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.timeout
