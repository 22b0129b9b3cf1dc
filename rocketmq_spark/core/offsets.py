"""Where a query stands: the offset in Spark's checkpoint, and the rules by which it moves on.

An offset names, for each queue, the next message to read. Two things make a replayed batch read
exactly what it read before, whatever the brokers hold by then:

* The very first offset is only a symbol, for Spark asks for it again after a crash in batch 0 and
  keeps it nowhere. What it stands for is resolved once, and written into the first end offset.
* So is the start of a queue that is found later, or that had to skip lost messages. This part of
  an end offset is its `from`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.offset_json import (
    entries,
    nested,
    place,
    queue_list,
    queue_numbers,
    read_json,
)
from rocketmq_spark.core.order import sort_queues
from rocketmq_spark.errors import UsageError

# Every form that was ever released stays readable, and stays in tests/data/offsets.
VERSION = 1

# In a user's JSON, in place of an offset. Kafka's source uses the same numbers.
LATEST = -1
EARLIEST = -2

Positions = Mapping[MessageQueue, int]
# "earliest", "latest" or "group" for all queues, or a number for each.
Where = str | Positions

_UNRESOLVED = "unresolved"
_CHECKPOINT = "the offset in the checkpoint"
_RETRY = "%RETRY%"  # RocketMQ's MixAll.RETRY_GROUP_TOPIC_PREFIX
_NAMED = 3  # how many queues a sentence lists


@dataclass(frozen=True, slots=True, repr=False)
class Offsets:
    """One offset of a query. `positions` are next messages, `begun` is its `from` part."""

    positions: Positions = field(default_factory=dict)
    begun: Positions = field(default_factory=dict)
    resolved: bool = True

    @classmethod
    def initial(cls) -> Offsets:
        """The symbol: before the first batch, nothing is looked up yet."""
        return cls(resolved=False)

    @classmethod
    def parse(cls, value: str | Mapping[str, object], what: str = _CHECKPOINT) -> Offsets:
        """From the text, or from the dict that Spark made of it."""
        parts = dict(
            entries(read_json(value, what) if isinstance(value, str) else value, what, (), "parts")
        )
        version = parts.pop("version", None)
        if type(version) is not int or version < 1:
            raise UsageError(f"{what}: version is {version!r}; it must be a number, as in 1")
        if version > VERSION:
            raise UsageError(
                f"{what} has version {version}, and this rocketmq-spark reads up to {VERSION}: "
                "it was written by a newer release, so upgrade rocketmq-spark"
            )
        return cls._parse_v1(parts, what)

    @classmethod
    def _parse_v1(cls, parts: dict[str, object], what: str) -> Offsets:
        if parts == {"start": _UNRESOLVED}:
            return cls.initial()
        for name in parts:
            if name not in ("offsets", "from"):
                raise UsageError(f"{what}: {place((name,))} is not a part of version 1")
        if "offsets" not in parts:
            raise UsageError(f'{what}: it has no "offsets"; is it an offset of this source?')
        positions = queue_numbers(parts["offsets"], what, ("offsets",))
        begun = queue_numbers(parts.get("from", {}), what, ("from",))
        for queue, start in begun.items():
            path = (queue.topic, queue.broker_name, str(queue.queue_id))
            if queue not in positions:
                raise UsageError(
                    f"{what}: {place(('from', *path))} has no {place(('offsets', *path))}"
                )
            if start > positions[queue]:
                raise UsageError(
                    f"{what}: {place(('from', *path))} is {start}, "
                    f"after its end in offsets, {positions[queue]}"
                )
        return cls(positions, begun)

    def to_dict(self) -> dict[str, object]:
        """For Spark, which writes it with `json.dumps`; the keys always come in the same order."""
        if not self.resolved:
            return {"version": VERSION, "start": _UNRESOLVED}
        result: dict[str, object] = {"version": VERSION, "offsets": nested(self.positions)}
        if self.begun:
            result["from"] = nested(self.begun)
        return result

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), separators=(",", ":"))

    def __repr__(self) -> str:
        if not self.resolved:
            return "<Offsets unresolved>"
        begun = f", {len(self.begun)} begun here" if self.begun else ""
        return f"<Offsets {len(self.positions)} queues at {sum(self.positions.values())}{begun}>"


# --- what the user asks for -------------------------------------------------------------------


def parse_starting_offsets(text: str, option: str = "startingOffsets") -> Where:
    """earliest | latest | group, or JSON with -2 for earliest and -1 for latest."""
    return _parse_where(text, option, ("earliest", "latest", "group"), EARLIEST)


def parse_ending_offsets(text: str, option: str = "endingOffsets") -> Where:
    """latest, or JSON with -1 for latest. Reading up to the earliest would be reading nothing."""
    return _parse_where(text, option, ("latest",), LATEST)


def parse_timestamps(text: str, option: str) -> dict[MessageQueue, int]:
    """JSON with milliseconds since 1970 in place of offsets."""
    return queue_numbers(read_json(text, option), option, number="a timestamp in milliseconds")


def parse_queues(text: str, option: str = "assign") -> list[MessageQueue]:
    """`{"TopicA": {"broker-a": [0, 1]}}`"""
    return queue_list(read_json(text, option), option)


def parse_assignment(text: str, option: str = "allocate.config") -> dict[str, list[MessageQueue]]:
    """`{"member": {"TopicA": {"broker-a": [0, 1]}}}`"""
    members = entries(read_json(text, option), option, (), "members")
    return {member: queue_list(queues, f"{option}: {member}") for member, queues in members}


def _parse_where(text: str, option: str, words: tuple[str, ...], lowest: int) -> Where:
    word = text.strip().lower()
    if word in words:
        return word
    if not word.startswith("{"):
        raise UsageError(
            f"{option} is {text!r}; it is {', '.join(words)}, or JSON such as "
            '{"TopicA":{"broker-a":{"0":17}}}'
        )
    return queue_numbers(read_json(text, option), option, lowest=lowest)


def resolve(
    where: Where,
    queues: Collection[MessageQueue],
    first: Positions,
    last: Positions,
    *,
    committed: Positions | None = None,
    option: str = "startingOffsets",
) -> dict[MessageQueue, int]:
    """What the user asked for as numbers. `first` and `last` are the brokers' own.

    For "group", a queue without a committed offset starts where a new RocketMQ group does. A JSON
    must name every queue and no other, as in Spark's Kafka source: a queue left out is more
    likely forgotten than meant.
    """
    if where == "earliest":
        return {queue: first[queue] for queue in queues}
    if where == "latest":
        return {queue: last[queue] for queue in queues}
    if where == "group":
        return {queue: _group_start(queue, committed or {}, first, last) for queue in queues}
    if isinstance(where, str):
        raise UsageError(f"{option} is {where!r}; it is earliest, latest, group or JSON")
    _check_named(where, queues, option)
    symbols = {EARLIEST: first, LATEST: last}
    return {
        queue: symbols[where[queue]][queue] if where[queue] in symbols else where[queue]
        for queue in queues
    }


def _group_start(
    queue: MessageQueue, committed: Positions, first: Positions, last: Positions
) -> int:
    saved = committed.get(queue, -1)
    if saved >= 0:
        return saved
    # What waits to be tried again was sent to this very group, so all of it is wanted.
    return first[queue] if queue.topic.startswith(_RETRY) else last[queue]


def _check_named(where: Positions, queues: Collection[MessageQueue], option: str) -> None:
    missing = where.keys() ^ set(queues)
    if missing:
        forgotten = [queue for queue in missing if queue not in where]
        unknown = [queue for queue in missing if queue in where]
        words = [
            f"{verb} {_some(found)}"
            for verb, found in (("does not name", forgotten), ("names", unknown))
            if found
        ]
        tail = (
            ", which the topics do not have" if unknown else "; name every queue (-2 is earliest)"
        )
        raise UsageError(f"{option} {' and '.join(words)}{tail}")


def _some(queues: Iterable[MessageQueue]) -> str:
    names = [str(queue) for queue in sort_queues(queues)]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


# --- from one offset to the next --------------------------------------------------------------


def new_queues(start: Offsets, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Those of the route that the query has not met yet. After the first batch, they begin at
    their earliest message, always: all of it was sent while the query was there to read it."""
    return sort_queues(queue for queue in queues if queue not in start.positions)


def advance(start: Offsets, ends: Positions, begun: Positions) -> Offsets:
    """The offset after a batch that reads up to `ends`.

    `begun` holds the starts of queues that are new, or that go on from elsewhere after a loss.
    Queues of `start` that are in neither keep their place: a broker that is down comes back, and
    is read from there. When nothing is new, `start` itself is the answer.
    """
    started = {q: at for q, at in begun.items() if start.positions.get(q) != at}
    positions = {**start.positions, **started, **ends}
    if start.resolved and not started and positions == start.positions:
        return start
    return Offsets(positions, started)


def batch_starts(start: Offsets, end: Offsets) -> dict[MessageQueue, int]:
    """Where each queue of a batch begins: in the end's `from` if it is there, else in `start`."""
    if start == end:
        # Spark 4.0 plans such a batch on a restart. Its `from` belongs to the batch before.
        return dict(end.positions)
    result = {}
    for queue in end.positions:
        begin = end.begun.get(queue, start.positions.get(queue))
        if begin is None:
            raise UsageError(
                f"{_CHECKPOINT} ends at {end.positions[queue]} for {queue} but says nowhere where "
                "to begin; the checkpoint is damaged, start from a new one"
            )
        result[queue] = begin
    return result


# --- messages that are gone -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataLoss:
    """An offset that its broker does not have: below the `first`, or above the `last`."""

    queue: MessageQueue
    wanted: int
    first: int
    last: int

    @property
    def expired(self) -> bool:
        """Deleted before they were read. Otherwise the queue is shorter than what was read."""
        return self.wanted < self.first

    @property
    def resume_at(self) -> int:
        """Where to go on when the user accepts the loss.

        A queue that ends before what was read was made anew, and then it counts from 0 and all of
        it is unread; or its end was cut off in a failover, and then what is left was read already.
        Old brokers told the two apart in the same way.
        """
        return self.first if self.expired or self.first == 0 else self.last

    @property
    def facts(self) -> str:
        """Without advice: for the log of a query that goes on."""
        if self.expired:
            what = f"{self.first - self.wanted} messages were deleted before they were read"
        else:
            what = "the topic was made anew, or its end was lost in a failover"
        return (
            f"{self.queue}: offset {self.wanted} is wanted and {self.first} to {self.last} are "
            f"there, so {what}"
        )

    def __str__(self) -> str:
        return f"{self.facts}; it can go on from {self.resume_at}"


def find_losses(positions: Positions, first: Positions, last: Positions) -> list[DataLoss]:
    """Queues whose next message is not within the broker's limits, as far as these are known."""
    return [
        DataLoss(queue, positions[queue], first[queue], last[queue])
        for queue in sort_queues(positions.keys() & first.keys() & last.keys())
        if not first[queue] <= positions[queue] <= last[queue]
    ]


def skip_losses(losses: Iterable[DataLoss]) -> dict[MessageQueue, int]:
    """For `advance`: where these queues go on, so that a replay does the same."""
    return {loss.queue: loss.resume_at for loss in losses}
