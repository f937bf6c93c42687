"""DescribeLogDirs, versions 1 to 5: the one log directory, its partitions, and the space on its disk.

Unknown topics and partitions are left out without an error, as in Kafka. Null asks for all.
"""

from __future__ import annotations

from collections.abc import Iterable

from duralog.broker.runtime import Runtime
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.storage.disk.file_system import disk_space


def handle(runtime: Runtime, topics: Topics, partitions: Partitions, request: Request) -> Answer:
    asked = request.message.topics
    if asked is None:
        wanted = {topic.name: dict.fromkeys(topic.partitions) for topic in topics.all()}
    else:
        wanted = {}
        for topic in asked:
            wanted.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    described = [
        {"name": name, "partitions": found}
        for name, numbers in wanted.items()
        if (found := _partitions(partitions, name, numbers))
    ]
    space = disk_space(runtime.store.path)
    return {
        "error_code": codes.NONE,
        "results": [
            {
                "error_code": codes.NONE,
                "log_dir": runtime.store.path,
                "topics": described,
                "total_bytes": space.total_bytes,
                "usable_bytes": space.usable_bytes,
                "is_cordoned": runtime.store.path in runtime.config.cordoned_log_dirs,
            }
        ],
    }


def _partitions(partitions: Partitions, name: str, numbers: Iterable[int]) -> list[Fields]:
    found = ((number, partitions.get(name, number)) for number in numbers)
    return [
        {
            "partition_index": number,
            "partition_size": partition.log.size_bytes,
            "offset_lag": 0,
            "is_future_key": False,
        }
        for number, partition in found
        if partition is not None
    ]


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "results": []}


API = Api(35, "DescribeLogDirs", 1, 5, handle, refuse)
