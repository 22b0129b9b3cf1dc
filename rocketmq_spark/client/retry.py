"""One way to try again: until a deadline, with growing pauses, as the error itself advises."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from rocketmq_spark.errors import RocketMQError

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

T = TypeVar("T")


def retry(attempt: Callable[[], T], deadline: float, refresh: Callable[[], None]) -> T:
    """What `attempt` returns. `refresh` is called when an error says that our map is old."""
    pause = FIRST_PAUSE
    while True:
        try:
            return attempt()
        except RocketMQError as error:
            if error.refresh_route:
                refresh()  # also before giving up: the next call is not to believe it either
            if not error.retriable or time.monotonic() + pause >= deadline:
                raise
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
