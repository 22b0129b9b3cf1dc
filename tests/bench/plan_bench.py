"""How planning grows: every strategy, alone and as a whole plan, over 1k, 10k and 100k queues.

    python tests/bench/plan_bench.py

Ten queues for each member. `growth` is the time for 100k over that for 10k. n log n would be 12.5,
but what fits in a cache at one size does not at the next, so the clock shows more: for Python's own
sort of the same queues too, which stands beside each strategy for scale. So growth is not judged by
the clock; `make bench-plan` counts the instructions.

The bars are 2 s of processor time for 100,000 queues over 10,000 members, 10 s for CONSISTENT_HASH
and STICKY; a missed one is shown and is not a failure, as machines differ.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from rocketmq_spark.core.allocate import STRATEGIES, allocate
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.plan import PlanOptions, plan
from rocketmq_spark.core.rebalance import rebalance

SIZES = (1_000, 10_000, 100_000)
SLOW = ("CONSISTENT_HASH", "STICKY")


def bar(strategy: str) -> float:
    return 10.0 if strategy in SLOW else 2.0


def make(count: int) -> tuple[list[MessageQueue], list[str]]:
    """Shuffled, so that sorting is part of what is measured; names are shared, as in a route."""
    rng = random.Random(count)
    topics = [f"Topic{number}" for number in range(1 + count // 400)]
    brokers = [f"room{number % 5}@broker-{number}" for number in range(50)]
    queues = [
        MessageQueue(topics[number // 400], brokers[number % 50], number // 50)
        for number in range(count)
    ]
    members = [f"10.{n % 7}.{n % 200}.{n % 251}@{n}#{n % 8}" for n in range(count // 10)]
    rng.shuffle(queues)
    rng.shuffle(members)
    return queues, members


def params_for(strategy: str, queues: list[MessageQueue], members: list[str]) -> dict[str, Any]:
    if strategy == "CONFIG":
        return {"config": allocate("AVG", queues, members)}
    if strategy == "MACHINE_ROOM":
        return {"rooms": [f"room{number}" for number in range(5)]}
    if strategy == "MACHINE_ROOM_NEARBY":
        return {
            "room_of_broker": lambda name: name.split("@")[0],
            "room_of_member": lambda member: f"room{member.split('.')[1]}",
        }
    if strategy == "FIXED":
        return {"hosts": {member.split("@")[0] for member in members[::2]}}
    return {}


def timed(run: Callable[[], object]) -> float:
    """Processor time, the best of three: planning is one thread, and the machine may be busy."""
    best = float("inf")
    for _ in range(3):
        gc.collect()
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best


def prepared(strategy: str, count: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """To allocate so many queues, and to plan them."""
    queues, members = make(count)
    params = params_for(strategy, queues, members)
    own: dict[str, Any] = {}
    # A tenth of the members have left and a tenth of the rest is new: STICKY has work to do.
    previous = allocate("AVG", queues, [*members[count // 100 :], "10.9.9.9@gone"])
    rng = random.Random(count)
    starts = {queue: rng.randrange(10**6) for queue in queues}
    ends = {queue: start + int(rng.paretovariate(0.8)) for queue, start in starts.items()}
    if strategy == "STICKY":
        own = {"previous": previous}
    if strategy == "BY_LAG":
        own = {"weights": {queue: ends[queue] - starts[queue] for queue in queues}}
    options = PlanOptions(strategy=strategy, params=params, max_records=10 * count)
    return (
        lambda: allocate(strategy, queues, members, **params, **own),
        lambda: plan(queues, members, starts, ends, options, previous=previous),
    )


def measure(strategy: str, count: int) -> tuple[float, float, float]:
    """Seconds to sort, to allocate and to plan so many queues."""
    queues = make(count)[0]
    return (timed(lambda: sorted(queues)), *map(timed, prepared(strategy, count)))


def growth(times: Sequence[float]) -> float:
    return times[-1] / times[-2]


def main() -> None:
    head = "".join(f"{count:>9,}" for count in SIZES)
    parts = "".join(f"{name:^27}{'growth':>8}   " for name in ("sorted()", "allocate", "plan"))
    print(f"{'seconds':<20}{parts}{'bar':>4}")
    print(f"{'queues':<20}{f'{head}{str():>11}' * 3}")
    slow = []
    for strategy in STRATEGIES:
        columns = list(zip(*(measure(strategy, count) for count in SIZES), strict=True))
        shown = [f"{''.join(f'{t:>9.4f}' for t in c)}{growth(c):>7.1f}x   " for c in columns]
        print(f"{strategy:<20}{''.join(shown)}{bar(strategy):>4.0f}", flush=True)
        if max(columns[1][-1], columns[2][-1]) > bar(strategy):
            slow.append(strategy)
    row = []
    for count in SIZES:
        queues, members = make(count)
        before = allocate("AVG", queues, members)
        after = allocate("AVG", queues, members[1:])
        row.append(timed(lambda before=before, after=after: rebalance(before, after)))  # type: ignore[misc]
    print(f"{'rebalance()':<20}{''.join(f'{t:>9.4f}' for t in row)}{growth(row):>7.1f}x")
    print(f"MISS: {', '.join(slow)} over the bar" if slow else "pass: all within their bars")


if __name__ == "__main__":
    main()
