"""Bringing the groups back from `__consumer_offsets` when the broker starts.

Of each key only the last record counts, as it does for the cleaner, so the records are first folded by their keys as
bytes, and only what is left is decoded. Commits within transactions wait for the marker; those whose marker is not
there yet are pending again. A partition that cannot be read is left alone: its groups have no coordinator, and the
others are served.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duralog.broker.groups.group_log import LoggedMarker, LoggedRecord, read_log
from duralog.broker.groups.offset_records import (
    OFFSET_TYPES,
    CommittedOffset,
    OffsetKey,
    decode_offset_key,
    decode_offset_value,
)
from duralog.errors import DuralogError
from duralog.format.coordinator_records import CoordinatorRecord, decode_coordinator_record
from duralog.format.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.layout import NO_PRODUCER_ID

if TYPE_CHECKING:
    from duralog.broker.groups.coordinator import GroupCoordinator


class FoldedLog:
    """The last record of each key, and what transactions that have not ended have written."""

    def __init__(self) -> None:
        self._last: dict[bytes, LoggedRecord] = {}
        self._open: dict[int, dict[bytes, LoggedRecord]] = {}

    def add(self, entries: Iterable[LoggedRecord | LoggedMarker]) -> None:
        last, open_ones = self._last, self._open
        for entry in entries:
            if isinstance(entry, LoggedMarker):
                self._end(entry)
            elif entry.producer_id != NO_PRODUCER_ID:
                open_ones.setdefault(entry.producer_id, {})[entry.key] = entry
            else:
                last[entry.key] = entry
                if entry.value is None:
                    for pending in open_ones.values():
                        pending.pop(entry.key, None)

    def _end(self, marker: LoggedMarker) -> None:
        for key, record in self._open.pop(marker.producer_id, {}).items():
            known = self._last.get(key)
            if marker.commit and (known is None or known.offset < record.offset):
                self._last[key] = record

    def last(self) -> list[LoggedRecord]:
        """In the order of the log."""
        return sorted(self._last.values(), key=lambda record: record.offset)

    def pending(self) -> list[LoggedRecord]:
        found = [record for records in self._open.values() for record in records.values()]
        return sorted(found, key=lambda record: record.offset)


Decoded = tuple[OffsetKey, CommittedOffset | None] | CoordinatorRecord
"""A partition with its offset, None where it was taken back; or a record of any other type."""


def load_groups(coordinator: GroupCoordinator) -> None:
    """Read all partitions into a coordinator that is still empty."""
    with _no_collection():
        _load_partitions(coordinator)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing of what is loaded is garbage: to look for it again and again takes as long as the loading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _load_partitions(coordinator: GroupCoordinator) -> None:
    for number, log in coordinator.log.partitions():
        folded = FoldedLog()
        try:
            # All of it before the first change: a log that turns out to be damaged must not be known by halves.
            folded.add(read_log(log))
            records = [decoded for record in folded.last() if (decoded := _decode(record)) is not None]
            pending = [(record.producer_id, _decode(record)) for record in folded.pending()]
        except DuralogError as error:
            coordinator.log.unreadable.add(number)
            coordinator.broker.log.error("the groups of %s-%d cannot be loaded: %s", log.topic, number, error)
            continue
        for decoded in records:
            if isinstance(decoded, CoordinatorRecord):
                coordinator.replay(decoded)
            else:
                coordinator.replay_offset(*decoded)
        for producer_id, decoded in pending:
            if isinstance(decoded, tuple):
                key, committed = decoded
                if committed is not None:
                    coordinator.find_or_make(key.group_id)
                    coordinator.offsets.put_pending(number, producer_id, key, committed)


def _decode(record: LoggedRecord) -> Decoded | None:
    """None for an offset in a version of the future, which nobody here can use."""
    if record.key[:2] not in OFFSET_TYPES:
        return decode_coordinator_record(CONSUMER_OFFSETS_TYPES, record.key, record.value)
    key = decode_offset_key(record.key)
    if record.value is None:
        return key, None
    committed = decode_offset_value(record.key, record.value, record.offset)
    return None if committed is None else (key, committed)
