"""Messages on their way out: what a user says, the results, and how messages become requests.

Nothing here sends. `make_requests` decides which messages travel together and where; RocketMQ's
rules for that are: a batch is of one topic and queue, is not compressed and holds no delayed
message, and an empty body travels only in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rocketmq_spark.client.balance import Balancer
from rocketmq_spark.client.names import RETRY_PREFIX
from rocketmq_spark.client.unique import unique_id
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import RocketMQError, UsageError
from rocketmq_spark.wire.compression import COMPRESSED, SYS_FLAGS, compress
from rocketmq_spark.wire.frame import Buffer
from rocketmq_spark.wire.message import (
    KEYS,
    TAGS,
    UNIQ_KEY,
    BatchItem,
    encode_batch_item,
    encode_properties,
    java_hash,
)

# Brokers refuse more (MessageStoreConfig.maxMessageSize); it counts a batch as one body.
MAX_MESSAGE = 4 * 1024 * 1024
# MessageConst's properties that hold a message back; a broker does not look for them in a batch.
_DELAY, _DELIVER_AT = "DELAY", "TIMER_DELIVER_MS"
DELAYS = frozenset({_DELAY, _DELIVER_AT, "TIMER_DELAY_SEC", "TIMER_DELAY_MS"})
SHARDING_KEY, WAIT = "__SHARDINGKEY", "WAIT"
# Ours: which row of which query a message is, the same in every copy of it.
ROW_KEY = "SPARK_ROW"
# Beyond it a batch gains nothing, and a broker holds it in memory as a whole.
FULL_BATCH = 512 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """One message to send. Text is sent as UTF-8; several keys are separated by spaces.

    `sharding_key`: messages with equal keys go to one queue, in order, the one Java would choose.
    `delay_level`: 1 to 18, RocketMQ's fixed delays. `deliver_at`: a time in epoch milliseconds.
    """

    body: bytes | str
    tags: str = ""
    keys: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    deliver_at: int | None = None
    sharding_key: str | None = None
    queue: MessageQueue | None = None

    @property
    def payload(self) -> bytes:
        try:
            return self.body.encode() if isinstance(self.body, str) else bytes(self.body)
        except UnicodeEncodeError as error:
            raise UsageError(f"the body is not valid text: {error.reason}") from error

    @property
    def delayed(self) -> bool:
        given = self.delay_level > 0 or self.deliver_at is not None
        return given or not DELAYS.isdisjoint(self.properties)


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is now, or why it is nowhere. `status` is RocketMQ's SendStatus."""

    status: str
    msg_id: str
    queue: MessageQueue
    queue_offset: int = -1
    offset_msg_id: str = ""
    error: RocketMQError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(slots=True)
class Request:
    """Messages that travel together. `rows` are their places in what the caller gave."""

    queue: MessageQueue
    rows: Sequence[int]
    msg_ids: Sequence[str]
    body: Buffer
    batch: bool
    properties: str = ""
    sys_flag: int = 0
    flag: int = 0
    fixed: bool = False  # by key or by the caller: may not go to another queue
    hashes: Sequence[int] | None = None  # of the keys that chose the queue
    attempts: int = 0  # those that failed
    sent_at: float = 0.0
    handed_at: float = 0.0  # when all of it was on its way: on a slow line, much later


def halves(request: Request) -> tuple[Request, Request]:
    """A batch of several messages as two."""
    count = len(request.rows) // 2
    at = _item_starts(request)[count]
    return (
        _part(request, slice(0, count), request.body[:at]),
        _part(request, slice(count, None), request.body[at:]),
    )


def by_key(request: Request, queues: Sequence[MessageQueue]) -> list[Request]:
    """The messages of a request that has hashes, each to the queue of its key among `queues`."""
    assert request.hashes is not None
    chosen: dict[int, list[int]] = {}
    for place, value in enumerate(request.hashes):
        chosen.setdefault(abs(int(value)) % len(queues), []).append(place)
    if len(chosen) == 1:
        return [replace(request, queue=queues[next(iter(chosen))], attempts=0)]
    starts = _item_starts(request)
    parts = []
    for number, places in chosen.items():
        body = b"".join(bytes(request.body[starts[at] : starts[at + 1]]) for at in places)
        picked = replace(
            request,
            queue=queues[number],
            rows=[request.rows[at] for at in places],
            msg_ids=[request.msg_ids[at] for at in places] if request.msg_ids else (),
            hashes=[request.hashes[at] for at in places],
            body=body,
            attempts=0,
        )
        parts.append(picked)
    return parts


def _part(request: Request, which: slice, body: Buffer) -> Request:
    return replace(
        request,
        rows=request.rows[which],
        msg_ids=request.msg_ids[which],
        hashes=None if request.hashes is None else request.hashes[which],
        body=body,
        attempts=0,
    )


def _item_starts(request: Request) -> list[int]:
    """Where each item of a batch begins, and the last one ends."""
    starts = [0]
    while starts[-1] < len(request.body):
        at = starts[-1]
        starts.append(at + int.from_bytes(request.body[at : at + 4], "big"))  # its size is first
    return starts


def make_requests(
    messages: Sequence[Message],
    queues: Sequence[MessageQueue],
    balancer: Balancer,
    *,
    compress_above: int,
    compression: str,
    max_message: int = MAX_MESSAGE,
    batch_bytes: int = FULL_BATCH,
) -> list[Request]:
    """Requests for all `messages`: round robin over `queues`, by key, or as told."""
    open_batches: dict[tuple[MessageQueue, bool], _Batch] = {}
    requests: list[Request] = []
    for row, message in enumerate(messages):
        queue, fixed = _queue_for(message, queues, balancer, row)
        msg_id = unique_id()
        properties = message_properties(message, msg_id)
        try:
            body = message.payload
            if len(body) > max_message:
                raise UsageError(
                    f"its body of {len(body)} bytes is more than the {max_message} of a broker"
                )
            if not -(1 << 31) <= message.flag < 1 << 31:
                raise UsageError(f"its flag {message.flag} is no 32-bit number")
            single = message.delayed or len(body) >= compress_above
            # A retry topic takes no batch.
            alone = queue.topic.startswith(RETRY_PREFIX)
            if body and (single or alone):
                requests += _flushed(open_batches, queue, fixed)  # it must not overtake
                how = compression if len(body) >= compress_above else ""
                requests.append(single_request(row, message, queue, fixed, body, properties, how))
                continue
            if message.delayed or alone:
                kind = "a delayed message" if message.delayed else "a message of a retry topic"
                raise UsageError(f"{kind} needs a body: a broker refuses an empty one")
            item = encode_batch_item(BatchItem(body, properties, message.flag))
        except UsageError as error:
            raise UsageError(f"message {row} cannot be sent: {error}") from error
        if len(item) > max_message and body:
            # Its properties push it over what a batch may hold; alone it is within the limits.
            requests += _flushed(open_batches, queue, fixed)
            requests.append(single_request(row, message, queue, fixed, body, properties, ""))
            continue
        batch = open_batches.setdefault((queue, fixed), _Batch(queue, fixed))
        if batch.size and batch.size + len(item) > min(batch_bytes, max_message):
            requests += _flushed(open_batches, queue, fixed)
            batch = open_batches.setdefault((queue, fixed), _Batch(queue, fixed))
        batch.add(row, msg_id, item)
    return requests + [batch.request() for batch in open_batches.values()]


class _Batch:
    def __init__(self, queue: MessageQueue, fixed: bool) -> None:
        self.queue, self.fixed, self.size = queue, fixed, 0
        self._rows: list[int] = []
        self._msg_ids: list[str] = []
        self._items: list[bytes] = []

    def add(self, row: int, msg_id: str, item: bytes) -> None:
        self._rows.append(row)
        self._msg_ids.append(msg_id)
        self._items.append(item)
        self.size += len(item)

    def request(self) -> Request:
        body = b"".join(self._items)
        return Request(self.queue, self._rows, self._msg_ids, body, batch=True, fixed=self.fixed)


def _flushed(
    batches: dict[tuple[MessageQueue, bool], _Batch], queue: MessageQueue, fixed: bool
) -> Iterator[Request]:
    batch = batches.pop((queue, fixed), None)
    if batch is not None:
        yield batch.request()


def single_request(
    row: int,
    message: Message,
    queue: MessageQueue,
    fixed: bool,
    body: bytes,
    properties: dict[str, str],
    compression: str,
) -> Request:
    sys_flag = 0
    if compression:
        packed = compress(compression, body)
        if len(packed) < len(body):
            body, sys_flag = packed, COMPRESSED | SYS_FLAGS[compression]
    return Request(
        queue,
        [row],
        [properties[UNIQ_KEY]],
        body,
        batch=False,
        properties=encode_properties(properties).decode(),
        sys_flag=sys_flag,
        flag=message.flag,
        fixed=fixed,
    )


def _queue_for(
    message: Message, queues: Sequence[MessageQueue], balancer: Balancer, row: int
) -> tuple[MessageQueue, bool]:
    if message.queue is not None:
        if message.queue not in queues:
            raise UsageError(f"message {row} is for {message.queue}, which cannot be written now")
        return message.queue, True
    if message.sharding_key is not None:
        # SelectMessageQueueByHash: Java's remainder keeps the sign, then abs() drops it.
        return queues[abs(java_hash(message.sharding_key)) % len(queues)], True
    return balancer.next(queues), False


def message_properties(message: Message, msg_id: str, row_key: str = "") -> dict[str, str]:
    """The user's properties and RocketMQ's own, which win. No WAIT: it is true without."""
    own = {}
    if message.keys:
        own[KEYS] = message.keys
    if message.tags:
        own[TAGS] = message.tags
    if message.delay_level:
        own[_DELAY] = str(message.delay_level)
    if message.deliver_at is not None:
        own[_DELIVER_AT] = str(message.deliver_at)
    if message.sharding_key:
        own[SHARDING_KEY] = message.sharding_key
    own[UNIQ_KEY] = msg_id
    if row_key:
        own[ROW_KEY] = row_key
    users = message.properties.items()
    return {name: value for name, value in users if name not in own and name != WAIT} | own
