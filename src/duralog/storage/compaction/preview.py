"""Why a log is compacted or not, and what a compaction would do to it. Nothing is written.

The range comes from the cleaner's own rules (`duralog.storage.compaction.cleanable`), and the figures from the
compaction itself, run without writing (`duralog.storage.compaction.compact`). So the result is exact. If the keys do
not all fit into the map, the figures are those of the first round, and `MapNeed` estimates the others.

The log may be in use: it is read as it was when it was loaded. Memory is bounded as in a compaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from duralog.columnar.compacting import BatchVerdict
from duralog.columnar.pieces import read_pieces
from duralog.errors import StorageError
from duralog.format.layout import CONTROL_BIT
from duralog.kernels.offset_map import SLOT_BYTES, map_bytes_for
from duralog.storage.compaction.cleanable import DirtyRange, dirty_range
from duralog.storage.compaction.compact import CompactionPreview, PreviewedPiece, preview_compaction
from duralog.storage.compaction.delete_horizons import DeleteHorizons
from duralog.storage.compaction.gone_records import GoneRecord, gone_records
from duralog.storage.compaction.report import CompactionReport, ShowCompaction
from duralog.storage.compaction.settings import CompactionSettings, ignore
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.segment.source import SegmentBroken

_MOST_ROUNDS = 10
"""Count no more rounds than this: each reads the log once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainSettings:
    now_ms: int
    compaction: CompactionSettings
    again: bool = False
    """As if the log had never been compacted."""
    records: int = 0
    """List up to this many of the records that would go."""


@dataclass(slots=True, kw_only=True)
class SegmentGroup:
    """Segments that would become one segment."""

    base_offsets: tuple[int, ...]
    bytes_before: int
    bytes_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MapNeed:
    """Whether the keys fit into the map."""

    memory_bytes: int
    capacity: int
    """How many keys fit."""
    keys: int
    """How many keys there are, at most: a key may occur in several rounds."""
    rounds: int
    is_complete: bool
    """Whether the rounds were counted to the end."""
    one_round_bytes: int
    """The memory with which one round is enough."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_append_ms: int


@dataclass(slots=True, kw_only=True)
class Explanation:
    """The state of a log, and what a compaction would do."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    last_stable_offset: int
    segments: int
    size_bytes: int
    active_bytes: int
    """Of the active segment, which is never compacted."""
    checkpoint: int | None
    """The offset up to which it was compacted; None if it never was."""
    dirty: DirtyRange
    open_transactions: tuple[OpenTransaction, ...]
    horizons: DeleteHorizons
    """Of the batches as they are now."""
    report: CompactionReport | None = None
    """What a compaction would do; None if there is nothing to compact."""
    spent_markers: int = 0
    """Control records that would go."""
    groups: list[SegmentGroup] = field(default_factory=list)
    horizons_after: DeleteHorizons | None = None
    """Of the batches that the compaction would leave."""
    map: MapNeed | None = None
    records: list[GoneRecord] = field(default_factory=list)
    """Some of those that would go."""


def explain_compaction(log: PartitionLog, checkpoint: int | None, settings: ExplainSettings) -> Explanation:
    """`checkpoint` is the log's entry in `cleaner-offset-checkpoint`."""
    view = log.view
    dirty = dirty_range(
        view.segments,
        start_offset=view.start_offset,
        end_offset=view.end_offset,
        last_stable_offset=view.last_stable_offset,
        checkpoint=None if settings.again else checkpoint,
        config=log.config,
        now_ms=settings.now_ms,
    )
    explanation = Explanation(
        topic=log.topic,
        partition=log.partition,
        start_offset=view.start_offset,
        end_offset=view.end_offset,
        last_stable_offset=view.last_stable_offset,
        segments=len(view.segments),
        size_bytes=log.size_bytes,
        active_bytes=view.end_position,
        checkpoint=checkpoint,
        dirty=dirty,
        open_transactions=_open_transactions(log),
        horizons=DeleteHorizons(settings.now_ms),
    )
    if dirty.cleanable_bytes:
        try:
            _rehearse(explanation, log, settings)
        except SegmentBroken as broken:
            # Segments that were broken before are in the report.
            raise StorageError(f"{log.folder}: changed while it was read, try again: {broken}") from broken
    else:
        for segment in view.segments.inactive:
            for piece in read_pieces(segment.file, end=segment.size_bytes, check_crc=False):
                explanation.horizons.add(piece.batches)
    return explanation


def _rehearse(explanation: Explanation, log: PartitionLog, settings: ExplainSettings) -> None:
    def preview_from(offset: int, on_progress: ShowCompaction) -> CompactionPreview:
        return preview_compaction(
            log,
            first_dirty_offset=offset,
            end=explanation.dirty.first_uncleanable.offset,
            now_ms=settings.now_ms,
            settings=replace(settings.compaction, on_progress=on_progress),
        )

    preview = preview_from(explanation.dirty.first_dirty_offset, settings.compaction.on_progress)
    explanation.groups = [
        SegmentGroup(
            base_offsets=tuple(segment.base_offset for segment in group),
            bytes_before=sum(segment.size_bytes for segment in group),
        )
        for group in preview.groups
    ]
    explanation.horizons_after = DeleteHorizons(settings.now_ms)
    group_of = {base: group for group in explanation.groups for base in group.base_offsets}
    for found in preview.pieces():
        group_of[found.segment.base_offset].bytes_after += found.compacted.size_bytes
        explanation.horizons.add(found.piece.batches)
        explanation.horizons_after.add(found.compacted.batches)
        explanation.spent_markers += _spent_markers(found)
        if len(explanation.records) < settings.records:
            wanted = settings.records - len(explanation.records)
            explanation.records += gone_records(found, preview.offset_map, wanted)
    explanation.report = preview.report
    explanation.map = _map_need(preview, settings.compaction, preview_from)


def _map_need(
    first: CompactionPreview,
    settings: CompactionSettings,
    preview_from: Callable[[int, ShowCompaction], CompactionPreview],
) -> MapNeed:
    end = first.report.end
    reached, keys, rounds = first.end_offset, first.offset_map.size, 1
    while reached < end and rounds < _MOST_ROUNDS:
        further = preview_from(reached, ignore)
        if further.end_offset <= reached:
            break
        reached, keys, rounds = further.end_offset, keys + further.offset_map.size, rounds + 1
    most_keys = keys if reached >= end else end - first.report.first_dirty_offset
    return MapNeed(
        memory_bytes=settings.memory_bytes,
        capacity=int(settings.memory_bytes // SLOT_BYTES * settings.load_factor),
        keys=most_keys,
        rounds=rounds,
        is_complete=reached >= end,
        one_round_bytes=map_bytes_for(most_keys, settings.load_factor),
    )


def _spent_markers(found: PreviewedPiece) -> int:
    batches, verdicts = found.piece.batches, found.verdicts
    goes = (verdicts == BatchVerdict.DROP) | (verdicts == BatchVerdict.EMPTY)
    is_control = (batches["magic"] >= 2) & (batches["attributes"] & CONTROL_BIT != 0) & (batches["crc_ok"] != 0)
    return int(batches["record_count"].clip(0).sum(where=goes & is_control, dtype=np.int64))


def _open_transactions(log: PartitionLog) -> tuple[OpenTransaction, ...]:
    """The oldest first: that one prevents the log from being compacted."""
    found = [
        OpenTransaction(
            producer.producer_id, producer.producer_epoch, producer.transaction_first_offset, producer.timestamp_ms
        )
        for producer in log.producers()
        if producer.transaction_first_offset >= 0
    ]
    return tuple(sorted(found, key=lambda transaction: transaction.first_offset))
