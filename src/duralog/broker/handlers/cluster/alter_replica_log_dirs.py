"""AlterReplicaLogDirs, versions 1 and 2: there is one log directory, and every replica is in it already."""

from __future__ import annotations

from duralog.broker.runtime import Runtime
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request


def handle(runtime: Runtime, partitions: Partitions, request: Request) -> Answer:
    def move(path: str, topic: str, number: int) -> int:
        if path != runtime.store.path:
            return codes.LOG_DIR_NOT_FOUND
        return codes.UNKNOWN_TOPIC_OR_PARTITION if partitions.get(topic, number) is None else codes.NONE

    results: dict[str, dict[int, int]] = {}
    for directory in request.message.dirs:
        for topic in directory.topics:
            moved = results.setdefault(topic.name, {})
            moved |= {number: move(directory.path, topic.name, number) for number in topic.partitions}
    return {"results": _fields(results)}


def _fields(results: dict[str, dict[int, int]]) -> list[Fields]:
    return [
        {
            "topic_name": topic,
            "partitions": [{"partition_index": number, "error_code": code} for number, code in moved.items()],
        }
        for topic, moved in results.items()
    ]


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    results: dict[str, dict[int, int]] = {}
    for directory in request.message.dirs:
        for topic in directory.topics:
            results.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, error_code))
    return {"results": _fields(results)}


API = Api(34, "AlterReplicaLogDirs", 1, 2, handle, refuse)
