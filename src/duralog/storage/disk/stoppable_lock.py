"""A lock that a thread stops waiting for if its work has to stop.

A compaction calls back its caller, who may change topics. The thread that holds the lock for such changes may wait for
this very compaction to stop: without the check, both would wait for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CHECK_SECONDS = 0.05


class _OfThread(threading.local):
    check_stop: Callable[[], None] | None = None


_here = _OfThread()


@contextmanager
def stopped_by(check_stop: Callable[[], None]) -> Iterator[None]:
    """Inside the context, this thread waits for a `StoppableLock` only as long as `check_stop` does not raise."""
    before, _here.check_stop = _here.check_stop, check_stop
    try:
        yield
    finally:
        _here.check_stop = before


class StoppableLock:
    """A reentrant lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        check_stop = _here.check_stop
        if check_stop is None:
            self._lock.acquire()
            return
        while not self._lock.acquire(timeout=_CHECK_SECONDS):
            check_stop()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
