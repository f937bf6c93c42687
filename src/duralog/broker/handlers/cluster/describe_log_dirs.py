"""DescribeLogDirs, versions 1 to 5: the log directories, their partitions, and the space on their disks.

Unknown topics and partitions are left out without an error, as in Kafka. Null asks for all. A partition that is being
moved is in two directories: its copy is a future replica, with the offsets that it lags behind. A directory that is
offline has an error and nothing else.
"""

from __future__ import annotations

import os.path

from duralog.broker.runtime import Runtime
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.errors import StorageError
from duralog.storage.disk.file_system import disk_space
from duralog.storage.disk.log_directory import LogDirectory

_UNKNOWN_BYTES = -1

_Described = dict[str, list[Fields]]
"""Partitions by topic."""


def handle(runtime: Runtime, topics: Topics, partitions: Partitions, request: Request) -> Answer:
    asked = request.message.topics
    if asked is None:
        wanted = {topic.name: dict.fromkeys(topic.partitions) for topic in topics.all()}
    else:
        wanted = {}
        for topic in asked:
            wanted.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    store = runtime.store
    described: dict[str, _Described] = {path: {} for path in store.paths}
    for name, numbers in wanted.items():
        for number in numbers:
            partition = partitions.get(name, number)
            if partition is not None:
                of_topic = described[store.directory_of(name, number)].setdefault(name, [])
                of_topic.append(_partition(number, partition.log.size_bytes))
    for move in store.moves:
        name, number = move.partition
        if number in wanted.get(name, ()):
            future = {**_partition(number, move.copied_bytes), "offset_lag": move.offset_lag, "is_future_key": True}
            described[move.target].setdefault(name, []).append(future)
    cordoned = {os.path.abspath(path) for path in runtime.config.cordoned_log_dirs}
    return {
        "error_code": codes.NONE,
        "results": [_directory(each, described[each.path], cordoned) for each in store.log_directories],
    }


def _directory(directory: LogDirectory, described: _Described, cordoned: set[str]) -> Fields:
    path = os.path.abspath(directory.path)
    space = None
    if directory.failure is None:
        try:
            space = disk_space(directory.path)
        except StorageError:
            space = None
    if space is None:
        return {
            "error_code": codes.KAFKA_STORAGE_ERROR,
            "log_dir": path,
            "topics": [],
            "total_bytes": _UNKNOWN_BYTES,
            "usable_bytes": _UNKNOWN_BYTES,
            "is_cordoned": path in cordoned,
        }
    return {
        "error_code": codes.NONE,
        "log_dir": path,
        "topics": [{"name": name, "partitions": found} for name, found in described.items()],
        "total_bytes": space.total_bytes,
        "usable_bytes": space.usable_bytes,
        "is_cordoned": path in cordoned,
    }


def _partition(number: int, size_bytes: int) -> Fields:
    return {"partition_index": number, "partition_size": size_bytes, "offset_lag": 0, "is_future_key": False}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "results": []}


API = Api(35, "DescribeLogDirs", 1, 5, handle, refuse)
