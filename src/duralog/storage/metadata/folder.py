"""The folder `__cluster_metadata-0`: the metadata log, opened as any other log, and its snapshots.

Kafka has neither checkpoints nor retention for this log: it flushes every append, and only snapshots shorten it.
duralog does the same, and writes no snapshots: it only appends the changes that users make. After a crash the whole log
is recovered.

In a cluster of several nodes, one leader writes the metadata. If that is another node, this copy of the log is
read-only: a change made here would be dropped when the node joins its cluster again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from duralog.config import TopicConfig
from duralog.errors import CorruptRecord, Fault, StorageError
from duralog.format.filenames import BOOTSTRAP_SNAPSHOT, PARTITION_METADATA, QUORUM_STATE
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.internal.metadata_records import MetadataRecord
from duralog.format.properties import decode_json_object, encode_partition_metadata
from duralog.format.topic_partition import TopicPartition
from duralog.format.varint import Bytes
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.metadata.cluster_metadata import ClusterMetadata
from duralog.storage.metadata.metadata_log import (
    METADATA_TOPIC_ID,
    MetadataSnapshot,
    decode_batches,
    decode_snapshot,
    newest_snapshot,
)
from duralog.storage.recovery.quarantine import Quarantine
from duralog.storage.segment.damage import find_batches
from duralog.storage.segment.index_builder import build_indexes, half_a_batch

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA, 0)

METADATA_CONFIG = TopicConfig().with_overrides({"max.message.bytes": 8 << 20, "retention.ms": -1})
"""Kafka opens the log with these, independent of topic configs."""

_NO_LEADER = -1

_logger = logging.getLogger(__name__)


class MetadataFolder:
    """The metadata of one directory. `open_log` opens the log in the folder, which must exist."""

    def __init__(self, files: FileSystem, directory: LogDirectory, open_log: Callable[[], PartitionLog]) -> None:
        self._files = files
        self._directory = directory
        self._folder = directory.folder_of(METADATA_PARTITION)
        self._open_log = open_log
        self._log: PartitionLog | None = None

    @property
    def exists(self) -> bool:
        return self._files.exists(self._folder)

    @property
    def log(self) -> PartitionLog | None:
        """The log, if it was opened."""
        return self._log

    def load(self) -> ClusterMetadata:
        """The state of the newest snapshot and the log after it; empty if there is no folder."""
        if not self.exists:
            return ClusterMetadata()
        try:
            return ClusterMetadata.load(self._snapshot(), self._batches())
        except CorruptRecord as error:
            raise error if error.file is not None else error.in_file(self._folder) from None

    def warn_of_missing(self, metadata: ClusterMetadata, *, has_topics: bool) -> None:
        """Warn if `load` ignored bytes at the end of a read-only log, or if the log is empty.

        The bytes may be damage, or an append that another process is in the middle of.
        """
        left_out = self._left_out()
        if left_out is not None:
            _logger.warning(
                "%s; topics and configs come from the metadata before it, which ends at offset %d, and from folders",
                left_out,
                metadata.next_offset,
            )
        elif has_topics and self.exists and not metadata.next_offset:
            _logger.warning("%s: the metadata is empty; topics come from folders, with default configs", self._folder)

    def leader_id(self) -> int | None:
        """The last leader of the metadata quorum; None if it is not known."""
        path = f"{self._folder}/{QUORUM_STATE}"
        if not self._files.exists(path):
            return None
        try:
            leader_id = decode_json_object(self._files.read_all(path)).get("leaderId")
        except CorruptRecord as error:
            raise error.in_file(path) from None
        return leader_id if isinstance(leader_id, int) and leader_id != _NO_LEADER else None

    def bootstrap(self) -> list[MetadataRecord]:
        """The first records of a directory that Kafka has formatted, but never started on."""
        path = self._directory.path_of(BOOTSTRAP_SNAPSHOT)
        if not self._files.exists(path):
            return []
        try:
            return decode_snapshot(self._files.read_all(path))
        except CorruptRecord as error:
            raise error.in_file(path) from None

    def removed_topic_ids(self) -> set[str]:
        """The ids of topics that were deleted according to the log."""
        if not self.exists:
            return set()
        records = (record for piece in self._batches() for batch in decode_batches(piece) for record in batch.records)
        return {
            record.fields["topic_id"]
            for record in records
            if record.type_name == "REMOVE_TOPIC_RECORD" and not isinstance(record.fields, bytes)
        }

    def has_lost_records(self) -> bool:
        """Whether recovery removed more from the log than an incomplete append at its end."""
        quarantine = Quarantine(self._files, self._folder, wall_clock_ms)
        return any(
            report.zeros_from > report.start
            and not report.restored_batches
            # No batch follows an incomplete append.
            and (report.fault != Fault.PARTIAL_BATCH.name or any(map(len, find_batches(quarantine.open(report)))))
            for report in quarantine.reports()
        )

    def open_for_changes(self, node_id: int) -> ChangesLog:
        """The log to append to. It is created if it does not exist."""
        leader_id = self.leader_id()
        if leader_id not in (None, node_id):
            raise StorageError(
                f"{self._folder}: node {leader_id} leads the cluster of this directory: change topics and configs there"
            )
        if not self.exists:
            self._files.make_folder(self._folder)
            self._files.replace(f"{self._folder}/{PARTITION_METADATA}", encode_partition_metadata(METADATA_TOPIC_ID))
            self._files.sync_folder(self._directory.path)
        return ChangesLog(self._opened())

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _opened(self) -> PartitionLog:
        if self._log is None:
            self._log = self._open_log()
        return self._log

    def _left_out(self) -> CorruptRecord | None:
        active = None if self._log is None else self._log.view.segments.active
        if active is None or active.file.size <= active.size_bytes:
            return None
        interval_bytes = active.options.index_interval_bytes
        return build_indexes(
            active.file, active.base_offset, end=active.file.size, interval_bytes=interval_bytes
        ).reason

    def _snapshot(self) -> MetadataSnapshot | None:
        newest = newest_snapshot(self._files.list_names(self._folder))
        if newest is None:
            return None
        data = self._files.read_all(f"{self._folder}/{newest.name}")
        return MetadataSnapshot(end_offset=newest.end_offset, epoch=newest.epoch, data=data)

    def _batches(self) -> Iterator[Bytes]:
        for segment in self._opened().view.segments:
            for piece in segment.batches_from():
                if piece.fault is not None:
                    raise piece.fault
                yield piece.data.data
                if piece.tail_bytes:
                    raise half_a_batch(piece, segment.size_bytes - piece.tail_bytes)


class ChangesLog:
    """The metadata log as `Topics` writes it."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    def append(self, batch: Bytes) -> None:
        self._log.append_batches(batch, origin=AppendOrigin.AS_IS)
        self._log.flush()

    def truncate_to(self, offset: int) -> None:
        self._log.truncate_to(offset)
