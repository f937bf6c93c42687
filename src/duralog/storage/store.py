"""A whole log directory: its topics, their logs, and the work that goes on beside the callers.

Opened for writing, the directory is locked and looked after in the background. Closing stops that work, closes all logs
in parallel, writes the checkpoints, and last of all the marker of a clean shutdown. Where a log could not be closed,
or could not be recovered, there is no marker, so that the next start looks closely.

Opened for reading only, nothing is locked, nothing runs in the background and no file changes, so that it works on a
directory that somebody else writes to. A partition is loaded when it is first asked for, and shows what was there then.

Any thread may call anything. Changes of topics wait for each other; appending, reading and asking for logs wait for
none of that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType, TracebackType

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import DuralogError, StorageError, TopicExists, UnknownTopic
from duralog.storage.background import BackgroundError, Clock, Scheduler, wall_clock_ms
from duralog.storage.cleaner import Cleaner
from duralog.storage.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE
from duralog.storage.compaction_report import CompactionReport, ShowCompaction
from duralog.storage.file_system import FileSystem, LocalFileSystem, Lock, raise_open_file_limit
from duralog.storage.log_directory import TopicPartition
from duralog.storage.log_retention import retain
from duralog.storage.metadata_folder import METADATA_PARTITION
from duralog.storage.opening import Opening
from duralog.storage.parallel import ShowProgress, for_each_partition
from duralog.storage.partition_log import PartitionLog
from duralog.storage.retention import BUILT_IN_POLICIES, COMPACT, Removal, RetentionPolicy, RetentionReport
from duralog.storage.topics import Topic
from duralog.storage.upkeep import Upkeep

_MANY_PARTITIONS = 8
_CREATING_THREADS = 8
_MOST_LOOKED_AT = 200
"""Of more partitions than these, a notebook shows only what is known already."""

_logger = logging.getLogger(__name__)


class Store:
    """One log directory. `duralog.open` makes it."""

    def __init__(
        self,
        path: str,
        *,
        config: BrokerConfig | None = None,
        read_only: bool = False,
        retention_policies: Sequence[RetentionPolicy] = BUILT_IN_POLICIES,
        show_progress: ShowProgress | None = None,
        file_system: FileSystem | None = None,
        clock: Clock = wall_clock_ms,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self._clock = clock
        self._policies = tuple(retention_policies)
        self._changing = threading.RLock()
        self._is_closed = False
        self._given_config = config or BrokerConfig()
        self._scheduler = scheduler or Scheduler(threads=0 if read_only else 2)
        opening = Opening(
            file_system or LocalFileSystem(),
            path,
            self._given_config,
            clock=clock,
            scheduler=self._scheduler,
        )
        self._lock: Lock | None = None
        self._cleaner_scheduler = self._scheduler
        try:
            if read_only:
                self._opened = opening.for_reading()
            else:
                raise_open_file_limit()
                self._opened = opening.for_writing(show_progress)
            self._config = self._opened.config
            self._lock = self._opened.lock
            self._topics = self._opened.topics
            self._logs: Mapping[TopicPartition, PartitionLog] = self._opened.logs
            self._upkeep = Upkeep(
                self._opened.directory, self._opened.config, self._scheduler, logs=lambda: self._logs, clock=clock
            )
            has_cleaner = not read_only and self.config.log_cleaner_enable
            if scheduler is None and has_cleaner:
                self._cleaner_scheduler = Scheduler(threads=self.config.log_cleaner_threads, name="duralog-cleaner")
            self.cleaner = Cleaner(
                self._opened.directory,
                self._opened.config,
                logs=self._load_compacted if read_only else lambda: self._logs,
                clock=clock,
                scheduler=self._cleaner_scheduler,
                tell=self._scheduler.tell,
                write_checkpoints=self._upkeep.checkpoint,
            )
            """Compacts in the background, and tells how that goes."""
            if not read_only:
                self._upkeep.keep(self._opened.offline)
                self._upkeep.checkpoint()
                self._upkeep.start(self._retain_unasked)
                self.cleaner.start()
        except BaseException:
            self._let_go()
            raise

    # What there is

    @property
    def config(self) -> BrokerConfig:
        """What the store was opened with, and over it what the cluster metadata sets for brokers."""
        return self._config

    @property
    def given_config(self) -> BrokerConfig:
        """What the store was opened with."""
        return self._given_config

    @property
    def cluster_id(self) -> str | None:
        return self._opened.meta.cluster_id

    @property
    def node_id(self) -> int | None:
        return self._opened.meta.node_id

    @property
    def features(self) -> Mapping[str, int]:
        """The levels of Kafka's features; those of a new directory where the metadata says nothing yet."""
        return self._topics.features

    @property
    def offline(self) -> Mapping[TopicPartition, Exception]:
        """The partitions that could not be loaded, and why. `partition` raises for them."""
        return MappingProxyType(self._opened.offline)

    @property
    def background_errors(self) -> tuple[BackgroundError, ...]:
        """What went wrong beside the callers, the latest last."""
        return self._scheduler.errors

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The logs that are open: another mapping whenever one has come or gone, so that a holder can tell.

        Opened for reading only: those that were asked for so far.
        """
        return self._logs

    def topics(self) -> list[str]:
        return sorted(self._topics.by_name)

    def find_topic(self, name: str) -> Topic | None:
        """All that is known of a topic, as it is now; None if there is none of the name."""
        return self._topics.by_name.get(name)

    def partitions(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions in this directory."""
        return list(self._topics.get(topic).partitions)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has in all, be they in this directory, in another, or not made yet."""
        return self._topics.partition_count(topic)

    def topic_id(self, topic: str) -> str | None:
        """Kafka's id of the topic; None for a topic that only has folders, none of which tells."""
        return self._topics.get(topic).topic_id

    def topic_config(self, topic: str) -> TopicConfig:
        """The configs in force: the topic's own ones over the store's."""
        return self._topics.get(topic).config

    def topic_overrides(self, topic: str) -> dict[str, str]:
        """The configs that the topic sets itself, as they are stored."""
        return dict(self._topics.get(topic).overrides)

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition. `__cluster_metadata` can be had, too."""
        log = self._logs.get(TopicPartition(topic, partition))
        return log if log is not None and not self._is_closed else self._find_log(TopicPartition(topic, partition))

    def _repr_html_(self) -> str:
        from duralog.storage.notebook_tables import store_html

        looked_at: list[PartitionLog] = []
        logs: dict[str, list[PartitionLog]] = {}
        everywhere = self._everywhere()
        for partition in everywhere:
            log = self._logs.get(partition)
            if log is None and self.read_only and not self._is_closed and len(everywhere) <= _MOST_LOOKED_AT:
                # For this look only: what a reader asks for later shall be as it is then.
                with suppress(DuralogError):
                    log = self._opened.loader.load(partition, self._topics.get(partition.topic))
                    looked_at.append(log)
            if log is not None:
                logs.setdefault(partition.topic, []).append(log)
        try:
            return store_html(self, logs)
        finally:
            for log in looked_at:
                log.close()

    def _find_log(self, partition: TopicPartition) -> PartitionLog:
        if self._is_closed:
            raise StorageError(f"{self.path}: the store is closed")
        error = self._opened.offline.get(partition)
        if error is not None:
            raise StorageError(f"{partition} is offline: {error}") from error
        if partition == METADATA_PARTITION and self._opened.metadata.log is not None:
            return self._opened.metadata.log
        topic = self._topics.get(partition.topic)
        if partition.partition not in topic.partitions:
            raise UnknownTopic(f"there is no partition {partition.partition} of {topic.name} in this directory")
        if self.read_only:
            # Not under the lock: of many partitions on an object store, several are loaded at a time.
            loaded = self._opened.loader.load(partition, topic)
        with self._changing:
            if self.read_only:
                # In place: a new mapping for each of ten thousand partitions would be as many copies.
                return self._opened.logs.setdefault(partition, loaded)
            if partition not in self._logs:
                # It is in the metadata, but an error came between that and its folder.
                self._create_logs(topic)
            return self._logs[partition]

    def _everywhere(self) -> list[TopicPartition]:
        topics = sorted(self._topics.by_name.items())
        return [TopicPartition(name, number) for name, topic in topics for number in topic.partitions]

    # Topics

    def create_topic(self, name: str, partitions: int | None = None, config: Mapping[str, object] | None = None) -> str:
        """A new topic, with configs of its own by Kafka's names. Returns its id."""
        with self._changing:
            self._check_writable()
            count = self.config.num_partitions if partitions is None else partitions
            for found in self._opened.offline:
                if found.topic == name:
                    raise TopicExists(
                        f"{found} is in this directory, though it is offline: {self._opened.offline[found]}"
                    )
            topic = self._topics.create(name, count, config or {})
            self._create_logs(topic)
        assert topic.topic_id is not None
        return topic.topic_id

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have so many partitions, more than now."""
        with self._changing:
            self._check_writable()
            self._create_logs(self._topics.add_partitions(topic, total))

    def delete_topic(self, topic: str) -> None:
        """Take a topic away. Its folders go after `log.segment.delete.delay.ms`; open files stay readable."""
        with self._changing:
            self._check_writable()
            gone = [TopicPartition(topic, number) for number in self._topics.get(topic).partitions]
            with self.cleaner.kept_away(gone, "its topic is deleted"):
                self._topics.delete(topic)
                logs = [log for partition, log in self._logs.items() if partition in gone]
                self._logs = {partition: log for partition, log in self._logs.items() if partition not in gone}
            for partition in gone:
                self._opened.offline.pop(partition, None)
            for log in logs:
                try:
                    log.close()
                except DuralogError as error:
                    _logger.warning("%s is deleted, though it could not be closed: %s", log.folder, error)
            self._opened.deleted.delete(gone)
            self._upkeep.forget(gone)
            self.cleaner.forget(gone)

    def alter_topic_config(self, topic: str, changes: Mapping[str, object]) -> TopicConfig:
        """Set configs of a topic; None takes one back. They are in force at once."""
        with self._changing:
            self._check_writable()
            changed = self._topics.alter_config(topic, changes)
            updated = self._update_logs(changed)
            self._create_logs(changed)
            self.cleaner.wake(updated)
            return changed.config

    def _update_logs(self, changed: Topic) -> list[TopicPartition]:
        """Let the logs of a topic go by its configs as they are now. Returns which they are."""
        known = [TopicPartition(changed.name, number) for number in changed.partitions]
        partitions = [partition for partition in known if partition in self._logs]
        was_compacted = any(COMPACT in self._logs[partition].config.cleanup_policy for partition in partitions)
        stops = partitions if was_compacted and COMPACT not in changed.config.cleanup_policy else []
        with self.cleaner.kept_away(stops, "its topic is not compacted any more"):
            for partition in partitions:
                self._logs[partition].update_config(changed.config)
        return partitions

    def take_producer_ids(self) -> range:
        """A block of producer ids. The metadata tells that they are taken: nobody gets them again, nor from Kafka."""
        with self._changing:
            self._check_writable()
            return self._topics.take_producer_ids()

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What the cluster metadata sets for a broker, for all brokers (`ALL_BROKERS`) or for a group."""
        return self._topics.configs_of(resource_type, name)

    def alter_configs_of(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of brokers or of a group; None takes one back. Those of this broker are in force at once.

        They are not checked: what cannot be understood has no effect, and `BrokerConfig.ignored` names it.
        """
        with self._changing:
            self._check_writable()
            self._topics.alter_configs_of(resource_type, name, changes)
            if resource_type == BROKER_RESOURCE:
                for_all = self._topics.configs_of(BROKER_RESOURCE, ALL_BROKERS)
                own = self._topics.configs_of(BROKER_RESOURCE, str(self.node_id))
                self._follow(self._given_config.with_dynamic({**for_all, **own}))

    def _follow(self, config: BrokerConfig) -> None:
        self._config = config
        self.cleaner.follow(config)
        changed = self._topics.follow(config.topic_defaults())
        self.cleaner.wake([partition for topic in changed for partition in self._update_logs(topic)])
        self._opened.deleted.delay_ms = config.log_segment_delete_delay_ms
        self._opened.loader.producer_expiration_ms = config.producer_id_expiration_ms
        for log in self._logs.values():
            log.keep_producers_for(config.producer_id_expiration_ms)

    def _create_logs(self, topic: Topic) -> None:
        """Make the partitions of a topic that are not there yet. Those that were made stay if one fails."""
        named = [TopicPartition(topic.name, number) for number in topic.partitions]
        new = [partition for partition in named if partition not in self._logs and partition not in self.offline]
        if not new:
            return
        # First: a log must not be there beside what the checkpoint says of another one of its name.
        self.cleaner.forget(new)
        loader = self._opened.loader
        loader.make_folders(new)
        added: dict[TopicPartition, PartitionLog] = {}
        try:
            if len(new) < _MANY_PARTITIONS:
                for partition in new:
                    added[partition] = loader.create_in_folder(partition, topic)
                return
            # Several at a time: nearly all of it is waiting for the disk.
            made = for_each_partition(
                new, lambda partition, _: loader.create_in_folder(partition, topic), threads=_CREATING_THREADS
            )
            added.update(made.results)
            for error in made.failures.values():
                raise error
        finally:
            for partition, log in added.items():
                self.cleaner.watch(partition, log)
            self._logs = {**self._logs, **added}

    def _check_writable(self) -> None:
        if self._is_closed:
            raise StorageError(f"{self.path}: the store is closed")
        if self.read_only:
            raise StorageError(f"{self.path}: the directory was opened for reading only")

    # Retention

    def plan_retention(self, policies: Iterable[RetentionPolicy] | None = None) -> RetentionReport:
        """What `apply_retention` would delete now, and why. Nothing is changed."""
        return self._retain(policies, delete=False)

    def apply_retention(self, policies: Iterable[RetentionPolicy] | None = None) -> RetentionReport:
        """Delete the segments that have expired, by these policies or those that the store was opened with."""
        self._check_writable()
        return self._retain(policies, delete=True)

    def _retain(self, policies: Iterable[RetentionPolicy] | None, *, delete: bool) -> RetentionReport:
        chosen = self._policies if policies is None else tuple(policies)
        removals: list[Removal] = []
        failures: dict[tuple[str, int], str] = {}
        for partition in self._everywhere():
            if self._scheduler.is_stopping:
                break
            try:
                # Not by `partition`: what runs in the background may still be at it while the store closes.
                log = self._logs.get(partition) or self._find_log(partition)
                removals += retain(log, chosen, self._clock(), delete=delete)
            except UnknownTopic:
                continue  # It was deleted meanwhile.
            except Exception as error:  # Policies may be anybody's.
                failures[partition] = str(error) if isinstance(error, DuralogError) else repr(error)
        return RetentionReport(removals=removals, failures=failures)

    def _retain_unasked(self) -> None:
        failures = self._retain(None, delete=True).failures
        told = [error for partition, error in failures.items() if partition not in self._opened.offline]
        if told:
            raise StorageError("; ".join(told))

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

        `cleanup.policy` must have `compact` in it. Where there is nothing to do, a note in the report says why. If the
        log is being compacted already, this waits for it first. `workers` is the number of threads that do it,
        `log.cleaner.threads` if nothing is said; `memory_bytes` is for the map of keys, a cleaner thread's share if
        nothing is said; `on_progress` is told how far it is. With `again`, what was compacted before counts as new: a
        log to which nothing is written any more loses its tombstones, too.
        """
        self._check_writable()
        log = self.partition(topic, partition)
        return self.cleaner.compact(
            TopicPartition(topic, partition),
            log,
            workers=workers,
            memory_bytes=memory_bytes,
            again=again,
            on_progress=on_progress,
        )

    def _load_compacted(self) -> Mapping[TopicPartition, PartitionLog]:
        """All logs so far, and those of compacted topics that can be loaded."""
        for partition in self._everywhere():
            if COMPACT in self.topic_config(partition.topic).cleanup_policy:
                with suppress(DuralogError):
                    self.partition(*partition)
        return dict(self._logs)

    # The end

    def close(self) -> None:
        """Bring everything to disk and let go of the directory. Closing again does nothing."""
        with self._changing:
            if self._is_closed:
                return
            self._is_closed = True
        self.cleaner.stop()
        self._scheduler.stop()
        try:
            failures = self._close_logs()
            if not self.read_only:
                self._upkeep.checkpoint()
                if not failures and self._is_all_known():
                    self._opened.directory.put_clean_shutdown()
        finally:
            self._let_go()
        for error in failures.values():
            raise error

    def _let_go(self) -> None:
        self._cleaner_scheduler.stop()
        self._scheduler.stop()
        if self._lock is not None:
            self._lock.release()

    def _is_all_known(self) -> bool:
        """Whether the next start may trust every file."""
        metadata_log = self._opened.metadata.log
        logs = [*self._logs.values()] if metadata_log is None else [metadata_log, *self._logs.values()]
        was_known = self._opened.was_clean or not self._opened.offline
        return was_known and not any(log.in_doubt for log in logs)

    def _close_logs(self) -> dict[TopicPartition, Exception]:
        failures: dict[TopicPartition, Exception] = {}
        if self.read_only:
            # No disk is waited for, so threads would only cost time.
            for log in list(self._logs.values()):
                log.close()
        else:
            outcome = for_each_partition(
                list(self._logs),
                lambda partition, _: self._logs[partition].close(),
                threads=self.config.num_recovery_threads_per_data_dir,
            )
            failures.update(outcome.failures)
        try:
            self._opened.metadata.close()
        except DuralogError as error:
            failures[METADATA_PARTITION] = error
        return failures

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
