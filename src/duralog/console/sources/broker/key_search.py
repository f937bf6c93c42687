"""Looking for all records of one key through a broker: everything is fetched, and compared here."""

from __future__ import annotations

from dataclasses import replace

from duralog.console.facts.runs import RunState
from duralog.console.sources.broker.records import BrokerRecords
from duralog.console.sources.searches import SearchThread

_TOLD_AFTER = 1_000
"""Progress is told once in so many records."""


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
                    self._tell(offset, end, records, size, (offset - begin) / span)
                    return RunState.STOPPED
                self._found.append(shown())
            if records % _TOLD_AFTER == 0:
                self._tell(offset + 1, end, records, size, (offset + 1 - begin) / span)
            if self.is_stopping:
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
