"""The worked examples of every strategy, and what each one promises for any input."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.core.allocate import STRATEGIES, Allocation, allocate, strategy_name
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import UsageError


def topic_queues(topic: str, **brokers: int) -> list[MessageQueue]:
    return [MessageQueue(topic, b, i) for b, count in brokers.items() for i in range(count)]


def short(allocation: Allocation) -> dict[str, str]:
    """`{"m1": "a0 a1"}`, as the docstrings write it."""
    return {
        member: " ".join(f"{queue.broker_name}{queue.queue_id}" for queue in owned)
        for member, owned in allocation.items()
    }


def sizes(allocation: Allocation) -> list[int]:
    return [len(owned) for owned in allocation.values()]


NINE = topic_queues("T", a=3, b=3, c=3)
EIGHT = topic_queues("T", **{"b-a": 4, "b-b": 4})
FIVE = topic_queues("T", q=5)
FOUR_MEMBERS = [f"192.168.0.{n}@1595{n}" for n in (6, 7, 8, 9)]

# Enough for each strategy to run at all, on any queues and members.
PARAMS: dict[str, dict[str, Any]] = {
    "CONFIG": {"config": {}},
    "MACHINE_ROOM": {"rooms": ["r"]},
    "MACHINE_ROOM_NEARBY": {"room_of_broker": lambda b: "r", "room_of_member": lambda m: "r"},
    "FIXED": {"hosts": ["h"]},
}


# --- worked examples --------------------------------------------------------------------------


def test_avg_is_like_pages_of_a_book() -> None:
    assert short(allocate("AVG", NINE, FOUR_MEMBERS)) == {
        "192.168.0.6@15956": "a0 a1 a2",
        "192.168.0.7@15957": "b0 b1",
        "192.168.0.8@15958": "b2 c0",
        "192.168.0.9@15959": "c1 c2",
    }
    assert sizes(allocate("AVG", topic_queues("T", q=10), ["m1", "m2", "m3"])) == [4, 3, 3]
    assert sizes(allocate("AVG", FIVE, ["m1", "m2", "m3"])) == [2, 2, 1]
    assert sizes(allocate("AVG", topic_queues("T", q=4), list("abcde"))) == [1, 1, 1, 1, 0]


def test_avg_by_circle_deals_like_cards() -> None:
    assert short(allocate("AVG_BY_CIRCLE", FIVE, ["m1", "m2", "m3"])) == {
        "m1": "q0 q3",
        "m2": "q1 q4",
        "m3": "q2",
    }


def test_consistent_hash_vectors() -> None:
    ids = ["c1", "c2", "c3"]
    assert short(allocate("CONSISTENT_HASH", EIGHT, ids)) == {
        "c1": "b-a0 b-a2 b-b0 b-b1 b-b2 b-b3",
        "c2": "b-a3",
        "c3": "b-a1",
    }
    assert short(allocate("CONSISTENT_HASH", EIGHT, ids, virtual_nodes=3)) == {
        "c1": "b-a3 b-b0 b-b1 b-b2 b-b3",
        "c2": "b-a0 b-a2",
        "c3": "b-a1",
    }
    nobody = allocate("CONSISTENT_HASH", EIGHT, ids, virtual_nodes=0)
    assert nobody == {"c1": [], "c2": [], "c3": []}


def test_config_is_what_the_user_wrote() -> None:
    elsewhere = MessageQueue("Other", "z", 7)
    config = {"m1": [FIVE[3], elsewhere, FIVE[3]], "absent": [FIVE[0]]}
    expected = {"m1": [FIVE[3], elsewhere, FIVE[3]], "m2": []}
    for scope in ("all", "topic"):
        answer = allocate("CONFIG", FIVE + EIGHT, ["m2", "m1"], config=config, scope=scope)
        assert answer == expected


def test_machine_room() -> None:
    queues = topic_queues("T", **{"idc1@b-a": 3, "idc1@b-b": 3, "idc2@b-c": 3, "b-d": 3})
    answer = allocate("MACHINE_ROOM", queues, ["c1", "c2", "c3", "c4"], rooms={"idc1"})
    assert {m: s.replace("idc1@b-", "") for m, s in short(answer).items()} == {
        "c1": "a0 b1",
        "c2": "a1 b2",
        "c3": "a2",
        "c4": "b0",
    }


def test_machine_room_splits_names_as_java_does() -> None:
    names = ["r@x@", "r@", "r@@x", "@x", "r@x@y", "r", "@", "r@x"]
    queues = [MessageQueue("T", name, 0) for name in names]
    taken = allocate("MACHINE_ROOM", queues, ["m"], rooms=["r", ""])["m"]
    assert {queue.broker_name for queue in taken} == {"r@x@", "@x", "r@x"}


def test_machine_room_nearby() -> None:
    queues = topic_queues("T", **{"r1-a": 4, "r2-a": 4, "r3-a": 4})
    rooms: dict[str, Any] = dict.fromkeys(
        ("room_of_broker", "room_of_member"), lambda name: name.split("-")[0]
    )
    members = ["r1-c1", "r1-c2", "r2-c1"]
    expected = {
        "r1-c1": "r1-a0 r1-a1 r3-a0 r3-a1",
        "r1-c2": "r1-a2 r1-a3 r3-a2",
        "r2-c1": "r2-a0 r2-a1 r2-a2 r2-a3 r3-a3",
    }
    assert short(allocate("MACHINE_ROOM_NEARBY", queues, members, **rooms)) == expected
    assert short(allocate("MACHINE_ROOM_NEARBY-AVG", queues, members, **rooms)) == expected
    lonely = allocate(
        "MACHINE_ROOM_NEARBY", queues, members, inner="FIXED", hosts=["r1-c2"], **rooms
    )
    assert short(lonely)["r1-c2"] == "r1-a0 r1-a1 r1-a2 r1-a3 r3-a0 r3-a1 r3-a2 r3-a3"


def test_fixed_uses_only_the_chosen_hosts() -> None:
    members = ["10.0.0.1@1#0", "10.0.0.2@2#0", "10.0.0.2@2#1", "10.0.0.22@3#0", "no-at-sign"]
    assert short(allocate("FIXED", FIVE, members, hosts=["10.0.0.2"])) == {
        "10.0.0.1@1#0": "",
        "10.0.0.2@2#0": "q0 q1 q2",
        "10.0.0.2@2#1": "q3 q4",
        "10.0.0.22@3#0": "",
        "no-at-sign": "",
    }
    assert sizes(allocate("FIXED", FIVE, members, hosts=["no-at-sign"])) == [0, 0, 0, 0, 5]
    assert sizes(allocate("FIXED", FIVE, members, hosts=[])) == [0, 0, 0, 0, 0]


def test_sticky_moves_one_queue_where_avg_moves_two() -> None:
    before = allocate("AVG", FIVE, ["m1", "m2"])
    after = allocate("STICKY", FIVE, ["m1", "m2", "m3"], previous=before)
    assert short(after) == {"m1": "q0 q1", "m2": "q3 q4", "m3": "q2"}


def test_by_lag_evens_the_work() -> None:
    weights = dict(zip(FIVE, (70, 30, 20, 20, 10), strict=True))
    answer = allocate("BY_LAG", FIVE, ["m1", "m2"], weights=weights)
    assert short(answer) == {"m1": "q0 q4", "m2": "q1 q2 q3"}


def test_by_lag_spreads_queues_that_weigh_nothing() -> None:
    answer = allocate("BY_LAG", NINE, ["m1", "m2", "m3"], weights={NINE[0]: 50, NINE[1]: 49})
    assert sizes(answer) == [3, 3, 3]
    no_weights = allocate("BY_LAG", NINE, ["m1", "m2", "m3"])
    assert no_weights == allocate("AVG_BY_CIRCLE", NINE, ["m1", "m2", "m3"])


def test_scope() -> None:
    queues = topic_queues("A", b=2) + topic_queues("B", b=2)
    members = ["m1", "m2", "m3", "m4"]
    assert sizes(allocate("AVG", queues, members, scope="topic")) == [2, 2, 0, 0]
    assert sizes(allocate("AVG", queues, members, scope="all")) == [1, 1, 1, 1]
    assert allocate("AVG", queues, members) == allocate("AVG", queues, members, scope="all")


# --- Java's order -----------------------------------------------------------------------------


def test_members_and_queues_sort_by_utf16_code_unit() -> None:
    # As code points U+FF21 comes before U+1F600; in Java the emoji's surrogates come first.
    wide, emoji = "\uff21", "\U0001f600"
    queues = [MessageQueue("T", wide, 0), MessageQueue("T", emoji, 0), MessageQueue("T", "z", 0)]
    assert short(allocate("AVG", queues, [wide, emoji, "z"])) == {
        "z": "z0",
        emoji: emoji + "0",
        wide: wide + "0",
    }
    assert list(allocate("AVG", queues, [wide, emoji, "z"])) == ["z", emoji, wide]


def test_broker_names_sort_as_text_and_ids_as_numbers() -> None:
    queues = topic_queues("T", **{"b-9": 11, "b-10": 1})
    first = allocate("AVG", queues, ["m"])["m"]
    assert [queue.broker_name for queue in first[:2]] == ["b-10", "b-9"]
    assert [queue.queue_id for queue in first[1:]] == list(range(11))


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: allocate("AVG_BY_CIRCEL", FIVE, ["m"]), "did you mean AVG_BY_CIRCLE"),
        (lambda: allocate("zzz", FIVE, ["m"]), "choose one of AVG, "),
        (lambda: allocate("AVG", [*FIVE, FIVE[2]], ["m"]), "queue T/q/2 is listed twice"),
        (lambda: allocate("AVG", FIVE, ["m", "n", "m"]), "member 'm' is listed twice"),
        (lambda: allocate("AVG", FIVE, ["m", ""]), "a member id is empty"),
        (lambda: allocate("AVG", FIVE, "m1,m2"), "pass a list of member ids"),
        (lambda: allocate("AVG", FIVE, ["m"], scope="broker"), '"all" or "topic"'),
        (lambda: allocate("AVG", FIVE, ["m"], rooms=["r"]), "AVG has no parameter 'rooms'"),
        (lambda: allocate("MACHINE_ROOM", FIVE, ["m"]), "MACHINE_ROOM needs rooms="),
        (lambda: allocate("MACHINE_ROOM", FIVE, ["m"], rooms="r"), "list of room names"),
        (lambda: allocate("FIXED", FIVE, ["m"], hosts="h"), "list of hosts"),
        (lambda: allocate("CONFIG", FIVE, ["m"]), "CONFIG needs config="),
        (lambda: allocate("CONSISTENT_HASH", FIVE, ["m"], virtual_nodes=-1), "0 or more"),
        (lambda: allocate("BY_LAG", FIVE, ["m"], weights={FIVE[0]: -1}), "0 or more"),
        (lambda: allocate("MACHINE_ROOM_NEARBY", FIVE, ["m"]), "needs room_of_broker="),
        (
            lambda: allocate(
                "MACHINE_ROOM_NEARBY",
                FIVE,
                ["m"],
                room_of_broker=lambda b: None,
                room_of_member=lambda m: "r",
            ),
            "room_of_broker gives no room for 'q'",
        ),
        (
            lambda: allocate(
                "MACHINE_ROOM_NEARBY",
                FIVE,
                ["m"],
                room_of_broker=lambda b: "r",
                room_of_member=lambda m: "",
            ),
            "room_of_member gives no room for 'm'",
        ),
        (lambda: strategy_name("MACHINE_ROOM_NEARBY", "MACHINE_ROOM_NEARBY"), "its own inner"),
        (lambda: strategy_name("MACHINE_ROOM_NEARBY-AVG", "STICKY"), "differs"),
        (lambda: strategy_name("MACHINE_ROOM_NEARBY-NONE"), "unknown allocation strategy 'NONE'"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_to_share_or_nobody_to_share_with(strategy: str) -> None:
    params = PARAMS.get(strategy, {})
    for scope in ("all", "topic"):
        assert allocate(strategy, [], ["b", "a"], scope=scope, **params) == {"a": [], "b": []}
        assert allocate(strategy, FIVE, [], scope=scope, **params) == {}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_names_are_rocketmqs(strategy: str) -> None:
    shown = "MACHINE_ROOM_NEARBY-AVG" if strategy == "MACHINE_ROOM_NEARBY" else strategy
    assert strategy_name(strategy) == shown
    assert strategy_name(strategy.lower()) == shown


# --- promises for any input -------------------------------------------------------------------

names = st.text(st.sampled_from("ab19-@\u00e9\uff21\U0001f600"), min_size=1, max_size=4)
queue_lists = st.lists(
    st.builds(MessageQueue, names, names, st.integers(0, 12)), unique=True, max_size=40
)
member_lists = st.lists(names, unique=True, min_size=1, max_size=12)

WHOLE = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY", "STICKY", "BY_LAG")
EVEN = ("AVG", "AVG_BY_CIRCLE", "STICKY")


def owner_of(allocation: Allocation) -> dict[MessageQueue, str]:
    return {queue: member for member, owned in allocation.items() for queue in owned}


@given(queue_lists, member_lists, st.sampled_from(["all", "topic"]), st.randoms())
@pytest.mark.parametrize("strategy", WHOLE)
def test_every_queue_has_one_owner_whatever_the_order(
    strategy: str, queues: list[MessageQueue], members: list[str], scope: Any, rng: random.Random
) -> None:
    params = PARAMS.get(strategy, {})
    answer = allocate(strategy, queues, members, scope=scope, **params)
    assert set(answer) == set(members)
    assert Counter(itertools.chain(*answer.values())) == Counter(queues)
    rng.shuffle(queues)
    rng.shuffle(members)
    again = allocate(strategy, queues, members, scope=scope, **params)
    assert again == answer
    assert list(again) == list(answer)


@given(queue_lists, member_lists)
@pytest.mark.parametrize("strategy", EVEN)
def test_averages_differ_by_at_most_one(
    strategy: str, queues: list[MessageQueue], members: list[str]
) -> None:
    for part in (queues, [queue for queue in queues if queue.topic == "a"]):
        counts = sizes(allocate(strategy, part, members, scope="all"))
        assert max(counts) - min(counts) <= 1


@given(queue_lists, member_lists, member_lists)
def test_sticky_without_a_plan_before_is_avg(
    queues: list[MessageQueue], members: list[str], others: list[str]
) -> None:
    assert allocate("STICKY", queues, members) == allocate("AVG", queues, members)
    strangers = allocate("AVG", queues, [f"other-{other}" for other in others])
    assert allocate("STICKY", queues, members, previous=strangers) == allocate(
        "AVG", queues, members
    )


@given(queue_lists, member_lists.filter(lambda members: len(members) > 1), st.integers(0, 11))
def test_a_member_that_leaves_the_ring_moves_only_its_own_queues(
    queues: list[MessageQueue], members: list[str], leaver: int
) -> None:
    gone = members[leaver % len(members)]
    before = owner_of(allocate("CONSISTENT_HASH", queues, members))
    after = owner_of(allocate("CONSISTENT_HASH", queues, [m for m in members if m != gone]))
    assert all(after[queue] == owner for queue, owner in before.items() if owner != gone)


@given(
    queue_lists,
    member_lists,
    st.sets(st.integers(0, 11)),
    st.sets(st.integers(0, 39)),
    st.integers(0, 5),
)
def test_sticky_stays_even_and_moves_nothing_when_nothing_changed(
    queues: list[MessageQueue],
    members: list[str],
    leaving: set[int],
    removed: set[int],
    joining: int,
) -> None:
    before = allocate("STICKY", queues, members)
    assert allocate("STICKY", queues, members, previous=before) == before
    now_members = [m for i, m in enumerate(members) if i not in leaving]
    now_members += [f"new-{i}" for i in range(joining)]
    now_queues = [q for i, q in enumerate(queues) if i not in removed]
    if not now_members:
        return
    after = allocate("STICKY", now_queues, now_members, previous=before)
    counts = sizes(after)
    assert max(counts) - min(counts) <= 1
    assert Counter(itertools.chain(*after.values())) == Counter(now_queues)


def fewest_moves(owners: Sequence[int | None], takers: int) -> int:
    """By trying every even answer: `owners` holds each queue's member before, or None."""
    size, larger = divmod(len(owners), takers)
    best = len(owners)
    for choice in itertools.product(range(takers), repeat=len(owners)):
        counts = sorted(Counter(dict.fromkeys(range(takers), 0) | Counter(choice)).values())
        if counts == [size] * (takers - larger) + [size + 1] * larger:
            moved = sum(a is not None and a != b for a, b in zip(owners, choice, strict=True))
            best = min(best, moved)
    return best


@pytest.mark.parametrize("takers", [1, 2, 3])
def test_sticky_moves_the_fewest_queues_possible(takers: int) -> None:
    members = [f"m{i}" for i in range(takers)]
    for count in range(1, 6):
        queues = topic_queues("T", q=count)
        for owners in itertools.product([None, *range(takers)], repeat=count):
            previous: Allocation = {member: [] for member in members}
            for queue, owner in zip(queues, owners, strict=True):
                if owner is not None:
                    previous[members[owner]].append(queue)
            after = owner_of(allocate("STICKY", queues, members, previous=previous))
            moved = sum(
                owner is not None and after[queue] != members[owner]
                for queue, owner in zip(queues, owners, strict=True)
            )
            assert moved == _fewest(owners, takers)


_memo: dict[tuple[tuple[int, ...], int, int], int] = {}


def _fewest(owners: tuple[int | None, ...], takers: int) -> int:
    """The answer depends only on how many each held, so few of the cases are really tried."""
    held = Counter(owners)
    key = (tuple(sorted(held[i] for i in range(takers))), held[None], takers)
    if key not in _memo:
        _memo[key] = fewest_moves(owners, takers)
    return _memo[key]


def best_load(weights: Sequence[int], takers: int) -> int:
    return min(
        max(
            sum(w for w, t in zip(weights, choice, strict=True) if t == taker)
            for taker in range(takers)
        )
        for choice in itertools.product(range(takers), repeat=len(weights))
    )


@settings(max_examples=80)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=7), st.integers(1, 3))
def test_by_lag_is_within_four_thirds_of_the_best_load(weights: list[int], takers: int) -> None:
    queues = topic_queues("T", q=len(weights))
    weigh = dict(zip(queues, weights, strict=True))
    answer = allocate("BY_LAG", queues, [f"m{i}" for i in range(takers)], weights=weigh)
    fullest = max(sum(weigh[queue] for queue in owned) for owned in answer.values())
    assert 3 * fullest <= 4 * best_load(weights, takers)
