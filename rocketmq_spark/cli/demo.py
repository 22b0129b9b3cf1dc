"""`rocketmq-spark demo`: a real cluster, messages in, the same messages out, checked."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rocketmq_spark.cli.cluster import started
from rocketmq_spark.cli.console import Console
from rocketmq_spark.cli.tables import offsets_table
from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import ClusterError

_TOPIC = "orders"
_REGIONS = ("eu", "us", "asia")
_CHUNK = 5_000


def show(messages: int) -> None:
    console = Console()
    console.print("A real RocketMQ on this machine: one name server, two brokers.")
    with started(console, brokers=2) as cluster, Client(cluster.name_server, timeout=15) as client:
        client.create_topic(_TOPIC, 4)
        console.print(f"It listens on {cluster.name_server}. Topic {_TOPIC}: 4 queues on each.")
        with _progress(console) as progress:
            sent = _send(client, messages, progress, progress.add_task("sending", total=messages))
            offsets = _await_index(client, messages)
            task = progress.add_task("reading", total=messages)
            began = time.monotonic()
            received = _read(client, offsets, progress, task)
            seconds = time.monotonic() - began
        console.print(offsets_table(offsets, title=f"{_TOPIC}, as the brokers tell"))
        _check(sent, received)
        console.print(
            f"[green]{len(received):,} messages in, the same {len(received):,} out, none lost, "
            f"none twice[/]; read at {len(received) / seconds:,.0f} messages/s."
        )


def _send(client: Client, count: int, progress: Progress, task: TaskID) -> set[bytes]:
    bodies: set[bytes] = set()
    for first in range(0, count, _CHUNK):
        chunk = [_order(number) for number in range(first, min(first + _CHUNK, count))]
        client.send(_TOPIC, chunk)
        bodies.update(message.payload for message in chunk)
        progress.advance(task, len(chunk))
    return bodies


def _order(number: int) -> Message:
    region = _REGIONS[number % len(_REGIONS)]
    return Message(f'{{"order":{number},"region":"{region}"}}', tags=region, keys=f"order-{number}")


def _await_index(client: Client, count: int) -> dict[MessageQueue, tuple[int, int]]:
    """Brokers acknowledge a message a moment before consumers can see it."""
    deadline = time.monotonic() + 30
    while True:
        offsets = client.topic_offsets(_TOPIC)
        if sum(high - low for low, high in offsets.values()) >= count:
            return offsets
        if time.monotonic() > deadline:
            raise ClusterError(f"topic {_TOPIC} does not show all {count} messages after 30 s")
        time.sleep(0.05)


def _read(
    client: Client, offsets: dict[MessageQueue, tuple[int, int]], progress: Progress, task: TaskID
) -> list[bytes]:
    bodies: list[bytes] = []
    for queue, (low, high) in offsets.items():
        for batch in client.read(queue, low, high):
            bodies += batch.column("body").to_pylist()
            progress.advance(task, batch.num_rows)
    return bodies


def _check(sent: Iterable[bytes], received: list[bytes]) -> None:
    missing = len(set(sent) - set(received))
    twice = len(received) - len(set(received))
    if missing or twice:
        raise ClusterError(f"the demo failed: {missing} messages are missing, {twice} came twice")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeRemainingColumn(),
        console=console,
    )
