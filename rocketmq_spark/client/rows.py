"""Arrow rows on their way out: which travel together, and to which queue.

The rows of an Arrow batch that need nothing special are encoded together and leave as slices of one
buffer. A delayed, compressed or very large row, and one for a retry topic, leaves alone. Rows with
a key or a queue id keep their order within their queue; the others have none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_spark.client.balance import Balancer
from rocketmq_spark.client.dispatch import SendSettings
from rocketmq_spark.client.names import RETRY_PREFIX
from rocketmq_spark.client.outgoing import (
    DELAYS,
    ROW_KEY,
    SHARDING_KEY,
    WAIT,
    Message,
    Request,
    message_properties,
    single_request,
)
from rocketmq_spark.client.unique import reserve, unique_id
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import UsageError
from rocketmq_spark.wire import encode
from rocketmq_spark.wire.message import KEYS, TAGS, UNIQ_KEY
from rocketmq_spark.wire.properties import MAX_PROPERTIES, encode_properties

# Without a key, a batch is shared over the queues, but not in pieces smaller than this.
_LEAST_BATCH = 16 << 10
# A broker names every message of a batch in its answer, and holds a lock while it takes one.
_MOST_ROWS = 2048
_ITEM_OVERHEAD = 32
_ANY = -1

# Columns that become properties of their own.
_OWN = {"keys": KEYS, "tags": TAGS, "shardingKey": SHARDING_KEY}


class RowEncoder:
    """Makes requests of rows. `row_key` is how the row keys of this task begin, if there are any;
    `place` says in words where a row is."""

    def __init__(
        self,
        settings: SendSettings,
        balancer: Balancer,
        row_key: str,
        place: Callable[[int], str],
    ) -> None:
        self._settings = settings
        self._balancer = balancer
        self._row_key = row_key
        self._place = place

    def requests(
        self, topic: str, batch: Any, rows: Any, queues: Sequence[MessageQueue]
    ) -> Iterator[Request]:
        """`batch` holds rows of one topic, `rows` their numbers in the task."""
        names = set(batch.schema.names)
        if batch["body"].null_count:
            self._refuse(topic, batch, rows, queues)
        targets, hashes = self._targets(batch, names, queues), None
        if "shardingKey" in names and "queueId" not in names:
            hashes = encode.java_hashes(batch["shardingKey"])
        alone = self._alone(topic, batch, names)
        if targets is None:
            self._refuse(topic, batch, rows, queues)
        # Together by queue, in order; of those that may go anywhere the lone ones come last.
        key = targets * 2 + np.where(targets == _ANY, alone, 0)
        if len(key) and (key != key[0]).any():
            order = np.argsort(key, kind="stable")
            batch, rows = batch.take(order), rows[order]
            targets, alone = targets[order], alone[order]
            hashes = None if hashes is None else hashes[order]
        items = self._encode(topic, batch, rows, alone, names, queues)
        encoded = np.cumsum(~alone)  # up to and with this row
        changes = (np.diff(targets) != 0) | (np.diff(alone) != 0)
        edges = [0, *(np.nonzero(changes)[0] + 1).tolist(), len(rows)]
        for first, end in itertools.pairwise(edges):
            if first == end:
                continue
            target = int(targets[first])
            keyed = None if hashes is None or target == _ANY else hashes[first:end]
            if alone[first]:
                for at in range(first, end):
                    request = self._single(batch, at, int(rows[at]), queues, target)
                    request.hashes = None if keyed is None else keyed[at - first : at - first + 1]
                    yield request
                continue
            item = int(encoded[first]) - 1
            for request in self._cut(items, item, rows[first:end], queues, target):
                if keyed is not None:
                    count = len(request.rows)
                    request.hashes, keyed = keyed[:count], keyed[count:]
                yield request

    # --- where to -----------------------------------------------------------------------------

    def _targets(self, batch: Any, names: set[str], queues: Sequence[MessageQueue]) -> Any:
        """The place in `queues` of each row's queue, or _ANY; None when some row has none."""
        targets = np.full(batch.num_rows, _ANY, np.int64)
        if "shardingKey" in names:
            keys = batch["shardingKey"]
            given = np.asarray(keys.is_valid())
            # SelectMessageQueueByHash: Java's remainder keeps the sign, then abs() drops it.
            hashed = np.abs(encode.java_hashes(keys)) % len(queues)
            targets = np.where(given, hashed, targets)
        if "queueId" not in names:
            return targets
        ids = batch["queueId"]
        chosen = np.asarray(pc.fill_null(ids, -1).cast(pa.int64()))
        brokers = batch["brokerName"] if "brokerName" in names else pa.nulls(len(ids), pa.string())
        coded = brokers.dictionary_encode()
        codes = np.asarray(pc.fill_null(coded.indices, -1))
        for code, broker in enumerate([*coded.dictionary.to_pylist(), None]):
            of_broker = codes == (code if broker is not None else -1)
            places = _by_id(queues, broker)
            inside = (chosen >= 0) & (chosen < len(places))
            found = np.where(inside, places[np.where(inside, chosen, 0)], -2)
            targets = np.where(of_broker & np.asarray(ids.is_valid()), found, targets)
        if "brokerName" in names:
            # A broker alone is not a queue.
            lost = np.asarray(brokers.is_valid()) & ~np.asarray(ids.is_valid())
            targets = np.where(lost, -2, targets)
        return None if (targets < _ANY).any() else targets

    def _alone(self, topic: str, batch: Any, names: set[str]) -> Any:
        """Which rows cannot travel in a batch."""
        sizes = encode.lengths(batch["body"])
        if topic.startswith(RETRY_PREFIX):
            return np.ones(batch.num_rows, bool)
        # Its properties could push it over what a batch may hold.
        alone = sizes + MAX_PROPERTIES + _ITEM_OVERHEAD > self._settings.max_message
        if self._settings.compression:
            alone |= sizes >= self._settings.compress_above
        if "delayLevel" in names:
            alone |= np.asarray(pc.fill_null(batch["delayLevel"], 0)) > 0
        if "deliverAt" in names:
            alone |= np.asarray(batch["deliverAt"].is_valid())
        if "properties" in names:
            entries, _, edges = encode.map_entries(batch["properties"])
            delays = np.asarray(pc.is_in(entries, pa.array(sorted(DELAYS))))
            if delays.any():
                alone |= encode.rows_of_entries(edges, delays)
        return alone

    # --- together -----------------------------------------------------------------------------

    def _encode(
        self,
        topic: str,
        batch: Any,
        rows: Any,
        alone: Any,
        names: set[str],
        queues: Sequence[MessageQueue],
    ) -> encode.Items:
        """The items of all rows that travel in batches."""
        if alone.any():
            together = ~alone
            batch, rows = batch.filter(pa.array(together)), rows[together]
        parts: list[Any] = []
        fine = True
        if "properties" in names:
            entries, values, edges = encode.map_entries(batch["properties"])
            fine = not (
                _holds(entries, 1)
                or _holds(entries, 2)
                or _holds(values, 2)
                or bool((encode.lengths(entries) == 0).any())
            )
            parts += encode.property_map(
                batch["properties"], self._dropped(batch, entries, edges, names)
            )
        for column, name in _OWN.items():
            if column in names:
                fine = fine and not _holds(batch[column], 2)
                parts += encode.property_column(name, batch[column])
        parts += encode.unique_keys(UNIQ_KEY, *reserve(len(rows)), len(rows))
        if self._row_key:
            parts += encode.numbered(ROW_KEY, self._row_key, rows)
        sizes = encode.property_lengths(parts, len(rows))
        if not fine or int(sizes.max(initial=0)) > MAX_PROPERTIES:
            self._refuse(topic, batch, rows, queues)
        flags = np.asarray(pc.fill_null(batch["flag"], 0)) if "flag" in names else 0
        return encode.encode_items(batch["body"], parts, flags)

    def _dropped(self, batch: Any, entries: Any, edges: Any, names: set[str]) -> Any:
        """Which entries of the property maps a row's own columns or we ourselves replace."""
        ours = {UNIQ_KEY, WAIT} | ({ROW_KEY} if self._row_key else set())
        reserved = ours | set(_OWN.values())
        if not pc.any(pc.is_in(entries, pa.array(sorted(reserved)))).as_py():
            return None
        dropped = np.asarray(pc.is_in(entries, pa.array(sorted(ours))))
        row_of_entry = np.repeat(np.arange(batch.num_rows), np.diff(edges))
        for column, name in _OWN.items():
            if column in names:
                mine = np.asarray(pc.equal(entries, name))
                dropped |= mine & _given(batch[column])[row_of_entry]
        return dropped

    def _cut(
        self,
        items: encode.Items,
        first: int,
        rows: Any,
        queues: Sequence[MessageQueue],
        target: int,
    ) -> Iterator[Request]:
        """Items from `first` on, as many as there are `rows`, in requests within the limits."""
        starts, end = items.starts, first + len(rows)
        limit = self._settings.batch_bytes
        if target == _ANY:
            even = int(starts[end] - starts[first]) // len(queues)
            limit = min(limit, max(even, _LEAST_BATCH))
        at = first
        while at < end:
            fitting = int(np.searchsorted(starts, starts[at] + limit, "right")) - 1
            stop = min(max(fitting, at + 1), at + _MOST_ROWS, end)
            fixed = target != _ANY
            yield Request(
                queues[target] if fixed else self._balancer.next(queues),
                rows[at - first : stop - first],
                (),
                items.slice(at, stop),
                batch=True,
                fixed=fixed,
            )
            at = stop

    # --- alone --------------------------------------------------------------------------------

    def _single(
        self, batch: Any, at: int, row: int, queues: Sequence[MessageQueue], target: int
    ) -> Request:
        message = _message(batch, at)
        fixed = target != _ANY
        queue = queues[target] if fixed else self._balancer.next(queues)
        try:
            properties = self._checked(queue.topic, message, row)
            large = len(message.payload) >= self._settings.compress_above
            return single_request(
                row,
                message,
                queue,
                fixed,
                message.payload,
                properties,
                self._settings.compression if large else "",
            )
        except UsageError as error:
            raise self._complaint(row, error) from error

    def _checked(self, topic: str, message: Message, row: int) -> dict[str, str]:
        """The properties of a message that can be sent."""
        size = len(message.payload)
        if size > self._settings.max_message:
            raise UsageError(
                f"its body of {size} bytes is more than maxMessageSize, "
                f"{self._settings.max_message}"
            )
        if not size and (message.delayed or topic.startswith(RETRY_PREFIX)):
            kind = "a delayed message" if message.delayed else "a message of a retry topic"
            raise UsageError(f"{kind} needs a body: a broker refuses an empty one")
        key = f"{self._row_key}{row}" if self._row_key else ""
        properties = message_properties(message, unique_id(), key)
        encode_properties(properties)
        return properties

    def _refuse(self, topic: str, batch: Any, rows: Any, queues: Sequence[MessageQueue]) -> None:
        """Raise for the first row that cannot be sent; there is one."""
        for at, row in enumerate(rows.tolist()):
            try:
                if not batch["body"][at].is_valid:
                    raise UsageError("its body is null")
                if self._targets(batch.slice(at, 1), set(batch.schema.names), queues) is None:
                    raise UsageError(_no_queue(topic, batch, at))
                self._checked(topic, _message(batch, at), row)
            except UsageError as error:
                raise self._complaint(row, error) from error
        raise AssertionError("every row can be sent")

    def _complaint(self, row: int, error: UsageError) -> UsageError:
        return UsageError(f"{self._place(row)} cannot be sent: {error}")


def _message(batch: Any, at: int) -> Message:
    """One row, for the plain encoder."""
    row = {name: batch[name][at].as_py() for name in batch.schema.names}
    return Message(
        row["body"],
        tags=row.get("tags") or "",
        keys=row.get("keys") or "",
        properties={k: v for k, v in row.get("properties") or () if v is not None},
        flag=row.get("flag") or 0,
        delay_level=max(row.get("delayLevel") or 0, 0),
        deliver_at=row.get("deliverAt"),
        sharding_key=row.get("shardingKey"),
    )


def _no_queue(topic: str, batch: Any, at: int) -> str:
    names = batch.schema.names
    queue_id = batch["queueId"][at].as_py()
    broker = batch["brokerName"][at].as_py() if "brokerName" in names else None
    if queue_id is None:
        return f"it names the broker {broker} without a queueId"
    where = f" on {broker}" if broker else ""
    return f"topic {topic} has no queue {queue_id}{where} that can be written now"


def _by_id(queues: Sequence[MessageQueue], broker: str | None) -> Any:
    """Place in `queues` by queue id; without a broker, the first that has it."""
    places = np.full(max(q.queue_id for q in queues) + 1, -2, np.int64)
    for place, queue in reversed(list(enumerate(queues))):
        if broker is None or queue.broker_name == broker:
            places[queue.queue_id] = place
    return places


def _given(values: Any) -> Any:
    return np.asarray(pc.fill_null(pc.greater(pc.binary_length(values), 0), False))


def _holds(values: Any, byte: int) -> bool:
    """Whether any value has this byte in it."""
    bounds, buffer = encode.starts(values), values.buffers()[2]
    if buffer is None:
        return False
    return bool((np.frombuffer(buffer, np.uint8)[bounds[0] : bounds[-1]] == byte).any())
