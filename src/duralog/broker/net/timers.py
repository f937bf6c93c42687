"""Timers of the event loop. Only the loop's thread uses them.

Most timers are cancelled before they are due (a fetch that found data, a heartbeat that arrived). A cancelled timer
stays in the heap until its time, but when more than half are cancelled they are removed, so that memory follows the
number of live timers.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

_FEW = 64


class Timer:
    """One callback. `cancel` may be called at any time, also after it has run."""

    __slots__ = ("_timers", "due_ms", "work")

    def __init__(self, timers: Timers, due_ms: float, work: Callable[[], None]) -> None:
        self._timers = timers
        self.due_ms = due_ms
        self.work: Callable[[], None] | None = work
        """None once it has run or is cancelled."""

    @property
    def is_active(self) -> bool:
        return self.work is not None

    def cancel(self) -> None:
        if self.work is not None:
            self.work = None
            self._timers.cancelled_one()


class Timers:
    """All timers of a loop, by a monotonic clock in milliseconds."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self.clock_ms = clock_ms
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._cancelled = 0

    def __len__(self) -> int:
        """The number of active timers."""
        return len(self._heap) - self._cancelled

    def after(self, delay_ms: float, work: Callable[[], None]) -> Timer:
        """Run `work` once, not before the delay is over."""
        timer = Timer(self, self.clock_ms() + max(delay_ms, 0), work)
        heapq.heappush(self._heap, (timer.due_ms, next(self._numbers), timer))
        return timer

    def seconds_to_next(self, longest: float) -> float:
        """The time until the next timer is due."""
        if not self._heap:
            return longest
        return min(max(self._heap[0][0] - self.clock_ms(), 0) / 1000, longest)

    def run_due(self, run: Callable[[Callable[[], None]], None]) -> None:
        """Pass everything that is due to `run`, in order. What is added meanwhile waits for the next turn."""
        now = self.clock_ms()
        first_new = next(self._numbers)
        heap = self._heap
        while heap and heap[0][0] <= now and heap[0][1] < first_new:
            timer = heapq.heappop(heap)[2]
            if timer.work is None:
                self._cancelled -= 1
            else:
                work, timer.work = timer.work, None
                run(work)
                heap = self._heap

    def cancelled_one(self) -> None:
        """Called by a timer that is cancelled."""
        self._cancelled += 1
        if self._cancelled > _FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].work is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
