"""Reads records of a directory's partitions as Arrow batches, in steps, each from the current log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from duralog.columnar.pieces import Piece
from duralog.columnar.schema import OFFSET, TIMESTAMP
from duralog.config.error_text import printable
from duralog.console.facts.records import ShownRecord
from duralog.console.facts.topic_records import PlacedRecord, WantedRecords
from duralog.console.sources.directory.batch_steps import Step, steps_before, steps_from
from duralog.console.sources.directory.fresh_logs import Stability
from duralog.console.sources.shown_batches import shown_records
from duralog.console.sources.topic_reader import FOUND, Extent, Offsets, Stretch, Visit
from duralog.errors import CorruptRecord
from duralog.format.layout import CONTROL_BIT, NO_TIMESTAMP
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView
from duralog.storage.segment.segment import Segment

_MOST_UNPACKED_BYTES = 128 << 20

T = TypeVar("T")


class Ask(Protocol):
    def __call__(self, topic: str, partition: int, question: Callable[[PartitionLog], T], /) -> T: ...


class DirectoryTopicReader:
    def __init__(self, ask: Ask, stability: Callable[[PartitionLog], Stability]) -> None:
        self._ask = ask
        self._stability = stability

    def extent(self, wanted: WantedRecords, partition: int) -> Extent:
        def extent(log: PartitionLog) -> Extent:
            view = log.view
            begin = max(view.start_offset, wanted.from_offset or 0)
            end = view.end_offset if wanted.before_offset is None else min(view.end_offset, wanted.before_offset)
            if wanted.from_ms is not None:
                found = log.offset_for_timestamp(max(wanted.from_ms, 0))
                begin = end if found is None else max(begin, found.offset)
            return Extent(begin, end, _size_bytes(view, begin, end) if begin < end else 0)

        return self._ask(wanted.topic, partition, extent)

    def undecided(
        self, wanted: WantedRecords, partition: int, begin: int, end: int, last: PlacedRecord
    ) -> tuple[int, int]:
        """The time indexes have the latest times, not the earliest ones."""

        def later(log: PartitionLog) -> tuple[int, int]:
            reached = end
            for segment in reversed(log.view.segments):
                if segment.base_offset >= reached:
                    continue
                latest_ms = _latest_ms(segment, reached - 1)
                if latest_ms is None or (latest_ms, partition, reached - 1) > last.order:
                    return begin, reached
                reached = segment.base_offset
                if reached <= begin:
                    break
            return begin, begin

        return self._ask(wanted.topic, partition, later) if wanted.newest_first else (begin, end)

    def read(
        self, topic: str, partition: int, begin: int, end: int, *, backwards: bool, max_bytes: int, visit: Visit[T]
    ) -> tuple[Stretch, list[T]]:
        def read(log: PartitionLog) -> tuple[Stretch, list[T]]:
            turn = _Turn(log, lambda: self._stability(log), visit)
            return turn.backward(begin, end, max_bytes) if backwards else turn.forward(begin, end, max_bytes)

        return self._ask(topic, partition, read)


class _Turn(Generic[T]):
    """One stretch of one log."""

    def __init__(self, log: PartitionLog, stability: Callable[[], Stability], visit: Visit[T]) -> None:
        self._log = log
        self._view = log.view
        self._stability = stability
        self._visit = visit
        self._results: list[T] = []
        self._read_bytes = self._records = 0
        self._lowest = 0
        self._first_ms = self._last_ms = NO_TIMESTAMP
        self._damage: list[CorruptRecord] = []

    def forward(self, begin: int, end: int, max_bytes: int) -> tuple[Stretch, list[T]]:
        reached, stop = max(begin, self._view.start_offset), min(end, self._view.end_offset)
        for step in steps_from(self._view, reached, first_bytes=max_bytes):
            self._step(step, reached, stop)
            reached = max(reached, step.next_offset)
            if self._read_bytes >= max_bytes or reached >= stop:
                break
        else:
            reached = stop
        # Where the log ends by now, there is nothing more to read.
        return self._stretch(end if reached >= stop else reached, self._last_ms)

    def backward(self, begin: int, end: int, max_bytes: int) -> tuple[Stretch, list[T]]:
        stop, reached = max(begin, self._view.start_offset), min(end, self._view.end_offset)
        for step in steps_before(self._view, reached):
            self._lowest = step.first_offset
            self._step(step, stop, reached)
            # A compressed message of an old format has only its last offset: its records may begin earlier.
            reached = min(reached, self._lowest)
            if self._read_bytes >= max_bytes or reached <= stop:
                break
        else:
            reached = stop
        return self._stretch(begin if reached <= stop else reached, self._first_ms)

    def _step(self, step: Step, begin: int, end: int) -> None:
        self._read_bytes += step.read_bytes
        if step.damage is not None:
            self._damage.append(step.damage)
        for piece in step.pieces:
            batches = piece.batches
            is_data = (batches["magic"] < 2) | (batches["attributes"] & CONTROL_BIT == 0)
            for records in piece.to_arrow(
                np.flatnonzero(is_data),
                topic=self._log.topic,
                partition=self._log.partition,
                max_decompressed_bytes=_MOST_UNPACKED_BYTES,
                on_corrupt=lambda error, _row: self._damage.append(error),
            ):
                self._batch(records, piece, begin, end)

    def _batch(self, records: pa.RecordBatch, piece: Piece, begin: int, end: int) -> None:
        offsets = records.column(OFFSET).to_numpy()
        is_wanted = (offsets >= begin) & (offsets < end)
        if not is_wanted.all():
            records = records.filter(pa.array(is_wanted))
            offsets = offsets[is_wanted]
        if not len(offsets):
            return
        self._lowest = min(self._lowest, int(offsets.min()))
        self._records += len(offsets)
        times = records.column(TIMESTAMP).cast(pa.int64()).drop_null()
        if len(times):
            self._last_ms = times[-1].as_py()
            self._first_ms = (
                times[0].as_py() if self._first_ms == NO_TIMESTAMP else min(self._first_ms, times[0].as_py())
            )
        self._results.append(self._visit(records, lambda chosen: self._shown(piece, chosen)))

    def _shown(self, piece: Piece, offsets: Offsets) -> list[ShownRecord]:
        """The records as shown on a page, with the state of their transactions."""
        batches = piece.batches
        # Offsets rise from batch to batch.
        rows = np.unique(np.searchsorted(batches["last_offset"], offsets))
        chosen = type(piece)(name=piece.name, position=piece.position, data=piece.data, batches=batches[rows])
        wanted = set(offsets.tolist())
        return [
            record
            for record in shown_records(
                chosen,
                self._view,
                start_offset=int(offsets.min()),
                end_offset=int(offsets.max()) + 1,
                open_transactions=lambda: self._stability().open_transactions,
                on_damage=lambda _error: None,
                cut=FOUND,
            )
            if record.offset in wanted
        ]

    def _stretch(self, reached: int, time_ms: int) -> tuple[Stretch, list[T]]:
        notes = tuple(f"Damage: {printable(str(error))}." for error in self._damage[:1])
        return Stretch(reached, self._read_bytes, self._records, time_ms, notes), self._results


def _latest_ms(segment: Segment, offset: int) -> int | None:
    """A time that no record of the segment up to this offset exceeds; None if there is none in the time index."""
    latest_ms = segment.time_index.latest_up_to(offset)
    if latest_ms is None and segment.max_timestamp_ms != NO_TIMESTAMP:
        latest_ms = segment.max_timestamp_ms
    return latest_ms


def _size_bytes(view: LogView, begin: int, end: int) -> int:
    """Of the batches with these offsets, about."""
    total = 0
    for segment, stop in view.segments_from(begin):
        if segment.base_offset >= end:
            break
        first = segment.find_batch(begin, stop) if segment.base_offset < begin else None
        last = segment.find_batch(end, stop)
        total += (stop if last is None else last.position) - (0 if first is None else first.position)
    return max(total, 0)
