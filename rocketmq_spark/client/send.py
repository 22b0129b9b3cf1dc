"""Sends requests to brokers: several in flight, each acknowledged, failures tried elsewhere."""

from __future__ import annotations

import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.outgoing import Message, Request, SendResult, make_requests
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.core.model import MessageQueue, Route
from rocketmq_spark.errors import (
    BrokerError,
    NetworkError,
    NoPermissionError,
    RocketMQError,
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


class SendError(RocketMQError):
    """Some messages were not stored. `results` has one entry for each message, in order."""

    def __init__(self, message: str, results: Sequence[SendResult] = ()) -> None:
        super().__init__(message)
        self.results = list(results)


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
        queues = self._writable(self._metadata.route(topic), topic)
        requests = make_requests(
            messages,
            queues,
            self._turn,
            compress_above=self._settings.compress_above,
            compression=self._settings.compression,
        )
        self._turn = (self._turn + len(messages)) % (1 << 30)
        results: dict[int, SendResult] = {}
        for attempt in range(self._settings.retries + 1):
            failed = self._send_all(topic, requests, results)
            if not failed:
                break
            if attempt < self._settings.retries:
                self._metadata.forget_route(topic)
                requests = self._elsewhere(topic, failed)
        ordered = [results[row] for row in range(len(messages))]
        lost = [result for result in ordered if not result.ok]
        if lost:
            raise SendError(
                f"{len(lost)} of {len(messages)} messages were not stored: {lost[0].error}", ordered
            )
        return ordered

    def _writable(self, route: Route, topic: str) -> list[MessageQueue]:
        queues = route.writable_queues()
        if queues:
            return queues
        if route.queues and not any(q.writable for q in route.queues):
            raise NoPermissionError(
                f"cannot send to topic {topic}: its perm does not allow writing", code=16
            )
        raise UnavailableError(f"cannot send to topic {topic}: none of its brokers has a master")

    def _elsewhere(self, topic: str, failed: list[Request]) -> list[Request]:
        """The same requests, each to another broker than the one that failed, if one is left."""
        try:
            queues = self._writable(self._metadata.route(topic), topic)
        except RocketMQError:
            return failed
        moved = []
        for request in failed:
            others = [q for q in queues if q.broker_name != request.queue.broker_name] or queues
            target = request.queue if request.fixed else others[self._turn % len(others)]
            self._turn += 1
            moved.append(replace(request, queue=target))
        return moved

    def _send_all(
        self, topic: str, requests: list[Request], results: dict[int, SendResult]
    ) -> list[Request]:
        """Send everything once; the requests that failed in a way worth another try."""
        route = self._metadata.route(topic)
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
        waiting = deque(requests)
        flying: dict[int, Request] = {}
        busy: set[MessageQueue] = set()  # queues with an ordered request on its way
        again: list[Request] = []
        try:
            deadline = self._deadline()
            with self._pool.connection(self._address, deadline) as connection:
                while waiting or flying:
                    chosen = self._choose(waiting, flying, busy)
                    connection.submit([(self._command(r), r) for r in chosen], self._deadline())
                    for answer in connection.receive(self._deadline()):
                        request: Request = answer.token
                        del flying[id(request)]
                        if request.fixed:
                            busy.discard(request.queue)
                        error = self._record(request, answer.frame, results)
                        if error is not None and error.retriable:
                            again.append(request)
        except NetworkError as error:
            # Those in flight may have been stored: sending them again can duplicate, not lose.
            return again + self._failed([*flying.values(), *waiting], error, results)
        return again

    def _choose(
        self, waiting: deque[Request], flying: dict[int, Request], busy: set[MessageQueue]
    ) -> list[Request]:
        """What to send now. Of an ordered queue one at a time, as a broker works in parallel."""
        chosen = []
        for _ in range(len(waiting)):
            if len(flying) >= self._settings.in_flight:
                break
            request = waiting.popleft()
            if request.fixed and request.queue in busy:
                waiting.append(request)
                continue
            if request.fixed:
                busy.add(request.queue)
            flying[id(request)] = request
            chosen.append(request)
        return chosen

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
