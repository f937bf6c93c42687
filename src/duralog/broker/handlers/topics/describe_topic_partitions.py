"""DescribeTopicPartitions, version 0: topics and their partitions in the order of their names, page by page.

A page has at most as many partitions as the client wants, and never more than `max.request.partition.size.limit`, which
is 2,000. The cursor of an answer names the partition that the next page begins with.
"""

from __future__ import annotations

from typing import Any

from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import INTERNAL_TOPICS
from duralog.broker.topics.leadership import ALL_TOPIC_OPERATIONS, NOT_ASKED, partition_fields
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topic_faults import UNKNOWN_TOPIC, name_fault
from duralog.broker.topics.topics import Topics, TopicView
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.storage.metadata.acls import Operation, ResourceType

_MOST_PARTITIONS = 2000


def handle(
    runtime: Runtime, topics: Topics, partitions: Partitions, authorizer: Authorizer | None, request: Request
) -> Answer:
    message = request.message
    cursor = message.cursor
    asked = {topic.name for topic in message.topics}
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return refuse(request, codes.INVALID_REQUEST, None)
    if "" in asked:
        return refuse(request, codes.UNKNOWN_SERVER_ERROR, None)
    names = sorted(asked or topics.names())
    if not asked and authorizer is not None:
        names = [name for name in names if authorizer.shows(request, Operation.DESCRIBE, ResourceType.TOPIC, name)]
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    return _page(
        runtime, topics, partitions, names, cursor, max(min(message.response_partition_limit, _MOST_PARTITIONS), 1)
    )


def _page(runtime: Runtime, topics: Topics, partitions: Partitions, names: list[str], cursor: Any, room: int) -> Fields:
    described: list[Fields] = []
    following: Fields | None = None
    for name in names:
        if room == 0:
            following = {"topic_name": name, "partition_index": 0}
            break
        topic = topics.by_name(name)
        if topic is None:
            described.append(_missing(name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        numbers = [number for number in topic.partitions if number >= first]
        described.append(_known(runtime, partitions, topic, numbers[:room]))
        if len(numbers) > room:
            following = {"topic_name": name, "partition_index": numbers[room]}
            break
        room -= len(numbers)
    return {"topics": described, "next_cursor": following}


def _known(runtime: Runtime, partitions: Partitions, topic: TopicView, numbers: list[int]) -> Fields:
    return {
        "error_code": codes.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                **partition_fields(partitions, runtime.node.node_id, topic, number),
                "eligible_leader_replicas": [],
                "last_known_elr": [],
            }
            for number in numbers
        ],
        "topic_authorized_operations": ALL_TOPIC_OPERATIONS,
    }


def _missing(name: str) -> Fields:
    return _empty(name, (name_fault(name) or UNKNOWN_TOPIC).code, ALL_TOPIC_OPERATIONS)


def _empty(name: str, error_code: int, operations: int) -> Fields:
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": None,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": operations,
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    topics = [{**_empty(topic.name, error_code, NOT_ASKED), "is_internal": False} for topic in request.message.topics]
    return {"topics": topics, "next_cursor": None}


API = Api(75, "DescribeTopicPartitions", 0, 0, handle, refuse)
