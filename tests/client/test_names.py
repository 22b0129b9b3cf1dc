"""Names on the wire and off it."""

from __future__ import annotations

import pytest

from rocketmq_spark.client.names import belongs, is_derived, is_system, unwrap, wrap


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("orders", "shop%orders"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("shop%orders", "shop%orders"),  # never twice
        ("%RETRY%shop%billing", "%RETRY%shop%billing"),
        ("shopping", "shop%shopping"),
        ("TBW102", "TBW102"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
        ("TOOLS_CONSUMER", "TOOLS_CONSUMER"),
        ("my_REPLY_TOPIC", "shop%my_REPLY_TOPIC"),  # as Java: only the cluster's own is RocketMQ's
    ],
)
def test_wrap(name: str, wire: str) -> None:
    assert wrap("shop", name) == wire
    assert wrap("", name) == name


@pytest.mark.parametrize("name", ["orders", "%RETRY%billing", "%DLQ%billing", "TBW102"])
def test_unwrap_undoes_wrap(name: str) -> None:
    assert unwrap("shop", wrap("shop", name)) == name


@pytest.mark.parametrize("name", ["other%orders", "orders", "%RETRY%other%billing", "shopping"])
def test_unwrap_leaves_what_is_not_ours(name: str) -> None:
    assert unwrap("shop", name) == name
    assert unwrap("", name) == name


def test_belongs() -> None:
    assert belongs("shop", "shop%orders")
    assert belongs("shop", "%RETRY%shop%billing")
    assert not belongs("shop", "orders")
    assert not belongs("shop", "shopping%orders")
    assert belongs("", "anything")


def test_kinds() -> None:
    assert is_system("SCHEDULE_TOPIC_XXXX")
    assert is_system("RMQ_SYS_TRANS_HALF_TOPIC")
    assert not is_system("orders")
    assert is_derived("%RETRY%g")
    assert is_derived("%DLQ%g")
    assert not is_derived("orders%RETRY%")
