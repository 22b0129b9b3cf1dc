"""A real RocketMQ of loopback processes, for tests, demos and benchmarks.

Names are loaded when they are first used, so that `python3 -m rocketmq_spark.local_cluster.java`
and the guard process start with the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketmq_spark.local_cluster.cluster import LocalCluster as LocalCluster
    from rocketmq_spark.local_cluster.jars import resolve as resolve
    from rocketmq_spark.local_cluster.java import find_java as find_java
    from rocketmq_spark.local_cluster.nodes import NodeInfo as NodeInfo

_HOME = {"LocalCluster": "cluster", "NodeInfo": "nodes", "find_java": "java", "resolve": "jars"}

__all__ = ["LocalCluster", "NodeInfo", "find_java", "resolve"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
