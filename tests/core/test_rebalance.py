"""Dropped, kept, added, and why."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.core.allocate import allocate
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.plan import PlanOptions, plan
from rocketmq_spark.core.rebalance import MemberChange, rebalance

Q = [MessageQueue("T", "b", number) for number in range(6)]


def test_a_member_joins() -> None:
    change = rebalance(
        {"m1": [Q[0], Q[1], Q[2]], "m2": [Q[3]]}, {"m1": [Q[0], Q[1]], "m2": [Q[3]], "m3": [Q[2]]}
    )
    assert change.members == {
        "m1": MemberChange(dropped=(Q[2],), kept=(Q[0], Q[1])),
        "m2": MemberChange(kept=(Q[3],)),
        "m3": MemberChange(added=(Q[2],)),
    }
    assert (change.joined, change.left, change.moved) == (("m3",), (), (Q[2],))
    assert repr(change) == ("<Rebalance 1 moved: 1 dropped, 3 kept, 1 added; 1 member joined (m3)>")
    assert change


def test_a_member_leaves_and_queues_change() -> None:
    change = rebalance({"m1": [Q[0]], "m2": [Q[1], Q[5]]}, {"m1": [Q[0], Q[1], Q[2]]})
    assert change.left == ("m2",)
    assert change.queues_added == (Q[2],)
    assert change.queues_removed == (Q[5],)
    assert change.moved == (Q[1],)
    assert change.why == "1 member left (m2), 1 queue added (T/b/2), 1 queue removed (T/b/5)"


def test_nothing_changed() -> None:
    same = rebalance({"m1": [Q[0]]}, {"m1": [Q[0]]})
    assert not same
    assert same.why == "nothing changed"


def test_the_first_plan() -> None:
    first = rebalance(None, {"m1": [Q[0]]})
    assert first.why == "first plan"
    assert first.added == 1
    assert first


def test_same_members_and_queues_shared_another_way() -> None:
    swapped = rebalance({"m1": [Q[0]], "m2": [Q[1]]}, {"m1": [Q[1]], "m2": [Q[0]]})
    assert swapped.moved == (Q[0], Q[1])
    assert swapped.why == "other loads or another strategy"


def test_many_names_become_a_number() -> None:
    change = rebalance({}, {f"m{i}": [] for i in range(5)})
    assert change.why == "5 members joined (m0, m1, m2 and 2 more)"


def test_plans_are_compared_by_their_assignment() -> None:
    zeros = dict.fromkeys(Q, 0)
    before = plan(Q, ["m1", "m2"], zeros, zeros)
    after = plan(
        Q,
        ["m1", "m2", "m3"],
        zeros,
        zeros,
        PlanOptions(strategy="STICKY"),
        previous=before.assignment,
    )
    change = rebalance(before, after)
    assert len(change.moved) == 2
    assert change.joined == ("m3",)


members = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)
queues = st.lists(st.sampled_from(Q), unique=True)


@given(queues, members, queues, members)
def test_the_parts_add_up(
    old_queues: list[MessageQueue],
    old_members: list[str],
    new_queues: list[MessageQueue],
    new_members: list[str],
) -> None:
    before = allocate("AVG", old_queues, old_members)
    after = allocate("CONSISTENT_HASH", new_queues, new_members)
    change = rebalance(before, after)
    for member, part in change.members.items():
        assert set(part.dropped) | set(part.kept) == set(before.get(member, []))
        assert set(part.added) | set(part.kept) == set(after.get(member, []))
    assert set(old_queues) - set(change.queues_removed) == set(new_queues) - set(
        change.queues_added
    )
    assert change.kept + len(change.moved) + len(change.queues_added) == len(new_queues)
    assert bool(change) == (before != after)
