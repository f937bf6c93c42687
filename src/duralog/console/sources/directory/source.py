"""A log directory as a source. It may be in use: nothing is locked or changed, and no file stays open.

The overview and the tables come from the newest snapshot, which a background thread makes every few seconds; everything
else is read when it is asked for. Only a compaction changes something, and only if the console was started to allow it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from duralog.client.groups import GroupView
from duralog.config import BrokerConfig
from duralog.config.error_text import describe, printable
from duralog.config.times import duration_text
from duralog.console.facts.health import CleanerFacts, QuarantineEntry
from duralog.console.facts.overview import GroupDetails, Overview, PartitionRow
from duralog.console.facts.partitions import CleanerState, PartitionFacts, SegmentScan
from duralog.console.facts.records import RecordPage, ShownRecord
from duralog.console.facts.runs import Rehearsal
from duralog.console.source import DEFAULT_PAGE_RECORDS, UnknownGroup, always_wanted
from duralog.console.sources.cleaner_metrics import CleanerMetrics
from duralog.console.sources.directory.compaction_runs import DirectoryCompaction, compaction_command
from duralog.console.sources.directory.fresh_logs import FreshLogs
from duralog.console.sources.directory.group_tracking import GroupTracking
from duralog.console.sources.directory.key_search import DirectoryKeySearch
from duralog.console.sources.directory.partition_details import segment_facts
from duralog.console.sources.directory.quarantine_list import quarantine_entries
from duralog.console.sources.directory.record_pages import PageReader
from duralog.console.sources.directory.runs import DirectoryRuns
from duralog.console.sources.directory.segment_scans import SegmentScans
from duralog.console.sources.directory.snapshots import (
    DirectorySnapshot,
    DirectorySnapshots,
    dirty_range_of,
    trouble_of,
)
from duralog.console.sources.directory.topic_reading import DirectoryTopicReader
from duralog.console.sources.directory.verify_runs import DirectoryVerification
from duralog.console.sources.group_lags import LagHistories, group_facts
from duralog.console.sources.payloads import AUTOMATIC, SourcePayloads
from duralog.console.sources.refreshing import Refresher
from duralog.console.sources.topic_search import TopicSearches
from duralog.errors import DuralogError, StorageError, UnknownTopic
from duralog.format.filenames import LOG_START_OFFSET_CHECKPOINT, segment_stem
from duralog.format.topic_partition import TopicPartition
from duralog.schemas.decode_options import Decode
from duralog.storage.disk.background import Clock, wall_clock_ms
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.read_only_directory import DirectoryView
from duralog.storage.read_only_partitions import PartitionView

_PAGE_ATTEMPTS = 3
_Answer = TypeVar("_Answer")


class DirectorySource:
    """Made by `duralog.console.sources.opening.open_source`."""

    has_files = True

    def __init__(
        self,
        path: str,
        *,
        config: BrokerConfig | None = None,
        allow_changes: bool = False,
        metrics: CleanerMetrics | None = None,
        decode: Decode = AUTOMATIC,
        refresh_seconds: float = 2.0,
        clock: Clock = wall_clock_ms,
    ) -> None:
        """Reads the directory once, so that there is a first snapshot."""
        self.path = path
        self._clock = clock
        self._snapshots = DirectorySnapshots(path, config or BrokerConfig(), clock)
        self._logs = FreshLogs(self._snapshots.store)
        self._tracking = GroupTracking(self._logs)
        self._lags = LagHistories()
        self._groups: dict[str, GroupView] = {}
        self._metrics = metrics
        self._scans = SegmentScans()
        self._runs = DirectoryRuns(path, self._logs, clock, allow_changes=allow_changes)
        reader = DirectoryTopicReader(self._ask, self._logs.stability)
        self.payloads = SourcePayloads(decode, reader, self.topic, clock)
        self.topic_searches = TopicSearches(reader, self.payloads)
        self._stepping = threading.Lock()
        self._refresher = Refresher(self.step, refresh_seconds)
        self._overview = self._snapshots.newest.overview
        self._seen_log_starts: object = None
        """Of the last refresh."""
        self.step()

    def start(self) -> None:
        """Refresh every few seconds, in the background."""
        self._refresher.start()

    def step(self) -> None:
        if self._metrics is not None:
            # Not under the lock: reading files must not wait for a broker that is away.
            self._metrics.step()
        with self._stepping:
            log_starts = self._log_starts()
            self._snapshots.step()
            self._seen_log_starts = log_starts
            snapshot = self._snapshots.newest
            overview = snapshot.overview
            if overview.is_online:
                self._tracking.read_on(snapshot.views)
                views = self._tracking.records.views(_ends(snapshot))
                self._lags.add(overview.taken_ms, views)
                self._groups = {view.group: view for view in views}
            notes = [*overview.notes, self._tracking.note, None if self._metrics is None else self._metrics.note]
            self._overview = replace(
                overview,
                groups=tuple(group_facts(view, self._rows_of) for view in self._groups.values()),
                notes=tuple(note for note in notes if note is not None),
            )

    # Quick

    def overview(self) -> Overview:
        return self._overview

    def topic(self, topic: str) -> tuple[PartitionRow, ...]:
        rows = self._snapshots.newest.rows.get(topic)
        if rows is None:
            raise UnknownTopic(f"there is no topic {printable(topic)} in this directory")
        return rows

    def group(self, name: str) -> GroupDetails:
        view = self._groups.get(name)
        if view is None:
            raise UnknownGroup(f"there is no group {printable(name)} in this directory")
        return self._lags.details(view, self._rows_of)

    def cleaner(self) -> CleanerFacts:
        facts = self._snapshots.newest.cleaner
        return facts if self._metrics is None else replace(facts, metrics=self._metrics.figures)

    # Reads

    def partition(self, topic: str, partition: int) -> PartitionFacts:
        place = self._known(topic, partition)
        directory, view = self._refreshed(place)
        trouble = trouble_of(view)
        try:
            stability = self._logs.ask(place, self._logs.stability)
        except UnknownTopic:
            raise
        except DuralogError as error:
            if not view.segments:
                raise
            stability, trouble = None, trouble or describe(error)
        end_offset = view.end_offset
        stable = end_offset if stability is None else min(stability.last_stable_offset, end_offset)
        config = self._snapshots.config(topic)
        dirty = dirty_range_of(view, directory, config, stable, self._clock())
        segments = self._read(lambda: segment_facts(view, None if dirty is None else dirty.first_dirty_offset))
        history = self._snapshots.size_history(place)
        limit = None if dirty is None else dirty.first_uncleanable
        why_not = None if dirty is None else dirty.why_not(duration_text)
        times = [segment.first_timestamp_ms for segment in segments if segment.first_timestamp_ms is not None]
        return PartitionFacts(
            topic=topic,
            partition=partition,
            start_offset=directory.start_offset(view),
            end_offset=end_offset,
            high_watermark=end_offset,
            last_stable_offset=stable,
            policy=config.text("cleanup.policy"),
            size_bytes=view.size_bytes,
            segments=segments,
            first_timestamp_ms=times[0] if times else None,
            latest_timestamp_ms=view.latest_timestamp_ms,
            configs=self._snapshots.shown_configs(topic),
            history=() if history is None else history.all(),
            checkpoint=directory.cleaned.get(place),
            first_dirty_offset=None if dirty is None else dirty.first_dirty_offset,
            first_uncleanable_offset=None if limit is None else limit.offset,
            why_uncleanable=None if limit is None else limit.reason(duration_text),
            cleanable_from_ms=None if limit is None else limit.cleanable_from_ms,
            dirty_ratio=None if dirty is None else dirty.dirty_ratio,
            min_dirty_ratio=None if dirty is None else dirty.min_dirty_ratio,
            why_not_compacted=why_not,
            cleaner=self._cleaner_state(),
            open_transactions=() if stability is None else stability.open_transactions,
            folder=view.folder,
            trouble=None if trouble is None else printable(trouble),
            notes=() if dirty is None or dirty.correction is None else (dirty.correction,),
        )

    def _cleaner_state(self) -> CleanerState:
        return CleanerState.ABSENT if self.overview().held_by is None else CleanerState.UNKNOWN

    def scan_segment(
        self, topic: str, partition: int, base_offset: int, *, is_wanted: Callable[[], bool] = always_wanted
    ) -> SegmentScan:
        return self._scans.scan(self._segment_path(topic, partition, base_offset), base_offset, is_wanted)

    def known_scan(self, topic: str, partition: int, base_offset: int) -> SegmentScan | None:
        return self._scans.known(self._segment_path(topic, partition, base_offset))

    def records(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        time_ms: int | None = None,
        limit: int = DEFAULT_PAGE_RECORDS,
        backwards: bool = False,
        committed_only: bool = False,
    ) -> RecordPage:
        return self._page(
            topic,
            partition,
            lambda reader: reader.page(offset=offset, time_ms=time_ms, limit=limit, backwards=backwards),
            committed_only=committed_only,
        )

    def record(self, topic: str, partition: int, offset: int) -> ShownRecord | None:
        def one(log: PartitionLog) -> ShownRecord | None:
            return PageReader(log, lambda: self._logs.stability(log), committed_only=False).one(offset)

        return self._ask(topic, partition, one)

    def tail(self, topic: str, partition: int, from_offset: int, limit: int = 200) -> RecordPage:
        return self._page(topic, partition, lambda reader: reader.tail(from_offset, limit))

    def rehearsal(self, topic: str, partition: int, *, is_wanted: Callable[[], bool] = always_wanted) -> Rehearsal:
        config, place = self._snapshots.store.given_config, self._known(topic, partition)
        return self._read(lambda: self._runs.rehearse(place, config, is_wanted))

    def quarantine(self) -> tuple[QuarantineEntry, ...]:
        return self._read(lambda: quarantine_entries(self.path, self._snapshots.newest.views.values()))

    # Runs

    def find_key(
        self, topic: str, partition: int, key: bytes, *, from_offset: int | None = None, limit: int = 100
    ) -> DirectoryKeySearch:
        return self._runs.find_key(self._known(topic, partition), key, from_offset=from_offset, limit=limit)

    def compaction_command(self, topic: str, partition: int) -> str:
        return compaction_command(self.path, TopicPartition(topic, partition))

    def why_no_compaction(self, topic: str, partition: int) -> str | None:
        try:
            self._runs.check_compaction(self._known(topic, partition), self._snapshots.config(topic))
        except DuralogError as error:
            return str(error)
        return None

    def compact(self, topic: str, partition: int) -> DirectoryCompaction:
        return self._runs.compact(self._known(topic, partition), self._snapshots.config(topic))

    def compaction(self) -> DirectoryCompaction | None:
        return self._runs.compaction

    def start_verify(self, topic: str | None = None, partition: int | None = None) -> DirectoryVerification:
        return self._runs.verify(topic, partition)

    def verification(self) -> DirectoryVerification | None:
        return self._runs.verification

    def close(self) -> None:
        self._scans.stop()
        self._refresher.stop()
        self.topic_searches.close()
        self._runs.close()
        self._snapshots.store.close()

    # What they share

    def _rows_of(self, topic: str) -> tuple[PartitionRow, ...]:
        return self._snapshots.newest.rows.get(topic, ())

    def _known(self, topic: str, partition: int) -> TopicPartition:
        """By the newest snapshot. Raises `UnknownTopic`, or `StorageError` if the whole directory is missing."""
        place = TopicPartition(topic, partition)
        if not os.path.isdir(self.path):
            raise StorageError(f"{printable(self.path)} is not there any more: it was moved, unmounted or deleted")
        if place not in self._snapshots.newest.views:
            self.topic(topic)
            raise UnknownTopic(f"there is no partition {partition} of {printable(topic)} in this directory")
        return place

    def _refreshed(self, place: TopicPartition) -> tuple[DirectoryView, PartitionView]:
        """The partition as it is now."""
        directory = self._snapshots.store.refresh()
        view = directory.partitions.get(place)
        if view is None:
            raise UnknownTopic(f"{printable(str(place))} is gone: its topic was deleted")
        if not view.segments:
            raise StorageError(trouble_of(view) or f"{printable(str(place))} cannot be read")
        return directory, view

    def _ask(self, topic: str, partition: int, question: Callable[[PartitionLog], _Answer]) -> _Answer:
        """Load the current log. Everything is in its folder, except its start, which is in a file of the directory. So
        the whole directory is refreshed only if that file has changed, or the last refresh could not read the log.
        """
        place, log_starts = self._known(topic, partition), self._log_starts()
        if log_starts != self._seen_log_starts or not self._snapshots.newest.views[place].segments:
            self._refreshed(place)
            self._seen_log_starts = log_starts
        return self._read(lambda: self._logs.ask(place, question))

    def _log_starts(self) -> object:
        """Differs when the checkpoint of log start offsets may have changed. Never raises."""
        try:
            status = os.stat(os.path.join(self.path, LOG_START_OFFSET_CHECKPOINT))
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _page(
        self,
        topic: str,
        partition: int,
        read: Callable[[PageReader], RecordPage],
        *,
        committed_only: bool = False,
    ) -> RecordPage:
        def read_page(log: PartitionLog) -> tuple[RecordPage, bool]:
            reader = PageReader(log, lambda: self._logs.stability(log), committed_only=committed_only)
            page = read(reader)
            return page, bool(reader.damage)

        for _ in range(_PAGE_ATTEMPTS):
            page, is_damaged = self._ask(topic, partition, read_page)
            if not is_damaged:
                break
            # A segment that a compaction replaces while it is read looks damaged. A retry succeeds.
        return page

    def _read(self, read: Callable[[], _Answer]) -> _Answer:
        try:
            return read()
        except OSError as error:
            raise StorageError(describe(error)) from error

    def _segment_path(self, topic: str, partition: int, base_offset: int) -> str:
        view = self._snapshots.newest.views[self._known(topic, partition)]
        if all(segment.base_offset != base_offset for segment in view.segments):
            raise UnknownTopic(f"there is no segment at offset {base_offset} of {printable(str(view.partition))}")
        return os.path.join(view.folder, f"{segment_stem(base_offset)}.log")


def _ends(snapshot: DirectorySnapshot) -> Callable[[str, int], int | None]:
    def end_offset(topic: str, partition: int) -> int | None:
        view = snapshot.views.get(TopicPartition(topic, partition))
        return None if view is None or not view.segments else view.end_offset

    return end_offset
