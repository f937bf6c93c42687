"""The searches that run for the readers of a source: a few at a time, and none longer than the source."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from duralog.console.source import Busy
from duralog.console.sources.search_thread import SearchThread
from duralog.errors import DuralogError

_MOST_AT_A_TIME = 2
_MOST_THREADS = 8
"""Of searches that run and those that were told to stop and come to it."""

Search = TypeVar("Search", bound=SearchThread)


class Searches(Generic[Search]):
    """Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: set[Search] = set()
        self._is_closed = False

    def start(self, make: Callable[[], Search]) -> Search:
        """One that was told to stop does not keep the next one from starting. Raises `Busy`."""
        with self._lock:
            if self._is_closed:
                raise DuralogError("the console is closing")
            running = {search for search in self._all if search.is_running}
            wanted = sum(not search.is_stopping for search in running)
            if wanted >= _MOST_AT_A_TIME or len(running) >= _MOST_THREADS:
                raise Busy(f"{_MOST_AT_A_TIME} searches are running already: stop one of them first")
            search = make()
            # First: one whose thread cannot be started would count as running for ever.
            search.start()
            self._all = {*running, search}
            return search

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            ending = self._all
        for search in ending:
            search.stop()
        for search in ending:
            search.wait()
