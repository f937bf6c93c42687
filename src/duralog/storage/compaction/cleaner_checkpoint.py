"""Up to where each log is compacted: the file `cleaner-offset-checkpoint`.

An offset must never be too high. Otherwise records that no compaction has read would count as compacted, and one of
them could be a tombstone that expires while the value it deletes stays. So an offset is raised after the compacted
segments are swapped in, and lowered before the end of a log is truncated. A crash in between only repeats work.

A compaction does not read what follows damage, and drops nothing from a segment that it has to leave whole. So before
recovery, a repair or a restoration changes the log of a segment, the offset is lowered to the segment's base
(`lower_on_disk`): after a power loss in between, the damage is still there, and found again.

Entries of partitions that cannot be loaded, or are not compacted at the moment, stay.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.log_directory import CheckpointFiles


class CleanerCheckpoint:
    """`write` brings changes to disk. Any thread may call any method."""

    def __init__(self, directory: CheckpointFiles) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._offsets = dict(directory.read_checkpoint(CLEANER_OFFSET_CHECKPOINT))
        self._has_file = bool(self._offsets)
        """No file is made before the first entry."""

    def get(self, partition: TopicPartition) -> int | None:
        return self._offsets.get(partition)

    def put(self, partition: TopicPartition, offset: int) -> None:
        with self._lock:
            self._offsets[partition] = offset
            self._has_file = True

    def lower(self, partition: TopicPartition, offset: int) -> bool:
        """Lower the log's offset to this one. Returns whether it was higher."""
        with self._lock:
            is_above = self._offsets.get(partition, offset) > offset
            if is_above:
                self._offsets[partition] = offset
            return is_above

    def lower_on_disk(self, partition: TopicPartition, offset: int) -> bool:
        """The same, and return when it survives a power loss. Nothing is written if the offset was not higher."""
        is_above = self.lower(partition, offset)
        if is_above:
            self.write()
        return is_above

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """So that a new topic of the same name does not inherit them."""
        with self._lock:
            for partition in partitions:
                self._offsets.pop(partition, None)

    def write(self) -> None:
        """Return when all earlier changes survive a power loss."""
        if self._has_file:
            self._directory.write_checkpoint(CLEANER_OFFSET_CHECKPOINT, self._collect)

    def _collect(self) -> dict[TopicPartition, int]:
        with self._lock:
            return dict(self._offsets)
