"""rocketmq-client-python as an outside witness: `native_peer send|receive NAME_SERVER TOPIC COUNT`.

A process of its own, since the library leaves threads behind and writes logs into the home folder.
`send` stores so many messages; `receive` prints a line of JSON for each of so many that its push
consumer gets. (Bodies end at their first NUL there, so tests send none.)
"""

from __future__ import annotations

import json
import os
import queue
import sys
import uuid
from typing import Any

from rocketmq_spark.client import Client

_SECONDS = 120.0


def send(name_server: str, topic: str, count: int) -> None:
    from rocketmq.client import Message, Producer

    producer = Producer(f"native_{uuid.uuid4().hex[:8]}")
    producer.set_namesrv_addr(name_server)
    producer.start()
    for number in range(count):
        message = Message(topic)
        message.set_body(f"native {number}")
        message.set_keys(f"key-{number}")
        message.set_tags("new")
        message.set_property("price", str(number))
        assert producer.send_sync(message).status == 0
        message.destroy()
    producer.shutdown()


def receive(name_server: str, topic: str, count: int) -> None:
    from rocketmq.client import ConsumeStatus, PushConsumer

    group = f"native_{uuid.uuid4().hex[:8]}"
    # A new group begins at the end of each queue, and the library has no setting for that.
    with Client(name_server, timeout=30) as client:
        for each, (start, _) in client.topic_offsets(topic).items():
            client.commit(group, each, start)
    got: queue.Queue[dict[str, Any]] = queue.Queue()

    def take(message: Any) -> Any:
        keys, tags = message.keys, message.tags
        price = message.get_property("price")
        told = [
            w.decode() if isinstance(w, bytes) else w for w in (message.body, keys, tags, price)
        ]
        got.put(dict(zip(("body", "keys", "tags", "price"), told, strict=True)))
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(name_server)
    consumer.set_instance_name(group)
    consumer.subscribe(topic, take)
    consumer.start()
    for _ in range(count):
        print(json.dumps(got.get(timeout=_SECONDS)), flush=True)
    os._exit(0)  # its shutdown takes long and now and then crashes


if __name__ == "__main__":
    what, server, name, number = sys.argv[1:]
    {"send": send, "receive": receive}[what](server, name, int(number))
