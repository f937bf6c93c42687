"""The records of consumer groups in `__consumer_offsets`: encodes and decodes them.

A group is its epoch (type 3), and for each member its subscription (5), its target assignment (7, with 6 for the whole
group) and its current assignment (8); a resolved regular expression is a record, too (16). Type 4 is what brokers
before 4.1 wrote of the topics; it is only deleted. A member's records are deleted in the order owned, meant,
subscription, so that a reader that stops in between has no incomplete member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from duralog.broker.groups.consumer.assignors import Assignment
from duralog.broker.groups.consumer.member import ClassicMetadata, ConsumerMember, EpochedPartitions, MemberState
from duralog.format.internal.coordinator_records import CoordinatorRecord
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.uuids import uuid_bytes, uuid_text

GROUP_METADATA: Final = 3
PARTITION_METADATA: Final = 4
MEMBER_METADATA: Final = 5
TARGET_METADATA: Final = 6
TARGET_MEMBER: Final = 7
CURRENT_ASSIGNMENT: Final = 8
REGULAR_EXPRESSION: Final = 16
CONSUMER_GROUP_TYPES: Final = frozenset(
    (
        GROUP_METADATA,
        PARTITION_METADATA,
        MEMBER_METADATA,
        TARGET_METADATA,
        TARGET_MEMBER,
        CURRENT_ASSIGNMENT,
        REGULAR_EXPRESSION,
    )
)

NO_TOPICS_HASH: Final = 0
"""The metadata hash of a group that reads nothing."""


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched when it was last resolved."""

    topics: frozenset[str]
    version: int
    """Of the cluster's metadata at that time."""
    timestamp_ms: int


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return _record(GROUP_METADATA, {"group_id": group_id}, {"epoch": epoch, "metadata_hash": metadata_hash})


def subscription_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    classic = member.classic
    return _record(
        MEMBER_METADATA,
        _member_key(group_id, member.member_id),
        {
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(member.topic_names),
            "subscribed_topic_regex": member.topic_regex,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "server_assignor": member.server_assignor,
            "classic_member_metadata": classic
            and {
                "session_timeout_ms": classic.session_timeout_ms,
                "supported_protocols": [
                    {"name": name, "metadata": metadata} for name, metadata in classic.supported_protocols
                ],
            },
        },
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    value = {"assignment_epoch": epoch, "assignment_timestamp": timestamp_ms}
    return _record(TARGET_METADATA, {"group_id": group_id}, value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    topics = [{"topic_id": uuid_text(topic.bytes), "partitions": sorted(numbers)} for topic, numbers in target.items()]
    return _record(TARGET_MEMBER, _member_key(group_id, member_id), {"topic_partitions": topics})


def current_assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return _record(
        CURRENT_ASSIGNMENT,
        _member_key(group_id, member.member_id),
        {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous_epoch,
            "state": int(member.state),
            "assigned_partitions": _epoched_topics(member.assigned),
            "partitions_pending_revocation": _epoched_topics(member.pending_revocation),
        },
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    return _record(
        REGULAR_EXPRESSION,
        {"group_id": group_id, "regular_expression": regex},
        {"topics": sorted(resolved.topics), "version": resolved.version, "timestamp": resolved.timestamp_ms},
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """In the order in which they must be in the log."""
    types = (CURRENT_ASSIGNMENT, TARGET_MEMBER, MEMBER_METADATA)
    return [_record(type_id, _member_key(group_id, member_id), None) for type_id in types]


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return _record(REGULAR_EXPRESSION, {"group_id": group_id, "regular_expression": regex}, None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return _record(PARTITION_METADATA, {"group_id": group_id}, None)


def group_tombstones(group_id: str, member_ids: list[str], regexes: list[str]) -> list[CoordinatorRecord]:
    """All of a group, in the order in which they must be in the log."""
    members = [_member_key(group_id, member_id) for member_id in member_ids]
    group = {"group_id": group_id}
    return [
        *(_record(CURRENT_ASSIGNMENT, key, None) for key in members),
        *(_record(TARGET_MEMBER, key, None) for key in members),
        _record(TARGET_METADATA, group, None),
        *(_record(MEMBER_METADATA, key, None) for key in members),
        *(regex_tombstone(group_id, regex) for regex in regexes),
        _record(PARTITION_METADATA, group, None),
        _record(GROUP_METADATA, group, None),
    ]


def subscription_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    """What a subscription record says of a `ConsumerMember`."""
    classic = value["classic_member_metadata"]
    return {
        "instance_id": value["instance_id"],
        "rack_id": value["rack_id"],
        "client_id": value["client_id"],
        "client_host": value["client_host"],
        "topic_names": frozenset(value["subscribed_topic_names"]),
        "topic_regex": value["subscribed_topic_regex"],
        "rebalance_timeout_ms": value["rebalance_timeout_ms"],
        "server_assignor": value["server_assignor"],
        "classic": classic
        and ClassicMetadata(
            classic["session_timeout_ms"],
            tuple((each["name"], each["metadata"]) for each in classic["supported_protocols"]),
        ),
    }


def current_assignment_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    """What a record of what a member owns says of a `ConsumerMember`."""
    epoch = value["member_epoch"]
    known = value["state"] in set(MemberState)
    return {
        "epoch": epoch,
        "previous_epoch": value["previous_member_epoch"],
        "state": MemberState(value["state"]) if known else MemberState.UNKNOWN,
        "assigned": _epoched_partitions(value["assigned_partitions"], epoch),
        "pending_revocation": _epoched_partitions(value["partitions_pending_revocation"], epoch),
    }


def target_of(value: Mapping[str, Any]) -> Assignment:
    return {topic_uuid(each["topic_id"]): frozenset(each["partitions"]) for each in value["topic_partitions"]}


def regex_of(value: Mapping[str, Any]) -> ResolvedRegex:
    return ResolvedRegex(frozenset(value["topics"]), value["version"], value["timestamp"])


def topic_uuid(text: str) -> UUID:
    return UUID(bytes=uuid_bytes(text))


def _epoched_topics(partitions: EpochedPartitions) -> list[dict[str, Any]]:
    return [
        {
            "topic_id": uuid_text(topic.bytes),
            "partitions": sorted(epochs),
            "assignment_epochs": [epochs[number] for number in sorted(epochs)],
        }
        for topic, epochs in partitions.items()
    ]


def _epoched_partitions(topics: list[Mapping[str, Any]], member_epoch: int) -> EpochedPartitions:
    """Brokers before 4.3 wrote no epochs of partitions: the member's own epoch is used, or 0 if it has none."""
    partitions: dict[UUID, dict[int, int]] = {}
    for each in topics:
        numbers, epochs = each["partitions"], each["assignment_epochs"]
        if epochs is None or len(epochs) != len(numbers):
            epochs = [max(member_epoch, 0)] * len(numbers)
        partitions[topic_uuid(each["topic_id"])] = dict(zip(numbers, epochs, strict=True))
    return partitions


def _member_key(group_id: str, member_id: str) -> dict[str, Any]:
    return {"group_id": group_id, "member_id": member_id}


def _record(type_id: int, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> CoordinatorRecord:
    return CoordinatorRecord(
        type_id=type_id,
        type_name=CONSUMER_OFFSETS_TYPES[type_id].name,
        key=key,
        version=None if value is None else 0,
        value=value,
    )
