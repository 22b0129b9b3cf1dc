"""One client for a query's options in each process, and secrets from where they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketmq_spark.core.options import SourceOptions, read_options
from rocketmq_spark.errors import UsageError
from rocketmq_spark.spark.clients import client_for


def options(**more: Any) -> SourceOptions:
    return read_options({"nameServer": "127.0.0.1:1", "topic": "T", **more})


def test_tasks_of_a_process_share_a_client() -> None:
    first = client_for(options())
    assert client_for(options()) is first
    # What to read is not how to connect.
    assert client_for(options(topic="U", startingOffsets="earliest")) is first


@pytest.mark.parametrize(
    "more",
    [
        {"nameServer": "127.0.0.1:2"},
        {"accessKey": "a", "secretKey": "s"},
        {"timeout": "9s"},
        {"namespace": "n"},
        {"consumerGroup": "g"},
        {"batchBytes": "1m"},
        {"tls": "true"},
    ],
    ids=lambda more: next(iter(more)),
)
def test_whatever_a_client_is_made_of_makes_another(more: dict[str, str]) -> None:
    assert client_for(options(**more)) is not client_for(options())


def test_a_secret_is_looked_up_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "secret"
    kept.write_text("from a file\n", "utf-8")
    given = options(accessKey="env:THE_ACCOUNT", secretKey=f"file:{kept}")
    assert "THE_ACCOUNT" not in repr(given) and str(kept) not in repr(given)
    with pytest.raises(UsageError, match="environment variable THE_ACCOUNT, which is not set"):
        client_for(given)
    monkeypatch.setenv("THE_ACCOUNT", "alice")
    client = client_for(given)
    assert "alice" in repr(client) and "from a file" not in repr(client)
    assert client_for(options(accessKey="alice", secretKey="from a file")) is client
    kept.write_text("another\n", "utf-8")  # it was changed: the old one is of no use
    assert client_for(given) is not client
    kept.unlink()
    with pytest.raises(UsageError, match="which cannot be read here: No such file"):
        client_for(given)
