"""What the tests of the source share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from .queries import Source


@pytest.fixture(scope="session")
def source(spark: SparkSession, name_server: str) -> Source:
    """Two members, so that a plan is the same on every machine."""
    return Source(spark, {"nameServer": name_server, "executors": "2"})
