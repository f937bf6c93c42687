"""A partition against a plain list in which every offset has its place.

Everything that can be done to a log is done in any order: all of what it tells must be what the list tells. After a
loss of power the log must be a beginning of the list, with everything in it that was flushed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duralog.errors import OffsetOutOfRange, OutOfOrderSequence
from duralog.format.record import Record
from duralog.storage.partition_log import EARLIEST, LATEST, MAX_TIMESTAMP, PartitionLog
from tests.faults.crashing_files import START_MS, CrashingFiles
from tests.faults.partition import Partition

IDEMPOTENT = (1, 2)
TRANSACTIONAL = (7, 8)

seeds = st.integers(0, 2**32 - 1)
codecs = st.sampled_from([None, "gzip", "snappy", "lz4", "zstd"])
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=10),
    value=st.none() | st.binary(max_size=300) | st.integers(0, 1000).map(bytes),
    timestamp_ms=st.integers(0, 50).map(lambda ms: START_MS + ms),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2),
)
batches = st.lists(records, min_size=1, max_size=4)


@dataclass(frozen=True)
class Entry:
    """What is at an offset."""

    batch_offset: int
    record: Record | None = None
    producer_id: int = -1
    sequence: int = -1
    is_transactional: bool = False
    commits: bool | None = None
    """Of a marker."""


def content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.timestamp_ms, [*record.headers]


class PartitionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.start = 0
        self.safe_start = 0
        """The start that a crash cannot take back."""
        self.flushed = 0

    @initialize(seed=seeds, write_back=st.sampled_from([0, 0.2]))
    def begin(self, seed: int, write_back: float) -> None:
        self.partition = Partition(CrashingFiles(seed=seed, write_back=write_back))
        self.log: PartitionLog = self.partition.open()
        self.append([Record(value=b"first", timestamp_ms=START_MS)], None)
        self.flush()
        self.checkpoint()

    # What can be done

    @rule(batch=batches, codec=codecs)
    def append(self, batch: list[Record], codec: str | None) -> None:
        result = self.log.append(batch, codec=codec)
        base = len(self.entries)
        assert (result.base_offset, result.last_offset) == (base, base + len(batch) - 1)
        self.entries += [Entry(base, record) for record in batch]

    @rule(batch=batches, codec=codecs, producer_id=st.sampled_from(IDEMPOTENT + TRANSACTIONAL))
    def append_of_producer(self, batch: list[Record], codec: str | None, producer_id: int) -> None:
        sequence = self.next_sequence(producer_id)
        is_transactional = producer_id in TRANSACTIONAL
        result = self.log.append(
            batch,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        base = len(self.entries)
        assert (result.base_offset, result.last_offset, result.duplicate) == (base, base + len(batch) - 1, False)
        self.entries += [
            Entry(base, record, producer_id, sequence + number, is_transactional) for number, record in enumerate(batch)
        ]

    @rule(producer_id=st.sampled_from(IDEMPOTENT + TRANSACTIONAL))
    def repeat_last_batch(self, producer_id: int) -> None:
        last = next((entry for entry in reversed(self.entries) if self.is_data_of(entry, producer_id)), None)
        if last is None or last.batch_offset < self.start:
            return
        batch = [entry for entry in self.entries if entry.batch_offset == last.batch_offset]
        sent = [entry.record for entry in batch if entry.record is not None]
        fields = {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": last.is_transactional}
        result = self.log.append(sent, base_sequence=batch[0].sequence, **fields)  # type: ignore[arg-type]
        assert (result.base_offset, result.duplicate) == (last.batch_offset, True)
        with pytest.raises(OutOfOrderSequence):
            self.log.append(sent, base_sequence=last.sequence + 2, **fields)  # type: ignore[arg-type]

    @precondition(lambda self: self.open_transactions())
    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data: st.DataObject, commit: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.open_transactions())))
        result = self.log.end_transaction(producer_id, 0, commit=commit)
        assert result.base_offset == len(self.entries)
        self.entries.append(Entry(len(self.entries), None, producer_id, commits=commit))

    @rule()
    def roll(self) -> None:
        self.log.roll()
        assert self.log.segments[-1].size_bytes == 0

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = len(self.entries)
        assert self.log.recovery_point == self.flushed

    @rule()
    def catch_up(self) -> None:
        self.partition.catch_up()

    @rule()
    def checkpoint(self) -> None:
        self.partition.checkpoint(self.log)
        self.safe_start = self.start

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        # Not into a transaction: of one that began below the start, a crash may leave more or less.
        outside = [at for at in range(self.start, self.last_stable_offset() + 1) if not self.is_inside_transaction(at)]
        offset = data.draw(st.sampled_from(outside or [self.start]))
        assert self.log.delete_records(offset) == offset
        self.start = offset

    @rule()
    def delete_old_segments(self) -> None:
        self.partition.delete_old_segments(self.log)
        bases = [segment.base_offset for segment in self.log.segments]
        assert len(bases) == 1 or bases[1] > self.start

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, len(self.entries)))
        end = self.entries[offset].batch_offset if offset < len(self.entries) else offset
        # With nothing left that was ever synced, recovery takes gaps for those that compaction leaves.
        if end < max(self.start, 1):
            return
        self.log.truncate_to(offset)
        del self.entries[end:]
        self.flushed = min(self.flushed, end)
        # A store does this at once: an older checkpoint would vouch for records that are not there any more.
        self.checkpoint()

    @rule()
    def stop_and_start(self) -> None:
        self.partition.close(self.log)
        self.flushed = len(self.entries)
        self.safe_start = self.start
        self.log = self.partition.open()

    @rule()
    def kill_and_start(self) -> None:
        self.start_on(self.disk.after_kill())
        assert self.log.end_offset == len(self.entries)

    @rule(seed=seeds)
    def lose_power_and_start(self, seed: int) -> None:
        self.start_on(self.disk.after_power_loss(seed))
        assert self.flushed <= self.log.end_offset <= len(self.entries)
        del self.entries[self.log.end_offset :]

    def start_on(self, disk: CrashingFiles) -> None:
        self.partition = Partition(disk)
        self.log = self.partition.open()
        assert self.safe_start <= self.log.start_offset <= self.start
        self.start = self.log.start_offset

    # What can be asked

    @rule(data=st.data(), max_bytes=st.none() | st.integers(1, 2000))
    def read(self, data: st.DataObject, max_bytes: int | None) -> None:
        offset = data.draw(st.integers(self.start, len(self.entries)))
        found = list(self.log.read(offset, max_bytes=max_bytes))
        expected = [(at, entry) for at, entry in enumerate(self.entries) if at >= offset and entry.record is not None]
        if max_bytes is None:
            assert len(found) == len(expected)
        self.check_records(found, expected[: len(found)])
        if max_bytes is not None and offset < len(self.entries) and self.entries[offset].record is not None:
            assert found, "the first batch comes whatever its size"

    @rule(distance=st.integers(1, 5))
    def read_out_of_range(self, distance: int) -> None:
        for offset in (self.start - distance, len(self.entries) + distance):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset)

    @rule(timestamp_ms=st.integers(-1, 52).map(lambda ms: START_MS + ms))
    def look_up_time(self, timestamp_ms: int) -> None:
        expected = next(
            (
                (at, entry.record.timestamp_ms)
                for at, entry in enumerate(self.entries)
                if at >= self.start and entry.record is not None and entry.record.timestamp_ms >= timestamp_ms
            ),
            None,
        )
        found = self.log.offset_for_timestamp(timestamp_ms)
        assert (None if found is None else (found.offset, found.timestamp_ms)) == expected

    @rule()
    def look_up_special_times(self) -> None:
        earliest, latest = self.log.offset_for_timestamp(EARLIEST), self.log.offset_for_timestamp(LATEST)
        assert earliest is not None
        assert latest is not None
        assert (earliest.offset, latest.offset) == (self.start, len(self.entries))
        stable = self.log.offset_for_timestamp(LATEST, isolation="read_committed")
        assert stable is not None
        assert stable.offset == self.last_stable_offset()
        data = [
            (at, entry.record.timestamp_ms)
            for at, entry in enumerate(self.entries)
            if at >= self.start and entry.record is not None
        ]
        if data and self.start == self.log.segments[0].base_offset:
            largest = max(time for _, time in data)
            found = self.log.offset_for_timestamp(MAX_TIMESTAMP)
            assert found is not None
            assert (found.offset, found.timestamp_ms) == next(entry for entry in data if entry[1] == largest)

    @invariant()
    def tells_what_the_list_tells(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset, log.high_watermark) == (
            self.start,
            len(self.entries),
            len(self.entries),
        )
        assert log.last_stable_offset == self.last_stable_offset()
        expected = [
            (at, entry)
            for at, entry in enumerate(self.entries)
            if at >= self.start and at < self.last_stable_offset() and self.is_committed(at)
        ]
        found = list(log.read(self.start, isolation="read_committed"))
        assert len(found) == len(expected)
        self.check_records(found, expected)
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        assert bases[0] <= self.start

    # What the list tells

    @property
    def disk(self) -> CrashingFiles:
        assert isinstance(self.partition.files, CrashingFiles)
        return self.partition.files

    def check_records(self, found: list[Record], expected: list[tuple[int, Entry]]) -> None:
        for record, (offset, entry) in zip(found, expected, strict=True):
            assert entry.record is not None
            assert record.offset == offset
            assert content(record) == content(entry.record)

    def is_data_of(self, entry: Entry, producer_id: int) -> bool:
        return entry.producer_id == producer_id and entry.record is not None

    def next_sequence(self, producer_id: int) -> int:
        sequences = [entry.sequence for entry in self.entries if self.is_data_of(entry, producer_id)]
        return sequences[-1] + 1 if sequences else 0

    def open_transactions(self) -> dict[int, int]:
        """First offsets by producer."""
        found: dict[int, int] = {}
        for offset, entry in enumerate(self.entries):
            if entry.commits is not None:
                found.pop(entry.producer_id, None)
            elif entry.is_transactional:
                found.setdefault(entry.producer_id, offset)
        return found

    def is_inside_transaction(self, offset: int) -> bool:
        """Whether one began before the offset and ends at it or later."""
        before: set[int] = set()
        for entry in self.entries[:offset]:
            if entry.commits is not None:
                before.discard(entry.producer_id)
            elif entry.is_transactional:
                before.add(entry.producer_id)
        return bool(before)

    def last_stable_offset(self) -> int:
        return min(self.open_transactions().values(), default=len(self.entries))

    def is_committed(self, offset: int) -> bool:
        entry = self.entries[offset]
        if entry.record is None or not entry.is_transactional:
            return entry.record is not None
        following = (later for later in self.entries[offset:] if later.producer_id == entry.producer_id)
        return bool(next((later.commits for later in following if later.commits is not None), False))


TestPartitionModel = PartitionModel.TestCase
