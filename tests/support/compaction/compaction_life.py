"""The life of a compacted partition, step by step, and what must be true of it after every compaction.

A `Life` does steps (`tests.support.compaction.compaction_steps`) to a real log on a disk in memory. It remembers every
record ever written, so that after each compaction it can say of each offset whether its record must be there or must be
gone. Nothing of that knows how compaction works: it is what users were promised.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Self
from unittest import mock

from duralog.config import TopicConfig
from duralog.format.record import Record
from duralog.storage.compaction import settings as compaction_settings
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.report import CompactionReport
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.log.partition_log import PartitionLog
from tests.support.compaction.compaction_steps import (
    TRANSACTIONAL,
    Compact,
    End,
    Follow,
    Restart,
    Roll,
    Step,
    Tick,
    Write,
)
from tests.support.compaction.plain_compaction import first_uncleanable_offset, segments_on_disk
from tests.support.faults.crashing_files import START_MS, CrashingFiles
from tests.support.faults.partition import Partition

ENTRY_BYTES = 24
RETENTION_MS = 1000
"""How long delete markers stay."""

SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 1300,
    "segment.index.bytes": 120,
    "index.interval.bytes": 200,
    "max.message.bytes": 1300,
    "delete.retention.ms": RETENTION_MS,
}


class Transaction:
    is_committed: bool | None = None
    """Unknown while it is open."""


class Written(NamedTuple):
    record: Record
    transaction: Transaction | None

    @property
    def is_aborted(self) -> bool:
        return self.transaction is not None and self.transaction.is_committed is False

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction.is_committed is True


class Sent(NamedTuple):
    """The last batch of a producer."""

    records: Sequence[Record]
    base_sequence: int
    base_offset: int
    last_offset: int


class Producer:
    def __init__(self) -> None:
        self.epoch = 0
        self.next_sequence = 0
        self.transaction: Transaction | None = None
        self.sent: Sent | None = None
        """In this epoch."""


class Follower:
    """A reader of committed data that started at the start of the log and takes its time."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.position = 0
        self.state: dict[bytes, bytes] = {}

    def read(self, log: PartitionLog, records: int | None) -> bool:
        """Take this many records, or all. Returns whether the reader has caught up."""
        stable = log.last_stable_offset
        found = log.read(self.position, isolation="read_committed")
        for record in islice(found, records):
            assert record.offset >= self.position
            self.position = record.offset + 1
            apply(record, self.state)
        if next(found, None) is None:
            self.position = stable
            return True
        return False


def apply(record: Record, state: dict[bytes, bytes]) -> None:
    assert record.key is not None
    if record.value is None:
        state.pop(record.key, None)
    else:
        state[record.key] = record.value


def facts(log: PartitionLog) -> dict[str, object]:
    """What compaction has no business with."""
    return {
        "start": log.start_offset,
        "end": log.end_offset,
        "high watermark": log.high_watermark,
        "stable": log.last_stable_offset,
        "producers": sorted(log.producers(), key=lambda entry: entry.producer_id),
        "first segment": log.segments[0].base_offset,
        "active segment": log.segments[-1],
        "leader epochs": log.leader_epochs.entries,
    }


def content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.timestamp_ms, record.timestamp_type, tuple(record.headers)


def compact_up_to(
    log: PartitionLog, first_dirty_offset: int, end: int, *, now_ms: int, keys: int = 1000, workers: int = 1
) -> CompactionReport:
    """With a map that has room for this many keys, and in pieces so small that a segment has several of them."""
    with mock.patch.object(compaction_settings, "PIECE_BYTES", 300):
        return compact_log(
            log,
            first_dirty_offset=first_dirty_offset,
            end=end,
            now_ms=now_ms,
            settings=CompactionSettings(
                memory_bytes=2 * keys * ENTRY_BYTES, load_factor=0.5 if keys > 1 else 0.9, workers=workers
            ),
        )


class Life:
    def __init__(self, *, min_lag_ms: int = 0, settings: dict[str, object] | None = None) -> None:
        self.now_ms = START_MS
        overrides = {**SETTINGS, "min.compaction.lag.ms": min_lag_ms, **(settings or {})}
        self.config = TopicConfig().with_overrides(overrides)
        self.files = CrashingFiles(clock=self.clock)
        self._open()
        self.written: dict[int, Written] = {}
        self.markers: dict[int, int] = {}
        """Their times by their offsets."""
        self.producers: dict[int, Producer] = {}
        self.first_dirty_offset = 0
        self.end = 0
        """Where the last compaction ended."""
        self.kept_since_ms: dict[int, int] = {}
        """By the offset of a delete marker: when it was first compacted, and stayed."""
        self.follower = Follower(self.now_ms)

    def clock(self) -> int:
        return self.now_ms

    def live(self, steps: Sequence[Step]) -> Self:
        for step in steps:
            self.do(step)
        return self

    def end_all(self, *, commit: bool = True) -> None:
        """Leave no transaction open, and nothing in the active segment."""
        for producer_id, producer in self.producers.items():
            if producer.transaction is not None:
                self.end_transaction(End(producer_id, commit))
        self.log.roll()

    def do(self, step: Step) -> None:
        match step:
            case Write():
                self.write(step)
            case End():
                self.end_transaction(step)
            case Roll():
                self.log.roll()
            case Tick():
                self.now_ms += step.ms
            case Follow():
                self.follow(step.records)
            case Restart():
                self.restart(is_kill=step.is_kill)
            case Compact():
                self.compact(step.keys)

    # What is done to the log

    def write(self, step: Write) -> None:
        producer = self.producers.setdefault(step.producer_id, Producer())
        is_transactional = step.producer_id in TRANSACTIONAL
        if is_transactional and producer.transaction is None:
            producer.transaction = Transaction()
        records = [self._record(*drawn) for drawn in step.records]
        if step.producer_id < 0:
            result = self.log.append(records, codec=step.codec)
        else:
            result = self.log.append(
                records,
                codec=step.codec,
                producer_id=step.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.next_sequence,
                is_transactional=is_transactional,
            )
            producer.sent = Sent(records, producer.next_sequence, result.base_offset, result.last_offset)
            producer.next_sequence += len(records)
        assert not result.duplicate
        for offset, record in enumerate(records, result.base_offset):
            self.written[offset] = Written(record, producer.transaction)

    def _record(self, key: int, size: int, after_ms: int) -> Record:
        number = len(self.written)
        return Record(
            key=bytes([key]) * (key % 4),
            value=None if size == 0 else number.to_bytes(4) * size,
            timestamp_ms=self.now_ms + after_ms,
            headers=[("n", number.to_bytes(2))] if number % 7 == 0 else [],
        )

    def end_transaction(self, step: End) -> None:
        producer = self.producers.setdefault(step.producer_id, Producer())
        result = self.log.end_transaction(
            step.producer_id,
            producer.epoch + step.bumps_epoch,
            commit=step.commit,
            transaction_version=2 if step.bumps_epoch else 0,
        )
        self.markers[result.base_offset] = self.now_ms
        if producer.transaction is not None:
            producer.transaction.is_committed = step.commit
            producer.transaction = None
        if step.bumps_epoch:
            producer.epoch += 1
            producer.next_sequence = 0
            producer.sent = None

    def _open(self) -> None:
        self.partition = Partition(self.files, config=self.config, clock=self.clock)
        self.log: PartitionLog = self.partition.open()

    def _close(self) -> None:
        self.partition.close(self.log)

    def restart(self, *, is_kill: bool) -> None:
        before = self.log
        if is_kill:
            self.files = self.files.after_kill()
        else:
            self._close()
        self._open()
        assert (self.log.start_offset, self.log.end_offset) == (before.start_offset, before.end_offset)
        assert self.log.last_stable_offset == before.last_stable_offset

    def follow(self, records: int | None = None) -> None:
        """A reader that is quicker than the delete markers go knows just what the log says."""
        if not self.follower.read(self.log, records):
            return
        state = self.state(self.written[offset] for offset in sorted(self.written) if self.is_stable(offset))
        if self.now_ms - self.follower.started_ms < RETENTION_MS:
            assert self.follower.state == state
        else:
            assert state.items() <= self.follower.state.items()
        self.follower = Follower(self.now_ms)

    def compact(self, keys: int = 1000) -> CompactionReport | None:
        """Compact all that may be, if anything is dirty, and look at what has become of the log."""
        end = first_uncleanable_offset(
            segments_on_disk(self.files, self.partition.folder),
            first_dirty_offset=self.first_dirty_offset,
            last_stable_offset=self.log.last_stable_offset,
            min_lag_ms=self.config.min_compaction_lag_ms,
            now_ms=self.now_ms,
        )
        if end <= self.first_dirty_offset:
            return None
        there = {record.offset for record in self.log.read(self.log.start_offset)}
        before = facts(self.log)
        report = self._compact_up_to(end, keys)
        assert facts(self.log) == before
        assert (report.first_dirty_offset, report.end_offset) == (self.first_dirty_offset, end)
        self.first_dirty_offset = self.end = end
        self.check(there)
        left = sum(1 for _ in self.log.read(self.log.start_offset))
        told = report.superseded_records + report.expired_tombstones + report.aborted_records + report.keyless_records
        assert len(there) - left == told
        return report

    def _compact_up_to(self, end: int, keys: int) -> CompactionReport:
        return compact_up_to(self.log, self.first_dirty_offset, end, keys=keys, now_ms=self.now_ms)

    # What must be true

    def check(self, there_before: set[int] | None = None) -> None:
        """After a compaction up to `end`, with the records that were there before it."""
        survivors = list(self.log.read(self.log.start_offset))
        offsets = [record.offset for record in survivors]
        there = set(offsets)
        assert offsets == sorted(there), "the order has changed"
        for record in survivors:
            assert content(record) == content(self.written[record.offset].record), f"offset {record.offset} has changed"
        assert there <= (self.written.keys() if there_before is None else there_before), "a record has come back"
        self._check_who_is_there(there)
        self._check_final_state(survivors)
        for offset in range(self.log.start_offset, self.log.end_offset + 1, max(1, self.log.end_offset // 8)):
            self.check_read_from(offset, offsets)
        for after_ms in (-10_000, -1000, -100, 0, 1):
            self._check_lookup(self.now_ms + after_ms, survivors)

    def _check_who_is_there(self, there: set[int]) -> None:
        last = {}
        for offset in sorted(self.written):
            if offset < self.end and not self.written[offset].is_aborted:
                last[self.written[offset].record.key] = offset
        for offset, written in self.written.items():
            record = written.record
            is_young = record.timestamp_ms > self.now_ms - self.config.min_compaction_lag_ms
            if offset >= self.end or (self.config.min_compaction_lag_ms and is_young):
                assert offset in there, f"offset {offset} was not to be touched"
            elif written.is_aborted:
                assert offset not in there, f"offset {offset} was aborted"
            elif offset < last[record.key]:
                assert offset not in there, f"offset {offset} was written again at {last[record.key]}"
            elif record.value is not None:
                assert offset in there, f"offset {offset} is the last word on its key"
            else:
                since_ms = self.kept_since_ms.setdefault(offset, self.now_ms)
                is_due = self.now_ms >= since_ms + RETENTION_MS
                assert (offset in there) != is_due, f"offset {offset} deletes its key, compacted first at {since_ms}"

    def _check_final_state(self, survivors: Sequence[Record]) -> None:
        committed = self.log.read(self.log.start_offset, isolation="read_committed")
        expected = [offset for offset in sorted(self.written) if self.is_stable(offset)]
        found: dict[bytes, bytes] = {}
        for record in committed:
            apply(record, found)
        assert found == self.state(self.written[offset] for offset in expected)
        rest = [written for _, written in sorted(self.written.items()) if not written.is_aborted]
        assert self.state(rest) == self.state(
            written for record in survivors if not (written := self.written[record.offset]).is_aborted
        )

    def check_read_from(self, offset: int, offsets: Sequence[int]) -> None:
        """A read from a missing offset continues at the next one that exists."""
        following = bisect_left(offsets, offset)
        found = next(self.log.read(offset), None)
        assert (None if found is None else found.offset) == (offsets[following] if following < len(offsets) else None)
        stable = next((one for one in offsets[following:] if self.is_stable(one)), None)
        found = next(self.log.read(offset, isolation="read_committed"), None)
        assert (None if found is None else found.offset) == stable

    def _check_lookup(self, timestamp_ms: int, survivors: Sequence[Record]) -> None:
        expected = next((record.offset for record in survivors if record.timestamp_ms >= timestamp_ms), None)
        found = self.log.offset_for_timestamp(timestamp_ms)
        if found is not None and found.offset in self.markers:
            # Markers have a time, too, and nobody but compaction knows which of them are left.
            assert self.markers[found.offset] >= timestamp_ms
            assert expected is None or found.offset < expected
        else:
            assert (None if found is None else found.offset) == expected

    def check_repeated_batches(self) -> None:
        """A producer that sends its last batch again gets the offsets of the first time."""
        end_offset = self.log.end_offset
        for producer_id, producer in self.producers.items():
            if producer.sent is not None:
                result = self.log.append(
                    producer.sent.records,
                    producer_id=producer_id,
                    producer_epoch=producer.epoch,
                    base_sequence=producer.sent.base_sequence,
                    is_transactional=producer_id in TRANSACTIONAL,
                )
                assert result.duplicate
                assert (result.base_offset, result.last_offset) == producer.sent[2:]
        assert self.log.end_offset == end_offset

    # What the records say

    def is_stable(self, offset: int) -> bool:
        """Whether readers of committed data see the offset's record, if it is there."""
        return offset < self.log.last_stable_offset and self.written[offset].is_committed

    def state(self, written: Iterator[Written] | Sequence[Written]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for one in written:
            apply(one.record, found)
        return found
