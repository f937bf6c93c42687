"""Background tasks: functions that run once after a delay, or periodically. Kafka's `KafkaScheduler`.

A `Scheduler` keeps tasks and when they are due; its threads run them. A periodic task is due again one interval after
it ended, so it never runs twice at the same time.

What must always be true:
- A task that fails ends neither its thread nor its repetition. The failure is logged in one line and kept in `errors`.
- `stop` returns when no task is running, and none runs after that. Waiting tasks are dropped: whatever a task does, the
  next start of the store makes up for it.
- The threads keep the process alive, so that no task is interrupted. If the main thread ends without `stop`, they end
  by themselves.
- In a forked child, which has none of the threads, a scheduler is stopped.

The clock is a parameter. A test can use no threads, move the clock and call `run_due`.
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

from duralog.config.times import now_ms
from duralog.errors import DuralogError
from duralog.storage.disk import forks

Clock = Callable[[], int]
"""Returns milliseconds."""
Work = Callable[[], None]

_MOST_ERRORS = 100
_LONGEST_WAIT_SECONDS = 1.0

_logger = logging.getLogger(__name__)


wall_clock_ms: Clock = now_ms
"""The time of day, to compare with the timestamps of records and files."""


def steady_clock_ms() -> int:
    """A monotonic clock, for when tasks are due."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class BackgroundError:
    task: str
    error: BaseException

    def __str__(self) -> str:
        # The messages of other errors may be a single word, such as a missing key.
        text = str(self.error) if isinstance(self.error, DuralogError) else repr(self.error)
        return f"{self.task}: {text}"


@dataclass(order=True, slots=True)
class _Task:
    due_ms: int
    number: int
    """Tasks that are due at the same time run in the order in which they were added."""
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
        self.error_count = 0
        self._name = name
        self._thread_numbers = itertools.count()
        self._wanted_threads = 0
        self._threads: list[threading.Thread] = []
        """The running threads. One that ends before `stop` removes itself, under the lock."""
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
        """Whether a long task should end as soon as it can."""
        return self._stopping

    def after(self, delay_ms: int, name: str, work: Work) -> None:
        """Run once, after a delay."""
        self._add(_Task(self.clock() + delay_ms, next(self._numbers), name, work, None))

    def every(self, interval_ms: int, name: str, work: Work, *, first_after_ms: int) -> None:
        """Run after a delay, and then periodically: one interval after each run has ended."""
        self._add(_Task(self.clock() + first_after_ms, next(self._numbers), name, work, max(interval_ms, 1)))

    def report(self, name: str, error: BaseException) -> None:
        """Log and keep an error of a task that continues."""
        failure = BackgroundError(name, error)
        self._errors.append(failure)
        self.error_count += 1
        _logger.error("%s", failure)

    def run_due(self) -> int:
        """Run the tasks that are due, in this thread. Returns their number."""
        count = 0
        while (task := self._take_due()) is not None:
            self._run(task)
            count += 1
        return count

    def stop(self) -> None:
        """Wait for running tasks and drop the others. A task that calls this does not wait for itself."""
        with self._changed:
            self._stopping = True
            self._tasks.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def set_threads(self, count: int) -> None:
        """Change the number of threads. A surplus thread ends after its task.

        A scheduler without threads gets none: its owner calls `run_due`.
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
            self.report(task.name, error)
        if task.interval_ms is not None:
            task.due_ms = self.clock() + task.interval_ms
            self._add(task)
