"""Wrong addresses, names and ranges: each has its own exception, soon, that says where."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rocketmq_spark.client import Client, Message, SendError
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import (
    BadParameterError,
    ConnectError,
    ConnectionLostError,
    FrameError,
    IllegalMessageError,
    NoPermissionError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedRequestError,
    UsageError,
)
from rocketmq_spark.local_cluster import LocalCluster
from tests.waiting import until

from .witness import rows

TIMEOUT = 1.5


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Generous, for the machine is busy; a hang is minutes."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


@contextmanager
def server(behave: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server on the loopback that does one thing with whoever comes."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_sockets: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            open_sockets.append(peer)
            behave(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
        for peer in open_sockets:
            peer.close()


@contextmanager
def refusal(
    error: type[RocketMQError], what: str, where: str, seconds: float = 10
) -> Iterator[None]:
    """That kind of exception, soon, with what was asked, where it failed, and what to do."""
    with within(seconds), pytest.raises(error) as caught:
        yield
    said = str(caught.value)
    assert said.startswith(what)
    assert where in said
    assert caught.value.advice and said.endswith(caught.value.advice)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


# --- addresses ----------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["", ";", "localhost", "host:", "host:0", "host:65536", ":1"])
def test_addresses_that_cannot_be_right(address: str) -> None:
    with pytest.raises(UsageError):
        Client(address)


def test_a_refused_connection() -> None:
    address = free_address()
    with (
        Client(address, timeout=TIMEOUT) as client,
        refusal(ConnectError, "cannot list the topics", f"{address}: Connection refused"),
    ):
        client.topics()


def test_an_unknown_host() -> None:
    with (
        Client("no-such-host.invalid:9876", timeout=TIMEOUT) as client,
        refusal(ConnectError, "cannot list the topics", "to no-such-host.invalid:9876: ", 20),
    ):
        client.topics()


def test_a_full_backlog_swallows_the_connection() -> None:
    """The kernel drops what does not fit, as a firewall does: nothing at all comes back."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        waiting = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            waiting.append(filler)
        try:
            with (
                Client(address, timeout=TIMEOUT) as client,
                refusal(ConnectError, "cannot list the topics", f"{address} within the timeout"),
            ):
                client.topics()
        finally:
            for filler in waiting:
                filler.close()


def test_a_server_that_never_answers() -> None:
    with (
        server(lambda peer: None) as address,
        Client(address, timeout=TIMEOUT) as client,
        refusal(RequestTimeoutError, "cannot list the topics", f"{address} did not answer"),
    ):
        client.topics()


def test_a_server_that_hangs_up() -> None:
    with (
        server(lambda peer: peer.close()) as address,
        Client(address, timeout=TIMEOUT) as client,
        refusal(ConnectionLostError, "cannot list the topics", f"{address} "),
    ):
        client.topics()


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(64)])
def test_a_server_that_is_no_rocketmq(words: bytes) -> None:
    with (
        server(lambda peer: peer.sendall(words)) as address,
        Client(address, timeout=TIMEOUT) as client,
        refusal(FrameError, "cannot list the topics", f"{address}: a frame of "),
    ):
        client.topics()


def test_one_good_name_server_is_enough(cluster: LocalCluster) -> None:
    with server(lambda peer: None) as silent, server(lambda peer: peer.sendall(bytes(64))) as odd:
        servers = f"{free_address()};{silent};{odd};{cluster.name_server}"
        for _ in range(6):  # it begins anywhere
            with within(15), Client(servers, timeout=4 * TIMEOUT) as client:
                assert len(client.brokers()) == 2


def test_no_good_name_server() -> None:
    with server(lambda peer: None) as silent:
        refused = free_address()
        with within(15), Client(f"{refused};{silent}", timeout=TIMEOUT) as client:
            with pytest.raises(RocketMQError) as caught:
                client.topics()
            assert refused in str(caught.value)
            assert silent in str(caught.value)


def test_a_topic_is_deleted_although_a_name_server_is_dead(
    cluster: LocalCluster, client: Client, new_topic: Callable[..., str]
) -> None:
    topic, dead = new_topic(1), free_address()
    servers = f"{dead};{cluster.name_server}"
    with (
        Client(servers, timeout=4 * TIMEOUT) as careful,
        refusal(ConnectError, f"cannot delete topic {topic}", dead, 20),
    ):
        careful.delete_topic(topic)
    assert topic not in client.topics()


def test_a_broker_in_place_of_a_name_server(cluster: LocalCluster) -> None:
    address = cluster.brokers["broker-a"].address
    with (
        within(20),
        Client(address, timeout=TIMEOUT) as client,
        pytest.raises(UnsupportedRequestError, match=address),
    ):
        client.queues("any")


# --- topics and queues --------------------------------------------------------------------


def test_an_unknown_topic(cluster: LocalCluster, local_client: Client) -> None:
    for ask in (
        lambda: local_client.queues("no_such_topic"),
        lambda: local_client.topic_offsets("no_such_topic"),
        lambda: local_client.send("no_such_topic", [Message("x")]),
        lambda: local_client.delete_topic("no_such_topic"),
        lambda: rows(local_client, MessageQueue("no_such_topic", "broker-a", 0), 0, 1),
    ):
        what = "cannot find topic no_such_topic"
        with refusal(TopicNotFoundError, what, cluster.name_server, 20):
            ask()


def test_a_queue_that_is_not_there(client: Client, topic: str, name_server: str) -> None:
    real = client.queues(topic)[0]
    nowhere = MessageQueue(topic, "broker-z", 0)
    beyond = MessageQueue(topic, real.broker_name, 99)
    with Client(name_server, timeout=TIMEOUT) as hasty:
        with within(20), pytest.raises(UnavailableError, match="broker-z"):
            hasty.offsets(nowhere)
        with within(20), pytest.raises(UnavailableError, match="broker-z"):
            rows(hasty, nowhere, 0, 1)
        with refusal(UnavailableError, str(beyond), "not in the route", 20):
            hasty.offsets(beyond)
        with within(20), pytest.raises(BadParameterError, match=f"{topic}/{real.broker_name}/99"):
            rows(hasty, beyond, 0, 1)
        with pytest.raises(UsageError, match="cannot be written"):
            hasty.send(topic, [Message("x", queue=beyond)])


@pytest.mark.parametrize("start, end", [(-1, 5), (5, 4)])
def test_ranges_that_are_none(client: Client, topic: str, start: int, end: int) -> None:
    with pytest.raises(UsageError, match="not a range"):
        client.read(client.queues(topic)[0], start, end)


def test_ranges_that_the_queue_does_not_have(client: Client, topic: str, name_server: str) -> None:
    queue = client.queues(topic)[0]
    client.send(topic, [Message(f"{i}", queue=queue) for i in range(10)])
    until(lambda: client.offsets(queue)[1] == 10)
    with Client(name_server, timeout=TIMEOUT) as hasty:
        for start, end in ((11, 20), (100, 120)):
            with within(20), pytest.raises(OffsetOutOfRangeError, match=topic) as caught:
                rows(hasty, queue, start, end)
            assert str(start) in str(caught.value)
        with within(20), pytest.raises(OffsetOutOfRangeError, match="ends at 10"):
            rows(hasty, queue, 5, 20)


def test_columns_that_do_not_exist(client: Client, topic: str) -> None:
    with pytest.raises(UsageError, match="'bodies'"):
        client.read(client.queues(topic)[0], 0, 1, ["bodies"])


# --- what a broker will not take ----------------------------------------------------------


def test_a_topic_that_cannot_be_written(
    client: Client, new_topic: Callable[..., str], name_server: str
) -> None:
    topic = new_topic(1, perm=4)
    with within(20), pytest.raises(NoPermissionError, match=topic):
        client.send(topic, [Message("x")])


def test_names_that_rocketmq_refuses(client: Client) -> None:
    for name in ("with space", "x" * 128, "TBW102"):
        with within(20), pytest.raises(BadParameterError, match=name[:20]):
            client.create_topic(name, 1)
    with pytest.raises(UsageError, match="empty"):
        client.create_topic("")
    with pytest.raises(UsageError, match="broker-z"):
        client.create_topic("t_elsewhere", 1, brokers=["broker-z"])


def test_a_delay_that_is_too_long(client: Client, topic: str) -> None:
    """One message of two is refused: the other has its place, and the error names both."""
    far = int(time.time() * 1000) + 365 * 24 * 3600 * 1000
    with within(30), pytest.raises(SendError, match="1 of 2 messages were not stored") as caught:
        client.send(topic, [Message("good"), Message("never", deliver_at=far)])
    good, bad = caught.value.results
    assert good.ok and good.queue_offset >= 0
    assert isinstance(bad.error, IllegalMessageError)
    assert topic in str(bad.error)
