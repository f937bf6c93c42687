"""Work that happens later or again and again, beside the threads of the callers.

A `Scheduler` holds tasks and the times they are due at; its threads run them. A task that repeats is due again an
interval after it ended, so it never runs twice at the same time and never piles up.

What must always be true:
- A task that fails does not end its thread, nor its repetition. The failure is logged in one line and kept in `errors`.
- `stop` returns when no task is running any more, and none runs after that. What was still waiting is dropped: all
  tasks are such that the next start of the store makes up for them.
- The threads keep a process alive, so that no task is cut off in the middle. But when its main thread ends without
  `stop`, they end by themselves.
- In a forked child, which has none of the threads, a scheduler is stopped.

The clock is passed in; a test can have no threads and call `run_due` after it has moved the clock.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from duralog.errors import DuralogError
from duralog.storage.disk import forks

Clock = Callable[[], int]
"""Milliseconds."""
Work = Callable[[], None]

_MOST_ERRORS = 100
_LONGEST_WAIT_SECONDS = 1.0

_logger = logging.getLogger(__name__)


def wall_clock_ms() -> int:
    """The time of day, for what is compared with the timestamps of records and files."""
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> int:
    """A clock that nobody sets, for when tasks are due."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class BackgroundError:
    task: str
    error: BaseException

    def __str__(self) -> str:
        # Errors of this package tell all in their message; of others it may be no more than a word.
        told = str(self.error) if isinstance(self.error, DuralogError) else repr(self.error)
        return f"{self.task}: {told}"


@dataclass(order=True, slots=True)
class _Task:
    due_ms: int
    number: int
    """Tasks that are due at the same time run in the order they came in."""
    name: str = field(compare=False)
    work: Work = field(compare=False)
    interval_ms: int | None = field(compare=False)


class Scheduler:
    """Runs tasks when they are due. All methods may be called from any thread."""

    def __init__(self, clock: Clock = steady_clock_ms, *, threads: int = 2, name: str = "duralog") -> None:
        self.clock = clock
        self._tasks: list[_Task] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._stopping = False
        self._errors: deque[BackgroundError] = deque(maxlen=_MOST_ERRORS)
        self._name = name
        self._thread_numbers = itertools.count()
        self._wanted_threads = 0
        self._threads: list[threading.Thread] = []
        """Those that serve. One that ends before `stop` does so under the lock, and takes itself out."""
        forks.belongs_here(self)
        self._start_threads(threads)

    def on_fork(self) -> None:
        self._changed = threading.Condition()
        self._stopping = True
        self._tasks = []
        self._threads = []

    @property
    def errors(self) -> tuple[BackgroundError, ...]:
        """The latest failures, oldest first."""
        return tuple(self._errors)

    @property
    def is_stopping(self) -> bool:
        """Whether a long task should end where it can."""
        return self._stopping

    def after(self, delay_ms: int, name: str, work: Work) -> None:
        """Run once, after a delay."""
        self._add(_Task(self.clock() + delay_ms, next(self._numbers), name, work, None))

    def every(self, interval_ms: int, name: str, work: Work, *, first_after_ms: int) -> None:
        """Run after a delay and then again and again, the interval after each end."""
        self._add(_Task(self.clock() + first_after_ms, next(self._numbers), name, work, max(interval_ms, 1)))

    def tell(self, name: str, error: BaseException) -> None:
        """Log and keep a failure of a task that goes on all the same."""
        failure = BackgroundError(name, error)
        self._errors.append(failure)
        _logger.error("%s", failure)

    def run_due(self) -> int:
        """Run what is due now, in this thread. Returns how many tasks that were."""
        count = 0
        while (task := self._take_due()) is not None:
            self._run(task)
            count += 1
        return count

    def stop(self) -> None:
        """Let running tasks end, drop the others. A task that calls this itself does not wait for its own end."""
        with self._changed:
            self._stopping = True
            self._tasks.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def set_threads(self, count: int) -> None:
        """Serve with so many threads from now on. One too many ends when its task does.

        A scheduler without threads gets none: somebody calls `run_due`.
        """
        with self._changed:
            if self._threads and not self._stopping:
                self._start_threads(count)
                self._changed.notify_all()

    def _start_threads(self, wanted: int) -> None:
        with self._changed:
            self._wanted_threads = wanted
            while len(self._threads) < wanted:
                thread = threading.Thread(target=self._serve, name=f"{self._name}-{next(self._thread_numbers)}")
                thread.start()
                self._threads.append(thread)

    def _add(self, task: _Task) -> None:
        with self._changed:
            if not self._stopping:
                heapq.heappush(self._tasks, task)
                self._changed.notify()

    def _take_due(self) -> _Task | None:
        with self._changed:
            return self._pop_due()

    def _pop_due(self) -> _Task | None:
        if self._tasks and self._tasks[0].due_ms <= self.clock():
            return heapq.heappop(self._tasks)
        return None

    def _serve(self) -> None:
        main_thread = threading.main_thread()
        while main_thread.is_alive():
            with self._changed:
                if self._stopping:
                    return
                if len(self._threads) > self._wanted_threads:
                    self._threads.remove(threading.current_thread())
                    return
                task = self._pop_due()
                if task is None:
                    self._changed.wait(self._seconds_to_wait())
                    continue
            self._run(task)

    def _seconds_to_wait(self) -> float:
        if not self._tasks:
            return _LONGEST_WAIT_SECONDS
        return min(max(self._tasks[0].due_ms - self.clock(), 0) / 1000, _LONGEST_WAIT_SECONDS)

    def _run(self, task: _Task) -> None:
        try:
            task.work()
        except Exception as error:
            self.tell(task.name, error)
        if task.interval_ms is not None:
            task.due_ms = self.clock() + task.interval_ms
            self._add(task)
