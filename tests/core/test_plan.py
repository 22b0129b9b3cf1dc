"""Plans read exactly what they should, once, and say where they stop."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.core.allocate import STRATEGIES, allocate
from rocketmq_spark.core.model import MessageQueue, OffsetRange
from rocketmq_spark.core.plan import BROADCASTING, Partition, Plan, PlanOptions, plan
from rocketmq_spark.errors import UsageError

Q = [MessageQueue("T", "b", number) for number in range(6)]

Offsets = dict[MessageQueue, int]


def offsets(*values: int) -> Offsets:
    return dict(zip(Q, values, strict=False))


def text(made: Plan) -> list[str]:
    return [str(partition).replace("T/b/", "q") for partition in made.partitions]


def covered(ranges: Iterable[OffsetRange]) -> dict[MessageQueue, tuple[int, int]]:
    """What ranges add up to; refuses an empty one, a gap and an overlap."""
    by_queue: dict[MessageQueue, list[OffsetRange]] = defaultdict(list)
    for part in ranges:
        assert part.start < part.end
        by_queue[part.queue].append(part)
    result = {}
    for queue, parts in by_queue.items():
        parts.sort(key=lambda part: part.start)
        assert all(a.end == b.start for a, b in itertools.pairwise(parts))
        result[queue] = (parts[0].start, parts[-1].end)
    return result


def read_by(made: Plan) -> dict[MessageQueue, tuple[int, int]]:
    return covered(part for partition in made.partitions for part in partition.ranges)


# --- examples ---------------------------------------------------------------------------------


def test_one_partition_for_each_member() -> None:
    made = plan(Q[:4], ["m2", "m1"], offsets(0, 0, 0, 0), offsets(5, 6, 7, 8))
    assert text(made) == ["m1: q0[0, 5) q1[0, 6)", "m2: q2[0, 7) q3[0, 8)"]
    assert made.assignment == {"m1": (Q[0], Q[1]), "m2": (Q[2], Q[3])}
    assert made.ends == offsets(5, 6, 7, 8)
    assert made.records == 26
    assert repr(made) == "<Plan AVG: 4 queues among 2 members, 26 messages in 2 partitions>"


def test_nothing_to_read_makes_no_partition_but_queues_have_owners() -> None:
    made = plan(Q[:4], ["m1", "m2", "m3"], offsets(3, 3, 3, 3), offsets(3, 9, 3, 3))
    assert text(made) == ["m1: q1[3, 9)"]
    assert made.assignment == {"m1": (Q[0], Q[1]), "m2": (Q[2],), "m3": (Q[3],)}
    idle = plan(Q[:2], ["m1"], offsets(3, 3), offsets(3, 3))
    assert idle.partitions == ()
    assert idle.assignment == {"m1": (Q[0], Q[1])}


def test_the_limit_is_shared_in_proportion() -> None:
    options = PlanOptions(max_records=100)
    made = plan(Q[:3], ["m1"], offsets(10, 20, 30), offsets(910, 120, 31), options)
    assert made.ends == offsets(10 + 89, 20 + 10, 30 + 1)


def test_partitions_are_split() -> None:
    starts, ends = offsets(0, 0), offsets(30, 10)
    made = plan(Q[:2], ["m1", "m2"], starts, ends, PlanOptions(min_partitions=4))
    assert text(made) == ["m1: q0[0, 10)", "m1: q0[10, 20)", "m1: q0[20, 30)", "m2: q1[0, 10)"]
    made = plan(Q[:2], ["m1"], starts, ends, PlanOptions(max_records_per_partition=25))
    assert text(made) == ["m1: q0[0, 20)", "m1: q0[20, 30) q1[0, 10)"]


def test_by_lag_splits_a_queue_that_is_too_much_for_one() -> None:
    ends = offsets(80, 4, 4, 4, 4, 4)
    options = PlanOptions(strategy="BY_LAG")
    made = plan(Q, ["m1", "m2"], dict.fromkeys(Q, 0), ends, options)
    assert text(made) == [
        "m1: q0[0, 50)",
        "m2: q0[50, 80) q1[0, 4) q2[0, 4) q3[0, 4) q4[0, 4) q5[0, 4)",
    ]
    assert made.assignment == {"m1": (Q[0],), "m2": tuple(Q)}
    assert made.ends == ends


def test_by_lag_of_nothing_deals_the_queues_out() -> None:
    zeros = dict.fromkeys(Q, 0)
    made = plan(Q, ["m1", "m2"], zeros, zeros, PlanOptions(strategy="BY_LAG"))
    assert made.assignment == {"m1": (Q[0], Q[2], Q[4]), "m2": (Q[1], Q[3], Q[5])}


def test_by_lag_weighs_what_the_limit_leaves() -> None:
    options = PlanOptions(strategy="BY_LAG", max_records=40)
    made = plan(Q[:2], ["m1", "m2"], offsets(0, 0), offsets(300, 100), options)
    assert [partition.records for partition in made.partitions] == [20, 20]


def test_by_lag_by_topic() -> None:
    queues = [MessageQueue(topic, "b", 0) for topic in ("A", "B")]
    options = PlanOptions(strategy="BY_LAG", scope="topic")
    made = plan(queues, ["m1", "m2"], dict.fromkeys(queues, 0), dict.fromkeys(queues, 10), options)
    assert [str(partition) for partition in made.partitions] == [
        "m1: A/b/0[0, 5) B/b/0[0, 5)",
        "m2: A/b/0[5, 10) B/b/0[5, 10)",
    ]


def test_by_lag_inside_rooms_gets_its_weights() -> None:
    options = PlanOptions(
        strategy="MACHINE_ROOM_NEARBY",
        params={
            "inner": "BY_LAG",
            "room_of_broker": lambda b: "r",
            "room_of_member": lambda m: "r",
        },
    )
    made = plan(Q[:3], ["m1", "m2"], offsets(0, 0, 0), offsets(10, 10, 20), options)
    assert made.strategy == "MACHINE_ROOM_NEARBY-BY_LAG"
    assert made.assignment == {"m1": (Q[2],), "m2": (Q[0], Q[1])}


def test_broadcasting_gives_every_member_every_range() -> None:
    options = PlanOptions(message_model=BROADCASTING, max_records=10)
    made = plan(Q[:2], ["m1", "m2", "m3"], offsets(0, 0), offsets(100, 100), options)
    everything = (OffsetRange(Q[0], 0, 5), OffsetRange(Q[1], 0, 5))
    assert made.partitions == tuple(Partition(m, everything) for m in ("m1", "m2", "m3"))
    assert made.assignment == dict.fromkeys(("m1", "m2", "m3"), (Q[0], Q[1]))
    assert made.ends == offsets(5, 5)
    assert made.records == 30


def test_broadcasting_splits_too() -> None:
    options = PlanOptions(message_model=BROADCASTING, min_partitions=5)
    made = plan(Q[:1], ["m1", "m2"], offsets(0), offsets(9), options)
    assert [p.records for p in made.partitions] == [3, 3, 3] * 2
    for member in ("m1", "m2"):
        own = (r for p in made.partitions if p.member == member for r in p.ranges)
        assert covered(own) == {Q[0]: (0, 9)}


def test_sticky_keeps_the_plan_before() -> None:
    zeros = dict.fromkeys(Q, 0)
    options = PlanOptions(strategy="STICKY")
    before = {"m1": [Q[5], Q[0]], "m2": [Q[4], Q[1]], "m3": [Q[2], Q[3]]}
    made = plan(Q, ["m1", "m2", "m3"], zeros, zeros, options, previous=before)
    assert made.assignment == {"m1": (Q[0], Q[5]), "m2": (Q[1], Q[4]), "m3": (Q[2], Q[3])}


# --- queues that nobody owns ------------------------------------------------------------------

FIXED = PlanOptions(strategy="FIXED", params={"hosts": ["h"]}, max_records=6)


def test_a_queue_without_an_owner_stays_where_it_is() -> None:
    starts, ends = offsets(1, 2, 3), offsets(10, 10, 10)
    nobody = plan(Q[:3], ["other@1"], starts, ends, FIXED)
    assert nobody.partitions == ()
    assert nobody.ends == starts
    assert nobody.unowned == tuple(Q[:3])
    assert repr(nobody).endswith("0 messages in 0 partitions, 3 queues unowned>")


def test_the_limit_goes_to_queues_that_are_read() -> None:
    options = PlanOptions(strategy="CONFIG", params={"config": {"m1": [Q[1]]}}, max_records=6)
    made = plan(Q[:3], ["m1", "m2"], offsets(1, 2, 3), offsets(10, 10, 10), options)
    assert made.ends == offsets(1, 8, 3)
    assert made.unowned == (Q[0], Q[2])


def test_a_promised_batch_is_read_whole_whoever_has_gone() -> None:
    starts, ends = offsets(1, 2, 3), offsets(10, 10, 10)
    made = plan(Q[:3], ["other@1", "other@2"], starts, ends, FIXED, promised=True)
    assert read_by(made) == {queue: (starts[queue], 10) for queue in Q[:3]}
    assert made.ends == ends


def test_no_members() -> None:
    made = plan(Q[:2], [], offsets(1, 2), offsets(5, 5))
    assert (made.assignment, made.partitions, made.ends) == ({}, (), offsets(1, 2))
    assert made.unowned == (Q[0], Q[1])
    assert plan(Q[:2], [], offsets(5, 5), offsets(5, 5), promised=True).partitions == ()


def test_config_may_name_queues_that_are_not_there() -> None:
    options = PlanOptions(strategy="CONFIG", params={"config": {"m1": [Q[1], Q[5], Q[1], Q[0]]}})
    made = plan(Q[:2], ["m1"], offsets(0, 0), offsets(1, 1), options)
    assert text(made) == ["m1: q0[0, 1) q1[0, 1)"]


# --- mistakes ---------------------------------------------------------------------------------


def both_own_q0() -> PlanOptions:
    return PlanOptions(strategy="CONFIG", params={"config": {"m1": [Q[0]], "m2": [Q[0]]}})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plan(Q[:1], ["m"], {}, offsets(1)), "no start offset for T/b/0"),
        (lambda: plan(Q[:1], ["m"], offsets(1), {}), "no end offset for T/b/0"),
        (lambda: plan(Q[:1], ["m"], offsets(9), offsets(5)), "cannot be read from 9 to 5"),
        (lambda: plan(Q[:1], ["m"], offsets(-2), offsets(5)), "cannot be read from -2 to 5"),
        (lambda: plan([Q[0], Q[0]], ["m"], offsets(1), offsets(1)), "listed twice"),
        (lambda: plan(Q[:1], ["m", "m"], offsets(1), offsets(1)), "listed twice"),
        (
            lambda: plan(Q[:1], [], offsets(0), offsets(1), promised=True),
            "set the option executors",
        ),
        (
            lambda: plan(Q[:1], ["m"], offsets(0, 0), offsets(1, 7), promised=True),
            "T/b/1 is to be read up to 7 but is not among the queues",
        ),
        (
            lambda: plan(Q[:1], ["m1", "m2"], offsets(0), offsets(1), both_own_q0()),
            "CONFIG gives T/b/0 to both m1 and m2",
        ),
        (lambda: PlanOptions(strategy="AVERAGE"), "unknown allocation strategy"),
        (lambda: PlanOptions(strategy="FIXED"), "FIXED needs hosts="),
        (lambda: PlanOptions(params={"hosts": []}), "AVG has no parameter 'hosts'"),
        (lambda: PlanOptions(message_model="ANYCAST"), "CLUSTERING or BROADCASTING"),
        (lambda: PlanOptions(max_records=0), "at least 1"),
        (lambda: PlanOptions(min_partitions=-1), "at least 1"),
    ],
)
def test_bad_input_is_refused(call: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        call()


# --- promises for any input -------------------------------------------------------------------

PARAMS: dict[str, dict[str, Any]] = {
    "CONFIG": {"config": {"h@1": [Q[0], Q[3]]}},
    "MACHINE_ROOM": {"rooms": ["r"]},
    "MACHINE_ROOM_NEARBY": {"room_of_broker": lambda b: b[:1], "room_of_member": lambda m: m[:1]},
    "FIXED": {"hosts": ["h"]},
}
queue_sets = st.lists(
    st.builds(
        MessageQueue, st.sampled_from("TU"), st.sampled_from(["b", "r@x"]), st.integers(0, 9)
    ),
    unique=True,
    max_size=25,
)
member_sets = st.lists(st.sampled_from([f"{h}@{n}" for h in "hbr" for n in range(3)]), unique=True)
amounts = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 5000))
maybe = st.one_of(st.none(), st.integers(1, 40))


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[MessageQueue], Offsets, Offsets]:
    queues = draw(queue_sets)
    starts = {queue: draw(st.integers(0, 1000)) for queue in queues}
    return queues, starts, {queue: start + draw(amounts) for queue, start in starts.items()}


@given(
    batches(), member_sets, maybe, maybe, maybe, st.sampled_from(["all", "topic"]), st.booleans()
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranges_are_disjoint_and_stop_where_the_plan_says(
    strategy: str,
    batch: tuple[list[MessageQueue], Offsets, Offsets],
    members: list[str],
    limit: int | None,
    min_partitions: int | None,
    largest: int | None,
    scope: Any,
    promised: bool,
) -> None:
    queues, starts, ends = batch
    options = PlanOptions(
        strategy=strategy,
        scope=scope,
        params=PARAMS.get(strategy, {}),
        max_records=limit,
        min_partitions=min_partitions,
        max_records_per_partition=largest,
    )
    if promised and not members:
        return
    made = plan(queues, members, starts, ends, options, promised=promised)
    again = plan(queues[::-1], members[::-1], starts, ends, options, promised=promised)
    assert made == again

    assert set(made.ends) == set(queues)
    assert read_by(made) == {q: (starts[q], e) for q, e in made.ends.items() if e > starts[q]}
    if promised:
        assert made.ends == ends
    else:
        owned = [queue for queue in queues if queue not in made.unowned]
        there_is = sum(ends[queue] - starts[queue] for queue in owned)
        assert made.records == (there_is if limit is None else min(limit, there_is))

    assert list(made.assignment) == sorted(members)
    for partition in made.partitions:
        assert {part.queue for part in partition.ranges} <= set(made.assignment[partition.member])
        if largest:
            assert partition.records <= largest
    if min_partitions:
        assert len(made.partitions) >= min(min_partitions, made.records)


@given(batches(), member_sets.filter(bool))
@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "STICKY"])
def test_the_assignment_is_the_strategys(
    strategy: str, batch: tuple[list[MessageQueue], Offsets, Offsets], members: list[str]
) -> None:
    queues, starts, ends = batch
    made = plan(queues, members, starts, ends, PlanOptions(strategy=strategy))
    expected = allocate(strategy, queues, members)
    assert made.assignment == {member: tuple(owned) for member, owned in expected.items()}


@given(batches(), member_sets.filter(bool))
def test_by_lag_tasks_end_together(
    batch: tuple[list[MessageQueue], Offsets, Offsets], members: list[str]
) -> None:
    queues, starts, ends = batch
    made = plan(queues, members, starts, ends, PlanOptions(strategy="BY_LAG"))
    average = -(-made.records // len(members))
    assert all(partition.records * 10 <= average * 11 for partition in made.partitions)


@given(batches(), st.integers(1, 30))
def test_successive_batches_reach_the_end_of_every_queue(
    batch: tuple[list[MessageQueue], Offsets, Offsets], limit: int
) -> None:
    queues, starts, ends = batch
    ends = {queue: min(end, starts[queue] + 60) for queue, end in ends.items()}
    backlog = sum(ends[queue] - starts[queue] for queue in queues)
    options = PlanOptions(max_records=limit)
    for _ in range(-(-backlog // limit)):
        starts = dict(plan(queues, ["m"], starts, ends, options).ends)
    assert starts == ends
