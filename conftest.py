"""Fixtures: a real RocketMQ, clients of it, topics of its own for every test, and a Spark.

`ROCKETMQ_SPARK_NAMESRV=host:port` names a cluster that is already running; tests that stop or
kill brokers always start their own.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

# Spark starts its workers with this: the interpreter that has the package, whatever a user's shell
# says, and not whatever python3 is on the PATH.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Most Sparks of the tests live for minutes, two at a time: what the second compiler would gain is
# not worth the processor time it takes.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

from rocketmq_spark.client import Client
from rocketmq_spark.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNNING = os.environ.get("ROCKETMQ_SPARK_NAMESRV", "")

# Tests that wait for other processes: brokers, Java consumers, Spark, whose Python workers have ten
# seconds to start, whatever else the machine does, and that is no setting.
WITH_PROCESSES = {"cli", "cluster", "examples", "spark"}
# How it shows that one of them did not start or did not end in time. Nothing else is tried again: a
# wrong result is one, however seldom it comes.
NOT_IN_TIME = [
    "(?s)^ClusterError: .*(not ready after|did not end within|RemotingTimeout)",
    "failed to connect back",
    "^TimeoutExpired",
]

_TRY_AGAIN = pytest.mark.flaky(reruns=2, only_rerun=NOT_IN_TIME, rerun_except=AssertionError)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Two more tries where a busy machine was too slow; the summary names each that took one."""
    if not WITH_PROCESSES.isdisjoint(item.path.relative_to(item.config.rootpath).parts):
        item.add_marker(_TRY_AGAIN)


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Two masters of the newest release, for tests that do not break them."""
    with LocalCluster(brokers=2) as running:
        yield running


@pytest.fixture(scope="session")
def name_server(request: pytest.FixtureRequest) -> str:
    """Any RocketMQ will do: the one named by the environment, or ours."""
    if RUNNING:
        return RUNNING
    ours: LocalCluster = request.getfixturevalue("cluster")
    return ours.name_server


@pytest.fixture(scope="session")
def client(name_server: str) -> Iterator[Client]:
    with Client(name_server, timeout=15) as client:
        yield client


@pytest.fixture
def new_topic(client: Client) -> Iterator[Callable[..., str]]:
    """Makes topics with names of their own, gone after the test."""
    made: list[str] = []

    def make(queues: int = 4, **settings: object) -> str:
        topic = f"t_{uuid.uuid4().hex[:12]}"
        client.create_topic(topic, queues, **settings)  # type: ignore[arg-type]
        made.append(topic)
        return topic

    yield make
    for topic in made:
        client.delete_topic(topic)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """Four queues on each broker."""
    return new_topic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--connect", action="store_true", help="read through Spark Connect")


SPARK_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session with two slots, on the loopback, without a web server: a classic one, or a client
    of Spark Connect if the command line says so."""
    from pyspark.sql import SparkSession

    with ExitStack() as stack:
        if request.config.getoption("--connect"):
            from tests.spark.connect import ConnectServer

            log = tmp_path_factory.mktemp("connect") / "log"
            server = stack.enter_context(ConnectServer(log, "local[2]", SPARK_CONF))
            session = SparkSession.builder.remote(server.url).getOrCreate()
        else:
            builder = SparkSession.builder.master("local[2]").appName("rocketmq-spark tests")
            for name, value in SPARK_CONF.items():
                builder = builder.config(name, value)
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
        stack.callback(session.stop)
        yield session
