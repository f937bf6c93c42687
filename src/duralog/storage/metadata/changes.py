"""The records of changes to the cluster metadata. Kafka 4.3.1, started on the directory, accepts them.

Each function checks a change against the current state and returns its records. The caller appends them as one batch
(`metadata_log.encode_batch`), so that the change is atomic, then applies them to the state. The first records of a
directory are its feature levels: without them Kafka treats the log as one of an older version.

Everything is placed on the one node that owns the directory: it is replica, in-sync replica and leader. When Kafka
starts, it elects itself and raises the epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duralog.config.plurals import plural
from duralog.errors import InvalidRecord, InvalidTopic, TopicExists
from duralog.format.filenames import collision_key, topic_name_fault
from duralog.format.internal.internal_topics import CLUSTER_METADATA, COORDINATOR_TOPICS, PLACED_BY_COUNT
from duralog.format.internal.metadata_records import METADATA_TYPES, MetadataRecord
from duralog.format.topic_partition import TopicPartition
from duralog.format.uuids import ZERO_UUID, random_uuid
from duralog.storage.metadata.acls import Acl
from duralog.storage.metadata.client_quotas import QuotaChanges, quota_fields
from duralog.storage.metadata.cluster_metadata import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    METADATA_VERSION,
    TOPIC_RESOURCE,
    ClusterMetadata,
)
from duralog.storage.metadata.scram import ScramChanges, scram_records

_ELIGIBLE_REPLICAS = "eligible.leader.replicas.version"
_MIN_ISR = "min.insync.replicas"

FEATURE_LEVELS: Mapping[str, int] = {
    METADATA_VERSION: 30,
    _ELIGIBLE_REPLICAS: 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""The feature levels of a new cluster in Kafka 4.3.1."""

MOST_PARTITIONS = 10_000
"""In one change. Kafka refuses larger ones, since a change is one batch."""

PRODUCER_ID_BLOCK = 1000
"""The number of producer ids that a broker takes at a time, as in Kafka. Unused ids are lost."""

_NEW_PARTITION = "PARTITION_RECORD"
_NO_BROKER_EPOCH = -1
_SAME_LEADER = -2
_LAST_PRODUCER_ID = 2**63 - 1

# The metadata versions from which on Kafka writes partition records of version 1 and of version 2.
_DIRECTORIES_SINCE = 17
_ELIGIBLE_REPLICAS_SINCE = 23
DirectoryIds = Callable[[range], Sequence[str]]
"""Returns the ids of the directories for new partitions of these numbers."""

_TYPE_IDS = {message.name: type_id for type_id, message in METADATA_TYPES.items()}


def first_records(bootstrap: Iterable[MetadataRecord] = ()) -> list[MetadataRecord]:
    """The first records of the log of a new directory.

    `bootstrap` are the records of `bootstrap.checkpoint`, which `kafka-storage format` writes. Its feature levels are
    used if there are any.
    """
    records = list(bootstrap)
    state = ClusterMetadata()
    for record in records:
        state.apply(record)
    if not state.features:
        records += [
            _record("FEATURE_LEVEL_RECORD", name=name, feature_level=FEATURE_LEVELS[name]) for name in FEATURE_LEVELS
        ]
    if (state.features or FEATURE_LEVELS).get(_ELIGIBLE_REPLICAS):
        # With this feature, Kafka wants this config in the metadata, not in server.properties.
        records.append(_config_record(BROKER_RESOURCE, ALL_BROKERS, _MIN_ISR, "1"))
    return records


def check_new_topic(existing: Iterable[str], name: str, partitions: int) -> None:
    """Raise for a topic that cannot be created next to the existing ones."""
    fault = topic_name_fault(name)
    if fault is not None:
        raise InvalidTopic(fault)
    if name == CLUSTER_METADATA:
        raise InvalidTopic(f"{CLUSTER_METADATA} is an internal topic of Kafka")
    for other in existing:
        if collision_key(other) == collision_key(name):
            alike = "" if other == name else f": it collides with {name}, which differs only in '.' and '_'"
            raise TopicExists(f"the topic {other} exists already{alike}")
    _check_count(partitions)


def check_more_partitions(name: str, present: int, total: int) -> None:
    """Raise if a topic cannot get this number of partitions."""
    if total <= present:
        raise InvalidTopic(f"{name} has {plural(present, 'partition')}; it can only get more, not {total}")
    if name in COORDINATOR_TOPICS:
        raise InvalidTopic(f"{name} cannot get more partitions: {PLACED_BY_COUNT}")
    _check_count(total - present)


def _check_count(partitions: int) -> None:
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise InvalidTopic(f"{partitions} partitions cannot be created: the number must be from 1 to {MOST_PARTITIONS}")


def create_topic(
    metadata: ClusterMetadata,
    name: str,
    *,
    partitions: int,
    configs: Mapping[str, str],
    node_id: int,
    directory_ids: DirectoryIds,
    topic_id: str | None = None,
) -> list[MetadataRecord]:
    """A new topic. The configs are those of `config.topic_config_texts`; without an id it gets a random one."""
    check_new_topic(metadata.topics, name, partitions)
    topic_id = topic_id or random_uuid()
    return _after_open_transaction(
        metadata,
        [
            _record("TOPIC_RECORD", name=name, topic_id=topic_id),
            *(_config_record(TOPIC_RESOURCE, name, key, value) for key, value in configs.items()),
            *_partition_records(metadata, topic_id, range(partitions), node_id, directory_ids),
        ],
    )


def add_partitions(
    metadata: ClusterMetadata, name: str, *, partitions: int, node_id: int, directory_ids: DirectoryIds
) -> list[MetadataRecord]:
    """More partitions for a topic. `partitions` is the new total."""
    topic = metadata.topic(name)
    present = len(topic.partitions)
    check_more_partitions(name, present, partitions)
    records = _partition_records(metadata, topic.topic_id, range(present, partitions), node_id, directory_ids)
    return _after_open_transaction(metadata, records)


def delete_topic(metadata: ClusterMetadata, name: str) -> list[MetadataRecord]:
    """Delete a topic and its configs."""
    return _after_open_transaction(metadata, [_record("REMOVE_TOPIC_RECORD", topic_id=metadata.topic(name).topic_id)])


def alter_topic_configs(
    metadata: ClusterMetadata, name: str, changes: Mapping[str, str | None]
) -> list[MetadataRecord]:
    """Set configs of a topic; None resets one to that of the broker."""
    metadata.topic(name)
    return alter_configs(metadata, TOPIC_RESOURCE, name, changes)


def alter_configs(
    metadata: ClusterMetadata, resource_type: int, name: str, changes: Mapping[str, str | None]
) -> list[MetadataRecord]:
    """Set configs of a topic, a broker or a group; None removes one."""
    return _after_open_transaction(
        metadata, [_config_record(resource_type, name, key, value) for key, value in changes.items()]
    )


def create_acls(metadata: ClusterMetadata, acls: Iterable[Acl]) -> list[MetadataRecord]:
    """Add access control entries. Those that exist already are left out."""
    known = set(metadata.acls.values())
    new = [acl for acl in dict.fromkeys(acls) if acl not in known]
    records = [_record("ACCESS_CONTROL_ENTRY_RECORD", id=random_uuid(), **acl._asdict()) for acl in new]
    return _after_open_transaction(metadata, records) if records else []


def delete_acls(metadata: ClusterMetadata, ids: Iterable[str]) -> list[MetadataRecord]:
    """Remove access control entries by their ids."""
    records = [_record("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", id=each) for each in ids]
    return _after_open_transaction(metadata, records) if records else []


def alter_client_quotas(metadata: ClusterMetadata, changes: QuotaChanges) -> list[MetadataRecord]:
    """Set and remove quotas. No records if nothing changes."""
    records = [_record("CLIENT_QUOTA_RECORD", **fields) for fields in quota_fields(metadata.client_quotas, changes)]
    return _after_open_transaction(metadata, records) if records else []


def set_feature_levels(metadata: ClusterMetadata, levels: Mapping[str, int]) -> list[MetadataRecord]:
    """Set the levels of features. No records if nothing changes."""
    present = metadata.features or FEATURE_LEVELS
    changed = {name: level for name, level in levels.items() if level != present.get(name, 0)}
    records = [_record("FEATURE_LEVEL_RECORD", name=name, feature_level=level) for name, level in changed.items()]
    configs = metadata.configs_of(BROKER_RESOURCE, ALL_BROKERS)
    if changed.get(_ELIGIBLE_REPLICAS) and _MIN_ISR not in configs:
        records.append(_config_record(BROKER_RESOURCE, ALL_BROKERS, _MIN_ISR, "1"))
    return _after_open_transaction(metadata, records) if records else []


def alter_scram_credentials(metadata: ClusterMetadata, changes: ScramChanges) -> list[MetadataRecord]:
    """Set credentials of users; None removes one."""
    return _after_open_transaction(metadata, list(scram_records(changes)))


def take_producer_ids(metadata: ClusterMetadata, *, node_id: int) -> list[MetadataRecord]:
    """Give this node the next block of producer ids: `PRODUCER_ID_BLOCK` of them from `next_producer_id` on."""
    first = metadata.next_producer_id
    if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK:
        raise InvalidRecord(f"there are no producer ids left: {first} would be the next")
    taken = _record(
        "PRODUCER_IDS_RECORD",
        broker_id=node_id,
        broker_epoch=_NO_BROKER_EPOCH,
        next_producer_id=first + PRODUCER_ID_BLOCK,
    )
    return _after_open_transaction(metadata, [taken])


def raise_producer_ids(metadata: ClusterMetadata, *, next_producer_id: int, node_id: int) -> list[MetadataRecord]:
    """Let the next block of producer ids begin at this one."""
    raised = _record(
        "PRODUCER_IDS_RECORD", broker_id=node_id, broker_epoch=_NO_BROKER_EPOCH, next_producer_id=next_producer_id
    )
    return _after_open_transaction(metadata, [raised])


def in_epoch(record: MetadataRecord, leader_epochs: Mapping[int, int]) -> MetadataRecord:
    """The record, with the leader epoch of its partition if it makes one."""
    if record.type_name != _NEW_PARTITION or isinstance(record.fields, bytes):
        return record
    epoch = leader_epochs.get(record.fields["partition_id"], record.fields["leader_epoch"])
    return replace(record, fields={**record.fields, "leader_epoch": epoch})


def _after_open_transaction(metadata: ClusterMetadata, records: list[MetadataRecord]) -> list[MetadataRecord]:
    """Abort a metadata transaction in which Kafka died, or Kafka would abort it together with these records."""
    if metadata.is_in_transaction:
        return [_record("ABORT_TRANSACTION_RECORD", reason="the controller stopped before it ended"), *records]
    return records


def assign_directories(
    metadata: ClusterMetadata, directory_ids: Mapping[TopicPartition, str], *, node_id: int
) -> list[MetadataRecord]:
    """Say in which directories of a node these partitions are. No records if the metadata says so, or is too old."""
    version = _partition_version(metadata)
    if not version:
        return []
    records = []
    for (name, number), directory_id in directory_ids.items():
        topic = metadata.topic(name)
        partition = topic.partitions[number]
        replica = partition.replicas.index(node_id)
        directories = list(partition.directories) or [ZERO_UUID] * len(partition.replicas)
        if directories[replica] != directory_id:
            directories[replica] = directory_id
            records.append(
                _record(
                    "PARTITION_CHANGE_RECORD",
                    version=version,
                    partition_id=number,
                    topic_id=topic.topic_id,
                    leader=_SAME_LEADER,
                    directories=directories,
                )
            )
    return _after_open_transaction(metadata, records) if records else []


def _partition_version(metadata: ClusterMetadata) -> int:
    """The version of records of partitions. From 1 on, they name directories."""
    level = metadata.features.get(METADATA_VERSION, FEATURE_LEVELS[METADATA_VERSION])
    return (level >= _DIRECTORIES_SINCE) + (level >= _ELIGIBLE_REPLICAS_SINCE)


def _partition_records(
    metadata: ClusterMetadata, topic_id: str, numbers: range, node_id: int, directory_ids: DirectoryIds
) -> list[MetadataRecord]:
    _check_count(numbers.stop - numbers.start)
    version = _partition_version(metadata)
    return [
        _record(
            _NEW_PARTITION,
            version=version,
            partition_id=partition,
            topic_id=topic_id,
            replicas=[node_id],
            isr=[node_id],
            removing_replicas=[],
            adding_replicas=[],
            leader=node_id,
            leader_epoch=0,
            partition_epoch=0,
            **({"directories": [directory_id]} if version else {}),
        )
        for partition, directory_id in zip(numbers, directory_ids(numbers), strict=True)
    ]


def _config_record(resource_type: int, resource: str, name: str, value: str | None) -> MetadataRecord:
    return _record("CONFIG_RECORD", resource_type=resource_type, resource_name=resource, name=name, value=value)


def _record(type_name: str, *, version: int = 0, **fields: Any) -> MetadataRecord:
    return MetadataRecord(type_id=_TYPE_IDS[type_name], type_name=type_name, version=version, fields=fields)
