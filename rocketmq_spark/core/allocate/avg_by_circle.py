"""AVG_BY_CIRCLE: dealt one by one, like cards."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue


def avg_by_circle(queues: Sequence[MessageQueue], members: Sequence[str]) -> Allocation:
    """Shares that differ by at most one, neighbours on different members.

    Five queues q0 to q4 among three members, 2 / 2 / 1:

        first    q0 q3
        second   q1 q4
        third    q2

    RocketMQ's AllocateMessageQueueAveragelyByCircle.
    """
    step = len(members)
    return {member: list(queues[index::step]) for index, member in enumerate(members)}
