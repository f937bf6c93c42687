"""Copies the batches of one partition into a new log: byte for byte, as consumers were served them.

The new log is written like any other, so its indexes, producers and transactions are those of its batches. Segments
start where those of the source do. In the same pass, records and bytes are added up for the report and the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from duralog.config.definitions import INT64_MAX
from duralog.errors import StorageError
from duralog.format.layout import NO_PRODUCER_ID
from duralog.format.topic_partition import TopicPartition
from duralog.operations.restore.log_contents import BytesSum, ContentsSum, LogBytes
from duralog.operations.restore.report import LogContents, LostRange
from duralog.scanning.cluster.batch_reading import BatchRun, read_batches
from duralog.scanning.cluster.cluster import Copies
from duralog.scanning.cluster.compacted.compacted_source import MixedPart
from duralog.scanning.cluster.offset_sets import without
from duralog.scanning.cluster.sound_slices import missing_offsets
from duralog.scanning.cluster.sources import HealedRange
from duralog.scanning.executor import Advance
from duralog.scanning.slices import CorruptBytes, DataLoss, Slice
from duralog.storage.log.partition_log import PartitionLog

_INT32_MAX = 2**31 - 1
_WRITTEN_AHEAD = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSource:
    """What is copied of a partition."""

    partition: TopicPartition
    copies: Copies
    slices: tuple[Slice, ...]
    start_offset: int
    end_offset: int
    """Up to here consumers were served; no copy may reach so far."""
    healed: tuple[HealedRange, ...]
    """What the plan takes from other than the chosen copy."""
    mixed: MixedPart | None = None
    """The compacted part, if no copy of it is whole."""

    @property
    def size_bytes(self) -> int:
        return sum(found.size_bytes for found in self.slices)

    @property
    def is_of_one_copy(self) -> bool:
        return not self.healed and all(not found.is_from_other_copy for found in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPartition:
    source: PartitionSource
    end_offset: int
    contents: LogContents
    bytes: LogBytes
    """As they were read, checksums included."""
    healed: tuple[HealedRange, ...]
    lost: tuple[LostRange, ...]
    largest_producer_id: int


def copy_partition(source: PartitionSource, log: PartitionLog, advance: Advance) -> CopiedPartition:
    """REQUIRES: the log is new. It is not synced yet, and may have open transactions at its end."""
    config = log.config
    # A segment ends only where one of the source does.
    log.update_config(replace(config, segment_bytes=_INT32_MAX, segment_ms=INT64_MAX, flush_messages=INT64_MAX))
    contents, copied = ContentsSum(source.start_offset), BytesSum()
    reading = _Reading(source)
    ahead = _SyncAhead(log)
    largest_producer_id = NO_PRODUCER_ID
    for found, run in reading.runs():
        batches = run.batches
        if not log.view.segments.size_bytes:
            first = int(batches["base_offset"][0])
            start = source.start_offset if first < 0 else min(source.start_offset, first)
            if start > log.end_offset:
                log.start_at(start)
        data = run.data
        log.append_copied(data, found.base_offset)
        ahead.begin()
        contents.add(run.piece, run.rows)
        copied.add(run.piece, run.rows)
        largest_producer_id = max(largest_producer_id, int(batches["producer_id"].max()))
        advance(len(data))
    end_offset = max(log.end_offset, min(source.end_offset, source.copies.choice.end_offset))
    log.end_copy(source.start_offset, end_offset, source.copies.choice.epochs)
    log.update_config(config)
    return CopiedPartition(
        source=source,
        end_offset=log.end_offset,
        contents=contents.total(),
        bytes=copied.total(log.start_offset),
        healed=(*source.healed, *reading.healed),
        lost=tuple(reading.lost()),
        largest_producer_id=largest_producer_id,
    )


class _SyncAhead:
    """Lets the system write what was appended while more is read: the sync at the end has less to wait for."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._segment = log.view.segments.active
        self._begun = 0

    def begin(self) -> None:
        active = self._log.view.segments.active
        if active is not self._segment:
            self._segment, self._begun = active, 0
        if active.size_bytes - self._begun >= _WRITTEN_AHEAD:
            active.file.begin_sync(self._begun)
            self._begun = active.size_bytes


class _Reading:
    """Reads the batches of a partition, and notes which offsets are missing."""

    def __init__(self, source: PartitionSource) -> None:
        self._source = source
        self.healed: list[HealedRange] = []
        self._damage: list[tuple[int, int, str]] = list(_known_losses(source))
        self._gaps: list[tuple[int, int]] = []

    def runs(self) -> Iterator[tuple[Slice, BatchRun]]:
        source = self._source
        reached = source.start_offset
        runs = read_batches(
            source.slices, on_healed=self.healed.append, on_corrupt=self._corrupt, on_data_loss=self._data_loss
        )
        while True:
            try:
                found, run = next(runs)
            except StopIteration:
                break
            except StorageError as error:
                # No copy of the rest can be read.
                self._damage.append((reached, source.end_offset - 1, str(error)))
                break
            self._gaps += missing_offsets(run.batches, reached - 1)
            reached = int(run.batches["last_offset"][-1]) + 1
            yield found, run
        if reached < source.end_offset:
            self._gaps.append((reached, source.end_offset - 1))

    def lost(self) -> list[LostRange]:
        """By offset: what is damaged, and what is missing although no cleaner has removed it."""
        dense_from = self._source.copies.dense_from
        gaps = [] if dense_from is None else [(max(first, dense_from), last) for first, last in self._gaps]
        known = [(first, last) for first, last, _ in self._damage]
        missing = [
            (low, high, "no copy has these offsets")
            for first, last in gaps
            if first <= last
            for low, high in without((first, last), known)
        ]
        return [*_mixed(self._source), *(LostRange(*each) for each in sorted([*self._damage, *missing]))]

    def _corrupt(self, found: CorruptBytes) -> None:
        reason = f"{found.path}: position {found.position}: {found.reason}"
        self._damage.append((found.first_offset, found.last_offset, reason))

    def _data_loss(self, found: DataLoss) -> None:
        self._damage.append((found.asked_start, max(found.asked_start, found.asked_end - 1), str(found)))


def planned_losses(source: PartitionSource) -> list[LostRange]:
    """What is known to be lost before anything is read: the log starts or ends with offsets that no copy has."""
    return [*_mixed(source), *(LostRange(*each) for each in _known_losses(source))]


def _mixed(source: PartitionSource) -> Iterator[LostRange]:
    if source.mixed is not None:
        yield LostRange(source.mixed.first_offset, source.mixed.last_offset, source.mixed.reason)


def _known_losses(source: PartitionSource) -> Iterator[tuple[int, int, str]]:
    choice, dense_from = source.copies.choice, source.copies.dense_from
    reached = source.slices[0].start_offset if source.slices else max(source.start_offset, choice.end_offset)
    if dense_from is not None and (first := max(source.start_offset, dense_from)) < reached:
        yield first, min(reached, source.end_offset) - 1, "no copy has these offsets"
    if (first := max(choice.end_offset, reached)) < source.end_offset:
        yield first, source.end_offset - 1, f"all copies end before the high watermark, {choice.high_watermark}"
