"""Queues, ranges and routes."""

from __future__ import annotations

import pytest

from rocketmq_spark.core.model import (
    BrokerData,
    MessageQueue,
    OffsetRange,
    QueueData,
    Route,
    StaticOwner,
)


def test_queues_sort_as_every_rocketmq_client_sorts_them() -> None:
    queues = [
        MessageQueue("t", "b-b", 0),
        MessageQueue("t", "b-a", 10),
        MessageQueue("s", "b-z", 99),
        MessageQueue("t", "b-a", 9),
    ]
    assert [str(q) for q in sorted(queues)] == ["s/b-z/99", "t/b-a/9", "t/b-a/10", "t/b-b/0"]


def test_values_are_frozen_and_hashable() -> None:
    queue = MessageQueue("t", "b", 0)
    assert {queue: 1}[MessageQueue("t", "b", 0)] == 1
    with pytest.raises(AttributeError):
        queue.queue_id = 1  # type: ignore[misc]


def test_a_range_knows_its_length() -> None:
    queue = MessageQueue("t", "b", 0)
    assert len(OffsetRange(queue, 3, 10)) == 7
    assert len(OffsetRange(queue, 10, 3)) == 0
    assert str(OffsetRange(queue, 3, 10)) == "t/b/0[3, 10)"


@pytest.mark.parametrize(
    ("perm", "readable", "writable"),
    [(6, True, True), (4, True, False), (2, False, True), (0, False, False), (7, True, True)],
)
def test_perm_bits(perm: int, readable: bool, writable: bool) -> None:
    data = QueueData("b", 1, 1, perm)
    assert (data.readable, data.writable) == (readable, writable)


def ids(queues: list[MessageQueue]) -> list[tuple[str, int]]:
    return [(q.broker_name, q.queue_id) for q in queues]


ROUTE = Route(
    "t",
    (
        QueueData("b-b", 1, 2, 6),
        QueueData("b-a", 2, 1, 6),
        QueueData("b-c", 1, 1, 4),
        QueueData("b-d", 1, 1, 2),
    ),
    {
        "b-a": BrokerData("c", "b-a", {0: "a:1"}),
        "b-b": BrokerData("c", "b-b", {1: "b:1"}),  # its master is down
        "b-c": BrokerData("c", "b-c", {0: "c:1"}),
        "b-d": BrokerData("c", "b-d", {0: "d:1"}),
    },
)


def test_readable_are_read_queues_even_without_a_master() -> None:
    assert ids(ROUTE.readable_queues()) == [("b-a", 0), ("b-a", 1), ("b-b", 0), ("b-c", 0)]


def test_writable_are_write_queues_of_masters() -> None:
    assert ids(ROUTE.writable_queues()) == [("b-a", 0), ("b-d", 0)]


def test_a_queue_is_served_by_its_own_broker() -> None:
    assert ROUTE.serving_broker(MessageQueue("t", "b-a", 0)) == "b-a"


def test_static_queues_are_served_by_their_owners() -> None:
    first, second = (MessageQueue("t", "__syslo__global__", number) for number in range(2))
    owners = {second: StaticOwner("gone", 2), first: StaticOwner("b-a", 1)}
    route = Route("t", ROUTE.queues, ROUTE.brokers, owners)
    assert route.readable_queues() == [first, second]
    assert route.writable_queues() == [first]  # nobody takes messages for the other
    assert route.serving_broker(first) == "b-a"


def test_a_broker_without_addresses_has_no_master() -> None:
    assert BrokerData("c", "b").master is None
    assert Route("t", (QueueData("b", 1, 1, 6),)).writable_queues() == []
