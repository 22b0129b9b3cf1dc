"""Real sockets on the loopback: deadlines, endings, TLS, and errors in our own words."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from rocketmq_spark.client.connection import Connection
from rocketmq_spark.client.transport import Tls, open_stream, parse_address, split_address
from rocketmq_spark.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TlsError,
    UsageError,
)
from rocketmq_spark.wire.session import Command, Session
from tests.client.scripted import CUT, LoopbackServer, answer, mirror


def within(seconds: float) -> float:
    return time.monotonic() + seconds


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        yield server


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("10.0.0.1:9876", ("10.0.0.1", 9876)),
        (" broker.example:1 ", ("broker.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:10911", ("fe80::1%eth0", 10911)),
    ],
)
def test_addresses(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":9876",
        "::1:9876",
        "[::1:9876",
        "::1]:9876",
        "[]:9876",
        "host:0",
        "host:65536",
        "host:x",
        "host:-1",
        "host:+1",
        "host:１２",
        "host:1 2",
    ],
)
def test_what_is_no_address_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="host:port"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("10.0.0.1:10911", ("10.0.0.1", 10911)),
        ("fe80::1:10911", ("fe80::1", 10911)),
        ("[fe80::1]:10911", ("fe80::1", 10911)),
        ("::1:10911", ("::1", 10911)),
    ],
)
def test_addresses_that_brokers_register(text: str, split: tuple[str, int]) -> None:
    assert split_address(text) == split


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:65536", "[]:1"])
def test_what_no_broker_can_register(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        split_address(text)


def test_bytes_there_and_back(server: LoopbackServer) -> None:
    server.handler = mirror
    connection = Connection(server.address, open_stream(server.address, within(5)), Session())
    body = bytes(range(256)) * 8000
    assert bytes(connection.call(Command(11, {}, body), within(10)).body) == body
    connection.close()


def test_a_refused_connection_says_so_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(ConnectError, match=rf"127.0.0.1:{port}: Connection refused"):
            open_stream(f"127.0.0.1:{port}", within(10))
        assert time.monotonic() - began < 5


@contextmanager
def black_hole() -> Iterator[tuple[str, int]]:
    """A listener whose queue is full drops further connections, as a firewall would."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        try:
            yield listener.getsockname()
        finally:
            for filler in fillers:
                filler.close()


def test_an_address_that_swallows_packets_times_out() -> None:
    with black_hole() as (host, port):
        began = time.monotonic()
        with pytest.raises(ConnectError, match=f"no connection to {host}:{port} within the time"):
            open_stream(f"{host}:{port}", within(0.3))
        assert time.monotonic() - began < 5


# --- names of several addresses ---------------------------------------------------------------


class Names:
    """Resolves any name to these addresses."""

    def __init__(self, *addresses: tuple[str, int]) -> None:
        self.addresses = addresses
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        self.asked.append((host, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", a) for a in self.addresses]


def test_all_addresses_of_a_name_share_one_deadline() -> None:
    with black_hole() as hole:
        began = time.monotonic()
        with pytest.raises(ConnectError, match="no connection to many:9876 within the timeout"):
            open_stream("many:9876", within(1), resolve=Names(hole, hole, hole, hole))
        # Each with all of the time would be 4 s.
        assert time.monotonic() - began < 3


def test_an_address_that_swallows_packets_leaves_time_for_the_next(server: LoopbackServer) -> None:
    with black_hole() as hole:
        names = Names(hole, hole, parse_address(server.address))
        deadline = within(3)
        open_stream("many:9876", deadline, resolve=names).close()
    assert time.monotonic() < deadline


def test_an_address_that_refuses_is_passed_by(server: LoopbackServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refusing = unused.getsockname()
        names = Names(refusing, parse_address(server.address))
        open_stream("localhost:1", within(5), resolve=names).close()
    assert names.asked == [("localhost", 1)]


def test_a_name_without_addresses() -> None:
    with pytest.raises(ConnectError, match="no connection to none:1: the host has no address"):
        open_stream("none:1", within(1), resolve=Names())


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "::1", "127.1"])
def test_a_numeric_address_is_not_asked_for(host: str) -> None:
    names = Names()
    with pytest.raises(ConnectError):
        open_stream(f"{host}:1", within(5), resolve=names)
    assert names.asked == []


def test_a_socket_that_cannot_be_set_up_is_closed_and_our_error(tmp_path: Path) -> None:
    # A socket of another family connects, and then knows nothing of TCP_NODELAY.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(1)
        listener.settimeout(10)
        found = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", listener.getsockname())]
        with pytest.raises(ConnectError, match="no connection to odd:1: ") as caught:
            open_stream("odd:1", within(5), resolve=lambda *_, **__: found)
        peer, _ = listener.accept()
        peer.settimeout(10)
        assert peer.recv(1) == b""  # while the exception, and so its frames, are still there
        assert caught.value
        peer.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 300, "nul\0l"])
def test_a_host_that_does_not_exist(host: str) -> None:
    with pytest.raises(ConnectError, match="no connection to"):
        open_stream(f"{host}:9876", within(5))


def test_silence_ends_at_the_deadline(server: LoopbackServer) -> None:
    stream = open_stream(server.address, within(5))
    began = time.monotonic()
    with pytest.raises(RequestTimeoutError, match=server.address):
        stream.recv_into(memoryview(bytearray(10)), within(0.2))
    assert 0.15 < time.monotonic() - began < 5
    stream.close()


def test_a_peer_that_does_not_read_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = open_stream(f"127.0.0.1:{listener.getsockname()[1]}", within(5))
        with pytest.raises(RequestTimeoutError, match="took no more data"):
            stream.send(bytes(64 << 20), within(0.3))
        stream.close()


def test_what_is_already_there_is_read_even_after_the_deadline(server: LoopbackServer) -> None:
    server.handler = lambda request: [answer()]
    stream = open_stream(server.address, within(5))
    connection = Connection(server.address, stream, Session())
    connection.submit([(Command(11, {}), 1)], within(5))
    until = within(5)
    while not stream.readable() and time.monotonic() < until:
        time.sleep(0.005)
    assert len(connection.receive(time.monotonic() - 1)) == 1
    connection.close()


def test_the_end_is_noticed(server: LoopbackServer) -> None:
    server.handler = lambda request: [CUT]
    stream = open_stream(server.address, within(5))
    connection = Connection(server.address, stream, Session())
    assert not stream.readable()
    connection.submit([(Command(11, {}), 1)], within(5))
    began = time.monotonic()
    with pytest.raises(ConnectionLostError, match=server.address):
        connection.receive(within(30))
    assert time.monotonic() - began < 10


def test_a_reset_is_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = open_stream(f"127.0.0.1:{listener.getsockname()[1]}", within(5))
        peer, _ = listener.accept()
        # Closing with SO_LINGER 0 sends RST in place of FIN.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        with pytest.raises(ConnectionLostError, match="broke"):
            stream.recv_into(memoryview(bytearray(1)), within(5))
        stream.close()
        with pytest.raises(ConnectionLostError):
            stream.send(b"x", within(1))
        assert stream.readable()


def test_ipv6() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with listener:
        for host in ("[::1]", "::1"):  # as a user writes it, and as a broker registers it
            open_stream(f"{host}:{listener.getsockname()[1]}", within(5)).close()


# --- TLS --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    ca = trustme.CA()
    file = tmp_path_factory.mktemp("tls") / "ca.pem"
    ca.cert_pem.write_to_path(str(file))
    return ca, file


def server_context(ca: trustme.CA, name: str = "broker.example") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name).configure_cert(context)
    return context


def call(address: str, tls: Tls) -> bytes:
    stream = open_stream(address, within(10), tls.context())
    connection = Connection(address, stream, Session())
    try:
        body = connection.call(Command(11, {}, b"x" * 100_000), within(10)).body
        assert connection.refresh()
        return bytes(body)
    finally:
        connection.close()


def test_tls_checks_the_chain_but_not_the_name(authority: tuple[trustme.CA, Path]) -> None:
    ca, file = authority
    with LoopbackServer(mirror, server_context(ca)) as server:
        assert call(server.address, Tls(ca=str(file))) == b"x" * 100_000
        with pytest.raises(TlsError, match=r"not trusted \(.*[^.]\)\. Check the CA"):
            call(server.address, Tls(ca=str(file), check_host=True))
        with pytest.raises(TlsError, match=r"not trusted .* Check the CA file") as caught:
            call(server.address, Tls())
        assert not caught.value.retriable
        assert call(server.address, Tls(verify=False)) == b"x" * 100_000


def test_tls_with_a_name_that_fits(authority: tuple[trustme.CA, Path]) -> None:
    ca, file = authority
    with LoopbackServer(mirror, server_context(ca, "127.0.0.1")) as server:
        assert call(server.address, Tls(ca=str(file), check_host=True)) == b"x" * 100_000


def test_tls_to_a_server_without_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            peer, _ = listener.accept()
            peer.recv(1)
            peer.sendall(b"this is no handshake")
            peer.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(TlsError, match=r"that the server has TLS on") as caught:
            open_stream(
                f"127.0.0.1:{listener.getsockname()[1]}", within(5), Tls(verify=False).context()
            )
        thread.join(5)
    assert "_ssl.c" not in str(caught.value)


def test_tls_to_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ConnectError, match="no TLS handshake"):
            open_stream(address, within(0.3), Tls(verify=False).context())


def test_files_that_cannot_be_loaded_are_named(tmp_path: Path) -> None:
    missing, nonsense = tmp_path / "missing.pem", tmp_path / "nonsense.pem"
    nonsense.write_text("not a certificate")
    for tls in (Tls(ca=str(missing)), Tls(ca=str(nonsense)), Tls(cert=str(nonsense))):
        with pytest.raises(UsageError, match=tls.ca or tls.cert):
            tls.context()


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_a_password(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
    )

    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    trustme.CA().issue_cert("me").cert_chain_pems[0].write_to_path(str(certificate))
    key.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
        )
    )
    with pytest.raises(UsageError, match=r"key\.pem"):
        Tls(cert=str(certificate), key=str(key)).context()
