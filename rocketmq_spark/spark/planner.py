"""A stream's planner: from one offset to the next, and from two offsets to input partitions.

It lives in one process for the whole run of a query. What to read is decided when an end offset is
made (`advance`); who reads it is decided when Spark asks for partitions (`partitions`), with the
members of that moment. So a rebalance happens between two batches and moves no offset.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.offset_json import nested, queue_numbers
from rocketmq_spark.core.offsets import (
    DataLoss,
    Offsets,
    Positions,
    advance,
    batch_starts,
    find_losses,
    new_queues,
    parse_ending_offsets,
    parse_starting_offsets,
    resolve,
    skip_losses,
)
from rocketmq_spark.core.options import BATCH, SourceOptions
from rocketmq_spark.core.plan import Partition, Plan, PlanOptions, plan
from rocketmq_spark.core.rebalance import Rebalance, rebalance
from rocketmq_spark.errors import OffsetOutOfRangeError, UnavailableError
from rocketmq_spark.spark.facts import Bounds, Facts

log = logging.getLogger(__name__)

Members = Callable[[], list[str]]


class Planner:
    def __init__(self, options: SourceOptions, facts: Facts, members: Members) -> None:
        self._options = options
        self._facts = facts
        self._members = members
        self._plan_options = plan_options(options)
        self._assignment: Mapping[str, tuple[MessageQueue, ...]] | None = None
        self._rebalance: Rebalance | None = None
        self._pinned: Positions | None = None
        self._last_batch = time.monotonic()
        self._mirrored: Positions = {}
        self._seen = Offsets.initial()
        self._losses: list[DataLoss] = []

    # --- from one offset to the next ----------------------------------------------------------

    def pin(self) -> None:
        """Trigger.AvailableNow: what is there now is all that this run reads."""
        self._pinned = self._facts.fresh().last

    def advance(self, start: Offsets, *, limited: bool = True) -> Offsets:
        """The end of the next batch; `start` itself when there is nothing to read."""
        self._seen = start
        self._mirror(start)
        bounds = self._facts.patiently(lambda: self._bounds(start))
        begun = self._begun(start, bounds)
        starts = {q: begun.get(q, start.positions.get(q, 0)) for q in bounds.queues}
        ends = self._available(starts, bounds)
        if limited and not self._enough(starts, ends) and start.resolved:
            return start
        options = self._plan_options
        if limited:
            ends = self._together(starts, ends)
            options = dataclasses.replace(options, max_records=self._limit(starts, ends))
        planned = plan(
            bounds.queues, self._members(), starts, ends, options, previous=self._assignment
        )
        following = advance(start, planned.ends, begun)
        if following is not start:
            self._last_batch = time.monotonic()
            for loss in self._losses:
                log.warning("data loss accepted: %s; going on from %d", loss.facts, loss.resume_at)
        return following

    def _bounds(self, start: Offsets) -> Bounds:
        """Of now. A run that has pinned its end must not stop early for want of a broker."""
        bounds = self._facts.bounds()
        if self._pinned is not None and start.resolved:
            missing = [
                queue
                for queue, end in self._pinned.items()
                if queue not in bounds.last and start.positions.get(queue, 0) < end
            ]
            if missing:
                raise UnavailableError(
                    f"{missing[0]} was there when this run of Trigger.AvailableNow began and "
                    "cannot be read now; run it again when its broker is back"
                )
        return bounds

    def _begun(self, start: Offsets, bounds: Bounds) -> dict[MessageQueue, int]:
        """Starts to be recorded: all of them at first, later those of new and of cut queues."""
        self._losses = []
        if not start.resolved:
            return starting_positions(self._options, self._facts, bounds)
        begun = {queue: bounds.first[queue] for queue in new_queues(start, bounds.queues)}
        losses = find_losses(start.positions, bounds.first, bounds.last)
        if losses and self._options.fail_on_data_loss:
            more = f" ({len(losses) - 1} more queues like it)" if len(losses) > 1 else ""
            raise OffsetOutOfRangeError(f"{losses[0]}{more}", code=21)
        self._losses = losses
        return {**begun, **skip_losses(losses)}

    def _available(self, starts: Positions, bounds: Bounds) -> dict[MessageQueue, int]:
        if self._pinned is None:
            return dict(bounds.last)
        # A queue found after the start of an AvailableNow run waits for the next one.
        pinned = self._pinned
        return {q: max(at, min(bounds.last[q], pinned.get(q, at))) for q, at in starts.items()}

    def _enough(self, starts: Positions, ends: Positions) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._pinned is not None:
            return True
        if sum(ends[q] - at for q, at in starts.items()) >= least:
            return True
        return time.monotonic() - self._last_batch >= self._options.max_trigger_delay

    def _together(
        self, starts: Positions, ends: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """maxTimestampSkew: no queue further ahead of the slowest than allowed."""
        skew = self._options.max_timestamp_skew
        waiting = [q for q, at in starts.items() if ends[q] > at]
        if skew is None or len(waiting) < 2:
            return dict(ends)
        times = [t for q in waiting if (t := self._facts.stored_at(q, starts[q])) is not None]
        if not times:
            return dict(ends)
        horizon = min(times) + int(skew * 1000) + 1
        reached = {q: self._facts.offset_at(q, horizon) for q in waiting}
        return {**ends, **{q: max(starts[q], min(ends[q], reached[q])) for q in waiting}}

    def _limit(self, starts: Positions, ends: Positions) -> int | None:
        limits = [self._options.max_offsets_per_trigger]
        most = self._options.max_bytes_per_trigger
        counts = {q: ends[q] - at for q, at in starts.items() if ends[q] > at}
        if most is not None and counts:
            sizes = {q: self._facts.typical_size(q, starts[q], ends[q]) for q in counts}
            total = sum(sizes[q] * count for q, count in counts.items())
            limits.append(max(1, int(sum(counts.values()) * most / max(1.0, total))))
        return min((limit for limit in limits if limit is not None), default=None)

    # --- from two offsets to partitions -------------------------------------------------------

    def partitions(self, start: Offsets, end: Offsets) -> tuple[Partition, ...]:
        """Exactly what the two offsets say, shared among the members of now."""
        starts = batch_starts(start, end)
        planned = plan(
            end.positions,
            self._members(),
            starts,
            end.positions,
            self._plan_options,
            previous=self._assignment,
            promised=True,
        )
        self._note(planned)
        return planned.partitions

    def _note(self, planned: Plan) -> None:
        change = rebalance(self._assignment, planned.assignment)
        if change:
            log.info(
                "rebalance: %d dropped, %d kept, %d added: %s",
                *(change.dropped, change.kept, change.added, change.why),
            )
            self._rebalance = change
        self._assignment = planned.assignment

    # --- what others are told -----------------------------------------------------------------

    def _mirror(self, done: Offsets) -> None:
        """A batch's start has been processed in full, so the brokers may be told of it."""
        if not self._options.commit_offsets or not done.resolved:
            return
        changed = {q: at for q, at in done.positions.items() if self._mirrored.get(q) != at}
        if changed:
            self._facts.commit(changed)
            self._mirrored = done.positions

    def report(self) -> dict[str, Any]:
        """For StreamingQueryProgress: what is there, how far behind we are, who reads what."""
        bounds = self._facts.bounds()
        behind = [
            high - self._seen.positions.get(queue, high) for queue, high in bounds.last.items()
        ]
        told: dict[str, Any] = {
            "version": 1,
            "offsets": nested(bounds.last),
            "behindLatest": {
                "min": min(behind, default=0),
                "max": max(behind, default=0),
                "avg": sum(behind) / len(behind) if behind else 0.0,
            },
            "lagMillis": self._lag(bounds),
            "members": list(self._assignment or {}),
        }
        if self._rebalance is not None:
            told["rebalance"] = {
                "why": self._rebalance.why,
                "dropped": self._rebalance.dropped,
                "kept": self._rebalance.kept,
                "added": self._rebalance.added,
            }
        return told

    def _lag(self, bounds: Bounds) -> int:
        """The age of the oldest message that waits, of the queue with the most waiting."""
        waiting = {
            queue: high - at
            for queue, high in bounds.last.items()
            if (at := self._seen.positions.get(queue, high)) < high
        }
        if not waiting:
            return 0
        fullest = max(waiting, key=waiting.__getitem__)
        stored = self._facts.stored_at(fullest, self._seen.positions[fullest])
        return max(0, int(time.time() * 1000) - stored) if stored is not None else 0


# --- users' words -----------------------------------------------------------------------------


def plan_options(options: SourceOptions) -> PlanOptions:
    params = {
        "hosts": options.hosts,
        "rooms": options.rooms,
        "config": options.config,
        "virtual_nodes": options.virtual_nodes,
    }
    return PlanOptions(
        strategy=options.strategy,
        scope="topic" if options.scope == "topic" else "all",
        params={name: value for name, value in params.items() if value is not None},
        message_model=options.message_model,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )


def starting_positions(
    options: SourceOptions, facts: Facts, bounds: Bounds, kind: str = ""
) -> dict[MessageQueue, int]:
    """Where a query without a checkpoint begins."""
    if options.starting_timestamp is not None:
        return {q: facts.offset_at(q, options.starting_timestamp) for q in bounds.queues}
    if options.starting_offsets_by_timestamp is not None:
        name = "startingOffsetsByTimestamp"
        return _by_time(options.starting_offsets_by_timestamp, name, facts, bounds)
    default = "earliest" if kind == BATCH else "latest"
    where = parse_starting_offsets(options.starting_offsets or default)
    saved = facts.committed(bounds.queues) if where == "group" else None
    return resolve(where, bounds.queues, bounds.first, bounds.last, committed=saved)


def ending_positions(
    options: SourceOptions, facts: Facts, bounds: Bounds
) -> dict[MessageQueue, int]:
    """Where a batch query ends."""
    if options.ending_timestamp is not None:
        return {q: facts.offset_at(q, options.ending_timestamp) for q in bounds.queues}
    if options.ending_offsets_by_timestamp is not None:
        name = "endingOffsetsByTimestamp"
        return _by_time(options.ending_offsets_by_timestamp, name, facts, bounds)
    where = parse_ending_offsets(options.ending_offsets or "latest")
    return resolve(where, bounds.queues, bounds.first, bounds.last, option="endingOffsets")


def _by_time(
    given: Mapping[str, Any], option: str, facts: Facts, bounds: Bounds
) -> dict[MessageQueue, int]:
    times = queue_numbers(given, option, number="a timestamp in milliseconds")
    found = {q: facts.offset_at(q, t) for q, t in times.items() if q in bounds.first}
    unknown = {q: 0 for q in times if q not in found}
    return resolve({**unknown, **found}, bounds.queues, bounds.first, bounds.last, option=option)
