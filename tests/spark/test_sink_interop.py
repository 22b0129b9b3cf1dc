"""What the sink writes, others receive; what others send, the source reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_spark.client import Client, Message
from rocketmq_spark.local_cluster import LocalCluster
from tests.cluster.witness import Witness
from tests.waiting import PATIENCE, until

from .queries import Source, collect
from .test_sink import stored
from .test_sink_queries import save

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COUNT = 60


@pytest.fixture(scope="module")
def java(cluster: LocalCluster, name_server: str) -> Iterator[Witness]:
    witness = Witness(cluster, name_server)
    yield witness
    witness.close()


def native(what: str, name_server: str, topic: str, home: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.native_peer", what, name_server, topic, str(COUNT)],
        env={**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("{")]


def write(source: Source, name_server: str, topic: str) -> None:
    frame = source.spark.range(0, COUNT, 1, 2).selectExpr(
        "concat('spark ', id, if(id % 10 = 0, repeat('x', 5000), '')) AS body",
        "concat('key-', id) AS keys",
        "'new' AS tags",
        "map('price', cast(id as string)) AS properties",
    )
    save(frame, name_server, topic=topic)


def expected(number: int) -> str:
    return f"spark {number}" + ("x" * 5000 if number % 10 == 0 else "")


def test_a_java_push_consumer_receives(
    source: Source, client: Client, name_server: str, topic: str, java: Witness
) -> None:
    write(source, name_server, topic)
    stored(client, topic, COUNT)
    group = f"java_{uuid.uuid4().hex[:8]}"
    for queue, (start, _) in client.topic_offsets(topic).items():
        client.commit(group, queue, start)
    with java.consumer(group, topic):
        until(lambda: len(java.consumed(group)) >= COUNT, PATIENCE, "all at the Java consumer")
        found = {row["properties"]["price"]: row for row in java.consumed(group)}
    assert len(found) == COUNT
    for price, row in found.items():
        assert row["body"].decode() == expected(int(price))
        assert (row["keys"], row["tags"]) == (f"key-{price}", "new")


def test_a_native_push_consumer_receives(
    source: Source, client: Client, name_server: str, topic: str, tmp_path: Path
) -> None:
    pytest.importorskip("rocketmq")
    write(source, name_server, topic)
    stored(client, topic, COUNT)
    lines = native("receive", name_server, topic, tmp_path)
    found = {row["price"]: row for row in map(json.loads, lines)}
    assert len(found) == COUNT
    for price, row in found.items():
        assert row["body"] == expected(int(price))
        assert (row["keys"], row["tags"]) == (f"key-{price}", "new")


def test_spark_reads_what_both_send(
    source: Source, client: Client, name_server: str, topic: str, java: Witness, tmp_path: Path
) -> None:
    pytest.importorskip("rocketmq")
    native("send", name_server, topic, tmp_path)
    for number in range(COUNT):
        properties = {"price": str(number)}
        java.send(
            topic,
            Message(f"java {number}", keys=f"key-{number}", tags="new", properties=properties),
        )
    stored(client, topic, 2 * COUNT)
    found = collect(source.batch(topic=topic))
    assert len(found) == 2 * COUNT
    for row in found:
        _, number = row["body"].decode().split()
        assert (row["keys"], row["tags"]) == (f"key-{number}", "new")
        assert row["properties"]["price"] == number
    assert {row["body"].decode() for row in found} == {
        f"{who} {number}" for who in ("native", "java") for number in range(COUNT)
    }
