"""The same work on a sequence of things by several threads, with results in order and only a few things in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")


class OrderedWork:
    """A number of workers. The caller's thread is one of them: it works while it waits for a result.

    This is faster if the work releases the GIL. At most two things for each worker are in flight.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers - 1, thread_name_prefix="duralog-compaction") if workers > 1 else None

    def __enter__(self) -> OrderedWork:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[[T], R], things: Iterable[T]) -> Generator[tuple[T, R], None, None]:
        """Each thing with its result, in order. Things are taken ahead of the results, one at a time, by any worker.

        An error of `things` or of the work is raised after the results of all things before it. To stop early, close
        the iterator: it waits for the things in flight.
        """
        if self._pool is None:
            for thing in things:
                yield thing, work(thing)
            return
        row = _Row(work, things, most=2 * self._workers)
        helpers = [self._pool.submit(row.help) for _ in range(self._workers - 1)]
        try:
            yield from row.results()
        finally:
            row.end()
            wait(helpers)


@dataclass(slots=True)
class _Place(Generic[T, R]):
    thing: T
    result: R | None = None
    error: BaseException | None = None
    is_done: bool = False


class _Row(Generic[T, R]):
    """The things in flight, in their order."""

    def __init__(self, work: Callable[[T], R], things: Iterable[T], *, most: int) -> None:
        self._work = work
        self._things = iter(things)
        self._most = most
        self._waiting: deque[_Place[T, R]] = deque()
        self._failure: BaseException | None = None
        self._has_more = True
        self._changed = threading.Condition()
        """Guards all of this, and is notified when a place is done, or free."""
        self._taking = threading.Lock()
        """Held while the next thing is taken. Acquired before `_changed`, never while that is held."""

    def help(self) -> None:
        """Work until nothing is left to take."""
        while self._has_more:
            if not self._work_on_next():
                with self._changed:
                    self._changed.wait_for(lambda: not self._has_more or len(self._waiting) < self._most)

    def results(self) -> Generator[tuple[T, R], None, None]:
        while True:
            done = self._next_done()
            if done is not None:
                if done.error is not None:
                    raise done.error
                yield done.thing, cast("R", done.result)
            elif not self._work_on_next():
                with self._changed:
                    self._changed.wait_for(lambda: not self._waiting or self._waiting[0].is_done)
                    if not self._waiting and not self._has_more:
                        break
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Take nothing more."""
        with self._changed:
            self._has_more = False
            self._changed.notify_all()

    def _next_done(self) -> _Place[T, R] | None:
        """The first place, if it is done; it is removed then."""
        with self._changed:
            if not self._waiting or not self._waiting[0].is_done:
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def _work_on_next(self) -> bool:
        """Whether there was a thing to take, and room for it."""
        place = self._take()
        if place is None:
            return False
        try:
            place.result = self._work(place.thing)
        except BaseException as error:
            place.error = error
        with self._changed:
            place.is_done = True
            self._changed.notify_all()
        return True

    def _take(self) -> _Place[T, R] | None:
        with self._taking:
            if not self._has_more or len(self._waiting) >= self._most:
                return None
            try:
                place: _Place[T, R] = _Place(next(self._things))
            except BaseException as error:
                self._failure = None if isinstance(error, StopIteration) else error
                self.end()
                return None
            with self._changed:
                self._waiting.append(place)
            return place
