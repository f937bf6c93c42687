"""Looking for all records of one key through a broker: everything is fetched, and compared here."""

from __future__ import annotations

import threading
from dataclasses import replace

from duralog.cli.failures import describe
from duralog.console.facts import RunState, SearchProgress, ShownRecord
from duralog.console.reading.key_search import MOST_FOUND
from duralog.console.sources.broker_records import BrokerRecords
from duralog.errors import DuralogError

_TOLD_AFTER = 1_000
"""Progress is told once in so many records."""


class BrokerKeySearch:
    """Started by `start`; everything else may be asked at any time, by any thread."""

    def __init__(
        self,
        records: BrokerRecords,
        topic: str,
        partition: int,
        key: bytes,
        *,
        from_offset: int | None,
        limit: int,
    ) -> None:
        self._records = records
        self._place = topic, partition
        self._key = key
        self._from_offset = from_offset
        self._limit = min(max(limit, 1), MOST_FOUND)
        self._found: list[ShownRecord] = []
        self._is_stopping = threading.Event()
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

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._progress.state is RunState.RUNNING

    def progress(self) -> SearchProgress:
        return self._progress

    def found(self) -> tuple[ShownRecord, ...]:
        return tuple(self._found)

    def stop(self) -> None:
        self._is_stopping.set()

    def wait(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        state, told = RunState.DONE, None
        try:
            state = self._search()
        except Exception as error:  # Whatever it is, it is told on the page.
            state = RunState.FAILED
            told = describe(error) if isinstance(error, DuralogError | OSError) else repr(error)
        self._progress = replace(self._progress, state=state, error=told, found=len(self._found))

    def _search(self) -> RunState:
        start, end = self._records.edges(*self._place)
        begin = max(self._from_offset or 0, start)
        span = max(end - begin, 1)
        offset, records, size = begin, 0, 0
        for offset, key, shown, message_bytes in self._records.keys(*self._place, begin, end):
            records, size = records + 1, size + message_bytes
            if key == self._key:
                if len(self._found) >= self._limit:
                    self._tell(offset, end, records, size, (offset - begin) / span)
                    return RunState.STOPPED
                self._found.append(shown())
            if records % _TOLD_AFTER == 0:
                self._tell(offset + 1, end, records, size, (offset + 1 - begin) / span)
            if self._is_stopping.is_set():
                self._tell(offset + 1, end, records, size, (offset + 1 - begin) / span)
                return RunState.STOPPED
        self._tell(max(end, begin), end, records, size, 1.0)
        return RunState.DONE

    def _tell(self, offset: int, end: int, records: int, size: int, share: float) -> None:
        self._progress = replace(
            self._progress,
            offset=offset,
            end_offset=end,
            records_read=records,
            bytes_read=size,
            share=share,
            found=len(self._found),
        )
