"""What a log directory says about its partitions, compared with the partitions.

    meta.properties       must be readable: it names the owner of the directory
    bootstrap.checkpoint  must be readable if it is there: Kafka does not start without
    *-checkpoint          every offset must lie within the log it is of
    __cluster_metadata-0  must be readable; every partition that it places here must have a folder, every folder
                          must be of a topic that it knows, and with that topic's id

All of it is read before the first log, so that a log may grow meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from duralog.columnar.pieces import read_pieces
from duralog.errors import CorruptRecord
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.format.filenames import (
    BOOTSTRAP_SNAPSHOT,
    CLEAN_SHUTDOWN,
    HALF_WRITTEN_SUFFIX,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    FileState,
    FolderState,
    PartitionFolder,
)
from duralog.format.index_entries import DEFAULT_INTERVAL_BYTES
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.properties import MetaProperties, decode_meta_properties
from duralog.format.topic_partition import TopicPartition
from duralog.storage.checks.checked_files import LOCAL_FILES, CheckedFiles
from duralog.storage.checks.findings import Findings, unreadable
from duralog.storage.checks.partition import PartitionReport
from duralog.storage.disk.found_files import Content, FoundFile
from duralog.storage.disk.log_directory import DEFAULT_NODE_ID
from duralog.storage.metadata.cluster_metadata import ClusterMetadata
from duralog.storage.metadata.metadata_log import (
    METADATA_TOPIC_ID,
    MetadataSnapshot,
    decode_snapshot,
    newest_snapshot,
)
from duralog.storage.metadata.topics import OneDirectory


class DirectoryCheck:
    def __init__(self, path: str, files: Sequence[FoundFile], source: CheckedFiles = LOCAL_FILES) -> None:
        self._path = path
        self._source = source
        self.findings = Findings()
        self._unreadable: set[str] = set()
        self._meta = self._read_meta()
        self._checkpoints = {name: self._read_checkpoint(name) for name in OFFSET_CHECKPOINTS}
        self.metadata = self._read_metadata()
        self._check_bootstrap()
        self._note_files(files)

    def index_interval_bytes(self, topic: str) -> int:
        """The interval of the topic's indexes: what the metadata sets, or else the default."""
        text = "" if self.metadata is None else self.metadata.topic_configs(topic).get("index.interval.bytes", "")
        return int(text) if text.isdecimal() else DEFAULT_INTERVAL_BYTES

    @property
    def known_topics(self) -> set[str]:
        """By the cluster metadata."""
        return set() if self.metadata is None else {*self.metadata.topics}

    def named_by(self, partition: PartitionFolder | None) -> str | None:
        """What in the directory says that it has this partition; None if nothing does."""
        if partition is None or partition.state is not FolderState.LIVE:
            return None
        here = TopicPartition(partition.topic, partition.partition)
        topic = None if self.metadata is None else self.metadata.topics.get(partition.topic)
        if topic is not None and partition.partition in topic.partitions:
            return "the cluster metadata"
        return next((name for name, offsets in self._checkpoints.items() if here in offsets), None)

    def cannot_read(self, folder: str, error: OSError) -> None:
        """A partition's folder is there, and that is all that can be said of it."""
        self._unreadable.add(os.path.basename(folder))
        self.findings.report(unreadable(folder, error))

    def finish(self, partitions: Sequence[PartitionReport]) -> None:
        """Compare with what the partitions turned out to be; all of them, live ones and others."""
        live = {
            TopicPartition(report.partition.topic, report.partition.partition): report
            for report in partitions
            if report.partition is not None and report.partition.state is FolderState.LIVE
        }
        for name, offsets in self._checkpoints.items():
            self._check_offsets(name, offsets, live)
        self._check_topics(live)

    def _check_offsets(
        self, name: str, offsets: Mapping[TopicPartition, int], live: Mapping[TopicPartition, PartitionReport]
    ) -> None:
        path = os.path.join(self._path, name)
        for partition, offset in sorted(offsets.items()):
            report = live.get(partition)
            if report is None:
                if PartitionFolder(*partition).name in self._unreadable:
                    continue
                self.findings.note(path, f"names {partition}, of which there is no folder; Kafka ignores it")
            elif offset < 0 or (report.is_complete and offset > report.end_offset):
                consequence = " (Kafka would drop the whole log)" if name == LOG_START_OFFSET_CHECKPOINT else ""
                self.findings.report(
                    CorruptRecord(
                        f"the offset of {partition} lies outside of its log{consequence}",
                        file=path,
                        expected=f"from 0 to {report.end_offset}",
                        found=offset,
                    )
                )

    def _check_topics(self, live: Mapping[TopicPartition, PartitionReport]) -> None:
        ids: dict[str, str] = {}
        for partition, report in live.items():
            if report.topic_id is None:
                continue
            expected = METADATA_TOPIC_ID if partition.topic == CLUSTER_METADATA else ids.get(partition.topic)
            if self.metadata is not None and partition.topic in self.metadata.topics:
                expected = self.metadata.topics[partition.topic].topic_id
            ids.setdefault(partition.topic, report.topic_id)
            if expected not in (None, report.topic_id):
                self.findings.report(
                    CorruptRecord(
                        f"partition.metadata has another topic id than the rest of {partition.topic}",
                        file=report.folder,
                        expected=expected,
                        found=report.topic_id,
                    )
                )
        if self.metadata is not None and self.metadata.topics:
            self._check_placement(self.metadata, live)

    def _check_placement(self, metadata: ClusterMetadata, live: Mapping[TopicPartition, PartitionReport]) -> None:
        node_id = DEFAULT_NODE_ID if self._meta is None or self._meta.node_id is None else self._meta.node_id
        placement = OneDirectory(node_id, None if self._meta is None else self._meta.directory_id)
        placed = {
            TopicPartition(topic.name, number)
            for topic in metadata.topics.values()
            for number, partition in topic.partitions.items()
            if placement.holds(topic.name, partition)
        }
        for partition in sorted(placed - live.keys()):
            name = PartitionFolder(*partition).name
            if name in self._unreadable:
                continue
            self.findings.report(
                CorruptRecord(
                    f"the folder of {partition} is missing: the metadata log places it in this directory",
                    file=os.path.join(self._path, name),
                )
            )
        for partition in sorted(live.keys() - placed):
            if partition.topic != CLUSTER_METADATA:
                self.findings.report(
                    CorruptRecord(
                        f"the metadata log does not place {partition} in this directory: Kafka would rename its folder"
                        " to -stray",
                        file=live[partition].folder,
                    )
                )

    def _read_meta(self) -> MetaProperties | None:
        path = os.path.join(self._path, META_PROPERTIES)
        try:
            data = self._source.read_small(path)
            if data is not None:
                return decode_meta_properties(data)
            self.findings.note(path, "is missing: neither Kafka nor duralog has owned this directory")
        except CorruptRecord as error:
            self.findings.report(error.in_file(path))
        except OSError as error:
            self.findings.report(unreadable(path, error))
        return None

    def _read_checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        path = os.path.join(self._path, name)
        try:
            entries = decode_offset_checkpoint(self._source.read_small(path) or b"")
            return {TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries}
        except CorruptRecord as error:
            self.findings.report(error.in_file(path))
        except OSError as error:
            self.findings.report(unreadable(path, error))
        return {}

    def _read_metadata(self) -> ClusterMetadata | None:
        folder = os.path.join(self._path, PartitionFolder(CLUSTER_METADATA, 0).name)
        try:
            files, _ = self._source.look_into(folder)
            return ClusterMetadata.load(_newest_snapshot(files, self._source), _metadata_batches(files, self._source))
        except FileNotFoundError:
            return None
        except CorruptRecord as error:
            self.findings.report(error if error.file is not None else error.in_file(folder))
        except OSError as error:
            self.findings.report(unreadable(folder, error))
        return None

    def _check_bootstrap(self) -> None:
        path = os.path.join(self._path, BOOTSTRAP_SNAPSHOT)
        try:
            data = self._source.read_small(path)
            if data is not None:
                decode_snapshot(data)
        except CorruptRecord as error:
            self.findings.report(error.in_file(path))
        except OSError as error:
            self.findings.report(unreadable(path, error))

    def _note_files(self, files: Sequence[FoundFile]) -> None:
        if not any(file.name == CLEAN_SHUTDOWN for file in files) and self._meta is not None:
            self.findings.note(
                self._path, "is in use, or was not closed cleanly: it will be recovered when it is opened"
            )
        for file in files:
            if file.name.endswith(HALF_WRITTEN_SUFFIX):
                self.findings.note(
                    file.path, "an incomplete file that was never renamed into place; Kafka overwrites it"
                )


def _newest_snapshot(files: Sequence[FoundFile], source: CheckedFiles) -> MetadataSnapshot | None:
    by_name = {file.name: file for file in files}
    newest = newest_snapshot(by_name)
    if newest is None:
        return None
    path = by_name[newest.name].path
    return MetadataSnapshot(end_offset=newest.end_offset, epoch=newest.epoch, data=source.read_small(path) or b"")


def _metadata_batches(files: Sequence[FoundFile], source: CheckedFiles) -> Iterator[memoryview]:
    for file in files:
        if file.content is Content.LOG and file.state is FileState.LIVE:
            with source.open(file.path) as log:
                for piece in read_pieces(log):
                    if piece.fault is not None:
                        raise piece.fault
                    yield piece.data.data
