"""The offset's text outlives releases; its rules lose nothing and read nothing twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.offsets import (
    DataLoss,
    Offsets,
    advance,
    batch_starts,
    find_losses,
    new_queues,
    parse_ending_offsets,
    parse_queues,
    parse_starting_offsets,
    parse_timestamps,
    resolve,
    skip_losses,
)
from rocketmq_spark.core.plan import PlanOptions, plan
from rocketmq_spark.errors import UsageError

SAMPLES = Path(__file__).parent.parent / "data" / "offsets"
A0, A1, A2 = (MessageQueue("TopicA", "broker-a", number) for number in range(3))
B0 = MessageQueue("TopicA", "broker-b", 0)


# --- the text ---------------------------------------------------------------------------------

EXPECTED = {
    "v1-initial": Offsets.initial(),
    "v1-no-queues": Offsets(),
    "v1-first-batch": Offsets({A0: 17, A1: 0, B0: 5}, {A0: 12, A1: 0, B0: 5}),
    "v1-later-batch": Offsets({A0: 40, A1: 2, B0: 9}),
    "v1-new-queues": Offsets(
        {A0: 41, A1: 2, A2: 3, MessageQueue("TopicA", "broker-a", 10): 8, B0: 9},
        {A2: 0, MessageQueue("TopicA", "broker-a", 10): 1},
    ),
    "v1-odd-names": Offsets(
        {
            MessageQueue("%RETRY%group", "room1@broker-a", 0): 2**63 - 1,
            MessageQueue("订单-😀", "broker.example:10911", 2**31 - 1): 1,
        }
    ),
}


def test_every_sample_is_known() -> None:
    assert {path.stem for path in SAMPLES.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_released_forms_stay_readable_and_are_written_the_same(name: str) -> None:
    text = (SAMPLES / f"{name}.json").read_text(encoding="utf-8").strip()
    assert Offsets.parse(text) == EXPECTED[name]
    assert Offsets.parse(json.loads(text)) == EXPECTED[name]
    assert EXPECTED[name].to_json() == text


def test_the_text_does_not_depend_on_the_order_of_finding() -> None:
    one = Offsets({A1: 1, B0: 2, A0: 3}, {B0: 2, A0: 0})
    other = Offsets({A0: 3, A1: 1, B0: 2}, {A0: 0, B0: 2})
    assert one.to_json() == other.to_json()
    # Spark writes the dict itself, with its own separators.
    assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())


def test_one_line_reprs() -> None:
    assert repr(Offsets.initial()) == "<Offsets unresolved>"
    assert repr(Offsets({A0: 3, B0: 4}, {A0: 1})) == "<Offsets 2 queues at 7, 1 begun here>"


names = st.text(min_size=1, max_size=5)
positions = st.dictionaries(
    st.builds(MessageQueue, names, names, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)
)


@given(positions, st.randoms())
def test_there_and_back(at: dict[MessageQueue, int], rng: Any) -> None:
    begun = {queue: rng.randint(0, end) for queue, end in at.items() if rng.random() < 0.5}
    made = Offsets(at, begun)
    assert Offsets.parse(made.to_json()) == made
    assert Offsets.parse(json.loads(json.dumps(made.to_dict()))) == made


def checkpoint(inner: str) -> str:
    return '{"version":1,"offsets":' + inner + "}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"version":1,\n "offsets":{]}', "is not JSON: Expecting property name enclosed"),
        ('{"version":1,\n "offsets":{]}', "at line 2, column 13"),
        ("", "at line 1, column 1"),
        ("[" * 100_000, "nested too deeply"),
        (checkpoint('{"T":{"b":{"0":' + "9" * 5000 + "}}}"), "the offset in the checkpoint"),
        ("[1]", "the whole is [1]; it must be a map"),
        ("{}", "version is None"),
        ('{"version":"1"}', "version is '1'"),
        ('{"version":true}', "version is True"),
        ('{"version":0}', "version is 0"),
        ('{"version":2,"cursors":[]}', "has version 2, and this rocketmq-spark reads up to 1"),
        ('{"version":99}', "upgrade rocketmq-spark"),
        ('{"version":1}', 'it has no "offsets"'),
        ('{"version":1,"start":"latest"}', "start is not a part of version 1"),
        ('{"version":1,"offsets":{},"ofsets":{}}', "ofsets is not a part of version 1"),
        ('{"version":1,"version":1,"offsets":{}}', "version stands there twice"),
        (checkpoint("[]"), "offsets is []; it must be a map of topics"),
        (checkpoint('{"":{}}'), "offsets has '' as a name"),
        (checkpoint('{"TopicA":7}'), "offsets.TopicA is 7; it must be a map of broker names"),
        (
            checkpoint('{"TopicA":{"broker-a":null}}'),
            "offsets.TopicA.broker-a is null; it must be a map of queue ids",
        ),
        (
            checkpoint('{"TopicA":{"broker-a":{"0":"17"}}}'),
            'offsets.TopicA.broker-a."0" is "17"; an offset is a whole number of 0 or more',
        ),
        (checkpoint('{"TopicA":{"broker-a":{"0":1.0}}}'), 'offsets.TopicA.broker-a."0" is 1.0'),
        (checkpoint('{"TopicA":{"broker-a":{"0":true}}}'), 'broker-a."0" is true'),
        (checkpoint('{"TopicA":{"broker-a":{"0":-1}}}'), 'broker-a."0" is -1'),
        (checkpoint('{"TopicA":{"broker-a":{"0":NaN}}}'), 'broker-a."0" is NaN'),
        (checkpoint('{"T":{"b":{"0":9223372036854775808}}}'), '"0" is 9223372036854775808'),
        (checkpoint('{"T":{"b":{"00":1}}}'), 'offsets.T.b."00" is no queue'),
        (checkpoint('{"T":{"b":{"-1":1}}}'), 'offsets.T.b."-1" is no queue'),
        (checkpoint('{"T":{"b":{"２":1}}}'), "is no queue"),
        (checkpoint('{"T":{"b":{"2147483648":1}}}'), "is no queue"),
        (checkpoint('{"T":{"a@b":{"0":1,"0":2}}}'), 'offsets.T."a@b"."0" stands there twice'),
        (checkpoint('{"T":{"b":{}},"T":{}}'), "offsets.T stands there twice"),
        (
            '{"version":1,"offsets":{},"from":{"T":{"b":{"0":1}}}}',
            'from.T.b."0" has no offsets.T.b."0"',
        ),
        (
            '{"version":1,"offsets":{"T":{"b":{"0":1}}},"from":{"T":{"b":{"0":2}}}}',
            'from.T.b."0" is 2, after its end in offsets, 1',
        ),
    ],
)
def test_a_bad_checkpoint_is_refused_with_the_place(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Offsets.parse(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("the offset in the checkpoint")
    assert "\n" not in str(caught.value)


# --- what the user asks for -------------------------------------------------------------------


def test_words_and_json() -> None:
    assert parse_starting_offsets(" Earliest ") == "earliest"
    assert parse_starting_offsets("group") == "group"
    assert parse_ending_offsets("latest") == "latest"
    text = '{"TopicA":{"broker-a":{"0":-2,"1":-1},"broker-b":{"0":23}}}'
    assert parse_starting_offsets(text) == {A0: -2, A1: -1, B0: 23}
    assert parse_timestamps('{"TopicA":{"broker-a":{"0":1700000000000}}}', "x") == {
        A0: 1700000000000
    }
    assert parse_queues('{"TopicA":{"broker-b":[0],"broker-a":[1,0]}}') == [A0, A1, B0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: parse_starting_offsets("oldest"), "startingOffsets is 'oldest'; it is earliest, "),
        (lambda: parse_starting_offsets("[]"), "or JSON such as"),
        (lambda: parse_starting_offsets('{"T":{"b":{"0":-3}}}'), 'T.b."0" is -3'),
        (lambda: parse_starting_offsets('{"T"}'), "startingOffsets is not JSON: Expecting ':'"),
        (lambda: parse_ending_offsets("earliest"), "endingOffsets is 'earliest'; it is latest, or"),
        (lambda: parse_ending_offsets('{"T":{"b":{"0":-2}}}'), 'endingOffsets: T.b."0" is -2'),
        (lambda: parse_timestamps('{"T":{"b":{"0":-1}}}', "x"), "a timestamp in milliseconds is"),
        (lambda: parse_queues('{"T":{"b":3}}'), "assign: T.b is 3; it must be a list of queue ids"),
        (lambda: parse_queues('{"T":{"b":["3"]}}'), 'assign: T.b holds "3"'),
        (lambda: parse_queues('{"T":{"b":[1,1]}}'), "assign: T.b holds 1 twice"),
    ],
)
def test_bad_options_are_refused_with_the_place(call: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert words in str(caught.value)


FIRST, LAST = {A0: 10, A1: 0}, {A0: 50, A1: 7}


def test_resolve() -> None:
    queues = [A0, A1]
    assert resolve("earliest", queues, FIRST, LAST) == FIRST
    assert resolve("latest", queues, FIRST, LAST) == LAST
    assert resolve("group", queues, FIRST, LAST, committed={A0: 12, A1: -1}) == {A0: 12, A1: 7}
    assert resolve("group", queues, FIRST, LAST) == LAST
    assert resolve({A0: -2, A1: -1}, queues, FIRST, LAST) == {A0: 10, A1: 7}
    assert resolve({A0: 33, A1: 0}, queues, FIRST, LAST) == {A0: 33, A1: 0}
    retry = MessageQueue("%RETRY%group", "broker-a", 0)
    assert resolve("group", [retry], {retry: 3}, {retry: 9}) == {retry: 3}


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({A0: 1}, "does not name TopicA/broker-a/1; name every queue"),
        ({A0: 1, A1: 1, B0: 1}, "names TopicA/broker-b/0, which the topics do not have"),
        ({A0: 1, B0: 1}, "does not name TopicA/broker-a/1 and names TopicA/broker-b/0"),
        ("newest", "'newest'"),
    ],
)
def test_json_names_exactly_the_queues(where: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve(where, [A0, A1], FIRST, LAST)


# --- from one offset to the next --------------------------------------------------------------


def test_the_first_end_offset_holds_the_resolved_start() -> None:
    start = Offsets.initial()
    assert new_queues(start, [A1, A0]) == [A0, A1]
    begun = resolve("latest", [A0, A1], FIRST, LAST)
    pinned = advance(start, {}, begun)
    assert pinned == Offsets(begun, begun)
    # After a crash in batch 0 the brokers hold more, but the batch is the same.
    assert batch_starts(Offsets.initial(), pinned) == begun


def test_no_queues_yet_is_not_the_symbol() -> None:
    """A topic that is made later is read from its first message, also with `latest`."""
    pinned = advance(Offsets.initial(), {}, {})
    assert pinned == Offsets()
    assert pinned.to_json() != Offsets.initial().to_json()


def test_nothing_new_is_the_very_same_offset() -> None:
    start = Offsets({A0: 5, A1: 6}, {A0: 1})
    assert advance(start, {A0: 5}, {}) is start
    assert advance(start, {A0: 5, A1: 6}, {A0: 5}) is start


def test_new_and_vanished_queues() -> None:
    start = Offsets({A0: 5, B0: 6}, {A0: 1})
    end = advance(start, {A0: 9, A1: 3}, {A1: 0})
    assert end == Offsets({A0: 9, A1: 3, B0: 6}, {A1: 0})
    assert batch_starts(start, end) == {A0: 5, A1: 0, B0: 6}


def test_a_batch_between_an_offset_and_itself_is_empty() -> None:
    same = Offsets({A0: 5}, {A0: 1})
    assert batch_starts(same, same) == {A0: 5}


def test_a_start_that_is_nowhere_is_refused() -> None:
    with pytest.raises(UsageError, match="TopicA/broker-a/1 but says nowhere where to begin"):
        batch_starts(Offsets({A0: 1}), Offsets({A0: 1, A1: 2}))


# --- data loss --------------------------------------------------------------------------------


def test_losses_are_described() -> None:
    expired, anew, cut = (
        DataLoss(A0, wanted=5, first=100, last=250),
        DataLoss(A1, wanted=90, first=0, last=20),
        DataLoss(B0, wanted=90, first=40, last=80),
    )
    positions = {A0: 5, A1: 90, B0: 90, A2: 1}
    first = {A0: 100, A1: 0, B0: 40}
    last = {A0: 250, A1: 20, B0: 80}
    assert find_losses(positions, first, last) == [expired, anew, cut]
    assert skip_losses([expired, anew, cut]) == {A0: 100, A1: 0, B0: 80}
    assert str(expired) == (
        "TopicA/broker-a/0: offset 5 is wanted and 100 to 250 are there, so 95 messages were "
        "deleted before they were read; it can go on from 100"
    )
    assert "made anew" in str(anew)
    assert str(cut).endswith("; it can go on from 80")


def test_the_limits_themselves_are_no_loss() -> None:
    assert find_losses({A0: 10}, {A0: 10}, {A0: 50}) == []
    assert find_losses({A0: 50}, {A0: 10}, {A0: 50}) == []
    assert len(find_losses({A0: 51}, {A0: 10}, {A0: 50})) == 1
    assert len(find_losses({A0: 9}, {A0: 10}, {A0: 50})) == 1


def test_a_skipped_loss_is_replayed_the_same() -> None:
    start = Offsets({A0: 5, A1: 2})
    skipped = skip_losses(find_losses(start.positions, {A0: 100, A1: 0}, {A0: 250, A1: 4}))
    end = advance(start, {A0: 120, A1: 4}, skipped)
    assert batch_starts(start, Offsets.parse(end.to_json())) == {A0: 100, A1: 2}


# --- a whole life -----------------------------------------------------------------------------


@given(st.randoms(use_true_random=False))
def test_every_message_is_read_once_through_restarts_and_changes(rng: Any) -> None:
    """Queues come and go, each batch may be replayed: what was read has no gap and no overlap."""
    queues = [MessageQueue("T", "b", number) for number in range(6)]
    last = dict.fromkeys(queues, 0)
    read: dict[MessageQueue, int] = {}
    start = Offsets.initial()
    for _ in range(12):
        for queue in queues:
            last[queue] += rng.choice([0, 0, 1, 30])
        route = rng.sample(queues, rng.randint(0, 6))
        begun = dict.fromkeys(new_queues(start, route), 0)
        at = {**start.positions, **begun}
        options = PlanOptions(max_records=rng.choice([1, 5, 50]))
        made = plan(route, ["m1", "m2"], at, {q: last[q] for q in route}, options)
        end = advance(start, made.ends, begun)
        text = end.to_json()
        for _ in range(rng.randint(1, 2)):  # planned again after a crash, with other members
            replay = Offsets.parse(text)
            starts = batch_starts(start, replay)
            batch = plan(replay.positions, ["m3"], starts, replay.positions, promised=True)
        for partition in batch.partitions:
            for part in partition.ranges:
                assert part.start == read.get(part.queue, 0)
                read[part.queue] = part.end
        start = replay
    assert read == {queue: at for queue, at in start.positions.items() if at}
