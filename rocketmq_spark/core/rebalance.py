"""What changed between two assignments, member by member, and why.

RocketMQ's words: a member drops queues, keeps queues, and gets queues added. There it costs a
pause, a repetition and a burst; here it is only news, worth one line in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.order import sort_queues, sort_strings

# How many names a sentence may list; after that a number says it better.
_NAMED = 3


class HasAssignment(Protocol):
    """A `Plan`, without knowing it: imports point down."""

    @property
    def assignment(self) -> Mapping[str, tuple[MessageQueue, ...]]: ...


Assignment = Mapping[str, Sequence[MessageQueue]]


@dataclass(frozen=True, slots=True)
class MemberChange:
    """One member's queues: those it lost, those it still has, those that are new."""

    dropped: tuple[MessageQueue, ...] = ()
    kept: tuple[MessageQueue, ...] = ()
    added: tuple[MessageQueue, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Rebalance:
    """The difference of two assignments. True if anything changed."""

    members: Mapping[str, MemberChange]  # all of both, sorted
    joined: tuple[str, ...]
    left: tuple[str, ...]
    queues_added: tuple[MessageQueue, ...]  # nobody owned them before
    queues_removed: tuple[MessageQueue, ...]  # nobody owns them now
    moved: tuple[MessageQueue, ...]  # owned before and after, but not by the same
    first: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.joined or self.left or self.queues_added or self.queues_removed or self.moved
        )

    @property
    def dropped(self) -> int:
        return sum(len(change.dropped) for change in self.members.values())

    @property
    def kept(self) -> int:
        return sum(len(change.kept) for change in self.members.values())

    @property
    def added(self) -> int:
        return sum(len(change.added) for change in self.members.values())

    @property
    def why(self) -> str:
        """`2 members joined (10.0.0.8@2, 10.0.0.9@3), 1 queue removed (T/b-a/7)`"""
        if self.first:
            return "first plan"
        reasons = [
            _reason("member", "joined", self.joined),
            _reason("member", "left", self.left),
            _reason("queue", "added", self.queues_added),
            _reason("queue", "removed", self.queues_removed),
        ]
        # The same members and queues, shared another way.
        otherwise = "other loads or another strategy" if self.moved else "nothing changed"
        return ", ".join(filter(None, reasons)) or otherwise

    def __repr__(self) -> str:
        return (
            f"<Rebalance {len(self.moved)} moved: {self.dropped} dropped, {self.kept} kept, "
            f"{self.added} added; {self.why}>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from rocketmq_spark.core.picture import rebalance_html

        return rebalance_html(self)


def rebalance(
    before: Assignment | HasAssignment | None, after: Assignment | HasAssignment
) -> Rebalance:
    """Compare two plans, or two mappings of members to queues. `before` is None for the first.

    m1 had q0 q1 q2 and m2 had q3; m3 joins and takes q2:

        m1   dropped q2, kept q0 q1
        m2   kept q3
        m3   added q2
    """
    old = _assignment(before)
    new = _assignment(after)
    changes = {
        member: _change(old.get(member, ()), new.get(member, ()))
        for member in sort_strings(old.keys() | new.keys())
    }
    owned_before = {queue for queues in old.values() for queue in queues}
    owned_now = {queue for queues in new.values() for queue in queues}
    touched = {queue for change in changes.values() for queue in change.dropped + change.added}
    return Rebalance(
        members=changes,
        joined=tuple(member for member in changes if member not in old),
        left=tuple(member for member in changes if member not in new),
        queues_added=tuple(sort_queues(owned_now - owned_before)),
        queues_removed=tuple(sort_queues(owned_before - owned_now)),
        moved=tuple(sort_queues(touched & owned_before & owned_now)),
        first=before is None,
    )


def _assignment(plan: Assignment | HasAssignment | None) -> Assignment:
    if plan is None:
        return {}
    return plan if isinstance(plan, Mapping) else plan.assignment


def _change(old: Sequence[MessageQueue], new: Sequence[MessageQueue]) -> MemberChange:
    if old == new:
        return MemberChange(kept=tuple(new))
    before, now = set(old), set(new)
    return MemberChange(
        dropped=tuple(queue for queue in old if queue not in now),
        kept=tuple(queue for queue in new if queue in before),
        added=tuple(queue for queue in new if queue not in before),
    )


def _reason(noun: str, verb: str, names: Sequence[object]) -> str:
    if not names:
        return ""
    plural = "" if len(names) == 1 else "s"
    return f"{len(names)} {noun}{plural} {verb} ({_listed(names)})"


def _listed(names: Iterable[object]) -> str:
    texts = [str(name) for name in names]
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")
