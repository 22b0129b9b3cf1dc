"""Sending: spread, order, retries elsewhere, and a result for every message."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.outgoing import Message
from rocketmq_spark.client.send import Sender, SendSettings
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import (
    BusyError,
    ConnectionLostError,
    IllegalMessageError,
    NoPermissionError,
    RequestTimeoutError,
    ResponseError,
    RocketMQError,
    SendError,
    TopicNotFoundError,
    UnavailableError,
    UsageError,
)
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.message import decode_batch_items
from tests.client.scripted import (
    CUT,
    Handler,
    Network,
    Reply,
    answer,
    name_server,
    route_body,
    to_bytes,
)

CLUSTER = {"b-a": {0: "a:0"}, "b-b": {0: "b:0"}}


class Store:
    """Brokers that keep what they are sent, by broker and queue, in the order they took it."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.sends: list[tuple[str, Frame]] = []
        self.code = 0
        self._lock = threading.Lock()

    def broker(self, name: str, *instead: Any) -> Handler:
        """Its first answers are `instead`, and then nothing is stored; None is to do as usual."""
        left = list(instead)

        def handle(request: Frame) -> Iterable[Reply]:
            with self._lock:
                self.sends.append((name, request))
                chosen = left.pop(0) if left else None
                if chosen is not None:
                    return [chosen] if isinstance(chosen, Frame | str | bytes) else chosen
                return [self.store(name, request)]

        return handle

    def store(self, name: str, request: Frame) -> Frame:
        assert request.code in (310, 320)
        assert request.ext["n"] == name
        queue = self.queues[name, int(request.ext["e"])]
        first = len(queue)
        if request.code == 320:
            queue += [bytes(item.body) for item in decode_batch_items(bytes(request.body))]
        else:
            queue.append(bytes(request.body))
        ids = [f"{name}-{request.ext['e']}-{at}" for at in range(first, len(queue))]
        return answer(self.code, msgId=",".join(ids), queueId=request.ext["e"], queueOffset=first)

    def breaks_when_full(self, in_flight: int, failure: Reply | Sequence[Reply]) -> Handler:
        """A broker b-a that says nothing to so many requests, and then this, and works again."""
        replies = [failure] if isinstance(failure, Frame | str | bytes) else failure
        return self.broker("b-a", *[()] * (in_flight - 1), replies)

    @property
    def bodies(self) -> list[bytes]:
        return sorted(body for bodies in self.queues.values() for body in bodies)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def network(store: Store) -> Network:
    network = Network()
    network.servers["n:1"] = name_server({"T": route_body(CLUSTER)})
    network.servers["a:0"] = store.broker("b-a")
    network.servers["b:0"] = store.broker("b-b")
    return network


def sender(network: Network, **settings: Any) -> Sender:
    pool = network.pool()
    return Sender(Metadata("n:1", pool, 2.0), pool, SendSettings(**{"timeout": 2.0, **settings}))


def numbered(count: int, **fields: Any) -> list[Message]:
    return [Message(b"%05d" % number, **fields) for number in range(count)]


# --- spread and results -----------------------------------------------------------------------


def test_every_message_is_stored_once_and_its_result_says_where(
    network: Network, store: Store
) -> None:
    messages = numbered(100)
    results = sender(network).send("T", messages)
    assert store.bodies == [m.payload for m in messages]
    for message, result in zip(messages, results, strict=True):
        queue = result.queue
        assert store.queues[queue.broker_name, queue.queue_id][result.queue_offset] == message.body
        assert result.offset_msg_id == f"{queue.broker_name}-{queue.queue_id}-{result.queue_offset}"
        assert (result.status, result.ok) == ("SEND_OK", True)
    assert len({result.msg_id for result in results}) == 100


def test_messages_are_spread_evenly_also_over_many_sends(network: Network, store: Store) -> None:
    sending = sender(network)
    for number in range(32):
        sending.send("T", [Message(b"%d" % number)])
    assert [len(store.queues[key]) for key in sorted(store.queues)] == [4] * 8


def test_senders_start_anywhere(network: Network) -> None:
    starts = Counter(sender(network).send("T", [Message(b"x")])[0].queue for _ in range(60))
    assert len(starts) > 3  # of 8; with 60 tries less is beyond belief


def test_a_key_goes_to_javas_queue(network: Network) -> None:
    [result] = sender(network).send("T", [Message(b"x", sharding_key="order-1")])
    assert result.queue == MessageQueue("T", "b-b", 2)  # 6 of 8


def test_nothing_to_send(network: Network) -> None:
    assert sender(network).send("T", []) == []
    assert network.requests() == []


def test_what_a_send_says(network: Network, store: Store) -> None:
    sender(network, group="writers").send("T", [Message(b"x", flag=3, delay_level=2)])
    [(_, request)] = store.sends
    expected = {"a": "writers", "b": "T", "h": "3", "m": "false"}
    assert {name: request.ext[name] for name in expected} == expected
    assert "DELAY\x012\x02" in request.ext["i"]


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")],
)
def test_stored_less_safely_is_stored(
    network: Network, store: Store, code: int, status: str
) -> None:
    store.code = code
    results = sender(network).send("T", numbered(3))
    assert [result.status for result in results] == [status] * 3
    assert len(store.bodies) == 3


def test_no_more_in_flight_than_allowed(network: Network) -> None:
    held: list[Frame] = []
    most: list[int] = []
    plain = Store()
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}})})

    # The oldest is answered when three are there, and all of them when no more will come.
    def hold(request: Frame) -> Iterable[Reply]:
        held.append(request)
        most.append(len(held))
        while len(held) >= 3 or (held and len(most) == 12):
            waiting = held.pop(0)
            yield to_bytes(plain.store("b-a", waiting), waiting)

    network.servers["a:0"] = hold
    messages = numbered(12, delay_level=1)  # each travels alone
    assert len(sender(network, in_flight=3).send("T", messages)) == 12
    assert max(most) == 3


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [answer(2, "busy"), answer(14, "disk full"), answer(1, "fault"), answer(1500), CUT, ()],
    ids=["busy", "full", "fault", "go away", "cut", "silence"],
)
def test_a_failure_is_made_good_on_another_broker(
    network: Network, store: Store, failure: Any
) -> None:
    network.servers["a:0"] = store.broker("b-a", *[failure] * 50)
    results = sender(network).send("T", numbered(40))
    assert all(result.ok for result in results)
    assert {result.queue.broker_name for result in results} == {"b-b"}
    assert len(store.bodies) == 40


BREAKS = pytest.mark.parametrize("failure", [CUT, ()], ids=["cut", "silence"])
GARBAGE = b"\0" * 8


@BREAKS
@pytest.mark.parametrize("in_flight", [1, 2, 8])
@pytest.mark.parametrize("key", [None, "order-1"], ids=["free", "fixed"])
def test_nothing_is_lost_where_a_full_connection_breaks(
    network: Network, store: Store, failure: Any, in_flight: int, key: str | None
) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}})})
    # With one key, one request is on its way, however many there might be.
    full = 1 if key else in_flight
    network.servers["a:0"] = store.breaks_when_full(full, failure)
    messages = numbered(12, delay_level=1, sharding_key=key)
    results = sender(network, in_flight=in_flight).send("T", messages)
    assert [result.ok for result in results] == [True] * 12
    assert store.bodies == [message.body for message in messages]


@pytest.mark.parametrize("in_flight", [1, 8])
def test_every_message_has_a_result_where_a_full_connection_speaks_garbage(
    network: Network, store: Store, in_flight: int
) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}})})
    network.servers["a:0"] = store.breaks_when_full(in_flight, GARBAGE)
    messages = numbered(12, delay_level=1)
    with pytest.raises(
        SendError, match=f"{in_flight} of 12 messages were not stored: cannot .*a:0"
    ) as error:
        sender(network, in_flight=in_flight).send("T", messages)
    assert [result.ok for result in error.value.results].count(True) == 12 - in_flight
    assert store.bodies == [message.body for message in messages[in_flight:]]


def test_a_message_that_takes_long_to_be_handed_over_is_not_late(
    network: Network, store: Store
) -> None:
    """Later ones may be answered before it, though they were sent much later than it was begun."""
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}})})
    held: list[Frame] = []

    def slow_line(request: Frame) -> Iterable[Reply]:
        if bytes(request.body) == b"large" and not held:
            held.append(request)
            time.sleep(0.5)  # while it is sent
            return
        yield store.store("b-a", request)
        if len(store.bodies) == 2:
            yield to_bytes(store.store("b-a", held[0]), held[0])

    network.servers["a:0"] = slow_line
    messages = [Message(body, delay_level=1) for body in (b"large", b"1", b"2", b"3")]
    sender(network, timeout=0.2, in_flight=2).send("T", messages)
    assert store.bodies == [b"1", b"2", b"3", b"large"]
    assert network.asked(310) == {"a:0": 4}
    assert [address for address, _ in network.connects].count("a:0") == 1


def test_the_limits_of_the_settings_are_kept(network: Network, store: Store) -> None:
    with pytest.raises(UsageError, match=r"message 1 .* 11 bytes is more than the 10"):
        sender(network, max_message=10).send("T", [Message(b"x" * 10), Message(b"x" * 11)])
    assert store.sends == []
    queue = MessageQueue("T", "b-a", 0)
    sender(network, batch_bytes=100).send("T", numbered(20, queue=queue))
    assert len(store.sends) > 5  # an item has some 70 bytes
    large = Message(b"x" * (5 << 20))
    with pytest.raises(UsageError, match="5242880 bytes is more than the 4194304"):
        sender(network).send("T", [large])
    assert sender(network, max_message=8 << 20).send("T", [large])[0].ok


def test_a_single_broker_is_asked_again(network: Network, store: Store) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}}, queues=1)})
    network.servers["a:0"] = store.broker("b-a", answer(2, "busy"))
    assert sender(network).send("T", [Message(b"x")])[0].ok
    assert len(network.requests(105)) == 2  # the route was asked for anew


def test_a_new_master_is_found(network: Network, store: Store) -> None:
    routes = {"T": route_body({"b-a": {0: "a:0"}})}
    network.servers["n:1"] = name_server(routes)

    def leaving(request: Frame) -> Iterable[Reply]:
        routes["T"] = route_body({"b-a": {0: "new:0"}})
        return [CUT]

    network.servers["a:0"], network.servers["new:0"] = leaving, store.broker("b-a")
    assert all(result.ok for result in sender(network).send("T", numbered(10)))


def test_a_fixed_queue_is_never_left(network: Network, store: Store) -> None:
    network.servers["a:0"] = store.broker("b-a", answer(2, "busy"), CUT)
    queue = MessageQueue("T", "b-a", 1)
    [result] = sender(network).send("T", [Message(b"x", queue=queue)])
    assert (result.ok, result.queue) == (True, queue)
    assert store.queues["b-a", 1] == [b"x"]


def test_giving_up_reports_every_message(network: Network, store: Store) -> None:
    network.servers["a:0"] = store.broker("b-a", *[answer(2, "too busy")] * 50)
    queues = [MessageQueue("T", name, 0) for name in ("b-a", "b-b")]
    messages = [Message(b"%d" % number, queue=queues[number % 2]) for number in range(6)]
    with pytest.raises(SendError, match=r"3 of 6 messages were not stored: .*too busy") as caught:
        sender(network, retries=1).send("T", messages)
    results = caught.value.results
    assert [result.ok for result in results] == [False, True] * 3
    assert [result.queue for result in results] == queues * 3
    assert all(isinstance(result.error, BusyError) for result in results[::2])
    assert [result.status for result in results] == ["FAILED", "SEND_OK"] * 3
    assert len(store.sends) == 1 + 2


def test_what_will_not_pass_is_not_tried_again(network: Network, store: Store) -> None:
    network.servers["a:0"] = store.broker("b-a", *[answer(13, "too large")] * 50)
    network.servers["b:0"] = store.broker("b-b", *[answer(13, "too large")] * 50)
    with pytest.raises(SendError) as caught:
        sender(network).send("T", [Message(b"x")])
    assert isinstance(caught.value.results[0].error, IllegalMessageError)
    assert len(store.sends) == 1


@pytest.mark.parametrize(
    ("failure", "error"), [(CUT, ConnectionLostError), ((), RequestTimeoutError)]
)
def test_a_broker_that_fails_again_and_again(
    network: Network, store: Store, failure: Any, error: type[RocketMQError]
) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}})})
    network.servers["a:0"] = store.broker("b-a", *[failure] * 50)
    with pytest.raises(SendError) as caught:
        sender(network, retries=2).send("T", numbered(3))
    assert [type(result.error) for result in caught.value.results] == [error] * 3
    for result in caught.value.results:
        assert str(result.error).startswith(f"cannot send to {result.queue}: ")
        assert str(result.error).endswith(f". {error.advice}")


def test_an_answer_without_its_fields_still_gives_a_result_for_every_message(
    network: Network, store: Store
) -> None:
    network.servers["a:0"] = store.broker("b-a", *[answer(0)] * 50)
    with pytest.raises(SendError) as caught:
        sender(network).send("T", numbered(16))
    results = caught.value.results
    assert {r.queue.broker_name: r.ok for r in results} == {"b-a": False, "b-b": True}
    wrong = next(r for r in results if not r.ok)
    assert isinstance(wrong.error, ResponseError)
    assert str(wrong.error).startswith(
        f"cannot tell where in {wrong.queue} it is stored: a:0: the answer's field queueOffset"
    )
    assert caught.value.__cause__ is wrong.error


def test_a_topic_that_goes_away_meanwhile_still_gives_a_result_for_every_message(
    network: Network,
) -> None:
    """And that without a route that could be remembered."""
    routes = {"T": route_body(CLUSTER)}
    network.servers["n:1"] = name_server(routes)
    pool = network.pool()
    facts = Metadata("n:1", pool, 2.0, route_seconds=0)
    begun = Sender(facts, pool, SendSettings(timeout=2.0))
    ask, asked = network.servers["n:1"], []

    def once(request: Frame) -> Iterable[Reply]:
        asked.append(request)
        return ask(request) if len(asked) == 1 else [answer(17, "no route")]

    network.servers["n:1"] = once
    with pytest.raises(SendError, match=r"3 of 3 messages .* cannot find topic T") as caught:
        begun.send("T", numbered(3, delay_level=1))
    assert {type(result.error) for result in caught.value.results} == {TopicNotFoundError}


def test_garbage_still_gives_a_result_for_every_message(network: Network, store: Store) -> None:
    network.servers["a:0"] = store.broker("b-a", *[b"HTTP/1.1 400 "] * 50)
    with pytest.raises(SendError, match="does not speak RocketMQ") as caught:
        sender(network).send("T", numbered(16))
    assert {r.queue.broker_name: r.ok for r in caught.value.results} == {"b-a": False, "b-b": True}


def test_a_name_server_that_goes_away_in_mid_send(network: Network, store: Store) -> None:
    network.servers["a:0"] = store.broker("b-a", *[answer(2, "busy")] * 50)
    ask, asked = network.servers["n:1"], list[int]()

    def dying(request: Frame) -> Iterable[Reply]:
        asked.append(1)
        return ask(request) if len(asked) == 1 else [CUT]

    network.servers["n:1"] = dying
    results = sender(network).send("T", numbered(16))  # by the route of before
    assert {result.queue.broker_name for result in results} == {"b-b"}


def test_a_topic_nobody_may_write(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": route_body(CLUSTER, perm=4)})
    with pytest.raises(NoPermissionError, match="cannot send to topic T: its perm"):
        sender(network).send("T", [Message(b"x")])


def test_a_topic_without_masters(network: Network) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {1: "a:1"}})})
    with pytest.raises(UnavailableError, match="none of its brokers has a master"):
        sender(network).send("T", [Message(b"x")])


def test_a_topic_that_does_not_exist(network: Network) -> None:
    with pytest.raises(TopicNotFoundError, match="cannot find topic X"):
        sender(network).send("X", [Message(b"x")])


# --- order ------------------------------------------------------------------------------------


def keyed(count: int, keys: Sequence[str] = ("a", "b", "c", "d", "e")) -> list[Message]:
    """Messages that travel alone, so that each is a request of its own."""
    return [
        Message(b"%05d" % n, sharding_key=keys[n % len(keys)], properties={"DELAY": "1"})
        for n in range(count)
    ]


class Backwards:
    """Answers only when nothing more comes, and the last first, as brokers' threads may."""

    def __init__(self, store: Store, name: str, expect: int) -> None:
        self._store, self._name, self._expect = store, name, expect
        self._held: list[Frame] = []

    def __call__(self, request: Frame) -> Iterable[Reply]:
        self._held.append(request)
        if len(self._held) == self._expect:
            held, self._held = self._held, []
            for waiting in reversed(held):
                yield to_bytes(self._store.store(self._name, waiting), waiting)


def in_order(store: Store) -> bool:
    return all(bodies == sorted(bodies) for bodies in store.queues.values())


@pytest.mark.parametrize("in_flight", [1, 2, 3, 8])
def test_the_order_of_a_key_is_kept_whatever_the_limit(
    network: Network, store: Store, in_flight: int
) -> None:
    sender(network, in_flight=in_flight).send("T", keyed(60))
    assert len(store.bodies) == 60
    assert in_order(store)


def test_the_order_of_a_key_is_kept_when_answers_come_backwards(
    network: Network, store: Store
) -> None:
    # Queues 0 and 1: two requests are in flight, one of each key.
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}}, queues=2)})
    network.servers["a:0"] = Backwards(store, "b-a", expect=2)
    sender(network).send("T", keyed(40, keys=["a", "b"]))
    assert len(store.bodies) == 40
    assert in_order(store)


@pytest.mark.parametrize("failure", [answer(2, "busy"), CUT, ()], ids=["busy", "cut", "silence"])
@pytest.mark.parametrize("after", [0, 1, 7])
def test_the_order_of_a_key_is_kept_through_a_failure(
    network: Network, store: Store, failure: Any, after: int
) -> None:
    calm = [None] * after
    network.servers["a:0"] = store.broker("b-a", *calm, failure)
    network.servers["b:0"] = store.broker("b-b", *calm, failure)
    sender(network).send("T", keyed(60))
    assert in_order(store)
    # Those that were in flight may be there twice, but none is missing.
    assert sorted(set(store.bodies)) == [b"%05d" % number for number in range(60)]


def test_nothing_overtakes_what_could_not_be_stored(network: Network, store: Store) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}}, queues=1)})
    network.servers["a:0"] = store.broker("b-a", None, *[answer(2, "busy")] * 50)
    with pytest.raises(SendError, match="9 of 10") as caught:
        sender(network).send("T", keyed(10, keys=["a"]))
    assert store.bodies == [b"00000"]
    assert [result.ok for result in caught.value.results] == [True] + [False] * 9


def test_one_message_that_is_refused_for_good_does_not_hold_up_the_rest(
    network: Network, store: Store
) -> None:
    network.servers["n:1"] = name_server({"T": route_body({"b-a": {0: "a:0"}}, queues=1)})
    network.servers["a:0"] = store.broker("b-a", None, answer(13, "illegal"))
    with pytest.raises(SendError, match="1 of 10"):
        sender(network).send("T", keyed(10, keys=["a"]))
    assert len(store.bodies) == 9


# --- static topics ----------------------------------------------------------------------------


def test_a_static_queue_is_written_at_its_owner(network: Network, store: Store) -> None:
    mapping = {"scope": "__global__", "totalQueues": 2, "epoch": 1}
    static = {
        "b-a": {**mapping, "bname": "b-a", "currIdMap": {"1": 0}},
        "b-b": {**mapping, "bname": "b-b", "currIdMap": {"0": 0}},
    }
    network.servers["n:1"] = name_server({"T": route_body(CLUSTER, static=static)})
    results = sender(network).send("T", numbered(4))
    assert {json.dumps([r.queue.broker_name, r.queue.queue_id]) for r in results} == {
        '["__syslo__global__", 0]',
        '["__syslo__global__", 1]',
    }
    assert sorted(store.queues) == [("b-a", 1), ("b-b", 0)]
