"""The command line, as people type it: real processes, real brokers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from rocketmq_spark.cli import cluster
from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.options import as_markdown
from rocketmq_spark.errors import ClusterError

PROGRAM = [sys.executable, "-m", "rocketmq_spark"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "COLUMNS": "120", **environment},
    )


@pytest.fixture
def orders(client: Client, new_topic: Callable[..., str]) -> str:
    """Ten messages in two queues of one broker."""
    topic = new_topic(2, brokers=[client.brokers()[0].broker_name])
    client.send(topic, [Message(f"order {i}", tags="ab"[i % 2], keys=f"k{i}") for i in range(10)])
    deadline = time.monotonic() + 20
    while sum(high for _, high in client.topic_offsets(topic).values()) < 10:
        assert time.monotonic() < deadline, "the messages never showed"
        time.sleep(0.05)
    return topic


def test_topics_lists_users_topics_only(name_server: str, orders: str) -> None:
    listed = run("topics", "-n", name_server).stdout.splitlines()
    assert orders in listed
    assert "SCHEDULE_TOPIC_XXXX" not in listed
    assert "SCHEDULE_TOPIC_XXXX" in run("topics", "--system", "-n", name_server).stdout


def test_offsets_shows_every_queue_and_a_groups_progress(
    name_server: str, client: Client, orders: str
) -> None:
    first, second = client.queues(orders)
    client.commit("cli_group", first, 3)
    done = run("offsets", orders, "--group", "cli_group", ROCKETMQ_SPARK_NAMESRV=name_server)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if orders in line]
    assert len(rows) == 2
    cells = [[cell.strip() for cell in row.split("│")[1:-1]] for row in rows]
    assert cells[0] == [orders, first.broker_name, "0", "0", "5", "5", "3", "2"]
    assert cells[1][:6] == [orders, second.broker_name, "1", "0", "5", "5"]
    assert "10 messages" in done.stdout


def test_tail_prints_what_a_filter_selects(name_server: str, orders: str) -> None:
    done = run(
        "tail",
        orders,
        "--earliest",
        "--no-follow",
        "--tags",
        "a",
        ROCKETMQ_SPARK_NAMESRV=name_server,
    )
    assert done.returncode == 0, done.stderr
    bodies = sorted(line.rsplit(" ", 2)[-2:] for line in done.stdout.splitlines())
    assert bodies == [["order", str(i)] for i in range(0, 10, 2)]


def test_tail_follows_new_messages(name_server: str, client: Client, orders: str) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "tail", orders, "--limit", "1"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ROCKETMQ_SPARK_NAMESRV": name_server},
    )
    deadline = time.monotonic() + 60
    while process.poll() is None:
        # It starts at the end, at a moment we cannot see: send until it has seen one.
        client.send(orders, [Message("something new")])
        assert time.monotonic() < deadline, "tail never showed a new message"
        time.sleep(0.3)
    assert process.stdout is not None
    with process.stdout as output:
        assert output.read().rstrip().endswith("something new")
    assert process.returncode == 0


def test_tail_ends_quietly_when_its_reader_goes(name_server: str, orders: str) -> None:
    tail = f"'{sys.executable}' -m rocketmq_spark tail {orders} --earliest --no-follow"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {tail} | head -1"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "ROCKETMQ_SPARK_NAMESRV": name_server},
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics"], "--name-server"),
        (["topics", "-n", "127.0.0.1"], "host:port"),
        (["topics", "-n", "127.0.0.1:1"], "127.0.0.1:1: Connection refused"),
        (["topics", "-n", "127.0.0.1:1", "--access-key", "me"], "secret_key is empty"),
        (["topics", "-n", "127.0.0.1:1", "--tls-ca", "no-such-file.pem"], "no-such-file.pem"),
        (["topics", "-n", "127.0.0.1:1", "--timeout", "0"], "timeout must be more than 0"),
        (["topics", "-n", "127.0.0.1:1", "--timeout", "inf"], "timeout must be more than 0"),
        (["topics", "-n", "127.0.0.1:1", "--timeout", "nan"], "timeout must be more than 0"),
        (["tail", "T", "-n", "127.0.0.1:1", "--limit", "0"], "--limit"),
        (["nonsense"], "nonsense"),
        (["demo", "--rate", "0"], "100<=x<=20000"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments: list[str], said: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "ROCKETMQ_SPARK_NAMESRV"}
    done = subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_unknown_topic_is_named(name_server: str) -> None:
    done = run("offsets", "no_such_topic", "-n", name_server)
    assert done.returncode == 2
    assert "no_such_topic" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_secret_is_never_shown(name_server: str) -> None:
    secret = "s3cr3t-never-to-be-seen"
    account = {"ROCKETMQ_ACCESS_KEY": "me", "ROCKETMQ_SECRET_KEY": secret}
    for arguments in (["-v", "topics"], ["-v", "offsets", "no_such_topic"], ["topics", "--help"]):
        done = run(*arguments, ROCKETMQ_SPARK_NAMESRV=name_server, **account)
        assert secret not in done.stdout + done.stderr


def test_without_its_extra_it_says_what_to_install() -> None:
    hide = "import sys; sys.modules['click'] = None; from rocketmq_spark.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'rocketmq-spark[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_cluster_serves_until_interrupted() -> None:
    process = subprocess.Popen(
        [*PROGRAM, "cluster", "--topic", "played_with"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with Client(address, timeout=15) as client:
            assert client.topics() == ["played_with"]
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "stopping" in said


def test_options_are_printed_as_they_stand_in_the_code() -> None:
    done = run("options")
    assert done.returncode == 0, done.stderr
    assert done.stdout == as_markdown()


@pytest.mark.parametrize("command", ["jars", "demo"])
def test_without_java_the_reason_is_one_sentence(command: str, tmp_path: object) -> None:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [*PROGRAM, command], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 1
    assert "Java 17" in done.stderr
    assert "Traceback" not in done.stderr


def test_several_releases_are_downloaded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    both_have_begun = threading.Barrier(2, timeout=60)
    kept: list[str] = []

    def resolve(release: str, progress: object) -> None:
        both_have_begun.wait()
        if release == "0.0.0":
            raise ClusterError("RocketMQ 0.0.0 could not be downloaded.")
        kept.append(release)

    monkeypatch.setattr(cluster, "resolve", resolve)
    cluster.fetch(["5.5.0", "4.9.7", "5.5.0"])
    assert sorted(kept) == ["4.9.7", "5.5.0"]
    with pytest.raises(ClusterError, match=r"0\.0\.0 could not"):
        cluster.fetch(["0.0.0", "5.5.0"])
    assert sorted(kept) == ["4.9.7", "5.5.0", "5.5.0"], "the other one was given up"
