"""The data for charts of a topic: its segments, times and sizes of its records, its keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.logs import Logs
from duralog.statistics.key_popularity import FrequentKey, HotKey, Popularity
from duralog.statistics.record_counts import RecordCounts
from duralog.statistics.record_shapes import RecordShape
from duralog.storage.compaction.cleanable import first_dirty_offset
from duralog.storage.log.partition_log import PartitionLog

_SHOWN_KEY_BYTES = 64


class SegmentState(StrEnum):
    CLEAN = "clean"
    """Compacted."""
    DIRTY = "dirty"
    """Written since the last compaction of its log."""
    ACTIVE = "active"
    """The active segment."""
    KEPT = "kept"
    """Of a topic that is not compacted."""


class SegmentSize(NamedTuple):
    base_offset: int
    size_bytes: int
    state: SegmentState


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    """The segments of one partition, the oldest first."""

    partition: int
    segments: tuple[SegmentSize, ...]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    records: RecordShape
    popularity: Popularity
    """Keys that are in several partitions are different ones."""
    hot_keys: tuple[HotKey, ...]
    partitions: tuple[SegmentSizes, ...]


def segment_sizes(log: PartitionLog, is_compacted: bool, checkpoint: int | None) -> SegmentSizes:
    """`checkpoint` is the log's entry in `cleaner-offset-checkpoint`."""
    # A log that was never compacted has no clean part, wherever it starts.
    first_dirty, _ = first_dirty_offset(checkpoint, log.start_offset, log.end_offset)

    def state(base_offset: int, is_active: bool) -> SegmentState:
        if is_active:
            return SegmentState.ACTIVE
        if not is_compacted:
            return SegmentState.KEPT
        return SegmentState.CLEAN if checkpoint is not None and base_offset < first_dirty else SegmentState.DIRTY

    return SegmentSizes(
        log.partition,
        tuple(
            SegmentSize(segment.base_offset, segment.size_bytes, state(segment.base_offset, segment.is_active))
            for segment in log.segments
        ),
    )


def topic_shape(
    logs: Logs,
    counts: Iterable[RecordCounts],
    popularities: Iterable[Popularity | None],
    segments: Sequence[SegmentSizes],
    topic: str,
    hot_keys: int,
) -> TopicShape:
    records = RecordShape()
    for found in counts:
        if found.shape is not None:
            records.add(found.shape)
    popularity = Popularity()
    for of_partition in popularities:
        if of_partition is not None:
            popularity.add(of_partition, hot_keys)
    return TopicShape(
        records=records,
        popularity=popularity,
        hot_keys=tuple(_hot_key(logs, topic, frequent) for frequent in popularity.frequent),
        partitions=tuple(segments),
    )


def _hot_key(logs: Logs, topic: str, frequent: FrequentKey) -> HotKey:
    key = None
    # Meanwhile the log may have been compacted, or cut.
    with suppress(DuralogError):
        record = next(logs.log(TopicPartition(topic, frequent.partition)).read(frequent.offset), None)
        if record is not None and record.offset == frequent.offset:
            key = record.key
    shown = None if key is None else key[:_SHOWN_KEY_BYTES]
    return HotKey(shown, len(key or b""), frequent.partition, frequent.records)
