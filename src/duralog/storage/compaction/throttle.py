"""A limit of bytes per second that several threads share.

Bytes are told after they were read or written, and whoever tells them waits for his share of time. Time that the work
itself took counts, so that only work that is too fast is slowed down. Time in which nobody worked does not: a pause is
not followed by a burst.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from duralog.storage.disk.background import Clock

Wait = Callable[[float], object]
"""Lets seconds pass, or fewer of them when there is a reason to hurry."""

_SHORTEST_WAIT_MS = 10
"""Less is not waited for now, but added to the next time: short sleeps take longer than they say."""
_MOST_CREDIT_MS = 300
"""Time that was not used counts no longer than this, or than the bytes themselves take."""


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
        """Tell bytes, and wait until they may have passed."""
        took_ms = count / self._bytes_per_ms
        with self._lock:
            now_ms = self._clock()
            began_ms = max(self._paid_until_ms, now_ms - max(took_ms, _MOST_CREDIT_MS))
            self._paid_until_ms = began_ms + took_ms
            wait_ms = self._paid_until_ms - now_ms
        if wait_ms >= _SHORTEST_WAIT_MS:
            wait(wait_ms / 1000)
