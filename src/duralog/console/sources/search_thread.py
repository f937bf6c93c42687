"""A search for the records of one key: a thread that can be stopped at any time, its progress and what it found."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import replace

from duralog.cli.common.failures import describe
from duralog.console.facts.records import SearchProgress, ShownRecord
from duralog.console.facts.runs import RunState
from duralog.errors import DuralogError

MOST_FOUND = 1_000


class SearchThread(ABC):
    """Started by `start`; everything else may be asked at any time, by any thread."""

    def __init__(self, key: bytes, *, from_offset: int | None, limit: int) -> None:
        self._key = key
        self._from_offset = from_offset
        self._limit = min(max(limit, 1), MOST_FOUND)
        self._found: list[ShownRecord] = []
        self._stopping = threading.Event()
        self._progress = SearchProgress(
            state=RunState.RUNNING,
            offset=from_offset or 0,
            end_offset=from_offset or 0,
            records_read=0,
            bytes_read=0,
            share=0.0,
            found=0,
        )
        self._thread = threading.Thread(target=self._run, name="duralog-console-search", daemon=True)

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

    def progress(self) -> SearchProgress:
        return self._progress

    def found(self) -> tuple[ShownRecord, ...]:
        return tuple(self._found)

    def stop(self) -> None:
        self._stopping.set()

    def wait(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        state, told = RunState.FAILED, None
        try:
            state = self._search()
        except Exception as error:  # Whatever it is, it is told on the page.
            told = describe(error) if isinstance(error, DuralogError | OSError) else repr(error)
        self._progress = replace(self._progress, state=state, error=told, found=len(self._found))
