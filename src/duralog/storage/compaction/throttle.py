"""A limit of bytes per second that several threads share.

Callers add bytes after they have read or written them, and wait as long as the limit requires. Time that the work
itself took counts, so that only work that is too fast is slowed down. Idle time does not: no burst follows a pause.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from duralog.storage.disk.background import Clock

Wait = Callable[[float], object]
"""Waits for a number of seconds, or less if it is interrupted."""

_SHORTEST_WAIT_MS = 10
"""Shorter waits are added to the next one: short sleeps take longer than requested."""
_MOST_CREDIT_MS = 300
"""The most unused time that counts, or the time that the bytes themselves take."""


class Throttle:
    """Any thread may call it."""

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        if not bytes_per_second > 0:
            raise ValueError(f"{bytes_per_second} bytes per second")
        self._bytes_per_ms = bytes_per_second / 1000
        self._clock = clock
        self._lock = threading.Lock()
        self._paid_until_ms = -math.inf

    def add(self, count: int, wait: Wait) -> None:
        """Add bytes, and wait until the limit allows them."""
        took_ms = count / self._bytes_per_ms
        with self._lock:
            now_ms = self._clock()
            began_ms = max(self._paid_until_ms, now_ms - max(took_ms, _MOST_CREDIT_MS))
            self._paid_until_ms = began_ms + took_ms
            wait_ms = self._paid_until_ms - now_ms
        if wait_ms >= _SHORTEST_WAIT_MS:
            wait(wait_ms / 1000)
