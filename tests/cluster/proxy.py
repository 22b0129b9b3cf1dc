"""A TCP proxy on the loopback that cuts connections, and a client that goes through it."""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter

from rocketmq_spark.client import Client
from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.transport import parse_address


class Proxy:
    """Forwards to any address; cuts each connection after a random number of bytes received.

    `cut_after` is the range to choose from; None never cuts. `received` says how many bytes have
    come from each address.
    """

    def __init__(
        self, cut_after: tuple[int, int] | None = None, seed: int = 3, host: str = "127.0.0.1"
    ) -> None:
        self.connections = 0
        self.cuts = 0
        self.received: Counter[str] = Counter()
        self._cut_after = cut_after
        self._dice = random.Random(seed)
        self._host = host
        self._listeners: dict[str, socket.socket] = {}
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._closed = False

    def address_for(self, target: str) -> str:
        """Where to connect to in place of `target`."""
        with self._lock:
            if target not in self._listeners:
                family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
                listener = socket.create_server((self._host, 0), family=family)
                self._listeners[target] = listener
                threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
            port = self._listeners[target].getsockname()[1]
        return f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"

    def close(self) -> None:
        with self._lock:
            self._closed = True
            everything = [*self._listeners.values(), *self._sockets]
        for sock in everything:
            _end(sock)

    def _accept(self, listener: socket.socket, target: str) -> None:
        while not self._closed:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(parse_address(target), timeout=5)
                far.settimeout(None)
            except OSError:
                continue
            with self._lock:
                self.connections += 1
                self._sockets += (near, far)
                budget = self._dice.randint(*self._cut_after) if self._cut_after else None
            for way in ((near, far, "", None), (far, near, target, budget)):
                threading.Thread(target=self._forward, args=way, daemon=True).start()

    def _forward(
        self, source: socket.socket, sink: socket.socket, origin: str, budget: int | None
    ) -> None:
        try:
            while data := source.recv(65536 if budget is None else min(65536, budget)):
                with self._lock:
                    self.received[origin] += len(data)
                sink.sendall(data)
                if budget is not None:
                    budget -= len(data)
                    if budget <= 0:
                        with self._lock:
                            self.cuts += 1
                        break
        except OSError:
            pass
        _end(source)
        _end(sink)


def _end(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        sock.close()


class ProxiedClient(Client):
    """Every connection goes through `proxy`."""

    def __init__(self, name_server: str, proxy: Proxy, **settings: object) -> None:
        self._proxy = proxy
        super().__init__(name_server, **settings)  # type: ignore[arg-type]

    def _connect(self, address: str, deadline: float) -> Connection:
        return super()._connect(self._proxy.address_for(address), deadline)
