"""Tasks of a scan, read by threads ahead of the consumer, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from duralog.scanning.slices import Slice

T = TypeVar("T")

_TaskResults = tuple[list[T], Exception | None]
"""The results of a task, and the error after them, if it failed."""


def read_ahead(
    tasks: Sequence[tuple[Slice, ...]], read: Callable[[Sequence[Slice]], Iterable[T]], threads: int
) -> Iterator[T]:
    """What `read` returns for all tasks, in order. A task starts when it is one of the next few.

    An error is raised after the results before it.
    """

    def read_task(task: Sequence[Slice]) -> _TaskResults[T]:
        found: list[T] = []
        try:
            found.extend(read(task))
        except Exception as error:
            return found, error
        return found, None

    pool = ThreadPoolExecutor(threads, thread_name_prefix="duralog-scan")
    try:
        started: deque[Future[_TaskResults[T]]] = deque()
        for task in tasks:
            started.append(pool.submit(read_task, task))
            if len(started) > threads:
                yield from _results(started.popleft().result())
        while started:
            yield from _results(started.popleft().result())
    finally:
        pool.shutdown(cancel_futures=True)


def _results(found: _TaskResults[T]) -> Iterator[T]:
    results, error = found
    yield from results
    if error is not None:
        raise error
