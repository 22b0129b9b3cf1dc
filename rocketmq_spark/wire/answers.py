"""What servers answer: bodies and fields of responses to values of the model."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from rocketmq_spark.core.model import BrokerData, MessageQueue, QueueData, Route, StaticOwner
from rocketmq_spark.errors import ResponseError
from rocketmq_spark.wire.frame import Buffer, Frame
from rocketmq_spark.wire.loose_json import loads

# A static topic's queues belong to a broker that does not exist, named after their scope
# (MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX); a queue nobody serves now is owned by the second.
_STATIC_PREFIX = "__syslo__"
_STATIC_NOBODY = "__syslo__none__"
_GLOBAL_SCOPE = "__global__"

_INT = struct.Struct(">i")
_OFFSET = struct.Struct(">20xq")  # TOTALSIZE MAGICCODE BODYCRC QUEUEID FLAG are before it

# What reading fields out of JSON that has another shape than it should can raise.
_MISSHAPEN = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def number(frame: Frame, name: str, where: str = "") -> int:
    """A whole number among the fields of `frame`; `where` is said of one that is none."""
    text = frame.ext.get(name)
    what = f"{where}: the answer's field {name}" if where else f"the answer's field {name}"
    try:
        value = int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ResponseError(
            f"{what} is {text!r}, not a number; "
            f"it has the fields {', '.join(sorted(frame.ext)) or 'none'}"
        ) from error
    if not -(1 << 63) <= value < 1 << 63:
        raise ResponseError(f"{what} is {text}, more than Java's long can hold")
    return value


def first_offset(memory: Buffer, at: int, end: int) -> int | None:
    """The queue offset stored in the first record of a pull's body, which is at these bytes."""
    return int(_OFFSET.unpack_from(memory, at)[0]) if end - at >= _OFFSET.size else None


def before(memory: Buffer, at: int, end: int, offset: int) -> int:
    """Where those records of a pull's body end that are stored before this queue offset."""
    while (first := first_offset(memory, at, end)) is not None and first < offset:
        at += max(1, _INT.unpack_from(memory, at)[0])
    return min(at, end)


def route(topic: str, body: Any) -> Route:
    data = _object(body, f"the route of topic {topic}")
    try:
        queues = tuple(
            QueueData(
                str(q["brokerName"]),
                int(q["readQueueNums"]),
                int(q["writeQueueNums"]),
                int(q["perm"]),
            )
            for q in data.get("queueDatas") or ()
        )
        brokers = [_broker(b) for b in data.get("brokerDatas") or ()]
        owners = _static_owners(topic, data.get("topicQueueMappingByBroker") or {})
    except _MISSHAPEN as error:
        raise ResponseError(
            f"the route of topic {topic} lacks or garbles a field: {error!r}"
        ) from error
    return Route(topic, queues, {b.broker_name: b for b in brokers}, owners)


def cluster_brokers(body: Any) -> list[BrokerData]:
    """Every broker of GET_BROKER_CLUSTER_INFO, by name."""
    data = _object(body, "the cluster information")
    try:
        return sorted(
            (_broker(b) for b in (data.get("brokerAddrTable") or {}).values()),
            key=lambda b: b.broker_name,
        )
    except _MISSHAPEN as error:
        raise ResponseError(
            f"the cluster information lacks or garbles a field: {error!r}"
        ) from error


def topic_list(body: Any) -> set[str]:
    return set(_names(body, "topicList", "the topic list"))


def consumer_ids(body: Any) -> list[str]:
    return sorted(_names(body, "consumerIdList", "the consumer list"))


def topic_stats(body: Any) -> dict[MessageQueue, tuple[int, int]]:
    """First and next offset of every queue of a topic on one broker."""
    data = _object(body, "the topic statistics")
    found = {}
    try:
        for key, stats in (data.get("offsetTable") or {}).items():
            names = dict(key)
            queue = MessageQueue(names["topic"], names["brokerName"], int(names["queueId"]))
            found[queue] = (int(stats["minOffset"]), int(stats["maxOffset"]))
    except _MISSHAPEN as error:
        raise ResponseError(f"the topic statistics lack or garble a field: {error!r}") from error
    return found


def topic_attributes(topic: str, body: Any) -> dict[str, str]:
    found = _object(body, f"the settings of topic {topic}").get("attributes") or {}
    if not isinstance(found, dict):
        raise ResponseError(f"the settings of topic {topic} have attributes that are no object")
    return {str(name): str(value) for name, value in found.items()}


def _object(body: Any, what: str) -> Mapping[Any, Any]:
    value = loads(body, what)
    if not isinstance(value, dict):
        raise ResponseError(f"{what} should be a JSON object, not {type(value).__name__}")
    return value


def _names(body: Any, field: str, what: str) -> list[str]:
    found = _object(body, what).get(field) or []
    if not isinstance(found, list):
        raise ResponseError(f"{what} has no array {field} but {type(found).__name__}")
    return [str(name) for name in found]


def _broker(data: Mapping[str, Any]) -> BrokerData:
    addresses = {int(broker_id): str(a) for broker_id, a in data["brokerAddrs"].items()}
    return BrokerData(str(data.get("cluster") or ""), str(data["brokerName"]), addresses)


def _static_owners(
    topic: str, mappings: Mapping[str, Mapping[str, Any]]
) -> dict[MessageQueue, StaticOwner]:
    """For each public queue the broker with the newest epoch; every queue of a scope has one."""
    owners: dict[MessageQueue, StaticOwner] = {}
    for mapping in mappings.values():
        scope = str(mapping.get("scope") or _GLOBAL_SCOPE)
        public_broker = _STATIC_PREFIX + (scope[2:] if scope == _GLOBAL_SCOPE else scope)
        epoch = int(mapping.get("epoch") or 0)
        for queue_id in range(int(mapping.get("totalQueues") or 0)):
            queue = MessageQueue(topic, public_broker, queue_id)
            owners.setdefault(queue, StaticOwner(_STATIC_NOBODY, -1))
        for queue_id in mapping.get("currIdMap") or {}:
            queue = MessageQueue(topic, public_broker, int(queue_id))
            known = owners.get(queue)
            if known is None or known.epoch < epoch:
                owners[queue] = StaticOwner(str(mapping["bname"]), epoch)
    return owners
