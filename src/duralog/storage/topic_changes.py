"""Changes of topics and of configs: first in the metadata, then in folders and logs, one change at a time.

The metadata decides. A change that is in it will be completed: if a crash or a disk error prevents the change of the
folders, the next start does it (`duralog.storage.opening`), or the next use of the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import DuralogError, TopicExists, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.cleaner import Cleaner
from duralog.storage.disk.parallel import for_each_partition
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.retention import COMPACT
from duralog.storage.metadata.acls import Acl, AclFilter
from duralog.storage.metadata.client_quotas import QuotaChanges
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE
from duralog.storage.metadata.scram import ScramChanges
from duralog.storage.metadata.topics import MovedTopic, Topic
from duralog.storage.open_logs import OpenLogs
from duralog.storage.opened_store import OpenedStore
from duralog.storage.upkeep import Upkeep

_MANY_PARTITIONS = 8
_CREATING_THREADS = 8

_logger = logging.getLogger(__name__)


class TopicChanges:
    """Changes one store. Any thread may call any method: a change waits for the one before it."""

    def __init__(
        self,
        opened: OpenedStore,
        given_config: BrokerConfig,
        logs: OpenLogs,
        cleaner: Cleaner,
        upkeep: Upkeep,
        cancel_moves: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self._opened = opened
        self._topics = opened.topics
        self._given_config = given_config
        self._logs = logs
        self._cleaner = cleaner
        self._upkeep = upkeep
        self._cancel_moves = cancel_moves
        self.config = opened.config
        """The configs that the store was opened with, overridden by those of brokers in the cluster metadata."""

    def create_topic(self, name: str, partitions: int | None, config: Mapping[str, object]) -> str:
        """Returns the topic's id."""
        with self._logs.changing:
            self._logs.check_writable()
            count = self.config.num_partitions if partitions is None else partitions
            for found, error in self._opened.offline.items():
                if found.topic == name:
                    raise TopicExists(f"{found} is in this directory, though it is offline: {error}")
            topic = self._topics.create(name, count, config)
            self._create_logs(topic)
        assert topic.topic_id is not None
        return topic.topic_id

    def restore_topic(self, moved: MovedTopic) -> None:
        with self._logs.changing:
            self._logs.check_writable()
            self._create_logs(self._topics.restore(moved))

    def add_partitions(self, topic: str, total: int) -> None:
        with self._logs.changing:
            self._logs.check_writable()
            self._create_logs(self._topics.add_partitions(topic, total))

    def make_missing(self, partition: TopicPartition) -> PartitionLog:
        """Make the log of a partition that is in the metadata, but has no log because of an earlier error."""
        with self._logs.changing:
            self._logs.check_writable()
            if partition not in self._logs.by_partition:
                self._create_logs(self._topics.get(partition.topic))
            log = self._logs.by_partition.get(partition)
        if log is None:
            # Meanwhile the topic was deleted and created again with fewer partitions.
            raise UnknownTopic(f"there is no partition {partition} in this directory")
        return log

    def delete_topic(self, topic: str) -> None:
        with self._logs.changing:
            self._logs.check_writable()
            gone = [TopicPartition(topic, number) for number in self._topics.get(topic).partitions]
            self._cancel_moves(gone)
            with self._cleaner.kept_away(gone, "its topic is deleted"):
                self._topics.delete(topic)
                logs = self._logs.take(gone)
            self._opened.unloaded.difference_update(gone)
            for partition in gone:
                self._opened.offline.pop(partition, None)
            for log in logs:
                try:
                    log.close()
                except DuralogError as error:
                    _logger.warning("%s is deleted, though it could not be closed: %s", log.folder, error)
            try:
                self._opened.delete_folders(gone)
            finally:
                self._upkeep.forget(gone)
                self._cleaner.forget(gone)

    def alter_topic_config(self, topic: str, changes: Mapping[str, object]) -> TopicConfig:
        with self._logs.changing:
            self._logs.check_writable()
            changed = self._topics.alter_config(topic, changes)
            updated = self._update_logs(changed)
            self._create_logs(changed)
            self._cleaner.wake(updated)
            return changed.config

    def alter_configs_of(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        with self._logs.changing:
            self._logs.check_writable()
            self._topics.alter_configs_of(resource_type, name, changes)
            if resource_type == BROKER_RESOURCE:
                for_all = self._topics.configs_of(BROKER_RESOURCE, ALL_BROKERS)
                own = self._topics.configs_of(BROKER_RESOURCE, str(self._opened.meta.node_id))
                self._given_config = self._given_config.released(changes)
                self._follow(self._given_config.with_dynamic({**for_all, **own}))

    def create_acls(self, acls: Sequence[Acl]) -> None:
        with self._logs.changing:
            self._logs.check_writable()
            self._topics.create_acls(acls)

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        with self._logs.changing:
            self._logs.check_writable()
            return self._topics.delete_acls(filters)

    def alter_client_quotas(self, changes: QuotaChanges) -> None:
        with self._logs.changing:
            self._logs.check_writable()
            self._topics.alter_client_quotas(changes)

    def set_feature_levels(self, levels: Mapping[str, int]) -> None:
        with self._logs.changing:
            self._logs.check_writable()
            self._topics.set_feature_levels(levels)

    def alter_scram_credentials(self, changes: ScramChanges) -> None:
        with self._logs.changing:
            self._logs.check_writable()
            self._topics.alter_scram_credentials(changes)

    def raise_producer_ids(self, next_producer_id: int) -> None:
        with self._logs.changing:
            self._logs.check_writable()
            self._topics.raise_producer_ids(next_producer_id)

    def take_producer_ids(self) -> range:
        with self._logs.changing:
            self._logs.check_writable()
            return self._topics.take_producer_ids()

    def _create_logs(self, topic: Topic) -> None:
        """Make the partitions of a topic that are not there yet. Those that were made stay if one fails."""
        named = [TopicPartition(topic.name, number) for number in topic.partitions]
        known = {*self._logs.by_partition, *self._opened.offline, *self._opened.unloaded}
        new = [partition for partition in named if partition not in known]
        if not new:
            return
        # First: the checkpoints must not have entries of an older log of this name, nor may its folder be there.
        self._cleaner.forget(new)
        self._upkeep.forget(new)
        self._finish_deletions(new, topic)
        new = self._opened.place_missing(new)
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
                self._cleaner.watch(partition, log)
                self._upkeep.watch(log)
            self._logs.add(added)

    def _finish_deletions(self, partitions: Iterable[TopicPartition], topic: Topic) -> None:
        """Folders of a deleted topic of this name may still be in place, if they could not be renamed."""
        ids = {partition: self._opened.loader.topic_id(partition) for partition in partitions}
        left = [partition for partition, topic_id in ids.items() if topic_id not in (None, topic.topic_id)]
        if left:
            removed_ids = self._opened.metadata.removed_topic_ids()
            self._opened.delete_folders(partition for partition in left if ids[partition] in removed_ids)

    def _update_logs(self, changed: Topic) -> list[TopicPartition]:
        """Apply the current configs of a topic to its logs. Returns the partitions."""
        logs = self._logs.by_partition
        known = [TopicPartition(changed.name, number) for number in changed.partitions]
        partitions = [partition for partition in known if partition in logs]
        was_compacted = any(COMPACT in logs[partition].config.cleanup_policy for partition in partitions)
        stops = partitions if was_compacted and COMPACT not in changed.config.cleanup_policy else []
        with self._cleaner.kept_away(stops, "its topic is not compacted any more"):
            for partition in partitions:
                logs[partition].update_config(changed.config)
        return partitions

    def _follow(self, config: BrokerConfig) -> None:
        self.config = config
        self._cleaner.follow(config)
        changed = self._topics.follow(config.topic_defaults())
        self._cleaner.wake([partition for topic in changed for partition in self._update_logs(topic)])
        self._opened.placement.config = config
        self._opened.deleted.delay_ms = config.log_segment_delete_delay_ms
        self._opened.loader.producer_expiration_ms = config.producer_id_expiration_ms
        for log in self._logs.by_partition.values():
            log.keep_producers_for(config.producer_id_expiration_ms)
