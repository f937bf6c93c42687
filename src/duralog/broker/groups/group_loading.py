"""Loading the groups from `__consumer_offsets` when the broker starts.

Of each key only the last record counts, as it does for the cleaner, so the records are first folded by their keys as
bytes, and only what is left is decoded. Commits within transactions wait for the marker; those whose marker is not
there yet are pending again.

A record that cannot be loaded is skipped (`coordinator_log` says why that is safe), and so is one that does not fit its
group. A partition that cannot be read to its end is left alone: what the damage held is not known, and offsets from
before it would rewind consumers. Its groups have no coordinator until it is repaired. The others are served.

A group's records are in the partition that its id and their number say. If Kafka's tools gave the topic more of them,
older records in the other partitions are ignored, as in Kafka: an old commit must not win over a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from duralog.broker.groups.group_log import GroupLog
from duralog.broker.groups.known_groups import KnownGroups
from duralog.broker.groups.offsets.records import (
    OFFSET_TYPES,
    CommittedOffset,
    OffsetKey,
    decode_offset_key,
    decode_offset_value,
)
from duralog.broker.topics.coordinator_log import (
    LoggedMarker,
    LoggedRecord,
    OnSkipped,
    Skipped,
    ignore,
    read_log,
    unreadable_text,
)
from duralog.config.collector_pause import collector_paused
from duralog.format.internal.coordinator_records import CoordinatorRecord, decode_coordinator_record
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.java_hash import coordinator_partition
from duralog.format.layout import NO_PRODUCER_ID
from duralog.storage.log.partition_log import PartitionLog


class FoldedLog:
    """The last record of each key, and what transactions that have not ended have written."""

    def __init__(self, *, keeps_tombstones: bool = True) -> None:
        """A reader that follows the log for weeks and only needs what takes effect must not collect tombstones."""
        self._keeps_tombstones = keeps_tombstones
        self._last: dict[bytes, LoggedRecord] = {}
        self._open: dict[int, dict[bytes, LoggedRecord]] = {}

    def add(self, entries: Iterable[LoggedRecord | LoggedMarker]) -> None:
        for _ in self.taking_effect(entries):
            pass

    def taking_effect(self, entries: Iterable[LoggedRecord | LoggedMarker]) -> Iterator[LoggedRecord]:
        """Add the entries, and give each record when it counts: those of a transaction at its end."""
        last, open_ones = self._last, self._open
        for entry in entries:
            if isinstance(entry, LoggedMarker):
                yield from self._end(entry)
            elif entry.producer_id != NO_PRODUCER_ID:
                open_ones.setdefault(entry.producer_id, {})[entry.key] = entry
            else:
                last[entry.key] = entry
                if entry.value is None:
                    for pending in open_ones.values():
                        pending.pop(entry.key, None)
                    if not self._keeps_tombstones:
                        del last[entry.key]
                yield entry

    def _end(self, marker: LoggedMarker) -> Iterator[LoggedRecord]:
        for key, record in self._open.pop(marker.producer_id, {}).items():
            known = self._last.get(key)
            if marker.commit and (known is None or known.offset < record.offset):
                self._last[key] = record
                yield record

    def last(self) -> list[LoggedRecord]:
        """In the order of the log."""
        return sorted(self._last.values(), key=lambda record: record.offset)

    def pending(self) -> list[LoggedRecord]:
        found = [record for records in self._open.values() for record in records.values()]
        return sorted(found, key=lambda record: record.offset)


Decoded = tuple[OffsetKey, CommittedOffset | None] | CoordinatorRecord
"""A partition with its offset, None where that was deleted; or a record of any other type."""


class LoadedPartition(NamedTuple):
    """The content of a partition, decoded as a whole: a damaged log must not be loaded by halves."""

    records: list[tuple[int, Decoded]]
    """With their offsets."""
    pending: list[tuple[int, OffsetKey, CommittedOffset]]
    """With the ids of the producers whose transactions have not ended."""


def load_partition(log: PartitionLog, on_skipped: OnSkipped = ignore) -> LoadedPartition:
    """Raises what is wrong with the log."""
    folded = FoldedLog()
    folded.add(read_log(log, on_skipped=on_skipped))
    records = [(record.offset, _decode(record)) for record in folded.last()]
    pending = []
    for record in folded.pending():
        decoded = _decode(record)
        if isinstance(decoded, tuple) and decoded[1] is not None:
            pending.append((record.producer_id, decoded[0], decoded[1]))
    return LoadedPartition(records, pending)


def take_in(known: KnownGroups, number: int, loaded: LoadedPartition, on_skipped: OnSkipped = ignore) -> None:
    """Apply everything in partition `number`."""
    for offset, decoded in loaded.records:
        if isinstance(decoded, CoordinatorRecord):
            misfit = known.replay(decoded)
            if misfit is not None:
                on_skipped(Skipped(offset, misfit))
        else:
            known.replay_offset(*decoded)
    for producer_id, key, committed in loaded.pending:
        known.replay_pending(number, producer_id, key, committed)


def load_groups(known: KnownGroups, log: GroupLog, logger: logging.Logger) -> None:
    """Read all partitions into a coordinator that is still empty."""
    with collector_paused():
        _load_partitions(known, log, logger)


def _load_partitions(known: KnownGroups, log: GroupLog, logger: logging.Logger) -> None:
    count = log.partition_count
    for number, partition in log.partitions():
        on_skipped = log.skipped.of(partition)
        try:
            loaded = load_partition(partition, on_skipped)
            own = _of_own_groups(loaded, number, count)
            take_in(known, number, own, on_skipped)
        except Exception as error:  # The groups of the other partitions are still served.
            log.unreadable.add(number)
            for group_id in [each for each in known.by_id if coordinator_partition(each, count) == number]:
                known.remove(group_id)
            logger.error("%s", unreadable_text(partition, "groups", error))
            continue
        if len(own.records) < len(loaded.records):
            others = len(loaded.records) - len(own.records)
            logger.warning(
                "%s-%d has %d records of groups that belong to other partitions: they are ignored",
                partition.topic,
                number,
                others,
            )
    log.skipped.finish()


def _of_own_groups(loaded: LoadedPartition, number: int, count: int) -> LoadedPartition:
    """The content of a partition for the groups that belong to it."""
    place_of: dict[str, int] = {}
    for group_id in {_group_of(each) for _, each in loaded.records} | {key.group_id for _, key, _ in loaded.pending}:
        place_of[group_id] = coordinator_partition(group_id, count)
    return LoadedPartition(
        [(offset, decoded) for offset, decoded in loaded.records if place_of[_group_of(decoded)] == number],
        [pending for pending in loaded.pending if place_of[pending[1].group_id] == number],
    )


def _group_of(decoded: Decoded) -> str:
    if not isinstance(decoded, CoordinatorRecord):
        return decoded[0].group_id
    assert not isinstance(decoded.key, bytes)
    group_id: str = decoded.key["group"] if "group" in decoded.key else decoded.key["group_id"]
    return group_id


def _decode(record: LoggedRecord) -> Decoded:
    """REQUIRES: it can be loaded, as everything that `read_log` gives."""
    if record.key[:2] not in OFFSET_TYPES:
        return decode_coordinator_record(CONSUMER_OFFSETS_TYPES, record.key, record.value)
    key = decode_offset_key(record.key)
    if record.value is None:
        return key, None
    committed = decode_offset_value(record.key, record.value, record.offset)
    assert committed is not None
    return key, committed
