"""Lost partitions: the folder is gone, though a checkpoint of its directory has records of it.

Kafka makes such a partition again, empty, and its next checkpoint no longer has the offset: then nothing shows that
there were records. So a store that serves a directory makes it again as well, but logs what is missing. A command that
only works on the directory does not make it: the partition is offline, and its checkpoint entries stay.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice

from duralog.config.plurals import plural
from duralog.format.filenames import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.log_directories import LogDirectories

_MOST_LOGGED = 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """What a checkpoint has of a partition without a folder."""

    folder: str
    checkpoint: str
    start_offset: int
    """Of the log, if the checkpoint of log starts has it."""
    end_offset: int

    def __str__(self) -> str:
        records = plural(self.end_offset - self.start_offset, "record")
        return (
            f"there is no folder {self.folder}, but {self.checkpoint} says that its log reaches offset"
            f" {self.end_offset}: up to {records} are missing"
        )


def find_lost(directories: LogDirectories, missing: Collection[TopicPartition]) -> Mapping[TopicPartition, LostRecords]:
    """Of partitions without a folder, those that have had records."""
    if not missing:
        return {}
    starts = directories.read_checkpoint(LOG_START_OFFSET_CHECKPOINT)
    lost: dict[TopicPartition, LostRecords] = {}
    for checkpoint in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        ends = directories.read_checkpoint(checkpoint)
        for partition in missing:
            start, end = max(starts.get(partition, 0), 0), ends.get(partition, 0)
            if end > start and (partition not in lost or end > lost[partition].end_offset):
                lost[partition] = LostRecords(
                    folder=directories.folder_of(partition), checkpoint=checkpoint, start_offset=start, end_offset=end
                )
    return lost


def warn_of_made_again(lost: Mapping[TopicPartition, LostRecords]) -> None:
    for partition, records in islice(sorted(lost.items()), _MOST_LOGGED):
        _logger.warning(
            "%s: %s. It is made again, empty, as Kafka does: new records will have the same offsets. To keep the old"
            " ones, stop now, replace the folder by one from a backup or another copy, and start again",
            partition,
            records,
        )
    if (more := len(lost) - _MOST_LOGGED) > 0:
        _logger.warning("%s lost their records and are made again, empty", plural(more, "more partition"))
