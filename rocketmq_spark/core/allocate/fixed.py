"""FIXED: only members on chosen hosts consume."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rocketmq_spark.core.allocate.avg import avg
from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import UsageError


def fixed(
    queues: Sequence[MessageQueue], members: Sequence[str], *, hosts: Collection[str]
) -> Allocation:
    """AVG among the members whose host, the part of the id before `@`, is one of `hosts`.

    To try a new build on one machine while the group runs. `hosts=["10.0.0.2"]`, five queues:

        10.0.0.1@1#0   -
        10.0.0.2@2#0   q0 q1 q2
        10.0.0.2@2#1   q3 q4

    When none of the hosts is there, nobody reads anything.
    """
    if isinstance(hosts, str):
        raise UsageError(f"hosts is the single text {hosts!r}; pass a list of hosts")
    wanted = frozenset(hosts)
    chosen = [member for member in members if member.partition("@")[0] in wanted]
    result: Allocation = {member: [] for member in members}
    if chosen:
        result.update(avg(queues, chosen))
    return result
