"""Requests: codes and field names exactly as RocketMQ's header classes have them."""

from __future__ import annotations

import json

import pytest

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.wire import commands
from rocketmq_spark.wire.commands import SQL92, SendHeader, Subscription
from rocketmq_spark.wire.session import Command

QUEUE = MessageQueue("T", "b-a", 3)
# The broker that is asked is named apart from the queue: for a static topic they differ.
PLACE = {"topic": "T", "queueId": "3", "bname": "b-x"}


@pytest.mark.parametrize(
    ("command", "code", "ext"),
    [
        (commands.get_route("T"), 105, {"topic": "T", "acceptStandardJsonOnly": "true"}),
        (commands.get_cluster_info(), 106, {}),
        (commands.get_all_topics(), 206, {}),
        (commands.get_system_topics(), 304, {}),
        (commands.delete_topic_in_name_server("T"), 216, {"topic": "T"}),
        (commands.delete_topic_in_broker("T"), 215, {"topic": "T"}),
        (commands.get_max_offset(QUEUE, "b-x"), 30, PLACE),
        (commands.get_min_offset(QUEUE, "b-x"), 31, PLACE),
        (commands.search_offset(QUEUE, "b-x", 17), 29, {**PLACE, "timestamp": "17"}),
        (commands.get_topic_stats("T", "b-x"), 202, {"topic": "T", "bname": "b-x"}),
        (
            commands.query_consumer_offset("g", QUEUE, "b-x"),
            14,
            {**PLACE, "consumerGroup": "g", "setZeroIfNotFound": "false"},
        ),
        (
            commands.update_consumer_offset("g", QUEUE, "b-x", 42),
            15,
            {**PLACE, "consumerGroup": "g", "commitOffset": "42"},
        ),
        (commands.get_consumer_list("g"), 38, {"consumerGroup": "g"}),
        (
            commands.create_topic("T", 4, 8, 6, {"message.type": "FIFO", "x": "y"}),
            17,
            {
                "topic": "T",
                "defaultTopic": "TBW102",
                "readQueueNums": "4",
                "writeQueueNums": "8",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": "+message.type=FIFO,+x=y",
            },
        ),
    ],
    ids=lambda value: str(value.code) if isinstance(value, Command) else "",
)
def test_code_and_fields(command: Command, code: int, ext: dict[str, str]) -> None:
    assert (command.code, command.ext, command.body) == (code, ext, b"")


def test_a_pull_needs_no_heartbeat_commits_nothing_and_never_waits() -> None:
    command = commands.pulls("g", QUEUE, "b-x", Subscription()).command((100, 32))
    assert (command.code, command.body) == (11, b"")
    assert command.ext == {
        **PLACE,
        "consumerGroup": "g",
        "queueOffset": "100",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }


def test_a_pull_with_sql() -> None:
    command = commands.pulls("g", QUEUE, "b-x", Subscription("a > 1", SQL92, 7)).command((0, 1))
    chosen = {name: command.ext[name] for name in ("subscription", "subVersion", "expressionType")}
    assert chosen == {"subscription": "a > 1", "subVersion": "7", "expressionType": "SQL92"}


def test_a_filter_is_shown_to_the_broker() -> None:
    command = commands.check_filter("g", "T", Subscription("a > 1", SQL92, 7))
    assert (command.code, command.ext) == (46, {})
    data = json.loads(bytes(command.body))
    assert data["subscriptionData"] == {
        "topic": "T",
        "subString": "a > 1",
        "expressionType": "SQL92",
        "subVersion": 7,
    }


def test_sends_use_the_short_names() -> None:
    header = SendHeader("pg", QUEUE, "b-x", 1700, "k\x01v\x02", sys_flag=0x301, flag=9)
    single, batch = commands.send(header, b"body"), commands.send_batch(header, b"items")
    expected = {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": str(0x301),
        "g": "1700",
        "h": "9",
        "i": "k\x01v\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "b-x",
    }
    assert (single.code, single.ext, single.body) == (310, expected, b"body")
    assert (batch.code, batch.ext, batch.body) == (320, {**expected, "m": "true"}, b"items")


def test_no_field_is_ever_empty() -> None:
    # In a binary header an empty value is null to the server, and null breaks a signature.
    header = SendHeader("pg", QUEUE, "b-x", 1700)
    everything = [
        commands.send(header, b""),
        commands.pulls("g", QUEUE, "b-x", Subscription()).command((0, 1)),
        commands.create_topic("T", 4, 4, 6, {}),
    ]
    for command in everything:
        assert "" not in command.ext.values()


def test_a_group_may_consume() -> None:
    command = commands.create_group("g")
    config = json.loads(bytes(command.body))
    assert command.code == 200
    assert (config["groupName"], config["consumeEnable"]) == ("g", True)


def test_broker_settings_are_java_properties() -> None:
    command = commands.update_broker_config({"a": "1", "b": "2"})
    assert (command.code, command.body) == (25, b"a=1\nb=2\n")
