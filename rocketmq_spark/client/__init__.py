"""A RocketMQ client in pure Python: the only room with broker sockets."""

from rocketmq_spark.client.client import Client
from rocketmq_spark.client.outgoing import Message, SendResult
from rocketmq_spark.client.reading import PullSettings
from rocketmq_spark.client.send import SendSettings
from rocketmq_spark.client.transport import Tls
from rocketmq_spark.errors import SendError

__all__ = [
    "Client",
    "Message",
    "PullSettings",
    "SendError",
    "SendResult",
    "SendSettings",
    "Tls",
]
