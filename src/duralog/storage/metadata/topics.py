"""The topics of a directory by the cluster metadata, and changes to it.

`Topics` holds the state of the metadata log, and only it appends to that log. A change is one batch: it is checked,
written, synced, and only then applied here. So a change is atomic, and what a caller sees is durable.

Topics that only have folders, in a directory without metadata, are added with `add_found`. They have the configs that
the store was opened with. If these do not set a retention, records are kept forever: the topic may have had one, and
their owner did not choose Kafka's default of seven days. If the metadata log is writable, `adopt` adds them to it,
since Kafka moves folders aside that are not in its metadata.

The state is immutable and replaced on a change: readers take no lock. One thread at a time may make changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Protocol

from duralog.config import TopicConfig, topic_config_texts
from duralog.config.topic import topic_definition
from duralog.errors import (
    DuralogError,
    InvalidAcl,
    InvalidRecord,
    InvalidTopic,
    StorageError,
    TopicExists,
    UnknownTopic,
)
from duralog.format.internal.metadata_records import MetadataRecord
from duralog.format.layout import NO_LEADER_EPOCH
from duralog.format.topic_partition import TopicPartition
from duralog.format.uuids import RESERVED_DIRECTORIES, ZERO_UUID
from duralog.format.varint import Bytes
from duralog.storage.disk.background import Clock
from duralog.storage.log.retention import is_retention_chosen
from duralog.storage.metadata import changes as metadata_changes
from duralog.storage.metadata.acls import Acl, AclFilter, acl_fault, filter_fault, select_acls
from duralog.storage.metadata.client_quotas import ClientQuotas, QuotaChanges
from duralog.storage.metadata.cluster_metadata import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    ClusterMetadata,
    PartitionRegistration,
)
from duralog.storage.metadata.metadata_log import encode_batch
from duralog.storage.metadata.scram import ScramChanges, ScramCredentials

_MOST_MISSING = 100
_OTHER_RESOURCES = (BROKER_RESOURCE, GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)
"""The resources with configs other than topics."""

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
_KEEP_FOR_EVER: Mapping[str, str] = MappingProxyType({"retention.ms": "-1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: str | None
    """None for a topic that only has folders without an id."""
    partitions: tuple[int, ...]
    """Those in this directory, in order."""
    overrides: Mapping[str, str]
    """The configs that are set for the topic, as they are stored."""
    config: TopicConfig
    leader_epochs: Mapping[int, int] = field(default_factory=dict, repr=False)
    directory_ids: Mapping[int, str] = field(default_factory=dict, repr=False)
    """The directories of the partitions by the metadata, where it says which."""

    def leader_epoch(self, partition: int) -> int:
        """The epoch of the partition's last leader, -1 if none is known."""
        return self.leader_epochs.get(partition, NO_LEADER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedTopic:
    """A topic that comes from another directory."""

    name: str
    topic_id: str | None
    """None for a new one."""
    partitions: int
    configs: Mapping[str, str]
    """As they are stored there."""
    leader_epochs: Mapping[int, int]
    """The epochs that its partitions continue with: above all that are in their logs, or clients would wait forever
    for one that they have seen."""


class Placement(Protocol):
    """The node that owns the directories, and which partitions belong in which of them."""

    @property
    def node_id(self) -> int: ...

    def holds(self, topic: str, partition: PartitionRegistration) -> bool:
        """Whether a partition of a topic is in one of the directories."""

    def directory_ids(self, topic: str, numbers: range) -> Sequence[str]:
        """The ids of the directories in which new partitions of a topic go, or in which they are already."""


def assigned_directory(partition: PartitionRegistration, node_id: int) -> str | None:
    """The id of the directory in which a node has the partition; None if it is not known."""
    found = _directory(partition, node_id)
    return None if found in RESERVED_DIRECTORIES else found


def _directory(partition: PartitionRegistration, node_id: int) -> str:
    replica = partition.replicas.index(node_id) if node_id in partition.replicas else len(partition.directories)
    return partition.directories[replica] if replica < len(partition.directories) else ZERO_UUID


@dataclass(frozen=True, slots=True)
class OneDirectory:
    """The placement of a single directory."""

    node_id: int
    directory_id: str | None

    def holds(self, topic: str, partition: PartitionRegistration) -> bool:
        del topic
        if self.node_id not in partition.replicas:
            return False
        return self.directory_id is None or _directory(partition, self.node_id) in (self.directory_id, ZERO_UUID)

    def directory_ids(self, topic: str, numbers: range) -> Sequence[str]:
        del topic
        return [self.directory_id or ZERO_UUID] * len(numbers)


Holds = Callable[[str, PartitionRegistration], bool]
"""Whether a partition of a topic is in this directory."""


class WritableLog(Protocol):
    """What `Topics` needs of the metadata log."""

    @property
    def end_offset(self) -> int: ...

    def append(self, batch: Bytes) -> None:
        """Append a batch as it is, and return when it is durable."""

    def truncate_to(self, offset: int) -> None: ...


OpenLog = Callable[[], WritableLog]
"""Returns the metadata log, and creates it if necessary. Raises if the metadata must not be changed here."""


def _copied(quotas: ClientQuotas) -> ClientQuotas:
    return {entity: dict(values) for entity, values in quotas.items()}


def _of_found_topics(defaults: TopicConfig) -> Mapping[str, str]:
    return _NO_CONFIGS if is_retention_chosen(defaults) else _KEEP_FOR_EVER


def _check(faults: Iterable[str | None]) -> None:
    for fault in faults:
        if fault is not None:
            raise InvalidAcl(fault)


class Topics:
    """The topics of one directory, by name."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        defaults: TopicConfig,
        placement: Placement,
        open_log: OpenLog,
        clock: Clock,
        holds: Holds | None = None,
        bootstrap: Callable[[], Iterable[MetadataRecord]] = lambda: (),
    ) -> None:
        self._metadata = metadata
        self._defaults = defaults
        self._placement = placement
        self._holds = placement.holds if holds is None else holds
        self._open_log = open_log
        self._clock = clock
        self._bootstrap = bootstrap
        self._topics: Mapping[str, Topic] = {}
        self._configs = {kind: metadata.configured(kind) for kind in _OTHER_RESOURCES}
        self._acls: Sequence[Acl] = tuple(metadata.acls.values())
        self._client_quotas = _copied(metadata.client_quotas)
        self.scram_credentials = self._first_credentials()
        """Of users, by name and mechanism. Replaced on a change."""
        self._replace(metadata.topics)

    @property
    def features(self) -> Mapping[str, int]:
        return self._metadata.features or metadata_changes.FEATURE_LEVELS

    @property
    def by_name(self) -> Mapping[str, Topic]:
        return self._topics

    def get(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}")
        return topic

    def partition_count(self, name: str) -> int:
        """The number of partitions on all nodes. Without metadata, the last partition here decides."""
        topic, state = self.get(name), self._metadata.topics.get(name)
        return topic.partitions[-1] + 1 if state is None else len(state.partitions)

    def is_in_metadata(self, name: str) -> bool:
        """Whether the topic is in the metadata, with partitions here or on another node."""
        return name in self._metadata.topics

    def add_found(self, name: str, topic_id: str | None, partitions: Iterable[int]) -> None:
        """Add partitions that have folders but are not in the metadata."""
        known = self._topics.get(name)
        if known is None:
            config = self._defaults.with_stored(_of_found_topics(self._defaults))
            known = Topic(name=name, topic_id=topic_id, partitions=(), overrides=_NO_CONFIGS, config=config)
        found = replace(known, partitions=tuple(sorted({*known.partitions, *partitions})))
        self._topics = {**self._topics, name: found}

    def adopt(self, name: str) -> Topic:
        """Add a topic that was found to the metadata. Missing partitions below its last one are created.

        If many are missing, the folder is probably not a partition: `photos-2024` is not the last of 2,025.
        """
        found = self.get(name)
        missing = found.partitions[-1] + 1 - len(found.partitions)
        if missing > _MOST_MISSING:
            raise InvalidTopic(
                f"{missing} partitions below {name}-{found.partitions[-1]} are not in this directory; expected at most"
                f" {_MOST_MISSING}"
            )
        return self._create(name, found.partitions[-1] + 1, _of_found_topics(self._defaults), found.topic_id)

    def create(self, name: str, partitions: int, config: Mapping[str, object]) -> Topic:
        if name in self._topics:
            # Also if it only has folders: with another id in the metadata, the next start would refuse these.
            raise TopicExists(f"the topic {name} exists already")
        self._defaults.with_overrides(config)
        return self._create(name, partitions, topic_config_texts(config), None)

    def restore(self, moved: MovedTopic) -> Topic:
        """A topic of another directory, with its id and its stored configs. They are not checked."""
        if moved.name in self._topics:
            raise TopicExists(f"the topic {moved.name} exists already")
        return self._create(
            moved.name, moved.partitions, moved.configs, moved.topic_id, leader_epochs=moved.leader_epochs
        )

    def add_partitions(self, name: str, total: int) -> Topic:
        """Raise the number of partitions to `total`."""
        self._adopt_if_found(name)
        records = metadata_changes.add_partitions(
            self._metadata,
            name,
            partitions=total,
            node_id=self._placement.node_id,
            directory_ids=partial(self._placement.directory_ids, name),
        )
        self._change(records, name)
        return self.get(name)

    def assign_directories(self, directory_ids: Mapping[TopicPartition, str]) -> bool:
        """Write into the metadata in which directories partitions are. Returns whether it says so now."""
        chosen = {found: each for found, each in directory_ids.items() if found.topic in self._metadata.topics}
        waiting = iter(chosen.items())
        while some := dict(islice(waiting, metadata_changes.MOST_PARTITIONS)):
            records = metadata_changes.assign_directories(self._metadata, some, node_id=self._placement.node_id)
            if records:
                self._change(records, *{found.topic for found in some})
        return all(
            self._topics[found.topic].directory_ids.get(found.partition) == each for found, each in chosen.items()
        )

    def delete(self, name: str) -> None:
        if name in self._metadata.topics:
            self._change(metadata_changes.delete_topic(self._metadata, name), name)
        self._topics = {known: topic for known, topic in self._topics.items() if known != name}

    def alter_config(self, name: str, changes: Mapping[str, object]) -> Topic:
        """Set configs of a topic; None resets one to what the store was opened with.

        A stored config can be reset even if it is unknown, such as one of another version of Kafka.
        """
        kept = {key: value for key, value in changes.items() if value is not None}
        texts: dict[str, str | None] = {**dict.fromkeys(changes), **topic_config_texts(kept)}
        stored = self.get(name).overrides
        for key in changes.keys() - kept.keys() - stored.keys():
            topic_definition(key)
        overrides = {**stored, **texts}
        self._defaults.with_stored({key: value for key, value in overrides.items() if value is not None}).check()
        self._adopt_if_found(name)
        self._change(metadata_changes.alter_topic_configs(self._metadata, name, texts), name)
        return self.get(name)

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The configs in the metadata for a broker, for all brokers or for a group."""
        return self._configs[resource_type].get(name, _NO_CONFIGS)

    def alter_configs_of(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of brokers or of a group, unchecked: Kafka stores unknown names here as well."""
        if changes:
            self._change(metadata_changes.alter_configs(self._metadata, resource_type, name, changes))

    @property
    def acls(self) -> Sequence[Acl]:
        """The access control entries: another object after each change of them."""
        return self._acls

    def create_acls(self, acls: Sequence[Acl]) -> None:
        """Add entries, all or none. Those that exist already change nothing."""
        _check(acl_fault(acl) for acl in acls)
        self._change_acls(metadata_changes.create_acls(self._metadata, acls))

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove the entries that any of the filters selects. Returns those of each filter."""
        _check(filter_fault(each) for each in filters)
        found = select_acls(self._metadata.acls.values(), filters)
        gone = {acl for selected in found for acl in selected}
        ids = [key for key, acl in self._metadata.acls.items() if acl in gone]
        self._change_acls(metadata_changes.delete_acls(self._metadata, ids))
        return found

    def _change_acls(self, records: list[MetadataRecord]) -> None:
        if records:
            self._change(records)
            self._acls = tuple(self._metadata.acls.values())

    def configured(self, resource_type: int) -> list[str]:
        """The names of the resources, other than topics, that have configs in the metadata."""
        return sorted(self._configs[resource_type])

    @property
    def client_quotas(self) -> ClientQuotas:
        """A value that is replaced on a change."""
        return self._client_quotas

    def alter_client_quotas(self, changes: QuotaChanges) -> None:
        records = metadata_changes.alter_client_quotas(self._metadata, changes)
        if records:
            self._change(records)

    def set_feature_levels(self, levels: Mapping[str, int]) -> None:
        records = metadata_changes.set_feature_levels(self._metadata, levels)
        if records:
            self._change(records)

    @property
    def leader_epoch(self) -> int:
        """The epoch in which the metadata log is written."""
        return self._metadata.writing_epoch

    def alter_scram_credentials(self, changes: ScramChanges) -> None:
        """Set credentials of users; None removes one, which must exist."""
        if changes:
            for (name, mechanism), credential in changes.items():
                if credential is None and (name, mechanism) not in self.scram_credentials:
                    raise InvalidRecord(
                        f"the user {name} has no credential for {mechanism.mechanism_name} that can be removed"
                    )
            self._change(metadata_changes.alter_scram_credentials(self._metadata, changes))
            self.scram_credentials = dict(self._metadata.scram_credentials)

    def _first_credentials(self) -> ScramCredentials:
        """Those of the log. Before its first record, those of `kafka-storage format --add-scram`."""
        metadata = self._metadata
        if not metadata.next_offset:
            metadata = ClusterMetadata()
            for record in self._bootstrap():
                metadata.apply(record)
        return dict(metadata.scram_credentials)

    def follow(self, defaults: TopicConfig) -> list[Topic]:
        """Use these defaults for configs that topics do not set. Returns the topics whose configs changed."""
        before, self._defaults = self._topics, defaults
        of_found = _of_found_topics(defaults)
        self._topics = {
            name: replace(
                topic, config=defaults.with_stored(topic.overrides if self.is_in_metadata(name) else of_found)
            )
            for name, topic in before.items()
        }
        return [topic for name, topic in self._topics.items() if topic.config != before[name].config]

    def take_producer_ids(self) -> range:
        """A block of new producer ids. They are never given out again."""
        first = self._metadata.next_producer_id
        self._change(metadata_changes.take_producer_ids(self._metadata, node_id=self._placement.node_id))
        return range(first, self._metadata.next_producer_id)

    def raise_producer_ids(self, next_producer_id: int) -> None:
        """Give out no producer id below this one from now on."""
        if next_producer_id > self._metadata.next_producer_id:
            node_id = self._placement.node_id
            self._change(
                metadata_changes.raise_producer_ids(self._metadata, next_producer_id=next_producer_id, node_id=node_id)
            )

    def _adopt_if_found(self, name: str) -> None:
        if name in self._topics and name not in self._metadata.topics:
            self.adopt(name)

    def _create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        topic_id: str | None,
        *,
        leader_epochs: Mapping[int, int] = MappingProxyType({}),
    ) -> Topic:
        records = metadata_changes.create_topic(
            self._metadata,
            name,
            partitions=partitions,
            configs=configs,
            topic_id=topic_id,
            node_id=self._placement.node_id,
            directory_ids=partial(self._placement.directory_ids, name),
        )
        self._change([metadata_changes.in_epoch(record, leader_epochs) for record in records], name)
        return self.get(name)

    def _change(self, records: list[MetadataRecord], *names: str) -> None:
        """Write the records. `names` are the topics that they change."""
        log = self._open_log()
        if log.end_offset != self._metadata.next_offset:
            raise StorageError(
                f"an earlier error has left the metadata log at offset {log.end_offset} instead of"
                f" {self._metadata.next_offset}: open the directory again"
            )
        if not self._metadata.features:
            records = metadata_changes.first_records(self._bootstrap()) + records
        self._metadata.check(records)
        batch = encode_batch(records, self._metadata.next_offset, self._metadata.writing_epoch, self._clock())
        try:
            log.append(batch)
        except DuralogError:
            # The caller gets an error, so a batch that was written after all must not show up later.
            with suppress(DuralogError):
                log.truncate_to(self._metadata.next_offset)
            raise
        self._metadata.apply_batches(batch)
        self._replace(names)
        if any(record.type_name == "CONFIG_RECORD" for record in records):
            self._configs = {kind: self._metadata.configured(kind) for kind in _OTHER_RESOURCES}
        if any(record.type_name == "CLIENT_QUOTA_RECORD" for record in records):
            self._client_quotas = _copied(self._metadata.client_quotas)

    def _replace(self, names: Iterable[str]) -> None:
        topics = dict(self._topics)
        for name in names:
            state = self._metadata.topics.get(name)
            if state is None:
                topics.pop(name, None)
                continue
            here = {number: part for number, part in sorted(state.partitions.items()) if self._holds(name, part)}
            if here:
                overrides = dict(self._metadata.topic_configs(name))
                topics[name] = Topic(
                    name=name,
                    topic_id=state.topic_id,
                    partitions=tuple(here),
                    overrides=MappingProxyType(overrides),
                    config=self._defaults.with_stored(overrides),
                    leader_epochs={number: partition.leader_epoch for number, partition in here.items()},
                    directory_ids={
                        number: directory_id
                        for number, partition in here.items()
                        if (directory_id := assigned_directory(partition, self._placement.node_id)) is not None
                    },
                )
        self._topics = topics
