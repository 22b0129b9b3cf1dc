"""Sends messages and says of each where it is: what `Client.send` does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rocketmq_spark.client.balance import Balancer
from rocketmq_spark.client.dispatch import STORED, Dispatcher, SendSettings, writable
from rocketmq_spark.client.metadata import Metadata
from rocketmq_spark.client.outgoing import Message, Request, SendResult, make_requests
from rocketmq_spark.client.pool import Pool
from rocketmq_spark.errors import RocketMQError, SendError
from rocketmq_spark.wire.answers import number
from rocketmq_spark.wire.frame import Frame

__all__ = ["SendSettings", "Sender"]


class Sender:
    def __init__(self, metadata: Metadata, pool: Pool, settings: SendSettings) -> None:
        self._metadata = metadata
        self._pool = pool
        self._settings = settings
        self._balancer = Balancer(settings.fault_latency)

    def send(self, topic: str, messages: Sequence[Message]) -> list[SendResult]:
        """One result a message, in their order; raises SendError when any is not stored."""
        if not messages:
            return []
        results: dict[int, SendResult] = {}

        def stored(request: Request, frame: Frame) -> None:
            first = number(frame, "queueOffset")
            offset_ids = frame.ext.get("msgId", "").split(",")
            for row, msg_id, offset, offset_id in zip(
                request.rows,
                request.msg_ids,
                itertools.count(first),
                itertools.chain(offset_ids, itertools.repeat("")),
                strict=False,
            ):
                results[row] = SendResult(
                    STORED[frame.code], msg_id, request.queue, offset, offset_id
                )

        def lost(request: Request, error: RocketMQError) -> None:
            for row, msg_id in zip(request.rows, request.msg_ids, strict=True):
                results[row] = SendResult("FAILED", msg_id, request.queue, error=error)

        queues = writable(self._metadata.route(topic))
        requests = make_requests(
            messages,
            queues,
            self._balancer,
            compress_above=self._settings.compress_above,
            compression=self._settings.compression,
            max_message=self._settings.max_message,
            batch_bytes=self._settings.batch_bytes,
        )
        with Dispatcher(
            self._metadata, self._pool, self._settings, stored, lost, self._balancer
        ) as dispatcher:
            for request in requests:
                dispatcher.put(request)
            dispatcher.flush()
        ordered = [results[row] for row in range(len(messages))]
        failed = [result for result in ordered if not result.ok]
        if failed:
            raise SendError(
                f"{len(failed)} of {len(messages)} messages were not stored: {failed[0].error}",
                ordered,
            ) from failed[0].error
        return ordered
