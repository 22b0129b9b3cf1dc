"""Our answers against those of RocketMQ's own classes (tests/data/RecordAllocations.java)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rocketmq_spark.core.allocate import allocate, strategy_name
from rocketmq_spark.core.model import MessageQueue

RECORDED = Path(__file__).parent.parent / "data" / "java_allocations.json.gz"


def load() -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt", encoding="ascii") as file:
        recorded = json.load(file)
    assert recorded["rocketmq"] == "V5_5_0"
    return list(recorded["cases"])


CASES = load()


def params_of(
    answer: dict[str, Any], queues: list[MessageQueue], members: list[str]
) -> dict[str, Any]:
    """The file holds tables where our parameters are functions, and positions for queues."""
    params = dict(answer["params"])
    for name in ("room_of_broker", "room_of_member"):
        if name in params:
            params[name] = params[name].__getitem__
    if "config" in params:
        params["config"] = {
            member: [queues[position] for position in positions]
            for member, positions in zip(members, params["config"], strict=True)
        }
    return params


@pytest.mark.parametrize("number", range(len(CASES)))
def test_same_answer_as_java(number: int) -> None:
    case = CASES[number]
    names, members = case["names"], case["members"]
    queues = [MessageQueue(names[t], names[b], queue_id) for t, b, queue_id in case["queues"]]
    for answer in case["answers"]:
        params = params_of(answer, queues, members)
        name = answer["name"]
        strategy = name.split("-")[0]
        assert strategy_name(strategy, params.get("inner")) == name
        ours = allocate(strategy, queues, members, **params)
        java = {
            member: [queues[position] for position in owned]
            for member, owned in zip(members, answer["owned"], strict=True)
        }
        assert ours == java, f"{name} of case {number} with {answer['params']}"


def test_the_record_holds_hundreds_of_cases_for_every_strategy() -> None:
    names = Counter(answer["name"].split("-")[0] for case in CASES for answer in case["answers"])
    assert set(names) == {
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
        "CONFIG",
        "MACHINE_ROOM",
        "MACHINE_ROOM_NEARBY",
    }
    assert min(names.values()) >= 300
    nearby = {a["name"] for case in CASES for a in case["answers"] if "-" in a["name"]}
    assert len(nearby) == 4


def test_the_record_holds_names_that_code_point_order_would_sort_otherwise() -> None:
    assert any(
        sorted(names) != sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        for case in CASES
        for names in (case["members"], case["names"])
    )
