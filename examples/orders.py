"""The client in one page: create a topic, send orders, read the expensive ones back as Arrow.

python examples/orders.py
"""

import json
import os
import time
from contextlib import ExitStack

import pyarrow as pa

from rocketmq_spark import Client, LocalCluster, Message

TOPIC = "example_orders"


def main() -> None:
    with ExitStack() as stack:
        address = os.environ.get("ROCKETMQ_SPARK_NAMESRV")
        if not address:
            address = stack.enter_context(LocalCluster()).name_server
        client = stack.enter_context(Client(address, timeout=15))

        client.create_topic(TOPIC, queues=2)
        orders = [
            Message(
                json.dumps({"order": number, "price": number * 10}),
                tags="express" if number % 4 == 0 else "standard",
                keys=f"order-{number}",
                sharding_key=f"customer-{number % 5}",  # one customer's orders stay in order
            )
            for number in range(20)
        ]
        for result in client.send(TOPIC, orders)[:3]:
            print(f"stored {result.msg_id} in {result.queue} at {result.queue_offset}")

        # A broker acknowledges a message a moment before it can be read.
        while sum(high for _, high in client.topic_offsets(TOPIC).values()) < len(orders):
            time.sleep(0.05)

        batches = [
            batch
            for queue, (start, end) in client.topic_offsets(TOPIC).items()
            for batch in client.read(
                queue, start, end, ["keys", "tags", "body"], sub_expression="express"
            )
        ]
        table = pa.Table.from_batches(batches).sort_by("keys")
        print(table.select(["keys", "tags"]))
        print(f"{table.num_rows} express orders out of {len(orders)}")
        client.delete_topic(TOPIC)


if __name__ == "__main__":
    main()
