"""Arrow rows out: together where they can be, alone where they must, each acknowledged."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.outgoing import Message, message_properties
from rocketmq_spark.client.send import SendSettings
from rocketmq_spark.client.write import Writer, Written
from rocketmq_spark.errors import SendError, UsageError
from rocketmq_spark.wire.compression import COMPRESSED, SYS_FLAGS, decompress
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.message import decode_batch_items, decode_properties, java_hash
from tests.client.scripted import CUT, Network, answer, name_server, route_body
from tests.client.test_send import BREAKS, CLUSTER, GARBAGE, Store

TYPES = {
    "body": pa.binary(),
    "topic": pa.string(),
    "keys": pa.string(),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "shardingKey": pa.string(),
    "queueId": pa.int32(),
    "brokerName": pa.string(),
    "delayLevel": pa.int32(),
    "deliverAt": pa.int64(),
    "flag": pa.int32(),
}
Row = dict[str, Any]


class Brokers:
    """Two brokers with four queues each, and all they were sent."""

    def __init__(self, *topics: str) -> None:
        self.store = Store()
        self.network = Network()
        names = topics or ("T",)
        self.network.servers["n:1"] = name_server({t: route_body(CLUSTER) for t in names})
        self.network.servers["a:0"] = self.store.broker("b-a")
        self.network.servers["b:0"] = self.store.broker("b-b")

    def writer(self, row_key: str = "", topic: str = "T", **settings: Any) -> Writer:
        pool = self.network.pool()
        chosen = SendSettings(**{"timeout": 2.0, **settings})
        return Writer(
            Metadata("n:1", pool, 2.0),
            pool,
            chosen,
            topic=topic,
            row_key=row_key,
            place="row {} of partition 3".format,
        )

    def write(self, rows: list[Row], **settings: Any) -> Written:
        writer = self.writer(**settings)
        writer.write(batch(rows))
        return writer.close()

    @property
    def messages(self) -> list[tuple[tuple[str, str, int], bytes, dict[str, str], int]]:
        """Topic, broker and queue, body, properties and flag of all that was stored."""
        found = []
        for broker, frame in self.store.sends:
            where = frame.ext["b"], broker, int(frame.ext["e"])
            found += [(where, *content) for content in contents(frame)]
        return found


def contents(frame: Frame) -> list[tuple[bytes, dict[str, str], int]]:
    if frame.code == 320:
        items = decode_batch_items(bytes(frame.body))
        return [(bytes(item.body), item.properties, item.flag) for item in items]
    body = decompress(int(frame.ext["f"]), bytes(frame.body))
    properties = decode_properties(frame.ext.get("i", "").encode())
    return [(body, properties, int(frame.ext["h"]))]


def batch(rows: list[Row]) -> Any:
    names = [name for name in TYPES if any(name in row for row in rows)]
    arrays = []
    for name in names:
        values = [row.get(name) for row in rows]
        if name == "properties":
            values = [None if v is None else list(v.items()) for v in values]
        arrays.append(pa.array(values, TYPES[name]))
    return pa.RecordBatch.from_arrays(arrays, names)


def numbered(count: int, **columns: Any) -> list[Row]:
    return [{"body": b"%05d" % number, **columns} for number in range(count)]


# --- the same as one by one -------------------------------------------------------------------

TEXT = st.text(
    st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), max_size=8
)
NAMES = st.sampled_from(["a", "ü", "KEYS", "TAGS", "UNIQ_KEY", "WAIT", "SPARK_ROW", "DELAY"])
VALUES = TEXT.filter(bool) | st.none()
ROWS = st.lists(
    st.fixed_dictionaries(
        {"body": st.binary(min_size=1, max_size=30)},
        optional={
            "topic": st.sampled_from(["T", "U", None]),
            "keys": st.none() | TEXT,
            "tags": st.none() | TEXT,
            "properties": st.none() | st.dictionaries(NAMES, VALUES, max_size=3),
            "shardingKey": st.none() | TEXT,
            "queueId": st.none() | st.integers(0, 3),
            "delayLevel": st.none() | st.integers(0, 3),
            "deliverAt": st.none() | st.integers(1, 1 << 40),
            "flag": st.none() | st.integers(-5, 5),
        },
    ),
    min_size=1,
    max_size=12,
)


@settings(derandomize=True, deadline=None, max_examples=120)
@given(ROWS)
def test_rows_together_are_what_they_are_alone(rows: list[Row]) -> None:
    brokers = Brokers("T", "U")
    written = brokers.write(rows, row_key="q/1/")
    assert written.rows == len(rows)
    queues = [(name, number) for name in ("b-a", "b-b") for number in range(4)]
    stored = {message[2]["SPARK_ROW"]: message for message in brokers.messages}
    assert len(stored) == len(brokers.messages) == len(rows)
    assert len({properties["UNIQ_KEY"] for _, _, properties, _ in stored.values()}) == len(rows)
    for number, row in enumerate(rows):
        key = f"q/1/{number}"
        (topic, broker, queue), body, properties, flag = stored[key]
        message = Message(
            row["body"],
            tags=row.get("tags") or "",
            keys=row.get("keys") or "",
            properties={k: v for k, v in (row.get("properties") or {}).items() if v is not None},
            delay_level=row.get("delayLevel") or 0,
            deliver_at=row.get("deliverAt"),
            sharding_key=row.get("shardingKey"),
        )
        assert properties == message_properties(message, properties["UNIQ_KEY"], key)
        assert (topic, body, flag) == (row.get("topic") or "T", row["body"], row.get("flag") or 0)
        if row.get("queueId") is not None:
            assert (broker, queue) == ("b-a", row["queueId"])
        elif row.get("shardingKey") is not None:
            assert (broker, queue) == queues[abs(java_hash(row["shardingKey"])) % 8]
    for _, frame in brokers.store.sends:
        delayed = [p for _, p, _ in contents(frame) if {"DELAY", "TIMER_DELIVER_MS"} & set(p)]
        assert not (delayed and frame.code == 320)


# --- together ---------------------------------------------------------------------------------


def test_rows_are_spread_over_all_queues_in_few_requests() -> None:
    brokers = Brokers()
    written = brokers.write([{"body": bytes(1000)}] * 4000)
    assert written.rows == 4000
    spread = Counter(where for where, *_ in brokers.messages)
    assert len(spread) == 8 and max(spread.values()) < 2 * min(spread.values())
    assert written.requests == len(brokers.store.sends) < 30


def test_requests_stay_within_the_limits() -> None:
    brokers = Brokers()
    brokers.write(
        [{"body": bytes(size)} for size in (10, 900, 5000, 20, 4096)] * 20,
        batch_bytes=9000,
        compression="",
    )
    sizes = [len(frame.body) for _, frame in brokers.store.sends]
    assert max(sizes) <= 9000 and len(brokers.messages) == 100


def test_a_key_keeps_its_order_over_many_batches_and_among_lone_rows() -> None:
    brokers = Brokers()
    writer = brokers.writer(batch_bytes=300)
    rows = [
        {"body": b"%05d" % n, "shardingKey": f"k{n % 5}", "delayLevel": int(n % 7 == 0)}
        for n in range(400)
    ]
    for at in range(0, 400, 50):
        writer.write(batch(rows[at : at + 50]))
    assert writer.close().rows == 400
    for bodies in brokers.store.queues.values():
        assert bodies == sorted(bodies)


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_large_bodies_are_compressed_and_travel_alone(compression: str) -> None:
    brokers = Brokers()
    brokers.write([{"body": b"x" * 5000}, {"body": b"y"}], compression=compression)
    (single,) = [frame for _, frame in brokers.store.sends if frame.code == 310]
    assert int(single.ext["f"]) == COMPRESSED | SYS_FLAGS[compression]
    assert sorted(body for _, body, _, _ in brokers.messages) == [b"x" * 5000, b"y"]


def test_a_retry_topic_takes_no_batch() -> None:
    brokers = Brokers("%RETRY%g")
    brokers.write(numbered(3, topic="%RETRY%g"))
    assert [frame.code for _, frame in brokers.store.sends] == [310] * 3


def test_keys_whose_broker_has_left_take_the_queues_that_are_there() -> None:
    brokers = Brokers()
    routes = {"T": route_body(CLUSTER)}
    brokers.network.servers["n:1"] = name_server(routes)
    taken = brokers.store.broker("b-a")
    left: list[int] = []

    def leaving(request: Frame) -> Any:
        if len(left) < 3:
            left.append(1)
            return taken(request)
        routes["T"] = route_body({"b-b": CLUSTER["b-b"]})
        return [CUT]

    brokers.network.servers["a:0"] = leaving
    rows = [
        {"body": b"%05d" % n, "shardingKey": f"k{n % 9}", "delayLevel": int(n % 11 == 0)}
        for n in range(300)
    ]
    writer = brokers.writer(batch_bytes=900)
    for at in range(0, 300, 60):
        writer.write(batch(rows[at : at + 60]))
    assert writer.close().rows == 300
    assert sorted(set(brokers.store.bodies)) == [row["body"] for row in rows]
    for (broker, _), bodies in brokers.store.queues.items():
        for key in range(9):
            mine = [body for body in bodies if int(body) % 9 == key]
            assert mine == sorted(mine), broker


def test_a_named_queue_is_never_left() -> None:
    brokers = Brokers()
    routes = {"T": route_body(CLUSTER)}
    brokers.network.servers["n:1"] = name_server(routes)

    def leaving(request: Frame) -> Any:
        routes["T"] = route_body({"b-b": CLUSTER["b-b"]})
        return [CUT]

    brokers.network.servers["a:0"] = leaving
    with pytest.raises(SendError, match="row 0 of partition 3"):
        brokers.write([{"body": b"x", "queueId": 1}], retries=1)


# --- what cannot be sent ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"body": None}, "its body is null"),
        ({"body": bytes(5001)}, "its body of 5001 bytes is more than maxMessageSize, 5000"),
        ({"keys": "a\x02b"}, "the value of property 'KEYS' holds U"),
        ({"properties": {"a\x01": "b"}}, "property name 'a.x01' holds U"),
        ({"properties": {"a": "b\x02"}}, "the value of property 'a' holds U"),
        ({"properties": {"": "b"}}, "a property needs a name"),
        ({"properties": {"a": "b" * 40000}}, "the properties take"),
        ({"queueId": 9}, "topic T has no queue 9 that can be written now"),
        ({"queueId": -1}, "topic T has no queue -1 that"),
        ({"queueId": 1, "brokerName": "b-x"}, "topic T has no queue 1 on b-x that"),
        ({"brokerName": "b-a", "queueId": None}, "it names the broker b-a without a queueId"),
        ({"delayLevel": 1, "body": b""}, "a delayed message needs a body"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(wrong: Row, words: str) -> None:
    brokers = Brokers()
    rows = numbered(5)
    for name in wrong:
        rows[0].setdefault(name, None)
    rows[3] |= wrong
    with pytest.raises(UsageError, match=f"^row 3 of partition 3 cannot be sent: {words}"):
        brokers.write(rows, max_message=5000, batch_bytes=5000, compression="")


def test_a_row_without_a_topic() -> None:
    with pytest.raises(UsageError, match="row 1 of partition 3 has no topic"):
        Brokers().write([{"body": b"x", "topic": "T"}, {"body": b"y", "topic": None}], topic="")


def test_a_topic_that_does_not_exist() -> None:
    with pytest.raises(SendError, match="row 1 of partition 3 cannot be sent: cannot find topic X"):
        Brokers().write([{"body": b"x"}, {"body": b"y", "topic": "X"}])


# --- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        answer(2, "busy"),
        answer(14, "disk full"),
        answer(215, "flow control"),
        answer(1, "fault"),
        answer(16, "no permission"),
        answer(17, "no topic"),
        answer(204),
        answer(1500),
        CUT,
        (),
    ],
    ids=["busy", "full", "flow", "fault", "perm", "topic", "buyer", "go away", "cut", "silence"],
)
def test_a_broker_that_fails_is_gone_round(failure: Any) -> None:
    brokers = Brokers()
    brokers.network.servers["a:0"] = brokers.store.broker("b-a", *[failure] * 50)
    written = brokers.write([{"body": bytes(1000)}] * 200)
    assert written.rows == 200 and written.retries > 0
    assert sum(len(bodies) for bodies in brokers.store.queues.values()) == 200
    assert {broker for broker, _ in brokers.store.queues} == {"b-b"}


@pytest.mark.parametrize("code", [2, 14, 215])
def test_a_single_broker_that_is_busy_is_given_time(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("rocketmq_spark.client.dispatch.time.sleep", pauses.append)
    brokers = Brokers()
    brokers.network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}})})
    brokers.network.servers["a:0"] = brokers.store.broker("b-a", *[answer(code, "wait")] * 4)
    assert brokers.write([{"body": b"x"}], retries=5).rows == 1
    assert len(pauses) == 4 and pauses == sorted(set(pauses))


@BREAKS
@pytest.mark.parametrize("in_flight", [1, 2, 8])
def test_no_row_is_lost_where_a_full_connection_breaks(failure: Any, in_flight: int) -> None:
    brokers = Brokers()
    brokers.network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}})})
    brokers.network.servers["a:0"] = brokers.store.breaks_when_full(in_flight, failure)
    rows = numbered(12, delayLevel=1)
    assert brokers.write(rows, in_flight=in_flight).rows == 12
    assert brokers.store.bodies == [row["body"] for row in rows]


def test_garbage_on_a_full_connection_is_an_error() -> None:
    brokers = Brokers()
    brokers.network.servers["a:0"] = brokers.store.breaks_when_full(1, GARBAGE)
    with pytest.raises(
        SendError,
        match=r"row \d+ of partition 3 could not be stored: cannot send to T.*a:0: a frame of 0",
    ):
        brokers.write(numbered(12, delayLevel=1), in_flight=1)


def test_giving_up_names_the_rows_and_the_reason() -> None:
    brokers = Brokers()
    for name in "ab":
        brokers.network.servers[f"{name}:0"] = brokers.store.broker(
            f"b-{name}", *[answer(14, "the disk is full")] * 99
        )
    words = "row 0 of partition 3 and 9 more could not be stored: .*the disk is full"
    with pytest.raises(SendError, match=words):
        brokers.write(numbered(10), retries=1)


@pytest.mark.parametrize("fixed", [True, False])
def test_a_row_that_a_broker_refuses_is_found_among_many(fixed: bool) -> None:
    brokers = Brokers()

    def strict(name: str) -> Any:
        keep = brokers.store.broker(name)

        def handle(request: Frame) -> Any:
            bad = any(body == b"00013" for body, _, _ in contents(request))
            return [answer(13, "a word it does not like")] if bad else keep(request)

        return handle

    for name in "ab":
        brokers.network.servers[f"{name}:0"] = strict(f"b-{name}")
    words = "row 13 of partition 3 could not be stored: .*a word it does not like"
    with pytest.raises(SendError, match=words):
        brokers.write(numbered(40, **({"queueId": 1} if fixed else {})))


@pytest.mark.parametrize("code", [1, 13])
def test_a_broker_that_takes_smaller_batches_gets_them(code: int) -> None:
    brokers = Brokers()
    for name in "ab":
        keep = brokers.store.broker(f"b-{name}")

        def small(request: Frame, keep: Any = keep) -> Any:
            if len(request.body) > 700:
                return [answer(code, "message body size exceeded")]
            return keep(request)

        brokers.network.servers[f"{name}:0"] = small
    assert brokers.write(numbered(100, shardingKey="k")).rows == 100
    (bodies,) = brokers.store.queues.values()
    assert bodies == [b"%05d" % n for n in range(100)]  # and in order


def test_a_wrong_account_is_not_tried_again() -> None:
    brokers = Brokers()
    refused = answer(16, "User:me authentication failed, signature check")
    brokers.network.servers["a:0"] = brokers.store.broker("b-a", *[refused] * 9)
    brokers.network.servers["b:0"] = brokers.store.broker("b-b", *[refused] * 9)
    with pytest.raises(SendError, match="Check the access key"):
        brokers.write([{"body": b"x"}])
    assert len(brokers.store.sends) == 1


@pytest.mark.parametrize("code", [10, 11, 12])
def test_stored_but_not_durable(code: int) -> None:
    late = answer(code, "late", msgId="x", queueId=0, queueOffset=0)

    def brokers() -> Brokers:
        made = Brokers()
        made.network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}})})
        made.network.servers["a:0"] = made.store.broker("b-a", late)
        return made

    accepted = brokers().write([{"body": b"x"}], unsafe="accept")
    assert (accepted.rows, accepted.unsafe, accepted.retries) == (1, 1, 0)
    retried = brokers().write([{"body": b"x"}], unsafe="retry")
    assert (retried.rows, retried.unsafe, retried.retries) == (1, 0, 1)
    with pytest.raises(SendError, match=f"answered code {code}: late"):
        brokers().write([{"body": b"x"}], unsafe="fail")


def test_fault_latency_leaves_a_failed_broker_out() -> None:
    brokers = Brokers()
    brokers.network.servers["a:0"] = brokers.store.broker("b-a", *[answer(2, "busy")] * 999)
    writer = brokers.writer(fault_latency=True, in_flight=1)
    for _ in range(40):
        writer.write(batch([{"body": b"x"}]))
    written = writer.close()
    assert (written.rows, written.isolated) == (40, 1)
    assert sum(broker == "b-a" for broker, _ in brokers.store.sends) <= 2
