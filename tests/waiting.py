"""How tests wait for other processes: for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

# Far more than anything needs, even with all processors taken.
PATIENCE = 120.0

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = PATIENCE, what: str = "") -> T:
    """The first true answer of `condition`."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(0.05)
    return answer
