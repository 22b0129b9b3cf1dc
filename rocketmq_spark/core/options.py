"""The source's options: each declared once, with its name, parser, default, kinds and meaning.

The fields of `SourceOptions` are the table. Checking a user's options, the README's table and the
`repr` all come from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rocketmq_spark.core import declare, parse
from rocketmq_spark.core.allocate import STRATEGIES
from rocketmq_spark.core.declare import BATCH, STREAM, option
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.offsets import (
    Positions,
    Where,
    parse_assignment,
    parse_ending_offsets,
    parse_queues,
    parse_starting_offsets,
    parse_timestamps,
)
from rocketmq_spark.errors import UsageError

__all__ = ["BATCH", "STREAM", "SourceOptions", "as_markdown", "read_options"]

# Offsets of brokers belong to a group. Two queries that only read may share this one.
READING_GROUP = "rocketmq_spark_reader"


@dataclass(frozen=True, repr=False)
class SourceOptions:
    name_server: str = option(
        "nameServer",
        parse.text,
        "",
        "Required. `host:port`, several separated by `;`.",
        section="Where",
    )
    topic: tuple[str, ...] | None = option(
        "topic", parse.names, "", "A topic, or several separated by commas."
    )
    topic_pattern: re.Pattern[str] | None = option(
        "topicPattern",
        parse.pattern,
        "",
        "A regular expression for whole topic names; new topics are found while the query runs.",
    )
    assign: list[MessageQueue] | None = option(
        "assign",
        parse_queues,
        "",
        'Only these queues: `{"topic":{"broker-a":[0,1]}}`.',
    )
    namespace: str | None = option(
        "namespace", parse.text, "", "RocketMQ 4's namespace: wrapped around topics and groups."
    )
    namespace_v2: str | None = option(
        "namespaceV2", parse.text, "", "RocketMQ 5's namespace: sent with each request."
    )
    wait_for_topic: float = option(
        "waitForTopic", parse.duration, "0s", "How long to wait for a topic that does not exist."
    )
    sub_expression: str = option(
        "subExpression",
        parse.text,
        "*",
        "Only these tags: `TagA || TagB`. The broker filters.",
        section="What",
    )
    sql_expression: str | None = option(
        "sqlExpression",
        parse.text,
        "",
        "Only what this SQL92 expression selects: `price > 10`. The broker filters.",
    )
    starting_offsets: Where | None = option(
        "startingOffsets",
        parse_starting_offsets,
        "",
        "`earliest`, `latest`, `group` (where `consumerGroup` is), or JSON "
        '`{"topic":{"broker-a":{"0":17}}}` with -2 for earliest and -1 for latest. '
        "Default: `latest` for a stream, `earliest` for a batch. A query that has a checkpoint "
        "goes on from there. A queue that is found later begins at its earliest message.",
        section="From, to",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        parse.whole(0),
        "",
        "Start at the first message stored at or after this time (epoch milliseconds).",
    )
    starting_offsets_by_timestamp: Positions | None = option(
        "startingOffsetsByTimestamp",
        partial(parse_timestamps, option="startingOffsetsByTimestamp"),
        "",
        'The same for single queues: `{"topic":{"broker-a":{"0":1700000000000}}}`.',
    )
    ending_offsets: Where | None = option(
        "endingOffsets",
        parse_ending_offsets,
        "",
        "`latest` (the default), or JSON as above.",
        BATCH,
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        parse.whole(0),
        "",
        "End before the first message stored at or after this time.",
        BATCH,
    )
    ending_offsets_by_timestamp: Positions | None = option(
        "endingOffsetsByTimestamp",
        partial(parse_timestamps, option="endingOffsetsByTimestamp"),
        "",
        "The same for single queues.",
        BATCH,
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        parse.whole(1),
        "",
        "At most so many messages a batch, shared over the queues by what each has. "
        "Spark 4.2 and later.",
        STREAM,
        section="How much",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        parse.size,
        "",
        "About so many bytes a batch, by the size of the messages to come. Spark 4.2 and later.",
        STREAM,
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        parse.whole(1),
        "",
        "Wait until there are so many messages, but not longer than `maxTriggerDelay`. Spark 4.2 "
        "and later.",
        STREAM,
    )
    max_trigger_delay: float = option(
        "maxTriggerDelay", parse.duration, "15m", "See `minOffsetsPerTrigger`.", STREAM
    )
    max_timestamp_skew: float | None = option(
        "maxTimestampSkew",
        parse.duration,
        "",
        "No queue's batch runs ahead of the slowest queue by more than this time. Spark 4.2 and "
        "later.",
        STREAM,
    )
    min_partitions: int | None = option(
        "minPartitions", parse.whole(1), "", "Split ranges until there are so many tasks."
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", parse.whole(1), "", "Split what is longer than this."
    )
    discovery_interval: float = option(
        "discoveryInterval",
        parse.duration,
        "30s",
        "How often to look for new queues and topics.",
        STREAM,
    )
    consumer_group: str = option(
        "consumerGroup", parse.text, READING_GROUP, "The group that brokers see.", section="Who"
    )
    commit_offsets: bool = option(
        "commitOffsets",
        parse.boolean,
        "false",
        "Also tell the brokers how far the query is, for dashboards. The checkpoint stays the "
        "truth.",
        STREAM,
    )
    executors: str = option(
        "executors",
        parse.text,
        "auto",
        "Who shares the queues: `auto` (the live executors, after `rocketmq_spark.register`; else "
        "the driver machine's cores), `group` (the executors that have announced themselves to the "
        "brokers as members of `consumerGroup`), a number of slots, or a comma list of ids "
        "`host@name`.",
    )
    message_model: str = option(
        "messageModel",
        parse.one_of("CLUSTERING", "BROADCASTING"),
        "CLUSTERING",
        "`BROADCASTING`: every member reads every message, told apart by `consumerId`.",
    )
    strategy: str = option(
        "allocate.strategy",
        parse.text,
        "AVG",
        f"How queues are shared: {', '.join(STRATEGIES)}.",
    )
    scope: str = option(
        "allocate.scope",
        parse.one_of("all", "topic"),
        "all",
        "`all`: the queues of all topics in one list; `topic`: each by itself, as RocketMQ does.",
    )
    hosts: tuple[str, ...] | None = option(
        "allocate.hosts", parse.names, "", "FIXED: only members on these hosts read."
    )
    rooms: tuple[str, ...] | None = option(
        "allocate.rooms", parse.names, "", "MACHINE_ROOM: only brokers named `room@...` of these."
    )
    member_rooms: dict[str, str] | None = option(
        "allocate.memberRooms",
        parse.pairs,
        "",
        "MACHINE_ROOM_NEARBY: rooms by how members' ids begin, `10.0.1.=idc1,10.0.2.=idc2`.",
    )
    broker_rooms: dict[str, str] | None = option(
        "allocate.brokerRooms",
        parse.pairs,
        "",
        "MACHINE_ROOM_NEARBY: the same for brokers that are not named `room@...`.",
    )
    config: dict[str, list[MessageQueue]] | None = option(
        "allocate.config",
        parse_assignment,
        "",
        'CONFIG: `{"member":{"topic":{"broker-a":[0,1]}}}`.',
    )
    virtual_nodes: int | None = option(
        "allocate.virtualNodes", parse.whole(1), "", "CONSISTENT_HASH: places on the ring; 10."
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        parse.boolean,
        "true",
        "`true`: fail when messages to be read are gone. `false`: go on with what there is, and "
        "log what was passed over.",
        section="Safety",
    )
    access_key: str | None = option(
        "accessKey",
        parse.text,
        "",
        "The account. `env:NAME` or `file:PATH` is looked up on each machine.",
        secret=True,
    )
    secret_key: str | None = option(
        "secretKey", parse.text, "", "Its secret, likewise.", secret=True
    )
    security_token: str | None = option(
        "securityToken", parse.text, "", "A temporary account's token, likewise.", secret=True
    )
    tls: bool = option("tls", parse.boolean, "false", "Speak TLS; implied by `tls.ca`.")
    tls_ca: str | None = option("tls.ca", parse.text, "", "File of the authority to trust.")
    tls_cert: str | None = option("tls.cert", parse.text, "", "File of our own certificate.")
    tls_key: str | None = option("tls.key", parse.text, "", "File of its private key.")
    tls_verify: bool = option(
        "tls.verify", parse.boolean, "true", "`false` trusts any certificate: for tests only."
    )
    timeout: float = option("timeout", parse.duration, "5s", "For each request to a server.")
    retries: int = option(
        "retries",
        parse.whole(0),
        "3",
        "How many timeouts long to go on trying when brokers do not answer.",
    )
    pull_batch: int = option(
        "pull.batch",
        parse.whole(1),
        "1024",
        "Most messages asked for at once; brokers give less.",
        section="Speed",
    )
    pull_in_flight: int = option(
        "pull.inFlight", parse.whole(1), "128", "Pulls on their way at once, for each task."
    )
    batch_bytes: int = option(
        "batchBytes", parse.size, "8m", "Size of the Arrow batches handed to Spark."
    )

    def __repr__(self) -> str:
        return declare.shown(self)


def as_markdown() -> str:
    """The table for the README, and for `rocketmq-spark options`."""
    return declare.as_markdown(SourceOptions)


def read_options(given: Mapping[str, str], kind: str = "") -> SourceOptions:
    """A user's options, checked one by one and together; for a STREAM, a BATCH, or either."""
    options = declare.read(SourceOptions, given, kind)
    _check_together(options)
    return options


def _check_together(options: SourceOptions) -> None:
    """What each option allows and two together do not."""
    o = options
    check_connection(o)
    _at_most_one(
        "which topics to read",
        {"topic": o.topic, "topicPattern": o.topic_pattern, "assign": o.assign},
    )
    if o.topic is None and o.topic_pattern is None and o.assign is None:
        raise UsageError("nothing to read: set topic, topicPattern or assign")
    if o.assign is not None and not o.assign:
        raise UsageError("nothing to read: assign names no queue")
    if o.topic_pattern is not None and o.wait_for_topic:
        raise UsageError(
            "waitForTopic waits for topics by name, and topicPattern takes those that are there: "
            "set only one"
        )
    _at_most_one(
        "where to start",
        {
            "startingOffsets": o.starting_offsets,
            "startingTimestamp": o.starting_timestamp,
            "startingOffsetsByTimestamp": o.starting_offsets_by_timestamp,
        },
    )
    _at_most_one(
        "where to end",
        {
            "endingOffsets": o.ending_offsets,
            "endingTimestamp": o.ending_timestamp,
            "endingOffsetsByTimestamp": o.ending_offsets_by_timestamp,
        },
    )
    if (o.starting_timestamp or 0) > (o.ending_timestamp or o.starting_timestamp or 0):
        raise UsageError(
            f"startingTimestamp ({o.starting_timestamp}) is after "
            f"endingTimestamp ({o.ending_timestamp})"
        )
    if o.starting_offsets == "group" and o.consumer_group == READING_GROUP:
        raise UsageError("startingOffsets=group needs consumerGroup: whose offsets?")
    if o.executors.lower() == "group" and o.consumer_group == READING_GROUP:
        raise UsageError(
            "executors=group needs consumerGroup: a group of this query's own, for its members are "
            "those who read"
        )
    if o.sql_expression is not None and o.sub_expression != "*":
        raise UsageError("subExpression and sqlExpression both select messages: set only one")
    if o.max_offsets_per_trigger and (o.min_offsets_per_trigger or 0) > o.max_offsets_per_trigger:
        raise UsageError(
            f"minOffsetsPerTrigger ({o.min_offsets_per_trigger}) is more than "
            f"maxOffsetsPerTrigger ({o.max_offsets_per_trigger})"
        )
    if o.timeout <= 0:
        raise UsageError("option timeout must be more than 0")


def check_connection(options: Any) -> None:
    """The same for the options that the source and the sink share."""
    o = options
    if not o.name_server:
        raise UsageError("option nameServer is missing: write host:port")
    if bool(o.access_key) != bool(o.secret_key):
        missing = "secretKey" if o.access_key else "accessKey"
        raise UsageError(f"an account needs accessKey and secretKey: {missing} is missing")
    if o.security_token and not o.access_key:
        raise UsageError("securityToken needs accessKey and secretKey too")
    if o.tls_key and not o.tls_cert:
        raise UsageError("tls.key needs tls.cert, the certificate it belongs to")


def _at_most_one(what: str, candidates: Mapping[str, object]) -> None:
    given = [name for name, value in candidates.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} both say {what}: set only one")
