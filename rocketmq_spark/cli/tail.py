"""`rocketmq-spark tail`: messages as they come, a line each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from rocketmq_spark.cli.console import Console
from rocketmq_spark.client import Client
from rocketmq_spark.core.model import MessageQueue

# Between two looks at all queues; long enough to leave brokers alone.
_PAUSE = 0.5
_COLUMNS = ["storeTimestamp", "brokerName", "queueId", "queueOffset", "tags", "keys", "body"]


def follow(
    client: Client,
    topic: str,
    *,
    earliest: bool,
    no_follow: bool,
    limit: int | None,
    tags: str,
    sql: str,
) -> None:
    console = Console(highlight=False)
    rows = _rows(client, topic, earliest, no_follow, tags, sql)
    for shown, row in enumerate(rows, 1):
        console.print(_line(row), soft_wrap=True)
        if shown == limit:
            return


def _rows(
    client: Client, topic: str, earliest: bool, once: bool, tags: str, sql: str
) -> Iterator[dict[str, Any]]:
    bounds = client.topic_offsets(topic)
    at: dict[MessageQueue, int] = {
        queue: low if earliest else high for queue, (low, high) in bounds.items()
    }
    while True:
        for queue, (low, high) in bounds.items():
            start = max(at.get(queue, low), low)  # a queue added meanwhile is read from its first
            for batch in client.read(
                queue, start, max(start, high), _COLUMNS, sub_expression=tags, sql_expression=sql
            ):
                yield from batch.to_pylist()
            at[queue] = max(start, high)
        if once:
            return
        time.sleep(_PAUSE)
        bounds = client.topic_offsets(topic)


def _line(row: dict[str, Any]) -> Text:
    stamp = row["storeTimestamp"].astimezone().strftime("%H:%M:%S.%f")[:-3]
    line = Text.assemble(
        (stamp, "dim"),
        (f" {row['brokerName']}/{row['queueId']}@{row['queueOffset']} ", "cyan"),
        (f"{row['tags'] or '-'} ", "yellow"),
        (f"{row['keys'] or '-'} ", "green"),
    )
    return line.append(row["body"].decode("utf-8", "backslashreplace"))
