"""MACHINE_ROOM_NEARBY: queues to members of their own room, as far as there are any."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.order import sort_strings
from rocketmq_spark.errors import UsageError


def machine_room_nearby(
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    *,
    inner: Callable[[Sequence[MessageQueue], Sequence[str]], Allocation],
    room_of_broker: Callable[[str], str | None],
    room_of_member: Callable[[str], str | None],
) -> Allocation:
    """The inner strategy inside each room; a room without members is shared by all.

    Four queues each on r1-a, r2-a and r3-a, members r1-c1 r1-c2 r2-c1, rooms before the dash,
    AVG inside. Nobody is in r3, so its queues go to all three:

        r1-c1   r1:0 r1:1 r3:0 r3:1
        r1-c2   r1:2 r1:3 r3:2
        r2-c1   r2:0 r2:1 r2:2 r2:3 r3:3

    RocketMQ's AllocateMachineRoomNearby.
    """
    queues_in: dict[str, list[MessageQueue]] = {}
    rooms: dict[str, str] = {}  # asked once for each broker: there are far fewer than queues
    for queue in queues:
        name = queue.broker_name
        if name not in rooms:
            rooms[name] = _known(room_of_broker(name), "room_of_broker", name)
        queues_in.setdefault(rooms[name], []).append(queue)
    members_in: dict[str, list[str]] = {}
    for member in members:
        room = _known(room_of_member(member), "room_of_member", member)
        members_in.setdefault(room, []).append(member)

    result: Allocation = {member: [] for member in members}
    for room, own_members in members_in.items():
        if room in queues_in:
            _extend(result, inner(queues_in[room], own_members))
    for room in sort_strings(queues_in.keys() - members_in.keys()):
        _extend(result, inner(queues_in[room], members))
    return result


def _extend(result: Allocation, more: Allocation) -> None:
    for member, owned in more.items():
        result[member].extend(owned)


def _known(room: str | None, function: str, name: str) -> str:
    if not room:
        raise UsageError(f"{function} gives no room for {name!r}; it must name one for each")
    return room
