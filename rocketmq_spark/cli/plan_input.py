"""What people type and the files they name, turned into values. Mistakes name what to write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.order import distinct_queues
from rocketmq_spark.errors import UsageError

# The topic's name where nobody gave one. Only CONSISTENT_HASH looks at it.
ANY_TOPIC = "topic"

_MOST_QUEUES = 1_000_000


def words(text: str, option: str) -> list[str]:
    """A comma list."""
    parts = [part.strip() for part in text.split(",")]
    if "" in parts:
        raise UsageError(f"{option} {text!r} has an empty item; write {option} one,two,three")
    return parts


def topic_names(given: Sequence[str]) -> list[str]:
    """All --topic options together, each of them a comma list."""
    names = [name for text in given for name in words(text, "--topic")]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"topic {name} is listed twice; list every topic once")
    return names


def queues(text: str, topics: Sequence[str], option: str = "--queues") -> list[MessageQueue]:
    """`broker-a:4,broker-b:4` for every topic; `orders/broker-a:4` for that one alone."""
    found: list[MessageQueue] = []
    for item in words(text, option):
        place, _, number = item.rpartition(":")
        topic, slash, broker = place.rpartition("/")
        if not broker or (slash and not topic) or not _is_number(number):
            raise UsageError(
                f"{option} has {item!r}; write a broker and how many queues it has, "
                "such as broker-a:4"
            )
        if len(number) > 7 or len(found) + int(number) > _MOST_QUEUES:
            raise UsageError(
                f"{option} {item!r} makes more than {_MOST_QUEUES:,} queues; "
                "the number after the colon is how many queues the broker has"
            )
        for name in [topic] if slash else topics or [ANY_TOPIC]:
            found += [MessageQueue(name, broker, queue_id) for queue_id in range(int(number))]
    brokers = [item.rpartition(":")[0] for item in words(text, option)]
    for broker in brokers:
        if brokers.count(broker) > 1:
            raise UsageError(f"{option} lists {broker} twice; list every broker once")
    return distinct_queues(found)


def assignment(path: str, option: str) -> dict[str, list[MessageQueue]]:
    """A file as `plan --json` or `mqadmin allocateMQ` writes it, or the inner mapping alone."""
    told = _json(path, option)
    members = told.get("result", told) if isinstance(told, dict) else told
    if not isinstance(members, dict):
        raise _not_an_assignment(path, option, "it holds no object of members")
    result: dict[str, list[MessageQueue]] = {}
    for member, entries in members.items():
        if not isinstance(entries, list):
            raise _not_an_assignment(path, option, f"what {member!r} holds is not a list")
        result[member] = [_queue(entry, member, path, option) for entry in entries]
    return result


def _queue(entry: object, member: str, path: str, option: str) -> MessageQueue:
    if isinstance(entry, dict):
        topic, broker = entry.get("topic"), entry.get("brokerName")
        number = entry.get("queueId")
        if (
            isinstance(topic, str)
            and isinstance(broker, str)
            and isinstance(number, int)
            and not isinstance(number, bool)
            and number >= 0
        ):
            return MessageQueue(topic, broker, number)
    raise _not_an_assignment(path, option, f"{member!r} holds {json.dumps(entry)}")


def _not_an_assignment(path: str, option: str, what: str) -> UsageError:
    return UsageError(
        f"{option} {path} is not a plan: {what}; write it with `rocketmq-spark plan --json`, or as "
        '{"member": [{"brokerName": "broker-a", "queueId": 0, "topic": "T"}]}'
    )


def lags(text: str, known: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """`broker-a:0=120,orders/broker-b:1=7`, or a file `{"orders": {"broker-a": {"0": 120}}}`.

    Queues that are not named have nothing to read.
    """
    existing = list(known)
    if _is_file(text):
        return _lag_file(text, frozenset(existing))
    result = dict.fromkeys(existing, 0)
    for item in words(text, "--lag"):
        name, _, number = item.rpartition("=")
        place, _, queue_id = name.rpartition(":")
        topic, slash, broker = place.rpartition("/")
        if not (broker and _is_number(queue_id) and _is_number(number)):
            raise UsageError(
                f"--lag has {item!r}; write a queue and how many messages it holds, "
                "such as broker-a:0=120, or name a JSON file"
            )
        meant = [
            queue
            for queue in existing
            if queue.broker_name == broker
            and queue.queue_id == int(queue_id)
            and (not slash or queue.topic == topic)
        ]
        if not meant:
            raise UsageError(f"--lag names {name}, but there is no such queue; check its spelling")
        result.update(dict.fromkeys(meant, int(number)))
    return result


def _lag_file(path: str, existing: frozenset[MessageQueue]) -> dict[MessageQueue, int]:
    shape = 'write {"topic": {"broker-a": {"0": 120}}}'
    result = dict.fromkeys(existing, 0)
    topics = _json(path, "--lag")
    try:
        for topic, brokers in topics.items():
            for broker, ids in brokers.items():
                for queue_id, number in ids.items():
                    queue = MessageQueue(topic, broker, int(queue_id))
                    if queue not in existing:
                        raise UsageError(f"--lag {path} names {queue}, but there is no such queue")
                    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                        raise UsageError(f"--lag {path}: {queue} holds {number!r}; {shape}")
                    result[queue] = number
    except (AttributeError, ValueError) as wrong:
        if isinstance(wrong, UsageError):
            raise
        raise UsageError(f"--lag {path} has another shape; {shape}") from wrong
    return result


def rooms(text: str, option: str) -> dict[str, str]:
    """`10.0.1.=idc1,10.0.2.=idc2`, or a file `{"10.0.1.": "idc1"}`: how names begin, to rooms."""
    if _is_file(text):
        told = _json(text, option)
        if not isinstance(told, dict) or not all(isinstance(room, str) for room in told.values()):
            raise UsageError(f'{option} {text} has another shape; write {{"10.0.1.": "idc1"}}')
        return told
    result = {}
    for item in words(text, option):
        start, equals, room = item.partition("=")
        if not (start and equals and room):
            raise UsageError(
                f"{option} has {item!r}; write the beginning of a name and its room, such as "
                "10.0.1.=idc1, or name a JSON file"
            )
        result[start] = room
    return result


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _is_file(text: str) -> bool:
    return text.endswith(".json")


def _json(path: str, option: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{option}: cannot read {path}: {error.strerror}; name a JSON file"
        ) from error
    except (ValueError, RecursionError) as error:  # not JSON, or not UTF-8
        raise UsageError(f"{option}: {path} is not JSON: {error}") from error
