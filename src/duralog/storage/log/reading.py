"""Reads a log as slices of its files, as records or as tables.

A slice is sent on without decoding it: it may start before the requested offset, and end inside a batch. Records and
tables hold exactly what was requested, without control batches and, for `read_committed`, without aborted records.

Damage is an error, never a silent end: a batch with a wrong checksum, an impossible length, an incomplete batch before
the end of the log. It is raised after the records before it were returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from duralog.columnar.decoded import DecodedRecords, places_between
from duralog.columnar.pieces import PIECE_BYTES, Piece, read_pieces
from duralog.columnar.python_records import to_records
from duralog.columnar.refusals import OnCorruptBatch
from duralog.columnar.runs import Rows
from duralog.errors import CorruptRecord, Fault, RecordTooLarge
from duralog.format.index_entries import AbortedTransaction
from duralog.format.layout import ENTRY_PREFIX
from duralog.format.record import Record
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.file_system import File
from duralog.storage.log.isolation import Isolation, visible_rows
from duralog.storage.log.view import LogView
from duralog.storage.segment.lookup import LogSlice
from duralog.storage.segment.segment import Segment

if TYPE_CHECKING:
    import pyarrow as pa

_SECOND_PIECE_BYTES = 64 << 10
_GROWTH = 4


class FetchedSlice(NamedTuple):
    """Bytes of a log file that start at a batch. They may end inside a batch, and stay readable while this is held."""

    file: File | None
    """None if there is nothing to read."""
    position: int
    size: int
    aborted: tuple[AbortedTransaction, ...] | None
    """For `read_committed`: the aborted transactions that the client has to leave out."""

    def read(self) -> bytes:
        return b"" if self.file is None else self.file.read(self.position, self.size)


def read_slice(
    view: LogView,
    offset: int,
    max_bytes: int,
    isolation: Isolation,
    *,
    min_one: bool = True,
    max_batch_bytes: int | None = None,
    may_scan: bool = True,
) -> FetchedSlice:
    """The log from the batch that holds the offset, within one segment.

    With `min_one` the slice holds the whole first batch even if that is larger than `max_bytes`, or raises
    `RecordTooLarge` if it is larger than `max_batch_bytes`. Without `min_one` it is empty if that batch does not fit.
    Without `may_scan`, `MustScan` is raised if the log has to be scanned for aborted transactions.
    """
    found = _find_slice(view, offset, max_bytes, isolation, min_one=min_one, max_batch_bytes=max_batch_bytes)
    is_committed = isolation is Isolation.READ_COMMITTED
    if found is None:
        return FetchedSlice(None, 0, 0, () if is_committed else None)
    segment, log_slice = found
    aborted = None
    if is_committed:
        end_offset = _end_offset(view, segment, log_slice)
        aborted = tuple(view.aborted_transactions(offset, end_offset, may_scan=may_scan))
    return FetchedSlice(log_slice.file, log_slice.position, log_slice.size, aborted)


def readable_bytes(view: LogView, offset: int, max_bytes: int, isolation: Isolation) -> int:
    """The size of what `read_slice` would return."""
    found = _find_slice(view, offset, max_bytes, isolation, min_one=True, max_batch_bytes=None)
    return 0 if found is None else found[1].size


def scan_slice(view: LogView, offset: int, max_bytes: int, *, ahead_bytes: int) -> None:
    """Scan what `read_slice` needs for `read_committed`, and `ahead_bytes` more for the following slices."""
    isolation = Isolation.READ_COMMITTED
    found = _find_slice(view, offset, max_bytes, isolation, min_one=True, max_batch_bytes=None)
    if found is not None:
        view.scan_markers(offset, _end_offset(view, *found), ahead_bytes=ahead_bytes)


def _find_slice(
    view: LogView, offset: int, max_bytes: int, isolation: Isolation, *, min_one: bool, max_batch_bytes: int | None
) -> tuple[Segment, LogSlice] | None:
    view.check_offset(offset)
    limit = view.limit(isolation)
    if offset >= limit:
        return None
    active = view.segments.active
    for segment in view.segments.from_floor(offset):
        if segment.base_offset >= limit:
            return None
        end = view.end_position if segment is active else segment.size_bytes
        if limit < view.end_offset:
            unstable = segment.find_batch(limit, end)
            end = end if unstable is None else unstable.position
        found = segment.read(offset, max_bytes, max_position=end, min_one=min_one, max_batch_bytes=max_batch_bytes)
        if found is None or found.position >= end:
            continue
        if not min_one and found.first_batch_bytes > max_bytes:
            return None
        return segment, found
    return None


def _end_offset(view: LogView, segment: Segment, found: LogSlice) -> int:
    """An offset after all batches of the slice, by the index."""
    entry = segment.offset_index.upper_bound_by_position(found.position + found.size)
    if entry is not None:
        return entry.offset
    following = view.segments.after(segment)
    return view.end_offset if following is None else following.base_offset


def read_records(
    view: LogView, offset: int, isolation: Isolation, *, max_bytes: int | None, max_batch_bytes: int | None
) -> Iterator[Record]:
    """The records from the offset to the end of the view, or until their batches have `max_bytes`."""
    chunks = read_chunks(view, offset, view.limit(isolation), isolation, max_bytes, max_batch_bytes)
    for chunk in chunks:
        yield from to_records(chunk)


def read_chunks(
    view: LogView,
    start_offset: int,
    end_offset: int,
    isolation: Isolation,
    max_bytes: int | None = None,
    max_batch_bytes: int | None = None,
) -> Iterator[DecodedRecords]:
    """The records from `start_offset` up to, not including, `end_offset`, decoded in chunks.

    They end before the batch with which they would exceed `max_bytes`, but hold at least one batch.
    """
    left = max_bytes
    for piece in _pieces(view, start_offset, end_offset, max_batch_bytes):
        rows = wanted_rows(piece, end_offset, _hidden(view, piece, isolation))
        is_enough = False
        if left is not None:
            rows, taken_bytes, is_enough = _fitting_rows(piece, rows, left, min_one=left == max_bytes)
            left -= taken_bytes
        for decoded in piece.decode(rows):
            chunk = _between(decoded, start_offset, end_offset)
            if len(chunk):
                yield chunk
        if is_enough:
            return
        if piece.fault is not None:
            raise piece.fault


def read_record_batches(
    view: LogView,
    start_offset: int,
    end_offset: int,
    isolation: Isolation,
    *,
    partition: TopicPartition,
    columns: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    """The records from `start_offset` up to, not including, `end_offset`, as Arrow batches."""
    for piece in _pieces(view, start_offset, end_offset, None):
        rows = wanted_rows(piece, end_offset, _hidden(view, piece, isolation))
        yield from piece_to_arrow(piece, rows, start_offset, end_offset, partition=partition, columns=columns)
        if piece.fault is not None:
            raise piece.fault


def piece_to_arrow(
    piece: Piece,
    rows: Rows | None,
    start_offset: int,
    end_offset: int,
    *,
    partition: TopicPartition,
    columns: Sequence[str] | None,
    on_corrupt: OnCorruptBatch | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of these rows from `start_offset` up to, not including, `end_offset`.

    Those of a piece at the edge of the range are decoded and cut off.
    """
    topic, number = partition
    offsets = None if _is_within(piece, start_offset, end_offset) else (start_offset, end_offset)
    return piece.to_arrow(rows, topic=topic, partition=number, columns=columns, offsets=offsets, on_corrupt=on_corrupt)


def _is_within(piece: Piece, start_offset: int, end_offset: int) -> bool:
    """Whether all records are in the range, by the headers. That of a compressed legacy message has no first offset."""
    batches = piece.batches
    return bool(
        len(batches) and batches["base_offset"].min() >= start_offset and batches["last_offset"].max() < end_offset
    )


def _fitting_rows(piece: Piece, rows: Rows | None, max_bytes: int, *, min_one: bool) -> tuple[Rows | None, int, bool]:
    """The first rows whose batches fit `max_bytes`, the size of these batches, and whether the limit is reached."""
    sizes = piece.batches["size"] if rows is None else piece.batches["size"][rows]
    if len(sizes) <= min_one:
        taken_bytes = int(sizes[0]) if len(sizes) else 0
        return rows, taken_bytes, taken_bytes >= max_bytes
    ends = np.cumsum(sizes, dtype=np.int64)
    count = max(int(np.searchsorted(ends, max_bytes, side="right")), int(min_one))
    taken_bytes = int(ends[count - 1]) if count else 0
    chosen = np.arange(count) if rows is None else rows[:count]
    return chosen, taken_bytes, count < len(sizes) or taken_bytes >= max_bytes


def _pieces(view: LogView, start_offset: int, end_offset: int, max_batch_bytes: int | None) -> Iterator[Piece]:
    """The batches from the one that holds `start_offset` to the one before `end_offset`, piece by piece.

    The first piece is a single batch, so that reading one record is cheap. The next ones grow.
    """
    piece_bytes = 0
    for segment, end in view.segments_from(start_offset):
        if segment.base_offset >= end_offset:
            return
        segment.check_process()
        first = segment.find_batch(start_offset, end)
        if first is None:
            continue
        position = first.position
        piece_bytes = piece_bytes or first.size
        while position < end:
            segment.check_process()  # The reader may have forked since it took the last records.
            if max_batch_bytes is not None:
                # A batch above the limit does not fit a piece then, so it comes first in one.
                piece_bytes = min(piece_bytes, max(max_batch_bytes, 1))
                _check_batch_size(segment.file, position, end, max_batch_bytes)
            piece = next(read_pieces(segment.file, start=position, end=end, piece_bytes=piece_bytes), None)
            if piece is None:
                return  # The end of the log was cut off here meanwhile.
            yield replace(piece, fault=end_fault(piece)) if piece.tail_bytes else piece
            if piece.tail_bytes or piece.batches["last_offset"][-1] >= end_offset - 1:
                return
            position = int(piece.batches["position"][-1] + piece.batches["size"][-1])
            piece_bytes = min(max(piece_bytes * _GROWTH, _SECOND_PIECE_BYTES), PIECE_BYTES)


def _check_batch_size(file: File, position: int, end: int, max_batch_bytes: int) -> None:
    """Raise `RecordTooLarge` before a batch above the limit is read."""
    if end - position >= ENTRY_PREFIX.size:
        _, length = ENTRY_PREFIX.unpack(file.read(position, ENTRY_PREFIX.size))
        if ENTRY_PREFIX.size + length > max_batch_bytes:
            raise RecordTooLarge(
                f"{file.name}: position {position}: a batch of {ENTRY_PREFIX.size + length} bytes, the limit for one is"
                f" {max_batch_bytes}"
            )


def end_fault(piece: Piece) -> CorruptRecord | None:
    """The error that stops a reader after this piece of a segment; None if there is none.

    A segment ends at the end of a batch: if the last batch is incomplete, its length is wrong.
    """
    if piece.fault is not None or not piece.tail_bytes:
        return piece.fault
    position = piece.position
    if len(piece.batches):
        position = int(piece.batches["position"][-1] + piece.batches["size"][-1])
    return CorruptRecord(
        "a batch runs past the end of the log",
        fault=Fault.PARTIAL_BATCH,
        file=piece.name,
        position=position,
        expected=f"at most {piece.tail_bytes} bytes",
        found="more",
    )


def _hidden(view: LogView, piece: Piece, isolation: Isolation) -> Callable[[], list[AbortedTransaction]]:
    """Returns the aborted transactions of this piece when it is called."""

    def aborted() -> list[AbortedTransaction]:
        if isolation is Isolation.READ_UNCOMMITTED:
            return []
        batches = piece.batches
        first, last = int(batches["base_offset"][0]), int(batches["last_offset"][-1])
        return view.aborted_transactions(first, last + 1, piece=piece)

    return aborted


def wanted_rows(piece: Piece, end_offset: int, aborted: Callable[[], Iterable[AbortedTransaction]]) -> Rows | None:
    """The rows of batches with visible records; None for all. `aborted` returns the aborted transactions."""
    batches = piece.batches
    rows = visible_rows(batches, aborted)
    if len(batches) and batches["last_offset"][-1] >= end_offset:
        rows = np.arange(len(batches)) if rows is None else rows
        rows = rows[batches["base_offset"][rows] < end_offset]
    return rows


def _between(decoded: DecodedRecords, start_offset: int, end_offset: int) -> DecodedRecords:
    places = places_between(decoded.offset, start_offset, end_offset)
    is_whole = isinstance(places, slice) and places.stop - places.start == len(decoded)
    return decoded if is_whole else decoded.take(places)
