"""JSON maps of queues, read strictly: a mistake is refused with the place where it stands.

The shape is the same in checkpoints and in users' options: topic, broker name, queue id as a
decimal text, and a number.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.order import sort_queues
from rocketmq_spark.errors import UsageError

# Java's int and long, which is what brokers count in.
_MAX_QUEUE_ID = 2**31 - 1
_MAX_OFFSET = 2**63 - 1

_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_PLAIN_KEY = re.compile(r"[A-Za-z_%][\w%|-]*", re.ASCII)


class _Repeated(dict[str, Any]):
    """An object in which a key stands twice; Python would silently keep the last one."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.key = Counter(key for key, _ in pairs).most_common(1)[0][0]


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else _Repeated(pairs)


def read_json(text: str, what: str) -> object:
    """The value; `what` names the option or file in a refusal."""
    try:
        return json.loads(text, object_pairs_hook=_pairs)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{what} is not JSON: {error.msg} at {place}") from error
    except RecursionError as error:
        raise UsageError(f"{what} is not what it should be: it is nested too deeply") from error
    except ValueError as error:  # a number with thousands of digits
        raise UsageError(f"{what} cannot be read: {error}") from error


def entries(
    value: object, what: str, path: tuple[str, ...], holds: str
) -> Iterator[tuple[str, Any]]:
    """The members of an object that `holds` something, refusing all else and any key twice."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{what}: {place(path)} is {_shown(value)}; it must be a map of {holds}")
    if isinstance(value, _Repeated):
        raise UsageError(f"{what}: {place((*path, value.key))} stands there twice; keep one")
    for key, inner in value.items():
        if not isinstance(key, str) or not key:
            raise UsageError(f"{what}: {place(path)} has {key!r} as a name; it cannot be empty")
        yield key, inner


def queue_numbers(
    value: object,
    what: str,
    path: tuple[str, ...] = (),
    *,
    lowest: int = 0,
    number: str = "an offset",
) -> dict[MessageQueue, int]:
    """`{"TopicA": {"broker-a": {"0": 17}}}` as queues and numbers, none below `lowest`."""
    result = {}
    for topic, brokers in entries(value, what, path, "topics"):
        for broker, queues in entries(brokers, what, (*path, topic), "broker names"):
            inside = (*path, topic, broker)
            for key, found in entries(queues, what, inside, "queue ids"):
                queue = MessageQueue(topic, broker, _queue_id(key, what, inside))
                # True is an int to Python, not to us.
                if type(found) is not int or not lowest <= found <= _MAX_OFFSET:
                    raise UsageError(
                        f"{what}: {place((*inside, key))} is {_shown(found)}; "
                        f"{number} is a whole number of {lowest} or more"
                    )
                result[queue] = found
    return result


def queue_list(value: object, what: str) -> list[MessageQueue]:
    """`{"TopicA": {"broker-a": [0, 1]}}` as sorted queues."""
    result = []
    for topic, brokers in entries(value, what, (), "topics"):
        for broker, ids in entries(brokers, what, (topic,), "broker names"):
            path = (topic, broker)
            if not isinstance(ids, list):
                raise UsageError(
                    f"{what}: {place(path)} is {_shown(ids)}; it must be a list of queue ids"
                )
            seen: set[int] = set()
            for found in ids:
                if type(found) is not int or not 0 <= found <= _MAX_QUEUE_ID:
                    raise UsageError(
                        f"{what}: {place(path)} holds {_shown(found)}; "
                        "a queue id is a whole number of 0 or more"
                    )
                if found in seen:
                    raise UsageError(f"{what}: {place(path)} holds {found} twice; keep one")
                seen.add(found)
                result.append(MessageQueue(topic, broker, found))
    return sort_queues(result)


def nested(numbers: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """The way back, always in the same order: Spark compares offsets as text."""
    result: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sort_queues(numbers):
        brokers = result.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = numbers[queue]
    return result


def place(path: tuple[str, ...]) -> str:
    """`offsets.TopicA.broker-a."0"`: keys that could be mistaken for something else are quoted."""
    if not path:
        return "the whole"
    return ".".join(key if _PLAIN_KEY.fullmatch(key) else json.dumps(key) for key in path)


def _queue_id(key: str, what: str, path: tuple[str, ...]) -> int:
    if not _QUEUE_ID.fullmatch(key) or int(key) > _MAX_QUEUE_ID:
        raise UsageError(
            f'{what}: {place((*path, key))} is no queue; a queue id is a whole number, as in "0"'
        )
    return int(key)


def _shown(value: object) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 40 else text[:37] + "..."
