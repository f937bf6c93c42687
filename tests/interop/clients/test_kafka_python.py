"""kafka-python's clients against `duralog serve`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.interop.served_directory import ServedDirectory

with warnings.catch_warnings():
    # It reads its schemas with a function that Python 3.11 calls old.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
    from kafka.errors import TopicAlreadyExistsError
    from kafka.structs import OffsetAndMetadata

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")]

WAIT_SECONDS = 60
WAIT_MS = WAIT_SECONDS * 1000
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def admin(serving: ServedDirectory) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=serving.bootstrap)) as client:
        yield client


def make(admin: KafkaAdminClient, topic: str, partitions: int = 1, **configs: str) -> str:
    config = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])
    return topic


def write(serving: ServedDirectory, topic: str, values: list[bytes], **settings: object) -> list[int]:
    with closing(KafkaProducer(bootstrap_servers=serving.bootstrap, **settings)) as producer:
        sent = [
            producer.send(topic, value, b"key %d" % number, headers=[("number", b"%d" % number)])
            for number, value in enumerate(values)
        ]
        return [each.get(WAIT_SECONDS).offset for each in sent]


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        polled = consumer.poll(WAIT_MS, max_records=count - len(found))
        assert polled, f"{len(found)} of {count} records came"
        found += [record for records in polled.values() for record in records]
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(serving: ServedDirectory, admin: KafkaAdminClient, codec: str | None) -> None:
    topic = make(admin, f"kafka-python-codec-{codec}")
    values = [b"value %d " % number * 20 for number in range(300)]
    assert write(serving, topic, values, compression_type=codec, linger_ms=20) == list(range(300))
    settings = {"auto_offset_reset": "earliest", "group_id": topic, "bootstrap_servers": serving.bootstrap}
    with closing(KafkaConsumer(topic, **settings)) as consumer:
        found = read(consumer, 300)
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(300))
    assert found[7].headers == [("number", b"7")]


def test_a_group_continues_where_it_stopped(serving: ServedDirectory, admin: KafkaAdminClient) -> None:
    topic = make(admin, "kafka-python-group", 3)
    settings = {"bootstrap_servers": serving.bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    write(serving, topic, [b"first %d" % number for number in range(60)])
    with closing(KafkaConsumer(topic, enable_auto_commit=False, **settings)) as consumer:
        assert {record.value for record in read(consumer, 60)} == {b"first %d" % number for number in range(60)}
        consumer.commit()
    write(serving, topic, [b"second %d" % number for number in range(30)])
    with closing(KafkaConsumer(topic, enable_auto_commit=False, **settings)) as consumer:
        assert {record.value for record in read(consumer, 30)} == {b"second %d" % number for number in range(30)}
        assert len(consumer.assignment()) == 3


def test_seeking(serving: ServedDirectory, admin: KafkaAdminClient) -> None:
    topic = make(admin, "kafka-python-seek")
    write(serving, topic, [b"%d" % number for number in range(100)])
    partition = TopicPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=serving.bootstrap, enable_auto_commit=False)) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 40)
        first = read(consumer, 1)[0]
        assert first.offset == 40
        consumer.seek_to_beginning(partition)
        assert read(consumer, 1)[0].offset == 0
        assert consumer.end_offsets([partition]) == {partition: 100}
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.offsets_for_times({partition: first.timestamp})[partition].offset <= 40
        assert consumer.offsets_for_times({partition: first.timestamp + 10**9})[partition] is None


def test_transactions(serving: ServedDirectory, admin: KafkaAdminClient) -> None:
    topic = make(admin, "kafka-python-transactions", 2)
    with closing(KafkaProducer(bootstrap_servers=serving.bootstrap, transactional_id=topic)) as producer:
        producer.init_transactions()
        for number, commit in enumerate((True, False, True)):
            producer.begin_transaction()
            for value in range(5):
                producer.send(topic, b"%d-%d" % (number, value))
            offsets = {TopicPartition(topic, 0): OffsetAndMetadata(10 + number, "", -1)}
            producer.send_offsets_to_transaction(offsets, f"{topic}-group")
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    settings = {"bootstrap_servers": serving.bootstrap, "auto_offset_reset": "earliest", "group_id": f"{topic}-group"}
    with closing(KafkaConsumer(isolation_level="read_committed", enable_auto_commit=False, **settings)) as consumer:
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        assert consumer.committed(partitions[0]) == 12
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        found = sorted(record.value for record in read(consumer, 10))
        assert found == sorted(b"%d-%d" % (number, value) for number in (0, 2) for value in range(5))
        assert consumer.poll(300) == {}


def test_admin(serving: ServedDirectory, admin: KafkaAdminClient) -> None:
    topic = make(admin, "kafka-python-admin", 2, retention_ms="86400000")
    with pytest.raises(TopicAlreadyExistsError):
        make(admin, topic)
    admin.create_partitions({topic: NewPartitions(5)})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 5
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    assert "86400000" in str(admin.describe_configs([resource]))
    write(serving, topic, [b"%d" % number for number in range(20)])
    with closing(KafkaConsumer(bootstrap_servers=serving.bootstrap, group_id=topic)) as consumer:
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
    assert topic in {group["group_id"] for group in admin.list_groups()}
    assert topic in str(admin.describe_groups([topic]))
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
