"""ListOffsets, versions 1 to 11: where a log starts and ends, and the first record at a time.

A time is looked up in the indexes and in a batch, which may have to be read and decompressed: that happens on a worker
thread. A partition that is named twice is refused, and newer versions know more special times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from duralog.broker.runtime import Runtime
from duralog.broker.topics.leadership import NO_EPOCH, epoch_error
from duralog.broker.topics.partition import Partition
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.errors import DuralogError
from duralog.format.layout import NO_TIMESTAMP
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.time_lookup import EARLIEST, LATEST, MAX_TIMESTAMP
from duralog.storage.segment.lookup import TimestampedOffset

EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The first version that knows each special time."""
_ISOLATION = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
_NOT_FOUND = TimestampedOffset(-1, NO_TIMESTAMP, NO_EPOCH)


class _Asked(NamedTuple):
    topic: str
    number: int
    timestamp_ms: int
    current_leader_epoch: int


def handle(runtime: Runtime, partitions: Partitions, request: Request) -> Answer:
    level = optional(request.message, "isolation_level", 0)
    if level not in (0, 1):
        return refuse(request, codes.UNKNOWN_SERVER_ERROR, None)
    isolation = _ISOLATION[level]
    asked = _all_asked(request)
    counts = Counter((one.topic, one.number) for one in asked)
    results: dict[tuple[str, int], Fields] = {}
    slow: dict[tuple[str, int], tuple[PartitionLog, int]] = {}
    for one in asked:
        key = one.topic, one.number
        error, partition = _found(partitions, request.version, one, is_repeated=counts[key] > 1)
        if partition is None:
            results[key] = _partition(one.number, _NOT_FOUND, error)
        elif one.timestamp_ms >= 0 or one.timestamp_ms == MAX_TIMESTAMP:
            results[key] = {}
            slow[key] = partition.log, one.timestamp_ms
        else:
            results[key] = _partition(one.number, _special(partition.log, one.timestamp_ms, isolation))
    if not slow:
        return _by_topic(results)

    def by_time(log: PartitionLog, timestamp_ms: int) -> Fields:
        try:
            found = log.offset_for_timestamp(timestamp_ms, isolation=isolation)
        except DuralogError as error:
            return _partition(log.partition, _NOT_FOUND, partitions.code_of_failure(log, error))
        return _partition(log.partition, found or _NOT_FOUND)

    def look_up() -> Fields:
        found = {key: by_time(log, timestamp_ms) for key, (log, timestamp_ms) in slow.items()}
        return _by_topic({**results, **found})

    return runtime.background.answer(look_up)


def _all_asked(request: Request) -> list[_Asked]:
    return [
        _Asked(
            topic.name,
            partition.partition_index,
            partition.timestamp,
            optional(partition, "current_leader_epoch", NO_EPOCH),
        )
        for topic in request.message.topics
        for partition in topic.partitions
    ]


def _found(partitions: Partitions, version: int, one: _Asked, *, is_repeated: bool) -> tuple[int, Partition | None]:
    if is_repeated:
        return codes.INVALID_REQUEST, None
    if one.timestamp_ms < 0 and version < _SINCE.get(one.timestamp_ms, version + 1):
        return codes.UNSUPPORTED_VERSION, None
    partition = partitions.get(one.topic, one.number)
    if partition is None:
        is_offline = partitions.is_offline(one.topic, one.number)
        return (codes.KAFKA_STORAGE_ERROR if is_offline else codes.UNKNOWN_TOPIC_OR_PARTITION), None
    error = epoch_error(one.current_leader_epoch, partition.log.leader_epoch)
    return error, partition if error == codes.NONE else None


def _special(log: PartitionLog, timestamp_ms: int, isolation: Isolation) -> TimestampedOffset:
    view = log.view
    if timestamp_ms == LATEST:
        return TimestampedOffset(view.limit(isolation), NO_TIMESTAMP, log.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        # A log without an entry had no record yet: its first one will have the current leader epoch.
        known = log.leader_epochs.entries
        epoch = log.leader_epochs.epoch_for(view.start_offset) if known else log.leader_epoch
        return TimestampedOffset(view.start_offset, NO_TIMESTAMP, epoch)
    return _NOT_FOUND  # There is no tiered storage.


def _partition(number: int, found: TimestampedOffset, error_code: int = codes.NONE) -> Fields:
    return {
        "partition_index": number,
        "error_code": error_code,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def _by_topic(results: Mapping[tuple[str, int], Fields]) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for (name, _), fields in results.items():
        topics.setdefault(name, []).append(fields)
    return _answer(list(topics.items()))


def _answer(topics: Sequence[tuple[str, Sequence[Fields]]]) -> Fields:
    return {"topics": [{"name": name, "partitions": partitions} for name, partitions in topics]}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    return _answer(
        [
            (topic.name, [_partition(each.partition_index, _NOT_FOUND, error_code) for each in topic.partitions])
            for topic in request.message.topics
        ]
    )


API = Api(2, "ListOffsets", 1, 11, handle, refuse)
