"""Compaction as plain as it can be: the second opinion on what `duralog.storage.compaction.compact` makes of a log.

Nothing here is fast, shares code with the kernels, or remembers more than it must. A log is a list of segments, a
segment is bytes; the offset map is a dictionary; which transactions were aborted is looked up in the list of them. What
comes out are the bytes of every `.log` file and the entries of every `.txnindex`, as Kafka's cleaner would leave them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from duralog.format import batches, control_records, record_batch
from duralog.format.batch import Batch
from duralog.format.compression import Codec
from duralog.format.control_records import ControlType, EndTransactionMarker
from duralog.format.filenames import FileKind, FileState, SegmentFile, parse_segment_file
from duralog.format.index_entries import (
    AbortedTransaction,
    OffsetIndexEntry,
    TimeIndexEntry,
    decode_transaction_index,
    encode_offset_index,
    encode_time_index,
    index_entries,
)
from duralog.format.producer_snapshot import ProducerEntry
from duralog.format.record import Record, TimestampType
from duralog.format.varint import as_int64
from duralog.storage.disk.file_system import FileSystem

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSegment:
    base_offset: int
    log: bytes
    aborted: tuple[AbortedTransaction, ...] = ()
    """Of the transactions whose abort marker is in this segment."""
    offset_index: bytes = b""
    time_index: bytes = b""
    modified_ms: int = 0

    @property
    def batches(self) -> list[Batch]:
        return list(batches.scan(self.log))

    @property
    def largest_timestamp_ms(self) -> int:
        """Of any batch; the time of the file where there is none."""
        largest = max((batch.max_timestamp_ms for batch in self.batches), default=-1)
        return largest if largest >= 0 else self.modified_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    """What the topic and the moment say."""

    capacity: int
    """How many keys the map takes."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int


@dataclass(slots=True)
class OffsetMap:
    last: dict[bytes, int] = field(default_factory=dict)
    """The last offset of each key."""
    latest_offset: int = -1
    """Up to where the log is mapped."""


# The range


def first_uncleanable_offset(
    segments: Sequence[PlainSegment],
    *,
    first_dirty_offset: int,
    last_stable_offset: int,
    min_lag_ms: int,
    now_ms: int,
) -> int:
    """Where compaction ends: at the start of the segment in which something must not be touched. The last is active."""
    inactive, active = segments[:-1], segments[-1]
    limit = min(last_stable_offset, active.base_offset)
    if min_lag_ms > 0:
        for number, segment in enumerate(inactive):
            following = segments[number + 1].base_offset
            if following > first_dirty_offset and segment.largest_timestamp_ms > now_ms - min_lag_ms:
                limit = min(limit, segment.base_offset)
                break
    limit = max(limit, first_dirty_offset)
    return max((segment.base_offset for segment in segments if segment.base_offset <= limit), default=limit)


# Rounds


def compact(
    segments: Sequence[PlainSegment],
    *,
    first_dirty_offset: int,
    end: int,
    rules: CleaningRules,
    producers: Collection[ProducerEntry] = (),
) -> tuple[list[PlainSegment], int]:
    """Clean round after round until all below `end` is clean. Returns the log, and how many rounds that took."""
    log, rounds = list(segments), 0
    while first_dirty_offset < end:
        log, first_dirty_offset = clean(
            log, first_dirty_offset=first_dirty_offset, end=end, rules=rules, producers=producers
        )
        rounds += 1
    return log, rounds


def clean(
    segments: Sequence[PlainSegment],
    *,
    first_dirty_offset: int,
    end: int,
    rules: CleaningRules,
    producers: Collection[ProducerEntry] = (),
) -> tuple[list[PlainSegment], int]:
    """One round. Returns the log, and the offset below which it is clean now."""
    aborted = [transaction for segment in segments for transaction in segment.aborted]
    offsets = fill_map(segments, first_dirty_offset, end, rules.capacity, aborted)
    clean_ms = [segment.modified_ms for segment in segments if segment.base_offset < first_dirty_offset]
    legacy_horizon_ms = clean_ms[-1] - rules.delete_retention_ms if clean_ms else 0
    cleaning = _Cleaning(rules, offsets, aborted, {entry.producer_id: entry for entry in producers}, end)
    chosen = [segment for segment in segments if segment.base_offset <= offsets.latest_offset]
    log = [segment for segment in segments if segment.base_offset > offsets.latest_offset]
    for group in group_segments(chosen, end, rules):
        kept: list[bytes] = []
        entries: list[AbortedTransaction] = []
        for segment in group:
            cleaning.keep_legacy_tombstones = segment.modified_ms > legacy_horizon_ms
            for batch in segment.batches:
                kept.append(cleaning.cleaned(batch, segment.log, entries))
        log.append(with_indexes(group[0].base_offset, b"".join(kept), entries, group[-1].modified_ms, rules))
    return sorted(log, key=lambda segment: segment.base_offset), offsets.latest_offset + 1


def fill_map(
    segments: Sequence[PlainSegment],
    first_dirty_offset: int,
    end: int,
    capacity: int,
    aborted: Sequence[AbortedTransaction],
) -> OffsetMap:
    """The last offset of every key from the first dirty offset on, until there is no room before a record."""
    found = OffsetMap()
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if following <= first_dirty_offset or segment.base_offset >= end:
            continue
        for batch in segment.batches:
            if not batch.is_control and not _find_aborted(batch, aborted):
                for record in batches.decode_records(segment.log, batch):
                    if record.key is not None and record.offset >= first_dirty_offset:
                        if len(found.last) >= capacity:
                            return found
                        found.last[record.key] = found.latest_offset = record.offset
            if batch.last_offset >= first_dirty_offset:
                found.latest_offset = batch.last_offset
        found.latest_offset = min(following, end) - 1
    return found


def group_segments(
    segments: Sequence[PlainSegment], end: int, rules: CleaningRules
) -> Iterable[Sequence[PlainSegment]]:
    """Runs of segments that become one."""
    group: list[PlainSegment] = []
    for number, segment in enumerate(segments):
        last_offset = (segments[number + 1].base_offset if number + 1 < len(segments) else end) - 1
        together = [*group, segment]
        if group and not (
            sum(len(each.log) for each in together) <= rules.segment_bytes
            and sum(len(each.offset_index) for each in together) <= rules.segment_index_bytes
            and sum(len(each.time_index) for each in together) <= rules.segment_index_bytes
            and (not segment.log or last_offset - group[0].base_offset <= _INT32_MAX)
        ):
            yield group
            together = [segment]
        group = together
    if group:
        yield group


def with_indexes(
    base_offset: int, log: bytes, aborted: Iterable[AbortedTransaction], modified_ms: int, rules: CleaningRules
) -> PlainSegment:
    entries = list(index_entries(batches.scan(log), interval_bytes=rules.index_interval_bytes))
    return PlainSegment(
        base_offset=base_offset,
        log=log,
        aborted=tuple(aborted),
        offset_index=encode_offset_index((one for one in entries if isinstance(one, OffsetIndexEntry)), base_offset),
        time_index=encode_time_index((one for one in entries if isinstance(one, TimeIndexEntry)), base_offset),
        modified_ms=modified_ms,
    )


# Batches and records


@dataclass(slots=True)
class _Cleaning:
    """The second pass of a round, over all batches in order."""

    rules: CleaningRules
    offsets: OffsetMap
    aborted: Sequence[AbortedTransaction]
    producers: dict[int, ProducerEntry]
    end: int
    keep_legacy_tombstones: bool = True
    aborted_with_data: set[int] = field(default_factory=set)
    """By the offset of the marker: transactions of which this pass has met a batch."""
    committing: set[int] = field(default_factory=set)
    """Producers of which this pass has met a batch that no marker has committed yet."""

    def cleaned(self, batch: Batch, log: bytes, entries: list[AbortedTransaction]) -> bytes:
        """What is left of the batch. An abort marker that is needed adds its transaction to the entries."""
        records = batches.decode_records(log, batch)
        can_go = self._marker_can_go(batch, records, entries) if batch.is_control else self._is_aborted(batch)
        horizon_ms = batch.delete_horizon_ms
        if batch.is_control:
            is_due = can_go and horizon_ms is not None and horizon_ms <= self.rules.now_ms
            kept = [] if is_due else records
        else:
            kept = [] if can_go else [record for record in records if self._survives(batch, record)]
        if not kept:
            return _emptied(batch) if self._is_kept_empty(batch) else b""
        has_marker_of_nothing = batch.is_control and can_go
        has_tombstone = any(record.value is None for record in kept)
        needs_horizon = horizon_ms is None and (has_tombstone or has_marker_of_nothing)
        if batch.magic == 2 and kept == records and not needs_horizon:
            return log[batch.position : batch.position + batch.size_bytes]
        if needs_horizon:
            # As Java adds: a retention without end gives a time before all times, and that is none.
            horizon_ms = as_int64(self.rules.now_ms + self.rules.delete_retention_ms)
        return _rebuilt(batch, kept, None if horizon_ms is not None and horizon_ms < 0 else horizon_ms)

    def _is_aborted(self, batch: Batch) -> bool:
        transaction = _find_aborted(batch, self.aborted)
        if transaction is not None:
            self.aborted_with_data.add(transaction.last_offset)
            return True
        if batch.is_transactional:
            self.committing.add(batch.producer_id)
        return False

    def _marker_can_go(self, batch: Batch, records: list[Record], entries: list[AbortedTransaction]) -> bool:
        if not records:
            return True
        assert records[0].key is not None
        marker = control_records.decode(records[0].key, records[0].value)
        if not isinstance(marker, EndTransactionMarker):
            return False
        if marker.type is ControlType.COMMIT:
            has_data = batch.producer_id in self.committing
            self.committing.discard(batch.producer_id)
            return not has_data
        if batch.last_offset not in self.aborted_with_data:
            return True
        entries.extend(transaction for transaction in self.aborted if transaction.last_offset == batch.last_offset)
        return False

    def _survives(self, batch: Batch, record: Record) -> bool:
        if record.offset > self.offsets.latest_offset:
            return True
        if record.key is None or record.offset < self.offsets.last.get(record.key, -1):
            return False
        if record.value is not None:
            return True
        if batch.magic < 2:
            return self.keep_legacy_tombstones
        return batch.delete_horizon_ms is None or self.rules.now_ms < batch.delete_horizon_ms

    def _is_kept_empty(self, batch: Batch) -> bool:
        if batch.magic < 2:
            return False
        if batch.last_offset + 1 == self.end:
            return True
        producer = self.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if producer is None:
            return False
        if producer.last_offset >= 0:
            return batch.last_offset == producer.last_offset
        return batch.is_control and batch.producer_epoch == producer.producer_epoch


def _find_aborted(batch: Batch, aborted: Sequence[AbortedTransaction]) -> AbortedTransaction | None:
    if batch.is_transactional:
        for transaction in aborted:
            is_inside = transaction.first_offset <= batch.last_offset < transaction.last_offset
            if transaction.producer_id == batch.producer_id and is_inside:
                return transaction
    return None


def _rebuilt(batch: Batch, records: Sequence[Record], horizon_ms: int | None) -> bytes:
    """A batch with these records. Messages of the old formats become one of the new format."""
    is_old = batch.magic < 2
    has_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    return record_batch.encode(
        records,
        base_offset=records[0].offset if is_old else batch.base_offset,
        last_offset=records[-1].offset if is_old else batch.last_offset,
        codec=Codec(batch.codec_id),
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        timestamp_type=TimestampType.LOG_APPEND_TIME if has_append_time else TimestampType.CREATE_TIME,
        append_time_ms=batch.max_timestamp_ms,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=horizon_ms,
    )


def _emptied(batch: Batch) -> bytes:
    return record_batch.encode(
        [],
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        timestamp_type=batch.timestamp_type,
        append_time_ms=batch.max_timestamp_ms,
        max_timestamp_ms=batch.max_timestamp_ms,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )


# Files


def segments_on_disk(fs: FileSystem, folder: str) -> list[PlainSegment]:
    """The plain files of a partition's folder, in order."""
    entries = {entry.name: entry for entry in fs.list(folder)}
    found: list[PlainSegment] = []
    for name in sorted(entries):
        file = parse_segment_file(name)
        if file is None or file.kind is not FileKind.LOG or file.state is not FileState.LIVE:
            continue

        def read(kind: FileKind, base_offset: int = file.offset) -> bytes:
            name = SegmentFile(base_offset, kind).name
            return fs.read_all(f"{folder}/{name}") if name in entries else b""

        found.append(
            PlainSegment(
                base_offset=file.offset,
                log=read(FileKind.LOG),
                aborted=tuple(decode_transaction_index(read(FileKind.TRANSACTION_INDEX), file.offset)),
                offset_index=read(FileKind.OFFSET_INDEX),
                time_index=read(FileKind.TIME_INDEX),
                modified_ms=entries[name].modified_ms,
            )
        )
    return found
