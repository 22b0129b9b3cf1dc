"""The demo: its check finds what is wrong, it prints without a terminal, and it runs to its end."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

import pytest
from rich.console import Console

from rocketmq_spark.cli.demo import orders
from rocketmq_spark.cli.demo.orders import Producer, Total, faults, totals
from rocketmq_spark.cli.demo.screen import Moment, Screen, verdict_table
from rocketmq_spark.cli.demo.tally import Piece, Tally
from rocketmq_spark.client import Client
from rocketmq_spark.core.model import MessageQueue

PROGRAM = [sys.executable, "-m", "rocketmq_spark", "demo"]


# --- the check --------------------------------------------------------------------------------


def test_nothing_is_wrong_with_a_right_count() -> None:
    assert faults(1000, reversed(range(1000)), totals(range(1000))) == []


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([*range(17), *range(18, 100)], "1 order lost (the first: 17)"),
        ([*range(100), 17, 18], "2 orders counted twice (the first: 17)"),
        ([*range(100), 100], "1 order never sent (the first: 100)"),
        ([], "100 orders lost (the first: 0)"),
    ],
)
def test_what_is_lost_or_counted_twice_is_found(numbers: list[int], said: str) -> None:
    found = faults(100, numbers, totals(numbers))
    assert found[0] == said
    assert any("should be" in fault for fault in found[1:])  # the totals tell it too


def test_one_lost_and_one_twice_do_not_make_up_for_each_other() -> None:
    # 0 and 2 have the same tag, so their count is right, and only the numbers tell.
    numbers = [0, 0, 1, *range(3, 10)]
    assert faults(10, numbers, totals(range(10))) == [
        "1 order lost (the first: 2)",
        "1 order counted twice (the first: 0)",
    ]


def test_a_wrong_amount_is_found() -> None:
    told = {**totals(range(10)), "paid": Total(3, 1)}
    [fault] = faults(10, range(10), told)
    assert fault.startswith("paid should be Total(orders=3, cents=")


# --- what Spark tells -------------------------------------------------------------------------

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def piece(queue: MessageQueue, member: str, numbers: Iterable[int], second: float = 0) -> Piece:
    held = tuple(numbers)
    return Piece(second, "new", queue, member, held, len(held), sum(map(orders.cents, held)))


def test_a_row_that_comes_again_replaces_itself() -> None:
    tally = Tally()
    tally.take(0, [piece(A0, "m1", [0, 2]), piece(A1, "m2", [4])])
    tally.take(1, [piece(A0, "m1", [0, 2, 7]), piece(A0, "m1", [10], second=1)])
    assert sorted(tally.numbers()) == [0, 2, 4, 7, 10]
    assert tally.totals() == totals([0, 2, 4, 7, 10])
    assert (tally.batch, tally.assignment) == (1, {"m1": (A0,)})


def test_a_queue_that_two_members_read_counts_for_both() -> None:
    tally = Tally()
    tally.take(0, [piece(A0, "m1", [0])])
    tally.take(1, [piece(A0, "m2", [0])])  # the same order once more, by another member
    assert tally.numbers() == [0, 0]
    assert faults(1, tally.numbers(), tally.totals())[0] == "1 order counted twice (the first: 0)"


# --- the screen -------------------------------------------------------------------------------


def test_without_a_terminal_lines_are_printed() -> None:
    paper = io.StringIO()
    screen = Screen(Console(file=paper, width=100))
    with screen.live():
        screen.doing("Spark counts the orders by tag")
        screen.update(Moment(3, 1500, totals(range(1000)), 250.4))
        screen.update(Moment(4, 1600, totals(range(1100)), 250.4))  # too soon for another line
    screen.console.print(verdict_table(totals(range(10)), totals(range(9))))
    lines = paper.getvalue().splitlines()
    assert lines[0] == "Spark counts the orders by tag"
    assert lines[1] == "  batch 3: 1,000 of 1,500 orders counted, lag 500, 250 rows/s"
    assert "sent" in lines[2]
    assert "\x1b" not in paper.getvalue()
    assert [line.split()[-1] for line in lines[4:8]] == ["equal", "DIFFERENT", "equal", "equal"]


def test_in_a_terminal_the_table_changes_in_place() -> None:
    paper = io.StringIO()
    screen = Screen(Console(file=paper, width=100, force_terminal=True))
    with screen.live():
        screen.doing("Spark counts")
        screen.update(Moment(3, 1500, totals(range(1000)), 250.0))
        screen.console.print("a rebalance")
    shown = paper.getvalue()
    assert "batch 3: 1,000 of 1,500" in shown
    assert shown.index("a rebalance") < shown.rindex("batch 3")  # what is printed stays above


# --- for real ---------------------------------------------------------------------------------


def test_the_producer_sends_each_order_once(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "TOPIC", topic)
    producer = Producer(client, rate=5000)
    producer.start()
    deadline = time.monotonic() + 120
    while producer.sent < 3000:
        assert time.monotonic() < deadline, "the producer never got so far"
        producer.check()
        time.sleep(0.05)
    sent = producer.finish()
    found = client.topic_offsets(topic)
    while sum(high for _, high in found.values()) < sent:
        assert time.monotonic() < deadline, "the orders never showed"
        found = client.topic_offsets(topic)
    keys = [
        key
        for queue, (low, high) in found.items()
        for batch in client.read(queue, low, high, ["keys"])
        for key in batch.column("keys").to_pylist()
    ]
    assert sorted(keys) == sorted(f"order-{number}" for number in range(sent))


@pytest.mark.slow
def test_the_whole_demo() -> None:
    done = subprocess.run(
        PROGRAM,
        capture_output=True,
        text=True,
        timeout=290,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none lost, none twice" in done.stdout
    assert "1 queue added (orders/broker-a/3)" in done.stdout
    assert "3 queues added (orders/broker-c/0" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_the_demo_ends_with_ctrl_c() -> None:
    process = subprocess.Popen(
        PROGRAM,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Spark counts" in line:
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said == ""
