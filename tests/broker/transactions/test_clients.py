"""Transactional producers of three clients against a running broker; Java's, which know version 2, with the oracle."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from duralog.broker.broker import Broker
from duralog.broker.transactions.state import Transaction
from duralog.format.internal.transaction_records import TransactionStatus
from oracle.kafka_jars import KafkaMissingError, class_path
from tests.support.broker.raw_client import RawClient

WAIT_SECONDS = 60
ROUNDS = 4
RECORDS = 5
TOPIC = "orders"


@pytest.fixture
def address(broker: Broker, client: RawClient) -> str:
    topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1}
    client.ask(19, 5, {"topics": [topic], "timeout_ms": 10_000})
    return f"127.0.0.1:{broker.address.port}"


def committed(broker: Broker) -> list[bytes]:
    logs = [broker.store.partition(TOPIC, number) for number in (0, 1)]
    assert all(log.last_stable_offset == log.end_offset for log in logs)
    return sorted(record.value or b"" for log in logs for record in log.read(0, isolation="read_committed"))


def values(*rounds: int) -> list[bytes]:
    return sorted(b"%d-%d" % (round_, number) for round_ in rounds for number in range(RECORDS))


def state(broker: Broker, transactional_id: str) -> Transaction:
    return broker.transactions.states[transactional_id]


def test_confluent_kafka(broker: Broker, address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "librdkafka"})
    producer.init_transactions(WAIT_SECONDS)
    for round_ in range(ROUNDS):
        producer.begin_transaction()
        for value in values(round_):
            producer.produce(TOPIC, value, key=value)
        end: Callable[[float], Any] = producer.abort_transaction if round_ % 2 else producer.commit_transaction
        end(WAIT_SECONDS)
    assert committed(broker) == values(0, 2)
    assert state(broker, "librdkafka").client_version == 0


def test_confluent_kafka_is_fenced_by_its_next_instance(broker: Broker, address: str) -> None:
    config = {"bootstrap.servers": address, "transactional.id": "twice"}
    first, second = Producer(config), Producer(config)
    first.init_transactions(WAIT_SECONDS)
    first.begin_transaction()
    first.produce(TOPIC, b"lost")
    first.flush(WAIT_SECONDS)
    second.init_transactions(WAIT_SECONDS)
    second.begin_transaction()
    second.produce(TOPIC, b"kept")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(WAIT_SECONDS)
    assert refused.value.args[0].fatal()
    second.commit_transaction(WAIT_SECONDS)
    assert committed(broker) == [b"kept"]


def test_offsets_are_committed_with_the_records(broker: Broker, address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "copier"})
    producer.init_transactions(WAIT_SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, b"in", partition=0)
    producer.commit_transaction(WAIT_SECONDS)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "copiers", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    message = consumer.poll(WAIT_SECONDS)
    assert message is not None
    assert message.value() == b"in"
    asked = [TopicPartition(TOPIC, 0)]
    for commits in (False, True):
        producer.begin_transaction()
        producer.produce(TOPIC, b"out", partition=1)
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 1)], metadata, WAIT_SECONDS)
        if commits:
            producer.commit_transaction(WAIT_SECONDS)
        else:
            producer.abort_transaction(WAIT_SECONDS)
        assert consumer.committed(asked, WAIT_SECONDS)[0].offset == (1 if commits else -1001)
    consumer.close()
    assert committed(broker) == [b"in", b"out"]


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
def test_kafka_python(broker: Broker, address: str) -> None:
    from kafka import KafkaProducer  # Not at the top: importing it warns.

    producer = KafkaProducer(bootstrap_servers=address, transactional_id="kafka-python")
    producer.init_transactions()
    for round_ in range(ROUNDS):
        producer.begin_transaction()
        for value in values(round_):
            producer.send(TOPIC, value, key=value)
        if round_ % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert committed(broker) == values(0, 2)


class Changed(Exception):
    """The producer changes its mind."""


def test_aiokafka(broker: Broker, address: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="aiokafka")
        await producer.start()
        for round_ in range(ROUNDS):
            try:
                async with producer.transaction():
                    for value in values(round_):
                        await producer.send_and_wait(TOPIC, value, key=value)
                    if round_ % 2:
                        raise Changed
            except Changed:
                pass
        await producer.stop()

    asyncio.run(run())
    assert committed(broker) == values(0, 2)


@pytest.mark.interop
def test_javas_producer_raises_its_epoch_with_every_transaction(broker: Broker, address: str) -> None:
    try:
        path = class_path()
    except KafkaMissingError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka must run in CI: {reason}")
        pytest.skip(f"Apache Kafka cannot be run here: {reason}")
    count = 5_000
    options = ["--topic", TOPIC, "--num-records", str(count), "--record-size", "100", "--throughput", "-1"]
    options += ["--bootstrap-server", address, "--transactional-id", "java", "--transaction-duration-ms", "20"]
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path, "org.apache.kafka.tools.ProducerPerformance"]
    run = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert len(committed(broker)) == count
    last = state(broker, "java")
    assert last.status is TransactionStatus.COMPLETE_COMMIT
    assert last.client_version == 2
    assert last.producer_epoch >= 1
