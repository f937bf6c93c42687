"""Consumers of librdkafka and of kafka-python in classic groups: they share out partitions, come back and go on."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from duralog.broker.broker import Broker
from duralog.broker.groups.classic.group import ClassicGroup
from duralog.config import BrokerConfig
from tests.broker.conftest import QUICK

with warnings.catch_warnings():
    # It reads its schemas in a way that Python does not like any more.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

PARTITIONS = 6
_PATIENCE_SECONDS = 60
"""After which a consumer will not get what it waits for any more."""


@pytest.fixture
def topic(broker: Broker) -> str:
    make_topic(broker)
    return "orders"


@pytest.fixture
def new_consumer(broker: Broker) -> Iterator[Callable[..., Consumer]]:
    consumers: list[Consumer] = []

    def new_consumer(**configs: object) -> Consumer:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        consumer = Consumer(
            {
                **address(broker),
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 60_000,
                "topic.metadata.refresh.interval.ms": 500,
                **dotted,
            }
        )
        consumer.subscribe(["orders"])
        consumers.append(consumer)
        return consumer

    yield new_consumer
    for consumer in consumers:
        consumer.close()


def address(broker: Broker) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{broker.address.port}"}


def make_topic(broker: Broker) -> None:
    admin = AdminClient(address(broker))
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(_PATIENCE_SECONDS)


def produce(broker: Broker, values: range) -> None:
    producer = Producer(address(broker))
    for value in values:
        producer.produce("orders", str(value).encode(), partition=value % PARTITIONS)
    assert producer.flush(_PATIENCE_SECONDS) == 0


def tries() -> Iterator[None]:
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        yield


def wait_for(consumers: list[Consumer], is_so: Callable[[], bool]) -> None:
    """Poll all, since a consumer takes part in a rebalance when it is polled, until it is so."""
    for _ in tries():
        if is_so():
            return
        for consumer in consumers:
            message = consumer.poll(0.1 / len(consumers))
            assert message is None or message.error() is None
    pytest.fail("the consumers do not come to an end")


def generation_of(broker: Broker) -> int:
    group = broker.groups.by_id["readers"]
    assert isinstance(group, ClassicGroup)
    return group.generation


def shares(consumers: list[Consumer]) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_three_consumers_share_the_partitions_and_take_over_what_another_leaves(
    topic: str, new_consumer: Callable[..., Consumer], strategy: str
) -> None:
    consumers = [new_consumer(partition_assignment_strategy=strategy) for _ in range(3)]
    wait_for(consumers, lambda: shares(consumers) == [2, 2, 2])
    owned = [partition.partition for consumer in consumers for partition in consumer.assignment()]
    assert sorted(owned) == list(range(PARTITIONS))
    consumers.pop().close()
    wait_for(consumers, lambda: shares(consumers) == [3, 3])


def test_a_static_consumer_that_comes_back_has_its_partitions_without_a_rebalance(
    broker: Broker, topic: str, new_consumer: Callable[..., Consumer]
) -> None:
    consumers = [new_consumer(group_instance_id=f"static-{number}") for number in range(2)]
    wait_for(consumers, lambda: shares(consumers) == [3, 3])
    generation = generation_of(broker)
    before = {partition.partition for partition in consumers[1].assignment()}
    consumers[1].close()
    back = new_consumer(group_instance_id="static-1")
    wait_for([consumers[0], back], lambda: len(back.assignment()) == 3)
    assert {partition.partition for partition in back.assignment()} == before
    assert generation_of(broker) == generation


def test_consumers_of_both_libraries_in_one_group(
    broker: Broker, topic: str, new_consumer: Callable[..., Consumer]
) -> None:
    produce(broker, range(60))
    first = new_consumer(partition_assignment_strategy="range")
    wait_for([first], lambda: shares([first]) == [6])
    second = KafkaConsumer(
        "orders",
        bootstrap_servers=f"127.0.0.1:{broker.address.port}",
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=60_000,
        heartbeat_interval_ms=200,
    )
    try:
        wait_for([first], lambda: not second.poll(100) and len(second.assignment()) == 3 == len(first.assignment()))
        second.seek_to_beginning()
        read: set[int] = set()
        for _ in tries():
            for records in second.poll(100).values():
                read |= {int(record.value) for record in records}
            if len(read) == 30:
                break
        second.commit()
        numbers = {partition.partition for partition in second.assignment()}
        assert {value % PARTITIONS for value in read} == numbers
        admin = AdminClient(address(broker))
        committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")])
        found = committed["readers"].result(_PATIENCE_SECONDS).topic_partitions
        assert {(each.partition, each.offset) for each in found} == {(number, 10) for number in numbers}
    finally:
        second.close(autocommit=False)


def test_a_group_continues_where_it_was_after_a_restart(tmp_path: Path) -> None:
    config = BrokerConfig.of(QUICK)

    def read(count: int, broker: Broker) -> list[int]:
        consumer = Consumer(
            {
                **address(broker),
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["orders"])
        values: list[int] = []
        for _ in tries():
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None
                value = message.value()
                assert value is not None
                values.append(int(value))
                consumer.commit(message=message, asynchronous=False)
            if len(values) == count:
                break
        consumer.close()
        return values

    with Broker(str(tmp_path / "data"), config=config) as broker:
        broker.start()
        make_topic(broker)
        produce(broker, range(40))
        first = read(15, broker)
    with Broker(str(tmp_path / "data"), config=config) as broker:
        broker.start()
        produce(broker, range(40, 60))
        second = read(45, broker)
        admin = AdminClient(address(broker))
        ends = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")])
        assert {each.offset for each in ends["readers"].result(_PATIENCE_SECONDS).topic_partitions} == {10}
        admin.delete_consumer_groups(["readers"])["readers"].result(_PATIENCE_SECONDS)
        assert not broker.groups.by_id
    assert sorted(first + second) == list(range(60))


def test_offsets_set_by_an_administrator(broker: Broker, topic: str, new_consumer: Callable[..., Consumer]) -> None:
    produce(broker, range(60))
    admin = AdminClient(address(broker))
    wanted = [TopicPartition("orders", number, 9) for number in range(PARTITIONS)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("readers", wanted)])["readers"].result(
        _PATIENCE_SECONDS
    )
    listed = admin.list_consumer_groups().result(_PATIENCE_SECONDS)
    assert [(group.group_id, group.is_simple_consumer_group) for group in listed.valid] == [("readers", True)]
    consumer = new_consumer()
    values: set[int] = set()
    for _ in tries():
        message = consumer.poll(0.1)
        if message is not None:
            value = message.value()
            assert value is not None
            values.add(int(value))
        if len(values) == PARTITIONS:
            break
    assert values == set(range(54, 60))
    described = admin.describe_consumer_groups(["readers"])["readers"].result(_PATIENCE_SECONDS)
    assert (described.state.name, described.partition_assignor, len(described.members)) == ("STABLE", "range", 1)
