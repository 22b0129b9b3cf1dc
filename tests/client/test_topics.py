"""Topics are made and deleted at every master, and name servers are asked or told."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.topics import TopicAdmin
from rocketmq_spark.errors import (
    ConnectError,
    NoPermissionError,
    RocketMQError,
    UnavailableError,
    UsageError,
)
from rocketmq_spark.wire.frame import Frame
from tests.client.scripted import Network, Reply, answer, in_turn, name_server, route_body

CLUSTER = {"b-a": {0: "a:0", 1: "a:1"}, "b-b": {0: "b:0"}}


@pytest.fixture
def network() -> Network:
    network = Network()
    network.servers["n:1"] = name_server({"T": route_body(CLUSTER)}, CLUSTER)
    for address in ("a:0", "a:1", "b:0"):
        network.servers[address] = in_turn(answer())
    return network


class Setup:
    def __init__(self, network: Network, servers: str = "n:1", timeout: float = 5.0) -> None:
        pool = network.pool()
        self.metadata = Metadata(servers, pool, timeout)
        self.topics = TopicAdmin(self.metadata, timeout)


# --- making -----------------------------------------------------------------------------------


def test_create_returns_when_the_name_server_shows_it(network: Network) -> None:
    routes: dict[str, bytes] = {}
    ask = name_server(routes, CLUSTER)
    shown = iter(
        [None, route_body({"b-a": CLUSTER["b-a"]}, queues=2), route_body(CLUSTER, queues=2)]
    )

    def slowly(request: Frame) -> Iterable[Reply]:
        if request.code == 105 and (body := next(shown)):
            routes["new"] = body
        return ask(request)

    network.servers["n:1"] = slowly
    Setup(network).topics.create("new", 2, 2)
    assert network.asked(17) == {"a:0": 1, "b:0": 1}
    assert network.asked(105) == {"n:1": 3}


def test_create_that_never_shows(network: Network) -> None:
    with pytest.raises(UnavailableError, match="cannot find topic new") as caught:
        Setup(network, timeout=1).topics.create("new", 2, 2)
    assert "Check the spelling" not in str(caught.value)


def test_create_on_brokers_there_are_not(network: Network) -> None:
    with pytest.raises(UsageError, match="on b-x: the cluster has b-a, b-b"):
        Setup(network).topics.create("new", 2, 2, brokers=["b-a", "b-x"])
    assert not network.requests(17)


def test_without_masters_nothing_can_be_created(network: Network) -> None:
    network.servers["n:1"] = name_server({}, {"b-a": {1: "a:1"}})
    with pytest.raises(UnavailableError, match="no master"):
        Setup(network).topics.create("new", 2, 2)


# --- deleting ---------------------------------------------------------------------------------


def test_delete_everywhere(network: Network) -> None:
    network.servers["n:2"] = network.servers["n:1"]
    setup = Setup(network, "n:1;n:2")
    setup.topics.delete("T")
    assert network.asked(215) == {"a:0": 1, "b:0": 1}
    assert network.asked(216) == {"n:1": 1, "n:2": 1}
    setup.metadata.route("T")
    assert len(network.requests(105)) == 2  # the route was forgotten


@pytest.mark.parametrize("servers", ["dead:1;n:1", "n:1;dead:1"])
def test_a_dead_name_server_keeps_no_other_from_being_told(network: Network, servers: str) -> None:
    setup = Setup(network, servers)
    with pytest.raises(ConnectError, match="cannot delete topic T: no connection to dead:1"):
        setup.topics.delete("T")
    assert network.asked(215) == {"a:0": 1, "b:0": 1}
    assert network.asked(216) == {"n:1": 1}
    setup.metadata.route("T")
    assert len(network.requests(105)) == 2  # the route was forgotten


@pytest.mark.parametrize("dead", ["a:0", "b:0"])
def test_a_dead_broker_keeps_no_other_from_being_told(network: Network, dead: str) -> None:
    del network.servers[dead]
    with pytest.raises(ConnectError, match=f"cannot delete topic T: no connection to {dead}"):
        Setup(network).topics.delete("T")
    assert sum(network.asked(215).values()) == 1
    assert network.asked(216) == {"n:1": 1}


def test_all_that_failed_are_named(network: Network) -> None:
    del network.servers["a:0"]
    with pytest.raises(RocketMQError) as caught:
        Setup(network, "dead:1;n:1").topics.delete("T")
    assert str(caught.value) == (
        "cannot delete topic T: no connection to a:0: refused; no connection to dead:1: refused. "
        + ConnectError.advice
    )


def test_where_no_broker_deletes_the_route_stays(network: Network) -> None:
    network.servers["a:0"] = network.servers["b:0"] = in_turn(answer(16, "no"))
    with pytest.raises(NoPermissionError, match=r"a:0 answered code 16.*b:0 answered code 16"):
        Setup(network).topics.delete("T")
    assert not network.requests(216)
