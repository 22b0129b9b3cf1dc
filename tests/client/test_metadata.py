"""Facts from name servers and brokers: routes, masters and slaves, groups, topics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping

import pytest

from rocketmq_spark.client.metadata import Metadata, parse_name_servers, reading_addresses
from rocketmq_spark.core.model import BrokerData, MessageQueue, Route
from rocketmq_spark.errors import (
    BusyError,
    ConnectError,
    NoPermissionError,
    NotLeaderError,
    ResponseError,
    ServerFaultError,
    TopicNotFoundError,
    UnavailableError,
    UsageError,
)
from rocketmq_spark.wire import commands
from rocketmq_spark.wire.frame import Frame
from tests.client.scripted import (
    Handler,
    Network,
    Reply,
    answer,
    in_turn,
    name_server,
    route_body,
)

QUEUE = MessageQueue("T", "b-a", 0)
CLUSTER = {"b-a": {0: "a:0", 1: "a:1"}}


def broker(low: int = 3, high: int = 9, version: int = 493) -> Handler:
    """Knows offsets, and one offset of group g."""
    committed: dict[str, str] = {}

    def handle(request: Frame) -> Iterable[Reply]:
        if request.code == 31:
            yield answer(offset=low)
        elif request.code == 30:
            yield answer(offset=high)
        elif request.code == 29:
            yield answer(offset=5, version=version)
        elif request.code == 15:
            committed[request.ext["consumerGroup"]] = request.ext["commitOffset"]
            yield answer()
        elif request.code == 14:
            found = committed.get(request.ext["consumerGroup"])
            yield answer(offset=found) if found else answer(22, "Not found")
        else:
            yield answer()

    return handle


@pytest.fixture
def network() -> Network:
    network = Network()
    network.servers["n:1"] = name_server({"T": route_body(CLUSTER)}, CLUSTER)
    network.servers["a:0"] = network.servers["a:1"] = broker()
    return network


def metadata(
    network: Network, servers: str = "n:1", timeout: float = 5.0, route_seconds: float = 30.0
) -> Metadata:
    return Metadata(servers, network.pool(), timeout, route_seconds)


# --- name servers -----------------------------------------------------------------------------


def test_name_server_lists() -> None:
    assert parse_name_servers("a:1;b:2, c:3;") == ["a:1", "b:2", "c:3"]
    for wrong in ("", " ; ", "a", "a:1;b"):
        with pytest.raises(UsageError, match="host:port"):
            parse_name_servers(wrong)


# --- routes -----------------------------------------------------------------------------------


def test_a_route_is_asked_for_once_in_a_while(network: Network) -> None:
    facts = metadata(network)
    assert facts.route("T") is facts.route("T")
    assert len(network.requests(105)) == 1
    facts.forget_route("T")
    facts.route("T")
    assert len(network.requests(105)) == 2
    assert repr(facts) == "<Metadata n:1 1 routes>"


def test_an_old_route_is_asked_for_again(network: Network) -> None:
    facts = metadata(network, route_seconds=0.05)
    facts.route("T")
    time.sleep(0.1)
    facts.route("T")
    assert len(network.requests(105)) == 2


def test_a_missing_topic_is_not_remembered(network: Network) -> None:
    routes: dict[str, bytes] = {}
    network.servers["n:1"] = name_server(routes)
    facts = metadata(network)
    with pytest.raises(TopicNotFoundError):
        facts.route("new")
    routes["new"] = route_body(CLUSTER)
    assert facts.route("new").topic == "new"


def test_a_route_in_fastjsons_dialect(network: Network) -> None:
    body = route_body(CLUSTER, standard=False)
    assert b'{0: "a:0"' in body
    network.servers["n:1"] = name_server({"T": body})
    assert metadata(network).route("T").brokers["b-a"].master == "a:0"


def test_a_route_that_is_none(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": b"<html>"})
    with pytest.raises(ResponseError, match="cannot find topic T: n:1: the route of topic T"):
        metadata(network).route("T")


def test_a_broker_registered_with_an_ipv6_address(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "fe80::1:10911"}})})
    network.servers["fe80::1:10911"] = broker()
    assert metadata(network).offsets(QUEUE) == (3, 9)


@pytest.mark.parametrize("address", ["", "nowhere", ":10911", "h:", "h:x", "h:65536"])
def test_a_broker_registered_with_what_is_no_address(network: Network, address: str) -> None:
    cluster = {"b-a": {0: "a:0"}, "b-b": {0: address}}
    network.servers["n:1"] = name_server({"T": route_body(cluster)}, cluster)
    # It is no obstacle to what the others can do.
    facts = metadata(network)
    assert facts.offsets(QUEUE) == (3, 9)
    assert [each.broker_name for each in facts.brokers()] == ["b-a", "b-b"]


# --- masters and slaves -----------------------------------------------------------------------


def test_offsets_come_from_the_master(network: Network) -> None:
    assert metadata(network).offsets(QUEUE) == (3, 9)
    assert network.asked(30, 31) == {"a:0": 2}


def test_offsets_below_zero_mean_an_empty_queue(network: Network) -> None:
    network.servers["a:0"] = broker(low=-1, high=-1)
    assert metadata(network).offsets(QUEUE) == (0, 0)


def test_when_the_master_is_gone_the_slave_is_asked(network: Network) -> None:
    del network.servers["a:0"]
    network.servers["a:1"] = broker(4, 8)
    assert metadata(network).offsets(QUEUE) == (4, 8)


def test_a_master_that_swallows_packets_leaves_time_for_the_slave(network: Network) -> None:
    network.black_holed.add("a:0")
    assert metadata(network, timeout=4.0).offsets(QUEUE) == (3, 9)
    given = [share for address, share in network.connects if address == "a:0"]
    assert given
    assert max(given) < 2.5


def test_a_slave_alone_is_asked(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {1: "a:1"}})})
    assert metadata(network).offsets(QUEUE) == (3, 9)


def test_the_slaves_no_such_topic_proves_nothing(network: Network) -> None:
    # The master is out of reach and the slave has not heard of the topic yet: that is trouble
    # with the network, to be tried again, and not a missing topic.
    network.servers["a:1"] = in_turn(answer(17, "topic[T] not exist"))
    network.black_holed.add("a:0")
    with pytest.raises(ConnectError, match="a:0"):
        metadata(network, timeout=0.5).offsets(QUEUE)
    assert network.asked(31)["a:1"] > 1


def test_the_masters_no_such_topic_is_believed(network: Network) -> None:
    network.servers["a:0"] = network.servers["a:1"] = in_turn(answer(17, "topic[T] not exist"))
    facts = metadata(network)
    with pytest.raises(TopicNotFoundError, match="a:0 answered code 17"):
        facts.offsets(QUEUE)
    # And the route that sent us there is not believed any more.
    with pytest.raises(TopicNotFoundError):
        facts.offsets(QUEUE)
    assert len(network.requests(105)) == 2


def test_a_busy_broker_is_asked_again(network: Network) -> None:
    network.servers["a:0"] = in_turn(answer(2, "busy"), answer(offset=1), answer(offset=2))
    assert metadata(network).offsets(QUEUE) == (1, 2)
    assert len(network.requests(105)) == 1


def test_a_broker_that_stays_busy_is_given_up_in_time(network: Network) -> None:
    network.servers["a:0"] = in_turn(answer(2, "busy"))
    began = time.monotonic()
    with pytest.raises(BusyError, match="cannot ask the offsets of T/b-a/0: a:0"):
        metadata(network, timeout=1).offsets(QUEUE)
    assert time.monotonic() - began < 20


def test_a_broker_that_moved_is_found_again(network: Network) -> None:
    routes = {"T": route_body({"b-a": {0: "old:0"}})}
    network.servers["n:1"] = name_server(routes)

    def moved(request: Frame) -> Iterable[Reply]:
        routes["T"] = route_body({"b-a": {0: "a:0"}})
        yield answer(14, "shutting down")

    network.servers["old:0"] = moved
    assert metadata(network).offsets(QUEUE) == (3, 9)


def test_a_refusal_is_final(network: Network) -> None:
    network.servers["a:0"] = in_turn(answer(16, "no matched policies"))
    with pytest.raises(NoPermissionError):
        metadata(network).offsets(QUEUE)
    assert len(network.requests(31)) == 1


def test_an_answer_without_its_field(network: Network) -> None:
    network.servers["a:0"] = in_turn(answer())
    with pytest.raises(
        ResponseError, match="cannot ask the offsets of T/b-a/0: a:0: the answer's field offset"
    ):
        metadata(network).offsets(QUEUE)


def test_a_queue_that_is_in_no_route(network: Network) -> None:
    with pytest.raises(UnavailableError, match="T/b-z/0 is not in the route"):
        metadata(network, timeout=1).offsets(MessageQueue("T", "b-z", 0))


@pytest.mark.parametrize("number", [4, 99, -1])
def test_a_queue_beyond_those_of_its_broker_is_not_asked_for(network: Network, number: int) -> None:
    # A broker would answer (0, 0), and make that queue.
    with pytest.raises(UnavailableError, match=f"T/b-a/{number} is not in the route"):
        metadata(network, timeout=0.5).offsets(MessageQueue("T", "b-a", number))
    assert not network.requests(30, 31)


def test_a_queue_that_is_younger_than_the_route_we_know(network: Network) -> None:
    routes = {"T": route_body(CLUSTER)}
    network.servers["n:1"] = name_server(routes, CLUSTER)
    facts = metadata(network)
    facts.route("T")
    routes["T"] = route_body(CLUSTER, queues=8)
    assert facts.offsets(MessageQueue("T", "b-a", 7)) == (3, 9)


@pytest.mark.parametrize("perm", [0, 2, 4])
def test_a_queue_that_the_perm_closes_has_offsets(network: Network, perm: int) -> None:
    network.servers["n:1"] = name_server({"T": route_body(CLUSTER, perm=perm)})
    assert metadata(network).offsets(QUEUE) == (3, 9)


@pytest.mark.parametrize("more", ["read", "write"])
def test_a_queue_that_is_only_read_or_only_written_has_offsets(network: Network, more: str) -> None:
    route = json.loads(route_body(CLUSTER))
    route["queueDatas"][0][f"{more}QueueNums"] = 8
    network.servers["n:1"] = name_server({"T": json.dumps(route).encode()})
    assert metadata(network).offsets(MessageQueue("T", "b-a", 7)) == (3, 9)


def test_progress_in_a_queue_that_is_gone_can_still_be_asked_for(network: Network) -> None:
    facts, gone = metadata(network), MessageQueue("T", "b-a", 99)
    facts.commit("g", gone, 42)
    assert facts.committed("g", gone) == 42


def test_where_to_read_best_first() -> None:
    route = Route("T", (), {"b-a": BrokerData("c", "b-a", {2: "two", 0: "zero", 1: "one"})})
    assert reading_addresses(route, QUEUE) == ["zero", "one", "two"]
    assert reading_addresses(route, QUEUE, prefer=2) == ["two", "zero", "one"]
    assert reading_addresses(route, QUEUE, prefer=7) == ["zero", "one", "two"]


def test_time_search_says_the_brokers_version(network: Network) -> None:
    network.servers["a:0"] = broker(version=409)
    assert metadata(network).search_offset(QUEUE, 1700) == (5, 409)
    [(_, request)] = network.requests(29)
    assert request.ext["timestamp"] == "1700"


# --- static topics ----------------------------------------------------------------------------


def static(owners: Mapping[str, dict[int, int]]) -> bytes:
    table = {
        name: {
            "bname": name,
            "scope": "__global__",
            "totalQueues": 2,
            "epoch": 1,
            "currIdMap": {str(key): value for key, value in ids.items()},
        }
        for name, ids in owners.items()
    }
    return route_body({"b-a": {0: "a:0"}, "b-b": {0: "b:0"}}, static=table)


def test_a_static_queue_is_asked_of_its_owner_by_its_public_number(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": static({"b-a": {0: 0}, "b-b": {1: 0}})})
    network.servers["b:0"] = broker(1, 2)
    facts = metadata(network)
    first, second = facts.route("T").readable_queues()
    assert (second.broker_name, second.queue_id) == ("__syslo__global__", 1)
    assert facts.topic_offsets("T") == {first: (3, 9), second: (1, 2)}
    [(_, request), _] = [pair for pair in network.requests(30, 31) if pair[0] == "b:0"]
    assert (request.ext["bname"], request.ext["queueId"]) == ("b-b", "1")
    assert not network.requests(202)


def test_a_static_queue_that_moved(network: Network) -> None:
    routes = {"T": static({"b-a": {0: 0, 1: 1}})}
    network.servers["n:1"] = name_server(routes)
    network.servers["b:0"] = broker(1, 2)

    def moved(request: Frame) -> Iterable[Reply]:
        routes["T"] = static({"b-b": {0: 0, 1: 1}})
        yield answer(501, "not the leader")

    network.servers["a:0"] = moved
    assert metadata(network).offsets(MessageQueue("T", "__syslo__global__", 1)) == (1, 2)


def test_a_static_queue_nobody_serves(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": static({"b-a": {0: 0}})})
    with pytest.raises(NotLeaderError, match="no broker serves"):
        metadata(network, timeout=1).offsets(MessageQueue("T", "__syslo__global__", 1))


def test_a_static_queue_that_is_not_there(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": static({"b-a": {0: 0}})})
    for queue in (MessageQueue("T", "__syslo__global__", 2), QUEUE):
        with pytest.raises(UnavailableError, match=f"{queue} is not in the route"):
            metadata(network, timeout=0.3).offsets(queue)
    assert not network.requests(30, 31)


# --- whole topics -----------------------------------------------------------------------------


def stats(name: str, bounds: Mapping[int, tuple[int, int]]) -> Frame:
    entries = ",".join(
        f'{{"brokerName":"{name}","queueId":{number},"topic":"T"}}:'
        f'{{"lastUpdateTimestamp":0,"maxOffset":{high},"minOffset":{low}}}'
        for number, (low, high) in bounds.items()
    )
    return answer(body=f'{{"offsetTable":{{{entries}}},"topicPutTps":0.0}}'.encode())


def test_a_broker_to_avoid_is_not_asked(network: Network) -> None:
    cluster = {"b-a": {0: "a:0"}, "b-b": {0: "b:0"}}
    network.servers["n:1"] = name_server({"T": route_body(cluster, queues=1)})
    network.servers["b:0"] = in_turn(stats("b-b", {0: (3, 8)}))
    found = metadata(network).topic_offsets("T", avoid={"b-a"})
    assert {str(queue): bounds for queue, bounds in found.items()} == {"T/b-b/0": (3, 8)}
    assert not network.asked()["a:0"]


@pytest.mark.parametrize("refused", [False, True], ids=["at once", "one by one"])
def test_a_slave_that_answers_for_its_master_is_told(network: Network, refused: bool) -> None:
    cluster = {"b-a": {0: "a:0", 1: "a:1"}, "b-b": {0: "b:0"}}
    network.servers["n:1"] = name_server({"T": route_body(cluster, queues=1)})
    network.servers["b:0"] = in_turn(stats("b-b", {0: (3, 8)}))

    def slave(request: Frame) -> Iterable[Reply]:
        if request.code == 202:
            yield answer(3, "not supported") if refused else stats("b-a", {0: (3, 9)})
        else:
            yield from broker()(request)

    network.servers["a:1"] = slave
    del network.servers["a:0"]
    replicas: set[str] = set()
    found = metadata(network).topic_offsets("T", replicas=replicas)
    assert sorted(found.values()) == [(3, 8), (3, 9)]
    assert replicas == {"b-a"}


def test_all_offsets_of_a_topic_with_one_request_a_broker(network: Network) -> None:
    cluster = {"b-a": {0: "a:0"}, "b-b": {0: "b:0"}}
    network.servers["n:1"] = name_server({"T": route_body(cluster, queues=2)})
    network.servers["a:0"] = in_turn(stats("b-a", {0: (0, 5), 1: (1, 6), 2: (2, 7)}))
    network.servers["b:0"] = in_turn(stats("b-b", {0: (3, 8), 1: (4, 9)}))
    found = metadata(network).topic_offsets("T")
    assert {str(queue): bounds for queue, bounds in found.items()} == {
        "T/b-a/0": (0, 5),
        "T/b-a/1": (1, 6),
        "T/b-b/0": (3, 8),
        "T/b-b/1": (4, 9),
    }
    assert len(network.requests(30, 31)) == 0


@pytest.mark.parametrize("refusal", [answer(3, "proxy"), answer(16, "no GET"), answer(17, "young")])
def test_where_the_broker_refuses_queue_by_queue(network: Network, refusal: Frame) -> None:
    offsets = broker()

    def handle(request: Frame) -> Iterable[Reply]:
        return [refusal] if request.code == 202 else offsets(request)

    network.servers["a:0"] = handle
    network.servers["a:1"] = handle
    found = metadata(network).topic_offsets("T")
    assert list(found.values()) == [(3, 9)] * 4


def test_topics_and_which_are_rocketmqs_own(network: Network) -> None:
    topics = ["T", "b-a", "c1", "c1_REPLY_TOPIC", "rmq_sys_own", "my_REPLY_TOPIC"]
    network.servers["n:1"] = name_server(dict.fromkeys(topics, b"{}"), CLUSTER)
    everything, own = metadata(network).topics()
    assert everything == set(topics)
    assert own == {"b-a", "c1", "c1_REPLY_TOPIC", "rmq_sys_own"}


# --- groups -----------------------------------------------------------------------------------


def test_commit_and_committed(network: Network) -> None:
    facts = metadata(network)
    assert facts.committed("g", QUEUE) is None
    facts.commit("g", QUEUE, 42)
    assert facts.committed("g", QUEUE) == 42


def test_a_group_is_created_when_the_broker_does_not_know_it(network: Network) -> None:
    groups: set[str] = set()

    def handle(request: Frame) -> Iterable[Reply]:
        if request.code == 200:
            groups.add(json.loads(bytes(request.body))["groupName"])
        unknown = request.code == 15 and request.ext["consumerGroup"] not in groups
        yield answer(26, "not exist") if unknown else answer()

    network.servers["a:0"] = handle
    metadata(network).commit("g", QUEUE, 42)
    assert groups == {"g"}
    assert [request.code for _, request in network.requests(15, 200)] == [15, 200, 15]


@pytest.mark.parametrize("knows_then", [True, False])
def test_a_group_is_created_though_another_broker_cannot_be_told(
    network: Network, knows_then: bool
) -> None:
    groups: set[str] = set()
    cluster = {"b-0": {0: ":10911"}, **CLUSTER}
    network.servers["n:1"] = name_server({"T": route_body(CLUSTER)}, cluster)

    def handle(request: Frame) -> Iterable[Reply]:
        if request.code == 200 and knows_then:
            groups.add("g")
        yield answer(26, "not exist") if request.code == 15 and not groups else answer()

    network.servers["a:0"] = handle
    if knows_then:
        metadata(network).commit("g", QUEUE, 42)
    else:
        with pytest.raises(ConnectError, match="cannot create group g: no connection to :10911"):
            metadata(network).commit("g", QUEUE, 42)
    assert [request.code for _, request in network.requests(15, 200)] == [15, 200, 15]


def test_members_of_a_group_from_all_masters(network: Network) -> None:
    cluster = {"b-a": {0: "a:0"}, "b-b": {0: "b:0"}, "b-c": {0: "c:0"}, "b-d": {1: "d:1"}}
    network.servers["n:1"] = name_server({}, cluster)
    network.servers["a:0"] = in_turn(answer(body=b'{"consumerIdList":["2@x","1@x"]}'))
    network.servers["b:0"] = in_turn(answer(1, "no consumer for this group"))
    network.servers["c:0"] = in_turn(answer(body=b'{"consumerIdList":["2@x","3@x"]}'))
    assert metadata(network).consumers("g") == ["1@x", "2@x", "3@x"]


def test_members_of_a_group_when_a_broker_is_down(network: Network) -> None:
    network.servers["n:1"] = name_server({}, {"b-a": {0: "a:0"}, "b-b": {0: "b:0"}})
    del network.servers["a:0"]
    network.servers["b:0"] = in_turn(answer(body=b'{"consumerIdList":["1@x"]}'))
    assert metadata(network).consumers("g") == ["1@x"]
    network.servers["b:0"] = in_turn(answer(1, "no consumer for this group"))
    assert metadata(network).consumers("g") == []
    del network.servers["b:0"]
    with pytest.raises(ConnectError):  # nobody says that nobody is there
        metadata(network).consumers("g")


def test_members_may_be_a_secret(network: Network) -> None:
    network.servers["a:0"] = in_turn(answer(1, "AclException: no"))
    with pytest.raises(NoPermissionError):
        metadata(network).consumers("g")


def test_ask_masters_tells_all_and_then_of_the_failures(network: Network) -> None:
    network.servers["n:1"] = name_server({}, {**CLUSTER, "b-b": {0: "b:0"}})
    network.servers["a:0"] = in_turn(answer(1, "java.lang.NullPointerException"))
    network.servers["b:0"] = in_turn(answer())
    with pytest.raises(ServerFaultError, match="cannot do it: a:0"):
        metadata(network).ask_masters(commands.get_system_topics(), "cannot do it")
    assert network.asked(304) == {"a:0": 1, "b:0": 1}
