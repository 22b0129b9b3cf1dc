"""TCP and TLS streams with a deadline on everything; the operating system's errors become ours."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rocketmq_spark.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TlsError,
    UsageError,
)
from rocketmq_spark.wire.frame import Buffer

# Addresses of a host as socket.getaddrinfo gives them.
Resolve = Callable[..., Sequence[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Tls:
    """How to speak TLS. Certificates of brokers rarely name their addresses, so the chain is
    checked and the host name only on request; `verify=False` trusts anybody and is for tests."""

    ca: str | os.PathLike[str] = ""
    cert: str | os.PathLike[str] = ""
    key: str | os.PathLike[str] = ""
    verify: bool = True
    check_host: bool = False

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            context.check_hostname = self.verify and self.check_host
            if not self.verify:
                context.verify_mode = ssl.CERT_NONE
            if self.cert:
                # Without a password OpenSSL would stop and ask for one on the terminal.
                context.load_cert_chain(self.cert, self.key or None, password="")
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(os.fspath(f) for f in (self.ca, self.cert, self.key) if f)
            raise UsageError(f"cannot load the TLS files {files}: {error}") from error
        return context


class Stream(Protocol):
    """What a connection needs of the network; tests pass a scripted one."""

    def send(self, data: Buffer, deadline: float) -> None: ...
    def recv_into(self, view: memoryview, deadline: float) -> int: ...
    def readable(self) -> bool: ...
    def close(self) -> None: ...


def parse_address(address: str) -> tuple[str, int]:
    """What a user has written: `host:port`, an IPv6 host in brackets."""
    address = address.strip()
    with contextlib.suppress(ValueError):
        host, port = split_address(address)
        if port and (":" not in host or address.startswith(f"[{host}]")):
            return host, port
    raise UsageError(
        f"{address!r} is not an address: write host:port, or [host]:port for IPv6, "
        "with a port from 1 to 65535"
    )


def split_address(address: str) -> tuple[str, int]:
    """The same for what a broker has registered, which may be IPv6 without brackets: as Java does
    (NetworkUtil.string2SocketAddress), at the last colon. A ValueError if it cannot be split."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host, int(port)


def own_address(towards: str) -> str:
    """The address of this machine that a server sees; its name where nothing leads there."""
    with contextlib.suppress(OSError):
        for family, kind, _, _, server in socket.getaddrinfo(
            *parse_address(towards), type=socket.SOCK_DGRAM
        ):
            with socket.socket(family, kind) as probe:
                probe.connect(server)  # sends nothing: it only chooses a way
                return str(probe.getsockname()[0])
    return socket.gethostname()


def open_stream(
    address: str,
    deadline: float,
    tls: ssl.SSLContext | None = None,
    resolve: Resolve = socket.getaddrinfo,
) -> SocketStream:
    """A connection to `address`. One deadline is for all addresses that a host name has.

    Finding those is not under it: that takes as long as the system's resolver is set to take
    (`man resolv.conf`), for nothing can interrupt it. A numeric address is not asked for.
    """
    try:
        host, port = split_address(address)
    except ValueError as error:
        raise ConnectError(
            f"no connection to {address!r}: that is not host:port; a broker that is registered so "
            "has a wrong brokerIP1"
        ) from error
    try:
        sock = _connect(_addresses(host, port, resolve), deadline)
    except TimeoutError as error:
        raise ConnectError(
            f"no connection to {address} within the timeout: the host does not answer"
        ) from error
    except (OSError, ValueError) as error:  # ValueError: no host name could be like that
        reason = _words(error)
        raise ConnectError(f"no connection to {address}: {reason}") from error
    if tls is not None:
        sock = _handshake(sock, tls, host, address, deadline)
    return SocketStream(sock, address)


def _addresses(host: str, port: int, resolve: Resolve) -> Sequence[tuple[Any, ...]]:
    with contextlib.suppress(socket.gaierror):
        numeric = socket.AI_NUMERICHOST
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    return resolve(host, port, type=socket.SOCK_STREAM)


def _connect(addresses: Sequence[tuple[Any, ...]], deadline: float) -> socket.socket:
    """To the first that can be reached; each gets its share of the time."""
    failure: OSError = OSError("the host has no address")
    try:
        for tried, (family, kind, protocol, _, address) in enumerate(addresses):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:  # a system without IPv6, say
                failure = error
                continue
            try:
                sock.settimeout(_left(share(deadline, len(addresses) - tried)))
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                # The receive buffer is left to the kernel: setting it ends its automatic growth.
                return sock
            except OSError as error:
                sock.close()
                failure = error
        raise failure
    finally:
        del failure  # its traceback leads here, and so back to it


def _handshake(
    sock: socket.socket, tls: ssl.SSLContext, host: str, address: str, deadline: float
) -> ssl.SSLSocket:
    try:
        sock.settimeout(_left(deadline))
        return tls.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise TlsError(
            f"the certificate of {address} is not trusted ({error.verify_message.rstrip('.')})"
        ) from error
    except TimeoutError as error:
        sock.close()
        raise ConnectError(f"no TLS handshake with {address} within the timeout") from error
    except (OSError, ValueError) as error:
        sock.close()
        raise TlsError(f"no TLS with {address}: {_words(error)}") from error


class SocketStream:
    """A connected socket."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self._sock = sock
        self._address = address

    def send(self, data: Buffer, deadline: float) -> None:
        try:
            self._sock.settimeout(_left(deadline))
            self._sock.sendall(data)
        except TimeoutError as error:
            raise RequestTimeoutError(
                f"{self._address} took no more data before the deadline"
            ) from error
        except OSError as error:
            raise self._lost(error) from error

    def recv_into(self, view: memoryview, deadline: float) -> int:
        try:
            self._sock.settimeout(_left(deadline))
            count = self._sock.recv_into(view)
        except TimeoutError as error:
            raise RequestTimeoutError(f"{self._address} did not answer in time") from error
        except OSError as error:
            raise self._lost(error) from error
        if count == 0:
            raise ConnectionLostError(f"{self._address} closed the connection")
        return count

    def readable(self) -> bool:
        """Whether something has come: an answer, a request of the server, or its end."""
        try:
            if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
                return True
            if hasattr(select, "poll"):
                poll = select.poll()
                poll.register(self._sock, select.POLLIN)
                return bool(poll.poll(0))
            return bool(select.select([self._sock], [], [], 0)[0])
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        self._sock.close()

    def _lost(self, error: OSError) -> ConnectionLostError:
        reason = _words(error)
        return ConnectionLostError(f"the connection to {self._address} broke: {reason}")


def _words(error: Exception) -> str:
    """What the system says, without the place in OpenSSL's source."""
    said = getattr(error, "strerror", None) or str(error)
    return re.sub(r"\s*\(_ssl\.c:\d+\)$", "", said).rstrip(".")


def share(deadline: float, left: int) -> float:
    """The deadline of the next of `left` to try: one that swallows packets does not eat the
    others' turn."""
    now = time.monotonic()
    return now + (deadline - now) / left


def _left(deadline: float) -> float:
    """Seconds to go; a deadline that has passed still gets one look at what is already there."""
    return max(0.001, deadline - time.monotonic())
