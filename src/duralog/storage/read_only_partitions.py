"""The partitions of a local log directory, followed while another process may write, roll, compact and delete.

A refresh costs two `stat` calls for a partition in which nothing happened: of its folder, whose modification time
changes when a file is created, removed or renamed, and of its active log, which grows. Only if one of them differs, the
folder is listed, and the new batches of the active log are walked, header by header. Every partition is still listed
again from time to time: a file that was damaged or cut in place does not change the time of its folder.

What must always be true: nothing is held open between refreshes, and no file that vanishes or is damaged ends a
refresh. A partition that cannot be read has an `error`, with what was last known of it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from duralog.errors import CorruptRecord, StorageError
from duralog.format.filenames import (
    FileKind,
    FileState,
    FolderState,
    PartitionFolder,
    parse_partition_folder,
    parse_segment_file,
    segment_stem,
)
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.topic_partition import TopicPartition
from duralog.storage.log.read_only_tail import (
    LogTail,
    empty_tail,
    largest_indexed_timestamp_ms,
    tail_by_indexes,
    walk_tail,
)
from duralog.storage.recovery.quarantine import QUARANTINE_FOLDER

_RELISTED_AFTER_REFRESHES = 60
_RACY_NS = 2_000_000_000
"""A folder that changed this shortly before it was listed may change again within the same tick of its clock."""
_WALKED_GROWTH_BYTES = 1 << 18
"""A log that has grown by more is not walked: its index leads near the end."""


class SegmentView(NamedTuple):
    """The log file of a segment at one refresh."""

    base_offset: int
    size_bytes: int
    modified_ns: int
    inode: int
    """Distinguishes a file from another one that has taken its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """A partition at one refresh. The same object as at the refresh before if no change was seen."""

    partition: TopicPartition
    folder: str
    segments: tuple[SegmentView, ...]
    """Oldest first; the last one is active."""
    first_offset: int
    """The base offset of the first segment. The log may start later, by the checkpoint of log start offsets."""
    end_offset: int
    latest_timestamp_ms: int | None
    size_bytes: int
    has_quarantine: bool
    error: Exception | None = field(compare=False)
    """Why the partition cannot be read, as a whole or to its end."""

    @property
    def active(self) -> SegmentView:
        return self.segments[-1]


class _Known(NamedTuple):
    """The state that the next refresh compares with."""

    folder_stat: tuple[int, int]
    tail: LogTail
    is_racy: bool
    """It is listed again at the next refresh, whatever its time says."""
    view: PartitionView
    had_no_log: bool = False
    """At the last refresh, the folder had no log file. `view` is that of the refresh before."""


class ReadOnlyPartitions:
    """For one thread at a time."""

    def __init__(self, directory: str, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._directory = directory
        self._clock_ns = clock_ns
        self._names: dict[str, PartitionFolder | None] = {}
        self._known: dict[TopicPartition, _Known] = {}
        self._refreshes = 0

    def refresh(self) -> Mapping[TopicPartition, PartitionView]:
        """All partitions, sorted. Raises `OSError` if the directory itself cannot be listed."""
        self._refreshes += 1
        known: dict[TopicPartition, _Known] = {}
        for partition in self._partitions():
            found = self._refresh(partition)
            if found is not None:
                known[partition] = found
        self._known = known
        return {partition: found.view for partition, found in known.items()}

    def _partitions(self) -> list[TopicPartition]:
        names: dict[str, PartitionFolder | None] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                name = entry.name
                if name in self._names:
                    names[name] = self._names[name]
                elif _is_folder(entry):
                    names[name] = parse_partition_folder(name)
        self._names = names
        return sorted(
            TopicPartition(folder.topic, folder.partition)
            for folder in names.values()
            if folder is not None and folder.state is FolderState.LIVE and folder.topic != CLUSTER_METADATA
        )

    def _refresh(self, partition: TopicPartition) -> _Known | None:
        folder = f"{self._directory}/{PartitionFolder(partition.topic, partition.partition).name}"
        known = self._known.get(partition)
        try:
            status = os.stat(folder)
            if not stat.S_ISDIR(status.st_mode):
                return None
            folder_stat = status.st_mtime_ns, status.st_ino
            if known is None or self._must_be_listed(partition, known, folder_stat):
                return self._list(partition, folder, folder_stat, known)
            return self._follow(folder, known)
        except FileNotFoundError:
            # Of the folder: it was deleted. Of a file in it: a roll, a compaction or retention is under way.
            return known if os.path.isdir(folder) else None
        except (OSError, CorruptRecord) as error:
            return self._unreadable(partition, folder, known, error)

    def _must_be_listed(self, partition: TopicPartition, known: _Known, folder_stat: tuple[int, int]) -> bool:
        if folder_stat != known.folder_stat or known.is_racy or known.view.error is not None:
            return True
        # Not all in the same refresh.
        return (self._refreshes + hash(partition)) % _RELISTED_AFTER_REFRESHES == 0

    def _list(
        self, partition: TopicPartition, folder: str, folder_stat: tuple[int, int], known: _Known | None
    ) -> _Known | None:
        segments: list[SegmentView] = []
        has_quarantine = False
        with os.scandir(folder) as entries:
            for entry in entries:
                file = parse_segment_file(entry.name)
                if file is not None and file.kind is FileKind.LOG and file.state is FileState.LIVE:
                    status = entry.stat()
                    segments.append(SegmentView(file.offset, status.st_size, status.st_mtime_ns, status.st_ino))
                elif entry.name == QUARANTINE_FOLDER:
                    has_quarantine = True
        if not segments:
            had_log = known is not None and known.view.segments
            if known is not None and had_log and not known.had_no_log:
                # Between deleting and creating; the next refresh decides.
                return known._replace(is_racy=True, had_no_log=True)
            error = StorageError(f"{folder}: there is no log file in it")
            return self._unreadable(partition, folder, None if had_log else known, error)
        segments.sort()
        listed = tuple(segments)
        # A file of a folder that was made again may have the inode of an older one.
        is_same_folder = known is not None and known.folder_stat == folder_stat
        tail = self._tail(folder, listed, known if is_same_folder else None)
        latest = tail.largest_timestamp_ms
        if latest == NO_TIMESTAMP and len(listed) > 1:
            latest = largest_indexed_timestamp_ms(f"{folder}/{segment_stem(listed[-2].base_offset)}.timeindex")
        view = PartitionView(
            partition=partition,
            folder=folder,
            segments=listed,
            first_offset=listed[0].base_offset,
            end_offset=tail.next_offset,
            latest_timestamp_ms=None if latest == NO_TIMESTAMP else latest,
            size_bytes=sum(segment.size_bytes for segment in listed),
            has_quarantine=has_quarantine,
            error=_error(tail),
        )
        if known is not None and known.view == view and str(known.view.error) == str(view.error):
            view = known.view
        is_racy = self._clock_ns() - folder_stat[0] < _RACY_NS
        return _Known(folder_stat, tail, is_racy, view)

    def _tail(self, folder: str, segments: tuple[SegmentView, ...], known: _Known | None) -> LogTail:
        active = segments[-1]
        stem = f"{folder}/{segment_stem(active.base_offset)}"
        begin = empty_tail(active.base_offset)
        if known is not None and known.view.segments and _is_same_file(known.view.active, active):
            begin = known.tail
        if begin.position > active.size_bytes:
            begin = empty_tail(active.base_offset)  # It was cut: the end of the log is gone.
        if active.size_bytes - begin.position > _WALKED_GROWTH_BYTES:
            led = tail_by_indexes(stem, active.base_offset)
            if led.position > begin.position:
                largest_ms = max(led.largest_timestamp_ms, begin.largest_timestamp_ms)
                begin = led._replace(largest_timestamp_ms=largest_ms)
        return walk_tail(f"{stem}.log", begin) if active.size_bytes else begin._replace(is_complete=True, fault=None)

    def _follow(self, folder: str, known: _Known) -> _Known:
        """The folder has the same files as before: only the active log may have grown."""
        view = known.view
        active = view.active
        path = f"{folder}/{segment_stem(active.base_offset)}.log"
        status = os.stat(path)
        grown = SegmentView(active.base_offset, status.st_size, status.st_mtime_ns, status.st_ino)
        if grown == active and known.tail.is_complete:
            return known
        segments = (*view.segments[:-1], grown)
        tail = self._tail(folder, segments, known)
        latest = max(tail.largest_timestamp_ms, view.latest_timestamp_ms or NO_TIMESTAMP)
        changed = replace(
            view,
            segments=segments,
            end_offset=tail.next_offset,
            latest_timestamp_ms=None if latest == NO_TIMESTAMP else latest,
            size_bytes=view.size_bytes - active.size_bytes + grown.size_bytes,
            error=_error(tail),
        )
        return known._replace(tail=tail, view=changed)

    def _unreadable(self, partition: TopicPartition, folder: str, known: _Known | None, error: Exception) -> _Known:
        """As it was last known, if it was. It is listed again at every refresh."""
        if known is not None:
            if str(known.view.error) == str(error):
                return known
            return known._replace(view=replace(known.view, error=error))
        view = PartitionView(
            partition=partition,
            folder=folder,
            segments=(),
            first_offset=0,
            end_offset=0,
            latest_timestamp_ms=None,
            size_bytes=0,
            has_quarantine=False,
            error=error,
        )
        return _Known((0, 0), empty_tail(0), is_racy=True, view=view)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _is_same_file(before: SegmentView, now: SegmentView) -> bool:
    return (before.base_offset, before.inode) == (now.base_offset, now.inode)


def _error(tail: LogTail) -> Exception | None:
    if tail.fault is not None or tail.is_complete:
        return tail.fault
    return StorageError("the end of the log is not known yet: without an index, it is searched in several refreshes")
