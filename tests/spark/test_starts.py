"""Where a stream begins, and that it goes on from its checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_spark.client import Client, Message

from .queries import COLUMNS, Source, numbered, send


@pytest.mark.compat
def test_each_kind_of_start(
    client: Client, source: Source, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2, brokers=[client.brokers()[0].broker_name])
    first, second = client.queues(topic)
    both = (("a", first), ("b", second))
    send(client, topic, [Message(body, queue=q) for n, q in both for body in numbered(n, 5)])
    between = int(time.time() * 1000) + 200
    while time.time() * 1000 < between + 200:
        time.sleep(0.02)
    send(client, topic, [Message(f"late {n}", queue=q) for n, q in both])
    group = f"g_{time.time_ns()}"
    client.commit(group, first, 4)
    client.commit(group, second, 6)

    def numbers(of_first: int, of_second: int) -> str:
        return json.dumps({topic: {first.broker_name: {"0": of_first, "1": of_second}}})

    late = ["late a", "late b"]
    wanted: list[tuple[dict[str, object], list[str]]] = [
        ({"startingOffsets": "earliest"}, [*numbered("a", 5), *numbered("b", 5), *late]),
        ({}, []),  # the latest
        ({"startingOffsets": "group", "consumerGroup": group}, ["a004", "late a"]),
        ({"startingOffsets": numbers(-2, -1)}, [*numbered("a", 5), "late a"]),
        ({"startingOffsets": numbers(3, 4)}, ["a003", "a004", "b004", *late]),
        ({"startingTimestamp": between}, late),
        ({"startingOffsetsByTimestamp": numbers(0, between)}, [*numbered("a", 5), *late]),
    ]
    stream = source.with_options(topic=topic)
    for number, (options, bodies) in enumerate(wanted):
        run = stream.run_now(tmp_path / str(number), COLUMNS, **options)
        assert run.bodies == bodies, options

    # What came after the first run is what the second one reads, whatever the option says now.
    send(client, topic, [Message("new", queue=first)])
    for number, start in ((1, "earliest"), (5, "latest")):
        run = stream.run_now(tmp_path / str(number), COLUMNS, startingOffsets=start)
        assert run.bodies == ["new"]
