"""The Java client as an outside witness: what it sends we must read, what we send it must read.

One JVM for many questions, for a start costs seconds. `rows` shows what our own client reads in
the same words, so that the two can be compared as they are.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa

from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.local_cluster import LocalCluster

SOURCE = Path(__file__).parents[1] / "java" / "Witness.java"

# Java's clients add these to what they hand on; no broker stores them.
_ADDED_ON_READ = {"MIN_OFFSET", "MAX_OFFSET"}

Row = dict[str, Any]


class WitnessError(Exception):
    """The Java client's own complaint."""


@dataclass(frozen=True)
class Sent:
    status: str
    broker_name: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str


class Witness:
    def __init__(
        self, cluster: LocalCluster, name_server: str = "", jvm_args: Sequence[str] = ()
    ) -> None:
        flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *jvm_args]
        if name_server:
            flags.append(f"-Drocketmq.namesrv.addr={name_server}")
        self._log = (cluster.folder / "witness.log").open("w", encoding="utf-8")
        self._process = cluster.popen_java(SOURCE, jvm_args=flags, stderr=self._log)

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def ask(self, *words: object) -> list[list[str]]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer: list[list[str]] = []
        for line in self._process.stdout:
            fields = line.rstrip("\n").split("\t")
            if fields == ["."]:
                return answer
            if fields[0] == "!":
                raise WitnessError(_text(fields[1]))
            answer.append(fields)
        raise WitnessError(f"the witness ended with code {self._process.wait()}")

    # --- sending --------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        message: Message,
        queue: MessageQueue | None = None,
        compression: str = "default",
    ) -> Sent:
        """`compression` is default (zlib from 4 KiB on), none, lz4, zstd or zlib."""
        where: tuple[object, object] = ("-", "-")
        if queue is not None:
            where = (queue.broker_name, queue.queue_id)
        elif message.sharding_key is not None:
            where = ("by-key", _packed(message.sharding_key))
        return _sent(self.ask("send", topic, *where, compression, _token(message)))

    def send_batch(self, queue: MessageQueue, messages: Sequence[Message]) -> Sent:
        where = (queue.topic, queue.broker_name, queue.queue_id)
        return _sent(self.ask("batch", *where, "default", *map(_token, messages)))

    # --- reading --------------------------------------------------------------------------

    def read(
        self, queue: MessageQueue, start: int, end: int, *, tags: str = "*", sql: str = ""
    ) -> list[Row]:
        kind = ("sql", _packed(sql)) if sql else ("tags", _packed(tags))
        where = (queue.topic, queue.broker_name, queue.queue_id)
        return [_row(fields) for fields in self.ask("pull", *where, start, end, *kind)]

    def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        ((low, high),) = self.ask("bounds", queue.topic, queue.broker_name, queue.queue_id)
        return int(low), int(high)

    def search(self, queue: MessageQueue, millis: int) -> int:
        where = (queue.topic, queue.broker_name, queue.queue_id)
        ((offset,),) = self.ask("search", *where, millis)
        return int(offset)

    def view(self, topic: str, message_id: str) -> Row:
        """A message by either of its ids."""
        ((*fields,),) = self.ask("view", topic, message_id)
        return _row(fields)

    def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(t, b, int(q)) for t, b, q in self.ask("queues", topic)]

    # --- consuming ------------------------------------------------------------------------

    @contextmanager
    def consumer(self, group: str, topic: str, *, refuse_first: bool = False) -> Iterator[str]:
        """A push consumer; gives its client id. With `refuse_first` each message comes twice."""
        ((client_id, _),) = self.ask("push", group, topic, "refuse" if refuse_first else "take")
        try:
            yield client_id
        finally:
            self.ask("stop", group)

    def consumed(self, group: str) -> list[Row]:
        return [_row(fields) for fields in self.ask("pushed", group)]

    @contextmanager
    def namespace(self, name: str) -> Iterator[None]:
        """Everything inside happens in RocketMQ 4's namespace of this name."""
        self.ask("namespace", name)
        try:
            yield
        finally:
            self.ask("namespace", "")


def rows(
    client: Client, queue: MessageQueue, start: int = 0, end: int | None = None, **how: Any
) -> list[Row]:
    """What our client reads, with times as milliseconds, in the form of `Witness.read`."""
    end = client.offsets(queue)[1] if end is None else end
    found: list[Row] = []
    for batch in client.read(queue, start, end, **how):
        for position, field in enumerate(batch.schema):
            if pa.types.is_timestamp(field.type):
                millis = batch.column(position).cast(pa.int64())
                batch = batch.set_column(position, field.name, millis)
        for row in batch.to_pylist():
            for name in ("bornTimestamp", "storeTimestamp"):
                if name in row:
                    assert row[name] % 1000 == 0
                    row[name] //= 1000
            if "properties" in row:
                row["properties"] = dict(row["properties"])
            row.pop("consumerId", None)
            found.append(row)
    return found


def differences(ours: Sequence[Row], theirs: Sequence[Row]) -> list[str]:
    """Where the two disagree, in words short enough to read; empty when nowhere."""
    found = []
    if len(ours) != len(theirs):
        found.append(f"{len(ours)} rows here, {len(theirs)} there")
    for number, (here, there) in enumerate(zip(ours, theirs, strict=False)):
        found += [
            f"row {number} {name}: {str(here.get(name))[:200]} here, {str(there.get(name))[:200]}"
            for name in there
            if here.get(name) != there[name]
        ]
    return found


def _sent(answer: list[list[str]]) -> Sent:
    ((status, broker_name, queue_id, offset, msg_id, offset_msg_id),) = answer
    return Sent(status, broker_name, int(queue_id), int(offset), msg_id, offset_msg_id)


def _token(message: Message) -> str:
    fields = [
        _packed(message.payload),
        _packed(message.tags) if message.tags else "-",
        _packed(message.keys) if message.keys else "-",
        str(message.flag),
        str(message.delay_level),
        "-" if message.deliver_at is None else str(message.deliver_at),
    ]
    for pair in message.properties.items():
        fields += map(_packed, pair)
    return ",".join(fields)


def _row(fields: list[str]) -> Row:
    packed = [f for f in fields[15].split(",") if f]
    properties = dict(zip(map(_text, packed[::2]), map(_text, packed[1::2]), strict=True))
    return {
        "topic": fields[1],
        "brokerName": fields[2],
        "queueId": int(fields[3]),
        "queueOffset": int(fields[0]),
        "msgId": _text(fields[4]),
        "keys": _text(fields[6]),
        "tags": _text(fields[5]),
        "body": b"" if fields[7] == "-" else base64.b64decode(fields[7][1:]),
        "properties": {k: v for k, v in properties.items() if k not in _ADDED_ON_READ},
        "bornTimestamp": int(fields[10]),
        "storeTimestamp": int(fields[11]),
        "bornHost": _host(fields[12]),
        "storeHost": _host(fields[13]),
        "reconsumeTimes": int(fields[14]),
        "flag": int(fields[8]),
        "sysFlag": int(fields[9]),
    }


def _host(text: str) -> str:
    """Java writes all eight parts of an IPv6 address, and no brackets."""
    address, _, port = text.rpartition(":")
    host = ip_address(address)
    return f"{host}:{port}" if host.version == 4 else f"[{host}]:{port}"


def _packed(value: str | bytes) -> str:
    data = value.encode() if isinstance(value, str) else value
    return "=" + base64.b64encode(data).decode()


def _text(word: str) -> Any:
    return None if word == "-" else base64.b64decode(word[1:]).decode()
