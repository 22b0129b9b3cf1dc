"""How often brokers are asked, and what is made of brokers and topics that are not there.

A client that counts, and a clock that the test turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa
import pytest

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.options import read_options
from rocketmq_spark.errors import ConnectError, RocketMQError, TopicNotFoundError, UsageError
from rocketmq_spark.spark.facts import Facts


class FakeClient:
    """Two brokers with a queue of each topic."""

    def __init__(self, *topics: str) -> None:
        self.existing = set(topics)
        self.end = 10
        self.growing = False
        self.down: set[str] = set()
        self.looks: list[tuple[str, bool]] = []
        self.reads = 0
        self.listed = 0
        self.waited = 0  # for brokers that do not answer
        self.wait: Callable[[], None] = lambda: None

    def topics(self) -> list[str]:
        self.listed += 1
        return sorted(self.existing)

    def queues(self, topic: str) -> list[MessageQueue]:
        if topic not in self.existing:
            raise TopicNotFoundError(f"no topic {topic}", code=17)
        return [MessageQueue(topic, broker, 0) for broker in ("b-a", "b-b")]

    def topic_offsets(
        self,
        topic: str,
        *,
        refresh: bool = False,
        skip: Callable[[str, RocketMQError], None] | None = None,
        avoid: Collection[str] = (),
        replicas: set[str] | None = None,
    ) -> dict[MessageQueue, tuple[int, int]]:
        self.looks.append((topic, refresh))
        self.end += self.growing
        found = {}
        for queue in self.queues(topic):
            if queue.broker_name in avoid:
                continue
            if queue.broker_name not in self.down:
                found[queue] = (0, self.end)
            elif skip is None:
                raise ConnectError(f"{queue.broker_name} does not answer")
            else:
                self.waited += 1
                self.wait()
                skip(queue.broker_name, ConnectError("no answer"))
        return found

    def read(self, queue: MessageQueue, start: int, end: int, columns: list[str]) -> Any:
        self.reads += 1
        stored = pa.array([(1000 + start) * 1000], pa.timestamp("us", "UTC"))
        yield pa.RecordBatch.from_arrays([stored], columns)


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def facts_of(client: FakeClient, **options: str) -> tuple[Facts, Clock]:
    given = {"nameServer": "h:1", "timeout": "50ms", "retries": "1", **options}
    clock = Clock()
    return Facts(client, read_options(given), clock), clock  # type: ignore[arg-type]


def poll(facts: Facts, clock: Clock, seconds: int) -> None:
    """As Spark does."""
    for _ in range(90 * seconds):
        facts.bounds()
        clock.time += 1 / 90


def test_at_most_twenty_looks_a_second_however_much_happens() -> None:
    client = FakeClient("T")
    client.growing = True
    facts, clock = facts_of(client, topic="T")
    poll(facts, clock, seconds=10)
    assert 100 <= len(client.looks) <= 201


def test_fewer_looks_when_nothing_happens() -> None:
    client = FakeClient("T")
    facts, clock = facts_of(client, topic="T")
    poll(facts, clock, seconds=10)
    assert 30 <= len(client.looks) <= 45


def test_news_are_seen_within_a_quarter_of_a_second() -> None:
    client = FakeClient("T")
    facts, clock = facts_of(client, topic="T")
    poll(facts, clock, seconds=5)
    client.end = 11
    clock.time += 0.25
    assert set(facts.bounds().last.values()) == {11}


def test_routes_and_topics_are_asked_for_once_in_an_interval() -> None:
    client = FakeClient("T")
    facts, clock = facts_of(client, topicPattern="T.*", discoveryInterval="5s")
    poll(facts, clock, seconds=19)
    assert client.listed == 4
    assert sum(refresh for _, refresh in client.looks) == 4


def test_a_pattern_finds_a_new_topic_after_the_interval() -> None:
    client = FakeClient("T1", "other")
    facts, clock = facts_of(client, topicPattern="T.", discoveryInterval="5s")
    assert {queue.topic for queue in facts.bounds().queues} == {"T1"}
    client.existing |= {"T2", "T33"}
    clock.time += 4.9
    assert {queue.topic for queue in facts.bounds().queues} == {"T1"}
    clock.time += 0.3
    assert {queue.topic for queue in facts.bounds().queues} == {"T1", "T2"}


def test_a_message_is_asked_for_its_time_once() -> None:
    client = FakeClient("T")
    facts, _ = facts_of(client, topic="T")
    queue = MessageQueue("T", "b-a", 0)
    assert [facts.stored_at(queue, 5) for _ in range(100)] == [1005] * 100
    assert client.reads == 1
    assert facts.stored_at(queue, 6) == 1006


def test_a_silent_broker_is_left_out_for_the_time(caplog: pytest.LogCaptureFixture) -> None:
    client = FakeClient("T")
    facts, clock = facts_of(client, topic="T")
    client.down = {"b-a"}
    poll(facts, clock, seconds=1)
    assert {queue.broker_name for queue in facts.bounds().queues} == {"b-b"}
    assert caplog.text.count("broker b-a is left out") == 1
    client.down = set()
    clock.time += 1
    assert {queue.broker_name for queue in facts.bounds().queues} == {"b-a", "b-b"}


def test_a_broker_that_hangs_does_not_make_the_others_wait() -> None:
    """It costs five seconds to find out, so that is not found out again and again."""
    client = FakeClient("T", "U")
    facts, clock = facts_of(client, topic="T,U")
    client.down = {"b-a"}

    def hang() -> None:
        clock.time += 5.0

    client.wait = hang
    began = clock.time
    poll(facts, clock, seconds=100)
    assert 100 <= clock.time - began <= 130
    assert 4 <= client.waited <= 6  # once for both topics, then left alone for twenty seconds
    assert {queue.broker_name for queue in facts.bounds().queues} == {"b-b"}
    client.down = set()
    clock.time += 21
    assert {queue.broker_name for queue in facts.bounds().queues} == {"b-a", "b-b"}


def test_a_broker_that_is_missed_is_asked_at_once() -> None:
    client = FakeClient("T")
    facts, clock = facts_of(client, topic="T")
    client.down = {"b-a"}

    def hang() -> None:
        clock.time += 5.0

    client.wait = hang
    assert len(facts.bounds().queues) == 1
    client.down = set()
    clock.time += 1
    assert len(facts.bounds().queues) == 1
    facts.ask_all_again()
    assert len(facts.bounds().queues) == 2


def test_a_silent_broker_is_an_error_where_none_may_be_missing() -> None:
    client = FakeClient("T")
    facts, _ = facts_of(client, topic="T")
    client.down = {"b-a"}
    assert len(facts.bounds().queues) == 1  # and this answer is not taken for the other
    with pytest.raises(ConnectError, match="b-a does not answer"):
        facts.bounds(complete=True)


def test_what_passes_is_waited_for() -> None:
    """Spark ends a query on any exception, so brokers that come back in time are no exception."""

    class Restarting(FakeClient):
        def topic_offsets(self, topic: str, **how: Any) -> dict[MessageQueue, tuple[int, int]]:
            found = super().topic_offsets(topic, **how)
            if len(self.looks) == 3:
                self.down = set()
            return found

    client = Restarting("T")
    client.down = {"b-a", "b-b"}
    facts, _ = facts_of(client, topic="T", timeout="20s")
    assert len(facts.bounds().queues) == 2
    assert len(client.looks) == 4


def test_no_broker_at_all_is_an_error() -> None:
    client = FakeClient("T")
    client.down = {"b-a", "b-b"}
    facts, _ = facts_of(client, topic="T")
    with pytest.raises(ConnectError):
        facts.bounds()


def test_a_topic_that_is_missing_is_refused_at_once() -> None:
    facts, _ = facts_of(FakeClient("T"), topic="T,U")
    with pytest.raises(UsageError, match=r"no topic U.*waitForTopic"):
        facts.bounds()


def test_a_topic_is_waited_for_if_the_user_says_so() -> None:
    client = FakeClient("T")

    class Patient(FakeClient):
        def queues(self, topic: str) -> list[MessageQueue]:
            self.listed += 1
            if self.listed > 3:
                self.existing.add("U")
            return super().queues(topic)

    client = Patient("T")
    facts, _ = facts_of(client, topic="T,U", waitForTopic="10m")
    assert {queue.topic for queue in facts.bounds().queues} == {"T", "U"}
    assert facts.awaited == {"U"}


def test_waiting_ends() -> None:
    facts, clock = facts_of(FakeClient("T"), topic="U", waitForTopic="1s")
    clock.time = 0.0

    class Running(Clock):
        def __call__(self) -> float:
            self.time += 0.6
            return self.time

    facts._now = Running()
    with pytest.raises(UsageError, match="no topic U"):
        facts.bounds()


def test_assigned_queues_only() -> None:
    facts, _ = facts_of(FakeClient("T"), assign='{"T":{"b-b":[0]}}')
    assert facts.bounds().queues == [MessageQueue("T", "b-b", 0)]


def test_an_assigned_queue_that_is_not_there_is_refused() -> None:
    facts, _ = facts_of(FakeClient("T"), assign='{"T":{"b-b":[0,7]}}')
    with pytest.raises(UsageError, match="assign names T/b-b/7"):
        facts.bounds()
