"""Microseconds a message to decode into Arrow: `python tests/bench/decode_bench.py`.

CPU time of the one thread that decodes, the best of many rounds, so that a busy machine disturbs
little. The messages are a Java producer's: 1 KiB bodies of uneven length, four properties.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from rocketmq_spark.wire.decode import Decoder
from rocketmq_spark.wire.message import StoredMessage, encode_message

CASES: dict[str, tuple[list[str] | None, dict[str, Any]]] = {
    "all columns": (None, {}),
    "body": (["body"], {}),
    "body + queueOffset": (["body", "queueOffset"], {}),
    "body + keys + tags": (["body", "keys", "tags"], {}),
    "properties": (["properties"], {}),
    "all columns, half the range": (None, {"start": 0, "end": -2}),
    "all columns, one tag of three": (None, {"tags": frozenset({"TagB"})}),
}


def pull(count: int, size: int, changes: dict[str, Any]) -> bytes:
    """What a broker answers: `count` messages of about `size` bytes of body."""
    dice = random.Random(1)
    records = []
    for number in range(count):
        message = StoredMessage(
            topic="orders",
            queue_offset=number,
            physical_offset=number * (size + 200),
            born_timestamp=1_700_000_000_000 + number,
            born_host=f"10.0.0.{number % 7}:{50000 + number % 9}",
            store_timestamp=1_700_000_000_003 + number,
            store_host="10.0.1.2:10911",
            body=dice.randbytes(dice.randrange(size * 3 // 4, size * 5 // 4)),
            properties={
                "UNIQ_KEY": f"7F0000010F5C18B4AAC2{number:012X}",
                "KEYS": f"order-{number}",
                "TAGS": f"Tag{'ABC'[number % 3]}",
                "WAIT": "true",
            },
        )
        records.append(encode_message(message, **changes))
    return b"".join(records)


def cost(decoder: Decoder, raw: bytes, rounds: int, arguments: dict[str, Any]) -> float:
    """Seconds of the best round."""
    best = float("inf")
    whole = memoryview(raw)
    for _ in range(rounds):
        # A new buffer each time, as answers come; to reuse one flatters and misleads malloc.
        raw = b"".join((whole[:1000], whole[1000:]))
        begin = time.thread_time()
        decoder.decode(raw, **arguments)
        best = min(best, time.thread_time() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=6000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=60)
    chosen = parser.parse_args()
    raw = pull(chosen.messages, chosen.size, {})
    print(f"{chosen.messages} messages, {len(raw) / 1e6:.1f} MB")
    for name, (columns, arguments) in CASES.items():
        if arguments.get("end") == -2:
            arguments = {"start": 0, "end": chosen.messages // 2}
        decoder = Decoder(columns, topic="orders", broker_name="broker-a", queue_id=3)
        seconds = cost(decoder, raw, chosen.rounds, arguments)
        rate = len(raw) / seconds / 1e9
        print(f"{name:32}{seconds / chosen.messages * 1e6:7.3f} µs/message{rate:7.2f} GB/s")


if __name__ == "__main__":
    main()
