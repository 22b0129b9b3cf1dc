"""Who reads which queue: RocketMQ's strategies by their own names, and three of ours.

`allocate` sorts, checks and dispatches; each rule is a file of its own, a function from sorted
queues and sorted members to what each member owns.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from rocketmq_spark.core.allocate.avg import avg
from rocketmq_spark.core.allocate.avg_by_circle import avg_by_circle
from rocketmq_spark.core.allocate.by_lag import by_lag
from rocketmq_spark.core.allocate.config import config
from rocketmq_spark.core.allocate.consistent_hash import consistent_hash
from rocketmq_spark.core.allocate.fixed import fixed
from rocketmq_spark.core.allocate.machine_room import machine_room
from rocketmq_spark.core.allocate.machine_room_nearby import machine_room_nearby
from rocketmq_spark.core.allocate.sticky import sticky
from rocketmq_spark.core.allocate.types import Allocation
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.order import by_topic, distinct_members, distinct_queues
from rocketmq_spark.errors import UsageError

__all__ = [
    "STRATEGIES",
    "Allocation",
    "Scope",
    "allocate",
    "allocate_sorted",
    "inner_of",
    "strategy_name",
]

Scope = Literal["all", "topic"]

_Rule = Callable[..., Allocation]

NEARBY = "MACHINE_ROOM_NEARBY"
_ROOM_PARAMS = ("room_of_broker", "room_of_member")

_RULES: dict[str, _Rule] = {
    "AVG": avg,
    "AVG_BY_CIRCLE": avg_by_circle,
    "CONSISTENT_HASH": consistent_hash,
    "CONFIG": config,
    "MACHINE_ROOM": machine_room,
    NEARBY: machine_room_nearby,
    "FIXED": fixed,
    "STICKY": sticky,
    "BY_LAG": by_lag,
}

STRATEGIES: tuple[str, ...] = tuple(_RULES)


def allocate(
    strategy: str,
    queues: Iterable[MessageQueue],
    members: Iterable[str],
    *,
    scope: Scope = "all",
    **params: object,
) -> Allocation:
    """Every member and the queues it owns, members in order.

    Nine queues on three brokers among four members, with AVG: 3 / 2 / 2 / 2. Ten among three:
    4 / 3 / 3. Four among five: the last one idles.

    `scope` matters with several topics. RocketMQ balances each topic by itself ("topic"): two
    topics of two queues among four members put everything on the first two members. One list of
    all queues ("all") gives each of the four one queue.

    Queues and members may come in any order. No queues, or no members, gives empty lists.
    """
    return allocate_sorted(
        strategy, distinct_queues(queues), distinct_members(members), scope, params
    )


def allocate_sorted(
    strategy: str,
    queues: list[MessageQueue],
    members: list[str],
    scope: Scope,
    params: Mapping[str, object],
) -> Allocation:
    """`allocate` for a caller who has sorted both, and knows that nothing is there twice."""
    rule = _bind(strategy, params)
    if scope not in ("all", "topic"):
        raise UsageError(f'scope is {scope!r}; it is "all" or "topic"')
    if not queues or not members:
        return {member: [] for member in members}
    # What the user wrote is the whole answer, whichever topics are asked about.
    if scope == "all" or _split_name(strategy)[0] == "CONFIG":
        return rule(queues, members)
    result: Allocation = {member: [] for member in members}
    for topic_queues in by_topic(queues):
        for member, owned in rule(topic_queues, members).items():
            result[member].extend(owned)
    return result


def strategy_name(strategy: str, inner: str | None = None) -> str:
    """The name RocketMQ shows: `MACHINE_ROOM_NEARBY-AVG` for NEARBY with AVG inside."""
    name, _ = _split_name(strategy)
    _rule_named(name)
    inside = inner_of(strategy, inner)
    return f"{name}-{inside}" if inside else name


def inner_of(strategy: str, inner: object = None) -> str | None:
    """The strategy that MACHINE_ROOM_NEARBY runs inside each room; None for all others."""
    name, suffix = _split_name(strategy)
    if name != NEARBY:
        return None
    chosen = suffix[1:] or str(inner or "AVG").upper()
    if inner is not None and str(inner).upper() != chosen:
        raise UsageError(f"{strategy} names its inner strategy already; inner={inner!r} differs")
    if chosen == NEARBY:
        raise UsageError(f"{NEARBY} cannot be its own inner strategy; choose AVG or another one")
    _rule_named(chosen)
    return chosen


def _split_name(strategy: str) -> tuple[str, str]:
    """`MACHINE_ROOM_NEARBY-AVG` as its two parts; any other name has only the first."""
    name = strategy.upper() if isinstance(strategy, str) else str(strategy)
    if name.startswith(NEARBY + "-"):
        return NEARBY, name[len(NEARBY) :]
    return name, ""


def _rule_named(name: str) -> _Rule:
    rule = _RULES.get(name)
    if rule is None:
        near = difflib.get_close_matches(name, STRATEGIES, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(STRATEGIES)}"
        raise UsageError(f"unknown allocation strategy {name!r}; {hint}")
    return rule


def _bind(strategy: str, params: Mapping[str, object]) -> _Rule:
    """The rule with its own parameters, after a check that it has all it needs and no others."""
    name, _ = _split_name(strategy)
    rule = _rule_named(name)
    inner = inner_of(strategy, params.get("inner"))
    if inner is None:
        return _with_params(name, rule, params)
    own = {key: value for key, value in params.items() if key in _ROOM_PARAMS}
    rest = {key: value for key, value in params.items() if key not in (*_ROOM_PARAMS, "inner")}
    return _with_params(name, rule, {**own, "inner": _with_params(inner, _RULES[inner], rest)})


def _with_params(name: str, rule: _Rule, params: Mapping[str, object]) -> _Rule:
    known = {
        key: parameter.default is inspect.Parameter.empty
        for key, parameter in inspect.signature(rule).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for key in params:
        if key not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes no parameters"
            raise UsageError(f"strategy {name} has no parameter {key!r}; {takes}")
    for key, required in known.items():
        if required and params.get(key) is None:
            raise UsageError(f"strategy {name} needs {key}=; its docstring shows an example")
    return lambda queues, members: rule(queues, members, **params)
