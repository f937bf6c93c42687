"""What was done to the broker and what clients waited for, with the time of each: it explains a stall."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple


class Stall(NamedTuple):
    """A time without an acknowledgement to any client."""

    began: float
    ended: float
    waiting: dict[str, tuple[str, float]]
    """By client: the call that it was in when the stall ended, and since when."""
    ended_by: str

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Journal:
    """Any thread may write to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._entries: list[tuple[float, str]] = []

    def note(self, what: str) -> None:
        with self._lock:
            self._entries.append((time.monotonic(), what))

    def explained(self, stall: Stall) -> list[str]:
        """What was going on when it began, what happened meanwhile, and what the clients were waiting for."""
        with self._lock:
            earlier = [(at, what) for at, what in self._entries if at < stall.began]
            meanwhile = [(at, what) for at, what in self._entries if stall.began <= at <= stall.ended]
        lines = [f"it began {stall.began - self._began:.1f} s after the start, {stall.ended_by} ended it"]
        lines += [f"  {at - stall.began:+.1f} s: {what}" for at, what in earlier[-3:] + meanwhile]
        lines += [
            f"  {client} was in {call}, for {stall.ended - since:.1f} s"
            for client, (call, since) in sorted(stall.waiting.items())
        ]
        return lines
