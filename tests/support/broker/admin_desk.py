"""What the tests of the admin APIs share: requests by the fields that matter, answers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from duralog.broker.broker import Broker
from duralog.errors import StorageError
from duralog.format import record_batch
from duralog.format.record import Record
from duralog.format.topic_partition import TopicPartition
from duralog.storage.log.partition_log import AppendResult
from tests.support.broker.raw_client import RawClient
from tests.support.waiting import wait_until

LIST_OFFSETS = 2
METADATA = 3
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DELETE_RECORDS = 21
OFFSET_FOR_LEADER_EPOCH = 23
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
DESCRIBE_LOG_DIRS = 35
CREATE_PARTITIONS = 37
INCREMENTAL_ALTER_CONFIGS = 44
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
DESCRIBE_TOPIC_PARTITIONS = 75

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

NOT_ASKED = -(2**31)


def new_topic(name: str, partitions: int = 1, replication_factor: int = 1, **more: Any) -> dict[str, Any]:
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]
    assignments = [
        {"partition_index": number, "broker_ids": list(brokers)} for number, brokers in more.pop("assignments", [])
    ]
    assert not more
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": assignments,
        "configs": configs,
    }


def create(
    client: RawClient, *topics: Mapping[str, Any], version: int = 7, validate_only: bool = False, timeout: int = 10_000
) -> list[Any]:
    fields = {"topics": list(topics), "timeout": timeout, "validate_only": validate_only}
    return list(client.ask(CREATE_TOPICS, version, fields).topics)


def make(client: RawClient, name: str, partitions: int = 1, **configs: str) -> Any:
    """A topic that must come to be. Returns its id."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    (topic,) = create(client, new_topic(name, partitions, configs=named))
    assert topic.error_code == 0, topic
    return topic.topic_id


def damage(broker: Broker, topic: str, number: int) -> None:
    """Let a partition be one that could not be loaded."""
    partition = TopicPartition(topic, number)
    broker.store._opened.offline[partition] = StorageError("damaged")
    with broker.store._open.changing:
        broker.store._open.take([partition])


def metadata(
    client: RawClient, *names: str | None, version: int = 12, auto: bool = False, operations: bool = False
) -> Any:
    topics = None if names == (None,) else [{"name": name, "topic_id": None} for name in names]
    fields: dict[str, Any] = {"topics": topics}
    if version < 10 and topics is not None:
        fields["topics"] = [{"name": name} for name in names]
    if version >= 4:
        fields["allow_auto_topic_creation"] = auto
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = operations
    if version >= 8:
        fields["include_topic_authorized_operations"] = operations
    return client.ask(METADATA, version, fields)


def topic_errors(client: RawClient, *names: str) -> list[int]:
    answer = metadata(client, *names)
    by_name = {topic.name: topic.error_code for topic in answer.topics}
    return [by_name[name] for name in names]


def describe_configs(
    client: RawClient,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    synonyms: bool = False,
    doc: bool = False,
) -> Any:
    fields = {
        "resources": [{"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}],
        "include_synonyms": synonyms,
        "include_documentation": doc,
    }
    (result,) = client.ask(DESCRIBE_CONFIGS, 4, fields).results
    return result


def config_values(client: RawClient, resource_type: int, name: str, *keys: str) -> dict[str, str | None]:
    result = describe_configs(client, resource_type, name, list(keys) or None)
    assert result.error_code == 0, result
    return {config.name: config.value for config in result.configs}


def alter(
    client: RawClient,
    resource_type: int,
    name: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[int, str | None]:
    configs = [{"name": key, "config_operation": what, "value": value} for key, what, value in operations]
    resources = [{"resource_type": resource_type, "resource_name": name, "configs": configs}]
    fields = {"resources": resources, "validate_only": validate_only}
    (response,) = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
    assert (response.resource_type, response.resource_name) == (resource_type, name)
    return response.error_code, response.error_message


def on_loop(broker: Broker, work: Callable[[], Any]) -> Any:
    """Run something on the loop of a running broker, and wait for it."""
    results: list[Any] = []
    broker.loop.call_soon(lambda: results.append(work()))
    wait_until(lambda: bool(results))
    return results[0]


def append(broker: Broker, topic: str, number: int, timestamps: list[int], **producer: Any) -> None:
    records = [Record(key=b"k", value=b"v", timestamp_ms=timestamp) for timestamp in timestamps]
    batch = bytearray(record_batch.encode(records, **producer))

    def append_on_loop() -> AppendResult:
        partition = broker.partitions.get(topic, number)
        assert partition is not None
        return partition.append(batch)

    on_loop(broker, append_on_loop)
