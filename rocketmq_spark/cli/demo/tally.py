"""What Spark has counted so far, put together from the changes of each micro-batch."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketmq_spark.cli.demo.orders import TAGS, Total
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.order import sort_queues, sort_strings

Assignment = Mapping[str, tuple[MessageQueue, ...]]


@dataclass(frozen=True)
class Piece:
    """One row of the query: a second's orders of one tag that one member read from one queue."""

    second: float
    tag: str
    queue: MessageQueue
    member: str
    numbers: tuple[int, ...]
    orders: int
    cents: int

    @property
    def key(self) -> tuple[float, str, MessageQueue, str]:
        return self.second, self.tag, self.queue, self.member


class Tally:
    """Told by Spark's thread, read by ours."""

    def __init__(self) -> None:
        self.batch = -1  # none yet
        self.assignment: Assignment = {}  # who read what in that batch
        self.changed = time.monotonic()
        self._pieces: dict[tuple[float, str, MessageQueue, str], Piece] = {}
        self._lock = threading.Lock()

    def take(self, batch: int, changed: Sequence[Piece]) -> None:
        """A row that comes again takes the place of what it was: Spark's output mode `update`."""
        read: dict[str, set[MessageQueue]] = defaultdict(set)
        for piece in changed:
            read[piece.member].add(piece.queue)
        with self._lock:
            self._pieces.update((piece.key, piece) for piece in changed)
            self.batch = batch
            self.changed = time.monotonic()
            self.assignment = {m: tuple(sort_queues(read[m])) for m in sort_strings(read)}

    def totals(self) -> dict[str, Total]:
        orders, cents = dict.fromkeys(TAGS, 0), dict.fromkeys(TAGS, 0)
        for piece in self._all():
            orders[piece.tag] += piece.orders
            cents[piece.tag] += piece.cents
        return {name: Total(orders[name], cents[name]) for name in orders}

    def numbers(self) -> list[int]:
        """Every order as often as it was counted."""
        return [number for piece in self._all() for number in piece.numbers]

    def _all(self) -> list[Piece]:
        with self._lock:
            return list(self._pieces.values())
