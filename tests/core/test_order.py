"""Java's order of strings, and each thing once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.order import by_topic, sort_queues, sort_strings

texts = st.text(
    st.sampled_from("a-9\u00e9\ud800\udfff\ue000\uffff\U00010000\U0001f600"), max_size=4
)


def units(text: str) -> list[int]:
    """Java's chars."""
    raw = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]


@given(st.lists(texts, max_size=8))
def test_strings_sort_by_java_chars(values: list[str]) -> None:
    assert sort_strings(values) == sorted(values, key=units)


@given(st.lists(st.builds(MessageQueue, texts, texts, st.integers(0, 20)), max_size=8))
def test_queues_sort_by_topic_broker_and_number(queues: list[MessageQueue]) -> None:
    expected = sorted(queues, key=lambda q: (units(q.topic), units(q.broker_name), q.queue_id))
    assert sort_queues(queues) == expected


def test_by_topic_keeps_the_order() -> None:
    queues = [MessageQueue("B", "x", 1), MessageQueue("A", "x", 0), MessageQueue("B", "x", 0)]
    assert by_topic(queues) == [[queues[0], queues[2]], [queues[1]]]
