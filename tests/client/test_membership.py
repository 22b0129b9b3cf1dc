"""A place in a consumer group: how often brokers are told, and what is made of those that fail."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from rocketmq_spark.client.membership import BEAT_SECONDS, Membership
from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.wire.commands import SQL92, Subscription
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.heartbeat import heartbeat
from tests.client.scripted import (
    CUT,
    Handler,
    Network,
    Reply,
    ScriptedStream,
    answer,
    name_server,
)

CLUSTER = {"b-a": {0: "a:0", 1: "a:1"}, "b-b": {0: "b:0"}}
HEARTBEAT = heartbeat("me@1", "g", {"T": Subscription("x > 1", SQL92, 1)})


class Group:
    """Brokers that note who has told them what; `failing` ones answer with an error."""

    def __init__(self) -> None:
        self.network = Network()
        self.network.servers["n:1"] = name_server({}, CLUSTER)
        self.heard: list[str] = []
        self.bodies: list[object] = []
        self.failing: dict[str, Reply] = {}
        self.time = 0.0
        for address in ("a:0", "a:1", "b:0"):
            self.network.servers[address] = self._broker(address)
        pool = self.network.pool()
        self.membership = Membership(
            Metadata("n:1", pool, 5.0), self.network.connect, HEARTBEAT, 5.0, lambda: self.time
        )

    def streams(self) -> list[ScriptedStream]:
        return [stream for address, stream in self.network.streams if address != "n:1"]

    def _broker(self, address: str) -> Handler:
        def handle(request: Frame) -> Iterable[Reply]:
            assert request.code == 34
            if address in self.failing:
                yield self.failing[address]
                return
            self.heard.append(address)
            self.bodies.append(json.loads(bytes(request.body)))
            yield answer()

        return handle


def test_every_broker_is_told_now_and_then() -> None:
    group = Group()
    for _ in range(100):
        group.membership.beat()
        group.time += BEAT_SECONDS / 50
    assert group.heard == ["a:0", "a:1", "b:0"] * 2
    assert repr(group.membership) == "<Membership known to 3 brokers>"


def test_what_is_told() -> None:
    group = Group()
    group.membership.beat()
    told = group.bodies[0]
    assert isinstance(told, dict)
    assert told["clientID"] == "me@1"
    (consumer,) = told["consumerDataSet"]
    assert (consumer["groupName"], consumer["messageModel"]) == ("g", "CLUSTERING")
    (wanted,) = consumer["subscriptionDataSet"]
    assert (wanted["topic"], wanted["subString"]) == ("T", "x > 1")
    assert (wanted["expressionType"], wanted["subVersion"]) == ("SQL92", 1)


@pytest.mark.parametrize("reply", [CUT, answer(1, "not now")], ids=["cut", "refused"])
def test_work_goes_on_when_a_broker_does_not_hear_it(reply: Reply) -> None:
    group = Group()
    group.membership.beat()
    group.failing = {"a:0": reply}
    group.time += BEAT_SECONDS
    group.membership.beat()
    group.failing = {}
    group.time += BEAT_SECONDS
    group.membership.beat()
    assert group.heard == ["a:0", "a:1", "b:0", "a:1", "b:0", "a:0", "a:1", "b:0"]


def test_what_brokers_ask_is_answered_without_a_heartbeat() -> None:
    # `mqadmin consumerStatus` waits for it, and 30 s are too long.
    group = Group()
    group.membership.beat()
    streams = group.streams()
    for number, stream in enumerate(streams):
        stream.push(Frame(307, 70 + number))
    group.membership.beat()
    assert [[reply.opaque for reply in s.replies] for s in streams] == [[70], [71], [72]]
    assert len(group.heard) == 3


def test_a_broker_that_has_hung_up_is_told_soon_on_a_new_connection() -> None:
    group = Group()
    group.membership.beat()
    ended = group.streams()[0]
    ended.end()
    group.membership.beat()
    assert ended.closed
    assert len(group.heard) == 3
    group.time += 5
    group.membership.beat()
    assert group.heard == ["a:0", "a:1", "b:0"] * 2
    assert len(group.streams()) == 4


def test_a_broker_that_always_hangs_up_is_told_now_and_then() -> None:
    group = Group()
    for _ in range(99):
        group.membership.beat()
        for stream in group.streams()[-3:]:
            stream.end()
        group.time += 0.1
    assert group.heard == ["a:0", "a:1", "b:0"] * 2


def test_no_name_server_is_no_heartbeat_for_now() -> None:
    group = Group()
    known = group.network.servers.pop("n:1")
    group.membership.beat()
    group.membership.beat()
    assert group.heard == []
    group.network.servers["n:1"] = known
    group.time += BEAT_SECONDS
    group.membership.beat()
    assert len(group.heard) == 3


def test_leaving_closes_the_connections() -> None:
    group = Group()
    group.membership.beat()
    group.membership.close()
    assert [stream.closed for stream in group.streams()] == [True] * 3
