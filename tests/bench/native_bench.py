"""One pass of rocketmq-client-python, the C++ client: `native_bench NAME_SERVER TOPIC MESSAGES`.

It has no pull consumer, so this is its push consumer with a callback that looks at each body. A
process of its own, since the library leaves threads behind and writes logs into the home folder.
Prints one line of JSON; the clock runs from the first message to the last.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
import time
import uuid
from typing import Any

from rocketmq_spark.client import Client

_SILENCE_SECONDS = 60.0
_EXTRA_SECONDS = 0.3


def missing() -> str:
    """Why it cannot run here; empty when it can."""
    return "" if importlib.util.find_spec("rocketmq") else "not installed"


class _Counter:
    """Called by the library's threads, one message a call."""

    def __init__(self, expected: int, success: Any) -> None:
        self.messages = self.bytes = 0
        self.first = self.last = 0.0
        self.done = threading.Event()
        self._expected = expected
        self._success = success
        self._lock = threading.Lock()

    def __call__(self, message: Any) -> Any:
        size = len(message.body)
        with self._lock:
            self.last = time.perf_counter()
            self.first = self.first or self.last
            self.messages += 1
            self.bytes += size
            if self.messages == self._expected:
                self.done.set()
        return self._success


def main() -> None:
    name_server, topic, expected = sys.argv[1], sys.argv[2], int(sys.argv[3])
    from rocketmq.client import ConsumeStatus, PushConsumer

    group = f"bench_native_{uuid.uuid4().hex[:8]}"
    # A new group begins at the end of each queue, and the library has no setting for that.
    with Client(name_server) as client:
        for queue, (start, _) in client.topic_offsets(topic).items():
            client.commit(group, queue, start)
    counter = _Counter(expected, ConsumeStatus.CONSUME_SUCCESS)
    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(name_server)
    consumer.set_instance_name(group)
    consumer.subscribe(topic, counter)
    consumer.start()
    counter.done.wait(_SILENCE_SECONDS + expected / 5000)
    seconds = counter.last - counter.first
    time.sleep(_EXTRA_SECONDS)  # more than expected would show now
    result = {"messages": counter.messages, "bytes": counter.bytes, "seconds": seconds}
    print(json.dumps(result), flush=True)
    os._exit(0)  # its shutdown takes long and now and then crashes


if __name__ == "__main__":
    main()
