"""How planning grows, in machine instructions: all that is to be done, in Python and in C.

    python tests/bench/plan_instructions.py [--sizes 1000,10000,100000] [--only AVG,STICKY]

Seconds grow faster than the work when what fits in a cache at one size does not at the next:
Python's own sort of the same queues took 9 to 20 times as long for ten times as many here.
Instructions tell the work alone, and are the same on a busy machine. They are counted by valgrind
(Debian's package of that name), which makes everything some fifty times slower, so all of it takes
a quarter of an hour. The bar: from one size to the next not more than n log n.
"""

from __future__ import annotations

import argparse
import functools
import math
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as a child under valgrind, without the rest

from plan_bench import prepared

from rocketmq_spark.core.allocate import STRATEGIES

SIZES = (1_000, 10_000, 100_000)
# Counting is on within this function of the interpreter, which nothing else here calls.
_MARK = "functools_reduce"


def child(strategy: str, count: int) -> None:
    work = prepared(strategy, count)[1]
    functools.reduce(lambda _, run: run(), [None, work])


def instructions(strategy: str, count: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [f"--toggle-collect={_MARK}*", sys.executable, __file__, "--child", strategy]
    done = subprocess.run([*command, str(count)], capture_output=True, text=True, check=True)
    told = re.search(r"Collected : (\d+)", done.stderr)
    if not told or int(told[1]) < count:
        raise SystemExit(f"valgrind counted nothing; is {sys.executable} stripped of its symbols?")
    return int(told[1])


def _n_log_n(count: int) -> float:
    return count * math.log(count)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", default=",".join(STRATEGIES))
    parser.add_argument("--child", nargs=2, metavar=("STRATEGY", "COUNT"), help="used by itself")
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.child[0], int(chosen.child[1]))
        return
    if not shutil.which("valgrind"):
        raise SystemExit("valgrind is not installed; on Debian and Ubuntu: apt install valgrind")
    sizes = [int(size) for size in chosen.sizes.split(",")]
    heads = [f"{size:,} queues" for size in sizes]
    grows = [f"growth to {size:,}" for size in sizes[1:]]
    print(f"| millions of instructions | {' | '.join([*heads, *grows])} |")
    print("|---|" + "---:|" * (len(heads) + len(grows)), flush=True)
    bars = [_n_log_n(after) / _n_log_n(before) for before, after in pairwise(sizes)]
    missed = []
    for strategy in chosen.only.split(","):
        counts = [instructions(strategy, size) for size in sizes]
        growth = [after / before for before, after in pairwise(counts)]
        cells = [f"{count / 1e6:,.1f}" for count in counts] + [f"{each:.2f} x" for each in growth]
        print(f"| {strategy} | {' | '.join(cells)} |", flush=True)
        if any(seen > most for seen, most in zip(growth, bars, strict=True)):
            missed.append(strategy)
    print(f"\nn log n would be {', '.join(f'{bar:.2f} x' for bar in bars)}.")
    print(f"MISS: {', '.join(missed)}" if missed else "pass: none grows faster")


if __name__ == "__main__":
    main()
