"""The same work on a row of things, several at a time, with the results in order and only a few things held at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class OrderedWork:
    """Threads that wait for work. With one worker there are none: the caller's thread does the work itself.

    It pays where the work releases the GIL. What is under way is at most one thing more than there are workers.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="duralog-compaction") if workers > 1 else None

    def __enter__(self) -> OrderedWork:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[[T], R], things: Iterable[T]) -> Generator[tuple[T, R], None, None]:
        """Each thing with its result, in order. Things are taken in this thread, ahead of the results.

        Whatever `things` or the work raises comes after the results of all things before it. Whoever stops early closes
        the iterator: it waits for what is under way.
        """
        if self._pool is None:
            for thing in things:
                yield thing, work(thing)
            return
        waiting: deque[tuple[T, Future[R]]] = deque()
        try:
            source = iter(things)
            failure: BaseException | None = None
            while True:
                while failure is None and len(waiting) <= self._workers:
                    try:
                        thing = next(source)
                    except StopIteration:
                        break
                    except BaseException as error:
                        failure = error
                        break
                    waiting.append((thing, self._pool.submit(work, thing)))
                if not waiting:
                    break
                thing, future = waiting.popleft()
                yield thing, future.result()
            if failure is not None:
                raise failure
        finally:
            for _, future in waiting:
                future.cancel()
            for _, future in waiting:
                if not future.cancelled():
                    future.exception()
