"""Tasks of a scan, read by threads ahead of the consumer, in order.

Results that wait for the consumer are bounded in bytes, for any size of decompressed batches: a task without room
leaves its thread, and the consumer starts it again. So no thread waits for the consumer, which may stop at any time.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from duralog.scanning.slices import Slice

T = TypeVar("T")

WAITING_BYTES = 16 << 20
"""For each task that is read at the same time. One result beyond these bytes may wait for each thread."""


def read_ahead(
    tasks: Sequence[tuple[Slice, ...]],
    read: Callable[[Sequence[Slice]], Iterable[T]],
    threads: int,
    size_of: Callable[[T], int] = lambda _: 0,
) -> Iterator[T]:
    """The results of `read` for all tasks, in order. A task starts when it is one of the next few.

    `size_of` is how many bytes a result takes while it waits. An error is raised after the results before it. A forked
    child cannot continue the stream of its parent: it has none of the threads.
    """
    reading = _Reading(tasks, read, threads, size_of)
    process = os.getpid()
    try:
        while (found := reading.next_result()) is not None:
            yield found[0]
            if os.getpid() != process:
                raise RuntimeError("the stream belongs to the process that forked: scan again in this one")
    finally:
        if os.getpid() == process:
            reading.close()


class _Task(Generic[T]):
    def __init__(self, slices: Sequence[Slice]) -> None:
        self.slices = slices
        self.remaining: Iterator[T] | None = None
        self.results: deque[tuple[T, int]] = deque()
        self.is_running = False
        self.is_done = False
        self.error: Exception | None = None


class _Reading(Generic[T]):
    """The consumer starts tasks and takes their results. `_changed` guards all but `remaining`, which is a thread's."""

    def __init__(
        self,
        tasks: Sequence[tuple[Slice, ...]],
        read: Callable[[Sequence[Slice]], Iterable[T]],
        threads: int,
        size_of: Callable[[T], int],
    ) -> None:
        self._coming = iter(tasks)
        self._read = read
        self._size_of = size_of
        self._most_tasks = threads + 1
        self._most_bytes = self._most_tasks * WAITING_BYTES
        self._waiting_bytes = 0
        self._started: deque[_Task[T]] = deque()
        self._is_closed = False
        self._changed = threading.Condition()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="duralog-scan")

    def next_result(self) -> tuple[T] | None:
        """None at the end."""
        with self._changed:
            while True:
                self._start_tasks()
                if not self._started:
                    return None
                first = self._started[0]
                if first.results:
                    result, size = first.results.popleft()
                    self._waiting_bytes -= size
                    return (result,)
                if not first.is_done:
                    self._changed.wait()
                    continue
                if first.error is not None:
                    raise first.error
                self._started.popleft()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
        self._pool.shutdown(cancel_futures=True)

    def _start_tasks(self) -> None:
        while len(self._started) < self._most_tasks and (slices := next(self._coming, None)) is not None:
            self._started.append(_Task(slices))
        for number, task in enumerate(self._started):
            # The consumer waits for the first one, so that may always go on.
            has_room = self._waiting_bytes < self._most_bytes or (number == 0 and not task.results)
            if has_room and not task.is_running and not task.is_done:
                task.is_running = True
                self._pool.submit(self._advance, task)

    def _advance(self, task: _Task[T]) -> None:
        """In a thread: read until the task is done, or there is no room for results."""
        error: Exception | None = None
        try:
            if task.remaining is None:
                task.remaining = iter(self._read(task.slices))
            for result in task.remaining:
                if not self._add(task, result):
                    return
        except Exception as raised:
            error = raised
        with self._changed:
            task.error = error
            task.is_done = True
            task.is_running = False
            self._changed.notify()

    def _add(self, task: _Task[T], result: T) -> bool:
        """Whether the task may continue."""
        size = self._size_of(result)
        with self._changed:
            task.results.append((result, size))
            self._waiting_bytes += size
            task.is_running = self._waiting_bytes < self._most_bytes and not self._is_closed
            self._changed.notify()
            return task.is_running
