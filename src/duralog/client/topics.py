"""The topics of a running broker: partitions, offsets and configs, and changes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duralog.client.connection import (
    ANSWER_SECONDS,
    Place,
    admin_client,
    admin_module,
    edge_offsets,
    error_text,
    errors_of,
    kafka_client,
)
from duralog.client.unknown_names import unknown_topic
from duralog.config.entries import Value
from duralog.errors import DuralogError, TopicExists

_MOST_PARTITIONS = 2**31 - 1
_URL_SAFE = str.maketrans("+/", "-_")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    number: int
    start_offset: int | None
    """None without a leader, as `end_offset`."""
    end_offset: int | None
    leader: int | None
    replicas: Sequence[int]
    in_sync: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    name: str
    topic_id: str
    partitions: Sequence[PartitionView]
    configs: Sequence[Value]
    """All of them, by name."""


class BrokerTopics:
    def __init__(self, address: str) -> None:
        self._address = address
        self._client = kafka_client()
        self._types = admin_module()
        self._admin = admin_client(address)

    def views(self, only: str | None = None) -> list[TopicView]:
        """All topics by name, or the one of this name."""
        with errors_of(self._address):
            names = self._names(only)
            described = self._described(names)
            starts, ends = self._edges(described)
            configs = self._configs(names)
        return [
            TopicView(
                name=name,
                topic_id=id_text(described[name].topic_id),
                partitions=[
                    PartitionView(
                        number=partition.id,
                        start_offset=starts.get((name, partition.id)),
                        end_offset=ends.get((name, partition.id)),
                        leader=partition.leader.id if _has_leader(partition) else None,
                        replicas=[node.id for node in partition.replicas],
                        in_sync=[node.id for node in partition.isr],
                    )
                    for partition in described[name].partitions
                ],
                configs=configs[name],
            )
            for name in names
        ]

    def create(
        self, name: str, partitions: int | None, configs: Mapping[str, object], *, replication_factor: int | None = None
    ) -> tuple[str, int]:
        """Returns the id of the topic and its number of partitions. Raises `TopicExists`."""
        texts = {key: str(value) for key, value in configs.items()}
        count = -1 if partitions is None else _checked_count(partitions)
        replicas = -1 if replication_factor is None else replication_factor
        with errors_of(self._address):
            topic = self._types.NewTopic(name, num_partitions=count, replication_factor=replicas, config=texts)
            try:
                self._admin.create_topics([topic], request_timeout=ANSWER_SECONDS)[name].result()
            except self._client.KafkaException as error:
                if error.args[0].code() != self._client.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                raise TopicExists(f"{self._address}: {error_text(error.args[0])}") from None
        return self.found(name)

    def check_new(self, name: str, partitions: int | None, configs: Mapping[str, object]) -> None:
        """Raise what `create` would. Nothing is created."""
        count = -1 if partitions is None else _checked_count(partitions)
        texts = {key: str(value) for key, value in configs.items()}
        with errors_of(self._address):
            topic = self._types.NewTopic(name, num_partitions=count, replication_factor=-1, config=texts)
            self._admin.create_topics([topic], request_timeout=ANSWER_SECONDS, validate_only=True)[name].result()

    def found(self, name: str) -> tuple[str, int]:
        """The id of a topic and its number of partitions."""
        with errors_of(self._address):
            (described,) = self._described([name]).values()
        return id_text(described.topic_id), len(described.partitions)

    def alter(
        self, name: str, changes: Mapping[str, object], partitions: int | None, *, validate_only: bool = False
    ) -> None:
        """Set configs, of which None removes one, and add partitions up to a number."""
        how: dict[str, Any] = {"request_timeout": ANSWER_SECONDS, "validate_only": validate_only}
        operation = self._types.AlterConfigOpType
        with errors_of(self._address):
            if changes:
                entries = [
                    self._types.ConfigEntry(
                        key,
                        None if value is None else str(value),
                        incremental_operation=operation.DELETE if value is None else operation.SET,
                    )
                    for key, value in changes.items()
                ]
                resource = self._types.ConfigResource(self._types.ResourceType.TOPIC, name, incremental_configs=entries)
                self._admin.incremental_alter_configs([resource], **how)[resource].result()
            if partitions is not None:
                added = self._types.NewPartitions(name, _checked_count(partitions))
                self._admin.create_partitions([added], **how)[name].result()

    def delete(self, name: str) -> None:
        with errors_of(self._address):
            self._admin.delete_topics([name], request_timeout=ANSWER_SECONDS)[name].result()

    def count(self, name: str) -> int:
        """The number of partitions of a topic."""
        with errors_of(self._address):
            self._names(name)
            (described,) = self._described([name]).values()
        return len(described.partitions)

    def _names(self, only: str | None) -> list[str]:
        found = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
        if only is not None and only not in found:
            raise unknown_topic(self._address, only, found)
        return sorted(found) if only is None else [only]

    def _described(self, names: list[str]) -> dict[str, Any]:
        if not names:
            return {}
        wanted = self._client.TopicCollection(names)
        answers = self._admin.describe_topics(wanted, request_timeout=ANSWER_SECONDS)
        return {name: answer.result() for name, answer in answers.items()}

    def _edges(self, described: Mapping[str, Any]) -> tuple[Mapping[Place, int], Mapping[Place, int]]:
        """The start and end offsets of the partitions that have a leader."""
        places = [
            self._client.TopicPartition(name, partition.id)
            for name, topic in described.items()
            for partition in topic.partitions
            if _has_leader(partition)
        ]
        if not places:
            return {}, {}
        return edge_offsets(self._admin, places, latest=False), edge_offsets(self._admin, places, latest=True)

    def _configs(self, names: list[str]) -> dict[str, list[Value]]:
        resources = {name: self._types.ConfigResource(self._types.ResourceType.TOPIC, name) for name in names}
        if not resources:
            return {}
        answers = self._admin.describe_configs([*resources.values()], request_timeout=ANSWER_SECONDS)
        return {
            name: sorted(Value(entry.name, entry.value, entry.source) for entry in answers[resource].result().values())
            for name, resource in resources.items()
        }


def _checked_count(partitions: int) -> int:
    """A number of partitions that a request can carry. The broker decides whether it creates as many."""
    if partitions > _MOST_PARTITIONS:
        raise DuralogError(f"{partitions} is not a number of partitions: it must be from 1 to {_MOST_PARTITIONS}")
    return partitions


def _has_leader(partition: Any) -> bool:
    return partition.leader is not None and partition.leader.id >= 0


def id_text(topic_id: Any) -> str:
    """As Kafka and its files write it: `confluent-kafka` uses the other alphabet of base64."""
    return str(topic_id).translate(_URL_SAFE)
