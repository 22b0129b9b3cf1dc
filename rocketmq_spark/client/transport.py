"""TCP and TLS streams with a deadline on everything; the operating system's errors become ours."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Protocol

from rocketmq_spark.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TlsError,
    UsageError,
)
from rocketmq_spark.wire.frame import Buffer


@dataclass(frozen=True, slots=True)
class Tls:
    """How to speak TLS. Certificates of brokers rarely name their addresses, so the chain is
    checked and the host name only on request; `verify=False` trusts anybody and is for tests."""

    ca: str = ""
    cert: str = ""
    key: str = ""
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
            files = ", ".join(f for f in (self.ca, self.cert, self.key) if f)
            raise UsageError(f"cannot load the TLS files {files}: {error}") from error
        return context


class Stream(Protocol):
    """What a connection needs of the network; tests pass a scripted one."""

    def send(self, data: Buffer, deadline: float) -> None: ...
    def recv_into(self, view: memoryview, deadline: float) -> int: ...
    def readable(self) -> bool: ...
    def close(self) -> None: ...


def parse_address(address: str) -> tuple[str, int]:
    """`host:port`, an IPv6 host in brackets."""
    host, colon, port = address.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not colon or not host or (":" in host and not bracketed) or not port.isascii():
        raise UsageError(f"{address!r} is not an address: write host:port, or [host]:port for IPv6")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"{address!r} has no valid port: write host:port with 1 to 65535")
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


def open_stream(address: str, deadline: float, tls: ssl.SSLContext | None = None) -> SocketStream:
    host, port = parse_address(address)
    try:
        sock = socket.create_connection((host, port), timeout=_left(deadline))
    except TimeoutError as error:
        raise ConnectError(
            f"no connection to {address} within the timeout: the host does not answer; "
            "check the address, the network and any firewall"
        ) from error
    except (OSError, ValueError) as error:  # ValueError: no host name could be like that
        reason = getattr(error, "strerror", None) or str(error)
        raise ConnectError(
            f"no connection to {address}: {reason}; check the address and that the server runs"
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # The receive buffer is left to the kernel: setting it switches its automatic growth off.
    if tls is not None:
        sock = _handshake(sock, tls, host, address, deadline)
    return SocketStream(sock, address)


def _handshake(
    sock: socket.socket, tls: ssl.SSLContext, host: str, address: str, deadline: float
) -> ssl.SSLSocket:
    try:
        sock.settimeout(_left(deadline))
        return tls.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise TlsError(
            f"the certificate of {address} is not trusted ({error.verify_message}); "
            "give the authority that signed it as the CA file"
        ) from error
    except TimeoutError as error:
        sock.close()
        raise ConnectError(f"no TLS handshake with {address} within the timeout") from error
    except (OSError, ValueError) as error:
        sock.close()
        raise TlsError(
            f"no TLS with {address}: {error}; check that the server has TLS on "
            "and whether it asks for a client certificate"
        ) from error


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
        reason = error.strerror or str(error)
        return ConnectionLostError(f"the connection to {self._address} broke: {reason}")


def _left(deadline: float) -> float:
    """Seconds to go; a deadline that has passed still gets one look at what is already there."""
    return max(0.001, deadline - time.monotonic())
