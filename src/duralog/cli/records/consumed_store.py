"""Reads the records of a topic from a directory, also while another process writes to it. Nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from duralog.cli.voice.opened_store import opened_store
from duralog.client.consuming import ConsumeRequest, check_offset, chosen_partitions
from duralog.format.record import Record
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

_POLL_SECONDS = 0.25


def from_store(
    target: str,
    request: ConsumeRequest,
    *,
    before_waiting: Callable[[], None],
    on_total: Callable[[int], None] = lambda _: None,
    say_note: Callable[[str], None] = lambda _: None,
) -> Generator[tuple[str, int, Record], None, None]:
    """Yield records partition by partition. With `follow`, poll for new ones.

    `on_total` is called with the number of offsets to read, `say_note` with warnings for the user.
    """
    positions: dict[tuple[str, int], int] = {}
    isolation = Isolation.READ_COMMITTED if request.committed else Isolation.READ_UNCOMMITTED
    is_first = True
    while True:
        with opened_store(target, read_only=True, server_properties=None) as store:
            logs = _logs(store, request)
            if is_first and request.offset is not None:
                check_offset(request.offset, {place: log.end_offset for place, log in logs.items()}, say_note)
            for place, log in logs.items():
                if place not in positions:
                    # A partition that was added later is read from its start.
                    positions[place] = _start(log, request, isolation) if is_first else log.start_offset
            on_total(sum(max(log.end_offset - positions[place], 0) for place, log in logs.items()))
            for place, log in logs.items():
                position = max(positions[place], log.start_offset)
                for record in log.read(position, isolation=isolation) if position <= log.end_offset else ():
                    yield *place, record
                    position = record.offset + 1
                positions[place] = position
        if not request.follow:
            return
        is_first = False
        before_waiting()
        time.sleep(_POLL_SECONDS)


def _logs(store: Store, request: ConsumeRequest) -> dict[tuple[str, int], PartitionLog]:
    known = {topic: store.partitions(topic) for topic in store.topics()}
    return {place: store.partition(*place) for place in chosen_partitions(store.path, request, known)}


def _start(log: PartitionLog, request: ConsumeRequest, isolation: Isolation) -> int:
    end = log.last_stable_offset if request.committed else log.end_offset
    if request.timestamp_ms is not None:
        found = log.offset_for_timestamp(request.timestamp_ms, isolation=isolation)
        return end if found is None else found.offset
    if request.tail is not None:
        return max(end - request.tail, log.start_offset)
    if request.offset is None:
        return log.start_offset
    return end if request.offset > log.end_offset else request.offset
