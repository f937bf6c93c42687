"""Reads a slice: exactly its records, as Arrow, even if the file has changed since it was planned.

A live log is appended to, rolled, compacted and deleted while it is read. The planned file is used as long as it has
the planned size, and batches whose offsets are where they should be. Otherwise, the missing offsets are looked up in
the current log. Offsets never change, so no record is returned twice, and only deleted records are missing: these are a
`DataLoss`.

A corrupt batch raises `CorruptRecord` after the records before it were returned, or is reported and skipped if there is
an `on_corrupt`. After a broken length, the start of the next batch is unknown: reading continues at the next entry of
the offset index that leads to a valid batch, or with the next segment; the bytes between are reported, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch
from duralog.columnar.runs import Rows
from duralog.errors import StorageError, UnknownTopic
from duralog.format.filenames import FileKind
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.offset_ranges import OffsetRange, OnDataLoss, data_loss, report_loss, total_loss
from duralog.scanning.part_reading import Convert, FilePart, NotAsExpected, OnCorruptBytes, PartReader, T
from duralog.scanning.planned_parts import OpenPart, open_ahead, open_planned
from duralog.scanning.slices import CREATED_AGAIN, PARTITION_GONE, DataLoss, Slice
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.reading import piece_to_arrow
from duralog.storage.log.view import LogView
from duralog.storage.segment.segment import Segment

OnBatches = Callable[[Slice, NDArray[Any]], None]
"""Called with the batches of each piece of a slice (`BATCH_DTYPE`), before their records are returned."""

_ATTEMPTS = 5
"""The attempts to find a log that does not change while the rest of a slice is read."""


def read_slices(
    slices: Iterable[Slice],
    *,
    columns: Sequence[str] | None = None,
    on_corrupt: OnCorruptBytes | None = None,
    on_data_loss: OnDataLoss | None = None,
    on_batches: OnBatches | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of all slices, in order: all columns of `columnar.schema.RECORD_SCHEMA` or the named ones.

    Without `on_corrupt`, damage raises `CorruptRecord`; without `on_data_loss`, offsets that are gone raise
    `OffsetOutOfRange`.
    """
    return read_all_pieces(
        slices,
        lambda found: _to_arrow(found, columns, on_batches),
        on_corrupt=on_corrupt,
        on_data_loss=on_data_loss,
    )


def read_all_pieces(
    slices: Iterable[Slice],
    convert: Callable[[Slice], Convert[T]],
    *,
    on_corrupt: OnCorruptBytes | None = None,
    on_data_loss: OnDataLoss | None = None,
) -> Iterator[T]:
    """What `convert` of each slice returns for its pieces, in order. See `read_slices` for errors."""
    for found, open_part in open_ahead(slices):
        yield from _read(found, convert(found), open_part, on_corrupt, on_data_loss)


def read_slice_pieces(
    found: Slice,
    convert: Convert[T],
    *,
    on_corrupt: OnCorruptBytes | None = None,
    on_data_loss: OnDataLoss | None = None,
) -> Iterator[T]:
    """What `convert` returns for the pieces of the slice, in order. See `read_slices` for errors."""
    return _read(found, convert, partial(open_planned, found, {}), on_corrupt, on_data_loss)


def _to_arrow(found: Slice, columns: Sequence[str] | None, on_batches: OnBatches | None) -> Convert[pa.RecordBatch]:
    partition = TopicPartition(found.topic, found.partition)

    def to_arrow(piece: Piece, rows: Rows | None, refuse: OnCorruptBatch) -> Iterator[pa.RecordBatch]:
        if on_batches is not None:
            on_batches(found, piece.batches)
        return piece_to_arrow(
            piece,
            rows,
            found.start_offset,
            found.end_offset,
            partition=partition,
            columns=columns,
            on_corrupt=refuse,
        )

    return to_arrow


def _read(
    found: Slice,
    convert: Convert[T],
    open_part: OpenPart,
    on_corrupt: OnCorruptBytes | None,
    on_data_loss: OnDataLoss | None,
) -> Iterator[T]:
    reader = PartReader(found, convert, on_corrupt)
    try:
        part = open_part()
        yield from reader.read(part)
        # A segment may end before the next one begins: compaction has removed the last records.
        if reader.is_done() or part.end_position == part.file.size:
            return
    except NotAsExpected:
        pass
    yield from _read_as_it_is_now(found, reader, on_data_loss)


def _read_as_it_is_now(found: Slice, reader: PartReader[T], on_data_loss: OnDataLoss | None) -> Iterator[T]:
    for attempt in range(_ATTEMPTS):
        try:
            with found.location.open_store() as store:
                if found.topic_id is not None and store.topic_id(found.topic) not in (None, found.topic_id):
                    report_loss(_total_loss(found, reader.next_offset, CREATED_AGAIN), on_data_loss)
                    return
                view = store.partition(found.topic, found.partition).view
                _lose_what_is_gone(found, reader, view, on_data_loss)
                if found.isolation is Isolation.READ_COMMITTED:
                    reader.aborted = view.indexed_aborted_transactions(reader.next_offset, found.end_offset)
                for segment, end in view.segments_from(reader.next_offset):
                    if reader.is_done() or segment.base_offset >= found.end_offset:
                        break
                    yield from _read_segment(found, reader, segment, end)
            return
        except UnknownTopic:
            report_loss(_total_loss(found, reader.next_offset, PARTITION_GONE), on_data_loss)
            return
        except (NotAsExpected, StorageError) as error:
            # A file of the opened log has been deleted or has changed again: retry.
            if attempt == _ATTEMPTS - 1:
                if isinstance(error, StorageError):
                    raise
                raise StorageError(f"{found}: cannot read: the log changed at every attempt") from None


def _read_segment(found: Slice, reader: PartReader[T], segment: Segment, end: int) -> Iterator[T]:
    """Read the rest of the slice in a segment. If its index is wrong, the segment is read from its start."""
    files, _ = found.location.connect()
    path = segment.path(FileKind.LOG)

    def is_same() -> bool:
        entry = files.entry(path)
        return entry is not None and entry.size >= end

    def part(position: int) -> FilePart:
        return FilePart(
            files=files,
            file=segment.file,
            path=path,
            base_offset=segment.base_offset,
            position=position,
            end_position=end,
            ends_with_batch=True,
            is_same=is_same,
        )

    indexed = segment.offset_index.lookup(reader.next_offset).position
    begin = reader.next_offset
    try:
        yield from reader.read(part(indexed if indexed < end else 0))
    except NotAsExpected:
        if reader.next_offset > begin or not indexed:
            raise
        yield from reader.read(part(0))


def _lose_what_is_gone(found: Slice, reader: PartReader[T], view: LogView, on_data_loss: OnDataLoss | None) -> None:
    asked = OffsetRange(reader.next_offset, found.end_offset)
    if asked.start_offset < view.start_offset or asked.end_offset > view.end_offset:
        partition = TopicPartition(found.topic, found.partition)
        report_loss(data_loss(partition, asked, view, view.end_offset), on_data_loss)
        reader.next_offset = max(reader.next_offset, view.start_offset)


def _total_loss(found: Slice, next_offset: int, reason: str) -> DataLoss:
    asked = OffsetRange(next_offset, found.end_offset)
    return total_loss(TopicPartition(found.topic, found.partition), asked, reason)
