"""`spark.read`: a part of a topic, once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.spark.schema import own_schema
from rocketmq_spark.spark.source import RocketMQDataSource

from .queries import Source, bodies, collect, numbered, send, tasks

BODY = "brokerName string, queueId int, queueOffset bigint, body binary, consumerId string"
EACH = 20

pytestmark = pytest.mark.compat


@dataclass(frozen=True)
class Filled:
    """Two queues of one broker, twenty messages each; the second ten came later."""

    topic: str
    first: MessageQueue
    second: MessageQueue
    between: int  # a time between the two tens, in milliseconds

    def json(self, first: Any, second: Any) -> str:
        numbers = {"0": first, "1": second}
        return json.dumps({self.topic: {self.first.broker_name: numbers}})


@pytest.fixture(scope="module")
def filled(client: Client) -> Iterator[Filled]:
    topic = f"t_batch_{time.time_ns()}"
    client.create_topic(topic, 2, brokers=[client.brokers()[0].broker_name])
    first, second = client.queues(topic)
    halves = []
    for half in (range(10), range(10, EACH)):
        send(
            client,
            topic,
            [
                Message(
                    f"{name}{i:03d}",
                    tags=("even", "odd")[i % 2],
                    queue=queue,
                    properties={"n": str(i)},
                )
                for name, queue in (("a", first), ("b", second))
                for i in half
            ],
        )
        halves.append(int(time.time() * 1000) + 200)
        while time.time() * 1000 < halves[-1] + 200:
            time.sleep(0.02)
    yield Filled(topic, first, second, halves[0])
    client.delete_topic(topic)


def test_spark_can_find_the_source_from_any_folder(tmp_path: Path) -> None:
    """It lists modules as Spark does, and an editable install by an import hook hides ours."""
    look = "import pkgutil; print('pyspark_rocketmq' in {m.name for m in pkgutil.iter_modules()})"
    done = subprocess.run(
        [sys.executable, "-I", "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n", "install it with --config-settings editable_mode=compat"


def test_found_without_registration_in_sql(source: Source, filled: Filled) -> None:
    source.spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW filled USING rocketmq OPTIONS ("
        f"nameServer '{source.options['nameServer']}', topic '{filled.topic}', executors '2')"
    )
    found = source.spark.sql(
        "SELECT queueId, count(*) AS n, min(cast(body AS string)) AS least FROM filled "
        "WHERE properties['n'] >= 0 GROUP BY queueId ORDER BY queueId"
    ).collect()
    assert [tuple(row) for row in found] == [(0, EACH, "a000"), (1, EACH, "b000")]


def test_every_message_once_and_in_order(source: Source, filled: Filled) -> None:
    frame = source.batch(BODY, topic=filled.topic)
    assert tasks(frame) == 2
    found = collect(frame)
    for queue, name, member in ((0, "a", "slot@0"), (1, "b", "slot@1")):
        mine = [row for row in found if row["queueId"] == queue]
        assert [row["queueOffset"] for row in mine] == list(range(EACH))
        assert bodies(mine) == numbered(name, EACH)
        assert {row["consumerId"] for row in mine} == {member}


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"startingOffsets": "latest"}, (20, 20), (20, 20)),
        ({"startingOffsets": [-2, 5], "endingOffsets": [-1, 7]}, (0, 20), (5, 7)),
        ({"startingOffsets": [-1, 20], "endingOffsets": [-1, -1]}, (20, 20), (20, 20)),
        ({"startingTimestamp": "between"}, (10, 20), (10, 20)),
        ({"endingTimestamp": "between"}, (0, 10), (0, 10)),
        (
            {"startingOffsetsByTimestamp": [0, "between"], "endingTimestamp": "between"},
            (0, 10),
            (10, 10),
        ),
        ({"endingOffsetsByTimestamp": ["between", 9999999999999]}, (0, 10), (0, 20)),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_from_and_to(
    source: Source,
    filled: Filled,
    options: dict[str, Any],
    first: tuple[int, int],
    second: tuple[int, int],
) -> None:
    def text(value: Any) -> Any:
        if isinstance(value, list):
            return filled.json(*(text(part) for part in value))
        return filled.between if value == "between" else value

    given = {name: text(value) for name, value in options.items()}
    found = collect(source.batch(BODY, topic=filled.topic, **given))
    for queue, (start, end) in enumerate((first, second)):
        offsets = [row["queueOffset"] for row in found if row["queueId"] == queue]
        assert offsets == list(range(start, end))


def test_where_a_group_is(client: Client, source: Source, filled: Filled) -> None:
    group = f"g_{time.time_ns()}"
    client.commit(group, filled.first, 17)
    client.commit(group, filled.second, 0)
    options = {"startingOffsets": "group", "consumerGroup": group}
    found = collect(source.batch(BODY, topic=filled.topic, **options))
    offsets = [(row["queueId"], row["queueOffset"]) for row in found]
    assert offsets == [*((0, n) for n in range(17, 20)), *((1, n) for n in range(20))]


def test_offsets_that_are_not_there(source: Source, filled: Filled) -> None:
    beyond = {"startingOffsets": filled.json(-2, 15), "endingOffsets": filled.json(5, 99)}
    with pytest.raises(Exception, match="offset 99 is wanted and 0 to 20 are there"):
        source.batch(BODY, topic=filled.topic, **beyond).collect()
    found = source.batch(BODY, topic=filled.topic, **beyond, failOnDataLoss=False).collect()
    assert len(found) == 10
    with pytest.raises(Exception, match=r"does not name .*/1; name every queue"):
        some = json.dumps({filled.topic: {filled.first.broker_name: {"0": 3}}})
        source.batch(BODY, topic=filled.topic, startingOffsets=some).collect()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subExpression": "odd"}, {n for n in range(EACH) if n % 2}),
        ({"subExpression": "odd || even"}, set(range(EACH))),
        ({"subExpression": "neither"}, set()),
        ({"sqlExpression": "n >= 18 OR TAGS = 'odd' AND n < 4"}, {1, 3, 18, 19}),
    ],
    ids=["one", "both", "none", "sql"],
)
def test_filters(source: Source, filled: Filled, options: dict[str, str], wanted: set[int]) -> None:
    found = collect(source.batch(BODY, topic=filled.topic, **options))
    expected = {(queue, n) for queue in (0, 1) for n in wanted}
    assert {(row["queueId"], row["queueOffset"]) for row in found} == expected
    assert len(found) == len(expected)


def test_a_wrong_sql_expression_is_told(source: Source, filled: Filled) -> None:
    with pytest.raises(Exception, match="n >>> 3"):
        source.batch(BODY, topic=filled.topic, sqlExpression="n >>> 3").collect()


def test_every_member_reads_everything_when_broadcasting(source: Source, filled: Filled) -> None:
    options = {"messageModel": "broadcasting", "executors": "m1,m2,m3"}
    found = collect(source.batch(BODY, topic=filled.topic, **options))
    for member in ("m1", "m2", "m3"):
        mine = [row for row in found if row["consumerId"] == member]
        assert bodies(mine) == numbered("a", EACH) + numbered("b", EACH)
    assert len(found) == 3 * 2 * EACH


def test_as_many_partitions_as_asked_for(source: Source, filled: Filled) -> None:
    more = source.batch(BODY, topic=filled.topic, minPartitions=5)
    assert tasks(more) == 5
    assert bodies(collect(more)) == numbered("a", EACH) + numbered("b", EACH)
    small = source.batch(BODY, topic=filled.topic, maxRecordsPerPartition=6)
    assert tasks(small) == 8  # four of each queue


def test_a_task_hands_over_batches_of_a_size(
    client: Client, source: Source, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1, brokers=[client.brokers()[0].broker_name])
    noise = random.Random(5)
    send(client, topic, [Message(noise.randbytes(1000)) for _ in range(100)])
    given = {**source.options, "topic": topic, "batchBytes": "16k"}
    reader = RocketMQDataSource(given).reader(own_schema())
    found: list[Any] = [b for p in reader.partitions() for b in reader.read(p)]
    assert sum(batch.num_rows for batch in found) == 100
    assert max(batch.nbytes for batch in found) <= 16 * 1024
    assert len(found) < 25  # and not much smaller either
    offsets = [at for batch in found for at in batch.column("queueOffset").to_pylist()]
    assert offsets == list(range(100))


def test_an_empty_topic(source: Source, topic: str) -> None:
    assert source.batch(topic=topic).collect() == []
