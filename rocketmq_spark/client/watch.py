"""Notices the request that is never answered while those behind it are."""

from __future__ import annotations

import time


class Watch:
    """Times the oldest request in flight, from when it has become the oldest.

    By silence alone a lost request would not be noticed before everything else is answered. By the
    time since it was sent, a slow line would be taken for a broker that does not answer: what is
    behind megabytes has to wait for them.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._oldest: object = None
        self._deadline = 0.0

    def deadline(self, oldest: object) -> float:
        """Until when to wait. `oldest` is anything that only this sending of the request has."""
        if oldest is not self._oldest:
            self._oldest, self._deadline = oldest, time.monotonic() + self._timeout
        return self._deadline

    def restart(self) -> None:
        """The time until now was not the broker's."""
        self._oldest = None
