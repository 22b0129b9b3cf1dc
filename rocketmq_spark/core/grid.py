"""What a picture of a plan shows: members as rows, queues as cells. No colours, no HTML.

The terminal and the web page draw the same grid, so that they never tell different stories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.order import by_topic, sort_queues, sort_strings

if TYPE_CHECKING:
    from rocketmq_spark.core.plan import Plan
    from rocketmq_spark.core.rebalance import Rebalance

# What is written before a queue's id; colour only says it again.
OWNED, ADDED, DROPPED = "", "+", "-"

# More rows than these nobody reads, and a page with 10,000 of them nobody can open.
ROWS = 100
# With more queues than these a cell for each is too wide, and runs of ids say it better.
CELLS = 64
# Runs of ids in one row; CONSISTENT_HASH leaves few neighbours together.
RUNS = 40


@dataclass(frozen=True, slots=True)
class Group:
    """The queues of one topic on one broker: neighbours in every picture."""

    topic: str
    broker_name: str
    queue_ids: tuple[int, ...]
    hue: int  # which colour: one for each broker; with a single broker, one for each topic


@dataclass(frozen=True, slots=True)
class Bundle:
    """Queues of one broker in one text: `+ broker-a 0-3 7`."""

    mark: str
    name: str
    ids: str
    hue: int


@dataclass(frozen=True, slots=True)
class Row:
    """One member: its queues and what happened to each."""

    member: str
    marks: Mapping[MessageQueue, str]
    note: str = ""  # joined, left
    messages: int | None = None

    @property
    def queues(self) -> int:
        """How many it owns now."""
        return sum(mark != DROPPED for mark in self.marks.values())


@dataclass(frozen=True, slots=True)
class Grid:
    """A picture, ready to be drawn."""

    title: str
    summary: str
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    hidden: int  # members that are not shown
    unowned: tuple[MessageQueue, ...] = ()
    changes: bool = False

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(group.topic for group in self.groups))

    @property
    def cells(self) -> int:
        return sum(len(group.queue_ids) for group in self.groups)

    @property
    def weighed(self) -> bool:
        return any(row.messages is not None for row in self.rows)

    def bundles(self, row: Row, most: int = RUNS) -> tuple[list[Bundle], int]:
        """The row where a cell for each queue is too much, and how many queues are left out."""
        hues = {(group.topic, group.broker_name): group.hue for group in self.groups}
        several_topics = len(self.topics) > 1
        result: list[Bundle] = []
        left_out, room = 0, most
        for mark in (DROPPED, OWNED, ADDED):
            queues = sort_queues(queue for queue, its in row.marks.items() if its == mark)
            for (topic, broker), same in groupby(queues, attrgetter("topic", "broker_name")):
                texts = [*runs(queue.queue_id for queue in same)]
                left_out += sum(map(_length, texts[room:]))
                texts = texts[:room]
                room -= len(texts)
                if texts:
                    name = f"{topic}/{broker}" if several_topics else broker
                    result.append(Bundle(mark, name, " ".join(texts), hues[topic, broker]))
        return result, left_out


def plan_grid(plan: Plan, title: str = "", rows: int = ROWS) -> Grid:
    """The plan's members, each with what it owns and how much of it there is to read."""
    loads: Counter[str] = Counter()
    for partition in plan.partitions:
        loads[partition.member] += partition.records
    shown: list[Row] = []
    # Under BROADCASTING all members have one and the same tuple, however long.
    marks: dict[int, dict[MessageQueue, str]] = {}
    for member, queues in islice(plan.assignment.items(), rows):
        if id(queues) not in marks:
            marks[id(queues)] = dict.fromkeys(queues, OWNED)
        messages = loads[member] if plan.partitions else None
        shown.append(Row(member, marks[id(queues)], messages=messages))
    return Grid(
        title=title or plan.strategy,
        summary=_plan_summary(plan),
        groups=_groups(plan.ends),
        rows=tuple(shown),
        hidden=len(plan.assignment) - len(shown),
        unowned=plan.unowned,
    )


def rebalance_grid(change: Rebalance, title: str = "Rebalance", rows: int = ROWS) -> Grid:
    """Members of both plans; those that something happened to come first where all are too many."""
    joined, left = frozenset(change.joined), frozenset(change.left)
    members = list(change.members)
    if len(members) > rows:
        members.sort(key=lambda member: _untouched(change, member))  # stable
        members = sort_strings(members[:rows])
    shown = []
    for member in members:
        parts = change.members[member]
        marks = dict.fromkeys(parts.kept, OWNED)
        marks.update(dict.fromkeys(parts.added, ADDED))
        marks.update(dict.fromkeys(parts.dropped, DROPPED))
        note = "joined" if member in joined else "left" if member in left else ""
        shown.append(Row(member, marks, "" if change.first else note))
    everything = (
        queue
        for parts in change.members.values()
        for queue in chain(parts.kept, parts.added, parts.dropped)
    )
    return Grid(
        title=title,
        summary=_rebalance_summary(change),
        groups=_groups(everything),
        rows=tuple(shown),
        hidden=len(change.members) - len(shown),
        changes=True,
    )


def spread(assignment: Mapping[str, Sequence[MessageQueue]]) -> tuple[int, int]:
    """The fewest and the most queues that a member owns."""
    counts = [len(queues) for queues in assignment.values()] or [0]
    return min(counts), max(counts)


def counted(number: int, noun: str) -> str:
    """`1 queue`, `2,000 queues`"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(name: str) -> str:
    """A name that moves no cursor and turns no line around, whoever chose it."""
    return name if name.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in name)


def runs(queue_ids: Iterable[int]) -> Iterator[str]:
    """`0-3`, `7`: neighbours as one text. Ids come in order."""
    start = last = None
    for number in queue_ids:
        if start is None or last is None or number != last + 1:
            if start is not None:
                yield f"{start}" if start == last else f"{start}-{last}"
            start = number
        last = number
    if start is not None:
        yield f"{start}" if start == last else f"{start}-{last}"


def _length(run: str) -> int:
    start, _, last = run.partition("-")
    return int(last or start) - int(start) + 1


def _groups(queues: Iterable[MessageQueue]) -> tuple[Group, ...]:
    ordered = sort_queues(set(queues))
    brokers = sort_strings({queue.broker_name for queue in ordered})
    by_broker = len(brokers) > 1
    names = brokers if by_broker else [part[0].topic for part in by_topic(ordered)]
    hues = {name: number for number, name in enumerate(names)}
    return tuple(
        Group(
            topic,
            broker,
            tuple(queue.queue_id for queue in same),
            hues[broker if by_broker else topic],
        )
        for (topic, broker), same in groupby(ordered, attrgetter("topic", "broker_name"))
    )


def _untouched(change: Rebalance, member: str) -> bool:
    parts = change.members[member]
    return not (parts.dropped or parts.added)


def _plan_summary(plan: Plan) -> str:
    words = [f"{counted(len(plan.ends), 'queue')} among {counted(len(plan.assignment), 'member')}"]
    if plan.assignment:
        fewest, most = spread(plan.assignment)
        words.append(f"{fewest:,} each" if fewest == most else f"{fewest:,} to {most:,} each")
        idle = sum(not queues for queues in plan.assignment.values())
        words += [f"{idle:,} idle"] if idle else []
    words += [f"{counted(plan.records, 'message')} to read"] if plan.partitions else []
    unowned = len(plan.unowned)
    words += [f"{counted(unowned, 'queue')} without a reader"] if unowned else []
    return ", ".join(words)


def _rebalance_summary(change: Rebalance) -> str:
    counts = f"{change.dropped:,} dropped, {change.kept:,} kept, {change.added:,} added"
    return f"{counted(len(change.moved), 'queue')} moved: {counts}. Why: {change.why}"
