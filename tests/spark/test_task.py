"""A task whose messages go while it reads, without a broker and without Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rocketmq_spark.core.model import MessageQueue, OffsetRange
from rocketmq_spark.core.options import read_options
from rocketmq_spark.errors import OffsetOutOfRangeError, TopicNotFoundError
from rocketmq_spark.spark.task import at_most, read_range

Q = MessageQueue("T", "broker-a", 0)


class FakeReader:
    """Numbers in place of batches; refuses a range that is not all there."""

    def __init__(
        self, there: tuple[int, int], start: int, end: int, give: int, gone: bool = False
    ) -> None:
        self.position = start
        self._gone = gone
        self._numbers = self._read(there, end, give)

    def _read(self, there: tuple[int, int], end: int, give: int) -> Iterator[int]:
        if self._gone:
            raise TopicNotFoundError("no topic T", code=17)
        while self.position < end:
            refused = not there[0] <= self.position < there[1]
            # Pulls run ahead: what is missing at the end is known before all is handed out.
            if refused or (end > there[1] and give <= 0):
                raise OffsetOutOfRangeError(f"no offset {self.position}", code=21)
            give -= 1
            self.position += 1
            yield self.position - 1

    def __iter__(self) -> Iterator[int]:
        return self._numbers


class FakeClient:
    """Has `readable` from the start, and tells so after `late` questions."""

    def __init__(
        self, readable: tuple[int, int], late: int = 0, give: int = 10**9, gone: int = 0
    ) -> None:
        self._gone = gone  # for so many tries
        self._readable = readable
        self._late = late
        self._give = give

    def offsets(self, queue: MessageQueue) -> tuple[int, int]:
        self._late -= 1
        return (0, 100) if self._late >= 0 else self._readable

    def read(self, queue: Any, start: int, end: int, *_: Any, **__: Any) -> FakeReader:
        self._gone -= 1
        return FakeReader(self._readable, start, end, self._give, self._gone >= 0)


def read(client: FakeClient, fail: bool = False, timeout: str = "20s") -> list[Any]:
    given = {"nameServer": "localhost:1", "topic": "T", "failOnDataLoss": str(fail).lower()}
    options = read_options({**given, "timeout": timeout})
    part = OffsetRange(Q, 10, 90)
    return list(read_range(client, part, "m", options, ["body"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "client, left",
    [
        (FakeClient((0, 100)), range(10, 90)),
        (FakeClient((40, 100)), range(40, 90)),  # expired
        (FakeClient((40, 100), late=2), range(40, 90)),  # and its limits follow later
        (FakeClient((95, 100)), range(0)),
        (FakeClient((0, 5)), range(0)),  # made anew
        (FakeClient((0, 50)), range(10, 50)),
        (FakeClient((0, 50), give=7), range(10, 50)),
        (FakeClient((0, 0)), range(0)),
    ],
)
def test_what_is_left_of_a_range_is_read(client: FakeClient, left: range) -> None:
    assert read(client) == list(left)


def test_a_topic_whose_only_broker_is_down_is_waited_for() -> None:
    assert read(FakeClient((0, 100), gone=3)) == list(range(10, 90))
    with pytest.raises(TopicNotFoundError, match="no topic T"):
        read(FakeClient((0, 100), gone=10**9), timeout="300ms")


def test_a_loss_fails_the_task_unless_it_is_accepted() -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"no offset 10\. Set failOnDataLoss=false"):
        read(FakeClient((40, 100)), fail=True)


def test_what_was_passed_over_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read(FakeClient((40, 100)))
        read(FakeClient((0, 5)))
    assert [record.message for record in caplog.records] == [
        f"data loss accepted: of {OffsetRange(Q, 10, 90)} only 40 to 90 are left",
        f"data loss accepted: of {OffsetRange(Q, 10, 90)} nothing is left",
    ]


@pytest.mark.parametrize(
    "lengths",
    [[1000] * 100, [10] * 50 + [100_000] + [10] * 50, [500_000], [0] * 1000, []],
    ids=["even", "one large", "only one", "empty", "none"],
)
def test_batches_of_at_most_a_size(lengths: list[int]) -> None:
    columns = [pa.array([bytes(n) for n in lengths], pa.binary()), pa.array(range(len(lengths)))]
    whole = pa.RecordBatch.from_arrays(columns, ["body", "queueOffset"])
    pieces = list(at_most(whole, 16_384))
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([whole]))
    assert all(piece.nbytes <= 16_384 or piece.num_rows == 1 for piece in pieces)
    assert len(pieces) <= 15
