"""Which queue a producer takes next: round robin, round what has failed or is slow.

The same rules as RocketMQ's MQFaultStrategy. With fault latency on, a broker that answered slowly
or not at all is left out for a while; if that leaves out all, they are all taken again.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence

from rocketmq_spark.core.model import MessageQueue

# MQFaultStrategy of RocketMQ 5: from this latency on (ms), leave the broker out for so long (ms).
_LATENCY = (50, 100, 550, 1800, 3000, 5000, 15000)
_LEFT_OUT = (0, 0, 2000, 5000, 6000, 10000, 30000)
_FAILURE = 10_000  # what a failed send counts as


class Balancer:
    def __init__(
        self,
        fault_latency: bool = False,
        start: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Producers start anywhere and go round, so that many of them do not march in step.
        self._turn = random.randrange(1 << 16) if start is None else start
        self._fault_latency = fault_latency
        self._clock = clock
        self._left_out: dict[str, float] = {}
        self._unreachable: set[str] = set()
        self.isolations = 0

    def next(self, queues: Sequence[MessageQueue], avoid: str = "") -> MessageQueue:
        """The next queue in turn; not one of the broker `avoid`, if there is another."""
        usable = self.usable(queues, avoid)
        chosen = usable[self._turn % len(usable)]
        self._turn += 1
        return chosen

    def usable(self, queues: Sequence[MessageQueue], avoid: str = "") -> Sequence[MessageQueue]:
        """Those that the rules leave; never none."""
        others = queues
        if avoid:
            others = [q for q in queues if q.broker_name != avoid] or queues
        if not self._left_out:
            return others
        available = [q for q in others if q.broker_name not in self.isolated]
        reachable = [q for q in others if q.broker_name not in self._unreachable]
        return available or reachable or others

    @property
    def isolated(self) -> set[str]:
        now = self._clock()
        return {name for name, until in self._left_out.items() if until > now}

    def took(self, broker_name: str, seconds: float) -> None:
        """A send to this broker was answered after so long."""
        self._unreachable.discard(broker_name)
        self._note(broker_name, seconds * 1000)

    def failed(self, broker_name: str, reachable: bool) -> None:
        if self._fault_latency and not reachable:
            self._unreachable.add(broker_name)
        self._note(broker_name, _FAILURE)

    def _note(self, broker_name: str, millis: float) -> None:
        if not self._fault_latency:
            return
        step = bisect_right(_LATENCY, millis) - 1
        seconds = _LEFT_OUT[step] / 1000 if step >= 0 else 0.0
        if seconds:
            self.isolations += broker_name not in self.isolated
            self._left_out[broker_name] = self._clock() + seconds
        else:
            self._left_out.pop(broker_name, None)
