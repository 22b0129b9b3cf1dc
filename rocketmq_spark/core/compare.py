"""Strategies side by side: the same queues and members, and what each makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_spark.core.grid import spread
from rocketmq_spark.core.plan import Plan
from rocketmq_spark.core.rebalance import Rebalance

# So many members' counts fit in a line.
_COUNTS = 12


@dataclass(frozen=True, slots=True)
class Entry:
    """One strategy: its plan, or why there is none."""

    strategy: str
    plan: Plan | None = None
    change: Rebalance | None = None
    reason: str = ""


def table(entries: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, in words. A strategy without a plan has its name and the reason."""
    weighed = any(entry.plan and entry.plan.partitions for entry in entries)
    moves = any(entry.change is not None for entry in entries)
    headings = ["strategy", "fewest", "most", "idle", "no reader"]
    headings += ["most messages"] if weighed else []
    headings += ["moved"] if moves else []
    headings += ["queues of each member"]
    return headings, [_row(entry, weighed, moves) for entry in entries]


def _row(entry: Entry, weighed: bool, moves: bool) -> list[str]:
    plan = entry.plan
    if plan is None:
        return [entry.strategy, entry.reason]
    fewest, most = spread(plan.assignment)
    counts = [len(queues) for queues in plan.assignment.values()]
    row = [plan.strategy, f"{fewest:,}", f"{most:,}", f"{counts.count(0):,}"]
    row += [f"{len(plan.unowned):,}"]
    row += [f"{_most_messages(plan):,}"] if weighed else []
    row += [f"{len(entry.change.moved):,}" if entry.change is not None else ""] if moves else []
    more = " ..." if len(counts) > _COUNTS else ""
    return [*row, " ".join(f"{count}" for count in counts[:_COUNTS]) + more]


def _most_messages(plan: Plan) -> int:
    loads: Counter[str] = Counter()
    for partition in plan.partitions:
        loads[partition.member] += partition.records
    return max(loads.values(), default=0)
