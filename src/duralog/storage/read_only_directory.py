"""Local log directories that another process may write to: their current contents, and what has changed.

`Store.refresh` is made of this. Partitions are followed by `duralog.storage.read_only_partitions`. Of the directories'
own files, the checkpoints are read again when they change; a change of the cluster metadata is only noticed here, by
the names, sizes and times of its files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
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
from duralog.storage.opened_store import OpenedStore
from duralog.storage.opening import Opening
from duralog.storage.read_only_partitions import PartitionView, ReadOnlyPartitions

_NS_PER_MS = 1_000_000
_CHECKPOINTS = LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryView:
    """The directories of a store at one refresh."""

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
    """The result of a refresh."""

    view: DirectoryView
    opened: OpenedStore
    """The same object as before if nothing has changed."""
    unchanged: Collection[TopicPartition]
    """The partitions whose logs need not be loaded again."""


class ReadOnlyDirectory:
    """For one thread at a time."""

    def __init__(self, files: FileSystem, paths: Sequence[str], opening: Opening, clock: Clock) -> None:
        self._files = files
        self._paths = paths
        self._opening = opening
        self._partitions = [ReadOnlyPartitions(path, lambda: clock() * _NS_PER_MS) for path in paths]
        self._checkpoints = [FollowedCheckpoints(files, paths, name) for name in _CHECKPOINTS]
        self._before: DirectoryView | None = None
        """The last refresh that the store has followed as a whole: what changed since is read at the next one."""

    def refresh(self, opened: OpenedStore) -> Refreshed:
        """`opened` is what the refresh before returned. Raises `StorageError` if the directory cannot be listed."""
        if not isinstance(self._files, LocalFileSystem):
            raise StorageError(f"{self._paths[0]}: only a directory of this machine can be refreshed: open it again")
        before, view = self._before, self._read_view()
        topics = opened.topics
        try:
            if before is None or _has_other_topics(before, view):
                opened = self._opening.for_reading()
                if not _are_where_found(view, opened):
                    view = self._read_view()  # A partition has moved to another directory meanwhile.
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
        partitions: dict[TopicPartition, PartitionView] = {}
        failures = 0
        for path, followed in zip(self._paths, self._partitions, strict=True):
            try:
                with refusals("list", path):
                    partitions.update(followed.refresh())
            except StorageError:
                failures += 1
                if failures == len(self._paths):
                    raise
        if len(self._paths) > 1:
            partitions = dict(sorted(partitions.items()))
        log_starts, cleaned, recovery_points = (checkpoint.read(partitions) for checkpoint in self._checkpoints)
        return DirectoryView(
            partitions=partitions,
            log_starts=log_starts,
            cleaned=cleaned,
            recovery_points=recovery_points,
            metadata_files=self._metadata_files(),
        )

    def _metadata_files(self) -> object:
        directories = [LogDirectory(self._files, path) for path in self._opening.owned_paths]
        found = [self._files.entry(directory.path_of(META_PROPERTIES)) for directory in directories]
        for directory in directories:
            folder = directory.folder_of(METADATA_PARTITION)
            if self._files.exists(folder):
                found += sorted(self._files.list(folder))
        return found


class FollowedCheckpoints:
    """The checkpoint files of one name in all directories."""

    def __init__(self, files: FileSystem, paths: Sequence[str], name: str) -> None:
        self._paths = paths
        self._followed = [FollowedCheckpoint(files, path, name) for path in paths]
        self._parts: Sequence[Mapping[TopicPartition, int]] = ()
        self._folders: Mapping[TopicPartition, str] = {}
        self._offsets: Mapping[TopicPartition, int] = {}

    def read(self, partitions: Mapping[TopicPartition, PartitionView]) -> Mapping[TopicPartition, int]:
        """The offsets in them now. The same object as before if nothing has changed.

        An entry in the checkpoint of another directory than the partition is in does not count.
        """
        if len(self._followed) == 1:
            return self._followed[0].read()
        parts = [followed.read() for followed in self._followed]
        folders = {partition: view.folder for partition, view in partitions.items()}
        is_same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
        if not is_same or folders != self._folders:
            self._parts, self._folders = parts, folders
            self._offsets = {
                partition: offset
                for path, part in zip(self._paths, parts, strict=True)
                for partition, offset in part.items()
                if folders.get(partition, f"{path}/").startswith(f"{path}/")
            }
        return self._offsets


def _are_where_found(view: DirectoryView, opened: OpenedStore) -> bool:
    """Whether the partitions are in the directories in which the opening has found them."""
    directories = opened.directories
    return not directories.are_several or all(
        (found := view.partitions.get(partition)) is not None and found.folder == directories.folder_of(partition)
        for partition in directories.live()
    )


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
