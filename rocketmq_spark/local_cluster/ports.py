"""Picks loopback ports that are free now and that no outgoing connection will take meanwhile."""

from __future__ import annotations

import random
import socket

from rocketmq_spark.errors import ClusterError

LOOPBACK = "127.0.0.1"

# Below the ports that operating systems give to outgoing connections (Linux from 32768, others
# from 49152), so that a stopped broker finds its port free when it is started again.
_LOWEST, _HIGHEST = 20_000, 32_000
_ATTEMPTS = 500


class Ports:
    """Hands out each port once."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._random = random.SystemRandom()

    def one(self) -> int:
        return self._pick(())

    def for_broker(self) -> int:
        """A port whose neighbours are free too: RocketMQ listens on p, p - 2 (fast), p + 1 (HA)."""
        return self._pick((-2, 1))

    def _pick(self, offsets: tuple[int, ...]) -> int:
        for _ in range(_ATTEMPTS):
            port = self._random.randrange(_LOWEST, _HIGHEST)
            wanted = {port, *(port + offset for offset in offsets)}
            if not wanted & self._taken and all(map(is_free, wanted)):
                self._taken |= wanted
                return port
        raise ClusterError(f"No free ports between {_LOWEST} and {_HIGHEST} on {LOOPBACK}.")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
