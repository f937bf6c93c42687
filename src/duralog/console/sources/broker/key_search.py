"""The search for all records of one key through a broker: it fetches all records and compares their keys."""

from __future__ import annotations

from dataclasses import replace

from duralog.console.facts.runs import RunState
from duralog.console.sources.broker.records import BrokerRecords
from duralog.console.sources.searches import SearchThread

_RECORDS_PER_REPORT = 1_000
"""Progress is updated after this many records."""


class BrokerKeySearch(SearchThread):
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
        super().__init__(key, from_offset=from_offset, limit=limit)
        self._records = records
        self._place = topic, partition

    def _search(self) -> RunState:
        start, end = self._records.edges(*self._place)
        begin = max(self._from_offset or 0, start)
        span = max(end - begin, 1)
        offset, records, size = begin, 0, 0
        for offset, key, shown, message_bytes in self._records.keys(*self._place, begin, end):
            records, size = records + 1, size + message_bytes
            if key == self._key:
                if len(self._found) >= self._limit:
                    self._report(offset, end, records, size, (offset - begin) / span)
                    return RunState.STOPPED
                self._found.append(shown())
            if records % _RECORDS_PER_REPORT == 0:
                self._report(offset + 1, end, records, size, (offset + 1 - begin) / span)
            if self.is_stopping:
                self._report(offset + 1, end, records, size, (offset + 1 - begin) / span)
                return RunState.STOPPED
        self._report(max(end, begin), end, records, size, 1.0)
        return RunState.DONE

    def _report(self, offset: int, end: int, records: int, size: int, share: float) -> None:
        self._progress = replace(
            self._progress,
            offset=offset,
            end_offset=end,
            records_read=records,
            bytes_read=size,
            share=share,
            found=len(self._found),
        )
