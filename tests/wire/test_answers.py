"""Answers to values: the shapes Java writes, and a named complaint for every other shape."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.core.model import BrokerData, MessageQueue, QueueData
from rocketmq_spark.errors import ResponseError
from rocketmq_spark.wire import answers
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.message import StoredMessage, encode_message

QUICK = settings(derandomize=True, deadline=None, max_examples=100)

QUEUES = '[{"brokerName":"b-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":2}]'


def brokers(addresses: str) -> str:
    return f'[{{"brokerAddrs":{addresses},"brokerName":"b-a","cluster":"c","zoneName":"z"}}]'


@pytest.mark.parametrize(
    "addresses",
    ['{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"}', '{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}'],
    ids=["standard", "fastjson"],
)
def test_a_route(addresses: str) -> None:
    body = f'{{"brokerDatas":{brokers(addresses)},"filterServerTable":{{}},"queueDatas":{QUEUES}}}'
    route = answers.route("T", body.encode())
    assert route.topic == "T"
    assert route.queues == (QueueData("b-a", 4, 2, 6),)
    assert route.brokers == {
        "b-a": BrokerData("c", "b-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
    }
    assert route.owners == {}


def test_a_route_without_anything() -> None:
    route = answers.route("T", b'{"queueDatas":null}')
    assert (route.queues, dict(route.brokers)) == ((), {})


def mapping(bname: str, epoch: int, ids: str, total: int = 4, scope: str = "__global__") -> str:
    return (
        f'{{"bname":"{bname}","currIdMap":{ids},"dirty":false,"epoch":{epoch},'
        f'"scope":"{scope}","topic":"T","totalQueues":{total}}}'
    )


def static_route(**mappings: str) -> Any:
    table = ",".join(f'"{name}":{value}' for name, value in mappings.items())
    return answers.route("T", f'{{"topicQueueMappingByBroker":{{{table}}}}}'.encode())


def test_a_static_topic_belongs_to_the_newest_epoch() -> None:
    route = static_route(
        old=mapping("b-old", 1, "{0:0,1:1}"),
        new=mapping("b-new", 2, '{"1":0}'),
        older=mapping("b-older", 0, "{1:7}"),
    )
    queues = [MessageQueue("T", "__syslo__global__", number) for number in range(4)]
    assert sorted(route.owners) == queues
    assert [route.serving_broker(queue) for queue in queues] == [
        "b-old",
        "b-new",
        "__syslo__none__",
        "__syslo__none__",
    ]


def test_a_static_topic_of_another_scope() -> None:
    route = static_route(one=mapping("b-a", 1, "{0:0}", total=1, scope="east"))
    assert list(route.owners) == [MessageQueue("T", "__syslo__east", 0)]


def test_cluster_brokers_by_name() -> None:
    body = (
        '{"brokerAddrTable":{"b-b":{"brokerAddrs":{0:"h:2"},"brokerName":"b-b","cluster":"c"},'
        '"b-a":{"brokerAddrs":{1:"h:1"},"brokerName":"b-a","cluster":"c"}},'
        '"clusterAddrTable":{"c":["b-a","b-b"]}}'
    )
    first, second = answers.cluster_brokers(body.encode())
    assert (first.broker_name, first.master) == ("b-a", None)
    assert (second.broker_name, second.master) == ("b-b", "h:2")


def test_topic_stats_have_objects_as_keys() -> None:
    body = (
        '{"offsetTable":{{"brokerName":"b-a","queueId":0,"topic":"t"}:{"lastUpdateTimestamp":0,'
        '"maxOffset":9,"minOffset":3},{"brokerName":"b-a","queueId":1,"topic":"t"}:'
        '{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}},"topicPutTps":0.0}'
    )
    assert answers.topic_stats(body.encode()) == {
        MessageQueue("t", "b-a", 0): (3, 9),
        MessageQueue("t", "b-a", 1): (0, 0),
    }


def test_lists() -> None:
    assert answers.topic_list(b'{"topicList":["b","a","b"]}') == {"a", "b"}
    assert answers.topic_list(b'{"topicList":null}') == set()
    assert answers.consumer_ids(b'{"consumerIdList":["2@x","1@x"]}') == ["1@x", "2@x"]


def test_a_number_among_the_fields() -> None:
    for value in (-1, 2**63 - 1, -(2**63)):
        assert answers.number(Frame(0, ext={"offset": str(value)}), "offset") == value


@pytest.mark.parametrize("ext", [{}, {"offset": ""}, {"offset": "x"}, {"offset": "1.5"}])
def test_a_field_that_is_no_number(ext: dict[str, str]) -> None:
    with pytest.raises(ResponseError, match="field offset"):
        answers.number(Frame(0, ext={**ext, "other": "1"}), "offset")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**23])
def test_a_number_that_is_none_of_javas(value: int) -> None:
    with pytest.raises(ResponseError, match=f"field offset is {value}, more than Java's long"):
        answers.number(Frame(0, ext={"offset": str(value)}), "offset")


# --- records of a pull ------------------------------------------------------------------------


def records(*offsets: int) -> list[bytes]:
    return [
        encode_message(StoredMessage("T", 0, offset, offset, body=bytes(offset % 50)))
        for offset in offsets
    ]


def test_the_first_offset_is_read_where_the_body_is() -> None:
    one, two = records(5, 2**40)
    memory = b"before" + one + two + b"behind"
    first, second, end = 6, 6 + len(one), 6 + len(one) + len(two)
    assert answers.first_offset(memory, first, end) == 5
    assert answers.first_offset(memoryview(memory), second, end) == 2**40
    assert answers.first_offset(memory, first, first + 28) == 5
    # What is behind the body is none of it.
    for size in (0, 1, 27):
        assert answers.first_offset(memory, first, first + size) is None


@pytest.mark.parametrize(
    ("offset", "kept"), [(0, 0), (5, 0), (6, 1), (7, 1), (8, 2), (30, 2), (31, 3), (1000, 3)]
)
def test_records_before_an_offset_end_somewhere(offset: int, kept: int) -> None:
    found = records(5, 7, 30)
    head, tail = records(1, 2)[0], records(3)[0]  # of other answers
    memory = head + b"".join(found) + tail
    at, end = len(head), len(memory) - len(tail)
    place = at + len(b"".join(found[:kept]))
    assert answers.before(memory, at, end, offset) == place


def test_records_that_say_a_wrong_size_end_somewhere_too() -> None:
    for size in (0, -1, -(2**31), 1, 2**31 - 1):
        body = bytearray(records(5)[0])
        struct.pack_into(">i", body, 0, size)
        memory = bytes(body) + records(6)[0]
        assert 0 < answers.before(memory, 0, len(body), 100) <= len(body)
    assert answers.before(b"abc", 0, 3, 100) == 0
    assert answers.before(b"abc", 2, 2, 100) == 2


READERS: dict[str, Callable[[bytes], Any]] = {
    "the route of topic T": lambda body: answers.route("T", body),
    "the cluster information": answers.cluster_brokers,
    "the topic list": answers.topic_list,
    "the consumer list": answers.consumer_ids,
    "the topic statistics": answers.topic_stats,
}


@pytest.mark.parametrize("what", READERS)
@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'"text"', b"{", b"\xff", b"<html>"])
def test_what_is_no_object_is_refused_by_name(what: str, body: bytes) -> None:
    with pytest.raises(ResponseError, match=what):
        READERS[what](body)


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("the route of topic T", '{"queueDatas":[{"brokerName":"b"}]}'),
        ("the route of topic T", '{"queueDatas":5}'),
        ("the route of topic T", QUEUES.replace("4", "Infinity").join(['{"queueDatas":', "}"])),
        ("the route of topic T", '{"brokerDatas":[{"brokerName":"b"}]}'),
        ("the route of topic T", '{"brokerDatas":' + brokers('{"zero":"h:1"}') + "}"),
        ("the route of topic T", '{"topicQueueMappingByBroker":[1]}'),
        ("the cluster information", '{"brokerAddrTable":{"b":{}}}'),
        ("the topic list", '{"topicList":5}'),
        ("the consumer list", '{"consumerIdList":"c1"}'),
        ("the topic statistics", '{"offsetTable":{"T-b-0":{"minOffset":0,"maxOffset":1}}}'),
        ("the topic statistics", '{"offsetTable":{{"topic":"T"}:{"minOffset":0,"maxOffset":1}}}'),
    ],
)
def test_a_missing_or_garbled_field_is_refused_by_name(what: str, body: str) -> None:
    with pytest.raises(ResponseError, match=what):
        READERS[what](body.encode())


members = st.sampled_from(
    [
        "queueDatas",
        "brokerDatas",
        "topicQueueMappingByBroker",
        "brokerAddrTable",
        "topicList",
        "consumerIdList",
        "offsetTable",
        "brokerName",
        "readQueueNums",
        "writeQueueNums",
        "perm",
        "brokerAddrs",
        "cluster",
        "bname",
        "epoch",
        "currIdMap",
        "0",
    ]
)
shapes = st.recursive(
    st.none() | st.integers(-5, 5) | st.floats() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(members, inner, max_size=4),
    max_leaves=12,
)


@QUICK
@given(st.dictionaries(members, shapes, max_size=4))
def test_any_shape_is_read_or_refused(shape: dict[str, Any]) -> None:
    body = json.dumps(shape).encode()
    for read in READERS.values():
        try:
            read(body)
        except ResponseError as error:
            assert str(error)
