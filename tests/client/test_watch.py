"""A request that is lost while others are answered is noticed; what only takes long is not lost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from rocketmq_spark.client import Client, Message, PullSettings, SendSettings
from rocketmq_spark.client.watch import Watch
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.wire.frame import Frame
from tests.client.scripted import (
    Handler,
    LoopbackServer,
    Reply,
    answer,
    name_server,
    route_body,
    to_bytes,
)
from tests.client.test_pull import PullBroker
from tests.client.test_send import Store
from tests.client.test_write import batch

QUEUE = MessageQueue("T", "b-a", 0)
TIMEOUT = 1.0
PULL, SEND = 11, 310


@contextmanager
def client_of(broker: Handler, in_flight: int = 8) -> Iterator[tuple[Client, LoopbackServer]]:
    """A client of a broker with one queue."""
    with LoopbackServer(broker) as server:
        brokers = {"b-a": {0: server.address}}
        routes = {"T": route_body(brokers, queues=1)}
        with (
            LoopbackServer(name_server(routes, brokers)) as names,
            Client(
                names.address,
                timeout=TIMEOUT,
                pull=PullSettings(in_flight=in_flight, patience=30),
                sending=SendSettings(in_flight=in_flight),
            ) as client,
        ):
            yield client, server


# --- the rule -----------------------------------------------------------------------------------


def test_what_is_sent_a_timeout_after_the_oldest_tells_that_it_is_lost() -> None:
    watch, first, second = Watch(0.05), object(), object()
    requests = [object() for _ in range(4)]
    watch.sent(first, requests[0])
    assert watch.later(first) is None
    time.sleep(0.06)
    watch.sent(first, requests[1])
    watch.sent(first, requests[2])
    assert watch.later(first) is requests[1], "the earliest of those that tell"
    assert watch.later(second) is None
    watch.sent(second, requests[3])
    assert watch.later(second) is None, "its time begins now"


# --- lost ---------------------------------------------------------------------------------------


class Loses:
    """A server that does not answer the `which`th request with this code, and takes a moment for
    each that comes after it, until it comes again. There is never silence."""

    def __init__(self, code: int, which: int, moment: float = TIMEOUT / 20) -> None:
        self.lost: object = None
        self.after: list[object] = []
        self._code, self._which, self._moment = code, which, moment
        self.pulls = PullBroker(5000)
        self.store = Store()

    def __call__(self, request: Frame) -> Iterable[Reply]:
        if request.code != self._code:
            yield answer()
            return
        self._which -= 1
        if self._which == 0:
            self.lost = identity(request)
            return
        if self.lost is not None and self.lost not in self.after:
            self.after.append(identity(request))
            time.sleep(self._moment)
        found = self.pulls(request) if request.code == PULL else [self.store.store("b-a", request)]
        yield from found

    @property
    def asked_again_after(self) -> int:
        """How many requests came between the one that was lost and its repetition."""
        return self.after.index(self.lost)


def identity(request: Frame) -> object:
    """The offset that is asked for, or the message that is sent."""
    return request.ext["queueOffset"] if request.code == PULL else bytes(request.body)


@pytest.mark.parametrize("which", [2, 30])
def test_a_pull_that_is_lost(which: int) -> None:
    loses = Loses(PULL, which)
    with client_of(loses) as (client, _):
        assert sum(batch.num_rows for batch in client.read(QUEUE, 0, 5000)) == 5000
    # 20 fit into the timeout, and eight are in flight; some 125 come in all.
    assert loses.asked_again_after < 60


@pytest.mark.parametrize("which", [1, 10])
@pytest.mark.parametrize("moment", [TIMEOUT / 20, TIMEOUT / 1000], ids=["slow", "fast"])
def test_a_message_that_is_lost(which: int, moment: float) -> None:
    loses = Loses(SEND, which, moment)
    # Each travels alone, for it is delayed.
    messages = [Message(b"%d" % n, delay_level=1) for n in range(int(3 * TIMEOUT / moment))]
    with client_of(loses) as (client, _):
        assert all(result.ok for result in client.send("T", messages))
    assert set(loses.store.bodies) == {message.body for message in messages}
    assert loses.asked_again_after < 0.9 * (len(messages) - which)


# --- not lost -----------------------------------------------------------------------------------


def test_a_slow_line_is_no_loss() -> None:
    """Of what is asked for at once, the oldest comes last, and that takes more than a timeout."""
    broker = PullBroker(450)

    def slow(request: Frame) -> Iterable[Reply]:
        if request.code == PULL:
            time.sleep(TIMEOUT / 5)
            yield from broker(request)
        else:
            yield answer()

    with client_of(slow) as (client, server):
        server.arrange = reversed
        assert sum(batch.num_rows for batch in client.read(QUEUE, 0, 450)) == 450
        assert server.accepted == 1
    assert len(broker.pulls) == len(set(broker.pulls))


@pytest.mark.parametrize("away", [0, 1.5 * TIMEOUT], ids=["here", "away"])
def test_answers_that_wait_while_the_caller_is_away_are_heard(away: float) -> None:
    """The second answer overtakes the first, which is too long to be received in one piece."""
    store, held = Store(), []

    def broker(request: Frame) -> Iterable[Reply]:
        if request.code != SEND:
            yield answer()
        elif not store.bodies and not held:
            held.append(request)
        else:
            yield store.store("b-a", request)
            while held:
                late = held.pop()
                frame = store.store("b-a", late)
                frame.ext["msgId"] = "x" * 3_000_000
                yield to_bytes(frame, late)

    rows = [{"body": b"%d" % n, "delayLevel": 1} for n in range(5)]
    with client_of(broker, in_flight=2) as (client, server):
        writer = client.writer("T")
        writer.write(batch(rows[:3]))
        time.sleep(away)
        writer.write(batch(rows[3:]))
        written = writer.close()
        assert (written.rows, written.requests, server.accepted) == (5, 5, 1)
    assert store.bodies == [row["body"] for row in rows]
