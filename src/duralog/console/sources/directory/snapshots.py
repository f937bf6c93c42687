"""One look at a log directory after the other, each made into what the overview and the tables of topics show.

A snapshot is immutable and replaced whole, so that a page takes the newest one and waits for nobody. Only what has
changed is computed again: a thousand quiet partitions cost two `stat` calls each. A look never raises: a directory that
cannot be listed leaves the last snapshot as it was, offline, with a note that says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from duralog.cli.common.failures import describe, printable
from duralog.cli.common.times import duration_text
from duralog.config import BrokerConfig, TopicConfig
from duralog.console.facts.health import CleanerFacts, CleanerRow
from duralog.console.facts.overview import Overview, PartitionRow, Sample, SourceKind, TopicFacts, nothing_yet
from duralog.console.sources.directory.folder_watch import FolderWatch, PartitionLook
from duralog.console.sources.directory.segment_times import timed_segments
from duralog.console.sources.directory.topic_catalogue import TopicCatalogue
from duralog.console.sources.held_note import held_note
from duralog.console.sources.rates import NO_GROWTH, Growth, History, RecentRates, SizeHistory, growth
from duralog.errors import DuralogError
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT, LOCK, LOG_START_OFFSET_CHECKPOINT
from duralog.operations.lock_holder import lock_holder
from duralog.storage.compaction.cleanable import DirtyRange, dirty_range
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import Entry, LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory, TopicPartition
from duralog.storage.log.retention import COMPACT

_MOST_CLEANER_ROWS = 1_000
_INTERNAL = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySnapshot:
    overview: Overview
    rows: Mapping[str, tuple[PartitionRow, ...]]
    """By topic."""
    looks: Mapping[TopicPartition, PartitionLook]
    starts: Mapping[TopicPartition, int]
    """Where logs start, by the checkpoint; those that are not in it start with their first segment."""
    cleaned: Mapping[TopicPartition, int]
    """Up to where logs were compacted, by the cleaner's checkpoint."""
    cleaner: CleanerFacts

    def start_offset(self, look: PartitionLook) -> int:
        return min(max(self.starts.get(look.place, 0), look.first_offset), max(look.end_offset, look.first_offset))


@dataclass(slots=True)
class _Row:
    """What was computed of a partition, and from what."""

    look: PartitionLook
    start_offset: int
    checkpoint: int | None
    config: TopicConfig
    dirty: DirtyRange | None
    history: SizeHistory = field(default_factory=SizeHistory)
    growth: Growth = NO_GROWTH


class Checkpoint:
    """One of the directory's files of offsets, read again when it has changed."""

    def __init__(self, directory: LogDirectory, name: str) -> None:
        self._directory = directory
        self._name = name
        self._files = LocalFileSystem()
        self._entry: Entry | None = None
        self._offsets: Mapping[TopicPartition, int] = {}

    def offsets(self) -> Mapping[TopicPartition, int]:
        entry = self._files.entry(self._directory.path_of(self._name))
        if entry != self._entry:
            self._offsets = dict(self._directory.read_checkpoint(self._name))
            self._entry = entry
        return self._offsets


class DirectorySnapshots:
    """`step` is for one thread at a time; `newest` is for all."""

    def __init__(self, path: str, config: BrokerConfig, clock: Clock) -> None:
        self.path = path
        self.catalogue = TopicCatalogue(path, config)
        self._clock = clock
        self._watch = FolderWatch(path, lambda: clock() * 1_000_000)
        directory = LogDirectory(LocalFileSystem(), path)
        self._starts = Checkpoint(directory, LOG_START_OFFSET_CHECKPOINT)
        self._cleaned = Checkpoint(directory, CLEANER_OFFSET_CHECKPOINT)
        self._rows: dict[TopicPartition, _Row] = {}
        self._history: History[Sample] = History()
        self._recent = RecentRates()
        self.newest = DirectorySnapshot(
            overview=nothing_yet(
                path, SourceKind.DIRECTORY, "The directory has not been looked at yet.", is_online=True
            ),
            rows={},
            looks={},
            starts={},
            cleaned={},
            cleaner=CleanerFacts(rows=(), partitions=0, due=0),
        )

    def step(self) -> None:
        now_ms = self._clock()
        try:
            looks = self._watch.look()
            starts, cleaned = self._starts.offsets(), self._cleaned.offsets()
        except (OSError, DuralogError) as error:
            note = f"{printable(self.path)} cannot be read: {printable(describe(error))}"
            overview = replace(self.newest.overview, is_online=False, notes=(note,))
            self.newest = replace(self.newest, overview=overview)
            return
        self.catalogue.refresh(place for place, look in looks.items() if look.segments)
        looks = {place: look for place, look in looks.items() if look.segments or self._is_partition(place)}
        taken_ms = self.newest.overview.taken_ms
        # A clock may be set back.
        seconds = max(now_ms - taken_ms, 0) / 1000 if taken_ms else None
        self._rows = {place: self._row(look, starts, cleaned, now_ms) for place, look in looks.items()}
        self.newest = self._snapshot(looks, starts, cleaned, now_ms, seconds)

    def _is_partition(self, place: TopicPartition) -> bool:
        """Of a folder without a log: a partition in trouble, and not a folder that is only named like one."""
        topic = self.catalogue.find(place.topic)
        return self.catalogue.trouble is not None or (topic is not None and place.partition in topic.partitions)

    def look_at(self, place: TopicPartition) -> PartitionLook | None:
        """One partition as it is now; None if it is gone. REQUIRES: no `step` is under way."""
        return self._watch.look_at(place)

    def size_history(self, place: TopicPartition) -> SizeHistory | None:
        row = self._rows.get(place)
        return None if row is None else row.history

    def dirty_range(self, look: PartitionLook, last_stable_offset: int, now_ms: int) -> DirtyRange | None:
        """What a cleaner would say of the log; None for one that is not compacted or has no files."""
        config = self.catalogue.config(look.place.topic)
        if COMPACT not in config.cleanup_policy or not look.segments:
            return None
        start_offset = self.newest.start_offset(look)
        return _dirty_range(look, start_offset, last_stable_offset, self._cleaned.offsets(), config, now_ms)

    def _row(
        self,
        look: PartitionLook,
        starts: Mapping[TopicPartition, int],
        cleaned: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> _Row:
        place = look.place
        before = self._rows.get(place)
        start = min(max(starts.get(place, 0), look.first_offset), max(look.end_offset, look.first_offset))
        checkpoint, config = cleaned.get(place), self.catalogue.config(place.topic)
        if before is None:
            row = _Row(look, start, checkpoint, config, None)
        else:
            row = before
            row.growth = growth(before.look, look)
        is_new = before is None or (row.look, row.start_offset, row.checkpoint) != (look, start, checkpoint)
        is_new = is_new or row.config is not config
        row.look, row.start_offset, row.checkpoint, row.config = look, start, checkpoint, config
        if COMPACT not in config.cleanup_policy or not look.segments:
            row.dirty = None
        elif is_new or row.dirty is None or config.min_compaction_lag_ms or row.dirty.overdue_ms:
            row.dirty = _dirty_range(look, start, look.end_offset, cleaned, config, now_ms)
        row.history.add(now_ms, look.size_bytes, start, look.end_offset)
        return row

    def _snapshot(
        self,
        looks: Mapping[TopicPartition, PartitionLook],
        starts: Mapping[TopicPartition, int],
        cleaned: Mapping[TopicPartition, int],
        now_ms: int,
        seconds: float | None,
    ) -> DirectorySnapshot:
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
            cluster_id=self.catalogue.cluster_id,
            node_id=self.catalogue.node_id,
            held_by=lock_holder(f"{self.path}/{LOCK}"),
            topics=topics,
            groups=(),
            partitions=len(looks),
            size_bytes=size_bytes,
            records=sum(topic.records or 0 for topic in topics),
            bytes_in_per_second=bytes_rate,
            records_in_per_second=records_rate,
            history=self._history.all(),
            notes=self._notes(now_ms),
        )
        return DirectorySnapshot(
            overview=overview,
            rows={name: tuple(_partition_row(row, seconds) for row in rows) for name, rows in by_topic.items()},
            looks=looks,
            starts=starts,
            cleaned=dict(cleaned),
            cleaner=_cleaner_facts(self._rows),
        )

    def _notes(self, now_ms: int) -> tuple[str, ...]:
        notes = []
        if self.catalogue.trouble is not None:
            notes.append(f"The topics' configs are not known: {printable(self.catalogue.trouble)}")
        troubled = [row for row in self._rows.values() if row.look.trouble is not None]
        if troubled:
            first = troubled[0].look
            more = f", and {len(troubled) - 1:,} more partitions are in trouble" if len(troubled) > 1 else ""
            notes.append(f"{printable(str(first.place))}: {printable(str(first.trouble))}{more}")
        held = held_note(((row.look, row.start_offset, row.config) for row in self._rows.values()), now_ms)
        return tuple(notes if held is None else [*notes, held])


def _dirty_range(
    look: PartitionLook,
    start_offset: int,
    last_stable_offset: int,
    cleaned: Mapping[TopicPartition, int],
    config: TopicConfig,
    now_ms: int,
) -> DirtyRange | None:
    try:
        return dirty_range(
            timed_segments(look),
            start_offset=start_offset,
            end_offset=look.end_offset,
            last_stable_offset=last_stable_offset,
            checkpoint=cleaned.get(look.place),
            config=config,
            now_ms=now_ms,
        )
    except (OSError, DuralogError):
        return None  # A file has gone since it was listed: the next look tells.


def _topic_facts(name: str, rows: list[_Row], seconds: float | None) -> TopicFacts:
    times = [row.look.latest_timestamp_ms for row in rows if row.look.latest_timestamp_ms is not None]
    trouble = next((row.look for row in rows if row.look.trouble is not None), None)
    return TopicFacts(
        name=name,
        partitions=len(rows),
        size_bytes=sum(row.look.size_bytes for row in rows),
        records=sum(row.look.end_offset - row.start_offset for row in rows),
        policy=rows[0].config.text("cleanup.policy"),
        is_internal=name.startswith(_INTERNAL),
        bytes_in_per_second=sum(row.growth.size_bytes for row in rows) / seconds if seconds else None,
        records_in_per_second=sum(row.growth.records for row in rows) / seconds if seconds else None,
        latest_timestamp_ms=max(times, default=None),
        trouble=None if trouble is None else f"partition {trouble.place.partition}: {printable(str(trouble.trouble))}",
    )


def _partition_row(row: _Row, seconds: float | None) -> PartitionRow:
    look = row.look
    is_known = bool(look.segments)
    return PartitionRow(
        topic=look.place.topic,
        partition=look.place.partition,
        size_bytes=look.size_bytes if is_known else None,
        segments=len(look.segments) if is_known else None,
        start_offset=row.start_offset if is_known else None,
        end_offset=look.end_offset if is_known else None,
        dirty_ratio=None if row.dirty is None else row.dirty.dirty_ratio,
        latest_timestamp_ms=look.latest_timestamp_ms,
        trouble=None if look.trouble is None else printable(look.trouble),
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
