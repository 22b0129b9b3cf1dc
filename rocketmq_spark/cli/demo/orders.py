"""Orders: what each one says, the thread that sends them, and the check of what was counted.

An order follows from its number alone, so what should have been counted needs no book-keeping.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.grid import counted
from rocketmq_spark.errors import RocketMQError

TOPIC = "orders"
TAGS = ("new", "paid", "shipped", "returned")
# Of ten orders in a row; scattered, so that a lost stretch of them would touch every tag.
_TAG_OF_TEN = (0, 1, 0, 2, 0, 1, 3, 0, 2, 1)

# Sent at once, several times a second: enough for a batch on every queue.
_SENDS_PER_SECOND = 10


def tag(number: int) -> str:
    return TAGS[_TAG_OF_TEN[number % 10]]


def cents(number: int) -> int:
    """Between 1.00 and 200.99, far from its neighbours' amounts."""
    return 100 + number * 7919 % 20_000


def order(number: int) -> Message:
    body = f'{{"number":{number},"cents":{cents(number)}}}'
    return Message(body, tags=tag(number), keys=f"order-{number}")


@dataclass(frozen=True)
class Total:
    """Of one tag."""

    orders: int = 0
    cents: int = 0


def totals(numbers: Iterable[int]) -> dict[str, Total]:
    """What these orders come to."""
    orders: Counter[str] = Counter()
    amounts: Counter[str] = Counter()
    for number in numbers:
        orders[tag(number)] += 1
        amounts[tag(number)] += cents(number)
    return {name: Total(orders[name], amounts[name]) for name in TAGS}


class Producer(threading.Thread):
    """Sends the orders 0, 1, 2 and so on, `rate` a second, until it is told to stop."""

    def __init__(self, client: Client, rate: int) -> None:
        super().__init__(name="orders", daemon=True)
        self.sent = 0  # all below it are acknowledged
        self._client = client
        self._rate = rate
        self._enough = threading.Event()
        self._failure: RocketMQError | None = None

    def run(self) -> None:
        began = time.monotonic()
        try:
            while not self._enough.wait(1 / _SENDS_PER_SECOND):
                due = int((time.monotonic() - began) * self._rate)
                # A slow moment is made up for, but not in one send without end.
                until = min(due, self.sent + self._rate)
                self._client.send(TOPIC, [order(number) for number in range(self.sent, until)])
                self.sent = until
        except RocketMQError as error:
            self._failure = error

    def check(self) -> None:
        """Raises what made it stop, if it was not `finish`."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> int:
        """How many orders there are, now that no more will come."""
        self._enough.set()
        self.join()
        self.check()
        return self.sent


def faults(sent: int, numbers: Iterable[int], told: Mapping[str, Total]) -> list[str]:
    """What is wrong with a count of the orders below `sent`; nothing if all is well.

    `numbers` are the orders that were counted, `told` the totals that Spark made of them.
    """
    times = Counter(numbers)
    lost = [number for number in range(sent) if number not in times]
    twice = [number for number, count in times.items() if count > 1]
    strange = [number for number in times if not 0 <= number < sent]
    found = [
        f"{counted(len(some), 'order')} {what} (the first: {min(some)})"
        for some, what in ((lost, "lost"), (twice, "counted twice"), (strange, "never sent"))
        if some
    ]
    for name, total in totals(range(sent)).items():
        if told.get(name, Total()) != total:
            found.append(f"{name} should be {total} and is {told.get(name, Total())}")
    return found
