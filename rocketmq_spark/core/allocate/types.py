"""The shape of an answer, shared by all strategies."""

from __future__ import annotations

from rocketmq_spark.core.model import MessageQueue

# Every member is a key, also one that owns nothing.
Allocation = dict[str, list[MessageQueue]]
