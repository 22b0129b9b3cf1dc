"""Notices the request that is never answered while others are.

The oldest one in flight is lost if one that was sent a whole timeout later is answered. Silence
alone would tell of it only when everything else is answered. Its age does not tell: an answer may
wait behind megabytes on a slow line, or in the kernel while our caller is away. But there it stays
in front of those to later requests, which the broker had not even seen then.
"""

from __future__ import annotations

import time

from rocketmq_spark.errors import RequestTimeoutError


def overtaken(address: str) -> RequestTimeoutError:
    return RequestTimeoutError(f"{address} answers later requests, and one within the timeout not")


class Watch:
    """For requests that are sent in bursts, and whose times are too many to be kept."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._oldest: object = None
        self._since = 0.0
        self._later: object = None

    def sent(self, oldest: object, request: object) -> None:
        """`request` is on its way now, and `oldest` has been longest. Both are told by identity, so
        they must be of this sending of a request only."""
        now = time.monotonic()
        if oldest is not self._oldest:
            self._oldest, self._since, self._later = oldest, now, None
        elif self._later is None and now - self._since > self._timeout:
            self._later = request

    def later(self, oldest: object) -> object | None:
        """A request whose answer tells that `oldest` is lost, if one was sent."""
        return self._later if oldest is self._oldest else None
