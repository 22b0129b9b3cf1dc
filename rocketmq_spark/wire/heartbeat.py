"""What a member of a consumer group tells every broker now and then: that it is there.

A broker lists the members it has heard of (`commands.get_consumer_list`). It forgets one when its
connection ends, or when it has been silent for two minutes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from rocketmq_spark.wire.commands import Subscription
from rocketmq_spark.wire.session import Command


def heartbeat(client_id: str, group: str, subscriptions: Mapping[str, Subscription]) -> Command:
    """`subscriptions` by topic. Members of a group must all tell the same ones, or a broker takes
    each of them for a change."""
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_ACTIVELY",  # we pull
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "unitMode": False,
        "subscriptionDataSet": [
            {
                "classFilterMode": False,
                "topic": topic,
                "subString": wanted.expression,
                "tagsSet": [],
                "codeSet": [],
                "subVersion": wanted.version,
                "expressionType": wanted.kind,
            }
            for topic, wanted in sorted(subscriptions.items())
        ],
    }
    body = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}
    return Command(34, {}, json.dumps(body).encode())
