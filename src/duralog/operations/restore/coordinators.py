"""What the coordinators of the source have stored: committed offsets of groups, and transactions prepared to commit.

Their topics are compacted logs with transactions of their own. So their partitions are copied first, as those of any
topic, through damage and up to the high watermark, into scratch logs that are read as a broker reads them at its start.
Scratch logs are never synced, and are removed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from duralog.broker.groups.group_loading import FoldedLog
from duralog.broker.groups.offsets.records import (
    OFFSET_TYPES,
    CommittedOffset,
    OffsetKey,
    decode_offset_key,
    decode_offset_value,
)
from duralog.broker.topics.coordinator_log import LoggedRecord, read_log
from duralog.broker.transactions.state import Transaction
from duralog.broker.transactions.transaction_log import decode
from duralog.config import TopicConfig
from duralog.format.filenames import PartitionFolder
from duralog.format.java_hash import coordinator_partition
from duralog.operations.restore.partition_copy import CopiedPartition, PartitionSource, copy_partition
from duralog.operations.restore.transactions import Prepared, end_transactions, is_committing
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log.loaded_log import LogEnvironment
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.recovery.recovery import LoadOptions, load_partition

_CONFIG = TopicConfig(cleanup_policy=frozenset({"compact"}))


@dataclass(frozen=True, slots=True)
class CoordinatorTopic:
    """The partitions of `__consumer_offsets` or of `__transaction_state` that can be read."""

    sources: tuple[PartitionSource, ...]
    partitions: int
    """In all: a group or a transactional id belongs to one of them by its hash."""
    knows_partitions: bool = True
    """By the cluster metadata. Otherwise there may be more than there are folders."""


OnCopied = Callable[[CopiedPartition], object]


def committed_offsets(
    topic: CoordinatorTopic,
    scratch: str,
    is_wanted: Callable[[OffsetKey, CommittedOffset], bool],
    prepared: Prepared,
    on_copied: OnCopied,
) -> tuple[dict[OffsetKey, CommittedOffset], bool]:
    """What groups have committed, and whether these show that the topic has more partitions than are known.

    Commits of transactions that are prepared to commit count.
    """
    found: dict[OffsetKey, CommittedOffset] = {}
    has_more = False
    for source in topic.sources:
        with _scratch_log(source, scratch, on_copied) as (log, copied):
            end_transactions(log, source.copies.chosen.view, copied.end_offset, source.partition, prepared)
            folded = FoldedLog(keeps_tombstones=False)
            folded.add(read_log(log))
            for record in folded.last():
                if record.value is None or record.key[:2] not in OFFSET_TYPES:
                    continue
                key = decode_offset_key(record.key)
                value = decode_offset_value(record.key, record.value, record.offset)
                if coordinator_partition(key.group_id, topic.partitions) != source.partition.partition:
                    if topic.knows_partitions:
                        continue
                    has_more = True
                known = found.get(key)
                is_newest = known is None or value is None or value.commit_timestamp_ms >= known.commit_timestamp_ms
                if value is not None and is_newest and is_wanted(key, value):
                    found[key] = value
    return found, has_more


def prepared_commits(topic: CoordinatorTopic, scratch: str, on_copied: OnCopied) -> dict[int, Transaction]:
    """The transactions that are prepared to commit, by producer id."""
    found: dict[int, Transaction] = {}
    for source in topic.sources:
        with _scratch_log(source, scratch, on_copied) as (log, _):
            last = {entry.key: entry for entry in read_log(log) if isinstance(entry, LoggedRecord)}
            for entry in last.values():
                decoded = decode(entry)
                if decoded is not None and is_committing(decoded[1]):
                    found[decoded[1].producer_id] = decoded[1]
    return found


@contextmanager
def _scratch_log(
    source: PartitionSource, scratch: str, on_copied: OnCopied
) -> Iterator[tuple[PartitionLog, CopiedPartition]]:
    files = LocalFileSystem()
    folder = f"{scratch}/{PartitionFolder(*source.partition).name}"
    files.make_folder(folder)
    options = LoadOptions(config=_CONFIG, clean=True, recovery_point=0, log_start_checkpoint=0, clock=wall_clock_ms)
    log = PartitionLog(
        load_partition(files, folder, options),
        topic=source.partition.topic,
        partition=source.partition.partition,
        config=_CONFIG,
        environment=LogEnvironment(file_system=files, clock=wall_clock_ms, run_later=lambda _delay, _name, _work: None),
    )
    try:
        copied = copy_partition(source, log, lambda _: None)
        on_copied(copied)
        yield log, copied
    finally:
        log.disown("it is a scratch log")
        log.close()
        files.remove_folder(folder)
