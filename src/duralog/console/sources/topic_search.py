"""Matching records of a topic: searched on a worker thread, or streamed for a download.

Partitions are read in turns, always the one that is furthest behind in time, so that matches arrive roughly in display
order. Memory is bounded by the kept matches and one reading step. A search ends at the ends that the logs had when it
began.

Times may go back in a log. Once there are more matches than are kept, a partition is read on as long as a record of it
may belong to them: a reader of files knows that from the time indexes, for the newest first. The oldest can only be
found by reading everything. A broker does not tell, so there the search assumes that times rise, and says so.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.columnar.schema import OFFSET, TIMESTAMP
from duralog.config.error_text import describe, printable
from duralog.console.facts.records import ShownRecord
from duralog.console.facts.runs import RunState
from duralog.console.facts.topic_records import MOST_MATCHES, MatchProgress, PlacedRecord, WantedRecords
from duralog.console.source import Busy
from duralog.console.sources.payloads import SourcePayloads
from duralog.console.sources.searches import RunningSearch, Searches
from duralog.console.sources.topic_reader import Show, Stretch, TopicReader
from duralog.errors import DuralogError
from duralog.filters.json_paths import LARGEST_BYTES
from duralog.filters.matching import Matcher
from duralog.format.layout import NO_TIMESTAMP

_FIRST_BYTES = 64 << 10
_MOST_BYTES = 4 << 20
_GROWTH = 4
_DOWNLOADED_BYTES = 2 << 20
"""Of a log, before it is unpacked: the matches in them are in memory at a time."""
_MOST_DOWNLOADS = 4
_INT64_MAX = 2**63 - 1


class Selection:
    """Selects the wanted rows of a batch. Conditions apply to decoded keys and values, too."""

    def __init__(self, wanted: WantedRecords, payloads: SourcePayloads | None) -> None:
        """Reads, if the formats of the topic are not known yet."""
        self._wanted = wanted
        self._matcher = None if wanted.where is None else Matcher(wanted.where)
        self._payloads = payloads
        self._decoder = None
        if payloads is not None and wanted.where is not None:
            with suppress(DuralogError, OSError):
                self._decoder = payloads.of(wanted.topic)

    def of(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.intp]]:
        """The batch, maybe without rows of other times, and the places in it."""
        wanted = self._wanted
        if wanted.from_ms is not None or wanted.before_ms is not None:
            times = _times(records)
            low = 0 if wanted.from_ms is None else wanted.from_ms
            high = _INT64_MAX if wanted.before_ms is None else wanted.before_ms
            is_wanted = (times >= low) & (times < high) & (times != NO_TIMESTAMP)
            if not is_wanted.all():
                records = records.filter(pa.array(is_wanted))
        if self._matcher is None:
            return records, np.arange(records.num_rows)
        decoded = None
        if self._payloads is not None and self._decoder is not None and self._decoder.columns and records.num_rows:
            decoded = self._payloads.as_json(self._decoder, records)
        return records, self._matcher.rows(records, decoded)

    @property
    def notes(self) -> tuple[str, ...]:
        if self._matcher is None or not self._matcher.too_large:
            return ()
        return (f"{self._matcher.too_large:,} documents above {LARGEST_BYTES >> 20} MiB were not read as JSON.",)


def _times(records: pa.RecordBatch) -> NDArray[np.int64]:
    column = records.column(TIMESTAMP).cast(pa.int64()).fill_null(NO_TIMESTAMP)
    times: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return times


class TopicSearch(RunningSearch[PlacedRecord, MatchProgress]):
    def __init__(
        self,
        reader: TopicReader,
        wanted: WantedRecords,
        limit: int = MOST_MATCHES,
        payloads: SourcePayloads | None = None,
    ) -> None:
        super().__init__(MatchProgress(), "duralog-console-topic-search")
        self._reader = reader
        self._payloads = payloads
        self._wanted = wanted
        self._limit = limit
        self._sign = -1 if wanted.newest_first else 1
        self._selection: Selection | None = None

    def _search(self) -> RunState:
        self._selection = Selection(self._wanted, self._payloads)
        wanted, heads, notes = self._wanted, list[tuple[int, int, int, int, int]](), list[str]()
        total: int | None = 0
        offsets_total = offsets_read = 0
        for partition in wanted.partitions:
            if self.is_stopping:
                return RunState.STOPPED
            try:
                begin, end, size = self._reader.extent(wanted, partition)
            except (DuralogError, OSError) as error:
                notes.append(f"Partition {partition}: {printable(describe(error))}")
                continue
            total = None if size is None or total is None else total + size
            if begin < end:
                offsets_total += end - begin
                heads.append((-_INT64_MAX, partition, begin, end, _FIRST_BYTES))
        self._progress = replace(self._progress, bytes_total=total, notes=tuple(notes))
        heapq.heapify(heads)
        while heads:
            if self.is_stopping:
                return RunState.STOPPED
            behind, partition, begin, end, size = heapq.heappop(heads)
            offsets = end - begin
            try:
                if self._progress.is_cut:
                    begin, end = self._undecided(partition, begin, end, behind)
                    if begin >= end:
                        continue
                stretch = self._read(partition, begin, end, size)
            except (DuralogError, OSError) as error:
                notes.append(f"Partition {partition}: {printable(describe(error))}")
                continue
            notes += [f"Partition {partition}: {note}" for note in stretch.notes]
            left = (begin, stretch.reached) if wanted.newest_first else (stretch.reached, end)
            offsets_read += offsets - (left[1] - left[0])
            if left[0] < left[1]:
                time = behind if stretch.time_ms == NO_TIMESTAMP else max(behind, self._sign * stretch.time_ms)
                heapq.heappush(heads, (time, partition, *left, min(size * _GROWTH, _MOST_BYTES)))
            self._report(stretch, offsets_read / max(offsets_total, 1), notes)
        self._progress = replace(self._progress, share=1.0)
        return RunState.DONE

    def _undecided(self, partition: int, begin: int, end: int, behind: int) -> tuple[int, int]:
        """The offsets that may have records which belong before the last one found."""
        last = self._found[-1]
        known = self._reader.undecided(self._wanted, partition, begin, end, last)
        if known is not None:
            return known
        if behind < self._sign * last.record.timestamp_ms:
            return begin, end
        self._progress = replace(self._progress, is_about=True)
        return end, end

    def _read(self, partition: int, begin: int, end: int, size: int) -> Stretch:
        selection, payloads = self._selection, self._payloads
        assert selection is not None

        def visit(records: pa.RecordBatch, show: Show) -> tuple[list[ShownRecord], int]:
            if self.is_stopping:
                return [], 0
            records, rows = selection.of(records)
            offsets = records.column(OFFSET).to_numpy()[self._best(records, rows)]
            shown = show(offsets) if len(offsets) else []
            if payloads is not None and shown:
                shown = list(payloads.decoded(self._wanted.topic, partition, shown))
            return shown, len(rows)

        stretch, found = self._reader.read(
            self._wanted.topic,
            partition,
            begin,
            end,
            backwards=self._wanted.newest_first,
            max_bytes=size,
            visit=visit,
        )
        more = [PlacedRecord(partition, record) for records, _ in found for record in records]
        if more:
            both = sorted([*self._found, *more], key=lambda each: each.order, reverse=self._wanted.newest_first)
            self._found = both[: self._limit]
        matches = self._progress.matches + sum(count for _, count in found)
        self._progress = replace(self._progress, matches=matches, is_cut=matches > self._limit)
        return stretch

    def _best(self, records: pa.RecordBatch, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """As many of these rows as can be kept, in their order."""
        if len(rows) <= self._limit:
            return rows
        # Rows of the same time are in the order of offsets.
        by_time = np.argsort(_times(records)[rows], kind="stable")
        best = by_time[-self._limit :] if self._wanted.newest_first else by_time[: self._limit]
        return rows[np.sort(best)]

    def _report(self, stretch: Stretch, share: float, notes: list[str]) -> None:
        progress = self._progress
        bytes_read = progress.bytes_read + stretch.read_bytes
        if progress.bytes_total:
            share = min(bytes_read / progress.bytes_total, 1.0)
        self._progress = replace(
            progress,
            bytes_read=bytes_read,
            records_read=progress.records_read + stretch.records,
            share=share,
            notes=(*notes[:3], *(() if self._selection is None else self._selection.notes)),
        )


class TopicSearches:
    """Of one source. Any thread may ask."""

    def __init__(self, reader: TopicReader, payloads: SourcePayloads | None = None) -> None:
        self._reader = reader
        self._payloads = payloads
        self._searches: Searches[TopicSearch] = Searches()
        self._downloads = threading.BoundedSemaphore(_MOST_DOWNLOADS)
        self._is_closed = False

    def start(self, wanted: WantedRecords) -> TopicSearch:
        return self._searches.start(lambda: TopicSearch(self._reader, wanted, payloads=self._payloads))

    def matching(
        self, wanted: WantedRecords, report: Callable[[MatchProgress], None], is_stopped: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        if not self._downloads.acquire(blocking=False):
            raise Busy(f"{_MOST_DOWNLOADS} downloads are running already: wait for one of them, or stop it")
        try:
            yield from self._matching(wanted, report, is_stopped)
        finally:
            self._downloads.release()

    def _matching(
        self, wanted: WantedRecords, report: Callable[[MatchProgress], None], is_stopped: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        selection = Selection(wanted, self._payloads)
        extents = {partition: self._reader.extent(wanted, partition) for partition in wanted.partitions}
        sizes = [extent.size_bytes for extent in extents.values() if extent.size_bytes is not None]
        total = sum(sizes) if len(sizes) == len(extents) else None
        offsets_total = max(sum(max(extent.end - extent.begin, 0) for extent in extents.values()), 1)
        progress, offsets_read = MatchProgress(bytes_total=total), 0

        def visit(records: pa.RecordBatch, _show: Show) -> pa.RecordBatch:
            records, rows = selection.of(records)
            return records if len(rows) == records.num_rows else records.take(pa.array(rows))

        for partition, (begin, end, _) in extents.items():
            at = begin
            while at < end:
                if is_stopped() or self._is_closed:
                    raise DuralogError("the download was stopped")
                stretch, found = self._reader.read(
                    wanted.topic, partition, at, end, backwards=False, max_bytes=_DOWNLOADED_BYTES, visit=visit
                )
                if stretch.notes:
                    raise DuralogError(f"partition {partition}: {stretch.notes[0]}")
                offsets_read += stretch.reached - at
                at = stretch.reached
                bytes_read = progress.bytes_read + stretch.read_bytes
                progress = replace(
                    progress,
                    bytes_read=bytes_read,
                    records_read=progress.records_read + stretch.records,
                    matches=progress.matches + sum(batch.num_rows for batch in found),
                    share=min(bytes_read / total, 1.0) if total else offsets_read / offsets_total,
                    notes=selection.notes,
                )
                report(progress)
                yield from (batch for batch in found if batch.num_rows)
        report(replace(progress, share=1.0))

    def close(self) -> None:
        self._is_closed = True
        self._searches.close()
