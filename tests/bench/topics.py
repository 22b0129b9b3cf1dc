"""Topics for the benchmarks: 1 KiB messages with tags, keys and a property."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from rich.progress import Progress

from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.model import MessageQueue, OffsetRange
from rocketmq_spark.local_cluster import LocalCluster
from tests.bench.peers import Topic

BODY = 1024
_SEND_AT_ONCE = 8000


def load(
    cluster: LocalCluster,
    name: str,
    queues: int,
    messages: int,
    progress: Progress,
    order: Sequence[int] = (),
) -> Topic:
    """A topic with so many messages: the same number in each queue as far as that goes, or to the
    queues in this `order`, again and again."""
    cluster.create_topic(name, queues)
    noise = random.Random(1).randbytes(BODY + 4096)
    order = order or range(queues)
    task = progress.add_task(f"loading {name}", total=messages)
    with Client(cluster.name_server, timeout=30) as client:
        parts = client.queues(name)
        for first in range(0, messages, _SEND_AT_ONCE):
            numbers = range(first, min(first + _SEND_AT_ONCE, messages))
            client.send(
                name,
                [
                    Message(
                        noise[n % 4096 : n % 4096 + BODY],
                        tags=f"Tag{'ABC'[n % 3]}",
                        keys=f"order-{n}",
                        properties={"region": f"eu-{n % 5}"},
                        queue=parts[order[n % len(order)]],
                    )
                    for n in numbers
                ],
            )
            progress.advance(task, len(numbers))
        found = _indexed(client, name, messages)
        broker = next(b.master for b in client.brokers() if b.master)
    ranges = [OffsetRange(queue, *bounds) for queue, bounds in sorted(found.items())]
    return Topic(name, ranges, cluster.name_server, broker)


def _indexed(client: Client, name: str, messages: int) -> dict[MessageQueue, tuple[int, int]]:
    """The queues' bounds once they hold all messages: a broker acknowledges before it indexes."""
    deadline = time.monotonic() + 120
    while True:
        found = client.topic_offsets(name)
        stored = sum(end - start for start, end in found.values())
        if stored == messages:
            return found
        if stored > messages or time.monotonic() > deadline:
            raise RuntimeError(f"{messages} messages were sent and {stored} are stored")
        time.sleep(0.1)
