"""OffsetFetch, versions 1 to 10: the committed offsets of groups.

Version 2: all offsets of a group, and an error for the whole group. Version 7: refuse partitions with a pending
transactional commit. Version 8: several groups. Version 9: the member id and epoch of a consumer group. Version 10:
topics by their ids; deleted topics have none and are left out of all offsets of a group.

A group and a partition are answered once, however often they are named: a small request must not cause any number of
copies of offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.offsets.commits import TopicPartitions, no_offset
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.topics.topics import NO_ID, Topics
from duralog.broker.wire.error_codes import NONE, UNKNOWN_TOPIC_ID
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Api, Fields, Request

_GROUP_ERROR = 2
_SEVERAL = 8
_BY_ID = 10
_NO_EPOCH = -1


def handle(topics: Topics, groups: GroupCoordinator, request: Request) -> Fields:
    message = request.message
    if request.version >= _SEVERAL:
        return {"groups": [_of_group(topics, groups, request, group) for group in _each_once(message.groups)]}
    return _of_group(topics, groups, request, message)


def _each_once(groups: Iterable[Any]) -> Iterator[Any]:
    told_whole: set[str] = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in told_whole:
                continue
            told_whole.add(group.group_id)
        yield group


def _of_group(topics: Topics, groups: GroupCoordinator, request: Request, group: Any) -> Fields:
    asked, unknown = _asked(topics, request, group)
    try:
        found = groups.commits.fetch(
            group.group_id,
            optional(group, "member_id"),
            optional(group, "member_epoch", _NO_EPOCH),
            asked,
            require_stable=optional(request.message, "require_stable", False),
        )
    except GroupRefusal as refusal:
        return _refused(request, group, refusal.error_code)
    if request.version >= _BY_ID:
        found = _with_ids(topics, found) if asked is None else found
        answers = [{"topic_id": each["topic_id"], "partitions": each["partitions"]} for each in found]
    else:
        answers = [{"name": each["name"], "partitions": each["partitions"]} for each in found]
    return _fields(request, group, [*answers, *unknown], NONE)


def _asked(topics: Topics, request: Request, group: Any) -> tuple[list[TopicPartitions] | None, list[Fields]]:
    """The requested topics, None for all; and the answers for unknown ids."""
    if group.topics is None:
        return None, []
    if request.version < _BY_ID:
        return [TopicPartitions(topic.name, None, _numbers(topic)) for topic in group.topics], []
    known: list[TopicPartitions] = []
    unknown: list[Fields] = []
    for topic in group.topics:
        view = None if topic.topic_id is None else topics.by_id(topic.topic_id)
        if view is None:
            partitions = [no_offset(number, UNKNOWN_TOPIC_ID) for number in topic.partition_indexes]
            unknown.append({"topic_id": topic.topic_id, "partitions": partitions})
        else:
            known.append(TopicPartitions(view.name, topic.topic_id, _numbers(topic)))
    return known, unknown


def _numbers(topic: Any) -> tuple[int, ...]:
    return tuple(dict.fromkeys(topic.partition_indexes))


def _with_ids(topics: Topics, found: Sequence[Fields]) -> list[Fields]:
    views = ((each, topics.by_name(each["name"])) for each in found)
    return [{**each, "topic_id": view.topic_id} for each, view in views if view is not None and view.topic_id != NO_ID]


def _refused(request: Request, group: Any, error_code: int) -> Fields:
    """In versions without an error for the whole group, every partition has it."""
    if request.version >= _GROUP_ERROR:
        return _fields(request, group, [], error_code)
    topics: list[Fields] = [
        {"name": topic.name, "partitions": [no_offset(number, error_code) for number in topic.partition_indexes]}
        for topic in group.topics
    ]
    return _fields(request, group, topics, NONE)


def _fields(request: Request, group: Any, topics: list[Fields], error_code: int) -> Fields:
    if request.version >= _SEVERAL:
        return {"group_id": group.group_id, "topics": topics, "error_code": error_code}
    return {"topics": topics, "error_code": error_code}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    if request.version >= _SEVERAL:
        return {"groups": [_refused(request, group, error_code) for group in request.message.groups]}
    return _refused(request, request.message, error_code)


API = Api(9, "OffsetFetch", 1, 10, handle, refuse)
