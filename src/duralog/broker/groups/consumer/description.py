"""The description of a group for ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from duralog.broker.groups.consumer.assignors import NO_PARTITIONS
from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.consumer.member import ConsumerMember
from duralog.broker.groups.consumer.target_assignment import preferred_assignor
from duralog.broker.topics.topics import Topics

_CLASSIC, _CONSUMER = 0, 1
"""Kinds of members."""


def describe(group: ConsumerGroup, topics: Topics, assignors: Sequence[str]) -> dict[str, Any]:
    """The group as it is. Partitions of topics that are gone are left out."""
    return {
        "error_code": 0,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": preferred_assignor(group.members.values(), assignors),
        "members": [_describe_member(group, member, topics) for _, member in sorted(group.members.items())],
    }


def _describe_member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> dict[str, Any]:
    owned: dict[UUID, set[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic, numbers in partitions.items():
            owned.setdefault(topic, set()).update(numbers)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "assignment": _topic_partitions(owned, topics),
        "target_assignment": _topic_partitions(group.targets.get(member.member_id, NO_PARTITIONS), topics),
        "member_type": _CONSUMER if member.classic is None else _CLASSIC,
    }


def _topic_partitions(
    partitions: Mapping[UUID, frozenset[int]] | Mapping[UUID, set[int]], topics: Topics
) -> dict[str, Any]:
    listed = []
    for topic_id, numbers in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            listed.append({"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(numbers)})
    return {"topic_partitions": listed}
