"""The most memory that a process needs to read a topic: `memory_probe [NAME_SERVER TOPIC]`.

With arguments it reads every queue of the topic and prints one line of JSON. Without, it starts a
RocketMQ, fills a topic for each of `CASES`, lets a process of its own read each, and prints a
table. Tests use `fill` and `probe`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocketmq_spark.client import Client, Message

ROOT = Path(__file__).parent.parent.parent
KIB, MIB = 1024, 1024 * 1024
# What a process may reach, whatever it reads.
LIMIT = 200 * 10**6

_SEND_AT_ONCE = 32 * MIB
_noise = random.Random(1).randbytes(4 * MIB)


@dataclass(frozen=True, slots=True)
class Memory:
    """`peak` is the process's largest resident size, `base` what it had before it read, in bytes;
    `largest` is its largest batch."""

    rows: int
    base: int
    peak: int
    largest: int


def _small(count: int) -> Iterator[Message]:
    for n in range(count):
        body = _noise[n % MIB : n % MIB + KIB]
        yield Message(body, tags=f"Tag{n % 3}", keys=f"order-{n}", properties={"region": "eu"})


def _large(count: int) -> Iterator[Message]:
    for n in range(count):
        yield Message(_noise[n : 4 * MIB - 64])


def _mixed(count: int) -> Iterator[Message]:
    """Sizes from nothing to 4 MiB, each power of two as often, in no order."""
    dice = random.Random(2)
    for _ in range(count):
        size = dice.choice((0, *(1 << power for power in range(23)))) or 0
        yield Message(_noise[: min(size, 4 * MIB - 64)])


def _labelled(count: int) -> Iterator[Message]:
    """Hardly anything but properties, of two numbers in turn."""
    for n in range(count):
        yield Message(b"x", properties={f"{i:x}": "v" for i in range(20 + n % 2)})


def _crowded(count: int) -> Iterator[Message]:
    """As many properties as a message can have."""
    for n in range(count):
        yield Message(b"x", properties={f"{i:x}": "v" for i in range(4000 + n % 2)})


def _packed(count: int) -> Iterator[Message]:
    """What compresses a thousandfold: a few kilobytes on the way, 4 MB in a column."""
    for n in range(count):
        yield Message(bytes([n % 256]) * (4 * MIB - 64))


def _tiny(count: int) -> Iterator[Message]:
    """Nothing but what every message has."""
    for _ in range(count):
        yield Message(b"x")


@dataclass(frozen=True, slots=True)
class Case:
    """So many such messages, in a topic with these attributes."""

    make: Callable[[int], Iterator[Message]]
    count: int
    attributes: Mapping[str, str] = field(default_factory=dict)


CASES = {
    "1 KiB": Case(_small, 400_000),
    "4 MiB": Case(_large, 100),
    "mixed": Case(_mixed, 2_000),
    "4 MiB, compressed": Case(_packed, 200),
    "20 properties": Case(_labelled, 200_000),
    "4,000 properties": Case(_crowded, 1_500),
    "tiny": Case(_tiny, 500_000),
    # The topic stores a whole batch as one record: 500 KB hold 8,000 messages.
    "tiny, in inner batches": Case(_tiny, 500_000, {"queue.type": "BatchCQ"}),
}


def fill(client: Client, topic: str, case: str, count: int | None = None) -> int:
    """Send the case's messages (or `count` such) to `topic`; how many they are."""
    chosen = CASES[case]
    sent, held, size = 0, [], 0
    for message in chosen.make(chosen.count if count is None else count):
        held.append(message)
        size += len(message.body) + 200
        if size >= _SEND_AT_ONCE:
            client.send(topic, held)
            sent, held, size = sent + len(held), [], 0
    client.send(topic, held)
    return sent + len(held)


def probe(name_server: str, topic: str, columns: str = "") -> Memory:
    """Read the topic in a new process and say what that took."""
    command = [sys.executable, "-m", "tests.bench.memory_probe", name_server, topic]
    done = subprocess.run(
        [*command, "--columns", columns],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if done.returncode:
        raise RuntimeError(f"the reading process failed:\n{done.stderr[-2000:]}")
    return Memory(**json.loads(done.stdout))


def _peak() -> int:
    """The largest resident size of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss would be no less than the size of the process that started this one.
        words = status.read_text().split()
        return int(words[words.index("VmHWM:") + 1]) * KIB
    # Bytes on macOS, kilobytes elsewhere.
    unit = 1 if sys.platform == "darwin" else KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _read(name_server: str, topic: str, columns: list[str] | None) -> Memory:
    rows = largest = 0
    with Client(name_server, timeout=30) as client:
        base = _peak()
        for queue, (start, end) in client.topic_offsets(topic).items():
            for batch in client.read(queue, start, end, columns):
                rows += batch.num_rows
                largest = max(largest, batch.nbytes)
    return Memory(rows, base, _peak(), largest)


def _all_cases() -> None:
    from rocketmq_spark.local_cluster import LocalCluster

    print(f"{'':24}{'rows':>9}{'before':>9}{'peak':>9}{'batch':>9}   (MB)")
    with LocalCluster() as cluster, Client(cluster.name_server, timeout=30) as client:
        for number, case in enumerate(CASES):
            topic = f"memory_{number}"
            client.create_topic(topic, 2, attributes=CASES[case].attributes)
            count = fill(client, topic, case)
            memory = probe(cluster.name_server, topic)
            if memory.rows != count:
                raise RuntimeError(f"{case}: {memory.rows} rows, not {count}")
            sizes = (memory.base, memory.peak, memory.largest)
            figures = "".join(f"{size / 1e6:9.0f}" for size in sizes)
            verdict = "" if memory.peak < LIMIT else f"   MISS: over {LIMIT / 1e6:.0f}"
            print(f"{case:24}{count:9,}{figures}{verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server", nargs="?")
    parser.add_argument("topic", nargs="?")
    parser.add_argument("--columns", default="", help="separated by commas; all of them if empty")
    chosen = parser.parse_args()
    if not chosen.name_server:
        _all_cases()
        return
    if not chosen.topic:
        parser.error("a topic is missing")
    memory = _read(
        chosen.name_server, chosen.topic, chosen.columns.split(",") if chosen.columns else None
    )
    print(json.dumps({name: getattr(memory, name) for name in Memory.__slots__}))


if __name__ == "__main__":
    main()
