"""Plans as JSON, in the shape of `mqadmin allocateMQ`: its readers can read ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rocketmq_spark.core.compare import Entry
from rocketmq_spark.core.grid import spread
from rocketmq_spark.core.model import MessageQueue


def one(entry: Entry) -> str:
    """`{"result":{"member":[{"brokerName":"b","queueId":0,"topic":"T"}]}}`, and beside `result`
    what was moved and what nobody reads, where there is such a thing."""
    return _dump(_told(entry))


def comparison(entries: Sequence[Entry]) -> str:
    """`{"strategies":{"AVG":{"result":...,"fewest":2,"most":3},"FIXED":{"reason":"..."}}}`"""
    return _dump({"strategies": {entry.strategy: _summed(entry) for entry in entries}})


def _summed(entry: Entry) -> dict[str, Any]:
    if entry.plan is None:
        return {"reason": entry.reason}
    fewest, most = spread(entry.plan.assignment)
    return {**_told(entry), "fewest": fewest, "most": most}


def _told(entry: Entry) -> dict[str, Any]:
    assert entry.plan is not None
    told: dict[str, Any] = {
        "result": {member: _list(queues) for member, queues in entry.plan.assignment.items()}
    }
    if entry.plan.unowned:
        told["unowned"] = _list(entry.plan.unowned)
    if entry.change is not None:
        told["rebalance"] = {
            "moved": len(entry.change.moved),
            "why": entry.change.why,
            "members": {
                member: {
                    "dropped": _list(change.dropped),
                    "kept": _list(change.kept),
                    "added": _list(change.added),
                }
                for member, change in entry.change.members.items()
            },
        }
    return told


def _list(queues: Iterable[MessageQueue]) -> list[dict[str, Any]]:
    return [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
        for queue in queues
    ]


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
