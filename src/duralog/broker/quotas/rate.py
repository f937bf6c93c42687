"""A usage rate over windows, as in Kafka (`quota.window.num`, `quota.window.size.seconds`).

The rate is the sum of the windows divided by their time. Until all windows have begun, the missing ones count as empty:
a client may use what its quota allows in all of them at once, and waits afterwards.
"""

from __future__ import annotations

from collections import deque


class WindowedRate:
    """Only the loop's thread uses it."""

    __slots__ = ("_window_ms", "_windows", "_windows_kept")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows_kept = windows
        self._window_ms = window_ms
        self._windows: deque[tuple[float, float]] = deque()
        """When each began, and what was used in it. The last one is the current one."""

    def record(self, used: float, now_ms: float) -> None:
        """Something was used; negative if it was not used after all."""
        windows = self._windows
        if windows and now_ms - windows[-1][0] < self._window_ms:
            began_ms, before = windows[-1]
            windows[-1] = (began_ms, before + used)
        else:
            windows.append((now_ms, used))
            self._drop_old(now_ms)

    @property
    def last_window_ms(self) -> float:
        """When the last window began; before everything else if there is none."""
        return self._windows[-1][0] if self._windows else float("-inf")

    def is_idle(self, now_ms: float) -> bool:
        """Whether nothing that was used counts any more."""
        self._drop_old(now_ms)
        return not self._windows

    def throttle_ms(self, allowed: float, now_ms: float) -> float:
        """How long to pause until the rate per second is within the limit. 0 if it is."""
        self._drop_old(now_ms)
        if not self._windows:
            return 0.0
        span_ms = self._span_ms(now_ms)
        rate = sum(used for _, used in self._windows) * 1000 / span_ms
        return (rate - allowed) / allowed * span_ms if rate > allowed else 0.0

    def _span_ms(self, now_ms: float) -> float:
        elapsed_ms = now_ms - self._windows[0][0]
        missing = self._windows_kept - 1 - int(elapsed_ms // self._window_ms)
        return max(elapsed_ms + max(missing, 0) * self._window_ms, self._window_ms)

    def _drop_old(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._windows_kept * self._window_ms
        while self._windows and self._windows[0][0] <= oldest_ms:
            self._windows.popleft()


class TokenBucket:
    """A token bucket, refilled at the allowed rate. It begins full, and may be overdrawn once."""

    __slots__ = ("_allowed", "_at_ms", "_most", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._at_ms = 0.0
        self._allowed = self._most = 0.0

    def refill(self, allowed: float, burst_seconds: float, now_ms: float) -> float:
        """The tokens that there are now: negative if too many were taken."""
        self._allowed, self._most = allowed, allowed * burst_seconds
        before = self._most if self._tokens is None else self._tokens
        self._tokens = min(self._most, before + allowed * max(now_ms - self._at_ms, 0) / 1000)
        self._at_ms = now_ms
        return self._tokens

    def take(self, tokens: float) -> float:
        """What is left. REQUIRES: it was refilled before."""
        assert self._tokens is not None
        self._tokens -= tokens
        return self._tokens

    def is_idle(self, now_ms: float) -> bool:
        """Whether it is full by now, as a new one is."""
        return self._tokens is None or self._tokens + self._allowed * (now_ms - self._at_ms) / 1000 >= self._most
