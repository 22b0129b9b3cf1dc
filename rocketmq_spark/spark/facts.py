"""What the brokers know now, asked no more often than does good.

Spark asks a source for news up to ninety times a second. Here one look at all queues serves every
question for a moment; the moment grows while nothing happens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from rocketmq_spark.client import Client
from rocketmq_spark.client.retry import retry
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.offsets import Positions
from rocketmq_spark.core.options import SourceOptions
from rocketmq_spark.errors import RocketMQError, TopicNotFoundError, UnavailableError, UsageError

T = TypeVar("T")

log = logging.getLogger(__name__)

# Twenty looks a second when there is news, four when there is none.
_SHORTEST = 0.05
_LONGEST = 0.25

# A broker that hangs costs a whole timeout, and others wait for it. So one that did not answer is
# left alone for so many times as long as it has kept us waiting.
_LEFT_ALONE = 4


@dataclass(frozen=True)
class Bounds:
    """First and next offset of every queue that can be read now."""

    first: Positions
    last: Positions
    replicas: frozenset[str] = frozenset()  # brokers whose slave has answered, perhaps behind them

    @property
    def queues(self) -> list[MessageQueue]:
        return list(self.first)


class Facts:
    def __init__(
        self,
        client: Client,
        options: SourceOptions,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._options = options
        self._now = now
        self._bounds: Bounds | None = None
        self._looked = 0.0
        self._moment = _SHORTEST
        self._topics: list[str] = []
        self._discovered = float("-inf")
        self._absent: set[str] = set()  # brokers and topics that were not there last time
        # Brokers that did not answer: why, and until when they are left alone.
        self._silent: dict[str, tuple[RocketMQError, float]] = {}
        self.met: set[str] = set()  # topics that an earlier run has read: they are down, not wrong
        self._stored: dict[MessageQueue, tuple[int, int]] = {}  # the last answer of `stored_at`
        self.awaited: set[str] = set()  # topics that did not exist when the query began

    def bounds(self, *, complete: bool = False) -> Bounds:
        """Of this moment: asked anew, or a moment ago.

        A broker that does not answer is left out; when they are to be `complete`, it is an error.
        """
        old = self._now() - self._looked >= self._moment
        if self._bounds is None or old or (complete and self._absent):
            found = self.patiently(partial(self._look, complete))
            changed = found != self._bounds
            self._moment = _SHORTEST if changed else min(self._moment * 2, _LONGEST)
            self._bounds, self._looked = found, self._now()
        return self._bounds

    def fresh(self) -> Bounds:
        """Asked anew, queues and all; every broker must answer."""
        self._bounds, self._discovered = None, float("-inf")
        return self.bounds(complete=True)

    def ask_all_again(self) -> None:
        """Leave nobody alone: somebody is missed."""
        self._silent, self._looked = {}, float("-inf")

    def offset_at(self, queue: MessageQueue, millis: int) -> int:
        return self.patiently(lambda: self._client.offset_at(queue, millis))

    def committed(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """What the brokers hold of the consumer group; queues without it are left out."""
        group = self._options.consumer_group
        ask = partial(self._client.committed, group)
        found = {queue: self.patiently(partial(ask, queue)) for queue in queues}
        return {queue: offset for queue, offset in found.items() if offset is not None}

    def commit(self, positions: Positions) -> None:
        """Tell the brokers how far the query is. They are only told: a failure is logged."""
        for queue, offset in positions.items():
            try:
                self._client.commit(self._options.consumer_group, queue, offset)
            except RocketMQError as error:
                log.warning("the offset of %s was not mirrored to its broker: %s", queue, error)
                return

    def stored_at(self, queue: MessageQueue, offset: int) -> int | None:
        """When a message was stored, in epoch milliseconds."""
        known_offset, known = self._stored.get(queue, (-1, 0))
        if known_offset == offset:
            return known  # it never changes, and a progress asks for it again and again
        sample = self._sample(queue, offset, offset + 1, "storeTimestamp")
        if sample is None:
            return None
        micros: int = sample.column(0).cast("int64")[0].as_py()
        self._stored[queue] = (offset, micros // 1000)
        return micros // 1000

    def typical_size(self, queue: MessageQueue, start: int, end: int) -> float:
        """Bytes of a body, on average over the next few messages."""
        sample = self._sample(queue, start, min(end, start + 32), "body")
        return sample.nbytes / sample.num_rows if sample is not None else 1.0

    def _sample(self, queue: MessageQueue, start: int, end: int, column: str) -> Any:
        try:
            with closing(self._client.read(queue, start, end, [column])) as reader:
                return next(reader, None)
        except RocketMQError as error:
            log.debug("no sample of %s at %d: %s", queue, start, error)
            return None

    # --- asking -------------------------------------------------------------------------------

    def _look(self, complete: bool) -> Bounds:
        refresh = self._now() - self._discovered >= self._options.discovery_interval
        if refresh:
            self._topics = self._find_topics()
        began = self._now()
        alone = {} if complete else {n: s for n, s in self._silent.items() if s[1] > began}
        self._silent = dict(alone)

        def skip(name: str, error: RocketMQError) -> None:
            nonlocal began
            cost, began = self._now() - began, self._now()
            self._silent[name] = error, began + _LEFT_ALONE * cost

        gone: dict[str, RocketMQError] = {}
        found: dict[MessageQueue, tuple[int, int]] = {}
        replicas: set[str] = set()
        for topic in self._topics:
            try:
                found.update(
                    self._client.topic_offsets(
                        topic,
                        refresh=refresh,
                        skip=None if complete else skip,
                        avoid=self._silent,
                        replicas=replicas,
                    )
                )
            except TopicNotFoundError as error:
                known = self._bounds is not None or topic in self.met
                if not known and self._options.topic_pattern is None:
                    raise
                gone[topic] = error  # deleted; or its last broker is down, which looks the same
        silent = {name: error for name, (error, _) in self._silent.items()}
        if silent and not found:
            self._silent = {}
            raise next(iter(silent.values()))
        self._warn(
            {f"broker {name}": error for name, error in silent.items()}
            | {f"topic {name}": error for name, error in gone.items()}
        )
        if refresh:
            self._discovered = self._now()
        found = self._assigned(found)
        return Bounds(
            {queue: low for queue, (low, _) in found.items()},
            {queue: high for queue, (_, high) in found.items()},
            frozenset(replicas),
        )

    def _warn(self, absent: dict[str, RocketMQError]) -> None:
        """Once for each that has gone: nothing of it is forgotten."""
        for what in absent.keys() - self._absent:
            log.warning("%s is left out until it is back: %s", what, absent[what].message)
        self._absent = set(absent)

    def _find_topics(self) -> list[str]:
        options = self._options
        if options.topic is not None:
            topics = list(options.topic)
        elif options.assign is not None:
            topics = sorted({queue.topic for queue in options.assign})
        else:
            pattern = options.topic_pattern
            assert pattern is not None  # the options were checked
            return [t for t in self._client.topics() if pattern.fullmatch(t)]
        deadline = self._now() + options.wait_for_topic
        while True:
            topic = ""
            try:
                for topic in topics:
                    if topic not in self.met:
                        self._client.queues(topic)
                return topics
            except TopicNotFoundError as error:
                if self._topics:
                    return topics  # it was there: gone for now, or for good
                self.awaited.add(topic)
                if self._now() >= deadline:
                    raise UsageError(
                        f"{error} Or set waitForTopic, to wait until somebody does."
                    ) from error
            time.sleep(0.2)

    def _assigned(
        self, found: dict[MessageQueue, tuple[int, int]]
    ) -> dict[MessageQueue, tuple[int, int]]:
        wanted = self._options.assign
        if wanted is None:
            return found
        missing = [q for q in wanted if q not in found and q.topic not in self.met]
        if missing and self._bounds is None:
            raise UsageError(f"assign names {missing[0]}, which cannot be read now; check its ids")
        return {queue: found[queue] for queue in wanted if queue in found}

    def patiently(self, ask: Callable[[], T]) -> T:
        """Spark ends a query on any exception of its planner, so what may pass is waited for."""
        deadline = time.monotonic() + self._options.timeout * max(1, self._options.retries)

        def attempt() -> T:
            try:
                return ask()
            except TopicNotFoundError as error:
                # It was there when it was looked for; with its last broker it is gone for now.
                raise UnavailableError(error.message) from error

        return retry(attempt, deadline, lambda: None)
