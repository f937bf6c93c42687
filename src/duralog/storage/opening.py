"""How a directory is opened: the steps, in their order, until its topics and logs are known.

For writing: lock the directory; remove the clean-shutdown marker; read the metadata log; reconcile folders and
metadata; load all partitions in parallel, which recovers those that need it. A partition that cannot be loaded is
offline, and the others are served. For a short write to a few partitions of a clean directory, they are loaded on first
use instead. For lending: the same, but tasks load the partitions. For reading: nothing is locked or changed.

Folders and metadata may differ. For writing, they are reconciled so:

| the metadata knows                     | a folder | then                                                            |
|----------------------------------------|----------|-----------------------------------------------------------------|
| the partition, on this node            | no       | the partition is made, as Kafka makes it                        |
| the topic, but not this partition here | yes      | the partition is offline: Kafka would set the folder aside      |
| that an older topic was deleted, its id the folder's | yes | the folder is deleted, and the partition made again    |
| that the topic was deleted             | yes      | the folder is deleted: a crash has interrupted that             |
| nothing                                | yes      | the topic is adopted, unless another node leads the metadata;   |
|                                        |          | unless a retention is configured, it keeps its records forever  |
| nothing, after a loss of records       | yes      | the partition is offline: retention must not go by defaults     |
| nothing, and no folder of the topic has files of a log | yes | it is not a partition: the folder stays as it is     |

A directory without metadata gets it now if no node owns it yet. If it belongs to a Kafka node that keeps its metadata
in another directory, it gets none before a topic is created or changed here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby

from duralog.config import BrokerConfig
from duralog.config.plurals import plural
from duralog.errors import CorruptRecord, DuralogError, InvalidConfig, InvalidTopic, StorageError, TopicExists
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.properties import MetaProperties
from duralog.format.topic_partition import TopicPartition
from duralog.storage.deleted_folders import DeletedFolders
from duralog.storage.disk.background import Clock, Scheduler
from duralog.storage.disk.file_system import FileSystem, Lock
from duralog.storage.disk.log_directory import DEFAULT_NODE_ID, LogDirectory
from duralog.storage.disk.parallel import ByteCount, ShowProgress, for_each_partition
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.metadata.cluster_metadata import ClusterMetadata
from duralog.storage.metadata.folder import MetadataFolder
from duralog.storage.metadata.topics import Holds, Placement, Topics, WritableLog
from duralog.storage.partition_loading import FolderOfAnotherTopic, PartitionLoader
from duralog.storage.recovery.recovery import OnBytes

_logger = logging.getLogger(__name__)

_NO_META = MetaProperties(version=0, cluster_id=None, node_id=None, directory_id=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDirectory:
    """All that a store needs to serve a directory."""

    directory: LogDirectory
    meta: MetaProperties
    config: BrokerConfig
    """Includes what the cluster metadata sets for brokers."""
    was_clean: bool
    """All logs had been closed cleanly."""
    lock: Lock | None
    """None for a directory that is only read."""
    metadata: MetadataFolder
    topics: Topics
    loader: PartitionLoader
    deleted: DeletedFolders
    logs: dict[TopicPartition, PartitionLog]
    """Empty for a directory that is only read: its logs are loaded on first use."""
    offline: dict[TopicPartition, Exception]
    """The partitions that could not be loaded, and why."""
    unloaded: set[TopicPartition] = field(default_factory=set)
    """The partitions that are loaded on first use. They were closed cleanly, and stay as they are until then."""

    def load(self, partition: TopicPartition, removed_ids: Callable[[], set[str]], on_bytes: OnBytes) -> PartitionLog:
        """The log in a folder, to write to it. A folder that is left from a deleted topic is removed first."""
        topic = self.topics.get(partition.topic)
        try:
            return self.loader.load(partition, topic, on_bytes)
        except FolderOfAnotherTopic as error:
            if error.topic_id not in removed_ids():
                raise
        self.deleted.delete([partition])
        return self.loader.create(partition, topic)


class Opening:
    """One opening of one directory."""

    def __init__(
        self, files: FileSystem, path: str, config: BrokerConfig, *, clock: Clock, scheduler: Scheduler
    ) -> None:
        self._files = files
        self._directory = LogDirectory(files, path)
        self._config = config
        self._clock = clock
        self._scheduler = scheduler

    def for_reading(self) -> OpenedDirectory:
        live = self._directory.folders().live
        loader = self._loader(clean=True, read_only=True)
        metadata_folder = MetadataFolder(self._files, self._directory, loader.load_metadata_log)
        meta, metadata = _NO_META, ClusterMetadata()
        try:
            meta = self._directory.read_meta() or _NO_META
            metadata = metadata_folder.load()
            metadata_folder.warn_of_missing(metadata, has_topics=bool(live))
        except DuralogError as error:
            # Readers can do without: folders name the topics, and configs matter little to readers.
            _logger.warning("the metadata cannot be read: %s; topics come from folders, with default configs", error)
        present = set(live)
        topics = self._topics(
            metadata,
            metadata_folder,
            meta,
            open_log=_refuse_to_write,
            holds=lambda name, partition: (name, partition.partition) in present,
        )
        for name, partitions in _by_topic(live):
            known = topics.by_name[name].partitions if name in topics.by_name else ()
            found = [partition for partition in partitions if partition.partition not in known]
            if self._directory.are_partitions(found):
                topic_id = _first_id(_own_id(loader, partition) for partition in found)
                topics.add_found(name, topic_id, (partition.partition for partition in found))
        if not topics.by_name and meta is _NO_META and not metadata_folder.exists:
            self._directory.check()
        return self._opened(meta, metadata, metadata_folder, topics, loader, was_clean=True, lock=None)

    def for_reading_again(self, opened: OpenedDirectory, *, has_new_checkpoints: bool) -> OpenedDirectory:
        """The same topics, with the checkpoints as they are now. These are read again only if they have changed."""
        if not has_new_checkpoints:
            return replace(opened, logs={})
        loader = self._loader(clean=True, read_only=True)
        loader.producer_expiration_ms = opened.config.producer_id_expiration_ms
        return replace(opened, loader=loader, logs={})

    def for_writing(self, show: ShowProgress | None, *, load_on_use: bool = False) -> OpenedDirectory:
        """With `load_on_use`, no partition of a directory that was closed cleanly is loaded before it is used."""
        lock = self._directory.lock()
        try:
            opened = self._for_writing(lock)
            if load_on_use and opened.was_clean:
                opened.unloaded.update(set(self._directory.folders().live).intersection(_partitions(opened.topics)))
            else:
                self._load_all(opened, show)
        except BaseException:
            lock.release()
            raise
        _log_offline(opened)
        return opened

    def for_lending(self) -> OpenedDirectory:
        """As for writing, but no partition is loaded, nor made: `duralog.storage.borrowed_partition` does that."""
        lock = self._directory.lock()
        try:
            opened = self._for_writing(lock)
            self._finish_deletions(opened)
        except BaseException:
            lock.release()
            raise
        _log_offline(opened)
        return opened

    def _for_writing(self, lock: Lock) -> OpenedDirectory:
        meta = self._directory.read_meta()
        is_new = meta is None
        if meta is None:
            meta = self._directory.write_new_meta(self._config.node_id, self._clock())
        elif self._config.node_id not in (None, meta.node_id):
            raise InvalidConfig(
                f"node.id: {self._config.node_id} is not allowed, {self._directory.path} belongs to node {meta.node_id}"
            )
        clean = self._directory.take_clean_shutdown()
        loader = self._loader(clean=clean, read_only=False)
        metadata_folder = MetadataFolder(self._files, self._directory, loader.load_metadata_log)
        try:
            metadata = metadata_folder.load()
            leader_id = metadata_folder.leader_id()
        except CorruptRecord as error:
            # Stop here: without the configs, retention could delete data that must be kept. And the next start must not
            # take this one for a crash, after which it would truncate the log.
            if clean:
                self._directory.put_clean_shutdown()
            raise _with_advice(error, self._directory.path) from None
        node_id = _node_id(meta)
        topics = self._topics(
            metadata, metadata_folder, meta, open_log=lambda: metadata_folder.open_for_changes(node_id)
        )
        opened = self._opened(meta, metadata, metadata_folder, topics, loader, was_clean=clean, lock=lock)
        may_adopt = (is_new or metadata_folder.exists) and leader_id in (None, node_id)
        self._bring_together(opened, may_adopt=may_adopt)
        return opened

    def _bring_together(self, opened: OpenedDirectory, *, may_adopt: bool) -> None:
        """Reconcile folders and metadata, by the table above. Missing partitions are made when all are loaded."""
        folders = self._directory.folders()
        opened.deleted.remove_later(folders.deleted)
        topics = opened.topics
        has_lost_records = cache(opened.metadata.has_lost_records)
        removed_ids = cache(opened.metadata.removed_topic_ids)
        kept_forever = []
        for name, partitions in _by_topic(folders.live):
            if topics.is_in_metadata(name):
                known = topics.by_name[name].partitions if name in topics.by_name else ()
                misplaced = [partition for partition in partitions if partition.partition not in known]
                if self._directory.are_partitions(misplaced):
                    self._set_offline(opened, misplaced, "the cluster metadata does not place this partition here")
                continue
            if not self._directory.are_partitions(partitions):
                continue
            ids = {partition: _own_id(opened.loader, partition) for partition in partitions}
            kept = _not_of(removed_ids(), ids) if any(ids.values()) else ids
            if len(kept) < len(ids):
                opened.deleted.delete(partition for partition in partitions if partition not in kept)
            if has_lost_records():
                reason = "the topic is not in the cluster metadata, of which damaged records are in quarantine"
                self._set_offline(opened, kept, f"{reason}: its configs are not known")
            elif kept:
                topics.add_found(name, _first_id(kept.values()), (partition.partition for partition in kept))
                if topics.get(name).config.retention_ms == -1:
                    kept_forever.append(name)
                if may_adopt:
                    _adopt(topics, name)
        if kept_forever:
            _logger.warning(
                "%s: the metadata has no configs for %s, first %s: records are kept forever (retention.ms=-1) until"
                " retention.ms of the topic or log.retention.ms is set",
                self._directory.path,
                plural(len(kept_forever), "topic"),
                kept_forever[0],
            )

    def _set_offline(self, opened: OpenedDirectory, partitions: Iterable[TopicPartition], reason: str) -> None:
        for partition in partitions:
            opened.offline[partition] = StorageError(f"{self._directory.folder_of(partition)}: {reason}")

    def _load_all(self, opened: OpenedDirectory, show: ShowProgress | None) -> None:
        loader = opened.loader
        present = set(self._directory.folders().live)
        removed_ids = cache(opened.metadata.removed_topic_ids)

        def load(partition: TopicPartition, count: ByteCount) -> PartitionLog:
            if partition in present:
                return opened.load(partition, removed_ids, count.add)
            return loader.create(partition, opened.topics.get(partition.topic))

        wanted = _partitions(opened.topics)
        outcome = for_each_partition(
            wanted,
            load,
            threads=opened.config.num_recovery_threads_per_data_dir,
            bytes_total=_bytes_to_check(loader, present.intersection(wanted)) if show is not None else 0,
            show=show,
        )
        opened.logs.update(outcome.results)
        opened.offline.update(outcome.failures)

    def _finish_deletions(self, opened: OpenedDirectory) -> None:
        """Of older topics whose names are in use again. Loading all partitions would find them too."""
        removed_ids = cache(opened.metadata.removed_topic_ids)
        left_over = [
            partition
            for partition in self._directory.folders().live
            if (topic := opened.topics.by_name.get(partition.topic)) is not None
            and (own_id := _own_id(opened.loader, partition)) not in (None, topic.topic_id)
            and own_id in removed_ids()
        ]
        if left_over:
            opened.deleted.delete(left_over)

    def _loader(self, *, clean: bool, read_only: bool) -> PartitionLoader:
        return PartitionLoader(
            self._files,
            self._directory,
            producer_expiration_ms=self._config.producer_id_expiration_ms,
            clean=clean,
            read_only=read_only,
            clock=self._clock,
            run_later=self._scheduler.after,
        )

    def _topics(
        self,
        metadata: ClusterMetadata,
        folder: MetadataFolder,
        meta: MetaProperties,
        *,
        open_log: Callable[[], WritableLog],
        holds: Holds | None = None,
    ) -> Topics:
        return Topics(
            metadata,
            defaults=self._effective(metadata, meta).topic_defaults(),
            placement=Placement(_node_id(meta), meta.directory_id),
            holds=holds,
            open_log=open_log,
            clock=self._clock,
            bootstrap=folder.bootstrap,
        )

    def _effective(self, metadata: ClusterMetadata, meta: MetaProperties) -> BrokerConfig:
        return self._config.with_dynamic(metadata.broker_configs(_node_id(meta)))

    def _opened(
        self,
        meta: MetaProperties,
        metadata: ClusterMetadata,
        metadata_folder: MetadataFolder,
        topics: Topics,
        loader: PartitionLoader,
        *,
        was_clean: bool,
        lock: Lock | None,
    ) -> OpenedDirectory:
        config = self._effective(metadata, meta)
        loader.producer_expiration_ms = config.producer_id_expiration_ms
        delay_ms = config.log_segment_delete_delay_ms
        return OpenedDirectory(
            directory=self._directory,
            meta=meta,
            config=config,
            was_clean=was_clean,
            lock=lock,
            metadata=metadata_folder,
            topics=topics,
            loader=loader,
            deleted=DeletedFolders(self._files, self._directory, self._scheduler, delay_ms),
            logs={},
            offline={},
        )


def _partitions(topics: Topics) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics.by_name.values() for number in topic.partitions]


def _log_offline(opened: OpenedDirectory) -> None:
    for partition, error in opened.offline.items():
        _logger.error("%s is offline: %s", partition, error)


def _node_id(meta: MetaProperties) -> int:
    return DEFAULT_NODE_ID if meta.node_id is None else meta.node_id


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    """REQUIRES: they are sorted."""
    for name, group in groupby(partitions, key=lambda partition: partition.topic):
        yield name, list(group)


def _own_id(loader: PartitionLoader, partition: TopicPartition) -> str | None:
    """The topic id in the folder. Damage of the file is reported when the partition is loaded."""
    try:
        return loader.topic_id(partition)
    except DuralogError:
        return None


def _first_id(ids: Iterable[str | None]) -> str | None:
    """The id of a topic: the first that its folders have."""
    return next((topic_id for topic_id in ids if topic_id is not None), None)


def _not_of(removed_ids: set[str], ids: Mapping[TopicPartition, str | None]) -> dict[TopicPartition, str | None]:
    """Without the folders of deleted topics. A folder without an id belongs to the same topic as the others."""
    kept = {partition: topic_id for partition, topic_id in ids.items() if topic_id not in removed_ids}
    return kept if len(kept) == len(ids) or any(kept.values()) else {}


def _adopt(topics: Topics, name: str) -> None:
    try:
        topics.adopt(name)
    except (InvalidTopic, TopicExists) as error:
        _logger.warning("%s is not in the cluster metadata, so Kafka would not serve it: %s", name, error)


def _bytes_to_check(loader: PartitionLoader, partitions: Iterable[TopicPartition]) -> int:
    total = 0
    for partition in partitions:
        # A folder that cannot be listed cannot be loaded either: loading reports that, for this partition alone.
        with suppress(StorageError):
            total += loader.bytes_to_check(partition)
    return total


def _refuse_to_write() -> WritableLog:
    raise StorageError("the directory was opened for reading only")


def _with_advice(error: CorruptRecord, path: str) -> CorruptRecord:
    """The same error, with advice for metadata that cannot be loaded."""
    detail = "" if error.expected is None else f" (expected {error.expected}, found {error.found})"
    advice = (
        f"run duralog repair --dry-run {path} --topic {CLUSTER_METADATA}, bring the folder back from a backup,"
        " or start the Kafka that wrote it"
    )
    return CorruptRecord(
        f"{error.reason}{detail}; {advice}", fault=error.fault, file=error.file, position=error.position
    )
