"""One partition in a log directory, opened and closed as a store does it, but with nothing going on by itself.

What a store does in the background (syncing after a roll, removing files of deleted segments, writing checkpoints) is
done here when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from duralog.config import TopicConfig
from duralog.format.filenames import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.log.loaded_log import LogEnvironment
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.recovery.recovery import LoadOptions, load_partition
from tests.support.faults.crashing_files import START_MS

DIRECTORY = "/data"
NOW_MS = START_MS - 600_000
"""The log's own clock, behind all records: markers carry its time, and must not answer a lookup by time."""

SMALL_SEGMENTS = TopicConfig().with_overrides(
    {
        "internal.segment.bytes": 6000,
        "segment.index.bytes": 360,
        "index.interval.bytes": 300,
        "max.message.bytes": 5000,
        "retention.ms": -1,
    }
)

_PARTITION = TopicPartition("t", 0)


class Partition:
    def __init__(
        self,
        files: FileSystem,
        *,
        directory: str = DIRECTORY,
        config: TopicConfig = SMALL_SEGMENTS,
        clock: Clock = lambda: NOW_MS,
    ) -> None:
        self.files = files
        self.config = config
        self.clock = clock
        self.directory = LogDirectory(files, directory)
        self.folder = self.directory.folder_of(_PARTITION)
        self.waiting: list[Callable[[], None]] = []
        """What the log has left to be done later."""

    def open(self, *, read_only: bool = False) -> PartitionLog:
        if not self.files.exists(self.folder):
            self.files.make_folder(self.folder)
            self.files.sync_folder("/")
            self.files.sync_folder(self.directory.path)
        self.waiting.clear()
        loaded = load_partition(
            self.files,
            self.folder,
            LoadOptions(
                config=self.config,
                clean=self.directory.take_clean_shutdown(),
                recovery_point=self.directory.read_checkpoint(RECOVERY_POINT_CHECKPOINT).get(_PARTITION, 0),
                log_start_checkpoint=self.directory.read_checkpoint(LOG_START_OFFSET_CHECKPOINT).get(_PARTITION, 0),
                clock=self.clock,
                read_only=read_only,
            ),
        )
        return PartitionLog(
            loaded,
            topic=_PARTITION.topic,
            partition=_PARTITION.partition,
            config=self.config,
            environment=LogEnvironment(
                file_system=self.files,
                clock=self.clock,
                run_later=lambda _delay_ms, _name, work: self.waiting.append(work),
            ),
            read_only=read_only,
        )

    def catch_up(self) -> None:
        """Do what was left to be done later."""
        while self.waiting:
            self.waiting.pop(0)()

    def checkpoint(self, log: PartitionLog) -> None:
        self.directory.write_checkpoint(RECOVERY_POINT_CHECKPOINT, lambda: {_PARTITION: log.recovery_point})
        self.directory.write_checkpoint(LOG_START_OFFSET_CHECKPOINT, lambda: {_PARTITION: log.start_offset})

    def delete_old_segments(self, log: PartitionLog) -> None:
        """Delete the segments that the start of the log has left behind."""
        bases = [segment.base_offset for segment in log.segments]
        gone = [base for base, following in pairwise(bases) if following <= log.start_offset]
        log.delete_segments(gone, "they are below the start")

    def close(self, log: PartitionLog) -> None:
        """Stop in order."""
        self.catch_up()
        log.close()
        self.checkpoint(log)
        self.directory.put_clean_shutdown()
