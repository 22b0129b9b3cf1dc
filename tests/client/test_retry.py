"""Trying again: as the error says, until the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from rocketmq_spark.client.retry import retry
from rocketmq_spark.errors import (
    BusyError,
    NoPermissionError,
    RocketMQError,
    TopicNotFoundError,
    UnavailableError,
)


def failing(*errors: RocketMQError) -> tuple[Callable[[], str], list[float]]:
    """Raises these, then succeeds."""
    left, times = list(errors), list[float]()

    def attempt() -> str:
        times.append(time.monotonic())
        if left:
            raise left.pop(0)
        return "done"

    return attempt, times


def soon() -> float:
    return time.monotonic() + 10


def test_success_is_returned_at_once() -> None:
    attempt, times = failing()
    assert retry(attempt, 0.0, lambda: None) == "done"
    assert len(times) == 1


def test_pauses_grow() -> None:
    attempt, times = failing(BusyError("1"), BusyError("2"), BusyError("3"))
    assert retry(attempt, soon(), lambda: None) == "done"
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] >= 0.04
    assert pauses[1] >= 0.09
    assert pauses[2] >= 0.19


def test_what_will_not_pass_is_raised_at_once() -> None:
    attempt, times = failing(NoPermissionError("no"))
    with pytest.raises(NoPermissionError):
        retry(attempt, soon(), lambda: None)
    assert len(times) == 1


def test_the_last_error_is_raised_before_the_deadline() -> None:
    attempt, _ = failing(*(BusyError(str(number)) for number in range(100)))
    deadline = time.monotonic() + 0.3
    with pytest.raises(BusyError, match="2"):
        retry(attempt, deadline, lambda: None)
    assert time.monotonic() < deadline + 0.1


def test_only_errors_about_the_map_refresh_it() -> None:
    refreshed: list[int] = []
    attempt, _ = failing(BusyError("b"), UnavailableError("u"))
    retry(attempt, soon(), lambda: refreshed.append(1))
    assert len(refreshed) == 1


def test_the_map_is_refreshed_also_when_giving_up() -> None:
    # Or the next call would believe the same old route, for as long as it is cached.
    refreshed: list[int] = []
    attempt, _ = failing(TopicNotFoundError("gone"))
    with pytest.raises(TopicNotFoundError):
        retry(attempt, soon(), lambda: refreshed.append(1))
    assert len(refreshed) == 1


def test_other_exceptions_are_not_ours() -> None:
    def attempt() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        retry(attempt, soon(), lambda: None)
