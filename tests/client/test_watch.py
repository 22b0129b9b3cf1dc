"""A request that is lost while others are answered: noticed within its own timeout."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pytest

from rocketmq_spark.client import Client, Message, SendSettings
from rocketmq_spark.client.watch import Watch
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.wire.frame import Frame
from tests.client.scripted import LoopbackServer, Reply, answer, name_server, route_body
from tests.client.test_pull import PullBroker
from tests.client.test_send import Store

QUEUE = MessageQueue("T", "b-a", 0)
TIMEOUT = 0.5
# Answers follow each other faster than that, so there is never silence.
BETWEEN = TIMEOUT / 5


def test_the_time_runs_from_when_a_request_is_the_oldest() -> None:
    watch, first, second = Watch(10), object(), object()
    deadline = watch.deadline(first)
    assert 9 < deadline - time.monotonic() <= 10
    time.sleep(0.002)
    assert watch.deadline(first) == deadline
    assert watch.deadline(second) > deadline
    assert watch.deadline(first) > deadline


def test_the_time_before_a_restart_does_not_count() -> None:
    watch, request = Watch(10), object()
    deadline = watch.deadline(request)
    time.sleep(0.002)
    watch.restart()
    assert watch.deadline(request) > deadline


class Loses:
    """A server that does not answer the `which`th request of those codes, and takes its time with
    all that come after it, until it comes again."""

    def __init__(self, which: int, codes: set[int]) -> None:
        self.lost: object = None
        self.after: list[object] = []
        self._which, self._codes = which, codes
        self.pulls = PullBroker(2000)
        self.store = Store()

    def __call__(self, request: Frame) -> Iterable[Reply]:
        if request.code not in self._codes:
            yield answer()
            return
        self._which -= 1
        if self._which == 0:
            self.lost = identity(request)
            return
        if self.lost is not None and self.lost not in self.after:
            self.after.append(identity(request))
            time.sleep(BETWEEN)
        yield from self.pulls(request) if request.code == 11 else [self.store.store("b-a", request)]

    @property
    def asked_again_after(self) -> int:
        """How many requests came between the one that was lost and its repetition."""
        return self.after.index(self.lost)


def identity(request: Frame) -> object:
    """The offset that is asked for, or the message that is sent."""
    return request.ext["queueOffset"] if request.code == 11 else bytes(request.body)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[tuple[Loses, Client]]:
    loses = Loses(*request.param)
    with LoopbackServer(loses) as server:
        brokers = {"b-a": {0: server.address}}
        routes = {"T": route_body(brokers, queues=1)}
        sending = SendSettings(in_flight=4)
        with (
            LoopbackServer(name_server(routes, brokers)) as names,
            Client(names.address, timeout=TIMEOUT, sending=sending) as client,
        ):
            yield loses, client


@pytest.mark.parametrize("broker", [(2, {11}), (9, {11})], indirect=True)
def test_a_pull_that_is_lost(broker: tuple[Loses, Client]) -> None:
    loses, client = broker
    rows = sum(batch.num_rows for batch in client.read(QUEUE, 0, 2000))
    assert rows == 2000
    # 5 fit into the timeout; 60 would, if it were not noticed before all others are answered.
    assert loses.asked_again_after < 20


@pytest.mark.parametrize("broker", [(1, {310}), (6, {310})], indirect=True)
def test_a_message_that_is_lost(broker: tuple[Loses, Client]) -> None:
    loses, client = broker
    # Each travels alone, for it is delayed.
    messages = [Message(b"%d" % number, delay_level=1) for number in range(40)]
    assert all(result.ok for result in client.send("T", messages))
    assert set(loses.store.bodies) == {message.body for message in messages}
    assert loses.asked_again_after < 20
