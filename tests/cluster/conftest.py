"""Witnesses and clients for tests against real brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest import FixtureRequest as Request

from rocketmq_spark.client import Client
from rocketmq_spark.local_cluster import LocalCluster

from .witness import Witness


@pytest.fixture(scope="session")
def witness(cluster: LocalCluster, name_server: str) -> Iterator[Witness]:
    """The Java client, against the cluster that `client` speaks to."""
    witness = Witness(cluster, name_server)
    yield witness
    witness.close()


# `client` and `witness` may speak to a cluster that somebody else runs. These two speak to the one
# that is surely ours, where mqadmin can be asked too.


@pytest.fixture(scope="session")
def local_client(cluster: LocalCluster, name_server: str, request: Request) -> Iterator[Client]:
    if name_server == cluster.name_server:
        yield request.getfixturevalue("client")
        return
    with Client(cluster.name_server, timeout=15) as client:
        yield client


@pytest.fixture(scope="session")
def local_witness(cluster: LocalCluster, name_server: str, request: Request) -> Iterator[Witness]:
    if name_server == cluster.name_server:
        yield request.getfixturevalue("witness")
        return
    witness = Witness(cluster)
    yield witness
    witness.close()
