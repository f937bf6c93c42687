"""A store: one or more log directories with their topics and logs, and the background threads that maintain them.

Opened for writing, the directories are locked, and background threads flush, retain and compact. Closing stops them,
closes all logs in parallel, writes the checkpoints, and at the very end the markers of a clean shutdown. A directory
in which a log could not be closed or recovered gets no marker, so that the next start recovers.

Of several directories (Kafka's `log.dirs`), one that fails takes its partitions offline and no others
(`duralog.storage.directory_failures`). `move_partition` moves a partition from one to another.

A store belongs to the process that opened it. In a forked child it behaves like a closed one, and `close` only closes
descriptors (`duralog.storage.disk.forks`). A writer whose lock file was removed writes nothing from then on, and leaves
no marker: another process may have opened the directory.

Opened read-only, nothing is locked, nothing runs in the background and no file changes. So it works on a directory that
another process writes to. A partition is loaded on first use, and stays as it was then until `refresh`
(`duralog.storage.read_only_directory`).

Any thread may call any method. Changes of topics wait for each other (`duralog.storage.topic_changes`); appends, reads
and lookups of logs do not wait for them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import MappingProxyType, TracebackType

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import DuralogError, StorageError, TopicExists
from duralog.format.topic_partition import TopicPartition
from duralog.notebook.notebook_tables import store_html
from duralog.storage.compaction.cleaned_partitions import CleanerOwner
from duralog.storage.compaction.cleaner import Cleaner
from duralog.storage.compaction.report import CompactionReport, ShowCompaction
from duralog.storage.compaction.settings import ignore
from duralog.storage.directory_failures import DirectoryFailures
from duralog.storage.disk.background import BackgroundError, Clock, Scheduler, wall_clock_ms
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem, LockLost, raise_open_file_limit
from duralog.storage.disk.log_directories import LogDirectories, log_directories
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.disk.parallel import ShowProgress
from duralog.storage.held_records import HeldTopic
from duralog.storage.log.flush_times import FlushTimes
from duralog.storage.log.partition_log import Logs, PartitionLog
from duralog.storage.log.retention import (
    BUILT_IN_POLICIES,
    COMPACT,
    BeyondAge,
    RetentionPolicy,
    RetentionReport,
)
from duralog.storage.metadata.acls import Acl, AclFilter
from duralog.storage.metadata.client_quotas import ClientQuotas, QuotaChanges
from duralog.storage.metadata.scram import ScramChanges, ScramCredential, ScramUser
from duralog.storage.metadata.topics import MovedTopic, Topic
from duralog.storage.open_logs import OpenLogs
from duralog.storage.opened_store import OpenedStore
from duralog.storage.opening import Opening
from duralog.storage.partition_moves import PartitionMove, PartitionMoves, ShowMove
from duralog.storage.placement import warn_of_absent
from duralog.storage.read_only_directory import DirectoryView, ReadOnlyDirectory
from duralog.storage.store_retention import StoreRetention
from duralog.storage.topic_changes import TopicChanges
from duralog.storage.upkeep import Upkeep

_LOCK_CHECK_MS = 1000
_MOST_SHOWN = 200
"""With more partitions than this, a notebook shows only those that are loaded."""


class Store:
    """One or more log directories; `duralog.open` returns it. Belongs to this process, and not to children of it."""

    _warns_of_absent = True
    """Whether readers and commands are warned of partitions in directories that were not given."""

    # These are the options of `duralog.open`, which users and tests give by name.
    def __init__(
        self,
        path: str | Sequence[str],
        *,
        config: BrokerConfig | None = None,
        read_only: bool = False,
        retention_policies: Sequence[RetentionPolicy] = BUILT_IN_POLICIES,
        show_progress: ShowProgress | None = None,
        file_system: FileSystem | None = None,
        clock: Clock = wall_clock_ms,
        scheduler: Scheduler | None = None,
        load_on_use: bool = False,
        keep_lost: bool = False,
    ) -> None:
        """`path` is a directory, or several. One that `config` lists in `log.dirs` is opened together with the others.

        With `load_on_use`, a partition that was closed cleanly is loaded when it is first used.

        That is for a short write to a few of many partitions, with a scheduler that runs nothing: retention and the
        cleaner would have to know all logs. With `keep_lost`, a partition whose records are lost is not made again, but
        offline: for commands (`duralog.storage.lost_partitions`).
        """
        assert not load_on_use or scheduler is not None
        self.paths = log_directories(path, None if config is None else config.log_dirs)
        """All log directories."""
        self.path = self.paths[0]
        self.read_only = read_only
        self._clock = clock
        self._policies = tuple(retention_policies)
        self._deletes_by_age = any(isinstance(policy, BeyondAge) for policy in self._policies)
        self._given_config = config or BrokerConfig()
        self._scheduler = scheduler or Scheduler(threads=0 if read_only else 2)
        self._has_threads = scheduler is None and not read_only
        self._cleaner_scheduler = self._scheduler
        self._directories: LogDirectories | None = None
        self._failures: DirectoryFailures | None = None
        files = self._files = file_system or LocalFileSystem()
        self._refreshing = threading.Lock()
        try:
            opening = Opening(
                files,
                self.paths,
                self._given_config,
                clock=clock,
                scheduler=self._scheduler,
                on_failure=self._report_failure,
            )
            self._followed = ReadOnlyDirectory(files, self.paths, opening, clock)
            if read_only:
                opened = opening.for_reading()
            else:
                raise_open_file_limit()
                opened = opening.for_writing(show_progress, load_on_use=load_on_use, keep_lost=keep_lost)
            if self._warns_of_absent and (read_only or keep_lost):
                warn_of_absent(self.paths, opened.absent)
            self._directories = opened.directories
            self._open = OpenLogs(opened)
            if self._has_threads and opened.config.log_cleaner_enable:
                self._cleaner_scheduler = Scheduler(threads=opened.config.log_cleaner_threads, name="duralog-cleaner")
            self._maintain(opened)
            self._serve(opened)
            if not read_only:
                self._start(opened)
        except BaseException:
            self._let_go()
            raise

    def _start(self, opened: OpenedStore) -> None:
        self._open.on_load = self._take_over
        opened.loader.cleaner_checkpoint = self.cleaner.checkpoint
        if opened.directories.are_several:
            self._failures = DirectoryFailures(opened, self._open, self.cleaner, self._scheduler, self._moves.cancel_in)
            self._failures.check_loaded()
        self._upkeep.keep((*opened.offline, *opened.unloaded))
        self._upkeep.checkpoint()
        self._upkeep.start(self._retention.run_unasked, deletes_by_age=self._deletes_by_age)
        self.cleaner.start()
        self._scheduler.every(_LOCK_CHECK_MS, "check of the lock", self._check_lock, first_after_ms=_LOCK_CHECK_MS)
        if self._has_threads:
            for move in self._moves.resume():
                self._moves.run_later(move)

    def _report_failure(self, folder: str, error: BaseException) -> None:
        if self._failures is not None:
            self._failures.report_log(folder, error)

    def _maintain(self, opened: OpenedStore) -> None:
        # Of a read-only store, no log is maintained; threads may load some meanwhile.
        logs: Logs = dict if self.read_only else self._logs_now
        self._upkeep = Upkeep(opened.directories, opened.config, self._scheduler, logs=logs, clock=self._clock)
        cleaner_owner = CleanerOwner(
            directory=opened.directories,
            logs=self._load_compacted if self.read_only else self._logs_now,
            clock=self._clock,
            scheduler=self._cleaner_scheduler,
            report_error=self._scheduler.report,
            write_checkpoints=self._upkeep.checkpoint,
        )
        self.cleaner = Cleaner(cleaner_owner, opened.config)
        """Compacts in the background, and shows its state."""

    def _take_over(self, log: PartitionLog) -> None:
        self.cleaner.take_over(TopicPartition(log.topic, log.partition), log)
        self._upkeep.take_over(log)

    def _serve(self, opened: OpenedStore) -> None:
        self._opened = opened
        self._topics = opened.topics
        self._moves = PartitionMoves(
            self._files, opened, self._open, self.cleaner, self._upkeep, self._scheduler.report
        )
        self._retention = StoreRetention(
            opened, self._open, self._find_log, self._upkeep, self._scheduler, self._policies, self._clock
        )
        self._changes = TopicChanges(
            opened, self._given_config, self._open, self.cleaner, self._upkeep, self._moves.cancel
        )

    # Contents

    @property
    def config(self) -> BrokerConfig:
        """The configs that the store was opened with, overridden by those of brokers in the cluster metadata."""
        return self._changes.config

    @property
    def given_config(self) -> BrokerConfig:
        """The configs that the store was opened with."""
        return self._given_config

    @property
    def cluster_id(self) -> str | None:
        return self._opened.meta.cluster_id

    @property
    def node_id(self) -> int | None:
        return self._opened.meta.node_id

    @property
    def features(self) -> Mapping[str, int]:
        """The levels of Kafka's features; those of a new directory if the metadata has none yet."""
        return self._topics.features

    @property
    def offline(self) -> Mapping[TopicPartition, Exception]:
        """The partitions that could not be loaded, and why. `partition` raises for them."""
        return MappingProxyType(self._opened.offline)

    @property
    def failure(self) -> StorageError | None:
        """Why the store has failed: all its directories are offline, or that of the metadata log. Close it then."""
        return None if self._failures is None else self._failures.failure

    def on_failure(self, call: Callable[[], None]) -> None:
        """Have this called, on any thread, when the store fails (`failure`)."""
        if self._failures is not None:
            self._failures.on_failure = call
            if self._failures.failure is not None:
                call()

    @property
    def background_errors(self) -> tuple[BackgroundError, ...]:
        """Errors of the background threads, the latest last."""
        return self._scheduler.errors

    @property
    def background_error_count(self) -> int:
        """All errors of the background threads so far. `background_errors` keeps the latest ones only."""
        return self._scheduler.error_count

    @property
    def flush_times(self) -> FlushTimes:
        """How long the flushes of all logs took."""
        return self._opened.loader.flush_times

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The open logs. The mapping is replaced when one is opened or closed, so that a holder can see the change.

        In a read-only store: those that were used since the last `refresh` that saw a change in them. They are added to
        the mapping in place, so copy it with `dict` before you iterate; only `refresh` replaces it.
        """
        return self._open.by_partition

    def topics(self) -> list[str]:
        return sorted(self._topics.by_name)

    def find_topic(self, name: str) -> Topic | None:
        """All that is known about a topic now; None if there is no topic of the name."""
        return self._topics.by_name.get(name)

    def partitions(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions in this directory."""
        return list(self._topics.get(topic).partitions)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has in all: in this directory, in another, or not made yet."""
        return self._topics.partition_count(topic)

    def topic_id(self, topic: str) -> str | None:
        """Kafka's id of the topic; None for a topic without metadata whose folders have no id."""
        return self._topics.get(topic).topic_id

    def topic_config(self, topic: str) -> TopicConfig:
        """The configs in effect: the store's, overridden by the topic's own."""
        return self._topics.get(topic).config

    def topic_overrides(self, topic: str) -> dict[str, str]:
        """The configs that the topic sets itself, as they are stored."""
        return dict(self._topics.get(topic).overrides)

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition, also of `__cluster_metadata`."""
        log = self._open.by_partition.get(TopicPartition(topic, partition))
        return log if log is not None and not self._open.is_closed else self._find_log(TopicPartition(topic, partition))

    @contextmanager
    def loaded(self, topic: str, partition: int) -> Iterator[PartitionLog]:
        """The log of a partition as its files are now. It is closed at the end of the `with` block.

        Nothing stays open after it, so that deleted files do not keep their space. Topic, configs and log start are
        those of the last `refresh`. Only for a store that was opened with `read_only=True`. Raises `UnknownTopic` for
        `__cluster_metadata`, too: use `partition`.
        """
        self._check_read_only()
        log = self._open.load(TopicPartition(topic, partition))
        try:
            yield log
        finally:
            log.close()

    def refresh(self) -> DirectoryView:
        """Read again what has changed in the directory. Only for a store that was opened with `read_only=True`.

        From then on, topics and configs are those of now, and `partition` returns logs with all records that are there
        now; a log that was returned before stays as it was. What has not changed is not read again: a quiet partition
        costs two `stat` calls. Returns the partitions as they are now: their segments, sizes and offsets, and an
        error for one that cannot be read. Raises `StorageError` if the directory cannot be listed; the store stays as
        it was then, and can be refreshed again. Only for directories of this machine, not for object stores.
        """
        self._check_read_only()
        with self._refreshing:
            found = self._followed.refresh(self._opened)
            if found.opened is not self._opened:
                try:
                    self._open.refresh(found.opened, found.unchanged)
                    if found.opened.loader is not self._opened.loader:
                        self._maintain(found.opened)
                    self._serve(found.opened)
                except BaseException:
                    self._followed.start_over()
                    raise
            return found.view

    def _check_read_only(self) -> None:
        self._open.check_open()
        if not self.read_only:
            raise StorageError(f"{self.path}: the store is open for writing, so it always has what is there now")

    def _repr_html_(self) -> str:
        everywhere = self._open.everywhere()
        may_load = self.read_only and not self._open.is_closed and len(everywhere) <= _MOST_SHOWN
        logs: dict[str, list[PartitionLog]] = {}
        with ExitStack() as loaded:
            for partition in everywhere:
                log = self._open.by_partition.get(partition)
                if log is None and may_load:
                    # Only for the table: a reader that uses it later must see it as it is then.
                    with suppress(DuralogError):
                        log = loaded.enter_context(self.loaded(*partition))
                if log is not None:
                    logs.setdefault(partition.topic, []).append(log)
            return store_html(self, logs)

    def _logs_now(self) -> Mapping[TopicPartition, PartitionLog]:
        return self._open.by_partition

    def _find_log(self, partition: TopicPartition) -> PartitionLog:
        log = self._open.find(partition)
        return log if log is not None else self._changes.make_missing(partition)

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, object] | None = None,
        *,
        exist_ok: bool = False,
    ) -> str:
        """Create a topic, with its own configs by Kafka's names. Returns its id.

        With `exist_ok`, a topic that exists is left as it is, whatever its partitions and configs.
        """
        try:
            return self._changes.create_topic(name, partitions, config or {})
        except TopicExists:
            # Also raised for a name that collides with another one, such as a.b and a_b.
            found = self.topic_id(name) if exist_ok and name in self.topics() else None
            if found is None:
                raise
            return found

    def restore_topic(self, moved: MovedTopic) -> None:
        """Create a topic that comes from another directory, with its id, configs and leader epochs."""
        self._changes.restore_topic(moved)

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase the number of a topic's partitions to `total`."""
        self._changes.add_partitions(topic, total)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. Its folders are removed after `log.segment.delete.delay.ms`; open files stay readable."""
        self._changes.delete_topic(topic)

    def alter_topic_config(self, topic: str, changes: Mapping[str, object]) -> TopicConfig:
        """Set configs of a topic; None removes one. They take effect at once."""
        return self._changes.alter_topic_config(topic, changes)

    def take_producer_ids(self) -> range:
        """Allocate a block of producer ids. The metadata records it: neither duralog nor Kafka hands them out again."""
        return self._changes.take_producer_ids()

    def raise_producer_ids(self, next_producer_id: int) -> None:
        """Give out no producer id below this one: logs from elsewhere have them."""
        self._changes.raise_producer_ids(next_producer_id)

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What the cluster metadata sets for a broker, for all brokers (`ALL_BROKERS`) or for a group."""
        return self._topics.configs_of(resource_type, name)

    def configured(self, resource_type: int) -> list[str]:
        """The names of brokers, groups or client metrics that have configs in the cluster metadata."""
        return self._topics.configured(resource_type)

    @property
    def client_quotas(self) -> ClientQuotas:
        """The quotas in the cluster metadata: a value that is replaced on a change."""
        return self._topics.client_quotas

    def alter_client_quotas(self, changes: QuotaChanges) -> None:
        """Set quotas; None removes one. All changes are made, or none."""
        self._changes.alter_client_quotas(changes)

    def set_feature_levels(self, levels: Mapping[str, int]) -> None:
        """Set levels of Kafka's features, unchecked."""
        self._changes.set_feature_levels(levels)

    @property
    def metadata_epoch(self) -> int:
        """The leader epoch in which the metadata log is written."""
        return self._topics.leader_epoch

    def alter_configs_of(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of brokers or of a group; None removes one. Those of this broker take effect at once.

        They are not checked: invalid ones have no effect, and are listed in `BrokerConfig.ignored`.
        """
        self._changes.alter_configs_of(resource_type, name, changes)

    @property
    def acls(self) -> Sequence[Acl]:
        """The access control entries: another object after each change of them."""
        return self._topics.acls

    def create_acls(self, acls: Sequence[Acl]) -> None:
        """Add access control entries, all or none. Those that exist already change nothing."""
        self._changes.create_acls(acls)

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove the access control entries that any of the filters selects. Returns those of each filter."""
        return self._changes.delete_acls(filters)

    @property
    def scram_credentials(self) -> Mapping[ScramUser, ScramCredential]:
        """The SCRAM credentials of users, by name and mechanism."""
        return self._topics.scram_credentials

    def alter_scram_credentials(self, changes: ScramChanges) -> None:
        """Set SCRAM credentials of users; None removes one, which must exist."""
        self._changes.alter_scram_credentials(changes)

    # Directories

    @property
    def log_directories(self) -> tuple[LogDirectory, ...]:
        """The directories of the store, in the order of `paths`. One with a `failure` is offline."""
        return self._opened.directories.all

    def directory_of(self, topic: str, partition: int) -> str:
        """The path of the directory that a partition is in."""
        return self._opened.directories.directory_of(TopicPartition(topic, partition)).path

    @property
    def moves(self) -> tuple[PartitionMove, ...]:
        """The partitions that are being moved to another directory now."""
        return self._moves.running

    def move_partition(
        self, topic: str, partition: int, directory: str | os.PathLike[str], *, on_progress: ShowMove | None = None
    ) -> None:
        """Move a partition to another directory of this store, and return when it is there.

        Records can be appended and read meanwhile. `on_progress` is called with the `PartitionMove`.
        """
        move = self._begin_move(topic, partition, directory)
        if move is not None and not self._moves.run(move, on_progress):
            raise StorageError(f"{move.partition}: the move to {move.target} was cancelled")

    def start_move(self, topic: str, partition: int, directory: str | os.PathLike[str]) -> None:
        """The same, but return at once. Errors are in `background_errors`; to where it is cancels another move."""
        move = self._begin_move(topic, partition, directory)
        if move is not None:
            self._moves.run_later(move)

    def _begin_move(self, topic: str, partition: int, directory: str | os.PathLike[str]) -> PartitionMove | None:
        self._open.check_writable()
        path = os.fspath(directory)
        self._moves.directory_at(path)  # The other error would be for an offline partition.
        return self._moves.begin(self.partition(topic, partition), path)

    # Retention

    @property
    def held(self) -> Sequence[HeldTopic]:
        """What the default retention does not delete, because it had expired when the directory was opened.

        The largest first. It stays until a retention is configured or `apply_retention` is called.
        """
        self._open.check_open()
        return self._upkeep.held_topics() if self._deletes_by_age and not self.read_only else ()

    def plan_retention(self, policies: Iterable[RetentionPolicy] | None = None) -> RetentionReport:
        """What `apply_retention` would delete now, and why. Nothing is changed."""
        return self._retention.run(policies, delete=False)

    def apply_retention(self, policies: Iterable[RetentionPolicy] | None = None) -> RetentionReport:
        """Delete the segments that have expired, by these policies or those that the store was opened with.

        If no retention is configured, the default of seven days applies, also to what is `held`.
        """
        self._open.check_writable()
        return self._retention.run(policies, delete=True)

    # Compaction

    def compact(
        self,
        topic: str,
        partition: int,
        *,
        workers: int | None = None,
        memory_bytes: int | None = None,
        again: bool = False,
        on_progress: ShowCompaction | None = None,
    ) -> CompactionReport:
        """Compact a partition now, however little of it is new, and return when it is done.

        `cleanup.policy` must contain `compact`. If there is nothing to do, a note in the report says why. If the log is
        being compacted already, this waits for that first. `workers` is the number of threads, by default
        `log.cleaner.threads`; `memory_bytes` is for the offset map, by default a cleaner thread's share. `on_progress`
        is called with the progress, while the log is being compacted: it must not change topics. Another thread that
        deletes this one waits for the compaction, and such a change waits for that thread. With `again`, what was
        compacted before counts as new, so that an idle log loses its tombstones, too.
        """
        self._open.check_writable()
        log = self.partition(topic, partition)
        settings = self.cleaner.settings.on_request(
            workers=workers, memory_bytes=memory_bytes, on_progress=on_progress or ignore
        )
        return self.cleaner.compact(TopicPartition(topic, partition), log, settings, again=again)

    def _load_compacted(self) -> Mapping[TopicPartition, PartitionLog]:
        """The open logs, and those of compacted topics that can be loaded."""
        for partition in self._open.everywhere():
            if COMPACT in self.topic_config(partition.topic).cleanup_policy:
                with suppress(DuralogError):
                    self.partition(*partition)
        return dict(self._open.by_partition)

    # Closing

    def close(self) -> None:
        """Sync everything and unlock the directory. Closing again does nothing.

        In a forked child of the process that opened the store, nothing is written, and the directory stays locked.
        """
        if self._open.is_inherited:
            self._open.let_go_of_inherited()
            return
        if not self._open.end():
            return
        try:
            self._moves.stop()
            self.cleaner.stop()
            self._scheduler.stop()
            try:
                self._check_lock()
            finally:
                failures = self._open.close(self.config.num_recovery_threads_per_data_dir)
            if not self.read_only:
                self._upkeep.checkpoint()
                self._open.put_clean_shutdown(failures)
        finally:
            self._let_go()
        for error in failures.values():
            raise error

    def _check_lock(self) -> None:
        """If another process may have opened the directory, write nothing more, and stop all background threads."""
        try:
            self._opened.directories.check_lock()
        except LockLost as error:
            self._open.disown(str(error))
            self.cleaner.stop()
            self._scheduler.stop()
            raise

    def _let_go(self) -> None:
        self._cleaner_scheduler.stop()
        self._scheduler.stop()
        if self._directories is not None and not self.read_only:
            self._directories.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
