"""The leader of a partition, as clients see it: this node, unless the partition could not be loaded."""

from __future__ import annotations

from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topics import TopicView
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Fields

NO_LEADER = -1
NO_EPOCH = -1

NOT_ASKED = -(2**31)
"""In place of the authorized operations if the client did not ask for them."""
ALL_TOPIC_OPERATIONS = 3576
ALL_CLUSTER_OPERATIONS = 8096
ALL_GROUP_OPERATIONS = 3400
"""Bits by Kafka's numbers of operations: without an authorizer, everything is allowed."""


def partition_fields(partitions: Partitions, node_id: int, topic: TopicView, number: int) -> Fields:
    """A partition in Metadata and DescribeTopicPartitions."""
    partition = partitions.get(topic.name, number)
    if partition is None:
        known = topic.topic.leader_epoch(number)
        return {
            "error_code": codes.LEADER_NOT_AVAILABLE,
            "partition_index": number,
            "leader_id": NO_LEADER,
            "leader_epoch": max(known, 0),
            "replica_nodes": [node_id],
            "isr_nodes": [node_id],
            "offline_replicas": [node_id],
        }
    return {
        "error_code": codes.NONE,
        "partition_index": number,
        "leader_id": node_id,
        "leader_epoch": partition.log.leader_epoch,
        "replica_nodes": [node_id],
        "isr_nodes": [node_id],
        "offline_replicas": [],
    }


def epoch_error(current_leader_epoch: int, leader_epoch: int) -> int:
    """The error for a client's leader epoch; -1 means that it has none."""
    if current_leader_epoch in (NO_EPOCH, leader_epoch):
        return codes.NONE
    return codes.FENCED_LEADER_EPOCH if current_leader_epoch < leader_epoch else codes.UNKNOWN_LEADER_EPOCH
