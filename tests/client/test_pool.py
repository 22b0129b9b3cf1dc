"""The pool: reuse of what is good, replacement of what is not, forks and draining servers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from rocketmq_spark.errors import (
    BusyError,
    ConnectError,
    ConnectionLostError,
    FrameError,
    FrameTooLargeError,
    GoAwayError,
    RequestTimeoutError,
    ResponseError,
    RocketMQError,
)
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.session import Command
from tests.client.scripted import CUT, Network, Reply, answer, in_turn, silent

ASK = Command(206, {})
ROOT = Path(__file__).parents[2]


def soon() -> float:
    return time.monotonic() + 10


def echo(request: Frame) -> Iterable[Reply]:
    yield answer(body=b"fine")


@pytest.fixture
def network() -> Network:
    network = Network()
    network.servers["a:1"] = echo
    network.servers["b:1"] = echo
    return network


def test_a_connection_is_used_again(network: Network) -> None:
    pool = network.pool()
    for _ in range(3):
        assert bytes(pool.ask("a:1", ASK, "w", soon()).body) == b"fine"
    assert len(network.streams) == 1
    assert repr(pool) == "<Pool idle: a:1: 1>"


def test_each_address_has_its_own(network: Network) -> None:
    pool = network.pool()
    pool.ask("a:1", ASK, "w", soon())
    pool.ask("b:1", ASK, "w", soon())
    assert [address for address, _ in network.streams] == ["a:1", "b:1"]
    assert repr(pool) == "<Pool idle: a:1: 1, b:1: 1>"


def test_two_users_at_a_time_have_two(network: Network) -> None:
    pool = network.pool()
    with pool.connection("a:1", soon()) as one, pool.connection("a:1", soon()) as other:
        assert one is not other
    assert repr(pool) == "<Pool idle: a:1: 2>"
    with pool.connection("a:1", soon()) as again:
        assert again in (one, other)


def test_a_connection_idle_for_too_long_is_replaced(network: Network) -> None:
    pool = network.pool(idle_seconds=0.05)
    pool.ask("a:1", ASK, "w", soon())
    time.sleep(0.1)
    pool.ask("b:1", ASK, "w", soon())  # whoever comes by closes it
    assert network.streams[0][1].closed
    pool.ask("a:1", ASK, "w", soon())
    assert len(network.streams) == 3


def test_one_that_the_server_closed_meanwhile_is_replaced(network: Network) -> None:
    pool = network.pool()
    pool.ask("a:1", ASK, "w", soon())
    network.end_all()
    assert bytes(pool.ask("a:1", ASK, "w", soon()).body) == b"fine"
    assert len(network.streams) == 2
    assert network.streams[0][1].closed


def test_nobody_is_handed_one_that_has_ended(network: Network) -> None:
    pool = network.pool()
    pool.ask("a:1", ASK, "w", soon())
    network.end_all()
    with pool.connection("a:1", soon()) as connection:
        assert bytes(connection.call(ASK, soon()).body) == b"fine"


def test_what_the_server_asked_meanwhile_is_answered_first(network: Network) -> None:
    pool = network.pool()
    pool.ask("a:1", ASK, "w", soon())
    [(_, stream)] = network.streams
    stream.push(Frame(307, 5))
    with pool.connection("a:1", soon()):
        assert [reply.opaque for reply in stream.replies] == [5]


def test_one_that_the_server_closes_at_the_very_moment_is_replaced(network: Network) -> None:
    network.servers["a:1"] = in_turn(answer(), CUT, answer(body=b"second"))
    pool = network.pool()
    pool.ask("a:1", ASK, "w", soon())
    assert bytes(pool.ask("a:1", ASK, "w", soon()).body) == b"second"


def test_a_server_that_always_hangs_up_is_asked_twice_only(network: Network) -> None:
    network.servers["a:1"] = in_turn(CUT)
    with pytest.raises(ConnectionLostError):
        network.pool().ask("a:1", ASK, "w", soon())
    assert len(network.streams) == 2


def test_a_timeout_is_not_tried_again(network: Network) -> None:
    network.servers["a:1"] = silent
    pool = network.pool()
    with pytest.raises(RequestTimeoutError):
        pool.ask("a:1", ASK, "w", soon())
    assert len(network.streams) == 1
    assert network.streams[0][1].closed
    assert repr(pool) == "<Pool idle: none>"


def test_a_refused_connection_is_reported(network: Network) -> None:
    with pytest.raises(ConnectError, match="cannot list: no connection to nobody:1"):
        network.pool().ask("nobody:1", ASK, "cannot list", soon())


def test_what_is_left_on_a_connection_is_not_the_next_users_problem(network: Network) -> None:
    network.servers["a:1"] = in_turn((), answer(body=b"ours"))
    pool = network.pool()
    with pool.connection("a:1", soon()) as connection:
        connection.submit([(ASK, "nobody waits")], soon())
    assert network.streams[0][1].closed
    assert bytes(pool.ask("a:1", ASK, "w", soon()).body) == b"ours"
    assert len(network.streams) == 2


def test_it_comes_back_after_an_error_of_the_user(network: Network) -> None:
    pool = network.pool()
    with pytest.raises(KeyError), pool.connection("a:1", soon()):
        raise KeyError("of the user's own")
    assert repr(pool) == "<Pool idle: a:1: 1>"


def test_anything_but_success_is_an_exception_with_what_and_where(network: Network) -> None:
    network.servers["a:1"] = in_turn(answer(2, "too many requests"))
    with pytest.raises(BusyError, match="cannot list: a:1 answered code 2: too many requests"):
        network.pool().ask("a:1", ASK, "cannot list", soon())


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ((), RequestTimeoutError),
        (CUT, ConnectionLostError),
        (bytes(8), FrameError),
        (b"\x7f\xff\xff\xff", FrameTooLargeError),
    ],
    ids=["silence", "cut", "garbage", "oversized"],
)
def test_other_trouble_also_says_what_was_asked_and_what_to_do(
    network: Network, reply: Sequence[Reply] | Reply, error: type[RocketMQError]
) -> None:
    network.servers["a:1"] = in_turn(reply)
    with pytest.raises(error, match=r"^cannot list: ") as caught:
        network.pool().ask("a:1", ASK, "cannot list", soon())
    assert type(caught.value) is error
    assert str(caught.value) == f"{caught.value.message}. {error.advice}"


def test_a_query_gives_what_was_read_from_the_answer(network: Network) -> None:
    pool = network.pool()
    assert pool.query("a:1", ASK, "w", soon(), lambda frame: bytes(frame.body)) == b"fine"


def test_an_answer_that_cannot_be_read_says_what_and_where(network: Network) -> None:
    def read(frame: Frame) -> None:
        raise ResponseError("the list is none")

    pool = network.pool()
    with pytest.raises(ResponseError, match=r"^cannot list: a:1: the list is none"):
        pool.query("a:1", ASK, "cannot list", soon(), read)
    assert repr(pool) == "<Pool idle: a:1: 1>"  # it is the answer's fault, not the connection's


def test_go_away_is_asked_again_once_on_a_new_connection(network: Network) -> None:
    network.servers["a:1"] = in_turn(answer(), answer(1500, "draining"), answer(body=b"new"))
    pool = network.pool()
    pool.ask("a:1", ASK, "w", soon())
    with pool.connection("a:1", soon()), pool.connection("a:1", soon()):
        pass  # two idle ones, both to be given up
    assert bytes(pool.ask("a:1", ASK, "w", soon()).body) == b"new"
    assert [stream.closed for _, stream in network.streams] == [True, True, False]


def test_go_away_twice_is_an_exception(network: Network) -> None:
    network.servers["a:1"] = in_turn(answer(1500, "draining"))
    with pytest.raises(GoAwayError):
        network.pool().ask("a:1", ASK, "w", soon())
    assert len(network.requests()) == 2


def test_close_closes_what_is_idle(network: Network) -> None:
    pool = network.pool()
    pool.ask("a:1", ASK, "w", soon())
    pool.ask("b:1", ASK, "w", soon())
    pool.close()
    assert all(stream.closed for _, stream in network.streams)
    assert repr(pool) == "<Pool idle: none>"


def test_threads_never_share_a_connection(network: Network) -> None:
    pool, in_use, shared = network.pool(), set[int](), list[int]()

    def work() -> None:
        for _ in range(50):
            with pool.connection("a:1", soon()) as connection:
                if id(connection) in in_use:
                    shared.append(id(connection))
                in_use.add(id(connection))
                connection.call(ASK, soon())
                in_use.discard(id(connection))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not shared
    assert len(network.streams) <= 6


FORK = """
import os, sys, threading, time
from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.client.transport import open_stream
from rocketmq_spark.wire.session import Command, Session
from tests.client.scripted import LoopbackServer, answer

server = LoopbackServer(lambda request: [answer(body=request.ext["from"].encode())])

def connect(address, deadline):
    return Connection(address, open_stream(address, deadline), Session())

pool = Pool(connect)

def ask(who):
    frame = pool.ask(server.address, Command(206, {"from": who}), "w", time.monotonic() + 5)
    return bytes(frame.body).decode()

assert ask("parent") == "parent"
assert server.accepted == 1

# Another thread holds the pool's lock at the moment of the fork: the child must not wait for it.
held, release = threading.Event(), threading.Event()
def hold():
    with pool._lock:
        held.set()
        release.wait(10)
holder = threading.Thread(target=hold)
holder.start()
held.wait(5)

child = os.fork()
if child == 0:
    try:
        ok = "a:1" not in repr(pool) and ask("child") == "child" and ask("child") == "child"
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        ok = False
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
release.set()
holder.join(5)
assert os.waitstatus_to_exitcode(status) == 0, "the child failed"
assert server.accepted == 2, "the child must open its own connection"
assert ask("parent again") == "parent again"
assert server.accepted == 2, "the parent's connection outlives the child"
print("fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_opens_its_own_and_the_parents_lives_on() -> None:
    # In a process of its own, for pytest's threads and a fork do not go together.
    run = subprocess.run(
        [sys.executable, "-c", FORK],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout.strip()) == (0, "fine"), run.stderr


def test_a_read_that_the_garbage_collector_ends_may_come_at_any_moment(network: Network) -> None:
    """Also while this very thread holds the pool's lock: giving back must not wait for itself."""
    pool = network.pool()

    def abandoned() -> Iterator[None]:
        with pool.connection("a:1", soon()):
            yield

    unfinished = abandoned()
    next(unfinished)
    done = threading.Event()

    def collect() -> None:
        with pool._lock:
            unfinished.close()
        done.set()

    threading.Thread(target=collect, daemon=True).start()
    assert done.wait(20), "the pool waits for itself"
