"""The partitions of a log directory, looked at again and again while somebody else may write, roll, compact and delete.

One look costs two `stat` calls for a partition in which nothing happened: of its folder, whose time changes when a file
comes, goes or is renamed, and of its newest log, which grows. Only where one of them differs, the folder is listed and
the new batches of the newest log are walked over, header by header. Every partition is listed anew now and then all the
same: a file that was damaged or cut in place tells nobody.

What must always be true: nothing is held open between looks, and nothing that vanishes or is damaged ends a look. A
partition in trouble is told as such, with what was last known of it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from duralog.cli.common.failures import describe
from duralog.console.sources.directory.segment_look import (
    LogTail,
    empty_tail,
    largest_indexed_timestamp_ms,
    tail_by_indexes,
    walk_tail,
)
from duralog.errors import CorruptRecord
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
from duralog.storage.disk.log_directory import TopicPartition
from duralog.storage.recovery.quarantine import QUARANTINE_FOLDER

_RELISTED_AFTER_LOOKS = 60
_RACY_NS = 2_000_000_000
"""A folder that changed so shortly before it was listed may change once more within the same tick of its clock."""
_WALKED_GROWTH_BYTES = 1 << 18
"""A log that has grown by more is not walked over: its index leads near the end."""


class SegmentLook(NamedTuple):
    base_offset: int
    size_bytes: int
    modified_ns: int
    inode: int
    """Tells a file from another one that has taken its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLook:
    """A partition as it was at one look. The same object as before if nothing was seen to change."""

    place: TopicPartition
    folder: str
    segments: tuple[SegmentLook, ...]
    """Oldest first; the last one is active."""
    first_offset: int
    """Where the first segment begins: a checkpoint may say that the log starts later."""
    end_offset: int
    latest_timestamp_ms: int | None
    size_bytes: int
    has_quarantine: bool
    trouble: str | None

    @property
    def active(self) -> SegmentLook:
        return self.segments[-1]


class _Known(NamedTuple):
    """What the next look is held against."""

    folder_stat: tuple[int, int]
    tail: LogTail
    listed_at: int
    is_racy: bool
    look: PartitionLook


class FolderWatch:
    """Not for use by several threads at a time."""

    def __init__(self, directory: str, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._directory = directory
        self._clock_ns = clock_ns
        self._names: dict[str, PartitionFolder | None] = {}
        self._known: dict[TopicPartition, _Known] = {}
        self._looks = 0
        self.opened = 0
        """How many partitions were listed or walked in the last look: what it cost."""

    def look(self) -> dict[TopicPartition, PartitionLook]:
        """All partitions, by topic and number. Raises `OSError` if the directory itself cannot be listed."""
        self._looks += 1
        self.opened = 0
        known: dict[TopicPartition, _Known] = {}
        for place in self._places():
            found = self._look_at(place)
            if found is not None:
                known[place] = found
        self._known = known
        return {place: found.look for place, found in known.items()}

    def look_at(self, place: TopicPartition) -> PartitionLook | None:
        """One partition, now; None if it is not there."""
        found = self._look_at(place)
        if found is None:
            self._known.pop(place, None)
            return None
        self._known[place] = found
        return found.look

    def _places(self) -> list[TopicPartition]:
        names: dict[str, PartitionFolder | None] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                name = entry.name
                if name in self._names:
                    names[name] = self._names[name]
                elif entry.is_dir():
                    names[name] = parse_partition_folder(name)
        self._names = names
        return sorted(
            TopicPartition(folder.topic, folder.partition)
            for folder in names.values()
            if folder is not None and folder.state is FolderState.LIVE and folder.topic != CLUSTER_METADATA
        )

    def _look_at(self, place: TopicPartition) -> _Known | None:
        folder = f"{self._directory}/{PartitionFolder(place.topic, place.partition).name}"
        known = self._known.get(place)
        try:
            status = os.stat(folder)
            if not stat.S_ISDIR(status.st_mode):
                return None
            folder_stat = status.st_mtime_ns, status.st_ino
            if known is None or self._is_to_be_listed(place, known, folder_stat):
                return self._list(place, folder, folder_stat, known)
            return self._follow(folder, known)
        except FileNotFoundError:
            # Of the folder: it was deleted. Of a file in it: a roll, a compaction or retention is at work right now.
            return known if os.path.isdir(folder) else None
        except (OSError, CorruptRecord) as error:
            return self._in_trouble(place, folder, known, describe(error))

    def _is_to_be_listed(self, place: TopicPartition, known: _Known, folder_stat: tuple[int, int]) -> bool:
        if folder_stat != known.folder_stat or known.is_racy or known.look.trouble is not None:
            return True
        # Not all in the same look.
        return (self._looks + hash(place)) % _RELISTED_AFTER_LOOKS == 0 and known.listed_at != self._looks

    def _list(
        self, place: TopicPartition, folder: str, folder_stat: tuple[int, int], known: _Known | None
    ) -> _Known | None:
        self.opened += 1
        segments: list[SegmentLook] = []
        has_quarantine = False
        with os.scandir(folder) as entries:
            for entry in entries:
                file = parse_segment_file(entry.name)
                if file is not None and file.kind is FileKind.LOG and file.state is FileState.LIVE:
                    status = entry.stat()
                    segments.append(SegmentLook(file.offset, status.st_size, status.st_mtime_ns, status.st_ino))
                elif entry.name == QUARANTINE_FOLDER:
                    has_quarantine = True
        if not segments:
            if known is not None and known.look.segments and known.listed_at == self._looks - 1:
                return known._replace(is_racy=True)  # Between deleting and creating; a second look decides.
            return self._in_trouble(place, folder, None, f"{folder}: there is no log file in it")
        segments.sort()
        listed = tuple(segments)
        tail = self._tail(folder, listed, known)
        latest = tail.largest_timestamp_ms
        if latest == NO_TIMESTAMP and len(listed) > 1:
            latest = largest_indexed_timestamp_ms(f"{folder}/{segment_stem(listed[-2].base_offset)}.timeindex")
        look = PartitionLook(
            place=place,
            folder=folder,
            segments=listed,
            first_offset=listed[0].base_offset,
            end_offset=tail.next_offset,
            latest_timestamp_ms=None if latest == NO_TIMESTAMP else latest,
            size_bytes=sum(segment.size_bytes for segment in listed),
            has_quarantine=has_quarantine,
            trouble=_trouble(tail),
        )
        if known is not None and known.look == look:
            look = known.look
        is_racy = self._clock_ns() - folder_stat[0] < _RACY_NS
        return _Known(folder_stat, tail, self._looks, is_racy, look)

    def _tail(self, folder: str, segments: tuple[SegmentLook, ...], known: _Known | None) -> LogTail:
        active = segments[-1]
        stem = f"{folder}/{segment_stem(active.base_offset)}"
        begin = empty_tail(active.base_offset)
        if known is not None and known.look.segments and known.look.active.inode == active.inode:
            begin = known.tail
        if begin.position > active.size_bytes:
            begin = empty_tail(active.base_offset)  # It was cut: the end of the log is gone.
        if active.size_bytes - begin.position > _WALKED_GROWTH_BYTES:
            led = tail_by_indexes(stem, active.base_offset)
            if led.position > begin.position:
                largest_ms = max(led.largest_timestamp_ms, begin.largest_timestamp_ms)
                begin = led._replace(largest_timestamp_ms=largest_ms)
        return walk_tail(f"{stem}.log", begin) if active.size_bytes else begin._replace(is_complete=True)

    def _follow(self, folder: str, known: _Known) -> _Known:
        """The folder has the same files as before: only the active log may have grown."""
        look = known.look
        active = look.active
        path = f"{folder}/{segment_stem(active.base_offset)}.log"
        status = os.stat(path)
        grown = SegmentLook(active.base_offset, status.st_size, status.st_mtime_ns, status.st_ino)
        if grown == active and known.tail.is_complete:
            return known
        self.opened += 1
        segments = (*look.segments[:-1], grown)
        tail = self._tail(folder, segments, known)
        latest = max(tail.largest_timestamp_ms, look.latest_timestamp_ms or NO_TIMESTAMP)
        changed = replace(
            look,
            segments=segments,
            end_offset=tail.next_offset,
            latest_timestamp_ms=None if latest == NO_TIMESTAMP else latest,
            size_bytes=look.size_bytes - active.size_bytes + grown.size_bytes,
            trouble=_trouble(tail),
        )
        return known._replace(tail=tail, look=changed)

    def _in_trouble(self, place: TopicPartition, folder: str, known: _Known | None, sentence: str) -> _Known:
        """As it was last known, if it was. It is listed again with every look."""
        if known is not None:
            return known._replace(look=replace(known.look, trouble=sentence))
        look = PartitionLook(
            place=place,
            folder=folder,
            segments=(),
            first_offset=0,
            end_offset=0,
            latest_timestamp_ms=None,
            size_bytes=0,
            has_quarantine=False,
            trouble=sentence,
        )
        return _Known((0, 0), empty_tail(0), self._looks, is_racy=True, look=look)


def _trouble(tail: LogTail) -> str | None:
    if tail.fault is not None:
        return str(tail.fault)
    return None if tail.is_complete else "the end of the log is still being looked for: it has no index"
