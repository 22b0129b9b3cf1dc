"""One pass of rocketmq-client-python's producer: `native_produce NAME_SERVER TOPIC MESSAGES BYTES`.

One synchronous send after another, as its batches cannot be trusted. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import uuid


def main() -> None:
    name_server, topic, messages, size = (
        sys.argv[1],
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
    )
    from rocketmq.client import Message, Producer
    from rocketmq.exceptions import ffi_check
    from rocketmq.ffi import dll

    body = random.Random(1).randbytes(size)
    producer = Producer(f"bench_native_{uuid.uuid4().hex[:8]}", timeout=30_000)
    producer.set_namesrv_addr(name_server)
    producer.start()

    def send() -> None:
        message = Message(topic)
        ffi_check(dll.SetByteMessageBody(message, body, len(body)))
        if producer.send_sync(message).status != 0:
            raise RuntimeError("not stored")
        message.destroy()

    begin = time.perf_counter()
    for _ in range(messages):
        send()
    seconds = time.perf_counter() - begin
    print(json.dumps({"messages": messages, "seconds": seconds}), flush=True)
    os._exit(0)  # its shutdown takes long and now and then crashes


if __name__ == "__main__":
    main()
