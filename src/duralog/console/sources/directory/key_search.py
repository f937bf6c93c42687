"""The search for all records of one key from an offset on, on a thread that can be stopped at any time.

The keys of a chunk are compared at once: first their lengths, then byte by byte from the end, where the keys of a log
differ most, until few are left. No Python loop over records blocks the pages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from duralog.columnar.pieces import PIECE_BYTES, Piece
from duralog.console.facts.runs import RunState
from duralog.console.sources.directory.batch_steps import steps_from
from duralog.console.sources.directory.fresh_logs import FreshLogs
from duralog.console.sources.searches import SearchThread
from duralog.console.sources.shown_batches import Cut, shown_records
from duralog.format.layout import CONTROL_BIT
from duralog.format.topic_partition import TopicPartition
from duralog.storage.log.partition_log import PartitionLog

_MOST_UNPACKED_BYTES = 128 << 20


_Integers = np.ndarray[tuple[int], np.dtype[Any]]


def with_key(data: _Integers, positions: _Integers, places: _Integers, key: bytes) -> _Integers:
    """The places with this key. REQUIRES: the keys there have its length."""
    for back in range(len(key) - 1, -1, -1):
        if not len(places):
            break
        places = places[data[positions[places] + back] == key[back]]
    return places


class DirectoryKeySearch(SearchThread):
    def __init__(
        self,
        logs: FreshLogs,
        place: TopicPartition,
        key: bytes,
        *,
        from_offset: int | None,
        limit: int,
    ) -> None:
        super().__init__(key, from_offset=from_offset, limit=limit)
        self._logs = logs
        self._place = place

    def _search(self) -> RunState:
        return self._logs.ask(self._place, self._search_log)

    def _search_log(self, log: PartitionLog) -> RunState:
        view = log.view
        start = max(self._from_offset or 0, view.start_offset)
        total = sum(end for _, end in view.segments_from(start)) or 1
        self._report(end_offset=view.end_offset)
        if start >= view.end_offset:
            self._report(offset=view.end_offset, share=1.0)
            return RunState.DONE
        for step in steps_from(view, start, first_bytes=PIECE_BYTES):
            if self.is_stopping:
                return RunState.STOPPED
            before = len(self._found)
            if not all(self._search_piece(piece, log, start) for piece in step.pieces):
                # A search that continues from here finds the records of this step.
                del self._found[before:]
                return RunState.STOPPED
            # If a segment vanishes, the log is asked again, and the search continues from here.
            self._from_offset = step.next_offset
            progress = self._progress
            read = progress.bytes_read + step.read_bytes
            self._report(offset=step.next_offset, bytes_read=read, share=min(read / total, 1.0), found=len(self._found))
            if len(self._found) > self._limit:
                self._report(offset=self._found[self._limit].offset, found=self._limit)
                del self._found[self._limit :]
                return RunState.STOPPED
        self._report(offset=view.end_offset, share=1.0)
        return RunState.DONE

    def _search_piece(self, piece: Piece, log: PartitionLog, start: int) -> bool:
        """Returns whether it was not stopped in the middle."""
        batches = piece.batches
        is_data = (batches["magic"] < 2) | (batches["attributes"] & CONTROL_BIT == 0)
        rows_with_key: set[int] = set()
        records = 0
        chunks = piece.decode(
            np.flatnonzero(is_data), max_decompressed_bytes=_MOST_UNPACKED_BYTES, on_corrupt=lambda _error, _row: None
        )
        offsets: set[int] = set()
        for chunk in chunks:
            records += len(chunk)
            columns, data = chunk.columns, chunk.data
            is_candidate = (columns.key_length == len(self._key)) & (columns.offset >= start)
            places = with_key(data, columns.key_position, np.flatnonzero(is_candidate), self._key)
            for place in places[: self._limit + 1].tolist():
                rows_with_key.add(int(chunk.batch_row[place]))
                offsets.add(int(columns.offset[place]))
            if len(self._found) + len(offsets) > self._limit:
                break
            if self.is_stopping:
                return False
        self._report(records_read=self._progress.records_read + records)
        if offsets:
            self._show(piece, log, sorted(rows_with_key), offsets)
        return True

    def _show(self, piece: Piece, log: PartitionLog, rows: list[int], offsets: set[int]) -> None:
        """The records as shown on a page, with the state of their transactions."""
        chosen = type(piece)(
            name=piece.name, position=piece.position, data=piece.data, batches=piece.batches[np.array(rows)]
        )
        found = [
            record
            for record in shown_records(
                chosen,
                log.view,
                start_offset=min(offsets),
                end_offset=max(offsets) + 1,
                open_transactions=lambda: self._logs.stability(log).open_transactions,
                on_damage=lambda _error: None,
                cut=Cut(),
            )
            if record.offset in offsets
        ]
        self._found += sorted(found, key=lambda record: record.offset)

    def _report(self, **changes: object) -> None:
        self._progress = replace(self._progress, **changes)  # type: ignore[arg-type]
