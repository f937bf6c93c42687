"""Snapshots of a log directory, refreshed every few seconds, for the overview and the tables of topics.

A snapshot is immutable and replaced as a whole: pages take the newest one without a lock. Only partitions that
`Store.refresh` reports as changed are computed again. `step` never raises: if the directory cannot be listed, the last
snapshot stays, is marked offline, and has a note with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from duralog.config import TOPIC_CONFIGS, BrokerConfig, Origin, TopicConfig
from duralog.config.error_text import describe, printable
from duralog.config.times import duration_text
from duralog.console.facts.health import CleanerFacts, CleanerRow
from duralog.console.facts.overview import Overview, PartitionRow, Sample, SourceKind, TopicFacts, nothing_yet
from duralog.console.sources.directory.held_note import held_note
from duralog.console.sources.directory.segment_times import timed_segments
from duralog.console.sources.rates import NO_GROWTH, Growth, History, RecentRates, SizeHistory, growth
from duralog.errors import DuralogError
from duralog.format.filenames import LOCK
from duralog.format.topic_partition import TopicPartition
from duralog.operations.lock_holder import lock_holder
from duralog.storage.compaction.cleanable import DirtyRange, dirty_range
from duralog.storage.disk.background import Clock
from duralog.storage.log.retention import COMPACT
from duralog.storage.read_only_directory import NOTHING_SEEN, DirectoryView
from duralog.storage.read_only_partitions import PartitionView
from duralog.storage.store import Store

_MOST_CLEANER_ROWS = 1_000
_INTERNAL = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySnapshot:
    overview: Overview
    rows: Mapping[str, tuple[PartitionRow, ...]]
    """By topic."""
    directory: DirectoryView
    cleaner: CleanerFacts

    @property
    def views(self) -> Mapping[TopicPartition, PartitionView]:
        return self.directory.partitions


@dataclass(slots=True)
class _Row:
    """The computed facts of a partition, and their inputs."""

    view: PartitionView
    start_offset: int
    checkpoint: int | None
    config: TopicConfig
    dirty: DirtyRange | None
    history: SizeHistory = field(default_factory=SizeHistory)
    growth: Growth = NO_GROWTH


class DirectorySnapshots:
    """`step` is for one thread at a time; `newest` is for all."""

    def __init__(self, path: str, config: BrokerConfig, clock: Clock) -> None:
        self.path = path
        self.store = Store(path, config=config, read_only=True, clock=clock)
        self._clock = clock
        self._rows: dict[TopicPartition, _Row] = {}
        self._history: History[Sample] = History()
        self._recent = RecentRates()
        self.newest = DirectorySnapshot(
            overview=nothing_yet(path, SourceKind.DIRECTORY, "The directory has not been read yet.", is_online=True),
            rows={},
            directory=NOTHING_SEEN,
            cleaner=CleanerFacts(rows=(), partitions=0, due=0),
        )

    def step(self) -> None:
        now_ms = self._clock()
        try:
            directory = self.store.refresh()
        except DuralogError as error:
            note = f"{printable(self.path)} cannot be read: {printable(describe(error))}"
            overview = replace(self.newest.overview, is_online=False, notes=(note,))
            self.newest = replace(self.newest, overview=overview)
            return
        taken_ms = self.newest.overview.taken_ms
        # A clock may be set back.
        seconds = max(now_ms - taken_ms, 0) / 1000 if taken_ms else None
        self._rows = {partition: self._row(view, directory, now_ms) for partition, view in directory.partitions.items()}
        self.newest = self._snapshot(directory, now_ms, seconds)

    def config(self, topic: str) -> TopicConfig:
        """In force for the topic; the defaults for one that is not known yet."""
        found = self.store.find_topic(topic)
        return self.store.config.topic_defaults() if found is None else found.config

    def shown_configs(self, topic: str) -> Mapping[str, str]:
        """Those that are not Kafka's defaults."""
        config = self.config(topic)
        return {
            name: config.text(name)
            for name in sorted(TOPIC_CONFIGS)
            if config.source(name).origin is not Origin.DEFAULT
        }

    def size_history(self, partition: TopicPartition) -> SizeHistory | None:
        row = self._rows.get(partition)
        return None if row is None else row.history

    def _row(self, view: PartitionView, directory: DirectoryView, now_ms: int) -> _Row:
        partition = view.partition
        before = self._rows.get(partition)
        start, checkpoint = directory.start_offset(view), directory.cleaned.get(partition)
        config = self.config(partition.topic)
        if before is None:
            row = _Row(view, start, checkpoint, config, None)
        else:
            row = before
            row.growth = growth(before.view, view)
        is_new = before is None or (row.view, row.start_offset, row.checkpoint) != (view, start, checkpoint)
        is_new = is_new or row.config is not config
        row.view, row.start_offset, row.checkpoint, row.config = view, start, checkpoint, config
        if COMPACT not in config.cleanup_policy:
            row.dirty = None
        elif is_new or row.dirty is None or config.min_compaction_lag_ms or row.dirty.overdue_ms:
            row.dirty = dirty_range_of(view, directory, config, view.end_offset, now_ms)
        row.history.add(now_ms, view.size_bytes, start, view.end_offset)
        return row

    def _snapshot(self, directory: DirectoryView, now_ms: int, seconds: float | None) -> DirectorySnapshot:
        by_topic: dict[str, list[_Row]] = {}
        for place, row in self._rows.items():
            by_topic.setdefault(place.topic, []).append(row)
        topics = self._recent.add([_topic_facts(name, rows, seconds) for name, rows in by_topic.items()])
        size_bytes = sum(topic.size_bytes or 0 for topic in topics)
        records_rate = bytes_rate = None
        if seconds:
            records_rate = sum(row.growth.records for row in self._rows.values()) / seconds
            bytes_rate = sum(row.growth.size_bytes for row in self._rows.values()) / seconds
        self._history.add(
            Sample(
                at_ms=now_ms,
                size_bytes=size_bytes,
                records_in_per_second=records_rate,
                bytes_in_per_second=bytes_rate,
            )
        )
        overview = Overview(
            taken_ms=now_ms,
            target=self.path,
            kind=SourceKind.DIRECTORY,
            cluster_id=self.store.cluster_id,
            node_id=self.store.node_id,
            held_by=lock_holder(f"{self.path}/{LOCK}"),
            topics=topics,
            groups=(),
            partitions=len(self._rows),
            size_bytes=size_bytes,
            records=sum(topic.records or 0 for topic in topics),
            bytes_in_per_second=bytes_rate,
            records_in_per_second=records_rate,
            history=self._history.all(),
            notes=self._notes(directory, now_ms),
        )
        return DirectorySnapshot(
            overview=overview,
            rows={name: tuple(_partition_row(row, seconds) for row in rows) for name, rows in by_topic.items()},
            directory=directory,
            cleaner=_cleaner_facts(self._rows),
        )

    def _notes(self, directory: DirectoryView, now_ms: int) -> tuple[str, ...]:
        notes = []
        if directory.topics_error is not None:
            notes.append(f"The topics' configs are not known: {printable(str(directory.topics_error))}")
        troubled = [row.view for row in self._rows.values() if row.view.error is not None]
        if troubled:
            more = f", and {len(troubled) - 1:,} more partitions are in trouble" if len(troubled) > 1 else ""
            notes.append(f"{printable(str(troubled[0].partition))}: {trouble_of(troubled[0])}{more}")
        held = held_note(((row.view, row.start_offset, row.config) for row in self._rows.values()), now_ms)
        return tuple(notes if held is None else [*notes, held])


def trouble_of(view: PartitionView) -> str | None:
    """Why the partition cannot be read, in words."""
    return None if view.error is None else printable(describe(view.error))


def dirty_range_of(
    view: PartitionView, directory: DirectoryView, config: TopicConfig, last_stable_offset: int, now_ms: int
) -> DirtyRange | None:
    """The dirty range of the log for a cleaner; None if it is not compacted or has no files."""
    if COMPACT not in config.cleanup_policy or not view.segments:
        return None
    try:
        return dirty_range(
            timed_segments(view),
            start_offset=directory.start_offset(view),
            end_offset=view.end_offset,
            last_stable_offset=last_stable_offset,
            checkpoint=directory.cleaned.get(view.partition),
            config=config,
            now_ms=now_ms,
        )
    except (OSError, DuralogError):
        return None  # A file has gone since it was listed: the next refresh shows it.


def _topic_facts(name: str, rows: list[_Row], seconds: float | None) -> TopicFacts:
    times = [row.view.latest_timestamp_ms for row in rows if row.view.latest_timestamp_ms is not None]
    trouble = next((row.view for row in rows if row.view.error is not None), None)
    return TopicFacts(
        name=name,
        partitions=len(rows),
        size_bytes=sum(row.view.size_bytes for row in rows),
        records=sum(row.view.end_offset - row.start_offset for row in rows),
        policy=rows[0].config.text("cleanup.policy"),
        is_internal=name.startswith(_INTERNAL),
        bytes_in_per_second=sum(row.growth.size_bytes for row in rows) / seconds if seconds else None,
        records_in_per_second=sum(row.growth.records for row in rows) / seconds if seconds else None,
        latest_timestamp_ms=max(times, default=None),
        trouble=None if trouble is None else f"partition {trouble.partition.partition}: {trouble_of(trouble)}",
    )


def _partition_row(row: _Row, seconds: float | None) -> PartitionRow:
    view = row.view
    is_known = bool(view.segments)
    return PartitionRow(
        topic=view.partition.topic,
        partition=view.partition.partition,
        size_bytes=view.size_bytes if is_known else None,
        segments=len(view.segments) if is_known else None,
        start_offset=row.start_offset if is_known else None,
        end_offset=view.end_offset if is_known else None,
        dirty_ratio=None if row.dirty is None else row.dirty.dirty_ratio,
        latest_timestamp_ms=view.latest_timestamp_ms,
        trouble=trouble_of(view),
        records_in_per_second=row.growth.records / seconds if seconds else None,
        bytes_in_per_second=row.growth.size_bytes / seconds if seconds else None,
    )


def _cleaner_facts(rows: Mapping[TopicPartition, _Row]) -> CleanerFacts:
    dirty = [(place, row.checkpoint, row.dirty) for place, row in rows.items() if row.dirty is not None]
    dirty.sort(key=lambda found: (-found[2].dirty_ratio, found[0]))
    return CleanerFacts(
        rows=tuple(
            CleanerRow(
                topic=place.topic,
                partition=place.partition,
                checkpoint=checkpoint,
                dirty_ratio=found.dirty_ratio,
                min_dirty_ratio=found.min_dirty_ratio,
                cleanable_bytes=found.cleanable_bytes,
                clean_bytes=found.clean_bytes,
                is_due=found.is_eligible,
                reason=found.why_not(duration_text) or f"{found.dirty_ratio:.1%} of the log is new",
            )
            for place, checkpoint, found in dirty[:_MOST_CLEANER_ROWS]
        ),
        partitions=len(dirty),
        due=sum(found.is_eligible for _, _, found in dirty),
    )
