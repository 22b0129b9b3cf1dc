"""Apache RocketMQ for Apache Spark, in pure Python.

Public names are loaded when they are first used, so `import rocketmq_spark` needs neither
pyspark nor pyarrow and costs nothing on a machine that only wants one part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rocketmq_spark.client import Client as Client
    from rocketmq_spark.client import Message as Message
    from rocketmq_spark.core.model import MessageQueue as MessageQueue
    from rocketmq_spark.local_cluster import LocalCluster as LocalCluster
    from rocketmq_spark.spark.source import register as register

_HOME = {
    "Client": "rocketmq_spark.client",
    "Message": "rocketmq_spark.client",
    "MessageQueue": "rocketmq_spark.core.model",
    "LocalCluster": "rocketmq_spark.local_cluster",
    "register": "rocketmq_spark.spark.source",
}

__all__ = ["Client", "LocalCluster", "Message", "MessageQueue", "__version__", "register"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'rocketmq_spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
