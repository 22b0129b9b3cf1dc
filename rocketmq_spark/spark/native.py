"""The sink through rocketmq-client-python, RocketMQ's C++ client: `client=native`.

The library keeps threads of its own, so it is loaded in the worker, after the fork, has one
producer there, in a group of its own, used by one thread. It writes logs into the home folder, and
aborts the process where it cannot. docs/sink.md lists what it lacks.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rocketmq_spark.client import names
from rocketmq_spark.client.outgoing import ROW_KEY
from rocketmq_spark.client.write import Written
from rocketmq_spark.core.sink_options import ACCEPT, RETRY, SinkOptions
from rocketmq_spark.errors import SendError, UsageError
from rocketmq_spark.spark.clients import look_up

_COLUMNS = {"body", "topic", "keys", "tags", "properties", "shardingKey", "delayLevel"}


def check(options: SinkOptions, columns: list[str]) -> None:
    """Refuse what the library cannot do."""
    lacking = [name for name in columns if name not in _COLUMNS]
    if lacking:
        raise UsageError(f"client=native cannot write the column {lacking[0]}: use client=python")
    for name, value in (
        ("tls", options.tls or options.tls_ca or options.tls_cert),
        ("securityToken", options.security_token),
        ("namespaceV2", options.namespace_v2),
        ("faultLatency", options.fault_latency),
    ):
        if value:
            raise UsageError(f"client=native does not know the option {name}: use client=python")


def write_natively(
    batches: Iterator[Any], options: SinkOptions, row_key: str, place: Callable[[int], str]
) -> Written:
    """Every row by itself, acknowledged before the next."""
    producer = _Producer(options)
    row = size = 0
    try:
        for batch in batches:
            for values in batch.to_pylist():
                key = f"{row_key}{row}" if row_key else ""
                try:
                    size += producer.send(values, key)
                except (UsageError, SendError) as error:
                    raise type(error)(f"{place(row)} could not be stored: {error}") from error
                row += 1
    finally:
        producer.close()
    return Written(row, size, row, producer.retries, 0, producer.unsafe)


class _Producer:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._library = _load()
        self.retries = self.unsafe = 0
        group = names.wrap(
            options.namespace or "", f"{options.producer_group}_{uuid.uuid4().hex[:12]}"
        )
        self._producer = self._library.Producer(
            group,
            timeout=max(1, round(options.send_timeout * 1000)),
            max_message_size=options.max_message_size,
        )
        self._producer.set_namesrv_addr(options.name_server)
        if options.access_key:
            self._producer.set_session_credentials(
                look_up("accessKey", options.access_key),
                look_up("secretKey", options.secret_key),
                "",
            )
        try:
            self._producer.start()
        except Exception as error:
            raise SendError(f"rocketmq-client-python cannot start: {error}") from error
        self._open = True
        atexit.register(self.close)

    def send(self, row: Mapping[str, Any], row_key: str) -> int:
        """Send one row; its size."""
        body = row["body"]
        if body is None:
            raise UsageError("its body is null")
        body = body.encode() if isinstance(body, str) else bytes(body)
        if len(body) > self._options.max_message_size:
            raise UsageError(f"its body of {len(body)} bytes is more than maxMessageSize")
        topic = row.get("topic") or self._options.topic
        if not topic:
            raise UsageError("it has no topic, and neither has the option topic")
        message = self._library.Message(_text("topic", names.wrap(self._namespace, topic)))
        try:
            self._fill(message, row, body, row_key)
            self._deliver(message, row.get("shardingKey"))
        finally:
            message.destroy()
        return len(body)

    @property
    def _namespace(self) -> str:
        return self._options.namespace or ""

    def _fill(self, message: Any, row: Mapping[str, Any], body: bytes, row_key: str) -> None:
        from rocketmq.exceptions import ffi_check
        from rocketmq.ffi import dll

        # The wrapper's own set_body ends at the first NUL.
        ffi_check(dll.SetByteMessageBody(message, body, len(body)))
        for name, value in row.get("properties") or ():
            if value:
                message.set_property(_text("a property name", name), _text(name, value))
        if row.get("keys"):
            message.set_keys(_text("keys", row["keys"]))
        if row.get("tags"):
            message.set_tags(_text("tags", row["tags"]))
        if row.get("delayLevel"):
            message.set_delay_time_level(row["delayLevel"])
        if row_key:
            message.set_property(ROW_KEY, row_key)

    def _deliver(self, message: Any, sharding_key: str | None) -> None:
        for attempt in range(self._options.retries + 1):
            self.retries += attempt > 0
            try:
                if sharding_key is not None:
                    key = _text("shardingKey", sharding_key)
                    result = self._producer.send_orderly_with_sharding_key(message, key)
                else:
                    result = self._producer.send_sync(message)
            except Exception as error:
                failure = SendError(f"rocketmq-client-python says: {error}")
                continue
            if result.status == 0:
                return
            self.unsafe += 1
            if self._options.when_not_durable == ACCEPT:
                return
            failure = SendError(f"the broker has stored it with {result.status.name} only")
            if self._options.when_not_durable != RETRY:
                break
        raise failure

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        atexit.unregister(self.close)
        # Not destroyed: in the only release that has the library, that call ends the process.
        self._producer.shutdown()


def _load() -> Any:
    home = Path(os.environ.get("HOME", ""))
    if not home.is_dir() or not os.access(home, os.W_OK):
        os.environ["HOME"] = tempfile.mkdtemp(prefix="rocketmq-native-")
    try:
        import rocketmq.client
    except (ImportError, OSError) as error:
        raise UsageError(
            "client=native needs rocketmq-client-python with its library, which is not installed "
            f"here ({error}): pip install 'rocketmq-spark[native]', on Linux x86-64"
        ) from error
    return rocketmq.client


def _text(what: str, value: str) -> str:
    if "\x00" in value or "\x01" in value or "\x02" in value:
        raise UsageError(f"{what} holds U+0000, U+0001 or U+0002, which cannot be sent")
    return value
