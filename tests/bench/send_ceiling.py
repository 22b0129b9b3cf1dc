"""What a broker can take: batches that were made beforehand, several in flight on one connection.

Of each request only the header is made anew, so what lies between this and a producer is the
producer's own price.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from itertools import islice

from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.transport import open_stream
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.wire import commands
from rocketmq_spark.wire.message import UNIQ_KEY, BatchItem, encode_batch
from rocketmq_spark.wire.session import Command, Session

_IN_FLIGHT = 4
_SECONDS = 30.0


class SendCeiling:
    """A connection to the broker at `address` that sends one batch again and again."""

    def __init__(self, address: str, queues: list[MessageQueue], rows: int, size: int) -> None:
        self._connection = Connection(
            address, open_stream(address, time.monotonic() + _SECONDS), Session()
        )
        self._queues = queues
        body = random.Random(1).randbytes(size)
        self._items = [BatchItem(body, {UNIQ_KEY: f"{number:032X}"}) for number in range(rows)]
        self._batch = encode_batch(self._items)

    def close(self) -> None:
        self._connection.close()

    def send(self, rows: int) -> int:
        """How many of so many rows the broker has acknowledged."""
        whole, rest = divmod(rows, len(self._items))
        bodies = [(self._batch, len(self._items))] * whole
        if rest:
            bodies.append((encode_batch(self._items[:rest]), rest))
        requests = (
            (self._command(number, body), count) for number, (body, count) in enumerate(bodies)
        )
        acknowledged, flying = 0, self._submit(islice(requests, _IN_FLIGHT))
        while flying:
            for count, frame in self._connection.receive(time.monotonic() + _SECONDS):
                if frame.code:
                    raise RuntimeError(f"the broker refuses a batch: {frame.code} {frame.remark}")
                acknowledged += count
                flying += self._submit(islice(requests, 1)) - 1
        return acknowledged

    def _command(self, number: int, body: bytes) -> Command:
        queue = self._queues[number % len(self._queues)]
        header = commands.SendHeader(
            "bench_ceiling", queue, queue.broker_name, int(time.time() * 1000)
        )
        return commands.send_batch(header, body)

    def _submit(self, requests: Iterable[tuple[Command, int]]) -> int:
        sent = list(requests)
        if sent:
            self._connection.submit(sent, time.monotonic() + _SECONDS)
        return len(sent)
