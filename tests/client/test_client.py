"""`Client` against a scripted cluster on the loopback: its arguments, names, secrets and words."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from rocketmq_spark.client import (
    Client,
    Message,
    PullSettings,
    SendError,
    SendSettings,
    Tls,
)
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import (
    AuthenticationError,
    BusyError,
    ConnectError,
    ConnectionLostError,
    FrameError,
    FrameTooLargeError,
    NoPermissionError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UsageError,
)
from rocketmq_spark.wire.acl import Credentials
from rocketmq_spark.wire.frame import Frame
from rocketmq_spark.wire.message import StoredMessage, encode_message
from tests.client.scripted import CUT, LoopbackServer, Reply, answer, name_server, route_body
from tests.client.test_transport import black_hole

SECRETS = {"access_key": "ak", "secret_key": "hush-secret", "security_token": "hush-token"}


class Cluster:
    """A name server and a broker with 100 messages in every queue, stored a second apart."""

    def __init__(self) -> None:
        self.version = 493
        self.kept = list(range(100))  # a compacted topic has fewer
        self.refusal: Frame | None = None
        self.broker = LoopbackServer(self.answer)
        self.routes: dict[str, bytes] = {}
        brokers = {"b-a": {0: self.broker.address}}
        self.name_server = LoopbackServer(name_server(self.routes, brokers))
        for topic in ("T", "shop%T", "other%T", "%RETRY%shop%g", "%DLQ%g", "TBW102", "b-a"):
            self.routes[topic] = route_body(brokers, queues=2)

    def answer(self, request: Frame) -> Iterable[Reply]:
        if self.refusal is not None:
            yield self.refusal
        elif request.code == 11:
            yield self.pull(int(request.ext["queueOffset"]), int(request.ext["maxMsgNums"]))
        elif request.code == 29:
            # What brokers before 5.1.1 answer is only near; later ones may be below the first.
            yield answer(offset=3, version=self.version)
        elif request.code in (30, 31):
            yield answer(offset={30: 100, 31: 10}[request.code])
        elif request.code == 351:
            yield answer(body=b'{"attributes":{"cleanup.policy":"COMPACTION"}}')
        elif request.code in (310, 320):
            yield answer(msgId="id", queueId=request.ext["e"], queueOffset=7)
        else:
            yield answer()

    def pull(self, offset: int, count: int) -> Frame:
        found = [n for n in self.kept if n >= offset][:count]
        bounds = {"minOffset": 10, "maxOffset": 100}
        if not found:
            return answer(20, "NO_MATCHED_MESSAGE", nextBeginOffset=100, **bounds)
        body = b"".join(
            encode_message(StoredMessage("T", 0, n, store_timestamp=1000 * n, body=b"m%d" % n))
            for n in found
        )
        return answer(0, "FOUND", body, nextBeginOffset=found[-1] + 1, **bounds)

    def close(self) -> None:
        self.name_server.close()
        self.broker.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


def connect(cluster: Cluster, **arguments: Any) -> Client:
    return Client(cluster.name_server.address, **arguments)


# --- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"access_key": "ak"}, "secret_key is empty"),
        ({"secret_key": "sk"}, "access_key is empty"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"name_server": ""}, "no name server address"),
        ({"name_server": "host"}, "host:port"),
        ({"tls": "/no/such/file.pem"}, r"/no/such/file\.pem"),
        ({"tls": Path("/no/such/path.pem")}, r"/no/such/path\.pem"),
        ({"tls": Tls(cert="/no/such/cert.pem")}, r"/no/such/cert\.pem"),
        ({"tls": Tls(ca=Path("/no/such/ca.pem"))}, r"/no/such/ca\.pem"),
        ({"tls": None}, "tls must be True, False, a CA file or a Tls, not NoneType"),
        ({"tls": 1}, "not int"),
        ({"tls": b"ca.pem"}, "not bytes"),
        ({"tls": ssl.create_default_context()}, "not SSLContext"),
        ({"access_key": "ak", "secret_key": "sk \udcff"}, "secret_key is not text in UTF-8"),
        ({"access_key": "ak\udcff", "secret_key": "sk"}, "access_key is not text in UTF-8"),
        ({"pull": PullSettings(group="")}, "name is empty"),
    ],
)
def test_arguments_that_cannot_be_right(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        Client(**{"name_server": "h:1", **arguments})
    assert "sk" not in str(caught.value).split()


def test_nothing_is_connected_before_it_is_needed() -> None:
    with Client("no-such-host.invalid:1") as client:
        assert repr(client) == "<Client no-such-host.invalid:1>"


def test_reading_what_is_no_range(cluster: Cluster) -> None:
    queue = MessageQueue("T", "b-a", 0)
    with connect(cluster) as client:
        for start, end in ((-1, 5), (5, 4)):
            with pytest.raises(UsageError, match=rf"cannot read \[{start}, {end}\) of T/b-a/0"):
                client.read(queue, start, end)
        with pytest.raises(UsageError, match="no column 'colour'"):
            client.read(queue, 0, 5, ["colour"])
        with pytest.raises(UsageError, match="not both"):
            client.read(queue, 0, 5, sub_expression="A", sql_expression="a > 1")
        with pytest.raises(UsageError, match="at least one queue"):
            client.create_topic("T", 0)
        with pytest.raises(UsageError, match="name is empty"):
            client.queues("")
    assert cluster.broker.requests == []


# --- reading and writing ----------------------------------------------------------------------


def test_read(cluster: Cluster) -> None:
    with connect(cluster) as client:
        queue = client.queues("T")[1]
        low, high = client.offsets(queue)
        assert (low, high) == (10, 100)
        batches = list(client.read(queue, low, high, ["queueOffset", "body", "queueId"]))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in rows] == list(range(10, 100))
    assert rows[0] == {"queueOffset": 10, "body": b"m10", "queueId": 1}


@pytest.mark.parametrize(
    ("arguments", "expression", "kind"),
    [
        ({}, "*", "TAG"),
        ({"sub_expression": "*"}, "*", "TAG"),
        ({"sub_expression": " "}, "*", "TAG"),
        ({"sub_expression": "A||B  || C"}, "A || B || C", "TAG"),
        ({"sql_expression": "a > 1"}, "a > 1", "SQL92"),
    ],
)
def test_filters_on_the_wire(
    cluster: Cluster, arguments: dict[str, str], expression: str, kind: str
) -> None:
    with connect(cluster) as client:
        list(client.read(MessageQueue("T", "b-a", 0), 10, 12, ["queueOffset"], **arguments))
    pull = next(request for request in cluster.broker.requests if request.code == 11)
    assert (pull.ext["subscription"], pull.ext["expressionType"]) == (expression, kind)
    assert (int(pull.ext["subVersion"]) > 0) == (kind == "SQL92")


def test_send(cluster: Cluster) -> None:
    with connect(cluster) as client:
        results = client.send("T", [Message("a"), Message("b", sharding_key="k")])
        assert client.writable_queues("T") == client.queues("T")
    assert [(result.ok, result.queue.topic) for result in results] == [(True, "T")] * 2


@pytest.mark.parametrize("version", [493, 435, 409])
@pytest.mark.parametrize(
    ("millis", "offset"), [(0, 10), (50_000, 50), (49_001, 50), (99_000, 99), (99_001, 100)]
)
def test_offset_at(cluster: Cluster, version: int, millis: int, offset: int) -> None:
    cluster.version = version
    with connect(cluster) as client:
        found = client.offset_at(MessageQueue("T", "b-a", 0), millis)
    # A new broker is believed (it says 3, below the first); an old one is only near, so we search.
    assert found == (10 if version >= 435 else offset)


@pytest.mark.parametrize("version", [434, 413])
@pytest.mark.parametrize(
    ("millis", "offset"),
    [(0, 12), (12_000, 12), (12_001, 40), (40_000, 40), (40_001, 41), (41_001, 77), (77_001, 100)],
)
def test_offset_at_steps_over_what_was_compacted(
    cluster: Cluster, version: int, millis: int, offset: int
) -> None:
    cluster.version, cluster.kept = version, [12, 40, 41, 77]
    with connect(cluster) as client:
        assert client.offset_at(MessageQueue("T", "b-a", 0), millis) == offset


@pytest.mark.parametrize("kind", [str, Path])
def test_a_ca_file_by_its_path(cluster: Cluster, tmp_path: Path, kind: Any) -> None:
    ca, file = trustme.CA(), tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("broker.example").configure_cert(context)
    with (
        LoopbackServer(name_server(cluster.routes), context) as server,
        Client(server.address, tls=kind(file)) as client,
    ):
        assert repr(client).endswith("over TLS>")
        assert len(client.queues("T")) == 2


def test_topics(cluster: Cluster) -> None:
    with connect(cluster) as client:
        assert client.topics() == ["T", "other%T", "shop%T"]
        assert client.topics(system=True) == sorted(cluster.routes)
        assert [broker.broker_name for broker in client.brokers()] == ["b-a"]


# --- namespaces -------------------------------------------------------------------------------


def test_a_namespace_is_wrapped_on_and_off(cluster: Cluster) -> None:
    with connect(cluster, namespace="shop") as client:
        assert client.topics() == ["T"]
        assert client.topics(system=True) == ["%RETRY%g", "T", "TBW102"]
        queue = client.queues("T")[0]
        assert queue == MessageQueue("T", "b-a", 0)
        client.offsets(queue)
        [batch] = client.read(queue, 10, 12, ["topic"])
        assert batch.column(0).to_pylist() == ["T", "T"]
        results = client.send("T", [Message("x", queue=queue), Message("y")])
        assert {result.queue.topic for result in results} == {"T"}
        client.commit("g", queue, 5)
    topics = {r.ext.get("topic") or r.ext.get("b") for r in cluster.broker.requests}
    assert topics == {"shop%T"}
    groups = {
        r.ext[name]
        for r in cluster.broker.requests
        for name in ("consumerGroup", "a")
        if name in r.ext
    }
    assert groups == {"shop%rocketmq_spark_reader", "shop%rocketmq_spark_writer", "shop%g"}


def test_a_namespace_is_off_also_in_a_failure(cluster: Cluster) -> None:
    cluster.refusal = answer(13, "illegal")
    with connect(cluster, namespace="shop") as client, pytest.raises(SendError) as caught:
        client.send("T", [Message("x")])
    assert [result.queue.topic for result in caught.value.results] == ["T"]


def test_a_namespace_of_version_2_travels_with_every_request(cluster: Cluster) -> None:
    with connect(cluster, namespace_v2="shop", **SECRETS) as client:
        client.offsets(client.queues("T")[0])
    account = Credentials("ak", "hush-secret", "hush-token")
    for request in cluster.name_server.requests + cluster.broker.requests:
        assert (request.ext["ns"], request.ext["nsd"]) == ("shop", "true")
        assert account.sign(request.ext, request.body) == request.ext


# --- trouble ----------------------------------------------------------------------------------

GARBAGE = b"\0\0\0\x05\x07\0\0\0x"
OVERSIZED = b"HTTP/1.1 400 Bad Request\r\n"


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (None, RequestTimeoutError, "{} did not answer in time"),
        (CUT, ConnectionLostError, "{} closed the connection"),
        (GARBAGE, FrameError, "{}: unknown header kind 7; only 0 (JSON) and 1 (binary) exist"),
        (OVERSIZED, FrameTooLargeError, "{}: a frame of 1213486160 bytes is announced"),
        (answer(17, "no route"), TopicNotFoundError, "{} answered code 17: no route"),
        (answer(16, "signature"), AuthenticationError, "{} answered code 16: signature"),
    ],
    ids=["silence", "closed", "garbage", "oversized", "unknown topic", "wrong credentials"],
)
def test_trouble_says_what_where_and_what_to_do(
    cluster: Cluster, reply: Reply | None, error: type[RocketMQError], says: str
) -> None:
    queue = MessageQueue("T", "b-a", 0)
    with connect(cluster, timeout=1, **SECRETS) as client:
        client.queues("T")
        for server, ask, what in (
            (cluster.broker, lambda: client.offsets(queue), f"cannot ask the offsets of {queue}"),
            (cluster.name_server, lambda: client.queues("U"), "cannot find topic U"),
        ):
            server.handler = lambda _: [] if reply is None else [reply]
            with pytest.raises(error) as caught:
                ask()
            said = str(caught.value)
            assert said.startswith(f"{what}: {says.format(server.address)}")
            assert error.advice and said.endswith(f". {error.advice}")
            assert "hush" not in said


def test_no_connection_says_what_where_and_what_to_do() -> None:
    with LoopbackServer() as gone:
        refusing = gone.address
    with black_hole() as (host, port):
        for address, says in (
            (refusing, "Connection refused"),
            (f"{host}:{port}", "within the timeout: the host does not answer"),
        ):
            with Client(address, timeout=0.3) as client, pytest.raises(ConnectError) as caught:
                client.queues("T")
            said = str(caught.value)
            assert said.startswith(f"cannot find topic T: no connection to {address}")
            assert f"{says}. {ConnectError.advice}" in said


def test_wrong_credentials_say_so(cluster: Cluster) -> None:
    cluster.refusal = answer(16, "check signature failed")
    with connect(cluster, **SECRETS) as client:
        queue = client.queues("T")[0]
        with pytest.raises(AuthenticationError, match="Check the access key and the secret key"):
            client.offsets(queue)
        with pytest.raises(AuthenticationError):
            list(client.read(queue, 0, 5))
        with pytest.raises(SendError, match="Check the access key") as caught:
            client.send("T", [Message("x")])
        assert isinstance(caught.value.results[0].error, NoPermissionError)


def test_an_unknown_topic_says_so(cluster: Cluster) -> None:
    with connect(cluster) as client, pytest.raises(TopicNotFoundError, match="topic nowhere"):
        client.queues("nowhere")


def test_a_refused_name_server_says_so() -> None:
    with LoopbackServer() as gone:
        address = gone.address
    with Client(address, timeout=2) as client, pytest.raises(ConnectError, match=address):
        client.topics()


def test_reading_gives_up_after_three_timeouts(cluster: Cluster) -> None:
    cluster.refusal = answer(2, "busy")
    # A machine that stalls for half a second makes it a time-out, which is giving up, too.
    given_up = (BusyError, RequestTimeoutError)
    with connect(cluster, timeout=0.5) as client, pytest.raises(given_up):
        list(client.read(MessageQueue("T", "b-a", 0), 0, 5))


def test_it_goes_on_after_all_connections_were_cut(cluster: Cluster) -> None:
    with connect(cluster) as client:
        queue = client.queues("T")[0]
        before = client.offsets(queue)
        cluster.broker.hang_up()
        assert client.offsets(queue) == before


def test_closing_closes_its_connections(cluster: Cluster) -> None:
    with connect(cluster) as client:
        client.topics()
    client.close()  # and once more does no harm


# --- secrets ----------------------------------------------------------------------------------


def test_no_secret_anywhere(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    texts: list[str] = []
    settings: dict[str, Any] = {
        "pull": PullSettings(patience=0.2),
        "sending": SendSettings(retries=0),
    }
    settings["timeout"] = 0.3
    with caplog.at_level(logging.DEBUG), connect(cluster, **SECRETS, **settings) as client:
        texts += [repr(client), str(client), repr(Tls(key="k.pem"))]
        queue = client.queues("T")[0]
        for refusal in (answer(2, "busy"), answer(16, "check signature failed"), answer(1, "x")):
            cluster.refusal = refusal
            for action in (
                lambda: client.offsets(queue),
                lambda: list(client.read(queue, 0, 5)),
                lambda: client.send("T", [Message("x")]),
                lambda: client.committed("g", queue),
            ):
                with pytest.raises(RocketMQError) as caught:
                    action()
                texts += [str(caught.value), repr(caught.value), repr(vars(caught.value))]
        texts += [repr(client), caplog.text]
    assert repr(client) == f"<Client {client.name_server} as ak>"
    assert "hush" not in " ".join(texts)
    assert all("hush-secret" not in repr(vars(client)[name]) for name in vars(client))
