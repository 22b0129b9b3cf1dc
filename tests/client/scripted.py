"""The other side, scripted: servers that answer as a test says, in memory or on the loopback.

A `Handler` gets each request and says what comes back: answers (their number and flag are filled
in), raw bytes, or `CUT`, which ends the connection after what was said before it. `Network` hands
out connections to such servers without sockets and without waiting: where nothing comes back, a
read times out at once. `LoopbackServer` is the same behind a real socket.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.buffer import FrameBuffer
from rocketmq_spark.wire.frame import RESPONSE_FLAG, Buffer, Frame, encode
from rocketmq_spark.wire.session import Session

CUT = "cut"

Reply = Frame | bytes | str
Handler = Callable[[Frame], Iterable[Reply]]


def answer(
    code: int = 0, remark: str = "", body: Buffer = b"", version: int = 493, **ext: object
) -> Frame:
    fields = {name: str(value) for name, value in ext.items()}
    return Frame(code, 0, RESPONSE_FLAG, fields, remark, body, version)


def to_bytes(reply: Reply, request: Frame) -> bytes:
    if isinstance(reply, Frame):
        return (
            as_java(replace(reply, opaque=request.opaque)) if reply.is_response else encode(reply)
        )
    assert isinstance(reply, bytes)
    return reply


def as_java(frame: Frame) -> bytes:
    """The bytes of an answer with its header as a Java server writes it."""
    header: dict[str, object] = {
        "code": frame.code,
        "extFields": frame.ext,
        "flag": frame.flag,
        "language": "JAVA",
        "opaque": frame.opaque,
        "remark": frame.remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": frame.version,
    }
    said = {name: value for name, value in header.items() if value not in ({}, "")}
    raw = json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()
    lengths = struct.pack(">II", 4 + len(raw) + len(frame.body), len(raw))
    return b"".join((lengths, raw, frame.body))


def silent(request: Frame) -> Iterable[Reply]:
    """Takes everything and says nothing."""
    return ()


def mirror(request: Frame) -> Iterable[Reply]:
    """Answers with the body of the request."""
    yield answer(body=request.body)


class Frames:
    """Bytes in, the frames they complete out."""

    def __init__(self) -> None:
        self._buffer = FrameBuffer()

    def feed(self, data: Buffer) -> list[Frame]:
        frames, view = [], memoryview(data)
        while len(view):
            room = self._buffer.writable()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            frames += self._buffer.received(count)
            view = view[count:]
        # Their bodies are views into the buffer; a test wants to compare them.
        return [replace(frame, body=bytes(frame.body)) for frame in frames]


class ScriptedStream:
    """A connection to a handler, as `transport.Stream` wants it."""

    def __init__(self, handler: Handler, at_once: int = 1 << 30) -> None:
        self.requests: list[Frame] = []
        self.writes: list[int] = []  # how many requests came at once
        self.replies: list[Frame] = []  # what the client answered to the server's own requests
        self.deadlines: list[float] = []
        self.closed = False
        self._handler = handler
        self._at_once = at_once
        self._frames = Frames()
        self._incoming = bytearray()
        self._ended = False

    def push(self, *frames: Frame | bytes) -> None:
        """The server says something by itself."""
        for frame in frames:
            self._incoming += encode(frame) if isinstance(frame, Frame) else frame

    def end(self) -> None:
        """The server closes the connection."""
        self._ended = True

    def send(self, data: Buffer, deadline: float) -> None:
        self.deadlines.append(deadline)
        if self._ended or self.closed:
            raise ConnectionLostError("the scripted connection broke")
        frames = self._frames.feed(data)
        self.writes.append(sum(not frame.is_response for frame in frames))
        for frame in frames:
            if frame.is_response:
                self.replies.append(frame)
                continue
            self.requests.append(frame)
            for reply in self._handler(frame):
                if reply == CUT:
                    self.end()
                elif not self._ended:
                    self._incoming += to_bytes(reply, frame)

    def recv_into(self, view: memoryview, deadline: float) -> int:
        self.deadlines.append(deadline)
        if self.closed:
            raise ConnectionLostError("the scripted connection is closed")
        count = min(len(view), len(self._incoming), self._at_once)
        if count:
            view[:count] = self._incoming[:count]
            del self._incoming[:count]
            return count
        if self._ended:
            raise ConnectionLostError("the scripted server closed the connection")
        raise RequestTimeoutError("the scripted server did not answer in time")

    def readable(self) -> bool:
        return bool(self._incoming) or self._ended

    def close(self) -> None:
        self.closed = True


class Network:
    """Servers by address. An address without one refuses; one that is `black_holed` times out."""

    def __init__(self, credentials: Credentials | None = None, namespace: str = "") -> None:
        self.servers: dict[str, Handler] = {}
        self.black_holed: set[str] = set()
        self.streams: list[tuple[str, ScriptedStream]] = []
        self.connects: list[tuple[str, float]] = []  # address, seconds it was given
        self.at_once = 1 << 30
        self._credentials = credentials
        self._namespace = namespace

    def connect(self, address: str, deadline: float) -> Connection:
        self.connects.append((address, deadline - time.monotonic()))
        handler = self.servers.get(address)
        if address in self.black_holed:
            raise ConnectError(f"no connection to {address} within the timeout")
        if handler is None:
            raise ConnectError(f"no connection to {address}: refused")
        stream = ScriptedStream(handler, self.at_once)
        self.streams.append((address, stream))
        return Connection(address, stream, Session(self._credentials, self._namespace))

    def pool(self, idle_seconds: float = 60.0) -> Pool:
        return Pool(self.connect, idle_seconds)

    def requests(self, *codes: int) -> list[tuple[str, Frame]]:
        """All requests so far (of these codes), connection by connection."""
        return [
            (address, request)
            for address, stream in self.streams
            for request in stream.requests
            if not codes or request.code in codes
        ]

    def asked(self, *codes: int) -> Counter[str]:
        """How many requests (of these codes) each address got."""
        return Counter(address for address, _ in self.requests(*codes))

    def end_all(self) -> None:
        """Every server closes every connection."""
        for _, stream in self.streams:
            stream.end()


class LoopbackServer:
    """A handler behind a real socket; each connection has a thread of its own."""

    def __init__(self, handler: Handler = silent, tls: ssl.SSLContext | None = None) -> None:
        self.handler = handler
        self.requests: list[Frame] = []
        self.accepted = 0
        # In which order requests that came at once are handled.
        self.arrange: Callable[[list[Frame]], Iterable[Frame]] = iter
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        frames = Frames()
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._sockets.append(sock)
            while data := sock.recv(65536):
                for request in self.arrange(frames.feed(data)):
                    self.requests.append(request)
                    for reply in self.handler(request):
                        if reply == CUT:
                            return
                        sock.sendall(to_bytes(reply, request))
        except OSError:
            pass
        finally:
            _hang_up(sock)

    def hang_up(self) -> None:
        """Close every connection, but go on listening."""
        for sock in self._sockets:
            _hang_up(sock)

    def close(self) -> None:
        # Closing alone would leave a thread in accept().
        _hang_up(self._listener)
        self.hang_up()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> LoopbackServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


# --- a name server ----------------------------------------------------------------------------


def route_body(
    brokers: Mapping[str, Mapping[int, str]],
    queues: int | Mapping[str, int] = 4,
    perm: int = 6,
    static: Mapping[str, object] | None = None,
    standard: bool = True,
) -> bytes:
    """A route: broker names with the addresses of their ids, and queues on each."""
    route = {
        "queueDatas": [
            {
                "brokerName": name,
                "readQueueNums": queues if isinstance(queues, int) else queues[name],
                "writeQueueNums": queues if isinstance(queues, int) else queues[name],
                "perm": perm,
                "topicSysFlag": 0,
            }
            for name in brokers
        ],
        "brokerDatas": broker_datas(brokers),
        "filterServerTable": {},
    }
    if static:
        route["topicQueueMappingByBroker"] = static  # type: ignore[assignment]
    text = json.dumps(route)
    if not standard:
        for broker_id in range(10):
            text = text.replace(f'"{broker_id}":', f"{broker_id}:")
    return text.encode()


def broker_datas(brokers: Mapping[str, Mapping[int, str]]) -> list[dict[str, object]]:
    return [
        {
            "cluster": "c1",
            "brokerName": name,
            "brokerAddrs": {str(broker_id): address for broker_id, address in addresses.items()},
        }
        for name, addresses in brokers.items()
    ]


def name_server(
    routes: Mapping[str, bytes], brokers: Mapping[str, Mapping[int, str]] | None = None
) -> Handler:
    """Knows these topics and brokers; a mapping that a test changes later is read anew."""

    def handle(request: Frame) -> Iterable[Reply]:
        if request.code == 105:
            body = routes.get(request.ext["topic"])
            if body is None:
                yield answer(17, f"No topic route info for {request.ext['topic']}")
            else:
                yield answer(body=body)
        elif request.code == 106:
            table = {str(data["brokerName"]): data for data in broker_datas(brokers or {})}
            yield answer(body=json.dumps({"brokerAddrTable": table}).encode())
        elif request.code == 206:
            yield answer(body=json.dumps({"topicList": sorted(routes)}).encode())
        elif request.code == 304:
            yield answer(body=b'{"topicList":["rmq_sys_own"]}')
        else:
            yield answer(0)

    return handle


def in_turn(*replies: Sequence[Reply] | Reply) -> Handler:
    """One of these for each request; the last one again and again."""
    left = list(replies)

    def handle(request: Frame) -> Iterable[Reply]:
        chosen = left.pop(0) if len(left) > 1 else left[0]
        return [chosen] if isinstance(chosen, Frame | bytes | str) else chosen

    return handle
