"""OffsetDelete, version 0: deletes offsets of a group for topics that no member of it reads."""

from __future__ import annotations

from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.error_codes import INVALID_GROUP_ID, NONE, UNKNOWN_TOPIC_OR_PARTITION
from duralog.broker.wire.request import Api, Fields, Request


def handle(topics: Topics, groups: GroupCoordinator, request: Request) -> Fields:
    message = request.message
    answers: dict[str, list[Fields]] = {}
    known: dict[str, list[int]] = {}
    for topic in message.topics:
        view = topics.by_name(topic.name)
        there = frozenset(() if view is None else view.partitions)
        if view is None:
            answers.setdefault(topic.name, [])
        for partition in topic.partitions:
            if partition.partition_index in there:
                known.setdefault(topic.name, []).append(partition.partition_index)
            else:
                answers.setdefault(topic.name, []).append(
                    _result(partition.partition_index, UNKNOWN_TOPIC_OR_PARTITION)
                )
    if not message.group_id:
        return refuse(request, INVALID_GROUP_ID, None)
    try:
        errors = groups.commits.delete(message.group_id, known.items())
    except GroupRefusal as refusal:
        return refuse(request, refusal.error_code, refusal.message)
    for name, numbers in known.items():
        answers.setdefault(name, []).extend(_result(number, errors[name, number]) for number in numbers)
    described = [{"name": name, "partitions": partitions} for name, partitions in answers.items()]
    return {"error_code": NONE, "topics": described}


def _result(partition: int, error_code: int) -> Fields:
    return {"partition_index": partition, "error_code": error_code}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "topics": []}


API = Api(47, "OffsetDelete", 0, 0, handle, refuse)
