"""Which room a name stands in, for MACHINE_ROOM_NEARBY: by how the name begins, or as it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketmq_spark.errors import UsageError


def room_finder(
    known: Mapping[str, str], option: str, otherwise: Callable[[str], str] | None = None
) -> Callable[[str], str]:
    """The room of the longest beginning that fits."""
    longest_first = sorted(known, key=len, reverse=True)

    def room_of(name: str) -> str:
        for start in longest_first:
            if name.startswith(start):
                return known[start]
        room = otherwise(name) if otherwise else ""
        if not room:
            raise UsageError(f"no room is known for {name}; add it: {option} {name}=some-room")
        return room

    return room_of


def room_in_name(broker_name: str) -> str:
    """RocketMQ's own custom for MACHINE_ROOM: `idc1@broker-a` stands in idc1."""
    room, at, _ = broker_name.partition("@")
    return room if at else ""
