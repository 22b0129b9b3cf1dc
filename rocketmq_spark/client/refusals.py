"""What is said of messages that a broker does not give."""

from __future__ import annotations

from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import BrokerError, OffsetOutOfRangeError, ServerFaultError, from_answer
from rocketmq_spark.wire.frame import Frame


def refused(queue: MessageQueue, frame: Frame, address: str) -> BrokerError:
    """An answer without messages, by its code."""
    return from_answer(frame.code, frame.remark, f"cannot read {queue}", address)


def gone(queue: MessageQueue, offset: int, frame: Frame, address: str) -> OffsetOutOfRangeError:
    """The message is no more, or not yet."""
    low, high = frame.ext.get("minOffset", "?"), frame.ext.get("maxOffset", "?")
    return OffsetOutOfRangeError(
        f"cannot read offset {offset} of {queue}: {address} has [{low}, {high}) "
        f"({frame.remark}); the messages have expired, or the topic was made anew",
        code=frame.code,
        remark=frame.remark,
    )


def passed_over(
    queue: MessageQueue, offset: int, first: int, address: str
) -> OffsetOutOfRangeError:
    """The broker gives what is behind the message and says nothing of it."""
    return OffsetOutOfRangeError(
        f"cannot read offset {offset} of {queue}: {address} passes over it and goes on with "
        f"{first}; the messages between have expired",
        code=0,
    )


def leads_nowhere(queue: MessageQueue, offset: int, after: int, address: str) -> ServerFaultError:
    """A success without the message that was asked for, though it says where to go on."""
    return ServerFaultError(
        f"cannot read offset {offset} of {queue}: {address} answers without this message and says "
        f"to go on with {after}",
        code=0,
    )


def not_there(
    queue: MessageQueue, offset: int, end: int, frame: Frame, address: str
) -> OffsetOutOfRangeError:
    """The queue should go on to `end` and has nothing at `offset`."""
    return OffsetOutOfRangeError(
        f"cannot read offset {offset} of {queue} up to {end}: {address} "
        f"has nothing there ({frame.remark or frame.code}) and its queue ends at "
        f"{frame.ext.get('maxOffset', '?')}",
        code=frame.code,
        remark=frame.remark,
    )
