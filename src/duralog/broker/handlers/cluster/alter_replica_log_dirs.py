"""AlterReplicaLogDirs, versions 1 and 2: partitions move to another log directory of this broker, in the background.

The answer comes as soon as the moves have begun; DescribeLogDirs shows how far they are. To the directory that a
partition is in, a move that is under way is cancelled, as in Kafka.
"""

from __future__ import annotations

import os.path
from typing import Any

from duralog.broker.runtime import Runtime
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.errors import DuralogError


def handle(runtime: Runtime, topics: Topics, partitions: Partitions, request: Request) -> Answer:
    later = DelayedAnswer()
    store = runtime.store
    known = {os.path.abspath(directory.path): directory for directory in store.log_directories}

    def move(path: str, topic: str, number: int) -> int:
        if known[path].failure is not None:
            return codes.KAFKA_STORAGE_ERROR
        try:
            store.start_move(topic, number, path)
        except DuralogError as error:
            runtime.log_lines.warn("partition not moved", f"{topic}-{number} does not move to {path}: {error}")
            return codes.code_of(error)
        return codes.NONE

    # On the loop: the worker thread must not look for partitions.
    asked: list[tuple[str, str, int, int]] = []
    for directory in request.message.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                asked.append((directory.path, topic.name, number, _refusal(partitions, topic.name, number)))

    def work() -> dict[str, dict[int, int]]:
        results: dict[str, dict[int, int]] = {}
        for path, name, number, refusal in asked:
            code = (refusal or move(path, name, number)) if path in known else codes.LOG_DIR_NOT_FOUND
            results.setdefault(name, {})[number] = code
        return results

    def then(results: Any, error: Exception | None) -> None:
        if error is not None:
            raise error
        later.answer({"results": _fields(results)})

    topics.change(work, then, later)
    return later


def _refusal(partitions: Partitions, topic: str, number: int) -> int:
    if partitions.get(topic, number) is not None:
        return codes.NONE
    return codes.KAFKA_STORAGE_ERROR if partitions.is_offline(topic, number) else codes.UNKNOWN_TOPIC_OR_PARTITION


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
