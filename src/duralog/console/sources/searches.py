"""Searches of the console: each on its own thread, a few at a time. None outlives its source."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from duralog.config.error_text import describe_any
from duralog.console.facts.records import SearchProgress, ShownRecord
from duralog.console.facts.runs import RunState
from duralog.console.facts.topic_records import MatchProgress
from duralog.console.source import Busy
from duralog.errors import DuralogError

MOST_FOUND = 1_000
_MOST_AT_A_TIME = 2
_MOST_THREADS = 8
"""The most searches at a time, including those that are stopping."""


Found = TypeVar("Found")
Progress = TypeVar("Progress", SearchProgress, MatchProgress)


class RunningSearch(ABC, Generic[Found, Progress]):
    """Started by `start`; everything else may be asked at any time, by any thread."""

    def __init__(self, progress: Progress, thread_name: str) -> None:
        self._found: list[Found] = []
        self._progress: Progress = progress
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)

    @abstractmethod
    def _search(self) -> RunState:
        """All of the work. `is_stopping` asks it to end."""

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._progress.state is RunState.RUNNING

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def progress(self) -> Progress:
        return self._progress

    def found(self) -> tuple[Found, ...]:
        """In the wanted order."""
        return tuple(self._found)

    def stop(self) -> None:
        self._stopping.set()

    def wait(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        state, reason = RunState.FAILED, None
        try:
            state = self._search()
        except Exception as error:  # Any error is shown on the page.
            reason = describe_any(error)
        self._end(state, reason)

    def _end(self, state: RunState, reason: str | None) -> None:
        self._progress = replace(self._progress, state=state, error=reason)


class SearchThread(RunningSearch[ShownRecord, SearchProgress]):
    """A search for the records of one key in a partition."""

    def __init__(self, key: bytes, *, from_offset: int | None, limit: int) -> None:
        offset = from_offset or 0
        progress = SearchProgress(
            state=RunState.RUNNING,
            offset=offset,
            end_offset=offset,
            records_read=0,
            bytes_read=0,
            share=0.0,
            found=0,
        )
        super().__init__(progress, "duralog-console-search")
        self._key = key
        self._from_offset = from_offset
        self._limit = min(max(limit, 1), MOST_FOUND)

    def _end(self, state: RunState, reason: str | None) -> None:
        self._progress = replace(self._progress, found=len(self._found))
        super()._end(state, reason)


class Stoppable(Protocol):
    """What runs on a thread of its own."""

    @property
    def is_running(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def wait(self, seconds: float | None = None) -> None: ...


Search = TypeVar("Search", bound=Stoppable)


class Searches(Generic[Search]):
    """Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: set[Search] = set()
        self._is_closed = False

    def start(self, make: Callable[[], Search]) -> Search:
        """A stopping search does not block the next one. Raises `Busy`."""
        with self._lock:
            if self._is_closed:
                raise DuralogError("the console is closing")
            running = {search for search in self._all if search.is_running}
            wanted = sum(not search.is_stopping for search in running)
            if wanted >= _MOST_AT_A_TIME or len(running) >= _MOST_THREADS:
                raise Busy(f"{_MOST_AT_A_TIME} searches are running already: stop one of them first")
            search = make()
            # First: one whose thread cannot be started would count as running forever.
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
