"""Spark's hooks for reading: a stream reader and a batch reader over one executor side.

A reader is made in several processes and pickled to tasks, so it holds options only; the planner
is made where it is first needed, in the one process that lives as long as the query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from rocketmq_spark.core.offsets import Offsets
from rocketmq_spark.core.options import BATCH, SourceOptions
from rocketmq_spark.core.plan import plan
from rocketmq_spark.core.plan_options import plan_options
from rocketmq_spark.spark.clients import client_for
from rocketmq_spark.spark.facts import Facts
from rocketmq_spark.spark.group import GroupMembers
from rocketmq_spark.spark.members import GROUP, members
from rocketmq_spark.spark.news import let_news_through
from rocketmq_spark.spark.planner import (
    Planner,
    ending_positions,
    log_losses,
    starting_positions,
)
from rocketmq_spark.spark.task import RocketMQPartition, read_partition

try:  # Spark 4.2 and later
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    ADMISSION_CONTROL = True
except ImportError:
    ADMISSION_CONTROL = False
    ReadLimit = SupportsTriggerAvailableNow = object  # type: ignore[misc,assignment]

log = logging.getLogger(__name__)

_NO_LIMIT = 2**63 - 1


class _Reader:
    """What both kinds share."""

    def __init__(self, options: SourceOptions, columns: Sequence[str], members_file: str) -> None:
        self._options = options
        self._columns = list(columns)
        self._members_file = members_file

    def _members(self) -> Callable[[], list[str]]:
        """Who reads, as often as it is asked."""
        options = self._options
        listed = partial(members, options, self._members_file)
        if options.executors.lower() != GROUP:
            return listed
        ask = partial(client_for(options).consumers, options.consumer_group)
        return GroupMembers(options.consumer_group, ask, listed)

    def _facts(self) -> Facts:
        return Facts(client_for(self._options), self._options)

    def read(self, partition: Any) -> Iterator[Any]:
        return read_partition(partition, self._options, self._columns)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options!r}>"


class RocketMQBatchReader(_Reader, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        facts = self._facts()
        bounds = facts.bounds(complete=True)
        starts, losses = starting_positions(self._options, facts, bounds, BATCH)
        log_losses(losses)
        ends = ending_positions(self._options, facts, bounds)
        ends = {queue: max(end, starts[queue]) for queue, end in ends.items()}
        planned = plan(bounds.queues, self._members()(), starts, ends, plan_options(self._options))
        # Spark takes an empty list for a source without partitions, and calls read(None).
        return [RocketMQPartition(p.member, p.ranges) for p in planned.partitions] or [
            RocketMQPartition("", ())
        ]


class RocketMQStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark 4.2 and later give `start` and `limit`; before, the reader remembers where it is."""

    @cached_property
    def _planner(self) -> Planner:
        if not ADMISSION_CONTROL and _limits(self._options):
            # A limited batch would end a Trigger.AvailableNow run early there.
            log.warning("limits per trigger need Spark 4.2 or later and are ignored")
        # The stream's process belongs to this query alone; what it prints goes to the driver's log.
        let_news_through()
        return Planner(self._options, self._facts(), self._members())

    _position: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_planner"}

    def initialOffset(self) -> dict[str, Any]:
        # Called again after a crash in batch 0, so nothing may be looked up here.
        return Offsets.initial().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        if not _limits(self._options):
            return ReadAllAvailable()
        # Any number will do: latestOffset knows the options. But it must differ from the
        # ReadAllAvailable with which Trigger.Once asks for everything.
        return ReadMaxRows(self._options.max_offsets_per_trigger or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.pin()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        known = self._position or Offsets.initial()
        begin = known if start is None else Offsets.parse(start)
        limited = ADMISSION_CONTROL and not isinstance(limit, ReadAllAvailable)
        end = self._planner.advance(begin, limited=limited)
        if end is begin and start is not None:
            return start  # Spark compares texts: the very one it gave means "nothing new"
        return end.to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._position = until = Offsets.parse(end)
        planned = self._planner.partitions(Offsets.parse(start), until)
        return [RocketMQPartition(p.member, p.ranges) for p in planned]

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._planner.report()

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the checkpoint is the truth, and brokers were told by latestOffset."""


def _limits(options: SourceOptions) -> bool:
    return any(
        (
            options.max_offsets_per_trigger,
            options.max_bytes_per_trigger,
            options.min_offsets_per_trigger,
            options.max_timestamp_skew,
        )
    )
