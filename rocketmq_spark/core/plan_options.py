"""From the source's options to the planner's."""

from __future__ import annotations

from rocketmq_spark.core.allocate import NEARBY, inner_of, strategy_name
from rocketmq_spark.core.options import SourceOptions
from rocketmq_spark.core.plan import PlanOptions
from rocketmq_spark.core.rooms import room_finder, room_in_name
from rocketmq_spark.errors import UsageError

_NEEDED = {
    "FIXED": ("hosts", "allocate.hosts"),
    "MACHINE_ROOM": ("rooms", "allocate.rooms"),
    "CONFIG": ("config", "allocate.config"),
    NEARBY: ("room_of_member", "allocate.memberRooms"),
}


def plan_options(options: SourceOptions) -> PlanOptions:
    """What the user chose; a strategy without its parameter, or with another's, is refused."""
    params: dict[str, object] = {
        "hosts": options.hosts,
        "rooms": options.rooms,
        "config": options.config,
        "virtual_nodes": options.virtual_nodes,
        "room_of_member": options.member_rooms
        and room_finder(options.member_rooms, "allocate.memberRooms"),
    }
    inner = inner_of(options.strategy)
    rules = [NEARBY, inner] if inner else [strategy_name(options.strategy)]
    for rule in rules:
        param, option = _NEEDED.get(rule, ("", ""))
        if param and params[param] is None:
            raise UsageError(f"allocate.strategy={rule} needs {option}")
    if NEARBY in rules or options.broker_rooms is not None:
        params["room_of_broker"] = room_finder(
            options.broker_rooms or {}, "allocate.brokerRooms", room_in_name
        )
    return PlanOptions(
        strategy=options.strategy,
        scope="topic" if options.scope == "topic" else "all",
        params={name: value for name, value in params.items() if value is not None},
        message_model=options.message_model,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
