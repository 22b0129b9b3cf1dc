"""How a range is to be read, and what of it."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_spark.wire import commands


@dataclass(frozen=True, slots=True)
class PullSettings:
    """How a range is read."""

    group: str = "rocketmq_spark_reader"
    # About a batch, at 1 KiB a message and 32 to an answer: the broker has the next one to send
    # while we decode one.
    in_flight: int = 192
    largest_pull: int = 1024
    batch_bytes: int = 8 * 1024 * 1024
    # Received and expected bytes together: what 32 answers of 256 KiB (the broker's limit) take
    # beside a batch, and little enough for a process to stay below 200 MB (memory_probe measures).
    window_bytes: int = 16 * 1024 * 1024
    # Without any progress for so long, the last error is raised.
    patience: float = 15.0
    timeout: float = 5.0


@dataclass(frozen=True, slots=True)
class Filter:
    """What the broker selects, and the tags that are compared again here, as it goes by hashes."""

    subscription: commands.Subscription = commands.Subscription()
    tags: frozenset[str] | None = None

    @property
    def selects(self) -> bool:
        return self.subscription.expression != "*"
