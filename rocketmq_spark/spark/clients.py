"""Clients for a query's options, one for each process and kept between its tasks and batches.

Spark reuses its Python workers, and modules of an installed package live as long as they do, so a
task finds the connections of the one before it. Secrets are looked up here, on the machine that
connects.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from rocketmq_spark.client import Client, PullSettings, Tls
from rocketmq_spark.core.options import SourceOptions
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
    key = (
        options.name_server,
        options.namespace,
        options.namespace_v2,
        _look_up("accessKey", options.access_key),
        _look_up("secretKey", options.secret_key),
        _look_up("securityToken", options.security_token),
        _tls(options),
        options.timeout,
        options.retries,
        options.consumer_group,
        options.pull_batch,
        options.pull_in_flight,
        options.batch_bytes,
        os.getpid(),  # a fork starts over
    )
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = _make(options, key)
        return client


def _make(options: SourceOptions, key: tuple[object, ...]) -> Client:
    _, _, _, access_key, secret_key, token, tls, *_ = key
    return Client(
        options.name_server,
        access_key=str(access_key),
        secret_key=str(secret_key),
        security_token=str(token),
        tls=tls if isinstance(tls, Tls) else False,
        namespace=options.namespace or "",
        namespace_v2=options.namespace_v2 or "",
        timeout=options.timeout,
        pull=PullSettings(
            group=options.consumer_group,
            in_flight=options.pull_in_flight,
            largest_pull=options.pull_batch,
            batch_bytes=options.batch_bytes,
            window_bytes=max(3 * options.batch_bytes, 24 << 20),
            patience=options.timeout * max(1, options.retries),
        ),
    )


def _tls(options: SourceOptions) -> Tls | None:
    if not (options.tls or options.tls_ca or options.tls_cert):
        return None
    return Tls(
        ca=options.tls_ca or "",
        cert=options.tls_cert or "",
        key=options.tls_key or "",
        verify=options.tls_verify,
    )


def _look_up(name: str, value: str | None) -> str:
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
