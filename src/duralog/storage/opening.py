"""Opens directories: the steps, in order, until their topics and logs are known.

For writing: lock the directories; remove the clean-shutdown markers; read the metadata log; reconcile folders and
metadata; load all partitions in parallel, which recovers those that need it. A partition that cannot be loaded is
offline, and the others are served; so are those of a directory that cannot be used. For a short write to a few
partitions of clean directories, they are loaded on first use instead. For lending: the same, but tasks load the
partitions. For reading: nothing is locked or changed.

Folders and metadata may differ. For writing, they are reconciled:

| the metadata knows                     | a folder | then                                                            |
|----------------------------------------|----------|-----------------------------------------------------------------|
| the partition, on this node            | no       | the partition is made, as Kafka makes it; a warning is logged   |
|                                        |          | if a checkpoint has records of it, and with `keep_lost` it is   |
|                                        |          | offline (`duralog.storage.lost_partitions`)                     |
| the topic, but not this partition here | yes      | the partition is offline: Kafka would set the folder aside      |
| that an older topic of this name was   | yes      | the folder is deleted, and the partition made again             |
| deleted, with the folder's topic id    |          |                                                                 |
| that the topic was deleted             | yes      | the folder is deleted: a crash has interrupted that             |
| nothing                                | yes      | the topic is adopted, unless another node leads the metadata;   |
|                                        |          | unless a retention is configured, it keeps its records forever  |
| nothing, after a loss of records       | yes      | the partition is offline: retention must not go by defaults     |
| nothing, and no folder of the topic    | yes      | it is not a partition: the folder is left unchanged             |
| has files of a log                     |          |                                                                 |
| the partition, in another directory of | yes      | the metadata follows: it gets the id of this directory          |
| the store                              |          |                                                                 |
| the partition, in a directory that is  | no       | the partition is offline: it is there. Commands that only work  |
| offline, or that is not given          |          | on a directory leave out those of one that is not given         |

A directory without metadata gets it now if no node owns it yet. If it belongs to a Kafka node that keeps its metadata
in another directory, it gets none before a topic is created or changed here.
"""

from __future__ import annotations

import logging
import os.path
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice

from duralog.config import BrokerConfig
from duralog.config.plurals import plural
from duralog.errors import CorruptRecord, DuralogError, InvalidConfig, InvalidTopic, StorageError, TopicExists
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.properties import MetaProperties
from duralog.format.topic_partition import TopicPartition
from duralog.storage.deleted_folders import DeletedFolders
from duralog.storage.disk.background import Clock, Scheduler
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.log_directories import LogDirectories
from duralog.storage.disk.log_directory import DEFAULT_NODE_ID, Folders, LogDirectory
from duralog.storage.disk.parallel import ByteCount, ShowProgress, for_each_partition
from duralog.storage.future_folders import FutureFolders
from duralog.storage.log.loaded_log import LogEnvironment, OnFailure
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.lost_partitions import find_lost, warn_of_made_again
from duralog.storage.metadata.cluster_metadata import ClusterMetadata
from duralog.storage.metadata.folder import MetadataFolder
from duralog.storage.metadata.topics import Holds, Topics, WritableLog
from duralog.storage.opened_store import OpenedStore, by_topic
from duralog.storage.ownership import NO_META, read_owner, take_over
from duralog.storage.partition_loading import PartitionLoader
from duralog.storage.placement import DirectoryPlacement

_logger = logging.getLogger(__name__)
# A logger of its own: commands whose report has these partitions do not show it (`duralog.cli.voice.logs`).
_offline_logger = logging.getLogger(f"{__name__}.offline")

_MOST_OFFLINE_LOGGED = 20


class Opening:
    """One opening of the directories of a store."""

    def __init__(
        self,
        files: FileSystem,
        paths: Sequence[str],
        config: BrokerConfig,
        *,
        clock: Clock,
        scheduler: Scheduler,
        on_failure: OnFailure | None = None,
    ) -> None:
        self._files = files
        self._directories = LogDirectories.at(files, paths, _metadata_path(paths, config))
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._on_failure = on_failure if self._directories.are_several else None

    @property
    def owned_paths(self) -> list[str]:
        """The directories, with that of the metadata log."""
        return [directory.path for directory in self._directories.owned]

    def for_reading(self) -> OpenedStore:
        directories = self._directories
        directories.find_folders()
        live = directories.live()
        loader = self._loader(read_only=True)
        metadata_folder = MetadataFolder(self._files, directories.metadata, loader.load_metadata_log)
        meta, metadata = NO_META, ClusterMetadata()
        try:
            meta = read_owner(directories) or NO_META
            metadata = metadata_folder.load()
            metadata_folder.warn_of_missing(metadata, has_topics=bool(live))
        except InvalidConfig:
            raise  # The directories do not belong together.
        except DuralogError as error:
            # Readers can do without: folders name the topics, and configs matter little to readers.
            _logger.warning("the metadata cannot be read: %s; topics come from folders, with default configs", error)
        present = set(live)
        placement = self._placement(metadata, meta)
        topics = self._topics(
            metadata,
            metadata_folder,
            placement,
            open_log=_refuse_to_write,
            holds=lambda name, partition: (name, partition.partition) in present,
        )
        for name, partitions in by_topic(live):
            known = set(topics.by_name[name].partitions) if name in topics.by_name else ()
            found = [partition for partition in partitions if partition.partition not in known]
            if directories.are_partitions(found):
                topic_id = _first_id(_own_id(loader, partition) for partition in found)
                topics.add_found(name, topic_id, (partition.partition for partition in found))
        if not topics.by_name and meta is NO_META and not metadata_folder.exists:
            directories.check()
        return self._opened(meta, metadata_folder, topics, loader, placement, metadata=metadata, read_only=True)

    def for_reading_again(self, opened: OpenedStore, *, has_new_checkpoints: bool) -> OpenedStore:
        """The same topics, with the checkpoints as they are now. These are read again only if they have changed."""
        if not has_new_checkpoints:
            return replace(opened, logs={})
        loader = self._loader(read_only=True)
        loader.producer_expiration_ms = opened.config.producer_id_expiration_ms
        return replace(opened, loader=loader, logs={})

    def for_writing(
        self, show: ShowProgress | None, *, load_on_use: bool = False, keep_lost: bool = False
    ) -> OpenedStore:
        """With `load_on_use`, no partition of directories that were closed cleanly is loaded before it is used.

        With `keep_lost`, a lost partition is offline, and not made again. Without it, the store serves all partitions
        of the node: those in directories that are not given are offline.
        """
        self._directories.lock()
        try:
            opened = self._for_writing(with_absent=not keep_lost)
            self._report_lost(opened, keep_lost=keep_lost)
            if load_on_use and opened.was_clean:
                opened.unloaded.update(set(self._directories.live()).intersection(_partitions(opened.topics)))
            else:
                self._load_all(opened, show)
            self._write_assignments(opened)
        except BaseException:
            self._directories.release()
            raise
        _log_offline(opened)
        return opened

    def for_lending(self) -> OpenedStore:
        """As for writing, but no partition is loaded, nor made: `duralog.storage.borrowed_partition` does that."""
        self._directories.lock()
        try:
            opened = self._for_writing()
            self._report_lost(opened, keep_lost=True)
            self._finish_deletions(opened)
        except BaseException:
            self._directories.release()
            raise
        _log_offline(opened)
        return opened

    def _for_writing(self, *, with_absent: bool = False) -> OpenedStore:
        directories = self._directories
        meta, is_new = take_over(directories, self._config.node_id, self._clock)
        # Before the markers are removed: a partition in two directories must not make the next start recover all.
        folders = directories.find_folders()
        for directory in directories.owned:
            if directory.failure is None:
                directory.take_clean_shutdown()
        loader = self._loader(read_only=False)
        metadata_folder = MetadataFolder(self._files, directories.metadata, loader.load_metadata_log)
        try:
            metadata = metadata_folder.load()
            leader_id = metadata_folder.leader_id()
        except CorruptRecord as error:
            # Stop here: without the configs, retention could delete data that must be kept. And the next start must not
            # take this one for a crash, after which it would truncate the log.
            for directory in directories.owned:
                if directory.was_clean:
                    directory.put_clean_shutdown()
            raise _with_advice(error, directories.metadata.path) from None
        node_id = _node_id(meta)
        placement = self._placement(metadata, meta, with_absent=with_absent)
        topics = self._topics(
            metadata, metadata_folder, placement, open_log=lambda: metadata_folder.open_for_changes(node_id)
        )
        opened = self._opened(meta, metadata_folder, topics, loader, placement, metadata=metadata, read_only=False)
        may_adopt = (is_new or metadata_folder.exists) and leader_id in (None, node_id)
        futures = FutureFolders(self._files, directories, topics, metadata_folder, opened.deleted)
        opened.futures.extend(futures.settle(folders))
        self._bring_together(opened, folders, may_adopt=may_adopt)
        if with_absent:
            for partition, directory_id in opened.absent.items():
                opened.offline[partition] = StorageError(
                    f"it is in the log directory with the id {directory_id}, which was not given: give all log.dirs of"
                    " the node, restore its folder to one of them, or delete the topic"
                )
        _log_wrong_node(opened, metadata)
        return opened

    def _bring_together(self, opened: OpenedStore, folders: Mapping[LogDirectory, Folders], *, may_adopt: bool) -> None:
        """Reconcile folders and metadata, by the table above. Missing partitions are made when all are loaded."""
        directories = self._directories
        for directory, found in folders.items():
            opened.deleted.remove_later(directory, found.deleted)
        topics = opened.topics
        has_lost_records = cache(opened.metadata.has_lost_records)
        removed_ids = cache(opened.metadata.removed_topic_ids)
        kept_forever = []
        for name, partitions in by_topic(directories.live()):
            if topics.is_in_metadata(name):
                known = set(topics.by_name[name].partitions) if name in topics.by_name else ()
                misplaced = [partition for partition in partitions if partition.partition not in known]
                if directories.are_partitions(misplaced):
                    self._set_offline(opened, misplaced, "the cluster metadata does not place this partition here")
                continue
            if not directories.are_partitions(partitions):
                continue
            ids = {partition: _own_id(opened.loader, partition) for partition in partitions}
            kept = _not_of(removed_ids(), ids) if any(ids.values()) else ids
            if len(kept) < len(ids):
                opened.delete_folders(partition for partition in partitions if partition not in kept)
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
                directories.path,
                plural(len(kept_forever), "topic"),
                kept_forever[0],
            )

    def _set_offline(self, opened: OpenedStore, partitions: Iterable[TopicPartition], reason: str) -> None:
        for partition in partitions:
            opened.offline[partition] = StorageError(f"{self._directories.folder_of(partition)}: {reason}")

    def _missing(self, opened: OpenedStore) -> list[TopicPartition]:
        """The partitions of the metadata that have no folder."""
        known = {*self._directories.live(), *opened.offline}
        return [partition for partition in _partitions(opened.topics) if partition not in known]

    def _report_lost(self, opened: OpenedStore, *, keep_lost: bool) -> None:
        lost = find_lost(self._directories, self._missing(opened))
        if not keep_lost:
            warn_of_made_again(lost)
            return
        for partition, records in lost.items():
            opened.offline[partition] = StorageError(
                f"{records}. Restore the folder from a backup or another copy; to continue without the records, let"
                " duralog serve or duralog.open make the partition again, empty"
            )

    def _load_all(self, opened: OpenedStore, show: ShowProgress | None) -> None:
        loader = opened.loader
        present = set(self._directories.live())
        removed_ids = cache(opened.metadata.removed_topic_ids)
        opened.place_missing(self._missing(opened))

        def load(partition: TopicPartition, count: ByteCount) -> PartitionLog:
            if partition in present:
                return opened.load(partition, removed_ids, count.add)
            return loader.create(partition, opened.topics.get(partition.topic))

        wanted = [partition for partition in _partitions(opened.topics) if partition not in opened.offline]
        outcome = for_each_partition(
            wanted,
            load,
            threads=opened.config.num_recovery_threads_per_data_dir * len(self._directories.online),
            bytes_total=_bytes_to_check(loader, present.intersection(wanted)) if show is not None else 0,
            show=show,
        )
        opened.logs.update(outcome.results)
        opened.offline.update(outcome.failures)

    def _write_assignments(self, opened: OpenedStore) -> None:
        """With several directories, the metadata says in which of them a partition is, as Kafka's brokers report it."""
        if not self._directories.are_several:
            return
        actual = {
            partition: directory_id
            for partition in (*opened.logs, *opened.unloaded)
            if (directory_id := self._directories.directory_of(partition).directory_id) is not None
            and opened.topics.get(partition.topic).directory_ids.get(partition.partition) != directory_id
        }
        if actual and opened.metadata.leader_id() in (None, opened.placement.node_id):
            opened.topics.assign_directories(actual)

    def _finish_deletions(self, opened: OpenedStore) -> None:
        """Of older topics whose names are in use again. Loading all partitions would find them too."""
        removed_ids = cache(opened.metadata.removed_topic_ids)
        left_over = [
            partition
            for partition in self._directories.live()
            if (topic := opened.topics.by_name.get(partition.topic)) is not None
            and (own_id := _own_id(opened.loader, partition)) not in (None, topic.topic_id)
            and own_id in removed_ids()
        ]
        if left_over:
            opened.delete_folders(left_over)

    def _loader(self, *, read_only: bool) -> PartitionLoader:
        directories = self._directories
        environment = LogEnvironment(
            file_system=self._files,
            clock=self._clock,
            run_later=self._scheduler.after,
            on_failure=self._on_failure,
        )
        return PartitionLoader(
            environment,
            directories,
            producer_expiration_ms=self._config.producer_id_expiration_ms,
            is_clean=lambda partition: read_only or directories.directory_of(partition).was_clean,
            read_only=read_only,
        )

    def _placement(
        self, metadata: ClusterMetadata, meta: MetaProperties, *, with_absent: bool = False
    ) -> DirectoryPlacement:
        node_id = _node_id(meta)
        config = self._config.with_dynamic(metadata.broker_configs(node_id))
        return DirectoryPlacement(node_id, self._directories, config, with_absent=with_absent)

    def _topics(
        self,
        metadata: ClusterMetadata,
        folder: MetadataFolder,
        placement: DirectoryPlacement,
        *,
        open_log: Callable[[], WritableLog],
        holds: Holds | None = None,
    ) -> Topics:
        return Topics(
            metadata,
            defaults=placement.config.topic_defaults(),
            placement=placement,
            holds=holds,
            open_log=open_log,
            clock=self._clock,
            bootstrap=folder.bootstrap,
        )

    def _opened(
        self,
        meta: MetaProperties,
        metadata_folder: MetadataFolder,
        topics: Topics,
        loader: PartitionLoader,
        placement: DirectoryPlacement,
        *,
        metadata: ClusterMetadata,
        read_only: bool,
    ) -> OpenedStore:
        config = placement.config
        loader.producer_expiration_ms = config.producer_id_expiration_ms
        delay_ms = config.log_segment_delete_delay_ms
        return OpenedStore(
            directories=self._directories,
            meta=meta,
            config=config,
            read_only=read_only,
            metadata=metadata_folder,
            topics=topics,
            placement=placement,
            loader=loader,
            deleted=DeletedFolders(self._files, self._directories, self._scheduler, delay_ms),
            logs={},
            offline={},
            absent=placement.absent(metadata.topics),
        )


def _metadata_path(paths: Sequence[str], config: BrokerConfig) -> str | None:
    """The directory of the metadata log by the configs, unless they are of other directories than a backup's."""
    configured = config.log_dirs or (config.log_dir if "log.dir" in config.given else paths)
    is_theirs = set(map(os.path.realpath, paths)) <= set(map(os.path.realpath, configured))
    return config.metadata_log_dir if is_theirs else None


def _partitions(topics: Topics) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics.by_name.values() for number in topic.partitions]


def _log_wrong_node(opened: OpenedStore, metadata: ClusterMetadata) -> None:
    """A directory whose `meta.properties` is another node's, or was edited, serves nothing: the reason is one line."""
    known = metadata.topics
    registered = (known[name].partitions.get(number) for name, number in opened.offline if name in known)
    nodes = {node for found in registered if found is not None for node in found.replicas}
    if nodes and opened.placement.node_id not in nodes:
        _logger.error(
            "%s belongs to node %d, but the cluster metadata places its partitions on node %s: check node.id in"
            " meta.properties",
            *(opened.directories.path, opened.placement.node_id),
            ", ".join(map(str, sorted(nodes))),
        )


def _log_offline(opened: OpenedStore) -> None:
    for partition, error in islice(opened.offline.items(), _MOST_OFFLINE_LOGGED):
        _offline_logger.error("%s is offline: %s", partition, error)
    if (more := len(opened.offline) - _MOST_OFFLINE_LOGGED) > 0:
        _offline_logger.error("%s offline", f"{plural(more, 'more partition')} {'is' if more == 1 else 'are'}")


def _node_id(meta: MetaProperties) -> int:
    return DEFAULT_NODE_ID if meta.node_id is None else meta.node_id


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
