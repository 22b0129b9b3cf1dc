"""`plan` against the real thing: what Java's push consumers hold, and what mqadmin prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocketmq_spark.cli.app import commands, run
from rocketmq_spark.client import Client, Message
from rocketmq_spark.local_cluster import LocalCluster
from tests.waiting import until

JAVA = Path(__file__).parent.parent / "java" / "PushConsumers.java"
STRATEGIES = ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]
# As strings the second is the smallest; sorting them as numbers would give another plan.
MEMBERS = ["10.0.0.9@1", "10.0.0.10@2", "10.0.0.11@30", "10.0.0.11@4"]
# Otherwise a group takes up to 20 s to see that a member has gone.
QUICK = ["-Drocketmq.client.rebalance.waitInterval=1000", "-Xmx512m", "-XX:+UseSerialGC"]


@pytest.fixture(scope="session")
def client(local_client: Client) -> Client:
    """Topics are made where the consumers and mqadmin are: in the cluster that is surely ours."""
    return local_client


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
    cluster: LocalCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    # Two topics: RocketMQ shares each by itself, which is --scope topic. Eleven ids on each broker,
    # so that 10 sorts after 9 and not after 1.
    topics = [new_topic(11), new_topic(3)]
    common = ["-n", cluster.name_server, "--topic", ",".join(topics), "--scope", "topic"]
    with group_of(cluster, tmp_path, 2 * (11 + 3), topics) as next_line:
        for strategy, members in product(STRATEGIES, (MEMBERS, MEMBERS[1:])):
            held = next_line()
            assert held["strategy"] == strategy
            rule = [*common, "--strategy", strategy]
            by_hand = plan(*rule, "--executors", ",".join(members))
            assert by_member(by_hand["result"]) == by_member(held["result"]), strategy
            # Its live members, as the brokers know them, are the same and give the same.
            assert plan(*rule, "--group", f"{topics[0]}_{strategy}") == by_hand


@contextmanager
def group_of(
    cluster: LocalCluster, folder: Path, queues: int, topics: Sequence[str]
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Runs the consumers; each call of what it yields is their next report."""
    quiet = cluster.folder / "home" / "conf" / "logback_tools.xml"
    said = folder / "java.log"
    lists = [",".join(names) for names in (STRATEGIES, topics, MEMBERS)]
    with said.open("w") as errors:
        process = cluster.popen_java(
            JAVA,
            str(queues),
            *lists,
            f"{topics[0]}_",
            jvm_args=[*QUICK, f"-Drmq.logback.configurationFile={quiet}"],
            stderr=errors,
        )
    assert process.stdin and process.stdout
    first = True

    def next_line() -> dict[str, Any]:
        nonlocal first
        assert process.stdin and process.stdout
        if not first:
            process.stdin.write("\n")
            process.stdin.flush()
        first = False
        for line in process.stdout:
            if line.startswith("{"):
                told: dict[str, Any] = json.loads(line)
                return told
        raise AssertionError(f"the consumers ended: {said.read_text()[-3000:]}")

    try:
        yield next_line
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


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
    # Brokers acknowledge a message a moment before consumers can see it.
    until(lambda: sum(high for _, high in client.topic_offsets(topic).values()) == 60)
    common = ["-n", cluster.name_server, "--topic", topic, "--executors", "a,b"]
    result = CliRunner(env={"COLUMNS": "100"}).invoke(
        commands, ["plan", *common, "--strategy", "BY_LAG", "--group", "plan_group"]
    )
    assert result.exit_code == 0, result.output
    assert "30 messages to read" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[2] for row in rows if row and row[0] in ("a", "b")] == ["15", "15"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "no_such_topic", "--executors", "a"], "no_such_topic"),
        (["--topic", "{topic}", "--group", "nobody"], "group nobody has no live members"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    cluster: LocalCluster,
    new_topic: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    topic = new_topic(1)
    typed = [word.format(topic=topic) for word in arguments]
    assert run(["plan", "-n", cluster.name_server, *typed]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert len(printed.splitlines()) == 1
