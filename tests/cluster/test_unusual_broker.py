"""A broker that answers with binary headers, listens on IPv6, and speaks TLS with whoever comes.

The three have nothing to do with each other: they share a cluster because starting one is dear.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketmq_spark.client import Client, Message, Tls
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import TlsError, TopicNotFoundError
from rocketmq_spark.local_cluster import LocalCluster
from rocketmq_spark.wire import frame
from tests.waiting import until

from .witness import Witness, differences, rows


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def unusual() -> Iterator[LocalCluster]:
    # Without brackets, as an operator writes it and RocketMQ then registers it.
    host = "::1" if has_ipv6() else "127.0.0.1"
    with LocalCluster(
        tls=True,
        config={"brokerIP1": host, "bindAddress": host},
        jvm_args=["-Djava.net.preferIPv4Stack=false", "-Drocketmq.serialize.type=ROCKETMQ"],
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(unusual: LocalCluster) -> Iterator[Client]:
    """Shows no certificate."""
    with Client(unusual.name_server, tls=str(unusual.tls_ca), timeout=15) as client:
        yield client


@pytest.fixture(scope="module")
def witness(unusual: LocalCluster) -> Iterator[Witness]:
    witness = Witness(unusual)
    yield witness
    witness.close()


@pytest.fixture
def queue(new_topic: Callable[..., str], client: Client) -> MessageQueue:
    (queue,) = client.queues(new_topic(1))
    return queue


# --- binary headers -----------------------------------------------------------------------


@pytest.fixture
def headers(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many of each kind are parsed."""
    seen: Counter[str] = Counter()

    def counted(kind: str, parse: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any) -> Any:
            seen[kind] += 1
            return parse(*args)

        return count

    for kind in ("_decode_json", "_decode_binary"):
        monkeypatch.setattr(frame, kind, counted(kind, getattr(frame, kind)))
    return seen


def test_binary_headers(client: Client, queue: MessageQueue, headers: Counter[str]) -> None:
    bodies = [b"%d" % n for n in range(5000)] + [b"", b"z" * 5000]
    sent = client.send(queue.topic, [Message(b, tags="T", queue=queue) for b in bodies])
    assert [s.queue_offset for s in sent] == list(range(len(bodies)))
    until(lambda: client.offsets(queue) == (0, len(bodies)))
    assert client.topic_offsets(queue.topic) == {queue: (0, len(bodies))}
    found = rows(client, queue)
    assert [row["body"] for row in found] == bodies
    assert rows(client, queue, 4990, sub_expression="T") == found[4990:]
    assert client.offset_at(queue, found[0]["storeTimestamp"]) == 0
    assert client.committed("billing", queue) is None
    client.commit("billing", queue, 7)
    assert client.committed("billing", queue) == 7
    assert client.consumers("billing") == []
    # A server's own words are in the header, too.
    with pytest.raises(TopicNotFoundError, match="No topic route info in name server"):
        client.queues("no_such_topic")
    assert headers["_decode_binary"] > len(bodies) // 32
    assert not headers["_decode_json"]


# --- IPv6 ---------------------------------------------------------------------------------


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_messages_born_and_stored_by_ipv6_hosts(
    unusual: LocalCluster, client: Client, witness: Witness, queue: MessageQueue
) -> None:
    address = unusual.brokers["broker-a"].address
    assert address.startswith("::1:")
    assert [b.master for b in client.brokers()] == [address]
    messages = [
        Message("in a batch", tags="T", keys="k", properties={"p": "v"}, flag=7),
        Message(b"", tags="T"),
        Message("squeeze me " * 1000),
        Message("later", delay_level=1),
    ]
    for message in messages[::2]:
        witness.send(queue.topic, message, queue)
    witness.send_batch(queue, [Message(f"b{n}", keys=f"k{n}") for n in range(40)])
    ours = [
        Message(m.body, m.tags, m.keys, m.properties, m.flag, m.delay_level, queue=queue)
        for m in messages
    ]
    results = client.send(queue.topic, ours)
    until(lambda: client.offsets(queue)[1] == 46)

    found = rows(client, queue)
    assert sorted(row["body"] for row in found) == sorted(
        [m.payload for m in messages + messages[::2]] + [b"b%d" % n for n in range(40)]
    )
    assert {row["storeHost"] for row in found} == {f"[::1]{address.removeprefix('::1')}"}
    assert all(row["bornHost"].startswith("[::1]:") for row in found)
    assert {row["sysFlag"] & 0x30 for row in found} == {0x30}  # both are IPv6
    assert not differences(found, witness.read(queue, 0, 46))
    assert rows(client, queue, sub_expression="T") == [r for r in found if r["tags"] == "T"]
    for result in results[:3]:
        assert witness.view(queue.topic, result.offset_msg_id)["msgId"] == result.msg_id


# --- TLS ----------------------------------------------------------------------------------


def test_tls_without_a_client_certificate(
    unusual: LocalCluster, client: Client, witness: Witness, queue: MessageQueue
) -> None:
    body = b"x" * 3_000_000
    client.send(queue.topic, [Message(body, queue=queue)])
    witness.send(queue.topic, Message("from java"), queue)
    until(lambda: client.offsets(queue)[1] == 2)
    found = rows(client, queue)
    assert [row["body"] for row in found] == [body, b"from java"]

    named = Tls(str(unusual.tls_ca), check_host=True)
    with Client(unusual.name_server, tls=named, timeout=15) as careful:
        assert rows(careful, queue) == found
    # The server's certificate is looked at all the same.
    with (
        Client(unusual.name_server, tls=True, timeout=15) as stranger,
        pytest.raises(TlsError, match="not trusted"),
    ):
        stranger.topics()
