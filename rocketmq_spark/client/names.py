"""Topic and group names: RocketMQ's own ones, and namespaces (v1) wrapped around the user's.

`orders` in the namespace `shop` is `shop%orders` on the wire; a group's retry and dead-letter
topics keep their prefix outside: `%RETRY%shop%billing`.
"""

from __future__ import annotations

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

# TopicValidator and MixAll of RocketMQ 5.
_SYSTEM_TOPICS = {
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "BenchmarkTest",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
}
_SYSTEM_PREFIXES = ("rmq_sys_", "RMQ_SYS_", "CID_RMQ_SYS_", "%SYS%")
_SYSTEM_GROUPS = {"DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER"}


def is_system(name: str) -> bool:
    """RocketMQ's own, as far as the name alone tells."""
    return name in _SYSTEM_TOPICS or name in _SYSTEM_GROUPS or name.startswith(_SYSTEM_PREFIXES)


def is_derived(topic: str) -> bool:
    """A group's retry or dead-letter topic."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def wrap(namespace: str, name: str) -> str:
    """The name on the wire."""
    if not namespace or is_system(name):
        return name
    prefix, bare = _split(name)
    own = namespace + "%"
    return name if bare.startswith(own) else prefix + own + bare


def unwrap(namespace: str, name: str) -> str:
    """The user's name for a name from the wire."""
    prefix, bare = _split(name)
    own = namespace + "%"
    return prefix + bare[len(own) :] if namespace and bare.startswith(own) else name


def belongs(namespace: str, name: str) -> bool:
    """Whether a name from the wire is in `namespace`; without one, everything is."""
    return not namespace or _split(name)[1].startswith(namespace + "%")


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
