"""What the tests of the source share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from .queries import Source


@pytest.fixture(scope="session")
def source(spark: SparkSession, name_server: str) -> Source:
    """Two members, so that a plan is the same on every machine."""
    return Source(spark, {"nameServer": name_server, "executors": "2"})


# Those that start Spark. `make test-source` runs them; they join `make test` when the source is
# more than a preview.
SLOW = {
    "test_batch",
    "test_change",
    "test_limits",
    "test_members",
    "test_schema",
    "test_sink_faults",
    "test_sink_interop",
    "test_sink_queries",
    "test_starts",
    "test_stream",
    "test_topics",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "spark" and item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)
