"""Round robin, and round what has failed or is slow."""

from __future__ import annotations

import pytest

from rocketmq_spark.client.balance import Balancer
from rocketmq_spark.core.model import MessageQueue

QUEUES = [MessageQueue("T", f"b-{name}", number) for name in "abc" for number in range(2)]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def brokers(balancer: Balancer, turns: int = 12, avoid: str = "") -> set[str]:
    return {balancer.next(QUEUES, avoid).broker_name for _ in range(turns)}


def test_round_robin() -> None:
    balancer = Balancer(start=4)
    assert [balancer.next(QUEUES) for _ in range(7)] == [*QUEUES[4:], *QUEUES[:5]]


def test_a_retry_avoids_the_broker_that_failed() -> None:
    assert brokers(Balancer(), avoid="b-a") == {"b-b", "b-c"}
    alone = Balancer()
    assert alone.next(QUEUES[:2], avoid="b-a") in QUEUES[:2]


def test_without_fault_latency_nobody_is_left_out() -> None:
    balancer = Balancer()
    balancer.failed("b-a", reachable=False)
    assert brokers(balancer) == {"b-a", "b-b", "b-c"}
    assert balancer.isolations == 0


@pytest.mark.parametrize(
    ("millis", "seconds"),
    [(10, 0), (99, 0), (549, 0), (550, 2), (1800, 5), (3000, 6), (5000, 10), (15000, 30)],
)
def test_the_table_of_rocketmq(millis: int, seconds: int) -> None:
    clock = Clock()
    balancer = Balancer(True, clock=clock)
    balancer.took("b-a", millis / 1000)
    assert ("b-a" in balancer.isolated) == (seconds > 0)
    if seconds:
        assert brokers(balancer) == {"b-b", "b-c"}
        clock.now += seconds - 0.01
        assert balancer.isolated == {"b-a"}
    clock.now += 0.02
    assert brokers(balancer) == {"b-a", "b-b", "b-c"}


def test_a_failure_counts_as_ten_seconds_and_a_quick_answer_ends_it() -> None:
    clock = Clock()
    balancer = Balancer(True, clock=clock)
    balancer.failed("b-a", reachable=True)
    clock.now += 9.9
    assert balancer.isolated == {"b-a"}
    balancer.took("b-a", 0.01)
    assert balancer.isolated == set()
    assert balancer.isolations == 1


def test_when_all_are_left_out_those_that_can_be_reached_come_first() -> None:
    balancer = Balancer(True, clock=Clock())
    for name in ("b-a", "b-b", "b-c"):
        balancer.failed(name, reachable=name == "b-c")
    assert brokers(balancer) == {"b-c"}
    balancer.failed("b-c", reachable=False)
    assert brokers(balancer) == {"b-a", "b-b", "b-c"}
