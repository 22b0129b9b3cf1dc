"""How much a batch reads: limits by messages, bytes and time, and runs of what is available."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.model import MessageQueue
from tests.waiting import until

from .queries import ADMISSION_CONTROL, COLUMNS, Source, limits_batches, numbered, send

pytestmark = pytest.mark.compat


@pytest.fixture
def pair(client: Client, new_topic: Callable[..., str]) -> tuple[MessageQueue, MessageQueue]:
    """Two queues of a topic, on one broker."""
    first, second = client.queues(new_topic(2, brokers=[client.brokers()[0].broker_name]))
    return first, second


@limits_batches
def test_a_run_ends_where_the_topic_ended_when_it_began(
    client: Client,
    source: Source,
    pair: tuple[MessageQueue, MessageQueue],
    tmp_path: Path,
) -> None:
    first, second = pair
    stream = source.with_options(
        topic=first.topic, startingOffsets="earliest", maxOffsetsPerTrigger=7
    )
    # One queue has much more than the other, and neither starves.
    messages = [Message(body, queue=first) for body in numbered("a", 60)]
    messages += [Message(body, queue=second) for body in numbered("b", 10)]
    send(client, first.topic, messages)
    run = stream.start(tmp_path, COLUMNS, available_now=True)
    run.wait_for(7)
    send(client, first.topic, [Message(body, queue=first) for body in numbered("later", 5)])
    run.finish()
    assert run.bodies == numbered("a", 60) + numbered("b", 10)
    assert run.batches == [7] * 10
    in_first_batch = {row["queueId"] for row in run.rows if row["queueOffset"] < 6}
    assert in_first_batch == {0, 1}

    again = stream.run_now(tmp_path, COLUMNS)
    assert again.bodies == numbered("later", 5)


@pytest.mark.skipif(ADMISSION_CONTROL, reason="Spark 4.0 and 4.1")
def test_a_run_is_one_batch_where_spark_knows_no_limits(
    client: Client,
    source: Source,
    pair: tuple[MessageQueue, MessageQueue],
    tmp_path: Path,
) -> None:
    """It ends with everything read, whatever limit was asked for, and nothing is read twice."""
    first, second = pair
    stream = source.with_options(
        topic=first.topic, startingOffsets="earliest", maxOffsetsPerTrigger=7
    )
    messages = [Message(body, queue=first) for body in numbered("a", 60)]
    messages += [Message(body, queue=second) for body in numbered("b", 10)]
    send(client, first.topic, messages)
    run = stream.run_now(tmp_path, COLUMNS)
    assert run.batches == [70]
    assert run.bodies == numbered("a", 60) + numbered("b", 10)
    nothing = stream.run_now(tmp_path, COLUMNS)
    assert nothing.batches == []
    for number in range(2):
        send(
            client, first.topic, [Message(body, queue=second) for body in numbered(f"{number}", 5)]
        )
        again = stream.run_now(tmp_path, COLUMNS, startingOffsets="latest")
        assert (again.batches, again.bodies) == ([5], numbered(f"{number}", 5))


@limits_batches
def test_bytes_of_a_batch(
    client: Client, source: Source, pair: tuple[MessageQueue, MessageQueue], tmp_path: Path
) -> None:
    first, second = pair
    send(client, first.topic, [Message("x" * 1000, queue=first) for _ in range(40)])
    send(client, first.topic, [Message("y" * 3000, queue=second) for _ in range(40)])
    run = source.run_now(
        tmp_path,
        COLUMNS,
        topic=first.topic,
        startingOffsets="earliest",
        maxBytesPerTrigger="40k",
    )
    assert sum(run.batches) == 80
    # About 20 messages of 2,000 bytes are 40 kB; an estimate is not held to the last one.
    assert all(15 <= batch <= 25 for batch in run.batches[:-1]), run.batches


@limits_batches
def test_no_queue_runs_ahead_in_time(
    client: Client, source: Source, pair: tuple[MessageQueue, MessageQueue], tmp_path: Path
) -> None:
    first, second = pair
    send(client, first.topic, [Message(body, queue=first) for body in numbered("a", 5)])
    wait_until(time.time() + 2)
    messages = [Message(body, queue=second) for body in numbered("b", 5)]
    messages += [Message(body, queue=first) for body in numbered("c", 3)]
    send(client, first.topic, messages)
    run = source.run_now(
        tmp_path,
        COLUMNS,
        topic=first.topic,
        startingOffsets="earliest",
        maxTimestampSkew="1s",
    )
    assert run.bodies == numbered("a", 5) + numbered("b", 5) + numbered("c", 3)
    assert run.batches == [5, 8]


@limits_batches
def test_wait_for_enough(
    client: Client, source: Source, pair: tuple[MessageQueue, MessageQueue], tmp_path: Path
) -> None:
    first, second = pair
    send(client, first.topic, [Message("first", queue=first)])
    with source.start(
        tmp_path,
        COLUMNS,
        topic=first.topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="10m",
    ) as run:
        run.wait_for(1)  # the first batch does not wait: its start must be written down
        send(client, first.topic, [Message(body, queue=first) for body in numbered("a", 4)])
        wait_until(time.time() + 1)
        assert run.bodies == ["first"]
        send(client, first.topic, [Message(body, queue=second) for body in numbered("b", 6)])
        run.wait_for(11)
        until(lambda: run.batches == [1, 10])


def wait_until(moment: float) -> None:
    while time.time() < moment:
        time.sleep(0.02)
