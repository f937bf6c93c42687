"""A clock for the broker's timers that only the test moves."""

from __future__ import annotations


class SetClock:
    def __init__(self, now_ms: float = 0.0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> float:
        return self.now_ms
