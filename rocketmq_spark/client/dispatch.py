"""Requests on their way to brokers: several in flight at each, every one acknowledged or lost.

One caller, no threads. A request that fails goes to another broker, after a pause where that would
be the same again. Requests for a fixed queue keep their order: the next leaves when the one before
is stored, as a broker works in parallel.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from rocketmq_spark.client.balance import Balancer
from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.outgoing import FULL_BATCH, MAX_MESSAGE, Request, by_key, halves
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.client.retry import FIRST_PAUSE, LONGEST_PAUSE
from rocketmq_spark.client.watch import overtaken
from rocketmq_spark.core.model import MessageQueue, Route
from rocketmq_spark.errors import (
    AuthenticationError,
    IllegalMessageError,
    NetworkError,
    NoPermissionError,
    ProtocolError,
    RocketMQError,
    UnavailableError,
    during,
    from_answer,
)
from rocketmq_spark.wire import commands
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Command

# SendStatus by answer code: the last three are stored, if less safely than the broker should.
STORED = {
    0: "SEND_OK",
    10: "FLUSH_DISK_TIMEOUT",
    11: "SLAVE_NOT_AVAILABLE",
    12: "FLUSH_SLAVE_TIMEOUT",
}
# NO_PERMISSION, TOPIC_NOT_EXIST, NO_BUYER_ID, NOT_IN_CURRENT_UNIT: another broker may take it.
_PERHAPS_ELSEWHERE = frozenset({16, 17, 204, 205})


@dataclass(frozen=True, slots=True)
class SendSettings:
    """`unsafe` is what to do with a message that is stored, but not flushed or replicated as the
    broker is set to: accept it, retry elsewhere, or fail."""

    group: str = "rocketmq_spark_writer"
    timeout: float = 5.0
    retries: int = 2
    in_flight: int = 8
    compress_above: int = 4096
    compression: str = "zlib"
    max_message: int = MAX_MESSAGE
    batch_bytes: int = FULL_BATCH
    fault_latency: bool = False
    unsafe: str = "accept"


@dataclass(slots=True)
class Counters:
    requests: int = 0
    retries: int = 0
    unsafe: int = 0


@dataclass(slots=True)
class _Lane:
    """The connection to one broker and what is in flight on it."""

    broker_name: str
    connection: Connection
    lent: ExitStack
    flying: dict[int, Request] = field(default_factory=dict)


class Dispatcher:
    """`stored` is told of every request that a broker has taken, `lost` of every other; where that
    raises, sending ends."""

    def __init__(
        self,
        metadata: Metadata,
        pool: Pool,
        settings: SendSettings,
        stored: Callable[[Request, Frame], None],
        lost: Callable[[Request, RocketMQError], None],
        balancer: Balancer,
    ) -> None:
        self._metadata = metadata
        self._pool = pool
        self._settings = settings
        self._stored = stored
        self._lost = lost
        self._balancer = balancer
        self._lanes: dict[str, _Lane] = {}
        self._ready: deque[Request] = deque()
        self._again: deque[Request] = deque()
        # Requests behind the one of their fixed queue that is on its way.
        self._behind: dict[MessageQueue, deque[Request]] = {}
        self._waiting = 0
        self._routes: dict[str, Route] = {}
        self.counters = Counters()

    def put(self, request: Request) -> None:
        """Send it as soon as there is room; returns when little enough is waiting."""
        self._line_up(request)
        self._advance()
        while self._waiting > self._settings.in_flight and self._receive_any():
            self._advance()

    def flush(self) -> None:
        """Return when every request is stored or lost."""
        self._advance()
        while self._receive_any():
            self._advance()

    def close(self) -> None:
        """Give the connections back; one with something in flight is closed."""
        for lane in list(self._lanes.values()):
            self._drop(lane)

    def __enter__(self) -> Dispatcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line_up(self, request: Request) -> None:
        if request.fixed and request.queue in self._behind:
            self._behind[request.queue].append(request)
            self._waiting += 1
        else:
            if request.fixed:
                self._behind[request.queue] = deque()
            self._ready.append(request)

    # --- out ----------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Send all that may go now. Failed ones first: they are older."""
        while self._again or self._ready:
            if self._again:
                self._retry(self._again.popleft())
            else:
                self._start(self._ready.popleft())

    def _start(self, request: Request) -> None:
        try:
            lane = self._lane(self._route(request.queue.topic), request.queue)
        except RocketMQError as error:
            self._failed(request, during(f"cannot send to {request.queue}", error))
            return
        leaves = False
        try:
            most = max(1, self._settings.in_flight)
            while len(lane.flying) >= most and not lane.connection.broken:
                self._receive(lane)
            leaves = not lane.connection.broken and not lane.connection.draining
            if leaves:
                self._send(request, lane)
            else:
                self._finish(lane)
        except (NetworkError, ProtocolError) as error:
            self._break(lane, error)
        if not leaves:
            self._ready.appendleft(request)  # whatever became of the others: on a new connection

    def _send(self, request: Request, lane: _Lane) -> None:
        request.sent_at = time.monotonic()
        lane.flying[id(request)] = request
        self.counters.requests += 1
        command = self._command(request, lane.broker_name)
        lane.connection.submit([(command, request)], self._deadline())
        request.handed_at = time.monotonic()

    def _lane(self, route: Route, queue: MessageQueue) -> _Lane:
        broker_name = route.serving_broker(queue)
        broker = route.brokers.get(broker_name)
        address = broker.master if broker else None
        if address is None:
            raise UnavailableError(f"broker {broker_name} has no master now", code=14)
        lane = self._lanes.get(broker_name)
        if lane and lane.connection.address != address and not lane.flying:
            self._drop(lane)  # another machine has become the master
            lane = None
        if lane is None:
            lent = ExitStack()
            connection = lent.enter_context(self._pool.connection(address, self._deadline()))
            lane = self._lanes[broker_name] = _Lane(broker_name, connection, lent)
        return lane

    def _command(self, request: Request, broker_name: str) -> Command:
        header = commands.SendHeader(
            producer_group=self._settings.group,
            queue=request.queue,
            broker_name=broker_name,
            born_timestamp=int(time.time() * 1000),
            properties=request.properties,
            sys_flag=request.sys_flag,
            flag=request.flag,
        )
        make = commands.send_batch if request.batch else commands.send
        return make(header, request.body)

    # --- in -----------------------------------------------------------------------------------

    def _receive_any(self) -> bool:
        """Answers of the lane that waits for most; False when none waits."""
        lane = max(self._lanes.values(), key=lambda each: len(each.flying), default=None)
        if lane is None or not lane.flying:
            return False
        try:
            self._receive(lane)
        except (NetworkError, ProtocolError) as error:
            self._break(lane, error)
        return True

    def _receive(self, lane: _Lane) -> None:
        oldest = next(iter(lane.flying.values()))
        due = oldest.handed_at + self._settings.timeout
        latest = 0.0
        for request, frame in lane.connection.receive(self._deadline()):
            del lane.flying[id(request)]
            latest = max(latest, request.sent_at)
            self._settle(request, frame, lane)
        if latest > due and id(oldest) in lane.flying:
            raise overtaken(lane.connection.address)
        if lane.connection.draining and not lane.flying:
            self._drop(lane)

    def _finish(self, lane: _Lane) -> None:
        """Hear the last answers of a lane that takes no more requests."""
        while lane.flying and not lane.connection.broken:
            self._receive(lane)
        if self._lanes.get(lane.broker_name) is lane:
            self._drop(lane)

    def _settle(self, request: Request, frame: Frame, lane: _Lane) -> None:
        taken = frame.code in STORED
        if taken and frame.code and self._settings.unsafe != "accept":
            taken = False
        if not taken:
            what = f"cannot send to {request.queue}"
            self._failed(
                request, from_answer(frame.code, frame.remark, what, lane.connection.address)
            )
            return
        self.counters.unsafe += frame.code != 0
        self._balancer.took(lane.broker_name, time.monotonic() - request.sent_at)
        try:
            self._stored(request, frame)
        except ProtocolError as error:
            what = f"cannot tell where in {request.queue} it is stored: {lane.connection.address}"
            self._give_up(request, during(what, error))
            return
        self._settled(request)

    # --- failures -----------------------------------------------------------------------------

    def _break(self, lane: _Lane, error: RocketMQError) -> None:
        """Those in flight may have been stored: sending them again can duplicate, not lose."""
        flying, lane.flying = list(lane.flying.values()), {}
        self._drop(lane)
        for request in flying:
            self._failed(request, during(f"cannot send to {request.queue}", error))

    def _drop(self, lane: _Lane) -> None:
        self._lanes.pop(lane.broker_name, None)
        lane.lent.close()

    def _failed(self, request: Request, error: RocketMQError) -> None:
        if request.batch and len(request.rows) > 1 and _is_refusal(error):
            self._part(request)
            return
        self._balancer.failed(request.queue.broker_name, not isinstance(error, NetworkError))
        request.attempts += 1
        if request.attempts <= self._settings.retries and self._worth_another(request, error):
            self._again.append(request)
        else:
            self._give_up(request, error)

    def _part(self, request: Request) -> None:
        """The broker takes smaller batches, or one message of this one is bad: halves will tell."""
        first, second = halves(request)
        self._ready.append(first)
        if request.fixed:
            self._behind[request.queue].appendleft(second)
            self._waiting += 1
        else:
            self._ready.append(second)

    def _worth_another(self, request: Request, error: RocketMQError) -> bool:
        if getattr(error, "code", 0) in STORED and self._settings.unsafe == "fail":
            return False
        if isinstance(error, AuthenticationError):
            return False
        if getattr(error, "code", 0) in _PERHAPS_ELSEWHERE and not request.fixed:
            return self._others(request.queue)
        return error.retriable

    def _retry(self, request: Request) -> None:
        self.counters.retries += 1
        topic, failed = request.queue.topic, request.queue.broker_name
        if request.attempts > 1 or request.fixed or not self._others(request.queue):
            # A broker that is busy, or whose slave has just taken over, needs a moment.
            time.sleep(min(FIRST_PAUSE * 2.0**request.attempts, LONGEST_PAUSE))
        self._metadata.forget_route(topic)
        try:
            queues = self._route(topic).writable_queues() or [request.queue]
        except RocketMQError as error:
            self._failed(request, during(f"cannot send to {request.queue}", error))
            return
        if not request.fixed:
            request.queue = self._balancer.next(queues, avoid=failed)
        elif request.hashes is not None and request.queue not in queues:
            self._choose_anew(request, queues)
            return
        self._start(request)

    def _choose_anew(self, request: Request, queues: list[MessageQueue]) -> None:
        """The queue of these keys has left the route with its broker. As Java's producers do, take
        the queues that there are; what stood behind comes along, in order."""
        behind = self._behind.pop(request.queue, deque())
        self._waiting -= len(behind)
        for each in (request, *behind):
            for part in by_key(each, queues) if each.hashes is not None else [each]:
                self._line_up(part)

    def _others(self, queue: MessageQueue) -> bool:
        """Whether another broker could be asked."""
        try:
            queues = self._route(queue.topic).writable_queues()
        except RocketMQError:
            return False  # nobody knows
        return any(other.broker_name != queue.broker_name for other in queues)

    def _route(self, topic: str) -> Route:
        """As it is now; as it was, if nobody can tell or nothing could be written."""
        try:
            newest = self._metadata.route(topic)
        except RocketMQError:
            if topic not in self._routes:
                raise
        else:
            if topic not in self._routes or newest.writable_queues():
                self._routes[topic] = newest
        return self._routes[topic]

    def _give_up(self, request: Request, error: RocketMQError) -> None:
        self._lost(request, error)
        if error.retriable and request.fixed:
            # Nothing may overtake what could not be stored.
            behind = self._behind.pop(request.queue, deque())
            self._waiting -= len(behind)
            for follower in behind:
                self._lost(follower, error)
        else:
            self._settled(request)

    def _settled(self, request: Request) -> None:
        """`request` is stored, or never will be: who is behind it comes up."""
        if not request.fixed:
            return
        behind = self._behind.get(request.queue)
        if behind:
            self._waiting -= 1
            self._ready.append(behind.popleft())
        else:
            self._behind.pop(request.queue, None)

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.timeout


def _is_refusal(error: RocketMQError) -> bool:
    """Whether the broker will not store a batch as it is."""
    too_large = "size exceeded" in getattr(error, "remark", "")
    return isinstance(error, IllegalMessageError) or too_large


def writable(route: Route) -> list[MessageQueue]:
    """The queues to send to; raises when there is none."""
    queues = route.writable_queues()
    if queues:
        return queues
    what = f"cannot send to topic {route.topic}"
    if route.queues and not any(q.writable for q in route.queues):
        raise NoPermissionError(f"{what}: its perm does not allow writing", code=16)
    raise UnavailableError(f"{what}: none of its brokers has a master")
