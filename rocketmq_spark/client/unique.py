"""Message ids that no other producer makes: MessageClientIDSetter's shape, reserved in blocks.

Tools read the address and the time out of an id, so the shape stays: address, process, a random
word in place of Java's class-loader hash, milliseconds since the month began, a counter. The last
two are one number of 48 bits here. It never goes back in a process, so a block of any size is as
unique as a single id.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from datetime import datetime
from functools import lru_cache

_COUNTER_BITS = 16
_lock = threading.Lock()
_next = 0


def _after_fork() -> None:
    """At the fork another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def reserve(count: int) -> tuple[str, int]:
    """How all ids of this process begin, and the first of `count` numbers that end them."""
    global _next
    now = time.time()
    clock = (int(now * 1000) - _month_start(now)) << _COUNTER_BITS
    with _lock:
        first = max(_next, clock)
        # A new month sets the clock back by weeks; then the number follows, for its time is read.
        if first - clock > 1 << 40:
            first = clock
        _next = first + count
    return _process_prefix(os.getpid()), first


def unique_id() -> str:
    prefix, number = reserve(1)
    return f"{prefix}{number & 0xFFFFFFFFFFFF:012X}"


@lru_cache(maxsize=1)
def _process_prefix(pid: int) -> str:
    # Kept by process id, so that a forked worker makes its own.
    return (_own_address() + struct.pack(">H", pid & 0xFFFF) + os.urandom(4)).hex().upper()


def _own_address() -> bytes:
    """Four bytes that say which machine; at random where only the loopback has a name."""
    try:
        address = socket.inet_aton(socket.gethostbyname(socket.gethostname()))
    except OSError:
        return os.urandom(4)
    return os.urandom(4) if address[0] == 127 else address


@lru_cache(maxsize=2)
def _hour(number: int) -> int:
    first = datetime.fromtimestamp(number * 3600).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    return int(first.timestamp() * 1000)


def _month_start(now: float) -> int:
    """Milliseconds at the first of this month, local time; worked out once an hour."""
    return _hour(int(now // 3600))
