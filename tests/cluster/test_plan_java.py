"""`plan` against the real thing: what Java's push consumers hold, and what mqadmin prints."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocketmq_spark.cli.app import commands
from rocketmq_spark.client import Client, Message
from rocketmq_spark.local_cluster import LocalCluster

JAVA = Path(__file__).parent.parent / "java" / "PushConsumers.java"
STRATEGIES = ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]
# As strings the second is the smallest; sorting them as numbers would give another plan.
MEMBERS = ["10.0.0.9@1", "10.0.0.10@2", "10.0.0.11@30", "10.0.0.11@4"]
# Otherwise a group takes up to 20 s to see that a member has gone.
QUICK = ["-Drocketmq.client.rebalance.waitInterval=1000", "-Xmx512m", "-XX:+UseSerialGC"]


def plan(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(
        commands, ["plan", "--json", *arguments], standalone_mode=False, catch_exceptions=False
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def by_member(result: dict[str, Any]) -> dict[str, set[tuple[str, str, int]]]:
    return {
        member: {(q["topic"], q["brokerName"], q["queueId"]) for q in queues}
        for member, queues in result.items()
    }


@pytest.mark.timeout(900)
def test_java_consumers_hold_exactly_what_plan_says(
    cluster: LocalCluster, new_topic: Callable[..., str]
) -> None:
    # Two topics: RocketMQ shares each by itself, which is --scope topic. Eleven ids on each broker,
    # so that 10 sorts after 9 and not after 1.
    topics = [new_topic(11), new_topic(3)]
    done = cluster.run_java(
        JAVA,
        str(2 * (11 + 3)),
        ",".join(STRATEGIES),
        ",".join(topics),
        ",".join(MEMBERS),
        jvm_args=QUICK,
        timeout=800,
    )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["strategy"] for line in told] == [name for name in STRATEGIES for _ in range(2)]
    for line, members in zip(told, [MEMBERS, MEMBERS[1:]] * len(STRATEGIES), strict=True):
        planned = plan(
            "-n",
            cluster.name_server,
            "--topic",
            ",".join(topics),
            "--executors",
            ",".join(members),
            "--strategy",
            line["strategy"],
            "--scope",
            "topic",
        )
        assert by_member(line["result"]) == by_member(planned["result"]), line["strategy"]


def test_json_has_the_shape_of_mqadmin_allocate_mq(
    cluster: LocalCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    printed = cluster.mqadmin("allocateMQ", "-i", "10.0.0.1,10.0.0.2,10.0.0.3", "-t", topic)
    theirs = json.loads(printed[printed.index("{") :])
    ours = plan(
        "-n", cluster.name_server, "--topic", topic, "--executors", "10.0.0.1,10.0.0.2,10.0.0.3"
    )
    assert theirs.keys() == ours.keys() == {"result"}
    assert theirs["result"].keys() == ours["result"].keys()
    for member, queues in ours["result"].items():
        assert len(queues) == len(theirs["result"][member])
        for queue in [*queues, *theirs["result"][member]]:
            assert {name: type(value) for name, value in queue.items()} == {
                "brokerName": str,
                "queueId": int,
                "topic": str,
            }
    # The same queues in all; who has which differs where mqadmin's set is not in order.
    union = [set().union(*by_member(told["result"]).values()) for told in (ours, theirs)]
    assert union[0] == union[1]
    flat = [q for queues in ours["result"].values() for q in queues]
    assert flat == sorted(flat, key=lambda q: (q["brokerName"], q["queueId"]))


def test_by_lag_online_weighs_what_a_group_has_not_read(
    cluster: LocalCluster, client: Client, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2, brokers=["broker-a"])
    first, second = client.queues(topic)
    client.send(topic, [Message("x", queue=first) for _ in range(40)])
    client.send(topic, [Message("y", queue=second) for _ in range(20)])
    client.commit("plan_group", first, 30)
    _await(client, topic, 60)
    common = ["-n", cluster.name_server, "--topic", topic, "--executors", "a,b"]
    result = CliRunner(env={"COLUMNS": "100"}).invoke(
        commands, ["plan", *common, "--strategy", "BY_LAG", "--group", "plan_group"]
    )
    assert result.exit_code == 0, result.output
    assert "30 messages to read" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[2] for row in rows if row and row[0] in ("a", "b")] == ["15", "15"]


def _await(client: Client, topic: str, count: int) -> None:
    """Brokers acknowledge a message a moment before consumers can see it."""
    deadline = time.monotonic() + 30
    while sum(high for _, high in client.topic_offsets(topic).values()) < count:
        assert time.monotonic() < deadline, "the messages never showed"
        time.sleep(0.05)
