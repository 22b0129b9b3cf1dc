"""Java's order of queues and member ids, each of them once.

RocketMQ's members agree without talking because all of them sort the same way, with Java's
`String.compareTo`: by UTF-16 code unit. Python compares code points, which differs in one place:
a character beyond U+FFFF (an emoji) is a pair of surrogates in UTF-16, and they come before
U+E000 to U+FFFF. So the slower comparison is made only when such a character is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TypeVar

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import UsageError

_T = TypeVar("_T", MessageQueue, str)
_QueueKey = Callable[[MessageQueue], tuple[object, ...]]

_plain_key: _QueueKey = attrgetter("topic", "broker_name", "queue_id")


def utf16_key(text: str) -> bytes:
    """Sorts as Java sorts; also halves of a pair, which a Java string may hold."""
    return text.encode("utf-16-be", "surrogatepass")


def sort_strings(values: Iterable[str]) -> list[str]:
    """`["b-10", "b-9"]` stay so: strings, not numbers."""
    strings = list(values)
    return sorted(strings, key=utf16_key) if _beyond_bmp(strings) else sorted(strings)


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """By topic, broker name, and queue id as a number."""
    queues = list(queues)
    return sorted(queues, key=_queue_key(queues))


def distinct_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sorted, none of them twice."""
    result = sort_queues(queues)
    # Tuples hash several times faster than queues.
    if len(set(map(_plain_key, result))) < len(result):
        twice = _repeated(result)
        raise UsageError(f"queue {twice} is listed twice; list every queue once")
    return result


def distinct_members(members: Iterable[str]) -> list[str]:
    """Sorted, none of them twice: two members of one id would fight for one share."""
    if isinstance(members, str):
        raise UsageError(f"members is the single text {members!r}; pass a list of member ids")
    result = sort_strings(members)
    if result and not result[0]:
        raise UsageError("a member id is empty; every member needs an id such as 10.0.0.7@3#0")
    if len(set(result)) < len(result):
        twice = _repeated(result)
        raise UsageError(f"member {twice!r} is listed twice; member ids must differ")
    return result


def by_topic(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    """One list for each topic, in the order they first come."""
    groups: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        groups.setdefault(queue.topic, []).append(queue)
    return list(groups.values())


def _repeated(values: list[_T]) -> _T:
    return Counter(values).most_common(1)[0][0]


def _queue_key(queues: list[MessageQueue]) -> _QueueKey:
    # Far fewer names than queues, so looking at each name once is cheap; and a tuple as the key
    # is several times faster than the dataclass's own comparison.
    names = {queue.topic for queue in queues} | {queue.broker_name for queue in queues}
    if not _beyond_bmp(names):
        return _plain_key
    keys = {name: utf16_key(name) for name in names}
    return lambda queue: (keys[queue.topic], keys[queue.broker_name], queue.queue_id)


def _beyond_bmp(strings: Iterable[str]) -> bool:
    return any(not text.isascii() and max(text) > "\uffff" for text in strings)
