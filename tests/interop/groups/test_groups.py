"""Groups and committed offsets on one directory: Kafka finds what duralog left there, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from duralog.broker.broker import Broker
from duralog.config import BrokerConfig
from oracle.conformance.coordinators import wait_for_coordinators
from oracle.conformance.wire import Connection
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from tests.support.broker.raw_client import RawClient

JOIN, SYNC, COMMIT, FETCH, DESCRIBE, LIST, CREATE_TOPICS = 11, 14, 8, 9, 15, 16, 19
SUBSCRIBED_TO_T = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
CONFIGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 5}


def fetch(*groups: str) -> dict[str, Any]:
    return {"groups": [{"group_id": group, "topics": None} for group in groups], "require_stable": False}


def join(group: str, member: str = "", instance: str | None = None) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 300_000,
        "rebalance_timeout": 300_000,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIBED_TO_T}],
        "reason": None,
    }


def commit(group: str, member: str, generation: int, offset: int) -> dict[str, Any]:
    partitions = [
        {
            "partition_index": number,
            "committed_offset": offset + number,
            "committed_leader_epoch": 0,
            "committed_metadata": "m",
        }
        for number in range(2)
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": partitions}],
    }


def fill(client: RawClient) -> None:
    """A group with a dynamic member, one with a static member, a simple one, and one that is deleted again."""
    member = client.ask(JOIN, 9, join("dynamic")).member_id
    joined = client.ask(JOIN, 9, join("dynamic", member))
    static = client.ask(JOIN, 9, join("static", instance="i"))
    for group, joined_as in (("dynamic", joined), ("static", static)):
        synced = client.ask(
            SYNC,
            5,
            {
                "group_id": group,
                "generation_id": joined_as.generation_id,
                "member_id": joined_as.member_id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [{"member_id": joined_as.member_id, "assignment": group.encode()}],
            },
        )
        assert synced.error_code == 0
    for group, member_id, generation, offset in (
        ("dynamic", member, 1, 100),
        ("simple", "", -1, 7),
        ("gone", "", -1, 8),
    ):
        answer = client.ask(COMMIT, 9, commit(group, member_id, generation, offset))
        assert {each.error_code for topic in answer.topics for each in topic.partitions} == {0}
    assert client.ask(42, 2, {"groups_names": ["gone"]}).results[0].error_code == 0


def fill_others(address: tuple[str, int]) -> None:
    """A share group and a streams group, each with a member."""
    connection = Connection(address)
    member = {"member_epoch": 0, "rack_id": None}
    share = {**member, "group_id": "share", "member_id": "A" * 22, "subscribed_topic_names": ["not there"]}
    nothing = "state_changelog_topics", "repartition_sink_topics", "repartition_source_topics", "copartition_groups"
    topology = {"subtopology_id": "0", "source_topics": ["t"], "source_topic_regex": [], **{key: [] for key in nothing}}
    streams: dict[str, Any] = {
        **member,
        "group_id": "streams",
        "member_id": "B" * 22,
        "instance_id": None,
        "rebalance_timeout": 60_000,
        "topology": {"epoch": 0, "subtopologies": [topology]},
        "process_id": "process",
        **{key: [] for key in ("active_tasks", "standby_tasks", "warmup_tasks", "client_tags")},
        **dict.fromkeys(("user_endpoint", "task_offsets", "task_end_offsets")),
    }
    assert connection.ask("share_group_heartbeat", 1, share)["error_code"] == 0
    assert connection.ask("streams_group_heartbeat", 0, streams)["error_code"] == 0
    connection.close()


def others(client: RawClient) -> list[tuple[str, str, str]]:
    """Those two. What a streams group waits for is not told without serving it."""
    listed = client.ask(LIST, 5, {"states_filter": [], "types_filter": ["share", "streams"]}).groups
    return sorted((group.group_id, group.protocol_type, group.group_type) for group in listed)


def seen(client: RawClient) -> dict[str, Any]:
    """All that a client can learn of the groups, in an order that does not depend on who is asked."""
    listed = client.ask(LIST, 5, {"states_filter": [], "types_filter": ["classic"]}).groups
    names = sorted(group.group_id for group in listed)
    return {
        "listed": sorted(
            (group.group_id, group.protocol_type, group.group_state, group.group_type) for group in listed
        ),
        "described": [
            client.ask(DESCRIBE, 6, {"groups": [name], "include_authorized_operations": True}).groups for name in names
        ],
        "offsets": {
            (group.group_id, topic.name, each.partition_index): each
            for group in client.ask(FETCH, 9, fetch(*names)).groups
            for topic in group.topics
            for each in topic.partitions
        },
    }


def test_kafka_finds_the_groups_that_duralog_left(kafka: KafkaProcess, tmp_path: Path) -> None:
    format_directory(kafka, tmp_path / "data")
    with Broker(str(tmp_path / "data"), config=BrokerConfig.of(CONFIGS)) as broker:
        broker.start()
        wait_for_coordinators(("127.0.0.1", broker.address.port))
        client = RawClient("127.0.0.1", broker.address.port)
        topic = {"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        client.ask(CREATE_TOPICS, 5, {"topics": [topic], "timeout": 20_000, "validate_only": False})
        fill(client)
        left = seen(client)
        client.close()
    with KafkaServer(kafka, tmp_path / "data", configs=CONFIGS) as server:
        assert set(server.topics()) == {"t", "__consumer_offsets", "__transaction_state"}
        wait_for_coordinators(server.address)
        client = RawClient(*server.address)
        found = seen(client)
        client.close()
        assert not server.errors
    assert found == left
    assert len(left["listed"]) == 3


def test_duralog_finds_the_groups_that_kafka_left(kafka: KafkaProcess, tmp_path: Path) -> None:
    format_directory(kafka, tmp_path / "data")
    with KafkaServer(kafka, tmp_path / "data", configs=CONFIGS) as server:
        server.create_topic("t", 2)
        wait_for_coordinators(server.address)
        client = RawClient(*server.address)
        fill(client)
        fill_others(server.address)
        left, others_left = seen(client), others(client)
        client.close()
    with Broker(str(tmp_path / "data"), config=BrokerConfig.of(CONFIGS)) as broker:
        broker.start()
        client = RawClient("127.0.0.1", broker.address.port)
        assert seen(client) == left
        assert others(client) == others_left
        client.close()
    assert len(left["listed"]) == 3
    assert others_left == [("share", "share", "share"), ("streams", "streams", "streams")]
