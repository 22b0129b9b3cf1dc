"""What a broker can take: batches that were made beforehand, several in flight on one connection.

Of each request only the header is made anew, so what lies between this and a producer is mostly the
producer's own price.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
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
    """Sends one batch again and again to the broker at `address`."""

    def __init__(self, address: str, queues: list[MessageQueue], rows: int, size: int) -> None:
        self._address = address
        self._queues = queues
        body = random.Random(1).randbytes(size)
        # The properties of the Java producer's messages.
        self._items = [
            BatchItem(body, {UNIQ_KEY: f"{number:032X}", "WAIT": "true"}) for number in range(rows)
        ]
        self._batch = encode_batch(self._items)

    def send(self, rows: int) -> int:
        """How many of so many rows the broker has acknowledged."""
        whole, rest = divmod(rows, len(self._items))
        bodies = [(self._batch, len(self._items))] * whole
        if rest:
            bodies.append((encode_batch(self._items[:rest]), rest))
        requests = (
            (self._command(number, body), count) for number, (body, count) in enumerate(bodies)
        )
        stream = open_stream(self._address, time.monotonic() + _SECONDS)
        with closing(Connection(self._address, stream, Session())) as connection:
            return _send(connection, requests)

    def _command(self, number: int, body: bytes) -> Command:
        queue = self._queues[number % len(self._queues)]
        header = commands.SendHeader(
            "bench_ceiling", queue, queue.broker_name, int(time.time() * 1000)
        )
        return commands.send_batch(header, body)


def _send(connection: Connection, requests: Iterator[tuple[Command, int]]) -> int:
    acknowledged, flying = 0, _submit(connection, islice(requests, _IN_FLIGHT))
    while flying:
        for count, frame in connection.receive(time.monotonic() + _SECONDS):
            if frame.code:
                raise RuntimeError(f"the broker refuses a batch: {frame.code} {frame.remark}")
            acknowledged += count
            flying += _submit(connection, islice(requests, 1)) - 1
    return acknowledged


def _submit(connection: Connection, requests: Iterable[tuple[Command, int]]) -> int:
    sent = list(requests)
    if sent:
        connection.submit(sent, time.monotonic() + _SECONDS)
    return len(sent)
