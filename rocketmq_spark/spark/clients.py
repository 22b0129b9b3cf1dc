"""Clients for a query's options, one for each process and kept between its tasks and batches.

Spark reuses its Python workers, and modules of an installed package live as long as they do, so a
task finds the connections of the one before it. Secrets are looked up here, on the machine that
connects.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from rocketmq_spark.client import Client, PullSettings, SendSettings, Tls
from rocketmq_spark.core.options import SourceOptions
from rocketmq_spark.core.sink_options import NO_COMPRESSION, SinkOptions
from rocketmq_spark.errors import UsageError

_lock = threading.Lock()
_clients: dict[tuple[object, ...], Client] = {}


def _after_fork() -> None:
    """At the fork another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def client_for(options: SourceOptions) -> Client:
    """To read with."""
    pull = PullSettings(
        group=options.consumer_group,
        in_flight=options.pull_in_flight,
        largest_pull=options.pull_batch,
        batch_bytes=options.batch_bytes,
        window_bytes=max(3 * options.batch_bytes, 24 << 20),
        patience=options.timeout * max(1, options.retries),
    )
    return _kept(options, options.timeout, pull, None)


def sending_client(options: SinkOptions) -> Client:
    """To write with."""
    sending = SendSettings(
        group=options.producer_group,
        retries=options.retries,
        in_flight=options.in_flight,
        compress_above=options.compress_above,
        compression="" if options.compression == NO_COMPRESSION else options.compression,
        max_message=options.max_message_size,
        batch_bytes=options.batch,
        fault_latency=options.fault_latency,
        unsafe=options.when_not_durable,
    )
    return _kept(options, options.send_timeout, None, sending)


def _kept(
    options: SourceOptions | SinkOptions,
    timeout: float,
    pull: PullSettings | None,
    sending: SendSettings | None,
) -> Client:
    account = (
        look_up("accessKey", options.access_key),
        look_up("secretKey", options.secret_key),
        look_up("securityToken", options.security_token),
    )
    tls = _tls(options)
    names = (options.name_server, options.namespace or "", options.namespace_v2 or "")
    key = (names, account, tls, timeout, pull, sending, os.getpid())  # a fork starts over
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = Client(
                names[0],
                access_key=account[0],
                secret_key=account[1],
                security_token=account[2],
                tls=tls or False,
                namespace=names[1],
                namespace_v2=names[2],
                timeout=timeout,
                pull=pull,
                sending=sending,
            )
        return client


def _tls(options: SourceOptions | SinkOptions) -> Tls | None:
    if not (options.tls or options.tls_ca or options.tls_cert):
        return None
    return Tls(
        ca=options.tls_ca or "",
        cert=options.tls_cert or "",
        key=options.tls_key or "",
        verify=options.tls_verify,
    )


def look_up(name: str, value: str | None) -> str:
    """A secret as written, or from where it points: `env:NAME` or `file:PATH`."""
    if value is None:
        return ""
    kind, colon, place = value.partition(":")
    if colon and kind == "env":
        found = os.environ.get(place, "")
        if not found:
            raise UsageError(
                f"option {name} points to the environment variable {place}, which is not set here"
            )
        return found
    if colon and kind == "file":
        try:
            return Path(place).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(
                f"option {name} points to the file {place}, which cannot be read here: "
                f"{error.strerror}"
            ) from error
    return value
