"""However long a range and however large its messages, a reading process stays small."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_spark.client import Client
from tests.bench.memory_probe import CASES, LIMIT, fill, probe
from tests.waiting import until


@pytest.mark.parametrize(
    "case, count",
    [
        ("4 MiB", 60),
        ("1 KiB", 100_000),
        ("4 MiB, compressed", 60),
        ("mixed", 600),
        ("20 properties", 60_000),
        ("4,000 properties", 800),
        ("tiny", 200_000),
        ("tiny, in inner batches", 200_000),
    ],
)
def test_a_process_that_reads_stays_small(
    client: Client, name_server: str, new_topic: Callable[..., str], case: str, count: int
) -> None:
    topic = new_topic(1, attributes=CASES[case].attributes)
    assert fill(client, topic, case, count) == count
    until(lambda: sum(high for _, high in client.topic_offsets(topic).values()) == count)
    memory = probe(name_server, topic)
    assert memory.rows == count
    assert memory.peak < LIMIT, f"{memory.peak / 1e6:.0f} MB, {memory.base / 1e6:.0f} before"
