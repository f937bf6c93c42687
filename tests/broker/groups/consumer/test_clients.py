"""confluent-kafka with `group.protocol=consumer`: members come, go and come back, and every record is read once.

The times in here are how long a client may take, not how long it should.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from duralog.broker.broker import Broker

_LONGEST_S = 60.0


@pytest.fixture
def broker_config() -> dict[str, object]:
    """Clients hear of news sooner than in a real group."""
    return {
        "group.consumer.min.heartbeat.interval.ms": 50,
        "group.consumer.heartbeat.interval.ms": 50,
        "group.consumer.assignment.interval.ms": 0,
    }


class Clients:
    def __init__(self, broker: Broker) -> None:
        address = f"127.0.0.1:{broker.address.port}"
        self.servers: dict[str, str | int | float | bool] = {"bootstrap.servers": address, "log_level": 0}
        self.admin = AdminClient(self.servers)
        self.producer = Producer(self.servers)
        self.consumers: dict[str, Consumer] = {}
        self.read: dict[tuple[str | None, int | None, int | None], list[str]] = {}

    def create(self, topic: str, partitions: int) -> None:
        self.admin.create_topics([NewTopic(topic, partitions)])[topic].result()

    def produce(self, topic: str, partitions: int, each: int) -> None:
        for number in range(partitions * each):
            self.producer.produce(topic, str(number), partition=number % partitions)
        self.producer.flush()

    def join(self, name: str, topics: list[str], **settings: object) -> None:
        chosen = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = self.consumers[name] = Consumer(
            {
                **self.servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **chosen,
            }
        )
        consumer.subscribe(topics)

    def leave(self, name: str) -> None:
        self.consumers.pop(name).close()

    def poll_until(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + _LONGEST_S
        while not done():
            assert time.monotonic() < until, self.shares()
            for name, consumer in self.consumers.items():
                message = consumer.poll(0.01)
                if message is not None:
                    assert message.error() is None, message.error()
                    place = (message.topic(), message.partition(), message.offset())
                    self.read.setdefault(place, []).append(name)

    def shares(self) -> dict[str, int]:
        return {name: len(consumer.assignment()) for name, consumer in self.consumers.items()}

    def close(self) -> None:
        for name in [*self.consumers]:
            self.leave(name)


@pytest.fixture
def clients(broker: Broker) -> Clients:
    return Clients(broker)


def test_members_join_share_leave_and_come_back(broker: Broker, clients: Clients) -> None:
    clients.create("t", 6)
    clients.produce("t", 6, each=10)
    clients.join("a", ["t"])
    clients.poll_until(lambda: len(clients.read) == 60)
    clients.consumers["a"].commit(asynchronous=False)

    clients.join("b", ["t"])
    clients.join("c", ["t"], group_instance_id="static")
    clients.poll_until(lambda: clients.shares() == {"a": 2, "b": 2, "c": 2})
    clients.produce("t", 6, each=10)
    clients.poll_until(lambda: len(clients.read) == 120)
    for consumer in clients.consumers.values():
        consumer.commit(asynchronous=False)

    clients.leave("b")
    clients.poll_until(lambda: clients.shares() == {"a": 3, "c": 3})
    kept = {each.partition for each in clients.consumers["c"].assignment()}
    clients.leave("c")
    clients.join("c", ["t"], group_instance_id="static")
    clients.poll_until(lambda: clients.shares() == {"a": 3, "c": 3})
    assert {each.partition for each in clients.consumers["c"].assignment()} == kept

    clients.produce("t", 6, each=1)
    clients.poll_until(lambda: len(clients.read) == 126)
    assert {len(readers) for readers in clients.read.values()} == {1}
    committed = clients.consumers["a"].committed([TopicPartition("t", number) for number in range(6)])
    assert [each.offset for each in committed] == [20] * 6
    clients.close()


def test_a_group_moves_to_the_newer_protocol_and_back_member_by_member(broker: Broker, clients: Clients) -> None:
    classic = {"group_protocol": "classic", "heartbeat_interval_ms": 100, "partition_assignment_strategy": "range"}
    clients.create("t", 6)
    clients.produce("t", 6, each=1)
    clients.join("old", ["t"], **classic)
    clients.poll_until(lambda: len(clients.read) == 6)
    clients.consumers["old"].commit(asynchronous=False)
    assert broker.groups.by_id["g"].kind == "classic"

    clients.join("new", ["t"])
    clients.poll_until(lambda: clients.shares() == {"old": 3, "new": 3})
    assert broker.groups.by_id["g"].kind == "consumer"
    clients.produce("t", 6, each=1)
    clients.poll_until(lambda: len(clients.read) == 12)
    for consumer in clients.consumers.values():
        consumer.commit(asynchronous=False)

    clients.leave("new")
    clients.poll_until(lambda: clients.shares() == {"old": 6})
    assert broker.groups.by_id["g"].kind == "classic"
    clients.join("new", ["t"])
    clients.poll_until(lambda: clients.shares() == {"old": 3, "new": 3})
    clients.leave("old")
    clients.poll_until(lambda: clients.shares() == {"new": 6})
    clients.produce("t", 6, each=1)
    clients.poll_until(lambda: len(clients.read) == 18)
    assert {len(readers) for readers in clients.read.values()} == {1}
    clients.close()


def test_a_pattern_finds_topics(broker: Broker, clients: Clients) -> None:
    clients.create("logs-a", 1)
    clients.create("other", 1)
    clients.produce("logs-a", 1, each=3)
    clients.produce("other", 1, each=3)
    clients.join("a", ["^logs-.*"])
    clients.poll_until(lambda: len(clients.read) == 3)
    assert {topic for topic, _, _ in clients.read} == {"logs-a"}
    clients.close()


def test_groups_are_listed_described_and_deleted(broker: Broker, clients: Clients) -> None:
    clients.create("t", 2)
    clients.join("a", ["t"], client_id="me")
    clients.poll_until(lambda: clients.shares() == {"a": 2})
    (listed,) = clients.admin.list_consumer_groups().result().valid
    assert (listed.group_id, listed.type.name, listed.state.name) == ("g", "CONSUMER", "STABLE")
    described = clients.admin.describe_consumer_groups(["g"])["g"].result()
    (member,) = described.members
    assert (described.partition_assignor, described.state.name, member.client_id) == ("uniform", "STABLE", "me")
    assert sorted(each.partition for each in member.assignment.topic_partitions) == [0, 1]
    clients.close()
    clients.admin.delete_consumer_groups(["g"])["g"].result()
    assert clients.admin.list_consumer_groups().result().valid == []
