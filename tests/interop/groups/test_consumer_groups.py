"""Consumer groups continue when Kafka takes over the directory, and when duralog takes it over from Kafka.

A group is described by the one and then by the other, and its members go on from where they were: no epoch goes up, so
no member has to give up partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from duralog.broker.broker import Broker
from duralog.config import BrokerConfig
from duralog.format.java_hash import coordinator_partition
from oracle.conformance.coordinators import wait_for_coordinators
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from tests.support.broker.raw_client import RawClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

CREATE_TOPICS, HEARTBEAT, DESCRIBE = 19, 68, 69
CONFIGS = {
    "group.consumer.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 1,
}
GROUPS = ["plain", "static", "pattern", "empty"]
_LONGEST_S = 60.0


class Client(RawClient):
    """Speaks for the members of groups."""

    topics: dict[str, UUID]

    def create_topics(self, **partitions: int) -> None:
        asked = [
            {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
            for name, count in partitions.items()
        ]
        answer = self.ask(CREATE_TOPICS, 7, {"topics": asked, "timeout_ms": 10_000, "validate_only": False})
        assert {topic.error_code for topic in answer.topics} == {0}
        self.topics = {topic.name: topic.topic_id for topic in answer.topics}
        self.wait_for_topics("probe", *partitions)

    def wait_for_topics(self, probe: str, *topics: str) -> None:
        """Until every partition of `__consumer_offsets` knows them: Kafka tells each for itself, and late."""
        probes = [f"{probe}-{number}" for number in range(2)]
        assert {coordinator_partition(each, 2) for each in probes} == {0, 1}

        def all_are_given(group: str) -> bool:
            return len(self.join(group, "p", *topics).assignment.topic_partitions) == len(topics)

        for each in probes:
            self.wait(partial(all_are_given, each))

    def wait(self, is_done: Callable[[], bool]) -> None:
        wait_until(is_done, _LONGEST_S, pause_seconds=0.1)

    def heartbeat(self, group: str, member: str, epoch: int, **more: Any) -> Any:
        fields = {"group_id": group, "member_id": member, "member_epoch": epoch, "topic_partitions": None, **more}
        answer = self.ask(HEARTBEAT, 1, fields)
        assert answer.error_code == 0, answer
        return answer

    def join(self, group: str, member: str, *topics: str, **more: Any) -> Any:
        fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_names": list(topics)}
        return self.heartbeat(group, member, 0, **{**fields, **more})

    def describe_groups(self) -> Any:
        return self.ask(DESCRIBE, 1, {"group_ids": GROUPS, "include_authorized_operations": False}).groups

    def description(self) -> dict[str, Any]:
        """The groups without what goes by the order of a hash map."""
        return {
            group.group_id: (
                (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name),
                {
                    member.member_id: (
                        member.instance_id,
                        member.rack_id,
                        member.member_epoch,
                        member.client_id,
                        member.client_host,
                        sorted(member.subscribed_topic_names),
                        member.subscribed_topic_regex,
                        _partitions(member.assignment),
                        _partitions(member.target_assignment),
                    )
                    for member in group.members
                },
            )
            for group in self.describe_groups()
        }


def _partitions(assignment: Any) -> dict[str, list[int]]:
    return {topic.topic_name: sorted(topic.partitions) for topic in assignment.topic_partitions}


@contextmanager
def by_kafka(kafka: KafkaProcess, directory: Path) -> Iterator[Client]:
    with KafkaServer(kafka, directory, configs=CONFIGS) as server:
        server.topics()
        wait_for_coordinators(server.address)
        with closing(Client(*server.address)) as client:
            yield client


@contextmanager
def by_duralog(kafka: KafkaProcess, directory: Path) -> Iterator[Client]:
    with Broker(str(directory), config=BrokerConfig.of(CONFIGS)) as broker:
        broker.start()
        wait_for_coordinators(("127.0.0.1", broker.address.port))
        with closing(Client("127.0.0.1", broker.address.port)) as client:
            yield client


def begin(client: Client) -> None:
    """Groups in the middle of things."""
    client.create_topics(t=6, u=2)
    client.join("plain", "a", "t", rack_id="r", server_assignor="range")
    client.join("plain", "b", "t")
    client.heartbeat("plain", "a", 2)
    client.join("static", "c", "u", instance_id="i")
    client.heartbeat("static", "c", -2, instance_id="i")
    client.join("pattern", "d", subscribed_topic_names=None, subscribed_topic_regex="[tu]")
    client.wait(lambda: client.description()["pattern"][0][2] == 2)
    client.heartbeat("pattern", "d", 1)
    client.join("empty", "e", "t")
    client.heartbeat("empty", "e", -1)


def go_on(client: Client) -> None:
    """The members say what they would have said next."""
    topics = client.topics
    gave_up = client.heartbeat("plain", "a", 2, topic_partitions=[{"topic_id": topics["t"], "partitions": [0, 1, 2]}])
    assert gave_up.member_epoch == 3
    got = client.heartbeat("plain", "b", 3)
    assert [topic.partitions for topic in got.assignment.topic_partitions] == [(3, 4, 5)]
    back = client.join("static", "f", "u", instance_id="i")
    assert back.member_epoch == 2
    assert [topic.partitions for topic in back.assignment.topic_partitions] == [(0, 1)]
    assert client.heartbeat("pattern", "d", 2).member_epoch == 2
    assert client.join("empty", "g", "t").member_epoch == 4
    described = client.description()
    assert [described[group][0][1:3] for group in GROUPS] == [
        ("Stable", 3),
        ("Stable", 2),
        ("Stable", 2),
        ("Stable", 4),
    ]


@pytest.mark.parametrize(
    ("first", "second"), [(by_kafka, by_duralog), (by_duralog, by_kafka)], ids=["from Kafka", "to Kafka"]
)
def test_groups_go_on_under_the_other_broker(kafka: KafkaProcess, tmp_path: Path, first: Any, second: Any) -> None:
    format_directory(kafka, tmp_path)
    with first(kafka, tmp_path) as client:
        begin(client)
        before = client.description()
        topics = client.topics
    with second(kafka, tmp_path) as client:
        assert client.description() == before
        client.topics = topics
        client.wait_for_topics("probe-of-the-second", *topics)
        go_on(client)
