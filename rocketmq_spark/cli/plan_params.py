"""Which options belong to which strategy, and what they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocketmq_spark.cli import plan_input
from rocketmq_spark.core.allocate import NEARBY, Scope, inner_of, strategy_name
from rocketmq_spark.core.rooms import room_finder, room_in_name
from rocketmq_spark.errors import UsageError

_OWNER = {
    "virtual_nodes": "CONSISTENT_HASH",
    "hosts": "FIXED",
    "rooms": "MACHINE_ROOM",
    "config": "CONFIG",
    "inner": NEARBY,
    "member_rooms": NEARBY,
    "broker_rooms": NEARBY,
}
_NEEDED = {
    "FIXED": "hosts 10.0.0.1,10.0.0.2",
    "MACHINE_ROOM": "rooms idc1,idc2",
    "CONFIG": "config plan.json",
    NEARBY: "member-rooms 10.0.1.=idc1,10.0.2.=idc2",
}


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user chose, for any strategy."""

    scope: Scope
    values: Mapping[str, Any]  # parsed, by the name of the option
    hashable: bool  # topic names are known, which CONSISTENT_HASH needs
    weighed: bool  # what each queue holds is known, which BY_LAG needs

    @classmethod
    def of(cls, given: Mapping[str, Any], hashable: bool, weighed: bool) -> Choices:
        values = {name: value for name, value in given.items() if value is not None}
        scope: Scope = values.pop("scope")
        for name in ("hosts", "rooms"):
            if name in values:
                values[name] = plan_input.words(values[name], f"--{name}")
        for name in ("member_rooms", "broker_rooms"):
            if name in values:
                values[name] = plan_input.rooms(values[name], f"--{name.replace('_', '-')}")
        if "config" in values:
            values["config"] = plan_input.assignment(values["config"], "--config")
        return cls(scope, values, hashable, weighed)

    def check(self, strategy: str) -> None:
        """An option that the strategy does not look at is a mistake somewhere."""
        rules = self._rules(strategy)
        for name in self.values:
            if _OWNER[name] not in rules:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(
                    f"{option} belongs to {_OWNER[name]}, not to {rules[0]}; leave it out, or "
                    f"set --strategy {_OWNER[name]}"
                )
        self.params(strategy)

    def weighs(self, strategy: str) -> bool:
        return "BY_LAG" in self._rules(strategy)

    def params(self, strategy: str) -> dict[str, object]:
        """What `allocate` takes."""
        result: dict[str, object] = {}
        for rule in self._rules(strategy):
            needed = _NEEDED.get(rule)
            if needed and needed.split()[0].replace("-", "_") not in self.values:
                raise UsageError(f"{rule} needs --{needed}")
            if rule == "CONSISTENT_HASH" and not self.hashable:
                raise UsageError("CONSISTENT_HASH hashes the topic's name: it needs --topic")
            if rule == "BY_LAG" and not self.weighed:
                raise UsageError("BY_LAG needs --lag broker-a:0=120,broker-b:3=7 without a cluster")
            if rule == NEARBY:
                result |= self._room_functions()
            for name in ("virtual_nodes", "hosts", "rooms", "config", "inner"):
                if _OWNER[name] == rule and name in self.values:
                    result[name] = self.values[name]
        return result

    def _rules(self, strategy: str) -> list[str]:
        """The strategy, and the one inside it."""
        inner = inner_of(strategy, self.values.get("inner"))
        name = strategy_name(strategy, self.values.get("inner"))
        return [NEARBY, inner] if inner else [name]

    def _room_functions(self) -> dict[str, object]:
        brokers = room_finder(self.values.get("broker_rooms", {}), "--broker-rooms", room_in_name)
        members = room_finder(self.values["member_rooms"], "--member-rooms")
        return {"room_of_broker": brokers, "room_of_member": members}
