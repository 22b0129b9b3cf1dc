"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from rocketmq_spark.core.model import MessageQueue


def offsets_table(
    offsets: Mapping[MessageQueue, tuple[int, int]],
    progress: Mapping[MessageQueue, int | None] | None = None,
    title: str | None = None,
) -> Table:
    """Queues as rows; with a group's progress also how far behind it is."""
    table = Table(title=title)
    for heading in ("topic", "broker"):
        table.add_column(heading)
    numbers = ["queue", "first", "next", "messages"]
    numbers += ["committed", "behind"] if progress is not None else []
    for heading in numbers:
        table.add_column(heading, justify="right")
    for queue in sorted(offsets):
        low, high = offsets[queue]
        row = [
            queue.topic,
            queue.broker_name,
            str(queue.queue_id),
            f"{low:,}",
            f"{high:,}",
            f"{high - low:,}",
        ]
        if progress is not None:
            done = progress.get(queue)
            row += ["-", "-"] if done is None else [f"{done:,}", f"{high - done:,}"]
        table.add_row(*row)
    table.caption = f"{sum(high - low for low, high in offsets.values()):,} messages"
    return table
