"""Which topics and queues a stream reads: by name, by pattern, one by one, and before they are."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_spark.client import Client
from tests.waiting import until

from .queries import ADMISSION_CONTROL, COLUMNS, Source, bodies, collect, numbered, send

Make = Callable[[str], str]

pytestmark = pytest.mark.compat


@pytest.fixture
def named_topic(client: Client) -> Iterator[Make]:
    """Topics of one queue, called as the test likes."""
    made = []

    def make(topic: str) -> str:
        client.create_topic(topic, 1, brokers=[client.brokers()[0].broker_name])
        made.append(topic)
        return topic

    yield make
    for topic in made:
        client.delete_topic(topic)


@pytest.fixture
def stem() -> str:
    return f"t{time.time_ns()}"


def test_several_topics_and_single_queues(
    client: Client, source: Source, new_topic: Callable[..., str]
) -> None:
    here, there = new_topic(2), new_topic(1)
    send(client, here, numbered("a", 20))
    send(client, there, numbered("b", 20))
    found = collect(source.batch(COLUMNS, topic=f"{here}, {there}"))
    assert bodies(found) == numbered("a", 20) + numbered("b", 20)
    assert {row["topic"] for row in found} == {here, there}
    # Of the six queues in one list, each member has three.
    owners = {(row["topic"], row["brokerName"], row["queueId"], row["consumerId"]) for row in found}
    assert sorted(owner for *_, owner in owners) == ["slot@0"] * 3 + ["slot@1"] * 3

    chosen = client.queues(here)[1]
    assign = json.dumps({here: {chosen.broker_name: [chosen.queue_id]}})
    found = collect(source.batch(COLUMNS, assign=assign))
    assert found
    assert {(row["brokerName"], row["queueId"]) for row in found} == {
        (chosen.broker_name, chosen.queue_id)
    }
    missing = json.dumps({here: {chosen.broker_name: [17]}})
    with pytest.raises(Exception, match=f"assign names {here}/{chosen.broker_name}/17"):
        source.batch(COLUMNS, assign=missing).collect()


def test_a_pattern_finds_topics_while_it_runs(
    client: Client, source: Source, named_topic: Make, stem: str, tmp_path: Path
) -> None:
    """A topic that comes later is read from its earliest message, even by a query that began with
    the latest."""
    old = named_topic(f"{stem}_eu")
    named_topic(f"{stem}_eu_private")
    send(client, old, ["before"])
    send(client, f"{stem}_eu_private", ["secret"])
    options = {"topicPattern": f"{stem}_[a-z]{{2}}", "discoveryInterval": "1s"}
    with source.start(tmp_path, COLUMNS, **options) as run:
        until(lambda: run.check() is None and run.query.lastProgress)
        new = named_topic(f"{stem}_us")
        send(client, new, numbered("us", 3))
        send(client, old, ["after"])
        assert run.wait_for(4) == ["after", *numbered("us", 3)]
        if not ADMISSION_CONTROL:
            return  # a progress tells nothing of it
        told = run.wait_for_progress(
            lambda r: "queue added" in r.get("rebalance", {}).get("why", "")
        )
        assert new in told["rebalance"]["why"]
        assert set(told["offsets"]) == {old, new}


def test_a_topic_is_waited_for(
    client: Client, source: Source, named_topic: Make, stem: str, tmp_path: Path
) -> None:
    with source.start(
        tmp_path, COLUMNS, topic=stem, waitForTopic="100s", startingOffsets="earliest"
    ) as run:
        until(lambda: run.check() is None and "Initializing" not in run.query.status["message"])
        named_topic(stem)
        send(client, stem, numbered("a", 3))
        assert run.wait_for(3) == numbered("a", 3)


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_topics_of_a_group(
    client: Client, source: Source, named_topic: Make, stem: str, prefix: str
) -> None:
    topic = named_topic(f"{prefix}{stem}")
    # Brokers take no batch for a retry topic, and what is compressed travels alone.
    sent = [body * 2000 for body in numbered("a", 3)]
    send(client, topic, sent)
    assert bodies(collect(source.batch(COLUMNS, topic=topic))) == sent
