"""A stream's planner: from one offset to the next, and from two offsets to input partitions.

It lives in one process for the whole run of a query. What to read is decided when an end offset is
made (`advance`); who reads it is decided when Spark asks for partitions (`partitions`), with the
members of that moment. So a rebalance happens between two batches and moves no offset.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rocketmq_spark.core import trigger
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.offset_json import nested
from rocketmq_spark.core.offsets import (
    DataLoss,
    Offsets,
    Positions,
    advance,
    batch_starts,
    find_losses,
    new_queues,
    resolve,
    skip_losses,
)
from rocketmq_spark.core.options import BATCH, SourceOptions
from rocketmq_spark.core.plan import Partition, Plan, plan
from rocketmq_spark.core.plan_options import plan_options
from rocketmq_spark.core.rebalance import Rebalance, rebalance
from rocketmq_spark.errors import DataLossError, UnavailableError
from rocketmq_spark.spark.facts import Bounds, Facts

log = logging.getLogger(__name__)

Members = Callable[[], list[str]]


class Planner:
    def __init__(
        self,
        options: SourceOptions,
        facts: Facts,
        members: Members,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._facts = facts
        self._members = members
        self._now = now
        self._plan_options = plan_options(options)
        self._assignment: Mapping[str, tuple[MessageQueue, ...]] | None = None
        self._rebalance: Rebalance | None = None
        self._pinned: Positions | None = None
        self._last_batch = now()
        self._mirrored: Positions = {}
        self._reached = Offsets.initial()  # after the batch that was planned last
        self._queues: list[MessageQueue] = []  # that could be read then
        self._losses: list[DataLoss] = []

    # --- from one offset to the next ----------------------------------------------------------

    def pin(self) -> None:
        """Trigger.AvailableNow: what is there now is all that this run reads."""
        self._pinned = self._facts.fresh().last

    def advance(self, start: Offsets, *, limited: bool = True) -> Offsets:
        """The end of the next batch; `start` itself when there is nothing to read."""
        self._mirror(start)
        self._facts.met.update(queue.topic for queue in start.positions)
        bounds = self._facts.patiently(lambda: self._bounds(start))
        begun = self._begun(start, bounds)
        starts = {q: begun.get(q, start.positions.get(q, 0)) for q in bounds.queues}
        ends = trigger.available(starts, bounds.last, self._pinned)
        following = start
        if begun or not start.resolved or self._is_due(starts, ends, limited):
            following = self._follow(start, begun, starts, ends, limited)
        self._reached = following
        return following

    def _follow(
        self, start: Offsets, begun: Positions, starts: Positions, ends: Positions, limited: bool
    ) -> Offsets:
        options = self._plan_options
        if limited:
            ends = self._together(starts, ends)
            options = dataclasses.replace(options, max_records=self._limit(starts, ends))
        planned = plan(starts, self._members(), starts, ends, options, previous=self._assignment)
        following = advance(start, planned.ends, begun)
        if following is not start:
            self._last_batch = self._now()
            self._queues = list(starts)
            self._note(planned)
            log_losses(self._losses)
        return following

    def _bounds(self, start: Offsets) -> Bounds:
        """Of now. A run that has pinned its end must not stop early for want of a broker, and a
        broker that is silent when a query begins must not look like one that came later."""
        bounds = self._facts.bounds(complete=not start.resolved)
        if self._pinned is not None and start.resolved:
            missing = [
                queue
                for queue, end in self._pinned.items()
                if queue not in bounds.last and start.positions.get(queue, 0) < end
            ]
            if missing:
                self._facts.ask_all_again()
                raise UnavailableError(
                    f"{missing[0]} was there when this run of Trigger.AvailableNow began and "
                    "cannot be read now; run it again when its broker is back"
                )
        return bounds

    def _begun(self, start: Offsets, bounds: Bounds) -> dict[MessageQueue, int]:
        """Starts to be recorded: all of them at first, later those of new and of cut queues."""
        if not start.resolved:
            begun, self._losses = starting_positions(self._options, self._facts, bounds)
            return begun
        begun = {queue: bounds.first[queue] for queue in new_queues(start, bounds.queues)}
        # A slave that is behind its master has lost nothing: the master, when it is back, has it.
        sure = {
            queue: at
            for queue, at in start.positions.items()
            if queue.broker_name not in bounds.replicas or at <= bounds.last.get(queue, at)
        }
        self._losses = accepted_losses(self._options, sure, bounds)
        return {**begun, **skip_losses(self._losses)}

    def _is_due(self, starts: Positions, ends: Positions, limited: bool) -> bool:
        count = sum(trigger.waiting(starts, ends).values())
        least = None if self._pinned is not None else self._options.min_offsets_per_trigger
        if not count or not limited:
            return count > 0
        idle = self._now() - self._last_batch
        return trigger.is_due(count, least, idle, self._options.max_trigger_delay)

    def _together(self, starts: Positions, ends: Positions) -> Positions:
        """maxTimestampSkew: no queue further ahead of the slowest than allowed."""
        skew = self._options.max_timestamp_skew
        counts = trigger.waiting(starts, ends)
        if skew is None or len(counts) < 2:
            return ends
        times = [self._facts.stored_at(queue, starts[queue]) for queue in counts]
        until = trigger.horizon((time for time in times if time is not None), skew)
        if until is None:
            return ends
        reached = {queue: self._facts.offset_at(queue, until) for queue in counts}
        return trigger.no_further(starts, ends, reached)

    def _limit(self, starts: Positions, ends: Positions) -> int | None:
        limits = [self._options.max_offsets_per_trigger]
        most = self._options.max_bytes_per_trigger
        counts = trigger.waiting(starts, ends)
        if most is not None and counts:
            sizes = {q: self._facts.typical_size(q, starts[q], ends[q]) for q in counts}
            limits.append(trigger.most_records(counts, sizes, most))
        return trigger.smallest(limits)

    # --- from two offsets to partitions -------------------------------------------------------

    def partitions(self, start: Offsets, end: Offsets) -> tuple[Partition, ...]:
        """Exactly what the two offsets say, shared among the members of now."""
        # A batch of an earlier run is read again: nobody has said yet which queues are there.
        replayed = end != self._reached
        planned = plan(
            end.positions if replayed else self._queues,
            self._members(),
            batch_starts(start, end),
            end.positions,
            self._plan_options,
            previous=self._assignment,
            promised=True,
        )
        if replayed:
            # Spark asks once for each place of a query that reads this stream.
            self._reached, self._queues = end, list(end.positions)
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
        """For StreamingQueryProgress: what is there, how far behind it the batch just planned
        leaves the query, and who reads."""
        bounds = self._facts.bounds()
        behind = trigger.behind(self._reached.positions, bounds.last)
        told: dict[str, Any] = {
            "version": 1,
            "offsets": nested(bounds.last),
            "behindLatest": {"min": behind.least, "max": behind.most, "avg": behind.average},
            "lagMillis": self._lag(behind),
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

    def _lag(self, behind: trigger.Behind) -> int:
        """The age of the oldest message that waits, of the queue with the most waiting."""
        stored = self._facts.stored_at(*behind.fullest) if behind.fullest else None
        return max(0, int(time.time() * 1000) - stored) if stored is not None else 0


# --- users' words -----------------------------------------------------------------------------


def starting_positions(
    options: SourceOptions, facts: Facts, bounds: Bounds, kind: str = ""
) -> tuple[dict[MessageQueue, int], list[DataLoss]]:
    """Where a query without a checkpoint begins, and what is not there any more of what it asked
    for."""
    asked = _asked_positions(options, facts, bounds, kind)
    if isinstance(options.starting_offsets, str | None):
        # Times and groups were asked for after the bounds, and may be beyond them by now.
        sure = {queue: at for queue, at in asked.items() if at <= bounds.last[queue]}
    else:
        sure = asked
    losses = accepted_losses(options, sure, bounds)
    return {**asked, **skip_losses(losses)}, losses


def _asked_positions(
    options: SourceOptions, facts: Facts, bounds: Bounds, kind: str
) -> dict[MessageQueue, int]:
    if options.starting_timestamp is not None:
        return {q: facts.offset_at(q, options.starting_timestamp) for q in bounds.queues}
    if options.starting_offsets_by_timestamp is not None:
        name = "startingOffsetsByTimestamp"
        return _by_time(options.starting_offsets_by_timestamp, name, facts, bounds)
    where = options.starting_offsets or ("earliest" if kind == BATCH else "latest")
    saved = facts.committed(bounds.queues) if where == "group" else None
    found = resolve(where, bounds.queues, bounds.first, bounds.last, committed=saved)
    if where == "latest":
        # The query was there before a topic that it waited for, so all of that is new.
        found.update({q: bounds.first[q] for q in found if q.topic in facts.awaited})
    return found


def accepted_losses(options: SourceOptions, positions: Positions, bounds: Bounds) -> list[DataLoss]:
    """Queues whose next message is gone; an error if the user does not allow it."""
    losses = find_losses(positions, bounds.first, bounds.last)
    if losses and options.fail_on_data_loss:
        more = f" ({len(losses) - 1} more queues like it)" if len(losses) > 1 else ""
        raise DataLossError(f"{losses[0]}{more}", code=21)
    return losses


def log_losses(losses: Iterable[DataLoss]) -> None:
    for loss in losses:
        log.warning("data loss accepted: %s; going on from %d", loss.facts, loss.resume_at)


def ending_positions(
    options: SourceOptions, facts: Facts, bounds: Bounds
) -> dict[MessageQueue, int]:
    """Where a batch query ends."""
    if options.ending_timestamp is not None:
        return {q: facts.offset_at(q, options.ending_timestamp) for q in bounds.queues}
    if options.ending_offsets_by_timestamp is not None:
        name = "endingOffsetsByTimestamp"
        return _by_time(options.ending_offsets_by_timestamp, name, facts, bounds)
    where = options.ending_offsets or "latest"
    found = resolve(where, bounds.queues, bounds.first, bounds.last, option="endingOffsets")
    beyond = {q: end for q, end in found.items() if end > bounds.last[q]}
    accepted_losses(options, beyond, bounds)
    return {queue: min(end, bounds.last[queue]) for queue, end in found.items()}


def _by_time(
    times: Positions, option: str, facts: Facts, bounds: Bounds
) -> dict[MessageQueue, int]:
    found = {q: facts.offset_at(q, t) for q, t in times.items() if q in bounds.first}
    unknown = {q: 0 for q in times if q not in found}
    return resolve({**unknown, **found}, bounds.queues, bounds.first, bounds.last, option=option)
