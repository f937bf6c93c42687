"""Counts the contents of a log: batches by their headers, records by their columns, in whole chunks.

Counts of parts of a log add up to those of the whole: a batch is counted where its last offset is, a record where its
own is. A batch that is damaged is counted as such, and its records are not.

Bytes: `disk_bytes` is the stored size of whole batches; `unpacked_bytes` is their size without compression. A prefix
has no batches: it has the bytes of its keys and values, and their share of the compressed batches.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.measured_records import decode_measured
from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch
from duralog.columnar.runs import Rows
from duralog.errors import DuralogError, StorageError
from duralog.format.compression import Codec
from duralog.format.layout import CODEC_MASK, CONTROL_BIT, NO_TIMESTAMP
from duralog.scanning.cluster.sound_slices import sound_slices
from duralog.scanning.cluster.sources import HealedRange
from duralog.scanning.executor import Advance, ignore_progress
from duralog.scanning.keyed_offsets import within
from duralog.scanning.slice_reading import read_slice_pieces
from duralog.scanning.slices import CorruptBytes, DataLoss, Slice
from duralog.statistics.key_prefixes import PrefixRule, prefixes_of
from duralog.statistics.record_shapes import RecordShape

_logger = logging.getLogger(__name__)

MOST_PREFIXES = 100_000
_SHOWN_KEY_BYTES = 64
_MOST_DAMAGE_REPORTED = 1000


class LargeRecord(NamedTuple):
    size_bytes: int
    """Of key and value."""
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    """Its first bytes."""


@dataclass(slots=True)
class TimeSpan:
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, first_ms: int | None, last_ms: int | None) -> None:
        if first_ms is not None and last_ms is not None:
            self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
            self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)


@dataclass(slots=True)
class CodecCounts:
    batches: int = 0
    disk_bytes: int = 0
    unpacked_bytes: int = 0

    def add(self, other: CodecCounts) -> None:
        self.batches += other.batches
        self.disk_bytes += other.disk_bytes
        self.unpacked_bytes += other.unpacked_bytes


@dataclass(slots=True)
class PrefixCounts:
    records: int = 0
    tombstones: int = 0
    content_bytes: int = 0
    disk_bytes: float = 0.0
    times: TimeSpan = field(default_factory=TimeSpan)

    def add(self, other: PrefixCounts) -> None:
        self.records += other.records
        self.tombstones += other.tombstones
        self.content_bytes += other.content_bytes
        self.disk_bytes += other.disk_bytes
        self.times.add(other.times.first_ms, other.times.last_ms)


@dataclass(slots=True)
class RecordCounts:
    records: int = 0
    keyless_records: int = 0
    tombstones: int = 0
    untimed_records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    batches: int = 0
    control_batches: int = 0
    disk_bytes: int = 0
    unpacked_bytes: int = 0
    smallest_batch_bytes: int | None = None
    largest_batch_bytes: int | None = None
    most_records_of_a_batch: int = 0
    times: TimeSpan = field(default_factory=TimeSpan)
    codecs: dict[str, CodecCounts] = field(default_factory=dict)
    largest: list[LargeRecord] = field(default_factory=list)
    prefixes: dict[bytes | None, PrefixCounts] = field(default_factory=dict)
    shape: RecordShape | None = None
    """For charts, if they are wanted."""
    damage: list[str] = field(default_factory=list)
    """What could not be read: the first findings."""
    unread: list[Slice] = field(default_factory=list)
    """Partitions whose files may not be read (permissions): the second pass skips them."""

    def add(self, other: RecordCounts, largest: int) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for size in (other.smallest_batch_bytes, other.largest_batch_bytes):
            self.add_batch_size(size)
        self.most_records_of_a_batch = max(self.most_records_of_a_batch, other.most_records_of_a_batch)
        self.times.add(other.times.first_ms, other.times.last_ms)
        for codec, counts in other.codecs.items():
            self.codecs.setdefault(codec, CodecCounts()).add(counts)
        self.largest = heapq.nlargest(largest, [*self.largest, *other.largest], key=_size_and_offset)
        if other.shape is not None:
            self.shape = self.shape or RecordShape()
            self.shape.add(other.shape)
        self.damage = [*self.damage, *other.damage][:_MOST_DAMAGE_REPORTED]
        self.unread += other.unread
        self.add_prefixes(other.prefixes)

    def add_batch_size(self, size: int | None) -> None:
        if size is not None:
            self.smallest_batch_bytes = (
                size if self.smallest_batch_bytes is None else min(self.smallest_batch_bytes, size)
            )
            self.largest_batch_bytes = size if self.largest_batch_bytes is None else max(self.largest_batch_bytes, size)

    def add_prefixes(self, others: dict[bytes | None, PrefixCounts]) -> None:
        for prefix, counts in others.items():
            self.prefixes.setdefault(prefix, PrefixCounts()).add(counts)
        if len(self.prefixes) > MOST_PREFIXES:
            raise DuralogError(
                f"there are more than {MOST_PREFIXES} prefixes: give a shorter length, or another separator"
            )


_SUMS = (
    *("records", "keyless_records", "tombstones", "untimed_records", "key_bytes", "value_bytes"),
    *("batches", "control_batches", "disk_bytes", "unpacked_bytes"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRules:
    """What is counted in addition to the basic figures."""

    prefix: PrefixRule | None = None
    largest: int = 0
    """How many of the largest records are named."""
    shapes: bool = False
    """Also sizes and times, for charts."""


def count_slices(slices: tuple[Slice, ...], advance: Advance = ignore_progress, *, rules: CountRules) -> RecordCounts:
    """The work of a task."""
    total = RecordCounts()
    for found in sound_slices(slices, _log_healed):
        total.add(_SliceCounter(found, rules, advance).count(), rules.largest)
    return total


class _SliceCounter:
    def __init__(self, found: Slice, rules: CountRules, advance: Advance) -> None:
        self._slice = found
        self._rules = rules
        self._advance = advance
        self._counts = RecordCounts(shape=RecordShape() if rules.shapes else None)
        self._counted_to = found.start_offset - 1
        """The last offset of the last batch that was counted: should a file change, some of it is read again."""

    def count(self) -> RecordCounts:
        try:
            for _ in read_slice_pieces(self._slice, self._piece, on_corrupt=self._corrupt, on_data_loss=pass_over):
                pass
        except StorageError as error:
            if self._slice.location.is_remote:
                raise  # A retry of the task may succeed.
            return RecordCounts(damage=[str(error)], unread=[self._slice])
        return self._counts

    def _corrupt(self, corrupt: CorruptBytes) -> None:
        if len(self._counts.damage) < _MOST_DAMAGE_REPORTED:
            self._counts.damage.append(str(corrupt))

    def _piece(self, piece: Piece, rows: Rows | None, refuse: OnCorruptBatch) -> Iterator[None]:
        sizes, chunks = decode_measured(piece, rows, on_corrupt=refuse)
        records_inside = piece.batches["record_count"].astype(np.int64)
        for decoded in chunks:
            _count_inside(decoded, records_inside)
            records = within(decoded, self._slice)
            if len(records):
                self._records(records, sizes)
        self._batches(piece, sizes, records_inside)
        self._advance(len(piece.data))
        yield

    def _batches(self, piece: Piece, sizes: NDArray[np.int64], records_inside: NDArray[np.int64]) -> None:
        last = piece.batches["last_offset"]
        is_ours = (last > self._counted_to) & (last < self._slice.end_offset) & (piece.batches["crc_ok"] == 1)
        batches, unpacked = piece.batches[is_ours], sizes[is_ours]
        if not len(batches):
            return
        counts = self._counts
        self._counted_to = int(batches["last_offset"].max())
        counts.batches += len(batches)
        counts.control_batches += int(
            np.count_nonzero((batches["magic"] == 2) & (batches["attributes"] & CONTROL_BIT != 0))
        )
        counts.disk_bytes += int(batches["size"].sum(dtype=np.int64))
        counts.unpacked_bytes += int(unpacked.sum())
        counts.add_batch_size(int(batches["size"].min()))
        counts.add_batch_size(int(batches["size"].max()))
        counts.most_records_of_a_batch = max(counts.most_records_of_a_batch, int(records_inside[is_ours].max()))
        codecs = batches["attributes"] & CODEC_MASK
        for number in np.unique(codecs).tolist():
            chosen = codecs == number
            counts.codecs.setdefault(Codec(number).label, CodecCounts()).add(
                CodecCounts(
                    int(np.count_nonzero(chosen)),
                    int(batches["size"].sum(where=chosen, dtype=np.int64)),
                    int(unpacked.sum(where=chosen)),
                )
            )

    def _records(self, records: DecodedRecords, sizes: NDArray[np.int64]) -> None:
        columns, counts = records.columns, self._counts
        has_key = columns.key_length >= 0
        is_tombstone = has_key & (columns.value_length < 0)
        key_bytes, value_bytes = np.maximum(columns.key_length, 0), np.maximum(columns.value_length, 0)
        content = key_bytes.astype(np.int64) + value_bytes
        has_time = columns.timestamp != NO_TIMESTAMP
        counts.records += len(records)
        counts.keyless_records += len(records) - int(np.count_nonzero(has_key))
        counts.tombstones += int(np.count_nonzero(is_tombstone))
        counts.untimed_records += len(records) - int(np.count_nonzero(has_time))
        counts.key_bytes += int(key_bytes.sum(dtype=np.int64))
        counts.value_bytes += int(value_bytes.sum(dtype=np.int64))
        if (times := columns.timestamp[has_time]).size:
            counts.times.add(int(times.min()), int(times.max()))
        if counts.shape is not None:
            counts.shape.add_records(content, times)
        self._keep_largest(records, content)
        if self._rules.prefix is not None:
            self._prefixes(records, self._rules.prefix, sizes, content, is_tombstone, has_time)

    def _keep_largest(self, records: DecodedRecords, content: NDArray[np.int64]) -> None:
        wanted = min(self._rules.largest, len(content))
        if not wanted:
            return
        columns, counts = records.columns, self._counts
        if len(counts.largest) == self._rules.largest and content.max() < counts.largest[-1].size_bytes:
            return
        found = []
        smallest = np.partition(content, -wanted)[-wanted]
        above = np.flatnonzero(content > smallest)
        equal = np.flatnonzero(content == smallest)[: wanted - len(above)]
        for row in (*above.tolist(), *equal.tolist()):
            begin, length = int(columns.key_position[row]), int(columns.key_length[row])
            timestamp_ms = int(columns.timestamp[row])
            found.append(
                LargeRecord(
                    int(content[row]),
                    self._slice.partition,
                    int(columns.offset[row]),
                    None if timestamp_ms == NO_TIMESTAMP else timestamp_ms,
                    None if length < 0 else records.data[begin : begin + min(length, _SHOWN_KEY_BYTES)].tobytes(),
                )
            )
        counts.largest = heapq.nlargest(self._rules.largest, [*counts.largest, *found], key=_size_and_offset)

    def _prefixes(
        self,
        records: DecodedRecords,
        rule: PrefixRule,
        sizes: NDArray[np.int64],
        content: NDArray[np.int64],
        is_tombstone: NDArray[np.bool_],
        has_time: NDArray[np.bool_],
    ) -> None:
        found = prefixes_of(records, rule)
        count = len(found.values)
        packing = (records.batches["size"] / np.maximum(sizes, 1))[records.batch_row]
        times = records.columns.timestamp[has_time]
        first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        np.minimum.at(first, found.codes[has_time], times)
        np.maximum.at(last, found.codes[has_time], times)
        columns = (
            np.bincount(found.codes, minlength=count),
            np.bincount(found.codes[is_tombstone], minlength=count),
            np.bincount(found.codes, content, minlength=count),
            np.bincount(found.codes, content * packing, minlength=count),
            first,
            last,
        )
        self._counts.add_prefixes(
            {
                prefix: PrefixCounts(
                    row[0], row[1], int(row[2]), row[3], TimeSpan(row[4], row[5]) if row[4] <= row[5] else TimeSpan()
                )
                for prefix, *row in zip(found.values, *(column.tolist() for column in columns), strict=True)
            }
        )


def _log_healed(found: HealedRange) -> None:
    _logger.warning("%s", found)


def pass_over(_: DataLoss) -> None:
    """Skip offsets that retention has deleted since the planning."""


def _count_inside(decoded: DecodedRecords, records_inside: NDArray[np.int64]) -> None:
    """Add what is in compressed messages of old formats, which do not say how many records they hold."""
    batches = decoded.batches
    is_silent = (batches["magic"] < 2) & (batches["record_count"] < 0)
    if is_silent.any():
        found = np.bincount(decoded.batch_row, minlength=len(batches))
        np.maximum(records_inside, 0, out=records_inside, where=is_silent)
        np.add(records_inside, found, out=records_inside, where=is_silent)


def _size_and_offset(record: LargeRecord) -> tuple[int, int, int]:
    """Of records of one size, the first one."""
    return record.size_bytes, -record.partition, -record.offset
