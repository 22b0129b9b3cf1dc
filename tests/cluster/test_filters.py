"""Filters that the broker applies, by tags and by SQL92."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import BadExpressionError, UsageError
from tests.waiting import until

from .witness import Witness, rows

COUNT = 3000
# "Aa" and "BB" have one hash in Java, and a broker compares nothing but hashes.
TAGS = ["Aa", "BB", "C", "数", ""]


@pytest.fixture(scope="module")
def queue(client: Client) -> Iterator[MessageQueue]:
    topic = f"t_filter_{uuid.uuid4().hex[:8]}"
    client.create_topic(topic, 1, brokers=[client.brokers()[0].broker_name])
    (queue,) = client.queues(topic)
    client.send(
        topic,
        [
            Message(str(i), tags=TAGS[i % 5], properties={"n": str(i), "e": "x"}, queue=queue)
            for i in range(COUNT)
        ],
    )
    until(lambda: client.offsets(queue)[1] == COUNT)
    yield queue
    client.delete_topic(topic)


@pytest.mark.parametrize(
    "expression, wanted",
    [
        ("*", TAGS),
        ("", TAGS),
        ("Aa", ["Aa"]),
        ("BB", ["BB"]),
        ("Aa || C", ["Aa", "C"]),
        ("Aa||BB", ["Aa", "BB"]),
        ("数", ["数"]),
        ("nobody has it", []),
        ("AaAa", []),
    ],
)
def test_tags(
    client: Client, witness: Witness, queue: MessageQueue, expression: str, wanted: list[str]
) -> None:
    expected = [i for i in range(COUNT) if TAGS[i % 5] in wanted]
    found = rows(client, queue, sub_expression=expression)
    assert [int(row["body"]) for row in found] == expected
    assert [row["queueOffset"] for row in found] == expected
    theirs = witness.read(queue, 0, COUNT, tags=expression)
    assert [row["queueOffset"] for row in theirs] == expected


@pytest.mark.parametrize(
    "sql, wanted",
    [
        ("n >= 2990", lambda i: i >= 2990),
        ("n BETWEEN 10 AND 20 AND TAGS = 'Aa'", lambda i: 10 <= i <= 20 and i % 5 == 0),
        ("TAGS IS NULL", lambda i: i % 5 == 4),
        ("n IN ('7', '8') OR n = 2999", lambda i: i in (7, 8, 2999)),
        ("n < 0", lambda i: False),
        ("absent = 'x'", lambda i: False),
    ],
)
def test_sql(
    client: Client, witness: Witness, queue: MessageQueue, sql: str, wanted: object
) -> None:
    expected = [i for i in range(COUNT) if wanted(i)]  # type: ignore[operator]
    found = rows(client, queue, sql_expression=sql, columns=["queueOffset"])
    assert [row["queueOffset"] for row in found] == expected
    theirs = witness.read(queue, 0, COUNT, sql=sql)
    assert [row["queueOffset"] for row in theirs] == expected


def test_a_filter_keeps_to_its_range(client: Client, queue: MessageQueue) -> None:
    for start, end in ((0, 1), (1001, 1002), (1003, 1999), (2999, 3000)):
        found = rows(client, queue, start, end, sub_expression="C", columns=["queueOffset"])
        assert [row["queueOffset"] for row in found] == [i for i in range(start, end) if i % 5 == 2]


def test_expressions_that_cannot_be_right(client: Client, queue: MessageQueue) -> None:
    with pytest.raises(BadExpressionError, match=queue.topic):
        rows(client, queue, sql_expression="n ==== 3")
    with pytest.raises(UsageError, match="not both"):
        rows(client, queue, sub_expression="C", sql_expression="n > 3")
