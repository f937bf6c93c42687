"""Metadata, DescribeCluster and DescribeTopicPartitions, as Kafka 4.3.1 answers them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.handlers.topics import describe_topic_partitions
from tests.support.broker.admin_desk import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    NOT_ASKED,
    TOPIC,
    config_values,
    damage,
    make,
    metadata,
    topic_errors,
)
from tests.support.broker.raw_client import RawClient
from tests.support.waiting import wait_until


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_every_version_has_its_fields(self, client: RawClient, broker: Broker, version: int) -> None:
        topic_id = make(client, "t", 2)
        answer = metadata(client, "t", version=version)
        (node,) = answer.brokers
        assert (node.node_id, node.host, node.port) == (1, broker.node.host, broker.address.port)
        (topic,) = answer.topics
        assert (topic.name, topic.error_code) == ("t", 0)
        assert [partition.partition_index for partition in topic.partitions] == [0, 1]
        for partition in topic.partitions:
            assert (partition.error_code, partition.leader_id) == (0, 1)
            assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))
            if version >= 5:
                assert partition.offline_replicas == ()
            if version >= 7:
                assert partition.leader_epoch == 0
        if version >= 1:
            assert (answer.controller_id, node.rack, topic.is_internal) == (1, None, False)
        if version >= 2:
            assert answer.cluster_id == broker.store.cluster_id
        if version >= 8:
            assert topic.topic_authorized_operations == NOT_ASKED
        if version >= 10:
            assert topic.topic_id == topic_id
        if version == 13:
            assert answer.error_code == 0

    def test_all_topics(self, client: RawClient) -> None:
        make(client, "b")
        make(client, "a")
        assert {topic.name for topic in metadata(client, version=0).topics} == {"a", "b"}
        assert {topic.name for topic in metadata(client, None, version=1).topics} == {"a", "b"}
        assert metadata(client, version=1).topics == ()
        assert metadata(client, version=12).topics == ()

    def test_authorized_operations_where_they_are_asked_for(self, client: RawClient) -> None:
        make(client, "t")
        answer = metadata(client, "t", "nope", version=8, operations=True)
        assert answer.cluster_authorized_operations == 8096
        assert [topic.topic_authorized_operations for topic in answer.topics] == [3576, 3576]
        assert metadata(client, "t", version=8).cluster_authorized_operations == NOT_ASKED

    def test_by_id(self, client: RawClient) -> None:
        topic_id, unknown_id = make(client, "t"), uuid.uuid4()
        asked = [
            {"topic_id": topic_id, "name": "names do not count"},
            {"topic_id": unknown_id, "name": None},
            {"topic_id": None, "name": "other"},
        ]
        fields = {"topics": asked, "allow_auto_topic_creation": True, "include_topic_authorized_operations": True}
        told = {topic.topic_id: topic for topic in client.ask(METADATA, 12, fields).topics}
        assert told.keys() == {topic_id, unknown_id}
        assert (told[topic_id].name, told[topic_id].error_code) == ("t", 0)
        assert (told[unknown_id].name, told[unknown_id].error_code) == (None, 100)
        assert told[unknown_id].topic_authorized_operations == NOT_ASKED

    @pytest.mark.parametrize(
        ("version", "topic_id", "name", "code"),
        [(10, uuid.UUID(int=7), None, 42), (11, uuid.UUID(int=7), "t", 42), (11, None, None, 42), (12, None, None, -1)],
    )
    def test_what_no_version_can_mean(
        self, client: RawClient, version: int, topic_id: uuid.UUID | None, name: str | None, code: int
    ) -> None:
        fields: dict[str, Any] = {"topics": [{"topic_id": topic_id, "name": name}], "allow_auto_topic_creation": False}
        answer = client.ask(METADATA, version, fields)
        assert (answer.brokers, answer.cluster_id, answer.controller_id) == ((), None, -1)
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
            (name or "", topic_id, code)
        ]

    def test_a_name_that_is_requested_twice_is_answered_once(self, client: RawClient) -> None:
        make(client, "t")
        assert [topic.name for topic in metadata(client, "t", "nope", "t", "nope").topics] == ["t", "nope"]

    def test_names_that_no_topic_can_have(self, client: RawClient) -> None:
        assert topic_errors(client, "a b", "", ".", "x" * 250, "fine") == [17, 17, 17, 17, 3]

    def test_a_partition_that_cannot_be_used_has_no_leader(self, client: RawClient, broker: Broker) -> None:
        make(client, "t", 2)
        damage(broker, "t", 1)
        (topic,) = metadata(client, "t").topics
        assert topic.error_code == 0
        assert [(each.error_code, each.leader_id, each.offline_replicas) for each in topic.partitions] == [
            (0, 1, ()),
            (5, -1, (1,)),
        ]


class TestAutoCreation:
    @pytest.fixture
    def broker_config(self) -> dict[str, object]:
        return {"num.partitions": 3}

    @pytest.mark.parametrize("version", [0, 3, 4, 12])
    def test_a_topic_comes_when_a_client_asks_for_it(self, client: RawClient, broker: Broker, version: int) -> None:
        (topic,) = metadata(client, "new", version=version, auto=True).topics
        assert (topic.error_code, topic.partitions) == (3, ())
        wait_until(lambda: topic_errors(client, "new") == [0])
        assert broker.store.partition_count("new") == 3

    def test_not_if_the_client_says_so(self, client: RawClient, broker: Broker) -> None:
        assert topic_errors(client, "new") == [3]
        make(client, "later")
        assert broker.store.topics() == ["later"]

    def test_not_what_no_topic_can_be(self, client: RawClient, broker: Broker) -> None:
        names = ("a b", "__cluster_metadata", "__share_group_state", "last")
        assert {topic.error_code for topic in metadata(client, *names, auto=True).topics} == {17, 3}
        wait_until(lambda: topic_errors(client, "last") == [0])
        assert broker.store.topics() == ["last"]

    def test_internal_topics_are_made_as_kafka_makes_them(self, client: RawClient, broker: Broker) -> None:
        answer = metadata(client, "__consumer_offsets", "__transaction_state", auto=True)
        assert [(topic.error_code, topic.is_internal) for topic in answer.topics] == [(3, True), (3, True)]
        wait_until(lambda: topic_errors(client, "__consumer_offsets", "__transaction_state") == [0, 0])
        assert broker.store.topic_overrides("__consumer_offsets") == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        assert broker.store.topic_overrides("__transaction_state") == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }
        assert broker.store.partition_count("__consumer_offsets") == broker.config.offsets_topic_num_partitions
        assert config_values(client, TOPIC, "__consumer_offsets", "cleanup.policy") == {"cleanup.policy": "compact"}

    def test_one_that_cannot_be_made_is_logged_and_stays_unknown(
        self, client: RawClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        make(client, "a.b")
        metadata(client, "a_b", auto=True)
        wait_until(lambda: "topic a_b could not be created for a client that asked for it" in caplog.text)
        assert topic_errors(client, "a_b") == [3]

    def test_too_many_at_once_are_not_made(self, client: RawClient, broker: Broker) -> None:
        names = [f"t{number}" for number in range(3334)]
        assert {topic.error_code for topic in metadata(client, *names, auto=True).topics} == {3}
        make(client, "last")
        assert broker.store.topics() == ["last"]


class TestNoAutoCreation:
    @pytest.fixture
    def broker_config(self) -> dict[str, object]:
        return {"auto.create.topics.enable": False}

    def test_nothing_is_made(self, client: RawClient, broker: Broker) -> None:
        assert [topic.error_code for topic in metadata(client, "new", auto=True).topics] == [3]
        make(client, "last")
        assert broker.store.topics() == ["last"]


class TestDescribeCluster:
    @pytest.mark.parametrize("version", range(3))
    def test_the_one_node(self, client: RawClient, broker: Broker, version: int) -> None:
        fields: dict[str, Any] = {"include_cluster_authorized_operations": True}
        if version >= 1:
            fields["endpoint_type"] = 1
        if version >= 2:
            fields["include_fenced_brokers"] = True
        answer = client.ask(DESCRIBE_CLUSTER, version, fields)
        assert (answer.error_code, answer.error_message, answer.controller_id) == (0, None, 1)
        assert (answer.cluster_id, answer.cluster_authorized_operations) == (broker.store.cluster_id, 8096)
        (node,) = answer.brokers
        assert (node.broker_id, node.host, node.port, node.rack) == (1, broker.node.host, broker.address.port, None)

    @pytest.mark.parametrize(
        ("endpoint_type", "code", "message"),
        [
            (
                2,
                114,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
            ),
            (0, 115, "Unsupported endpoint type 0"),
            (9, 115, "Unsupported endpoint type 9"),
        ],
    )
    def test_other_endpoints(self, client: RawClient, endpoint_type: int, code: int, message: str) -> None:
        fields = {"include_cluster_authorized_operations": False, "endpoint_type": endpoint_type}
        answer = client.ask(DESCRIBE_CLUSTER, 1, fields)
        assert (answer.error_code, answer.error_message) == (code, message)
        assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, ())


def page(
    client: RawClient, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """Topics with their error codes and partitions, and the next cursor."""
    fields = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    answer = client.ask(DESCRIBE_TOPIC_PARTITIONS, 0, fields)
    topics = [
        (topic.name, topic.error_code, [each.partition_index for each in topic.partitions]) for topic in answer.topics
    ]
    following = answer.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)


class TestDescribeTopicPartitions:
    @pytest.fixture(autouse=True)
    def topics(self, client: RawClient) -> None:
        make(client, "b", 1)
        make(client, "a", 2)

    def test_a_topic(self, client: RawClient) -> None:
        fields = {"topics": [{"name": "a"}], "response_partition_limit": 10, "cursor": None}
        (topic,) = client.ask(DESCRIBE_TOPIC_PARTITIONS, 0, fields).topics
        assert (topic.topic_authorized_operations, topic.is_internal) == (3576, False)
        partition = topic.partitions[1]
        assert (partition.leader_id, partition.leader_epoch, partition.isr_nodes) == (1, 0, (1,))
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())

    def test_in_the_order_of_names(self, client: RawClient) -> None:
        everything = [("a", 0, [0, 1]), ("b", 0, [0])]
        assert page(client, "b", "a", "b") == (everything, None)
        assert page(client) == (everything, None)

    def test_page_by_page(self, client: RawClient) -> None:
        assert page(client, "a", "b", limit=1) == ([("a", 0, [0])], ("a", 1))
        assert page(client, "a", "b", limit=1, cursor=("a", 1)) == ([("a", 0, [1])], ("b", 0))
        assert page(client, "a", "b", limit=1, cursor=("b", 0)) == ([("b", 0, [0])], None)
        assert page(client, "a", "b", limit=2) == ([("a", 0, [0, 1])], ("b", 0))
        assert page(client, limit=3, cursor=("a", 1)) == ([("a", 0, [1]), ("b", 0, [0])], None)
        assert page(client, limit=3, cursor=("aa", 5)) == ([("b", 0, [0])], None)
        assert page(client, "a", cursor=("a", 9)) == ([("a", 0, [])], None)

    @pytest.mark.parametrize("limit", [0, -1])
    def test_at_least_one_partition(self, client: RawClient, limit: int) -> None:
        assert page(client, "a", limit=limit) == ([("a", 0, [0])], ("a", 1))

    def test_unknown_topics(self, client: RawClient) -> None:
        assert page(client, "nope", "a", "? ?") == ([("? ?", 17, []), ("a", 0, [0, 1]), ("nope", 3, [])], None)
        assert page(client, "nope", "a", limit=1) == ([("a", 0, [0])], ("a", 1))
        assert page(client, "a", "nope", cursor=("nope", 0)) == ([("nope", 3, [])], None)

    @pytest.mark.parametrize("cursor", [("a", -1), ("c", 0), ("aa", 0)])
    def test_cursors_that_cannot_be(self, client: RawClient, cursor: tuple[str, int]) -> None:
        assert page(client, "a", "b", cursor=cursor) == ([("a", 42, []), ("b", 42, [])], None)

    def test_no_name(self, client: RawClient) -> None:
        assert page(client, "") == ([("", -1, [])], None)

    def test_no_page_is_larger_than_the_broker_allows(self, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
        assert describe_topic_partitions._MOST_PARTITIONS == 2000
        monkeypatch.setattr(describe_topic_partitions, "_MOST_PARTITIONS", 2)
        assert page(client, limit=100_000) == ([("a", 0, [0, 1])], ("b", 0))
