"""Completes a log whose files were changed: loads it as after a crash, and closes it.

Segments without an offset index are recovered: indexes, producers and leader epochs come from their batches. If the
machine dies in the middle, the next start does the same.
"""

from __future__ import annotations

from duralog.config import TopicConfig
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.log.loaded_log import LogEnvironment
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.recovery.recovery import LoadOptions, load_partition
from duralog.storage.recovery.segment_rewrite import BeforeChange

_ALL_FLUSHED = 2**63 - 1
"""A recovery point above every segment: a crash can have damaged only the last one."""


def settle_log(
    fs: FileSystem,
    folder: str,
    partition: TopicPartition,
    *,
    config: TopicConfig,
    log_start_offset: int,
    clock: Clock,
    before_change: BeforeChange,
) -> int:
    """Load and close the log of a folder, everything synced. Returns the offset at which it ends.

    REQUIRES: no process has the partition open, and `log_start_offset` is not above the end of the log.
    """
    loaded = load_partition(
        fs,
        folder,
        LoadOptions(
            config=config,
            clean=False,
            recovery_point=_ALL_FLUSHED,
            log_start_checkpoint=log_start_offset,
            clock=clock,
            before_change=before_change,
        ),
    )
    # Also what another process wrote and did not sync: the recovery point becomes the end of the log.
    for segment in loaded.segments:
        segment.flush(again=True)
    fs.sync_folder(folder)
    log = PartitionLog(
        loaded,
        topic=partition.topic,
        partition=partition.partition,
        config=config,
        environment=LogEnvironment(file_system=fs, clock=clock),
    )
    log.close()
    return loaded.end_offset
