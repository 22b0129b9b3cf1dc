"""A micro-batch's plan: queues, members and offsets in, input partitions out.

Nothing here asks a broker: every offset is known before, so a plan is arithmetic, and the same
input always gives the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import add

from rocketmq_spark.core.allocate import Scope, allocate_sorted, inner_of, strategy_name
from rocketmq_spark.core.allocate.by_lag import deal_idle
from rocketmq_spark.core.limit import share
from rocketmq_spark.core.model import MessageQueue, OffsetRange
from rocketmq_spark.core.order import distinct_members, distinct_queues
from rocketmq_spark.core.split import Part, cut, level, piece_counts, records
from rocketmq_spark.errors import UsageError

CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"

_Assignment = dict[str, tuple[MessageQueue, ...]]
_Reads = dict[str, list[OffsetRange]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What the user chose; the same for every batch of a query."""

    strategy: str = "AVG"
    scope: Scope = "all"
    # What `allocate` takes for this strategy: hosts, rooms, config, virtual_nodes, inner ...
    # `weights` and `previous` are the planner's own.
    params: Mapping[str, object] = field(default_factory=dict)
    message_model: str = CLUSTERING
    max_records: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None

    def __post_init__(self) -> None:
        # Sharing nothing among nobody checks the strategy's name, its scope and its parameters.
        allocate_sorted(self.strategy, [], [], self.scope, self.params)
        if self.message_model not in (CLUSTERING, BROADCASTING):
            raise UsageError(
                f"messageModel is {self.message_model!r}; it is {CLUSTERING} or {BROADCASTING}"
            )
        for name in ("max_records", "min_partitions", "max_records_per_partition"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class Partition:
    """One task's work: each queue's ranges in offset order, none of them empty."""

    member: str
    ranges: tuple[OffsetRange, ...]

    @property
    def records(self) -> int:
        return records(self.ranges)

    def __str__(self) -> str:
        return f"{self.member}: {' '.join(map(str, self.ranges))}"


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """Who owns what, and what is read of it now."""

    strategy: str
    # Also members and queues with nothing to read. Under BY_LAG a large queue may have several
    # owners, under BROADCASTING every queue has all.
    assignment: Mapping[str, tuple[MessageQueue, ...]]
    partitions: tuple[Partition, ...]
    # Where each queue stands after this batch; its start, where nothing of it is read.
    ends: Mapping[MessageQueue, int]
    # Left out by the strategy: other rooms, hosts that are not there, not in the config.
    unowned: tuple[MessageQueue, ...] = ()

    @property
    def records(self) -> int:
        """What all partitions read; under BROADCASTING a message counts once for each member."""
        return sum(partition.records for partition in self.partitions)

    def __repr__(self) -> str:
        unowned = f", {len(self.unowned)} queues unowned" if self.unowned else ""
        return (
            f"<Plan {self.strategy}: {len(self.ends)} queues among {len(self.assignment)} members, "
            f"{self.records} messages in {len(self.partitions)} partitions{unowned}>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from rocketmq_spark.core.picture import plan_html

        return plan_html(self)


def plan(
    queues: Iterable[MessageQueue],
    members: Iterable[str],
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    options: PlanOptions | None = None,
    *,
    previous: Mapping[str, Sequence[MessageQueue]] | None = None,
    promised: bool = False,
) -> Plan:
    """Share the messages from `starts` to `ends` among the members.

    Every queue needs a start and an end. A queue that the strategy leaves out is not read, and
    its place in `Plan.ends` stays where it is, so nothing is passed over.

    `previous` is the assignment before, for STICKY. `promised` says that the ends are written in
    a checkpoint already: then exactly starts to ends is read, without a limit, and what the
    strategy leaves out (its members may have gone since) is dealt to all members in turn.
    """
    options = options or PlanOptions()
    batch = _Batch(distinct_queues(queues), distinct_members(members))
    batch.learn(starts, ends)
    if promised:
        batch.check_promise(starts, ends)
    else:
        batch.limit = options.max_records
    name = strategy_name(options.strategy, _inner(options))

    unowned: Sequence[MessageQueue] = ()
    if not batch.members:
        batch.sizes = [0] * len(batch.queues)
        return Plan(name, {}, (), batch.stops(), tuple(batch.queues))
    if options.message_model == BROADCASTING:
        batch.apply_limit()
        assignment, partitions = _broadcast(batch, options)
        return Plan(BROADCASTING, assignment, partitions, batch.stops())
    if name == "BY_LAG":
        batch.apply_limit()
        assignment, reads = _by_lag(batch, options.scope)
    else:
        if name.endswith("-BY_LAG"):  # it leaves no queue out, and weighs what the limit leaves
            batch.apply_limit()
        owners = _owners(batch, name, options, previous)
        unowned = [
            queue for queue, owner in zip(batch.queues, owners, strict=True) if owner is None
        ]
        if promised:
            _adopt(owners, len(batch.members))
        batch.sizes = [
            0 if owner is None else size for size, owner in zip(batch.sizes, owners, strict=True)
        ]
        batch.apply_limit()
        assignment, reads = _by_owner(batch, owners)
    return Plan(name, assignment, _partitions(reads, options), batch.stops(), tuple(unowned))


class _Batch:
    """The queues in order, and for each by its number where it starts and how much is read of it.

    Numbers instead of queues as keys, for hashing a queue is what a large plan spends its time on.
    """

    def __init__(self, queues: list[MessageQueue], members: list[str]) -> None:
        self.queues = queues
        self.members = members
        self.starts: list[int] = []
        self.sizes: list[int] = []
        self.limit: int | None = None

    def learn(self, starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> None:
        for queue in self.queues:
            start, end = starts.get(queue), ends.get(queue)
            if start is None or end is None:
                which = "start" if start is None else "end"
                raise UsageError(f"no {which} offset for {queue}; a plan needs both for each queue")
            if start < 0 or end < start:
                raise UsageError(
                    f"{queue} cannot be read from {start} to {end}; "
                    "the end must not be before the start, nor the start below 0"
                )
            self.starts.append(start)
            self.sizes.append(end - start)

    def check_promise(
        self, starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
    ) -> None:
        if any(self.sizes) and not self.members:
            raise UsageError("there are messages to read but no members; set the option executors")
        if len(ends) == len(self.queues):
            return
        known = set(self.queues)
        for queue, end in ends.items():
            if queue not in known and end > starts.get(queue, end):
                raise UsageError(f"{queue} is to be read up to {end} but is not among the queues")

    def apply_limit(self) -> None:
        if self.limit is not None:
            self.sizes = share(self.sizes, self.limit, turn=sum(self.starts))

    def ranges(self, numbers: Iterable[int] | None = None) -> list[OffsetRange]:
        """What is read of these queues, of all by default; the empty ones are left out."""
        return [
            OffsetRange(self.queues[n], self.starts[n], self.starts[n] + self.sizes[n])
            for n in (range(len(self.queues)) if numbers is None else numbers)
            if self.sizes[n]
        ]

    def topics(self) -> list[list[int]]:
        """The numbers of each topic's queues."""
        groups = groupby(range(len(self.queues)), key=lambda n: self.queues[n].topic)
        return [list(numbers) for _, numbers in groups]

    def stops(self) -> dict[MessageQueue, int]:
        return dict(zip(self.queues, map(add, self.starts, self.sizes), strict=True))


# --- who reads it -----------------------------------------------------------------------------


def _inner(options: PlanOptions) -> str | None:
    return inner_of(options.strategy, options.params.get("inner"))


def _owners(
    batch: _Batch,
    name: str,
    options: PlanOptions,
    previous: Mapping[str, Sequence[MessageQueue]] | None,
) -> list[int | None]:
    """Each queue's one reader, by its number; None where the strategy leaves the queue out."""
    params = dict(options.params)
    rule = _inner(options) or name
    if rule == "STICKY":
        params["previous"] = previous
    elif rule == "BY_LAG":
        params["weights"] = dict(zip(batch.queues, batch.sizes, strict=True))
    allocation = allocate_sorted(
        options.strategy, batch.queues, batch.members, options.scope, params
    )
    number = {queue: n for n, queue in enumerate(batch.queues)}
    owners: list[int | None] = [None] * len(batch.queues)
    for taker, (member, queues) in enumerate(allocation.items()):
        for queue in queues:
            n = number.get(queue)
            if n is None:  # a user's CONFIG may name a queue that is not there,
                continue
            other = owners[n]
            if other is not None and other != taker:  # or name one twice
                raise UsageError(
                    f"{name} gives {queue} to both {batch.members[other]} and {member}; "
                    f"give it to one, or set messageModel={BROADCASTING}"
                )
            owners[n] = taker
    return owners


def _adopt(owners: list[int | None], takers: int) -> None:
    """Queues without an owner go to all members in turn."""
    left_out = [n for n, owner in enumerate(owners) if owner is None]
    for turn, n in enumerate(left_out):
        owners[n] = turn % takers


def _by_owner(batch: _Batch, owners: Sequence[int | None]) -> tuple[_Assignment, _Reads]:
    numbers: list[list[int]] = [[] for _ in batch.members]
    for n, owner in enumerate(owners):  # in queue order, whatever order the strategy gave
        if owner is not None:
            numbers[owner].append(n)
    assignment = {}
    reads = {}
    for member, own in zip(batch.members, numbers, strict=True):
        assignment[member] = tuple([batch.queues[n] for n in own])
        reads[member] = batch.ranges(own)
    return assignment, reads


def _by_lag(batch: _Batch, scope: Scope) -> tuple[_Assignment, _Reads]:
    """As the strategy of that name, but a queue too large for one member is cut."""
    owned: list[set[int]] = [set() for _ in batch.members]
    reads: list[list[Part]] = [[] for _ in batch.members]
    for numbers in batch.topics() if scope == "topic" else [range(len(batch.queues))]:
        busy = [n for n in numbers if batch.sizes[n]]
        parts = [(n, batch.starts[n], batch.starts[n] + batch.sizes[n]) for n in busy]
        for taker, dealt in enumerate(level(parts, len(batch.members))):
            reads[taker] += dealt
            owned[taker].update(n for n, _, _ in dealt)
        idle = [n for n in numbers if not batch.sizes[n]]
        for n, taker in zip(idle, deal_idle(len(idle), list(map(len, owned))), strict=True):
            owned[taker].add(n)
    assignment = {}
    result = {}
    for member, own, dealt in zip(batch.members, owned, reads, strict=True):
        assignment[member] = tuple([batch.queues[n] for n in sorted(own)])
        result[member] = [
            OffsetRange(batch.queues[n], start, end) for n, start, end in _joined(sorted(dealt))
        ]
    return assignment, result


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Pieces of one queue that met again are one."""
    result: list[Part] = []
    for part in parts:
        if result and result[-1][0] == part[0] and result[-1][2] == part[1]:
            result[-1] = (part[0], result[-1][1], part[2])
        else:
            result.append(part)
    return result


# --- partitions -------------------------------------------------------------------------------


def _partitions(reads: _Reads, options: PlanOptions) -> tuple[Partition, ...]:
    busy = [(member, ranges) for member, ranges in reads.items() if ranges]
    counts = piece_counts(
        [records(ranges) for _, ranges in busy],
        options.min_partitions,
        options.max_records_per_partition,
    )
    return tuple(
        Partition(member, piece)
        for (member, ranges), count in zip(busy, counts, strict=True)
        for piece in cut(ranges, count)
    )


def _broadcast(batch: _Batch, options: PlanOptions) -> tuple[_Assignment, tuple[Partition, ...]]:
    ranges = batch.ranges()
    pieces: list[tuple[OffsetRange, ...]] = []
    if ranges:
        at_least = -(-(options.min_partitions or 0) // len(batch.members))
        (count,) = piece_counts([records(ranges)], at_least, options.max_records_per_partition)
        pieces = cut(ranges, count)
    everything = tuple(batch.queues)  # one tuple for all: members times queues would be too much
    return (
        dict.fromkeys(batch.members, everything),
        tuple(Partition(member, piece) for member in batch.members for piece in pieces),
    )
