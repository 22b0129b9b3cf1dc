"""CONSISTENT_HASH: members on a ring, each queue to the next one clockwise."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence

from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import UsageError


def consistent_hash(
    queues: Sequence[MessageQueue], members: Sequence[str], *, virtual_nodes: int = 10
) -> Allocation:
    """Uneven, but a member that leaves moves only its own queues.

    Queues a0 to a3 and b0 to b3 of topic T on brokers b-a and b-b, members c1 c2 c3:

        c1   a0 a2 b0 b1 b2 b3
        c2   a3
        c3   a1

    Every member stands on the ring `virtual_nodes` times; with 0 nobody does, and nobody gets
    anything. RocketMQ's AllocateMessageQueueConsistentHash with its default hash.
    """
    result: Allocation = {member: [] for member in members}
    ring = _ring(members, virtual_nodes)
    if not ring:
        return result
    positions = sorted(ring)
    owners = [result[ring[position]] for position in positions]
    owners.append(owners[0])  # past the last position the ring begins again
    for queue in queues:
        owners[bisect_left(positions, _position(_queue_text(queue)))].append(queue)
    return result


def _ring(members: Sequence[str], virtual_nodes: int) -> dict[int, str]:
    """Position to member. Where two meet, the later member stays, as in Java's sorted map."""
    if virtual_nodes < 0:
        raise UsageError(f"virtual_nodes is {virtual_nodes}; it must be 0 or more (default 10)")
    return {
        _position(f"{member}-{number}"): member
        for member in members
        for number in range(virtual_nodes)
    }


def _queue_text(queue: MessageQueue) -> str:
    """What Java's MessageQueue.toString says, letter for letter, for it is what is hashed."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def _position(text: str) -> int:
    """The first four bytes of MD5 as an unsigned number. No secret is involved."""
    digest = hashlib.md5(_utf8(text), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair. Java writes a question mark for it; two that meet are a pair.
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return joined.encode("utf-8", "replace")
