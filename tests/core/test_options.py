"""The source's options: every text is read or refused with a sentence that helps."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rocketmq_spark.core import declare
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.options import BATCH, STREAM, SourceOptions, as_markdown, read_options
from rocketmq_spark.core.plan import plan
from rocketmq_spark.core.plan_options import plan_options
from rocketmq_spark.errors import UsageError

ROWS = list(declare.declared(SourceOptions))
LEAST = {"nameServer": "127.0.0.1:9876", "topic": "orders"}

# DESIGN: every option of the source. A name that is gone from here is gone for users.
DECLARED = """
nameServer topic topicPattern assign namespace namespaceV2 waitForTopic
subExpression sqlExpression
startingOffsets startingTimestamp startingOffsetsByTimestamp
endingOffsets endingTimestamp endingOffsetsByTimestamp
maxOffsetsPerTrigger maxBytesPerTrigger minOffsetsPerTrigger maxTriggerDelay maxTimestampSkew
minPartitions maxRecordsPerPartition discoveryInterval
consumerGroup commitOffsets executors messageModel
allocate.strategy allocate.scope allocate.hosts allocate.rooms allocate.memberRooms
allocate.brokerRooms allocate.config
allocate.virtualNodes
failOnDataLoss accessKey secretKey securityToken tls tls.ca tls.cert tls.key tls.verify
timeout retries
pull.batch pull.inFlight batchBytes
"""
NAMES = DECLARED.split()


def read(kind: str = "", **changes: Any) -> SourceOptions:
    """The least that is enough, changed; None leaves one out. `_` in names stands for a dot."""
    given = {**LEAST, **{name.replace("_", "."): text for name, text in changes.items()}}
    return read_options({name: text for name, text in given.items() if text is not None}, kind)


def refusal(kind: str = "", **changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(kind, **changes)
    return str(caught.value)


def test_all_options_are_declared() -> None:
    assert [row.name for row in ROWS] == NAMES


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_is_whole(row: declare.Declared) -> None:
    assert row.section
    assert row.kinds in (declare.BOTH, STREAM, BATCH)
    assert row.meaning.endswith((".", "`."))
    if row.name != "nameServer":
        assert getattr(read(), row.field) == row.value or row.name == "topic"


def test_defaults() -> None:
    options = read()
    assert options.topic == ("orders",)
    assert (options.starting_offsets, options.ending_offsets) == (None, None)
    assert (options.executors, options.strategy, options.scope) == ("auto", "AVG", "all")
    assert options.fail_on_data_loss is True
    assert options.batch_bytes == 8 << 20
    assert options.discovery_interval == 30.0
    assert options.max_trigger_delay == 900.0


def test_texts_become_values() -> None:
    options = read(
        topic=None,
        assign='{"T":{"b":[1,0]}}',
        startingOffsets='{"T":{"b":{"0":-2,"1":7}}}',
        maxBytesPerTrigger="8m",
        maxTimestampSkew="1500ms",
        allocate_strategy="FIXED",
        allocate_hosts="h1, h2",
    )
    zero, one = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
    assert options.assign == [zero, one]
    assert options.starting_offsets == {zero: -2, one: 7}
    assert options.max_bytes_per_trigger == 8 << 20
    assert options.max_timestamp_skew == 1.5
    assert options.hosts == ("h1", "h2")
    config = read(allocate_config='{"m1":{"T":{"b":[1]}},"m2":{}}').config
    assert config == {"m1": [one], "m2": []}


def test_names_are_written_in_any_case() -> None:
    assert read_options({"NAMESERVER": "h:1", "Topic": "t"}) == read_options(
        {"nameserver": "h:1", "topic": "t"}
    )


def test_options_travel_to_tasks() -> None:
    options = read(topic=None, topicPattern="o.*", startingOffsets="earliest")
    assert pickle.loads(pickle.dumps(options)) == options


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topik": "x"}, "unknown option 'topik': did you mean topic?"),
        ({"startingOffset": "x"}, "unknown option 'startingOffset': did you mean startingOffsets?"),
        ({"MAXOFFSETPERTRIGGER": "1"}, "did you mean maxOffsetsPerTrigger?"),
        ({"kafka.bootstrap.servers": "x"}, "unknown option 'kafka.bootstrap.servers'"),
        ({"zzzzzz": "x"}, "unknown option 'zzzzzz': the README lists all options"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss is 'no': write true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is '0': write a whole number"),
        ({"batchBytes": "big"}, "option batchBytes is 'big': write a size such as 512k"),
        ({"timeout": "0s"}, "timeout must be more than 0"),
        ({"messageModel": "ANY"}, "option messageModel is 'ANY': write one of CLUSTERING"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first'; it is earliest, latest, group"),
        ({"startingOffsets": "{"}, "startingOffsets is not JSON"),
        ({"startingOffsets": '{"T":{"b":{"0":-3}}}'}, 'T.b."0" is -3'),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest'; it is latest"),
        ({"startingOffsetsByTimestamp": '{"T":{"b":[1]}}'}, "startingOffsetsByTimestamp: T.b is"),
        ({"nameServer": None}, "option nameServer is missing"),
        ({"nameServer": " "}, "option nameServer is ' ': it is empty"),
        ({"topic": None}, "nothing to read: set topic, topicPattern or assign"),
        ({"topic": "a,a"}, "option topic is 'a,a': a is there twice"),
        ({"topic": None, "assign": "{}"}, "nothing to read: assign names no queue"),
        ({"topic": None, "assign": '{"T":{"b":[0,0]}}'}, "assign: T.b holds 0 twice"),
        ({"allocate.config": '{"m":3}'}, "allocate.config: m: the whole is 3"),
        ({"allocate.config": '{"m":{"T":{"b":[-1]}}}'}, "allocate.config: m: T.b holds -1"),
        ({"topic": None, "topicPattern": "["}, "not a regular expression"),
    ],
)
def test_a_mistake_is_refused_with_what_is_wrong(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_options({k: v for k, v in {**LEAST, **changes}.items() if v is not None})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topicPattern": "x"}, "topic and topicPattern both say which topics to read"),
        ({"assign": '{"T":{"b":[0]}}'}, "topic and assign both say which topics to read"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "1"},
            "startingOffsets and startingTimestamp both say where to start",
        ),
        (
            {"endingTimestamp": "1", "endingOffsetsByTimestamp": '{"T":{"b":{"0":1}}}'},
            "both say where to end",
        ),
        (
            {"startingTimestamp": "10", "endingTimestamp": "9"},
            "startingTimestamp (10) is after endingTimestamp (9)",
        ),
        (
            {"subExpression": "A", "sqlExpression": "a > 1"},
            "subExpression and sqlExpression both select messages",
        ),
        ({"accessKey": "me"}, "secretKey is missing"),
        ({"secretKey": "me"}, "accessKey is missing"),
        ({"securityToken": "t"}, "securityToken needs accessKey and secretKey"),
        ({"tls.key": "k.pem"}, "tls.key needs tls.cert"),
        (
            {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"},
            "minOffsetsPerTrigger (10) is more than maxOffsetsPerTrigger (9)",
        ),
        ({"startingOffsets": "group"}, "startingOffsets=group needs consumerGroup"),
        (
            {"executors": "Group"},
            "executors=group needs consumerGroup: a group of this query's own",
        ),
        ({"topic": None, "topicPattern": "x", "waitForTopic": "1s"}, "waitForTopic waits for"),
    ],
)
def test_a_contradiction_is_refused_with_the_reason(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_options({k: v for k, v in {**LEAST, **changes}.items() if v is not None})
    assert words in str(caught.value)


def test_a_part_of_the_pair_alone_is_fine() -> None:
    assert read(endingTimestamp="9").ending_timestamp == 9
    assert read(startingTimestamp="10").starting_timestamp == 10
    assert read(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="9").min_offsets_per_trigger == 9
    assert read(startingOffsets="group", consumerGroup="g").starting_offsets == "group"


def test_an_option_of_the_other_kind_of_query() -> None:
    assert refusal(STREAM, endingOffsets="latest") == (
        "option endingOffsets is for a batch query; this is a stream query"
    )
    assert refusal(BATCH, maxOffsetsPerTrigger="1") == (
        "option maxOffsetsPerTrigger is for a stream query; this is a batch query"
    )
    assert read(endingOffsets="latest").ending_offsets == "latest"  # either, as long as unknown


# --- strategies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("avg", {}),
        ("AVG_BY_CIRCLE", {}),
        ("CONSISTENT_HASH", {"allocate.virtualNodes": "5"}),
        ("CONFIG", {"allocate.config": '{"idc1-m":{"T":{"idc1@b":[0]}}}'}),
        ("MACHINE_ROOM", {"allocate.rooms": "idc1"}),
        ("MACHINE_ROOM_NEARBY", {"allocate.memberRooms": "idc1-=idc1,idc2-=idc2"}),
        (
            "MACHINE_ROOM_NEARBY-FIXED",
            {"allocate.memberRooms": "idc=idc1", "allocate.hosts": "idc1-m"},
        ),
        ("FIXED", {"allocate.hosts": "idc1-m"}),
        ("STICKY", {}),
        ("BY_LAG", {}),
    ],
)
def test_every_strategy_can_be_chosen(strategy: str, options: dict[str, str]) -> None:
    chosen = plan_options(read_options({**LEAST, "allocate.strategy": strategy, **options}))
    queue = MessageQueue("T", "idc1@b", 0)
    planned = plan([queue], ["idc1-m", "idc2-m"], {queue: 3}, {queue: 9}, chosen)
    assert planned.ends == {queue: 9}
    assert planned.strategy.startswith(strategy.upper())
    if strategy.startswith(("FIXED", "CONFIG", "MACHINE_ROOM_NEARBY")):
        assert planned.assignment["idc1-m"] == (queue,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"allocate.strategy": "FIXED"}, "allocate.strategy=FIXED needs allocate.hosts"),
        ({"allocate.strategy": "CONFIG"}, "allocate.strategy=CONFIG needs allocate.config"),
        ({"allocate.strategy": "MACHINE_ROOM"}, "needs allocate.rooms"),
        ({"allocate.strategy": "MACHINE_ROOM_NEARBY"}, "needs allocate.memberRooms"),
        ({"allocate.strategy": "AVGG"}, "unknown allocation strategy 'AVGG'; did you mean AVG?"),
        ({"allocate.hosts": "h"}, "strategy AVG has no parameter 'hosts'"),
        ({"allocate.brokerRooms": "b=r"}, "strategy AVG has no parameter 'room_of_broker'"),
    ],
)
def test_a_strategy_and_its_parameters(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_options(read_options({**LEAST, **options}))
    assert words in str(caught.value)


# --- secrets ----------------------------------------------------------------------------------


def test_a_repr_shows_what_was_set_and_no_secret() -> None:
    options = read(accessKey="alice", secretKey="s3cret", securityToken="t0ken", retries="5")
    text = repr(options)
    assert "alice" not in text and "s3cret" not in text and "t0ken" not in text
    assert "accessKey=***, secretKey=***, securityToken=***" in text
    assert "nameServer='127.0.0.1:9876'" in text and "retries=5" in text
    assert "batchBytes" not in text


def test_a_refusal_shows_no_secret() -> None:
    assert "***" in refusal(accessKey="a", secretKey="  ")


# --- the table --------------------------------------------------------------------------------


def test_the_table_has_every_option_once() -> None:
    lines = as_markdown().splitlines()
    named = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert named == NAMES
    assert [line for line in lines if line.startswith("**")] == [
        f"**{section}**"
        for section in ("Where", "What", "From, to", "How much", "Who", "Safety", "Speed")
    ]


def test_a_row_of_the_table() -> None:
    assert (
        "| `subExpression` | `*` | stream, batch | Only these tags: `TagA \\|\\| TagB`. "
        "The broker filters. |" in as_markdown()
    )
