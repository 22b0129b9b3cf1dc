"""What can be asked of name servers and brokers: one function per request code.

Names of fields are RocketMQ's own and exact. Fields it calls optional are left out, except
`bname`: the proxy and static topics need it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.wire.frame import Buffer
from rocketmq_spark.wire.session import Command, Series

# The topic whose settings a broker copies when it makes a topic by itself (TopicValidator).
TEMPLATE_TOPIC = "TBW102"

# PullSysFlag: the request carries its own subscription, so the broker needs no heartbeat from us.
_PULL_WITH_SUBSCRIPTION = "4"

TAG = "TAG"
SQL92 = "SQL92"


# --- name server ------------------------------------------------------------------------------


def get_route(topic: str) -> Command:
    return Command(105, {"topic": topic, "acceptStandardJsonOnly": "true"})


def get_cluster_info() -> Command:
    return Command(106, {})


def get_all_topics() -> Command:
    return Command(206, {})


def get_system_topics() -> Command:
    return Command(304, {})


def delete_topic_in_name_server(topic: str) -> Command:
    return Command(216, {"topic": topic})


# --- offsets ----------------------------------------------------------------------------------


def _queue(queue: MessageQueue, broker_name: str) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": broker_name}


def get_max_offset(queue: MessageQueue, broker_name: str) -> Command:
    return Command(30, _queue(queue, broker_name))


def get_min_offset(queue: MessageQueue, broker_name: str) -> Command:
    return Command(31, _queue(queue, broker_name))


def search_offset(queue: MessageQueue, broker_name: str, millis: int) -> Command:
    return Command(29, {**_queue(queue, broker_name), "timestamp": str(millis)})


def get_topic_stats(topic: str, broker_name: str) -> Command:
    return Command(202, {"topic": topic, "bname": broker_name})


def query_consumer_offset(group: str, queue: MessageQueue, broker_name: str) -> Command:
    # Without the last field a young queue answers 0 for a group that has committed nothing.
    ext = {"consumerGroup": group, **_queue(queue, broker_name), "setZeroIfNotFound": "false"}
    return Command(14, ext)


def update_consumer_offset(
    group: str, queue: MessageQueue, broker_name: str, offset: int
) -> Command:
    ext = {"consumerGroup": group, **_queue(queue, broker_name), "commitOffset": str(offset)}
    return Command(15, ext)


# --- pulling ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscription:
    """A filter that the broker applies. `version` matters to SQL92 only."""

    expression: str = "*"
    kind: str = TAG
    version: int = 0


def pulls(group: str, queue: MessageQueue, broker_name: str, subscription: Subscription) -> Series:
    """Pulls of one queue, by offset and count. They are stateless: nothing is committed, nothing
    waits, so any number may be in flight."""
    ext = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "sysFlag": _PULL_WITH_SUBSCRIPTION,
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": subscription.expression,
        "subVersion": str(subscription.version),
        "expressionType": subscription.kind,
        "bname": broker_name,
    }
    return Series(11, ext, ("queueOffset", "maxMsgNums"))


def check_filter(group: str, topic: str, subscription: Subscription) -> Command:
    """CHECK_CLIENT_CONFIG: whether the broker can compile a filter. A pull does not tell: brokers
    take an expression that will not compile for one that everything matches."""
    body = {
        "clientId": group,
        "group": group,
        "subscriptionData": {
            "topic": topic,
            "subString": subscription.expression,
            "expressionType": subscription.kind,
            "subVersion": subscription.version,
        },
    }
    return Command(46, {}, json.dumps(body).encode())


# --- sending ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendHeader:
    """What a send says about its message or batch."""

    producer_group: str
    queue: MessageQueue
    broker_name: str
    born_timestamp: int
    properties: str = ""
    sys_flag: int = 0
    flag: int = 0


def send(header: SendHeader, body: Buffer) -> Command:
    return Command(310, _send_fields(header, "false"), body)


def send_batch(header: SendHeader, body: Buffer) -> Command:
    return Command(320, _send_fields(header, "true"), body)


def _send_fields(header: SendHeader, batch: str) -> dict[str, str]:
    # SendMessageRequestHeaderV2: one letter each. d is the queue count of a topic made on the fly.
    fields = {
        "a": header.producer_group,
        "b": header.queue.topic,
        "c": TEMPLATE_TOPIC,
        "d": "4",
        "e": str(header.queue.queue_id),
        "f": str(header.sys_flag),
        "g": str(header.born_timestamp),
        "h": str(header.flag),
        "j": "0",
        "k": "false",
        "m": batch,
        "n": header.broker_name,
    }
    if header.properties:
        fields["i"] = header.properties
    return fields


# --- groups -----------------------------------------------------------------------------------


def get_consumer_list(group: str) -> Command:
    return Command(38, {"consumerGroup": group})


def create_group(group: str) -> Command:
    # SubscriptionGroupConfig with RocketMQ's own defaults.
    config = {
        "groupName": group,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": False,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        "groupSysFlag": 0,
        "consumeTimeoutMinute": 15,
        "attributes": {},
    }
    return Command(200, {}, json.dumps(config).encode())


# --- topics -----------------------------------------------------------------------------------


def topic_config(topic: str) -> Command:
    """GET_TOPIC_CONFIG: a topic's settings on one broker. Since 5.0."""
    return Command(351, {"topic": topic})


def create_topic(
    topic: str,
    read_queues: int,
    write_queues: int,
    perm: int,
    attributes: Mapping[str, str],
) -> Command:
    ext = {
        "topic": topic,
        "defaultTopic": TEMPLATE_TOPIC,
        "readQueueNums": str(read_queues),
        "writeQueueNums": str(write_queues),
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    if attributes:
        ext["attributes"] = ",".join(f"+{name}={value}" for name, value in attributes.items())
    return Command(17, ext)


def delete_topic_in_broker(topic: str) -> Command:
    return Command(215, {"topic": topic})


def update_broker_config(settings: Mapping[str, str] | Sequence[tuple[str, str]]) -> Command:
    lines = "".join(f"{name}={value}\n" for name, value in dict(settings).items())
    return Command(25, {}, lines.encode())
