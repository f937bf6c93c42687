"""A local log directory that another process may write to: what it holds now, and what has changed since.

`Store.refresh` is made of this. Partitions are followed by `duralog.storage.read_only_partitions`. Of the directory's
own files, the checkpoints are read again when they change; a change of the cluster metadata is only noticed here, by
the names, sizes and times of its files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from duralog.errors import DuralogError, StorageError
from duralog.format.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.disk.local_files import refusals
from duralog.storage.disk.log_directory import FollowedCheckpoint, LogDirectory
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.metadata.topics import Topics
from duralog.storage.opening import OpenedDirectory, Opening
from duralog.storage.read_only_partitions import PartitionView, ReadOnlyPartitions

_NS_PER_MS = 1_000_000
_CHECKPOINTS = LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryView:
    """A directory at one refresh."""

    partitions: Mapping[TopicPartition, PartitionView]
    """Sorted by topic and number. A partition that has not changed is the same object as at the refresh before."""
    log_starts: Mapping[TopicPartition, int]
    """Log start offsets by the checkpoint. A partition that is not in it starts with its first segment."""
    cleaned: Mapping[TopicPartition, int]
    """The cleaner's checkpoint: logs are compacted below these offsets."""
    recovery_points: Mapping[TopicPartition, int] = field(repr=False)
    metadata_files: object = field(repr=False)
    """Differs when the cluster metadata may have changed."""
    topics_error: DuralogError | None = None
    """Why the topics and their configs are still those of an earlier refresh."""

    def start_offset(self, view: PartitionView) -> int:
        """Where a log starts."""
        last = max(view.end_offset, view.first_offset)
        return min(max(self.log_starts.get(view.partition, 0), view.first_offset), last)


NOTHING_SEEN = DirectoryView(partitions={}, log_starts={}, cleaned={}, recovery_points={}, metadata_files=None)
"""Before the first refresh."""


class Refreshed(NamedTuple):
    """What a refresh found."""

    view: DirectoryView
    opened: OpenedDirectory
    """The same object as before if nothing has changed."""
    unchanged: Collection[TopicPartition]
    """The partitions whose logs need not be loaded again."""


class ReadOnlyDirectory:
    """For one thread at a time."""

    def __init__(self, files: FileSystem, path: str, opening: Opening, clock: Clock) -> None:
        self._files = files
        self._directory = LogDirectory(files, path)
        self._opening = opening
        self._partitions = ReadOnlyPartitions(path, lambda: clock() * _NS_PER_MS)
        self._checkpoints = [FollowedCheckpoint(files, path, name) for name in _CHECKPOINTS]
        self._before: DirectoryView | None = None
        """The last refresh that the store has followed as a whole: what changed since is read at the next one."""

    def refresh(self, opened: OpenedDirectory) -> Refreshed:
        """`opened` is what the refresh before returned. Raises `StorageError` if the directory cannot be listed."""
        if not isinstance(self._files, LocalFileSystem):
            raise StorageError(
                f"{self._directory.path}: only a directory of this machine can be refreshed: open it again"
            )
        before, view = self._before, self._read_view()
        topics = opened.topics
        try:
            if before is None or _has_other_topics(before, view):
                opened = self._opening.for_reading()
            elif _has_other_logs(before, view):
                opened = self._opening.for_reading_again(
                    opened, has_new_checkpoints=_has_other_checkpoints(before, view)
                )
        except DuralogError as error:
            shown = _without_other_folders(view.partitions, opened.topics)
            return Refreshed(replace(view, partitions=shown, topics_error=error), opened, ())
        self._before = view = replace(view, partitions=_without_other_folders(view.partitions, opened.topics))
        if before is None:
            return Refreshed(view, opened, ())
        unchanged = {
            partition
            for partition, found in view.partitions.items()
            if found is before.partitions.get(partition)
            and view.log_starts.get(partition) == before.log_starts.get(partition)
            and topics.by_name.get(partition.topic) == opened.topics.by_name.get(partition.topic)
        }
        return Refreshed(view, opened, unchanged)

    def start_over(self) -> None:
        """Read everything again at the next refresh: the store could not follow the last one."""
        self._before = None

    def _read_view(self) -> DirectoryView:
        with refusals("list", self._directory.path):
            partitions = self._partitions.refresh()
        log_starts, cleaned, recovery_points = (checkpoint.read() for checkpoint in self._checkpoints)
        return DirectoryView(
            partitions=partitions,
            log_starts=log_starts,
            cleaned=cleaned,
            recovery_points=recovery_points,
            metadata_files=self._metadata_files(),
        )

    def _metadata_files(self) -> object:
        found = [self._files.entry(self._directory.path_of(META_PROPERTIES))]
        folder = self._directory.folder_of(METADATA_PARTITION)
        if self._files.exists(folder):
            found += sorted(self._files.list(folder))
        return found


def _has_other_topics(before: DirectoryView, now: DirectoryView) -> bool:
    """Whether topics or their configs may differ."""
    return now.metadata_files != before.metadata_files or _with_logs(now.partitions) != _with_logs(before.partitions)


def _has_other_logs(before: DirectoryView, now: DirectoryView) -> bool:
    """Whether a log that is loaded now may differ from one that was loaded before."""
    return _has_other_checkpoints(before, now) or any(
        now.partitions[partition] is not before.partitions[partition] for partition in _with_logs(now.partitions)
    )


def _has_other_checkpoints(before: DirectoryView, now: DirectoryView) -> bool:
    return (
        now.log_starts is not before.log_starts
        or now.cleaned is not before.cleaned
        or now.recovery_points is not before.recovery_points
    )


def _with_logs(partitions: Mapping[TopicPartition, PartitionView]) -> set[TopicPartition]:
    return {partition for partition, view in partitions.items() if view.segments}


def _without_other_folders(
    partitions: Mapping[TopicPartition, PartitionView], topics: Topics
) -> Mapping[TopicPartition, PartitionView]:
    """Without the folders that are only named like partitions: they have no log, and no topic has them."""
    of_topics = {(topic.name, number) for topic in topics.by_name.values() for number in topic.partitions}
    return {partition: view for partition, view in partitions.items() if view.segments or partition in of_topics}
