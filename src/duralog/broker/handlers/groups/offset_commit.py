"""OffsetCommit, versions 2 to 10: commits the offsets of a group.

Versions 2 to 4: a retention time for these offsets. Version 6: the leader epoch of the last record. Version 7: static
members. Version 9: members of consumer groups, by their epoch. Version 10: topics by their ids.

Unknown topics and partitions are refused one by one, whatever the result of the others; they come first in the answer.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.offsets.commits import Committer, Errors, TopicCommit
from duralog.broker.groups.offsets.table import PartitionCommit
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.topics.topics import NO_ID, Topics, TopicView
from duralog.broker.wire.error_codes import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Api, Fields, Request
from duralog.format.layout import NO_LEADER_EPOCH

_BY_ID = 10
_NO_RETENTION = -1


def handle(topics: Topics, groups: GroupCoordinator, request: Request) -> Fields:
    message = request.message
    refused: dict[str | UUID | None, dict[str, Any]] = {}
    found: list[tuple[Any, TopicView, list[Any]]] = []
    for topic in message.topics:
        view = _find(topics, topic)
        if view is None:
            unknown = UNKNOWN_TOPIC_ID if request.version >= _BY_ID else UNKNOWN_TOPIC_OR_PARTITION
            refused.setdefault(_asked_as(topic), _result(topic))
            for partition in topic.partitions:
                _add(refused, topic, partition, unknown)
            continue
        there = frozenset(view.partitions)
        known = []
        for partition in topic.partitions:
            if partition.partition_index in there:
                known.append(partition)
            else:
                _add(refused, topic, partition, UNKNOWN_TOPIC_OR_PARTITION)
        if known:
            found.append((topic, view, known))
    answers = list(refused.values())
    if found:
        errors = _commit(groups, request, found)
        for topic, view, known in found:
            # Results of a topic join those that were refused, but a topic that is asked for twice is answered twice.
            result = refused.get(_asked_as(topic))
            if result is None:
                result = _result(topic)
                answers.append(result)
            for partition in known:
                error_code = errors[view.name, partition.partition_index]
                result["partitions"].append({"partition_index": partition.partition_index, "error_code": error_code})
    return {"topics": answers}


def _add(results: dict[str | UUID | None, dict[str, Any]], topic: Any, partition: Any, error_code: int) -> None:
    result = results.setdefault(_asked_as(topic), _result(topic))
    result["partitions"].append({"partition_index": partition.partition_index, "error_code": error_code})


def _result(topic: Any) -> dict[str, Any]:
    asked = _asked_as(topic)
    return {"name" if isinstance(asked, str) else "topic_id": asked, "partitions": []}


def _commit(groups: GroupCoordinator, request: Request, found: list[tuple[Any, TopicView, list[Any]]]) -> Errors:
    message = request.message
    committer = Committer(
        group_id=message.group_id,
        member_id=message.member_id,
        instance_id=optional(message, "group_instance_id"),
        epoch=message.generation_id_or_member_epoch,
        version=request.version,
    )
    topics = [
        TopicCommit(
            view.name,
            None if view.topic_id == NO_ID else view.topic_id,
            [
                PartitionCommit(
                    partition.partition_index,
                    partition.committed_offset,
                    optional(partition, "committed_leader_epoch", NO_LEADER_EPOCH),
                    partition.committed_metadata,
                )
                for partition in known
            ],
        )
        for _, view, known in found
    ]
    try:
        retention_ms = optional(message, "retention_time", _NO_RETENTION)
        errors: Errors = groups.commits.commit(committer, topics, retention_ms)
        return errors
    except GroupRefusal as refusal:
        return {
            (topic.topic, partition.partition): refusal.error_code for topic in topics for partition in topic.partitions
        }


def _find(topics: Topics, topic: Any) -> TopicView | None:
    asked = _asked_as(topic)
    if isinstance(asked, str):
        return topics.by_name(asked)
    return None if asked is None else topics.by_id(asked)


def _asked_as(topic: Any) -> str | UUID | None:
    asked: str | UUID | None = topic.name if hasattr(topic, "name") else topic.topic_id
    return asked


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    return {
        "topics": [
            {
                **_result(topic),
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": error_code}
                    for partition in topic.partitions
                ],
            }
            for topic in request.message.topics
        ]
    }


API = Api(8, "OffsetCommit", 2, 10, handle, refuse)
