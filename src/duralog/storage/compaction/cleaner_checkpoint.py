"""Up to where each log is compacted: the file `cleaner-offset-checkpoint`.

What it says must never be above the truth. Were it, records that no compaction has seen would count as compacted, and
one of them could be a tombstone that goes in time while the value it deletes stays. So an offset is raised after the
compacted segments are in their places, and lowered before the end of a log is cut off. A crash in between only has work
done twice.

Nor has a compaction seen what lies behind damage, or dropped anything from a segment that it had to leave whole. So
before recovery, a repair or a restoration changes what a segment's log holds, the offset is lowered to the segment's
base (`lower_on_disk`): if power is lost in between, the damage is still there, and found again.

Entries of partitions that cannot be loaded stay, and of those that are not compacted at the moment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.storage.disk.log_directory import LogDirectory, TopicPartition


class CleanerCheckpoint:
    """What is changed here comes to disk with `write`. Any thread may call anything."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._offsets = dict(directory.read_checkpoint(CLEANER_OFFSET_CHECKPOINT))
        self._has_file = bool(self._offsets)
        """Without a single entry ever, there is no need for one."""

    def get(self, partition: TopicPartition) -> int | None:
        return self._offsets.get(partition)

    def put(self, partition: TopicPartition, offset: int) -> None:
        with self._lock:
            self._offsets[partition] = offset
            self._has_file = True

    def lower(self, partition: TopicPartition, offset: int) -> bool:
        """Let the log count as compacted up to this offset at most. Returns whether it was more."""
        with self._lock:
            is_above = self._offsets.get(partition, offset) > offset
            if is_above:
                self._offsets[partition] = offset
            return is_above

    def lower_on_disk(self, partition: TopicPartition, offset: int) -> bool:
        """The same, and return when it would survive a loss of power. Nothing is written if it was not more."""
        is_above = self.lower(partition, offset)
        if is_above:
            self.write()
        return is_above

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """So that a new topic of the name does not inherit them."""
        with self._lock:
            for partition in partitions:
                self._offsets.pop(partition, None)

    def write(self) -> None:
        """Return when all that was changed before would survive a loss of power. Costs nothing if nothing was."""
        if self._has_file:
            self._directory.write_checkpoint(CLEANER_OFFSET_CHECKPOINT, self._collect)

    def _collect(self) -> dict[TopicPartition, int]:
        with self._lock:
            return dict(self._offsets)
