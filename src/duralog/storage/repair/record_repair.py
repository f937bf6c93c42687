"""Removes single records from the logs of Kafka's own topics: those that cannot be loaded.

A batch with such records is replaced by one without them, as in a compaction: the other records, the offsets, the
producer and the leader epoch stay. A batch that loses all its records stays, too, without records, so that the end of
the log and the producers' sequences do not change. The indexes of the segment are built again when the log is loaded.
In the metadata log, where Kafka expects a record at every offset, a NoOpRecord takes the place.

What must always be true: the batches are in quarantine, as they were, before the log loses them. Segments are replaced
as a whole (`duralog.storage.recovery.segment_rewrite`), so a crash leaves the old one or the new one, and the next
repair does what is left.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.errors import CorruptRecord, StorageError
from duralog.format import record_batch
from duralog.format.batch import Batch
from duralog.format.batches import decode_records, scan
from duralog.format.compression import Codec
from duralog.format.filenames import FileKind, FileState, SegmentFile, parse_segment_file
from duralog.format.internal.internal_topics import CLUSTER_METADATA, TRANSACTION_STATE
from duralog.format.internal.metadata_records import MetadataRecord, encode_metadata_record
from duralog.format.record import Record, TimestampType
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.checks.coordinator_records import check_records
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import File, FileSystem
from duralog.storage.recovery.quarantine import NO_OFFSET, Quarantine
from duralog.storage.recovery.segment_rewrite import BeforeChange, ByteRange, NewSegment, rewrite_segment
from duralog.storage.segment.damage import Damage

_KAFKA_STOPS = "keeps the record, and does not load the groups of the partition"
_KAFKA = {
    TRANSACTION_STATE: "keeps the record, and does not load the transactional ids after it",
    CLUSTER_METADATA: "keeps the record, and does not start",
}
_NO_OP = encode_metadata_record(MetadataRecord(type_id=20, type_name="NO_OP_RECORD", version=0, fields={}))


class _Dropped(NamedTuple):
    """The records to remove from one batch."""

    offsets: set[int | None]
    """With None in it, all records."""
    reason: CorruptRecord
    """Of the first one."""


class _Replaced(NamedTuple):
    start: int
    end: int
    batch: bytes
    """The replacement."""
    reason: CorruptRecord


def take_out_unloadable(fs: FileSystem, folder: str, topic: str, *, clock: Clock, before_change: BeforeChange) -> bool:
    """Returns whether there was anything to take out. Then the log must be loaded: segments have no indexes.

    REQUIRES: the topic is one of Kafka's own, the partition is not open elsewhere, and its logs are sound.
    """
    found = False
    parsed = (parse_segment_file(entry.name) for entry in fs.list(folder) if not entry.is_folder)
    logs = (known for known in parsed if known is not None and known.kind is FileKind.LOG)
    for base_offset in sorted(log.offset for log in logs if log.state is FileState.LIVE):
        path = os.path.join(folder, SegmentFile(base_offset, FileKind.LOG).name)
        file = fs.open(path)
        try:
            replaced, rows = _examine(file, topic)
            if replaced:
                found = True
                before_change(base_offset)
                _keep(Quarantine(fs, folder, clock), file, base_offset, replaced, rows, topic)
                entry = fs.entry(path)
                rewrite_segment(
                    fs,
                    folder,
                    base_offset,
                    [NewSegment(base_offset, _ranges(file, replaced))],
                    modified_ms=None if entry is None else entry.modified_ms,
                )
        finally:
            file.close()
    return found


def _examine(file: File, topic: str) -> tuple[list[_Replaced], NDArray[Any]]:
    """The batches to replace, and all batches of the file (`BATCH_DTYPE` rows)."""
    replaced: list[_Replaced] = []
    rows = [np.empty(0, BATCH_DTYPE)]
    for piece in read_pieces(file):
        dropped: dict[int, _Dropped] = {}
        check_records(piece, topic, partial(_drop, dropped))
        replaced += [_replace(piece, row, dropped[row], topic) for row in sorted(dropped)]
        rows.append(piece.batches)
    return replaced, np.concatenate(rows)


def _drop(dropped: dict[int, _Dropped], row: int, offset: int | None, error: CorruptRecord) -> None:
    dropped.setdefault(row, _Dropped(set(), error)).offsets.add(offset)


def _replace(piece: Piece, row: int, dropped: _Dropped, topic: str) -> _Replaced:
    start, size = int(piece.batches["position"][row]), int(piece.batches["size"][row])
    data = piece.data.data[start - piece.position : start - piece.position + size]
    (batch,) = scan(data)
    records = [] if None in dropped.offsets else decode_records(data, batch)
    kept = [record for record in records if record.offset not in dropped.offsets]
    if topic == CLUSTER_METADATA:
        if not records:
            raise StorageError(f"{dropped.reason}; bring the folder back from a backup")
        kept = [record if record.offset not in dropped.offsets else replace(record, value=_NO_OP) for record in records]
    first_offset = batch.base_offset
    if first_offset < 0:
        # A compressed message of an old format has it in its records only.
        first_offset = records[0].offset if records else batch.last_offset
    return _Replaced(start, start + size, _rebuilt(batch, first_offset, kept), dropped.reason)


def _rebuilt(batch: Batch, first_offset: int, kept: list[Record]) -> bytes:
    """The batch with these records alone, in the newest format."""
    if batch.is_control and not kept:
        # An empty control batch with a producer would end the producer's transaction. This one never has.
        return record_batch.encode(
            [], base_offset=first_offset, last_offset=batch.last_offset, leader_epoch=batch.leader_epoch
        )
    is_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    return record_batch.encode(
        kept,
        base_offset=first_offset,
        last_offset=batch.last_offset,
        codec=Codec(batch.codec_id) if kept else Codec.NONE,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
        append_time_ms=batch.max_timestamp_ms if is_append_time else None,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=batch.delete_horizon_ms,
        max_timestamp_ms=None if kept else batch.max_timestamp_ms,
    )


def _keep(
    quarantine: Quarantine,
    file: File,
    base_offset: int,
    replaced: list[_Replaced],
    rows: NDArray[Any],
    topic: str,
) -> None:
    """Copy the batches as they are, neighbours as one range."""
    ranges: list[Damage] = []
    for each in replaced:
        if ranges and ranges[-1].end == each.start:
            ranges[-1] = Damage(ranges[-1].start, each.end, ranges[-1].reason)
        else:
            ranges.append(Damage(each.start, each.end, each.reason))
    for damage in ranges:
        before = int(np.searchsorted(rows["position"], damage.start))
        after = int(np.searchsorted(rows["position"], damage.end))
        quarantine.keep_range(
            file,
            damage,
            base_offset=base_offset,
            offset_before=int(rows["last_offset"][before - 1]) if before else base_offset - 1,
            offset_after=int(rows["base_offset"][after]) if after < len(rows) else NO_OFFSET,
            kafka=_KAFKA.get(topic, _KAFKA_STOPS),
        )


def _ranges(file: File, replaced: list[_Replaced]) -> list[ByteRange]:
    """The log as it is to be: what stays of the file, and the new batches in between."""
    ranges: list[ByteRange] = []
    position = 0
    for each in replaced:
        if position < each.start:
            ranges.append(ByteRange(file, position, each.start))
        ranges.append(ByteRange(MemorySource(each.batch), 0, len(each.batch)))
        position = each.end
    if position < file.size:
        ranges.append(ByteRange(file, position, file.size))
    return ranges
