"""One log directory of a cluster: whose it is, what its checkpoints say, and the copies of partitions in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from duralog.errors import CorruptRecord, DuralogError, StorageError
from duralog.format.checkpoints import EpochStart
from duralog.format.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    FileKind,
    FolderState,
    parse_partition_folder,
)
from duralog.format.layout import NO_LEADER_EPOCH
from duralog.format.properties import MetaProperties, decode_partition_metadata
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.choice import CopyState
from duralog.scanning.cluster.problems import Problem, ProblemKind
from duralog.scanning.locations import Location
from duralog.storage.append.producer_state import DEFAULT_EXPIRATION_MS
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.disk.shadow import ShadowFileSystem
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.leader_epochs import epochs_in, with_observed
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView
from duralog.storage.metadata.cluster_metadata import ClusterMetadata
from duralog.storage.metadata.folder import METADATA_PARTITION, MetadataFolder
from duralog.storage.recovery.producer_recovery import ProducerRecovery
from duralog.storage.store import Store

_NO_META = MetaProperties(version=0, cluster_id=None, node_id=None, directory_id=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy of a partition, open for reading."""

    directory: ClusterDirectory = field(repr=False)
    partition: TopicPartition
    topic_id: str | None
    """By `partition.metadata`."""
    log: PartitionLog = field(repr=False)
    state: CopyState
    checkpoint_epochs: tuple[EpochStart, ...]
    observed_epochs: tuple[EpochStart, ...]
    """Those of the checkpoint, and later ones that only the batches have."""
    active_bytes: int
    """The size of the active segment's file when the copy was loaded."""

    @property
    def url(self) -> str:
        return self.directory.url

    @property
    def view(self) -> LogView:
        return self.log.view

    @property
    def size_bytes(self) -> int:
        return self.log.view.segments.size_bytes

    def limit(self, isolation: Isolation, end_offset: int) -> int:
        """Up to where a reader may read, of a log whose high watermark is `end_offset`.

        A transaction counts as open if its marker is not below the high watermark.
        """
        view = self.log.view
        if isolation is not Isolation.READ_COMMITTED:
            return min(end_offset, view.end_offset)
        if end_offset >= view.end_offset:
            return view.last_stable_offset
        producers = ProducerRecovery(
            ShadowFileSystem(self.directory.files),
            self.log.folder,
            (),
            now_ms=wall_clock_ms(),
            expiration_ms=DEFAULT_EXPIRATION_MS,
        )
        producers.reset_snapshots()
        producers.read(list(view.segments), view.start_offset, end_offset)
        return producers.state.last_stable_offset(end_offset, view.start_offset)

    def has_grown(self) -> bool:
        """Whether another process has written to it since it was loaded."""
        if self.directory.location.is_remote:
            return False
        active = self.log.view.segments.active
        entry = self.directory.files.entry(active.path(FileKind.LOG))
        return entry is not None and entry.size > self.active_bytes


class ClusterDirectory:
    """A directory that is open for reading. `close` it in the end."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.url = location.url
        self._files, path = location.connect()
        self._directory = LogDirectory(self._files, path)
        self.store: Store = location.open_store()
        self.problems: list[Problem] = []
        self.meta = self._read_meta()
        self.partitions: frozenset[TopicPartition] = frozenset(
            TopicPartition(topic, number) for topic in self.store.topics() for number in self.store.partitions(topic)
        )
        self._high_watermarks = self._read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
        self._cleaned = self._read_checkpoint(CLEANER_OFFSET_CHECKPOINT)

    @property
    def node_id(self) -> int | None:
        return self.meta.node_id

    @property
    def files(self) -> FileSystem:
        return self._files

    def close(self) -> None:
        self.store.close()

    def read_metadata(self) -> ClusterMetadata | None:
        """The cluster metadata in this directory; None if it has none."""
        folder = MetadataFolder(self._files, self._directory, lambda: self.store.partition(*METADATA_PARTITION))
        if not folder.exists:
            return None
        metadata = folder.load()
        return metadata if metadata.next_offset else None

    def set_aside(self) -> list[tuple[str, TopicPartition, FolderState]]:
        """The folders that Kafka does not use as replicas, those of deleted topics left out."""
        found = [
            (entry.name, folder)
            for entry in self._files.list(self._directory.path)
            if entry.is_folder and (folder := parse_partition_folder(entry.name)) is not None
        ]
        return [
            (name, TopicPartition(folder.topic, folder.partition), folder.state)
            for name, folder in sorted(found, key=lambda each: each[0])
            if folder.state in (FolderState.STRAY, FolderState.FUTURE)
        ]

    def without_log(self, partitions: Collection[TopicPartition]) -> list[tuple[str, TopicPartition]]:
        """The names of folders, or of files in their place, that should have one of these partitions, and do not."""
        return sorted(
            (entry.name, partition)
            for entry in self._files.list(self._directory.path)
            if (folder := parse_partition_folder(entry.name)) is not None
            and folder.state is FolderState.LIVE
            and (partition := TopicPartition(folder.topic, folder.partition)) in partitions
            and partition not in self.partitions
        )

    def topic_id(self, partition: TopicPartition) -> str | None:
        path = f"{self._directory.folder_of(partition)}/{PARTITION_METADATA}"
        try:
            return decode_partition_metadata(self._files.read_all(path))
        except (CorruptRecord, StorageError):
            return None

    def copy(self, partition: TopicPartition, topic_id: str | None) -> Copy:
        """The copy of a partition. Raises `DuralogError` if it cannot be loaded."""
        log = self.store.partition(*partition)
        view = log.view
        in_checkpoint, observed = self._epochs(partition, view)
        state = CopyState(
            node_id=self.node_id,
            start_offset=view.start_offset,
            end_offset=view.end_offset,
            epochs=in_checkpoint or observed,
            high_watermark=self._high_watermarks.get(partition),
            cleaned_to=self._cleaned.get(partition),
        )
        active_bytes = view.segments.active.file.size
        view.segments.active.let_go()
        return Copy(
            directory=self,
            partition=partition,
            topic_id=topic_id,
            log=log,
            state=state,
            checkpoint_epochs=in_checkpoint,
            observed_epochs=observed,
            active_bytes=active_bytes,
        )

    def _read_meta(self) -> MetaProperties:
        try:
            meta = self._directory.read_meta()
            if meta is None or meta.node_id is not None:
                return meta or _NO_META
            found = f"{self._directory.path_of(META_PROPERTIES)}: it has no node.id"
        except DuralogError as error:
            found = str(error)
        text = f"{found}. The node of this directory is not known, nor whether it belongs to this cluster"
        self.problems.append(Problem(ProblemKind.OWNER_DAMAGED, self.url, f"{text}: restore the file from a backup"))
        return _NO_META

    def _read_checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        try:
            return self._directory.decode_checkpoint(name) or {}
        except DuralogError as error:
            text = f"{error}. Its offsets are not used: those of the other directories decide"
            self.problems.append(Problem(ProblemKind.CHECKPOINT_DAMAGED, self.url, text))
            return {}

    def _epochs(
        self, partition: TopicPartition, view: LogView
    ) -> tuple[tuple[EpochStart, ...], tuple[EpochStart, ...]]:
        """Of the checkpoint, and with later ones that the batches have.

        An epoch that starts at the end of the log counts: its leader may have written nothing. A checkpoint is older
        than the log if the two were copied while a broker wrote. One whose last epoch the last batch contradicts is
        damaged, and is not used: a wrong epoch in it would win over all other copies.
        """
        path = f"{self._directory.folder_of(partition)}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            entries = tuple(epochs_in(self._files.read_all(path), path))
        except (CorruptRecord, StorageError):
            entries = ()
        if view.start_offset == view.end_offset:
            return entries, entries
        start = view.start_offset
        if entries:
            last = _last_epoch(view)
            if NO_LEADER_EPOCH < last < entries[-1].epoch and entries[-1].start_offset < view.end_offset:
                entries = ()
            elif last <= entries[-1].epoch:
                return entries, entries
            else:
                start = max(start, min(entries[-1].start_offset, view.end_offset - 1))
        observed = entries
        for piece in view.scanned_from(start):
            observed = with_observed(observed, piece.batches)
        return entries, observed


def _last_epoch(view: LogView) -> int:
    last = NO_LEADER_EPOCH
    for piece in view.scanned_from(view.end_offset - 1):
        last = int(piece.batches["leader_epoch"][-1])
    return last
