"""A micro-batch's plan: queues, members and offsets in, input partitions out.

Nothing here asks a broker: every offset is known before, so a plan is arithmetic, and the same
input always gives the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rocketmq_spark.core.allocate import Allocation, Scope, allocate, inner_of, strategy_name
from rocketmq_spark.core.allocate.by_lag import deal_idle
from rocketmq_spark.core.limit import share
from rocketmq_spark.core.model import MessageQueue, OffsetRange
from rocketmq_spark.core.order import by_topic, distinct_members, distinct_queues
from rocketmq_spark.core.split import cut, level, piece_counts, records
from rocketmq_spark.errors import UsageError

CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"

_Ranges = dict[MessageQueue, OffsetRange]


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
        allocate(self.strategy, (), (), scope=self.scope, **self.params)
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
    strategy leaves out (its members may have gone since) is shared by all members with AVG.
    """
    options = options or PlanOptions()
    sorted_queues = distinct_queues(queues)
    sorted_members = distinct_members(members)
    wanted = _ranges(sorted_queues, starts, ends)
    if promised:
        _check_promise(wanted, sorted_members, starts, ends)
    limit = None if promised else options.max_records

    name = strategy_name(options.strategy, _inner(options))
    if not sorted_members:
        held = {queue: part.start for queue, part in wanted.items()}
        return Plan(name, {}, (), held, tuple(sorted_queues))
    if options.message_model == BROADCASTING:
        return _broadcast(sorted_members, _limited(wanted, limit), options)

    unowned: tuple[MessageQueue, ...] = ()
    if name == "BY_LAG":
        wanted = _limited(wanted, limit)
        assignment, reads = _by_lag(wanted, sorted_members, options.scope)
    else:
        # BY_LAG inside rooms owns every queue, so the limit can come first, as its weights need.
        by_weight = name.endswith("-BY_LAG")
        if by_weight:
            wanted = _limited(wanted, limit)
        params = _params(name, options, wanted, previous)
        owned = allocate(
            options.strategy, sorted_queues, sorted_members, scope=options.scope, **params
        )
        owners = _owners(owned, wanted, name)
        unowned = tuple(queue for queue in sorted_queues if queue not in owners)
        if promised:
            _adopt(owners, unowned, sorted_members)
        wanted = _limited(wanted, None if by_weight else limit, owners)
        assignment, reads = _by_owner(owners, wanted, sorted_members)
    stops = {queue: part.end for queue, part in wanted.items()}
    return Plan(name, assignment, _partitions(reads, options), stops, unowned)


# --- what there is to read --------------------------------------------------------------------


def _ranges(
    queues: Sequence[MessageQueue],
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
) -> _Ranges:
    result = {}
    for queue in queues:
        start, end = starts.get(queue), ends.get(queue)
        if start is None or end is None:
            which = "start" if start is None else "end"
            raise UsageError(
                f"no {which} offset for {queue}; resolve every queue's before planning"
            )
        if start < 0 or end < start:
            raise UsageError(
                f"{queue} cannot be read from {start} to {end}; "
                "the end must not be before the start, nor the start below 0"
            )
        result[queue] = OffsetRange(queue, start, end)
    return result


def _check_promise(
    wanted: _Ranges,
    members: Sequence[str],
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
) -> None:
    for queue, end in ends.items():
        if queue not in wanted and end > starts.get(queue, end):
            raise UsageError(f"{queue} is to be read up to {end} but is not among the queues")
    if not members and any(part.end > part.start for part in wanted.values()):
        raise UsageError("there are messages to read but no members; set the option executors")


def _limited(
    wanted: _Ranges, limit: int | None, owners: Mapping[MessageQueue, str] | None = None
) -> _Ranges:
    """The ranges cut back to the limit; those without an owner to nothing."""
    parts = list(wanted.values())
    if owners is not None and len(owners) < len(parts):
        parts = [
            part if part.queue in owners else OffsetRange(part.queue, part.start, part.start)
            for part in parts
        ]
    if limit is not None:
        turn = sum(part.start for part in parts)
        sizes = share([part.end - part.start for part in parts], limit, turn)
        parts = [
            OffsetRange(part.queue, part.start, part.start + size)
            for part, size in zip(parts, sizes, strict=True)
        ]
    return {part.queue: part for part in parts}


# --- who reads it -----------------------------------------------------------------------------


def _inner(options: PlanOptions) -> str | None:
    return inner_of(options.strategy, options.params.get("inner"))


def _params(
    name: str,
    options: PlanOptions,
    wanted: _Ranges,
    previous: Mapping[str, Sequence[MessageQueue]] | None,
) -> dict[str, object]:
    params = dict(options.params)
    rule = _inner(options) or name
    if rule == "STICKY":
        params["previous"] = previous
    elif rule == "BY_LAG":
        params["weights"] = {queue: part.end - part.start for queue, part in wanted.items()}
    return params


def _owners(owned: Allocation, wanted: _Ranges, name: str) -> dict[MessageQueue, str]:
    """Each queue's one reader. Only a user's CONFIG can name two, or a queue that is not there."""
    owners: dict[MessageQueue, str] = {}
    for member, queues in owned.items():
        for queue in queues:
            if queue in wanted and owners.setdefault(queue, member) != member:
                raise UsageError(
                    f"{name} gives {queue} to both {owners[queue]} and {member}; give it to one, "
                    f"or set messageModel={BROADCASTING}"
                )
    return owners


def _adopt(
    owners: dict[MessageQueue, str], unowned: Sequence[MessageQueue], members: Sequence[str]
) -> None:
    for member, queues in allocate("AVG", unowned, members).items():
        owners.update(dict.fromkeys(queues, member))


def _by_owner(
    owners: Mapping[MessageQueue, str], wanted: _Ranges, members: Sequence[str]
) -> tuple[dict[str, tuple[MessageQueue, ...]], dict[str, list[OffsetRange]]]:
    owned: dict[str, list[MessageQueue]] = {member: [] for member in members}
    reads: dict[str, list[OffsetRange]] = {member: [] for member in members}
    for queue, part in wanted.items():  # in queue order, whatever order the strategy gave
        owner = owners.get(queue)
        if owner is not None:
            owned[owner].append(queue)
            if part.end > part.start:
                reads[owner].append(part)
    return {member: tuple(queues) for member, queues in owned.items()}, reads


def _by_lag(
    wanted: _Ranges, members: Sequence[str], scope: Scope
) -> tuple[dict[str, tuple[MessageQueue, ...]], dict[str, list[OffsetRange]]]:
    """As the strategy of that name, but a queue too large for one member is cut."""
    place = {queue: number for number, queue in enumerate(wanted)}
    owned: list[set[MessageQueue]] = [set() for _ in members]
    reads: list[list[OffsetRange]] = [[] for _ in members]
    for group in by_topic(wanted) if scope == "topic" else [list(wanted)]:
        parts = [wanted[queue] for queue in group if len(wanted[queue])]
        idle = [queue for queue in group if not len(wanted[queue])]
        if parts:
            for index, dealt in enumerate(level(parts, len(members))):
                reads[index] += dealt
                owned[index].update(part.queue for part in dealt)
        for queue, index in zip(idle, deal_idle(len(idle), list(map(len, owned))), strict=True):
            owned[index].add(queue)
    return (
        {
            member: tuple(sorted(queues, key=place.__getitem__))
            for member, queues in zip(members, owned, strict=True)
        },
        {
            member: _joined(sorted(parts, key=lambda part: (place[part.queue], part.start)))
            for member, parts in zip(members, reads, strict=True)
        },
    )


def _joined(parts: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Pieces of one queue that met again are one range."""
    result: list[OffsetRange] = []
    for part in parts:
        if result and result[-1].queue == part.queue and result[-1].end == part.start:
            part = OffsetRange(part.queue, result.pop().start, part.end)
        result.append(part)
    return result


# --- partitions -------------------------------------------------------------------------------


def _partitions(
    reads: Mapping[str, Sequence[OffsetRange]], options: PlanOptions
) -> tuple[Partition, ...]:
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


def _broadcast(members: Sequence[str], wanted: _Ranges, options: PlanOptions) -> Plan:
    ranges = [part for part in wanted.values() if part.end > part.start]
    pieces: list[tuple[OffsetRange, ...]] = []
    if ranges:
        at_least = -(-(options.min_partitions or 0) // len(members))
        (count,) = piece_counts([records(ranges)], at_least, options.max_records_per_partition)
        pieces = cut(ranges, count)
    everything = tuple(wanted)  # one tuple for all: members times queues would be too much
    return Plan(
        BROADCASTING,
        dict.fromkeys(members, everything),
        tuple(Partition(member, piece) for member in members for piece in pieces),
        {queue: part.end for queue, part in wanted.items()},
    )
