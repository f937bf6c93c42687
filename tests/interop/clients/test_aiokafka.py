"""aiokafka's clients, which speak only old versions of the protocol, against `duralog serve`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.support.interop.served_directory import ServedDirectory

pytestmark = pytest.mark.interop

WAIT_SECONDS = 60
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


async def make(serving: ServedDirectory, topic: str, partitions: int = 1, **configs: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=serving.bootstrap)
    await admin.start()
    try:
        config = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])
    finally:
        await admin.close()


async def write(serving: ServedDirectory, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=serving.bootstrap, **settings) as producer:
        sent = [await producer.send(topic, value, headers=[("a", b"b")]) for value in values]
        return [(await each).offset for each in sent]


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await consumer.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(serving: ServedDirectory, codec: str | None) -> None:
    topic = f"aiokafka-codec-{codec}"
    values = [b"value %d " % number * 20 for number in range(200)]

    async def talk() -> None:
        await make(serving, topic)
        settings = {"compression_type": codec, "linger_ms": 20, "enable_idempotence": codec is not None}
        assert await write(serving, topic, values, **settings) == list(range(200))
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=serving.bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            found = await read(consumer, 200)
        assert [record.value for record in found] == values
        assert found[3].headers == (("a", b"b"),)

    run(talk())


def test_a_group_continues_where_it_stopped(serving: ServedDirectory) -> None:
    topic = "aiokafka-group"

    async def consumed(count: int) -> set[bytes]:
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=serving.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            found = {record.value for record in await read(consumer, count)}
            await consumer.commit()
            return found

    async def talk() -> None:
        await make(serving, topic, 3)
        for name in (b"first", b"second"):
            sent = [name + b" %d" % number for number in range(30)]
            await write(serving, topic, sent)
            assert await consumed(30) == set(sent)

    run(talk())


def test_seeking(serving: ServedDirectory) -> None:
    topic = "aiokafka-seek"
    partition = TopicPartition(topic, 0)

    async def talk() -> None:
        await make(serving, topic)
        await write(serving, topic, [b"%d" % number for number in range(50)])
        async with AIOKafkaConsumer(bootstrap_servers=serving.bootstrap) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 30)
            record = await consumer.getone()
            assert record.offset == 30
            await consumer.seek_to_beginning(partition)
            assert (await consumer.getone()).offset == 0
            assert await consumer.end_offsets([partition]) == {partition: 50}
            found = await consumer.offsets_for_times({partition: record.timestamp})
            assert found[partition].offset <= 30

    run(talk())


def test_transactions(serving: ServedDirectory) -> None:
    topic, group = "aiokafka-transactions", "aiokafka-transactions-group"

    async def talk() -> None:
        await make(serving, topic)
        async with AIOKafkaProducer(bootstrap_servers=serving.bootstrap, transactional_id=topic) as producer:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed")
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 7}, group)
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"aborted")
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed too")
        async with AIOKafkaConsumer(
            bootstrap_servers=serving.bootstrap, group_id=group, isolation_level="read_committed"
        ) as consumer:
            assert await consumer.committed(TopicPartition(topic, 0)) == 7
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            assert [record.value for record in await read(consumer, 2)] == [b"committed", b"committed too"]

    run(talk())


def test_admin(serving: ServedDirectory) -> None:
    topic = "aiokafka-admin"

    async def talk() -> None:
        await make(serving, topic, 2, retention_ms="86400000")
        admin = AIOKafkaAdminClient(bootstrap_servers=serving.bootstrap)
        await admin.start()
        try:
            await admin.create_partitions({topic: NewPartitions(4)})
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 4
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            assert "86400000" in str(await admin.describe_configs([resource]))
            await write(serving, topic, [b"x"] * 5)
            async with AIOKafkaConsumer(bootstrap_servers=serving.bootstrap, group_id=topic) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                await consumer.commit({TopicPartition(topic, 0): 1})
            assert topic in [group[0] for group in await admin.list_consumer_groups()]
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    run(talk())
