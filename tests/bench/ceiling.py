"""What one socket can give: pipelined pulls whose bodies are thrown away.

The fastest loop that plain Python can run against a broker: prepared requests, one reused buffer,
and of each answer only its length, its number and where it ends are looked at. `Client.read` keeps
the same number of pulls in flight, so what lies between the two is the price of ordered Arrow.
"""

from __future__ import annotations

import re
import socket
import struct

from rocketmq_spark.client.transport import parse_address
from rocketmq_spark.core.model import MessageQueue

_REQUEST = (
    '{"code":11,"language":"PYTHON","version":493,"flag":0,"opaque":%d,"extFields":{'
    '"consumerGroup":"bench_ceiling","topic":"%s","queueId":"%d","queueOffset":"%d",'
    '"maxMsgNums":"%d","sysFlag":"4","commitOffset":"0","suspendTimeoutMillis":"0",'
    '"subscription":"*","subVersion":"0","expressionType":"TAG"}}'
)
_HEAD = struct.Struct(">II")
_FOUND = re.compile(rb'"code":0\b')
_NEXT = re.compile(rb'"nextBeginOffset":"(\d+)"')
_OPAQUE = re.compile(rb'"opaque":(\d+)')
_BUFFER = 1024 * 1024


class Ceiling:
    """A connection to the broker at `address` that discards what it reads."""

    def __init__(self, address: str, depth: int = 32, step: int = 32) -> None:
        self._socket = socket.create_connection(parse_address(address), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._depth = depth
        self._step = step
        self._opaque = 0
        self._buffer = bytearray(_BUFFER)

    def close(self) -> None:
        self._socket.close()

    def read(self, queue: MessageQueue, start: int, end: int) -> int:
        """How many messages of [start, end) the broker has sent."""
        messages, frontier = 0, start
        flying: dict[int, tuple[int, int]] = {}
        asks: list[tuple[int, int]] = []
        buffer, view = self._buffer, memoryview(self._buffer)
        kept = 0  # bytes at the start of the buffer that wait for more
        at = 0  # where the next frame begins; beyond what has come while a body passes by
        while True:
            while len(flying) + len(asks) < self._depth and frontier < end:
                following = min(frontier + self._step, end)
                asks.append((frontier, following))
                frontier = following
            if asks:
                self._socket.sendall(b"".join([self._request(queue, *ask, flying) for ask in asks]))
                asks = []
            if not flying and not at:
                return messages
            filled = kept + self._socket.recv_into(view[kept:])
            if filled == kept:
                raise ConnectionError("the broker closed the connection")
            while at + 8 <= filled:
                length, header = _HEAD.unpack_from(buffer, at)
                body = at + 8 + header  # its kind is 0, JSON, which takes no bits
                if body > filled:
                    break
                offset, wanted, after = self._answer(buffer, at + 8, body, flying)
                messages += after - offset
                if after < wanted:
                    asks.append((after, wanted))
                at += 4 + length
            kept = max(0, filled - at)
            buffer[:kept] = buffer[at:filled] if kept else b""
            at = max(0, at - filled)

    def _request(
        self, queue: MessageQueue, offset: int, end: int, flying: dict[int, tuple[int, int]]
    ) -> bytes:
        self._opaque += 1
        flying[self._opaque] = (offset, end)
        fields = (self._opaque, queue.topic, queue.queue_id, offset, end - offset)
        header = (_REQUEST % fields).encode()
        return _HEAD.pack(4 + len(header), len(header)) + header

    def _answer(
        self, buffer: bytearray, start: int, end: int, flying: dict[int, tuple[int, int]]
    ) -> tuple[int, int, int]:
        """The offset that was asked for, the end of what was asked for, the end of what came."""
        opaque, after = _OPAQUE.search(buffer, start, end), _NEXT.search(buffer, start, end)
        if not opaque or not after or not _FOUND.search(buffer, start, end):
            raise ValueError(f"not messages: {bytes(buffer[start:end])!r}")
        offset, wanted = flying.pop(int(opaque[1]))
        return offset, wanted, int(after[1])
