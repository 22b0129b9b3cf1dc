"""Asks servers a real request, which is what "ready" means, and reads who is registered.

As small as can be: the package's client replaces it.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
from typing import Any

_GET_ROUTE, _GET_CLUSTER_INFO, _GET_BROKER_CONFIG = 105, 106, 26
_TIMEOUT = 3.0


def registered(address: str, tls: ssl.SSLContext | None) -> set[str] | None:
    """The broker addresses this name server knows; None when it does not answer."""
    answer = _ask(address, tls, _GET_CLUSTER_INFO)
    if answer is None or answer[0].get("code") != 0:
        return None
    brokers = _parse(answer[1]).get("brokerAddrTable") or {}
    return {str(a) for broker in brokers.values() for a in broker["brokerAddrs"].values()}


def brokers_of(address: str, tls: ssl.SSLContext | None, topic: str) -> set[str]:
    """The names of the brokers that this name server gives a topic's queues to."""
    answer = _ask(address, tls, _GET_ROUTE, topic=topic)
    if answer is None or answer[0].get("code") != 0:
        return set()
    return {str(queues["brokerName"]) for queues in _parse(answer[1])["queueDatas"]}


def answers(address: str, tls: ssl.SSLContext | None) -> bool:
    """Whether a broker answers. Where it asks for an account a refusal is an answer too."""
    return _ask(address, tls, _GET_BROKER_CONFIG) is not None


def _parse(body: bytes) -> dict[str, Any]:
    # RocketMQ leaves integer keys unquoted.
    parsed: dict[str, Any] = json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', body))
    return parsed


def _ask(
    address: str, tls: ssl.SSLContext | None, code: int, **fields: str
) -> tuple[dict[str, Any], bytes] | None:
    host, _, port = address.rpartition(":")
    request = {"code": code, "language": "PYTHON", "version": 475, "opaque": 1, "flag": 0}
    header = json.dumps({**request, "extFields": fields}).encode()
    try:
        with socket.create_connection((host, int(port)), _TIMEOUT) as raw:
            stream = tls.wrap_socket(raw, server_hostname=host) if tls else raw
            with stream, stream.makefile("rb") as reader:
                stream.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
                length, header_length = struct.unpack(">II", reader.read(8))
                header_length &= 0xFFFFFF
                answer = json.loads(reader.read(header_length))
                return answer, reader.read(length - 4 - header_length)
    except (OSError, ValueError, struct.error):
        return None
