"""`executors=group`: executors announce themselves to the brokers, and the planner asks them."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from rocketmq_spark.client import Client
from rocketmq_spark.errors import ClusterError, ConnectError
from rocketmq_spark.local_cluster import LocalCluster
from rocketmq_spark.spark.group import GroupMembers, announced, task_slots
from tests.waiting import until

from .queries import COLUMNS, Source, send

ID = re.compile(r"127\.0\.0\.1@(\d+)\*2")


@pytest.mark.compat
def test_executors_announce_themselves(
    cluster: LocalCluster, client: Client, source: Source, topic: str, tmp_path: Path
) -> None:
    """The first batch is planned without them, the next ones with them; mqadmin sees them too."""
    group = f"g_{topic}"
    options = {"executors": "group", "consumerGroup": group, "topic": topic}
    sent: list[str] = []
    with source.start(tmp_path, COLUMNS, startingOffsets="earliest", **options) as run:

        def planned_for() -> set[str]:
            """Who has read the last messages."""
            some = [f"{len(sent) + n:05d}" for n in range(16)]
            send(client, topic, some)
            sent.extend(some)
            run.wait_for(len(sent))
            return {r["consumerId"] for r in run.rows if r["body"].decode() in some}

        def announced_ones() -> str:
            """The id that was announced, once a batch is planned by it."""
            members, ids = planned_for(), client.consumers(group)
            found = [id for id in ids if members == set(announced([id]))]
            return found[0] if found else ""

        assert all("@driver#" in member for member in planned_for())
        known = until(announced_ones)
        assert ID.fullmatch(known), known  # two slots, as local[2] says
        # Again and again, for a worker that has been idle for a minute is ended, and forgotten.
        listed = until(lambda: planned_for() and _listed(cluster, group, known))
        assert topic in listed
        assert run.bodies == sent


def _listed(cluster: LocalCluster, group: str, member: str) -> str:
    """What RocketMQ's own tool says of the group, if it knows the member."""
    try:
        told = cluster.mqadmin("consumerConnection", "-g", group)
    except ClusterError:  # nobody is in the group
        return ""
    return told if member in told else ""


@pytest.mark.parametrize(
    ("master", "cores", "cpus", "slots"),
    [
        ("local[2]", None, 1, 2),
        ("local[4,3]", None, 2, 2),
        ("local", "8", 1, 1),
        ("local-cluster[2,3,1024]", None, 1, 3),
        ("spark://host:7077", "5", 1, 5),
        ("spark://host:7077", None, 1, 6),  # all of the machine
        ("local[*]", None, 1, 6),
        ("yarn", None, 1, 1),
        ("yarn", "4", 2, 2),
        ("k8s://host", None, 1, 1),
        (None, None, 1, 6),
        ("yarn", "2", 4, 1),
    ],
)
def test_how_many_tasks_an_executor_runs(
    master: str | None, cores: str | None, cpus: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    conf = {"spark.master": master, "spark.executor.cores": cores}
    assert task_slots(conf.get, cpus) == slots


def test_other_members_of_the_group_are_not_counted() -> None:
    ids = ["10.0.0.8@7*1", "10.0.0.7@4711*2", "10.0.0.9@1234#5678901", "::1@5*1", "x*2"]
    assert announced(ids) == ["10.0.0.7@4711#0", "10.0.0.7@4711#1", "10.0.0.8@7#0", "::1@5#0"]


def test_a_plan_without_them_and_with_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    time, answers, asked = [0.0], [[], ["a@1*1"], ConnectError("no broker"), []], [0]

    def ask() -> list[str]:
        asked[0] += 1
        answer = answers[asked[0] - 1]
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    members = GroupMembers("g", ask, lambda: ["guess"], lambda: time[0])
    assert [members() for _ in range(9)] == [["guess"]] * 9
    assert asked == [1]  # one question serves a second
    time[0] = 1.0
    assert members() == ["a@1#0"]
    time[0] = 2.0
    assert members() == ["a@1#0"]  # nobody answers now, so what was known counts
    time[0] = 3.0
    assert members() == ["guess"]
    line = "no executor has announced itself to group g yet; planning as with executors=auto"
    assert [record.message for record in caplog.records] == [line, line]
