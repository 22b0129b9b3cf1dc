"""The sink's options, declared as the source's are; what both have is declared there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rocketmq_spark.core import declare, parse
from rocketmq_spark.core.declare import option
from rocketmq_spark.core.options import SourceOptions, check_connection
from rocketmq_spark.errors import UsageError

WRITING_GROUP = "rocketmq_spark_writer"
PYTHON, NATIVE = "python", "native"
ACCEPT, RETRY, FAIL = "accept", "retry", "fail"
NO_COMPRESSION = "none"

_shared: Any = partial(declare.same_as, SourceOptions)


@dataclass(frozen=True, repr=False)
class SinkOptions:
    name_server: str = _shared("name_server", section="Where")
    topic: str | None = option(
        "topic", parse.text, "", "The topic of all rows, or of those whose column `topic` is null."
    )
    namespace: str | None = _shared("namespace")
    namespace_v2: str | None = _shared("namespace_v2")
    producer_group: str = option(
        "producerGroup", parse.text, WRITING_GROUP, "The group that brokers see.", section="Who"
    )
    client: str = option(
        "client",
        parse.one_of(PYTHON, NATIVE),
        PYTHON,
        "`native` sends through rocketmq-client-python (the extra `native`), a row at a time.",
    )
    send_timeout: float = option(
        "sendTimeout", parse.duration, "5s", "For each request to a server.", section="Safety"
    )
    retries: int = option(
        "retries",
        parse.whole(0),
        "5",
        "How often a request that failed is tried again, on another broker if there is one.",
    )
    when_not_durable: str = option(
        "whenNotDurable",
        parse.one_of(ACCEPT, RETRY, FAIL),
        ACCEPT,
        "What to do when a broker has stored rows but not flushed or replicated them in time: "
        "`accept` them and log it, `retry` (which stores them twice), or `fail`.",
    )
    fault_latency: bool = option(
        "faultLatency",
        parse.boolean,
        "false",
        "Leave a broker out for a while after it was slow or failed, by RocketMQ's own table.",
    )
    row_key: bool = option(
        "rowKey",
        parse.boolean,
        "true",
        "Give each row the property `SPARK_ROW`: query, batch, partition and row, the same when a "
        "batch or a task is repeated, so that a reader can drop the second copy.",
    )
    access_key: str | None = _shared("access_key")
    secret_key: str | None = _shared("secret_key")
    security_token: str | None = _shared("security_token")
    tls: bool = _shared("tls")
    tls_ca: str | None = _shared("tls_ca")
    tls_cert: str | None = _shared("tls_cert")
    tls_key: str | None = _shared("tls_key")
    tls_verify: bool = _shared("tls_verify")
    batch: int = option(
        "batch",
        parse.size,
        "512k",
        "Most bytes of rows sent together. Rows without a key are spread over the queues in such "
        "pieces, or smaller ones where there are few.",
        section="Speed",
    )
    in_flight: int = option(
        "inFlight", parse.whole(1), "8", "Requests on their way at once, for each task and broker."
    )
    compress_above: int = option(
        "compressAbove",
        parse.size,
        "4k",
        "Bodies from this size on are compressed. Such rows travel alone, for batches cannot be.",
    )
    compression: str = option(
        "compression",
        parse.one_of("zlib", "lz4", "zstd", NO_COMPRESSION),
        "zlib",
        "How: `zlib`, `lz4`, `zstd`, or `none`. Brokers and consumers before 5.0 know `zlib` only.",
    )
    max_message_size: int = option(
        "maxMessageSize",
        parse.size,
        "4m",
        "Larger bodies are refused here; brokers have a setting of the same name.",
    )

    def __repr__(self) -> str:
        return declare.shown(self)


def as_markdown() -> str:
    """The table for the README, and for `rocketmq-spark options`."""
    return declare.as_markdown(SinkOptions)


def read_sink_options(given: Mapping[str, str], kind: str = "") -> SinkOptions:
    """A user's options, checked one by one and together; for a STREAM, a BATCH, or either."""
    options = declare.read(SinkOptions, given, kind)
    check_connection(options)
    if options.batch > options.max_message_size:
        raise UsageError(
            f"option batch ({options.batch}) is more than maxMessageSize "
            f"({options.max_message_size}), which brokers count a batch by"
        )
    if options.send_timeout <= 0:
        raise UsageError("option sendTimeout must be more than 0")
    return options
