"""`executors=group`: executors tell the brokers that they are there, and the planner asks who is.

It is how RocketMQ's own consumers know of each other, and works where nobody can ask Spark for its
executors: through Spark Connect, and on clusters that give no SparkContext. An executor is a member
while it runs tasks; two minutes after the last one brokers forget it, and so they do at once when
its Python process ends.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable

from pyspark import TaskContext

from rocketmq_spark.client import Client
from rocketmq_spark.client.membership import Membership
from rocketmq_spark.core.options import SourceOptions
from rocketmq_spark.errors import RocketMQError
from rocketmq_spark.spark.members import GROUP, Executor, slots

log = logging.getLogger(__name__)

# An executor's id, as brokers list it: `10.0.0.7@4711*4`, with its address, the process that its
# Python workers come from, and how many tasks it runs at once.
_OURS = re.compile(r"(?P<host>.+)@(?P<process>\d+)\*(?P<slots>\d{1,5})")

# How long an answer is believed.
_ASK_SECONDS = 1.0


# --- in a task --------------------------------------------------------------------------------

_memberships: dict[Client, Membership] = {}


def announce(client: Client, options: SourceOptions) -> Callable[[], None]:
    """Tell the brokers that this executor is there; to be called again while the task works.

    All Python workers of an executor use one id, so that it is one member."""
    if options.executors.lower() != GROUP:
        return lambda: None
    membership = _memberships.get(client)
    if membership is None:
        context = TaskContext.get()
        number = task_slots(context.getLocalProperty, context.cpus()) if context else 1
        topics = options.topic or sorted({queue.topic for queue in options.assign or ()})
        membership = client.join(
            options.consumer_group,
            f"{client.own_address()}@{os.getppid()}*{number}",
            topics,
            sub_expression=options.sub_expression,
            sql_expression=options.sql_expression or "",
        )
        _memberships[client] = membership
    membership.beat()
    return membership.beat


def task_slots(conf: Callable[[str], str | None], cpus: int) -> int:
    """How many tasks this executor runs at once, by what the session's settings say."""
    master = conf("spark.master") or ""
    local = re.match(r"local(?:\[(\d+|\*)|-cluster\[\d+,(\d+))?", master)
    told = next((n for n in local.groups() if n), "1") if local else conf("spark.executor.cores")
    if not told and master.startswith(("yarn", "k8s")):
        told = "1"  # their default; others give an executor all of its machine
    cores = int(told) if told and told.isdigit() else os.cpu_count() or 1
    return max(1, cores // max(1, cpus))


# --- in the planner ---------------------------------------------------------------------------


def announced(ids: Iterable[str]) -> list[str]:
    """The slots of those members of a group that are executors of ours."""
    found = (_OURS.fullmatch(name) for name in sorted(ids))
    executors: list[Executor] = [
        (each["host"], each["process"], int(each["slots"])) for each in found if each
    ]
    return slots(executors)


class GroupMembers:
    """Who has announced itself; while nobody has, whom `otherwise` names."""

    def __init__(
        self,
        group: str,
        ask: Callable[[], list[str]],
        otherwise: Callable[[], list[str]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._ask = ask
        self._otherwise = otherwise
        self._now = now
        self._asked = float("-inf")
        self._known: list[str] = []
        self._told = False

    def __call__(self) -> list[str]:
        if self._now() - self._asked >= _ASK_SECONDS:
            try:
                self._known = announced(self._ask())
            except RocketMQError as error:
                # Whoever was there a moment ago will do; the batch itself needs the brokers.
                log.debug("the members of group %s are not known now: %s", self._group, error)
            self._asked = self._now()
        if not self._known and not self._told:
            log.info(
                "no executor has announced itself to group %s yet; planning as with executors=auto",
                self._group,
            )
        self._told = not self._known
        return self._known or self._otherwise()
