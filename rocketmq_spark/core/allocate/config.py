"""CONFIG: what the user wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue


def config(
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    *,
    config: Mapping[str, Sequence[MessageQueue]],
) -> Allocation:
    """Each member's list as it stands, whether or not the topic has these queues.

    `config={"m1": [a0, b0]}` among m1 and m2, whatever the queues:

        m1   a0 b0
        m2   -

    So a queue may have no owner, or two. RocketMQ's AllocateMessageQueueByConfig.
    """
    return {member: list(config.get(member, ())) for member in members}
