"""Several name servers: which is asked, who is passed by, and what is said when none answers."""

from __future__ import annotations

import random

import pytest

from rocketmq_spark.client.metadata import Metadata, parse_name_servers
from rocketmq_spark.client.name_servers import NameServers
from rocketmq_spark.errors import (
    BusyError,
    ConnectError,
    FrameTooLargeError,
    NoPermissionError,
    ResponseError,
    RocketMQError,
    ServerFaultError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Command
from tests.client.scripted import Network, Reply, answer, in_turn, name_server, route_body

ROUTE = route_body({"b-a": {0: "a:0"}})
ASK = Command(105, {"topic": "T"})


@pytest.fixture
def network() -> Network:
    network = Network()
    network.servers["n:1"] = name_server({"T": ROUTE})
    return network


def servers(network: Network, *addresses: str, timeout: float = 5.0) -> NameServers:
    return NameServers(addresses, network.pool(), timeout)


def body(frame: Frame) -> bytes:
    if not frame.body:
        raise ResponseError("there is nothing in it")
    return bytes(frame.body)


def ask(network: Network, *addresses: str, timeout: float = 5.0) -> bytes:
    return servers(network, *addresses, timeout=timeout).ask(ASK, "cannot ask", body)


def test_a_dead_name_server_is_passed_by_and_not_tried_again(network: Network) -> None:
    # Wherever it starts, it ends with the one that lives, and stays there.
    asked = servers(network, "dead:1", "n:1", "dead:2")
    for _ in range(4):
        assert asked.ask(ASK, "cannot ask", body) == ROUTE
    assert len(network.requests(105)) == 4
    assert len([a for a, _ in network.connects if a.startswith("dead")]) <= 2


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        answer(1, "name server not ready"),
        answer(2, "busy"),
        answer(3, "request type not supported"),
        answer(0),
    ],
    ids=["garbage", "not ready", "busy", "not a name server", "answer without content"],
)
def test_one_that_gives_no_answer_is_passed_by(network: Network, bad: Reply) -> None:
    network.servers["bad:1"] = in_turn(bad)
    for seed in range(8):  # it starts anywhere
        random.seed(seed)
        assert ask(network, "bad:1", "n:1") == ROUTE
    assert network.asked(105)["bad:1"]


def test_a_route_that_cannot_be_read_is_asked_of_another(network: Network) -> None:
    network.servers["bad:1"] = name_server({"T": b"<html>"})
    for _ in range(8):
        assert Metadata("bad:1;n:1", network.pool(), 5.0).route("T").topic == "T"
    assert network.asked(105)["bad:1"]


def test_one_that_swallows_packets_gets_its_share_of_the_time_only(network: Network) -> None:
    network.black_holed = {"hole:1", "hole:2"}
    for seed in range(8):  # it starts anywhere
        random.seed(seed)
        network.connects.clear()
        ask(network, "hole:1", "hole:2", "n:1", timeout=6.0)
        # Nobody has waited here, so the shares are a third, a half, and all of the time.
        shares = [share for _, share in network.connects]
        assert shares == pytest.approx([2.0, 3.0, 6.0][: len(shares)], abs=0.5)


def test_none_at_all(network: Network) -> None:
    with pytest.raises(ConnectError) as caught:
        ask(network, "x:1")
    assert str(caught.value) == f"cannot ask: no connection to x:1: refused. {ConnectError.advice}"


def test_each_is_named_with_what_it_did(network: Network) -> None:
    network.servers["n:1"] = in_turn(answer(2, "busy"))
    network.servers["n:2"] = in_turn(b"\xff" * 8)
    with pytest.raises(RocketMQError) as caught:
        ask(network, "n:1", "n:2", "n:3")
    said = caught.value.message
    assert said.startswith("cannot ask: ")
    assert said.count("cannot ask") == 1
    for each in ("n:1 answered code 2: busy", "n:2: a frame of ", "no connection to n:3: refused"):
        assert each in said
    assert caught.value.retriable  # for the busy one may recover, whichever was the last


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b"\xff" * 8, FrameTooLargeError),
        (answer(1, "name server not ready"), ServerFaultError),
        (answer(2, "busy"), BusyError),
        (answer(3, "request type not supported"), UnsupportedRequestError),
        (answer(0), ResponseError),
    ],
)
def test_a_single_one_says_it_itself(
    network: Network, bad: Reply, error: type[RocketMQError]
) -> None:
    network.servers["n:1"] = in_turn(bad)
    with pytest.raises(error, match=r"^cannot ask: n:1") as caught:
        ask(network, "n:1")
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("refusal", "error"),
    [(answer(17, "no route"), TopicNotFoundError), (answer(16, "no"), NoPermissionError)],
)
def test_one_that_answers_with_a_refusal_has_answered(
    network: Network, refusal: Frame, error: type[RocketMQError]
) -> None:
    network.servers["n:1"] = network.servers["n:2"] = in_turn(refusal)
    with pytest.raises(error, match="cannot ask: n:"):
        ask(network, "n:1", "n:2")
    assert len(network.requests(105)) == 1


def test_a_server_that_is_named_twice_is_asked_once() -> None:
    assert parse_name_servers("n:1; n:2;n:1") == ["n:1", "n:2"]
