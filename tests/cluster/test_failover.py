"""Brokers that die, freeze, restart and change their limits in the middle of a read.

One cluster of a master and a slave; each test leaves both running.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from rocketmq_spark.client import Client, Message, PullSettings, SendError
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import NetworkError, RequestTimeoutError, RocketMQError, UnavailableError
from rocketmq_spark.local_cluster import LocalCluster
from rocketmq_spark.wire import commands
from rocketmq_spark.wire.answers import number
from tests.waiting import until

from .proxy import ProxiedClient, Proxy

COUNT = 20_000
# Small batches, so that a read has a middle.
SMALL_STEPS = PullSettings(batch_bytes=64 * 1024, window_bytes=256 * 1024, patience=120)
MASTER, SLAVE = "broker-a", "broker-a-slave"


@pytest.fixture(scope="module")
def replicated() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1, slaves=1, replication="sync") as running:
        yield running


@pytest.fixture(scope="module")
def client(replicated: LocalCluster) -> Iterator[Client]:
    with Client(replicated.name_server, timeout=15, pull=SMALL_STEPS) as client:
        yield client


@pytest.fixture(scope="module")
def bodies() -> list[bytes]:
    dice = random.Random(17)
    return [b"%d " % i + dice.randbytes(dice.randrange(200)) for i in range(COUNT)]


@pytest.fixture(scope="module")
def queue(client: Client, bodies: list[bytes]) -> MessageQueue:
    """Of a topic that every broker has from the start: a slave hears of others once a minute."""
    queue = MessageQueue("BenchmarkTest", MASTER, 0)
    results = client.send(queue.topic, [Message(body, queue=queue) for body in bodies])
    assert {r.status for r in results} == {"SEND_OK"}  # the slave has them too
    until(lambda: client.offsets(queue)[1] == COUNT)
    return queue


def ask(client: Client, address: str, command: object) -> object:
    return client._pool.ask(address, command, "test", time.monotonic() + 15)  # type: ignore[arg-type]


def read_and(
    client: Client, queue: MessageQueue, *events: tuple[int, Callable[[], object]]
) -> list[bytes]:
    """Read everything; when so many messages have come, let the next event happen."""
    found: list[bytes] = []
    waiting = list(events)
    for batch in client.read(queue, 0, COUNT, ["body"]):
        found += batch.column(0).to_pylist()
        while waiting and len(found) >= waiting[0][0]:
            waiting.pop(0)[1]()
    assert not waiting, "the read was over before it could be disturbed"
    return found


def restart(cluster: LocalCluster, name: str) -> None:
    if not cluster.brokers[name].running:
        cluster.start(name)


# --- limits -------------------------------------------------------------------------------


def test_a_reader_adapts_to_what_a_broker_gives_at_once(
    replicated: LocalCluster, client: Client, queue: MessageQueue, bodies: list[bytes]
) -> None:
    """8 at once is what brokers give from disk; operators raise the limit."""
    address = replicated.brokers[MASTER].address

    def limit(count: int) -> Callable[[], None]:
        def change() -> None:
            names = ("maxTransferCountOnMessageInMemory", "maxTransferCountOnMessageInDisk")
            settings = dict.fromkeys(names, str(count))
            ask(client, address, commands.update_broker_config(settings))
            pull = commands.pulls("g", queue, MASTER, commands.Subscription()).command((0, 512))
            frame = ask(client, address, pull)
            assert number(frame, "nextBeginOffset") == count  # type: ignore[arg-type]

        return change

    try:
        found = read_and(
            client,
            queue,
            (2000, limit(8)),
            (6000, limit(64)),
            (12_000, limit(1)),
            (13_000, limit(512)),
        )
    finally:
        limit(32)()
    assert found == bodies


def test_what_is_old_is_read_from_the_slave_that_the_master_names(
    replicated: LocalCluster, client: Client, queue: MessageQueue, bodies: list[bytes]
) -> None:
    """Old is what does not fit a share of the memory; when that is 0 %, everything is."""
    master, slave = (replicated.brokers[name].address for name in (MASTER, SLAVE))

    def share(percent: int) -> None:
        setting = {"accessMessageInMemoryMaxRatio": str(percent)}
        for address in (master, slave):
            ask(client, address, commands.update_broker_config(setting))

    def read() -> Counter[str]:
        proxy = Proxy()
        try:
            with ProxiedClient(
                replicated.name_server, proxy, timeout=10, pull=SMALL_STEPS
            ) as reader:
                assert read_and(reader, queue) == bodies
        finally:
            proxy.close()
        return proxy.received

    young = read()
    try:
        share(0)
        old = read()
    finally:
        share(40)
    assert young[master] > young[slave] == 0
    assert old[slave] > old[master] > 0


# --- cut connections ----------------------------------------------------------------------


def test_every_connection_is_cut_and_nothing_is_lost_or_twice(
    replicated: LocalCluster, queue: MessageQueue, bodies: list[bytes]
) -> None:
    proxy = Proxy(cut_after=(1, 300_000))
    try:
        with ProxiedClient(replicated.name_server, proxy, timeout=5, pull=SMALL_STEPS) as client:
            assert read_and(client, queue) == bodies
    finally:
        proxy.close()
    assert proxy.cuts >= 5


def test_sends_over_cut_connections_may_double_but_not_lose(
    replicated: LocalCluster, client: Client
) -> None:
    topic = f"t_{uuid.uuid4().hex[:12]}"
    client.create_topic(topic, 2)
    bodies = [f"m{i}" for i in range(300)]
    proxy = Proxy(cut_after=(200, 4000))
    try:
        with ProxiedClient(replicated.name_server, proxy, timeout=5) as cut:
            for start in range(0, 300, 10):
                part = bodies[start : start + 10]
                until(lambda part=part: _all_sent(cut, topic, part))  # type: ignore[misc]
    finally:
        proxy.close()
    assert proxy.cuts >= 3

    def everything() -> list[str]:
        return [
            body.decode()
            for queue in client.queues(topic)
            for batch in client.read(queue, *client.offsets(queue), ["body"])
            for body in batch.column(0).to_pylist()
        ]

    until(lambda: set(everything()) == set(bodies))


def _all_sent(client: Client, topic: str, bodies: list[str]) -> bool:
    try:
        return all(r.ok for r in client.send(topic, [Message(b) for b in bodies]))
    except RocketMQError as error:
        assert isinstance(error, SendError) or error.retriable
        return False


def test_ipv6(replicated: LocalCluster, queue: MessageQueue, bodies: list[bytes]) -> None:
    """The brokers speak IPv4; what we see of them is at [::1]."""
    try:
        proxy = Proxy(host="::1")
        name_server = proxy.address_for(replicated.name_server)
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    try:
        with ProxiedClient(name_server, proxy, timeout=10) as client:
            assert read_and(client, queue) == bodies
    finally:
        proxy.close()
    assert proxy.connections >= 2


# --- death and frost ----------------------------------------------------------------------


def test_a_broker_that_is_restarted_is_read_on_and_written_on(
    replicated: LocalCluster, client: Client, queue: MessageQueue, bodies: list[bytes]
) -> None:
    starting: list[threading.Thread] = []

    def bounce() -> None:
        replicated.kill(MASTER)
        starting.append(threading.Thread(target=restart, args=(replicated, MASTER)))
        starting[0].start()

    replicated.kill(SLAVE)  # or it would be read meanwhile
    try:
        found = read_and(client, queue, (3000, bounce))
    finally:
        for thread in starting:
            thread.join()
        restart(replicated, MASTER)
        restart(replicated, SLAVE)
    assert found == bodies

    topic = f"t_{uuid.uuid4().hex[:12]}"
    client.create_topic(topic, 1)
    until(lambda: _sent(client, topic))


def _sent(client: Client, topic: str) -> bool:
    try:
        return client.send(topic, [Message("again")])[0].ok
    except (SendError, UnavailableError):
        return False


def test_reading_goes_on_from_a_slave_when_the_master_is_killed(
    replicated: LocalCluster, client: Client, queue: MessageQueue, bodies: list[bytes]
) -> None:
    try:
        found = read_and(client, queue, (3000, lambda: replicated.kill(MASTER)))
        assert found == bodies
        # The slave answers questions too; nothing can be written.
        assert client.offsets(queue) == (0, COUNT)
        assert client.topic_offsets(queue.topic)[queue] == (0, COUNT)
        assert client.offset_at(queue, 0) == 0
        assert queue in client.queues(queue.topic)
        with pytest.raises(UnavailableError, match=queue.topic):
            client.send(queue.topic, [Message("nobody takes it")])
    finally:
        restart(replicated, MASTER)
    assert read_and(client, queue) == bodies


def test_reading_goes_on_from_a_slave_when_the_master_is_frozen(
    replicated: LocalCluster, queue: MessageQueue, bodies: list[bytes]
) -> None:
    with Client(replicated.name_server, timeout=2, pull=SMALL_STEPS) as client:
        try:
            found = read_and(client, queue, (3000, lambda: replicated.pause(MASTER)))
        finally:
            replicated.resume(MASTER)
    assert found == bodies


def test_a_frozen_broker_is_a_timeout_and_a_thawed_one_is_read_on(
    replicated: LocalCluster, queue: MessageQueue, bodies: list[bytes]
) -> None:
    with Client(replicated.name_server, timeout=2, pull=SMALL_STEPS) as client:
        thaw: list[threading.Timer] = []

        def freeze() -> None:
            for name in (MASTER, SLAVE):
                replicated.pause(name)
            started = time.monotonic()
            with pytest.raises(RequestTimeoutError, match=r"127\.0\.0\.1:"):
                client.offsets(queue)
            assert time.monotonic() - started < 120
            thaw.append(threading.Timer(1.0, resume))
            thaw[0].start()

        def resume() -> None:
            for name in (MASTER, SLAVE):
                replicated.resume(name)

        try:
            found = read_and(client, queue, (3000, freeze))
        finally:
            for timer in thaw:
                timer.join()
            for name in (MASTER, SLAVE):
                if replicated.brokers[name].paused:
                    replicated.resume(name)
    assert found == bodies


def test_impatience_ends_a_read_of_a_frozen_broker(
    replicated: LocalCluster, queue: MessageQueue
) -> None:
    hasty = PullSettings(batch_bytes=64 * 1024, window_bytes=256 * 1024, patience=6)
    with Client(replicated.name_server, timeout=2, pull=hasty) as client:
        reading = client.read(queue, 0, COUNT, ["body"])
        next(reading)
        try:
            for name in (MASTER, SLAVE):
                replicated.pause(name)
            started = time.monotonic()
            with pytest.raises(NetworkError, match=r"127\.0\.0\.1:"):
                for _ in reading:
                    pass
            assert time.monotonic() - started < 120
        finally:
            for name in (MASTER, SLAVE):
                replicated.resume(name)
