"""DeleteRecords, versions 0 to 2: moves the start of partitions to an offset, or to their end for -1.

Records of topics that are only compacted, and of internal topics, cannot be deleted. If a partition is named twice, the
last offset counts.
"""

from __future__ import annotations

from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import INTERNAL_TOPICS
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.errors import DuralogError
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.retention import COMPACT, DELETE

_NO_LOW_WATERMARK = -1
_Key = tuple[str, int]


def handle(runtime: Runtime, partitions: Partitions, request: Request) -> Answer:
    asked: dict[_Key, int] = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.message.topics
        for partition in topic.partitions
    }
    results: dict[_Key, Fields] = {}
    logs: dict[_Key, PartitionLog] = {}
    for name, number in asked:
        partition = partitions.get(name, number)
        if partition is None:
            is_offline = partitions.is_offline(name, number)
            error = codes.KAFKA_STORAGE_ERROR if is_offline else codes.UNKNOWN_TOPIC_OR_PARTITION
            results[name, number] = _partition(number, error)
        elif name in INTERNAL_TOPICS:
            results[name, number] = _partition(number, codes.INVALID_TOPIC_EXCEPTION)
        else:
            logs[name, number] = partition.log
    if not logs:
        return _by_topic(results)

    def delete() -> Fields:
        deleted = {key: _delete(log, asked[key], partitions) for key, log in logs.items()}
        return _by_topic(results | deleted)

    return runtime.background.answer(delete)


def _delete(log: PartitionLog, before_offset: int, partitions: Partitions) -> Fields:
    policy = log.config.cleanup_policy
    if COMPACT in policy and DELETE not in policy:
        return _partition(log.partition, codes.POLICY_VIOLATION)
    try:
        return _partition(log.partition, codes.NONE, log.delete_records(before_offset))
    except DuralogError as error:
        return _partition(log.partition, partitions.code_of_failure(log, error))


def _partition(number: int, error_code: int, low_watermark: int = _NO_LOW_WATERMARK) -> Fields:
    return {"partition_index": number, "low_watermark": low_watermark, "error_code": error_code}


def _by_topic(results: dict[_Key, Fields]) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for (name, _), fields in results.items():
        topics.setdefault(name, []).append(fields)
    return {"topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_partition(each.partition_index, error_code) for each in topic.partitions],
            }
            for topic in request.message.topics
        ]
    }


API = Api(21, "DeleteRecords", 0, 2, handle, refuse)
