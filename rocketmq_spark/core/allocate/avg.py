"""AVG: like the pages of a book, each member a run of neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue


def avg(queues: Sequence[MessageQueue], members: Sequence[str]) -> Allocation:
    """Contiguous shares that differ by at most one; the first members get the larger ones.

    Nine queues a0 a1 a2 b0 b1 b2 c0 c1 c2 among four members, 3 / 2 / 2 / 2:

        192.168.0.6@15956   a0 a1 a2
        192.168.0.7@15957   b0 b1
        192.168.0.8@15958   b2 c0
        192.168.0.9@15959   c1 c2

    Ten among three: 4 / 3 / 3. Four among five: 1 / 1 / 1 / 1 and nothing.

    RocketMQ's AllocateMessageQueueAveragely.
    """
    size, larger = divmod(len(queues), len(members))
    result: Allocation = {}
    start = 0
    for index, member in enumerate(members):
        end = start + size + (index < larger)
        result[member] = list(queues[start:end])
        start = end
    return result
