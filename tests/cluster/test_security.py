"""Accounts (ACL 2.0) and TLS with client certificates, on one cluster that asks for both."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from rocketmq_spark.client import Client, Message, SendError, Tls
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import (
    AuthenticationError,
    NetworkError,
    NoPermissionError,
    RocketMQError,
    TlsError,
    UsageError,
)
from rocketmq_spark.local_cluster import LocalCluster
from tests.waiting import until

from .witness import Witness, differences, rows

SECRET = "s3cret-of-the-super-user"
READER, READER_SECRET = "reader", "s3cret-of-the-reader"


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalCluster]:
    with LocalCluster(acl=("admin", SECRET), tls="require-client") as running:
        yield running


@pytest.fixture(scope="module")
def tls(secured: LocalCluster) -> Tls:
    return Tls(str(secured.tls_ca), str(secured.tls_cert), str(secured.tls_key), check_host=True)


@pytest.fixture(scope="module")
def connect(secured: LocalCluster, tls: Tls) -> Callable[..., Client]:
    def connect(access_key: str = "admin", secret_key: str = SECRET, **more: Any) -> Client:
        more = {"tls": tls, "timeout": 15, **more}
        return Client(secured.name_server, access_key=access_key, secret_key=secret_key, **more)

    return connect


@pytest.fixture(scope="module")
def admin(connect: Callable[..., Client]) -> Iterator[Client]:
    with connect() as client:
        yield client


@pytest.fixture(scope="module")
def queue(admin: Client) -> MessageQueue:
    topic = f"t_{uuid.uuid4().hex[:12]}"
    admin.create_topic(topic, 1)
    return admin.queues(topic)[0]


def test_all_there_is_works_over_tls_with_an_account(
    secured: LocalCluster, admin: Client, queue: MessageQueue
) -> None:
    witness = Witness(
        secured, jvm_args=["-Dwitness.accessKey=admin", f"-Dwitness.secretKey={SECRET}"]
    )
    try:
        high = admin.offsets(queue)[1]
        witness.send(queue.topic, Message("from java", tags="T"), queue)
        admin.send(queue.topic, [Message(b"x" * 3_000_000, queue=queue), Message("", queue=queue)])
        until(lambda: admin.offsets(queue)[1] == high + 3)
        found = rows(admin, queue, high)
        assert [row["body"] for row in found] == [b"from java", b"x" * 3_000_000, b""]
        assert not differences(found, witness.read(queue, high, high + 3))
        assert rows(admin, queue, high, sub_expression="T") == found[:1]
        assert rows(admin, queue, high, sql_expression="TAGS = 'T'") == found[:1]
        assert admin.offset_at(queue, found[0]["storeTimestamp"]) == high
        admin.commit("billing", queue, 2)
        assert admin.committed("billing", queue) == 2
        assert queue.topic in admin.topics()
        assert admin.consumers("billing") == []
    finally:
        witness.close()


def test_an_account_with_few_rights(
    secured: LocalCluster, connect: Callable[..., Client], queue: MessageQueue, admin: Client
) -> None:
    """A reader needs SUB and GET on the topic and SUB on the group, and no more."""
    address = secured.brokers["broker-a"].address
    (sent,) = admin.send(queue.topic, [Message("to be read", queue=queue)])
    end = sent.queue_offset + 1
    until(lambda: admin.offsets(queue)[1] == end)
    secured.mqadmin("createUser", "-b", address, "-u", READER, "-p", READER_SECRET)
    with connect(READER, READER_SECRET) as reader:
        with pytest.raises(NoPermissionError, match=queue.topic) as caught:
            reader.offsets(queue)
        assert not isinstance(caught.value, AuthenticationError)
        group = "rocketmq_spark_reader"
        resources = f"Topic:{queue.topic},Group:{group}"
        secured.mqadmin(
            *("createAcl", "-b", address, "-s", f"User:{READER}", "-r", resources),
            *("-a", "Sub,Get", "-d", "Allow"),
        )
        assert until(lambda: _or_none(lambda: reader.offsets(queue))) == (0, end)
        assert rows(reader, queue, end - 1)[0]["body"] == b"to be read"
        with pytest.raises(SendError, match="1 of 1 messages were not stored") as refused:
            reader.send(queue.topic, [Message("not allowed", queue=queue)])
        assert isinstance(refused.value.results[0].error, NoPermissionError)
        with pytest.raises(NoPermissionError):
            reader.create_topic("t_not_allowed", 1)
        with pytest.raises(NoPermissionError):
            reader.commit("another_group", queue, 1)
    assert admin.offsets(queue)[1] == end


def test_a_security_token_and_a_namespace_of_5_are_signed(
    connect: Callable[..., Client], queue: MessageQueue
) -> None:
    """No broker acts on these fields, but the signature that it checks covers them."""
    with connect(security_token="token-of-a-day", namespace_v2="shop") as client:
        check_send_read_commit(client, queue)


def check_send_read_commit(client: Client, queue: MessageQueue) -> None:
    (sent,) = client.send(queue.topic, [Message("signed", queue=queue)])
    until(lambda: client.offsets(queue)[1] > sent.queue_offset)
    (row,) = rows(client, queue, sent.queue_offset)
    assert (row["topic"], row["body"]) == (queue.topic, b"signed")
    client.commit("signing", queue, sent.queue_offset)
    assert client.committed("signing", queue) == sent.queue_offset


def test_the_sink_over_tls_with_an_account(
    secured: LocalCluster, admin: Client, queue: MessageQueue
) -> None:
    pyspark = pytest.importorskip("pyspark")
    from rocketmq_spark.spark.source import RocketMQDataSource

    options = {
        "nameServer": secured.name_server,
        "topic": queue.topic,
        "accessKey": "admin",
        "secretKey": SECRET,
        "tls.ca": str(secured.tls_ca),
        "tls.cert": str(secured.tls_cert),
        "tls.key": str(secured.tls_key),
        "sendTimeout": "10s",
    }
    schema = pyspark.sql.types.StructType().add("body", "string")
    batch = pa.RecordBatch.from_pydict({"body": ["a", "b"]})
    high = admin.offsets(queue)[1]
    RocketMQDataSource(options).writer(schema, False).write(iter([batch]))
    until(lambda: admin.offsets(queue)[1] == high + 2)
    wrong = RocketMQDataSource({**options, "secretKey": "not-the-secret"}).writer(schema, False)
    with pytest.raises(SendError, match="Check the access key") as caught:
        wrong.write(iter([batch]))
    assert "not-the-secret" not in str(caught.value) + repr(wrong)
    assert SECRET not in repr(RocketMQDataSource(options).writer(schema, False))


def _or_none(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except NoPermissionError:
        return None


@pytest.mark.parametrize(
    "account",
    [("admin", "wr0ng-secret"), ("nobody", "wr0ng-secret"), ("", "")],
    ids=["wrong secret", "unknown user", "no account"],
)
def test_wrong_accounts_are_refused_and_secrets_stay_secret(
    secured: LocalCluster,
    connect: Callable[..., Client],
    queue: MessageQueue,
    account: tuple[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    started = time.monotonic()
    # A read that tried again would do so for three times the timeout.
    with connect(*account, timeout=60) as client:
        for ask in (
            lambda: client.offsets(queue),
            lambda: rows(client, queue, 0, 1),
            lambda: client.create_topic("t_refused", 1),
            lambda: client.send(queue.topic, [Message("x", queue=queue)]),
        ):
            with pytest.raises(RocketMQError) as caught:
                ask()
            error: Any = caught.value
            if isinstance(error, SendError):
                error = error.results[0].error
            assert isinstance(error, AuthenticationError), error
            assert secured.brokers["broker-a"].address in str(error)
            said = f"{caught.value}{error!r}{error.__dict__}{caplog.text}{client!r}{vars(client)}"
            assert SECRET not in said
            assert "wr0ng-secret" not in said
    assert time.monotonic() - started < 120


def test_half_an_account_is_a_mistake(secured: LocalCluster) -> None:
    with pytest.raises(UsageError, match="secret_key is empty"):
        Client(secured.name_server, access_key="admin")
    with pytest.raises(UsageError, match="access_key is empty") as caught:
        Client(secured.name_server, secret_key=SECRET)
    assert SECRET not in str(caught.value)


# --- TLS ----------------------------------------------------------------------------------


def test_a_certificate_that_nobody_vouches_for(
    secured: LocalCluster, connect: Callable[..., Client]
) -> None:
    with connect(tls=True) as client, pytest.raises(TlsError, match="not trusted") as caught:
        client.topics()
    assert secured.name_server in str(caught.value)


def test_no_client_certificate(secured: LocalCluster, connect: Callable[..., Client]) -> None:
    """With TLS 1.3 the server's refusal comes after the handshake."""
    with (
        connect(tls=str(secured.tls_ca)) as client,
        pytest.raises(NetworkError, match=secured.name_server),
    ):
        client.topics()


def test_no_tls_to_a_server_that_insists(
    secured: LocalCluster, connect: Callable[..., Client]
) -> None:
    with (
        connect(tls=False, timeout=5) as client,
        pytest.raises(NetworkError, match=secured.name_server),
    ):
        client.topics()


def test_tls_to_a_server_without(cluster: LocalCluster, secured: LocalCluster) -> None:
    started = time.monotonic()
    with (
        Client(cluster.name_server, tls=str(secured.tls_ca), timeout=5) as client,
        pytest.raises(NetworkError, match=cluster.name_server) as caught,
    ):
        client.topics()
    assert "TLS" in str(caught.value)
    assert time.monotonic() - started < 120


def test_anybody_is_trusted_only_when_told(
    secured: LocalCluster, connect: Callable[..., Client], queue: MessageQueue
) -> None:
    cert, key = str(secured.tls_cert), str(secured.tls_key)
    with connect(tls=Tls(cert=cert, key=key, verify=False)) as client:
        assert queue.topic in client.topics()


def test_files_that_are_not_there(secured: LocalCluster) -> None:
    with pytest.raises(UsageError, match=r"absent\.pem"):
        Client(secured.name_server, tls="absent.pem")
