"""Records of a topic straight from a directory, also while somebody else writes to it. Nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from duralog.cli.consume_request import ConsumeRequest
from duralog.cli.opened_store import opened_store
from duralog.errors import OffsetOutOfRange, UnknownTopic
from duralog.format.record import Record
from duralog.storage.isolation import Isolation
from duralog.storage.partition_log import PartitionLog
from duralog.storage.store import Store

_LOOK_SECONDS = 0.25


def from_store(
    target: str, request: ConsumeRequest, *, before_waiting: Callable[[], None]
) -> Generator[tuple[str, int, Record], None, None]:
    """Partition after partition. With `follow`, it looks again and again for what came since."""
    positions: dict[int, int] = {}
    isolation = Isolation.READ_COMMITTED if request.committed else Isolation.READ_UNCOMMITTED
    is_first = True
    while True:
        with opened_store(target, read_only=True, server_properties=None) as store:
            for log in _logs(store, request):
                position = positions.get(log.partition)
                if position is None:
                    # Of a partition that came later, everything is new.
                    position = _start(log, request, isolation) if is_first else log.start_offset
                position = max(position, log.start_offset)
                for record in log.read(position, isolation=isolation) if position <= log.end_offset else ():
                    yield request.topic, log.partition, record
                    position = record.offset + 1
                positions[log.partition] = position
        if not request.follow:
            return
        is_first = False
        before_waiting()
        time.sleep(_LOOK_SECONDS)


def _logs(store: Store, request: ConsumeRequest) -> list[PartitionLog]:
    numbers = store.partitions(request.topic)
    if request.partition is not None:
        if request.partition not in numbers:
            raise UnknownTopic(f"there is no partition {request.partition} of {request.topic}")
        numbers = [request.partition]
    return [store.partition(request.topic, number) for number in numbers]


def _start(log: PartitionLog, request: ConsumeRequest, isolation: Isolation) -> int:
    end = log.last_stable_offset if request.committed else log.end_offset
    if request.timestamp_ms is not None:
        found = log.offset_for_timestamp(request.timestamp_ms, isolation=isolation)
        return end if found is None else found.offset
    if request.tail is not None:
        return max(end - request.tail, log.start_offset)
    if request.offset is None:
        return log.start_offset
    if request.offset > log.end_offset:
        if request.partition is None:
            return end
        raise OffsetOutOfRange(
            f"offset {request.offset} is behind the end of {log.topic}-{log.partition}, which is {log.end_offset}"
        )
    return request.offset
