"""MACHINE_ROOM: only the queues of named rooms, by broker names of the form `room@name`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import UsageError


def machine_room(
    queues: Sequence[MessageQueue], members: Sequence[str], *, rooms: Collection[str]
) -> Allocation:
    """Even shares of what stands in `rooms`; all other queues have no reader.

    `rooms={"idc1"}`, brokers idc1@b-a, idc1@b-b, idc2@b-c and b-d of three queues each, members
    c1 to c4. Six queues are in the room; each member gets one, then the two left over are dealt:

        c1   a0 b1
        c2   a1 b2
        c3   a2
        c4   b0

    RocketMQ's AllocateMessageQueueByMachineRoom.
    """
    if isinstance(rooms, str):
        raise UsageError(f"rooms is the single text {rooms!r}; pass a list of room names")
    in_room = [queue for queue in queues if _room(queue.broker_name) in rooms]
    size, _ = divmod(len(in_room), len(members))
    shared = size * len(members)
    return {
        member: in_room[index * size : (index + 1) * size]
        + in_room[shared + index : shared + index + 1]
        for index, member in enumerate(members)
    }


def _room(broker_name: str) -> str | None:
    """What is before the one `@`; None if the name has not exactly two parts.

    Java's split drops empty parts at the end, so `idc1@b-a@` is in idc1, and `idc1@` is in none.
    """
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None
