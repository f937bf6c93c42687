"""The topics of a cluster, with their ids, partitions and configs, as in Kafka's metadata. Kafka's `MetadataImage`.

`ClusterMetadata` is a state machine over the records of the KRaft metadata log. It does no I/O: `load` takes a snapshot
and the batches after it, `apply` takes a record. `changes` makes the records of a change; the caller appends them to
the log as one batch, then applies them.

Records that concern none of topics, configs, features, producer ids, ACLs, quotas and SCRAM credentials
(registrations, ...) are ignored. They stay in the log: duralog only appends to it.

Records between BEGIN_TRANSACTION and END_TRANSACTION are applied at the end, or not at all if the transaction is
aborted or the log ends inside it.

A record that cannot be applied, because its topic does not exist or its version is that of a later Kafka, raises
`CorruptRecord`: half of the metadata would be worse than none. So does an invalid topic name or partition number:
folders are named after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from duralog.errors import CorruptRecord, InvalidRecord, UnknownTopic
from duralog.format.filenames import topic_name_fault
from duralog.format.internal.metadata_records import METADATA_TYPES, MetadataRecord
from duralog.format.varint import Bytes
from duralog.storage.metadata.acls import Acl
from duralog.storage.metadata.client_quotas import ClientQuotas, QuotaEntity, apply_client_quota
from duralog.storage.metadata.metadata_log import MetadataSnapshot, decode_batches, decode_snapshot
from duralog.storage.metadata.scram import ScramCredentials, apply_credential, apply_removal

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
ALL_BROKERS = ""
"""The name of the broker resource whose configs are for all brokers."""

METADATA_VERSION = "metadata.version"

_NO_LEADER_CHANGE = -2
_FIRST_EPOCH = 1
_LAST_EPOCH = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """A partition in the metadata. Kafka's `PartitionRegistration`."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    """-1 if there is none, as after a clean stop of Kafka."""
    leader_epoch: int
    partition_epoch: int
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicState:
    name: str
    topic_id: str
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict)
    """By number. A topic's partitions are numbered from 0 without gaps."""


class ClusterMetadata:
    """The state after the records that were applied. Not thread-safe."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicState] = {}
        self._names: dict[str, str] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._features: dict[str, int] = {}
        self._acls: dict[str, Acl] = {}
        self._client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._next_producer_id = 0
        self.scram_credentials: ScramCredentials = {}
        self._open_transaction: list[MetadataRecord] | None = None
        self._next_offset = 0
        self._last_epoch = 0

    @classmethod
    def load(cls, snapshot: MetadataSnapshot | None, log: Iterable[Bytes]) -> ClusterMetadata:
        """The state of a snapshot and the log after it. The pieces of the log hold complete batches, in order.

        Records before the end of the snapshot are skipped. Missing records are an error.
        """
        metadata = cls()
        if snapshot is not None:
            for record in decode_snapshot(snapshot.data):
                metadata.apply(record)
            metadata._next_offset, metadata._last_epoch = snapshot.end_offset, snapshot.epoch
        for piece in log:
            metadata.apply_batches(piece)
        return metadata

    def apply_batches(self, data: Bytes) -> None:
        """Apply the next complete batches of the log. Those that were applied already are skipped."""
        for batch in decode_batches(data):
            if batch.last_offset < self._next_offset:
                continue
            if batch.base_offset > self._next_offset:
                raise CorruptRecord(
                    "records of the metadata log are missing",
                    expected=f"offset {self._next_offset}",
                    found=f"offset {batch.base_offset}",
                )
            for offset, record in enumerate(batch.records, batch.base_offset):
                if offset >= self._next_offset:
                    self._apply_at(offset, record)
            self._next_offset = batch.last_offset + 1
            self._last_epoch = max(self._last_epoch, batch.leader_epoch)

    def apply(self, record: MetadataRecord) -> None:
        apply = _TRANSACTIONS.get(record.type_name)
        if apply is not None:
            apply(self)
        elif self._open_transaction is not None:
            self._open_transaction.append(record)
        else:
            self._apply_now(record)

    def check(self, records: Sequence[MetadataRecord]) -> None:
        """Raise `InvalidRecord` unless all records can be applied, one after the other. Changes nothing.

        What cannot be applied must not get into the log: the directory could not be opened any more. Only what the
        records change is copied.
        """
        part = ClusterMetadata()
        part._next_producer_id = self._next_producer_id
        for record in records:
            if isinstance(record.fields, bytes):
                continue
            fields = record.fields
            topic = self._topics.get(fields["name"]) if record.type_name == "TOPIC_RECORD" else None
            topic = topic or self._topics.get(self._names.get(fields.get("topic_id", ""), ""))
            if topic is not None and topic.name not in part._topics:
                part._topics[topic.name] = replace(topic, partitions=dict(topic.partitions))
                part._names[topic.topic_id] = topic.name
            elif record.type_name == "REMOVE_ACCESS_CONTROL_ENTRY_RECORD" and fields["id"] in self._acls:
                part._acls[fields["id"]] = self._acls[fields["id"]]
            elif record.type_name == "REMOVE_USER_SCRAM_CREDENTIAL_RECORD" and not part.scram_credentials:
                part.scram_credentials = dict(self.scram_credentials)
        try:
            for record in records:
                part.apply(record)
        except CorruptRecord as error:
            raise InvalidRecord(f"the metadata cannot be changed in this way: {error}") from None

    @property
    def next_offset(self) -> int:
        """The offset of the next batch, after those that `load` and `apply_batches` applied."""
        return self._next_offset

    @property
    def writing_epoch(self) -> int:
        """The leader epoch to append with: the last one of the log. Kafka starts a new one when it takes over."""
        return max(self._last_epoch, _FIRST_EPOCH)

    @property
    def is_in_transaction(self) -> bool:
        """Whether the log ends inside a transaction, which Kafka would abort when it starts."""
        return self._open_transaction is not None

    @property
    def features(self) -> Mapping[str, int]:
        """The levels of Kafka's features. Empty before the log's first records are written."""
        return self._features

    @property
    def next_producer_id(self) -> int:
        """All ids below it were given to a broker, which may have given them to producers."""
        return self._next_producer_id

    @property
    def acls(self) -> Mapping[str, Acl]:
        """The access control entries by id, in the order in which they were added."""
        return self._acls

    @property
    def client_quotas(self) -> ClientQuotas:
        return self._client_quotas

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """By name."""
        return self._topics

    def topic(self, name: str) -> TopicState:
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopic(f"there is no topic {name}") from None

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The configs that are set for the topic."""
        return self.configs_of(TOPIC_RESOURCE, name)

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The configs that are set for a topic, a broker, all brokers or a group."""
        return self._configs.get((resource_type, name), {})

    def broker_configs(self, node_id: int) -> dict[str, str]:
        """The dynamic configs of a broker: those of all brokers, overridden by its own."""
        return {**self.configs_of(BROKER_RESOURCE, ALL_BROKERS), **self.configs_of(BROKER_RESOURCE, str(node_id))}

    def configured(self, resource_type: int) -> dict[str, dict[str, str]]:
        """A copy of all configs that are set for resources of one type, by their names."""
        return {name: dict(configs) for (kind, name), configs in self._configs.items() if kind == resource_type}

    def _apply_at(self, offset: int, record: MetadataRecord) -> None:
        try:
            self.apply(record)
        except CorruptRecord as error:
            reason = f"{error.reason}, at offset {offset} of the metadata log"
            raise CorruptRecord(reason, fault=error.fault, expected=error.expected, found=error.found) from None

    def _begin_transaction(self) -> None:
        self._open_transaction = []

    def _end_transaction(self) -> None:
        records, self._open_transaction = self._open_transaction or [], None
        for record in records:
            self._apply_now(record)

    def _abort_transaction(self) -> None:
        self._open_transaction = None

    def _apply_now(self, record: MetadataRecord) -> None:
        apply = _CHANGES.get(record.type_name)
        if apply is None:
            return
        if isinstance(record.fields, bytes):
            raise CorruptRecord(
                f"a {record.type_name} was written by a later Kafka",
                expected=f"version 0 to {METADATA_TYPES[record.type_id].last_version}",
                found=f"version {record.version}",
            )
        apply(self, record.fields)

    def _apply_feature_level(self, fields: Mapping[str, Any]) -> None:
        if fields["feature_level"] == 0:
            self._features.pop(fields["name"], None)
        else:
            self._features[fields["name"]] = fields["feature_level"]

    def _apply_acl(self, fields: Mapping[str, Any]) -> None:
        self._acls[fields["id"]] = Acl(*(fields[name] for name in Acl._fields))

    def _apply_remove_acl(self, fields: Mapping[str, Any]) -> None:
        if self._acls.pop(fields["id"], None) is None:
            raise CorruptRecord(
                "a REMOVE_ACCESS_CONTROL_ENTRY_RECORD is for an entry that does not exist",
                expected="the id of an access control entry",
                found=fields["id"],
            )

    def _apply_client_quota(self, fields: Mapping[str, Any]) -> None:
        apply_client_quota(self._client_quotas, fields)

    def _apply_producer_ids(self, fields: Mapping[str, Any]) -> None:
        if fields["next_producer_id"] < self._next_producer_id:
            raise CorruptRecord(
                "a PRODUCER_IDS_RECORD takes back ids that were given out",
                expected=f"at least {self._next_producer_id}",
                found=fields["next_producer_id"],
            )
        self._next_producer_id = fields["next_producer_id"]

    def _apply_topic(self, fields: Mapping[str, Any]) -> None:
        name, topic_id = fields["name"], fields["topic_id"]
        fault = topic_name_fault(name)
        if fault is not None:
            raise CorruptRecord(f"a TOPIC_RECORD has an invalid topic name: {fault}")
        if name in self._topics or topic_id in self._names:
            raise CorruptRecord(
                "a topic is in the metadata twice", expected="a new topic", found=f"{name} ({topic_id})"
            )
        self._topics[name] = TopicState(name, topic_id)
        self._names[topic_id] = name

    def _apply_remove_topic(self, fields: Mapping[str, Any]) -> None:
        name = self._known_topic(fields, "REMOVE_TOPIC_RECORD").name
        del self._names[fields["topic_id"]]
        del self._topics[name]
        self._configs.pop((TOPIC_RESOURCE, name), None)

    def _apply_partition(self, fields: Mapping[str, Any]) -> None:
        topic = self._known_topic(fields, "PARTITION_RECORD")
        partition = fields["partition_id"]
        if partition < 0:
            raise CorruptRecord("a PARTITION_RECORD has a negative number", expected="at least 0", found=partition)
        topic.partitions[partition] = PartitionRegistration(
            partition=partition,
            replicas=tuple(fields["replicas"]),
            isr=tuple(fields["isr"]),
            leader=fields["leader"],
            leader_epoch=fields["leader_epoch"],
            partition_epoch=fields["partition_epoch"],
            directories=tuple(fields.get("directories", ())),
        )

    def _apply_partition_change(self, fields: Mapping[str, Any]) -> None:
        topic = self._known_topic(fields, "PARTITION_CHANGE_RECORD")
        before = topic.partitions.get(fields["partition_id"])
        if before is None:
            raise CorruptRecord(
                "a PARTITION_CHANGE_RECORD is for a partition that does not exist",
                expected=f"a partition of {topic.name}",
                found=fields["partition_id"],
            )
        changed: dict[str, Any] = {
            name: tuple(fields[name]) for name in ("isr", "replicas", "directories") if fields.get(name) is not None
        }
        is_new_leader = fields["leader"] != _NO_LEADER_CHANGE
        if is_new_leader and before.leader_epoch == _LAST_EPOCH:
            raise CorruptRecord("no leader epoch follows the last one", expected="a smaller epoch", found=_LAST_EPOCH)
        topic.partitions[before.partition] = replace(
            before,
            **changed,
            leader=fields["leader"] if is_new_leader else before.leader,
            leader_epoch=before.leader_epoch + is_new_leader,
            partition_epoch=before.partition_epoch + 1,
        )

    def _apply_config(self, fields: Mapping[str, Any]) -> None:
        resource = (fields["resource_type"], fields["resource_name"])
        configs = self._configs.setdefault(resource, {})
        if fields["value"] is None:
            configs.pop(fields["name"], None)
        else:
            configs[fields["name"]] = fields["value"]
        if not configs:
            del self._configs[resource]

    def _known_topic(self, fields: Mapping[str, Any], record: str) -> TopicState:
        name = self._names.get(fields["topic_id"])
        if name is None:
            raise CorruptRecord(
                f"a {record} is for a topic that does not exist",
                expected="the id of a topic",
                found=fields["topic_id"],
            )
        return self._topics[name]


_TRANSACTIONS: dict[str | None, Callable[[ClusterMetadata], None]] = {
    "BEGIN_TRANSACTION_RECORD": ClusterMetadata._begin_transaction,
    "END_TRANSACTION_RECORD": ClusterMetadata._end_transaction,
    "ABORT_TRANSACTION_RECORD": ClusterMetadata._abort_transaction,
}
_CHANGES: dict[str | None, Callable[[ClusterMetadata, Mapping[str, Any]], None]] = {
    "FEATURE_LEVEL_RECORD": ClusterMetadata._apply_feature_level,
    "CLIENT_QUOTA_RECORD": ClusterMetadata._apply_client_quota,
    "PRODUCER_IDS_RECORD": ClusterMetadata._apply_producer_ids,
    "ACCESS_CONTROL_ENTRY_RECORD": ClusterMetadata._apply_acl,
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": ClusterMetadata._apply_remove_acl,
    "TOPIC_RECORD": ClusterMetadata._apply_topic,
    "REMOVE_TOPIC_RECORD": ClusterMetadata._apply_remove_topic,
    "PARTITION_RECORD": ClusterMetadata._apply_partition,
    "PARTITION_CHANGE_RECORD": ClusterMetadata._apply_partition_change,
    "CONFIG_RECORD": ClusterMetadata._apply_config,
    "USER_SCRAM_CREDENTIAL_RECORD": lambda metadata, fields: apply_credential(metadata.scram_credentials, fields),
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": lambda metadata, fields: apply_removal(metadata.scram_credentials, fields),
}
