"""A partition against a plain list in which every offset has its place.

Everything that can be done to a log is done in any order: all of what it tells must be what the list tells. After a
loss of power the log must be a beginning of the list, with everything in it that was flushed. Compaction may only leave
out records that nobody needs any more, and what it has left out does not come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duralog.errors import OffsetOutOfRange, OutOfOrderSequence
from duralog.format.record import Record
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.log.partition_log import EARLIEST, LATEST, MAX_TIMESTAMP, PartitionLog
from tests.support.faults.crashing_files import START_MS, CrashingFiles, PowerLost
from tests.support.faults.partition import SMALL_SEGMENTS, Partition

IDEMPOTENT = (1, 2)
TRANSACTIONAL = (7, 8)
MAP_ENTRY_BYTES = 24

CONFIG = SMALL_SEGMENTS.with_overrides({"delete.retention.ms": 5})
"""Not a compacted topic's: records may have no key, and offsets that are missing above the recovery point were lost."""

seeds = st.integers(0, 2**32 - 1)
codecs = st.sampled_from([None, "gzip", "snappy", "lz4", "zstd"])
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=10) | st.sampled_from([b"a", b"b", b"c"]),
    value=st.none() | st.binary(max_size=300) | st.integers(0, 1000).map(bytes),
    timestamp_ms=st.integers(0, 50).map(lambda ms: START_MS + ms),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2),
)
batches = st.lists(records, min_size=1, max_size=4)
map_sizes = st.sampled_from([1, 3, 100])


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
        self.first_dirty = 0
        self.compacted = 0
        """How far any compaction may have come."""
        self.compacted_ms = START_MS
        self.gone: set[int] = set()
        """The offsets whose records compaction has left out."""

    @initialize(seed=seeds, write_back=st.sampled_from([0, 0.2]))
    def begin(self, seed: int, write_back: float) -> None:
        self.partition = Partition(CrashingFiles(seed=seed, write_back=write_back), config=CONFIG)
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

    @rule(keys=map_sizes, after_ms=st.integers(0, 10))
    def compact(self, keys: int, after_ms: int) -> None:
        self.try_to_compact(keys, after_ms)
        self.learn_what_is_there()

    @rule(keys=map_sizes, after_ms=st.integers(0, 10), changes=st.integers(0, 40), seed=seeds)
    def lose_power_while_compacting(self, keys: int, after_ms: int, changes: int, seed: int) -> None:
        self.flush()
        self.checkpoint()
        self.disk.lose_power_after(changes)
        with suppress(PowerLost):
            self.try_to_compact(keys, after_ms)
        self.start_on(self.disk.after_power_loss(seed))
        assert self.log.end_offset == len(self.entries)

    def try_to_compact(self, keys: int, after_ms: int) -> None:
        """As a store does it: the recovery point is on disk before offsets are missing."""
        self.log.roll()
        self.flush()
        self.checkpoint()
        self.compacted_ms += after_ms
        end = min(self.log.segments[-1].base_offset, self.last_stable_offset())
        self.compacted = max(self.compacted, end)
        report = compact_log(
            self.log,
            first_dirty_offset=max(self.first_dirty, self.start),
            end=end,
            now_ms=self.compacted_ms,
            settings=CompactionSettings(memory_bytes=2 * keys * MAP_ENTRY_BYTES, load_factor=0.9),
        )
        assert report.corrupt_batches == report.left_segments == []
        self.first_dirty = max(self.first_dirty, report.end_offset)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        # Not into what is compacted: there the batch that holds the offset may be gone, and the end is elsewhere.
        offset = data.draw(st.integers(max(self.start, self.compacted), len(self.entries)))
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
        self.partition = Partition(disk, config=CONFIG)
        self.log = self.partition.open()
        assert self.safe_start <= self.log.start_offset <= self.start
        self.start = self.log.start_offset
        self.learn_what_is_there()

    def learn_what_is_there(self) -> None:
        """Only unneeded records may be missing, and only permanently."""
        there = {record.offset for record in self.log.read(self.start)}
        assert not there & self.gone, "a record has come back"
        for offset in range(self.start, self.log.end_offset):
            if self.entries[offset].record is not None and offset not in there | self.gone:
                assert self.may_be_left_out(offset), f"the record of offset {offset} is missing"
                self.gone.add(offset)
        assert self.state_of(there) == self.state_of(range(self.start, self.log.end_offset))

    def state_of(self, offsets: Iterable[int]) -> dict[bytes, bytes]:
        """What the committed records at these offsets come to."""
        state: dict[bytes, bytes] = {}
        for offset in sorted(offsets):
            record = self.entries[offset].record
            if record is not None and record.key is not None and self.is_committed(offset):
                state.pop(record.key, None)
                if record.value is not None:
                    state[record.key] = record.value
        return state

    # What can be asked

    @rule(data=st.data(), max_bytes=st.none() | st.integers(1, 2000))
    def read(self, data: st.DataObject, max_bytes: int | None) -> None:
        offset = data.draw(st.integers(self.start, len(self.entries)))
        found = list(self.log.read(offset, max_bytes=max_bytes))
        expected = [(at, self.entries[at]) for at in range(offset, len(self.entries)) if self.is_there(at)]
        if max_bytes is None:
            assert len(found) == len(expected)
        self.check_records(found, expected[: len(found)])
        if max_bytes is not None and offset < len(self.entries) and self.is_there(offset):
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
                (at, record.timestamp_ms)
                for at, record in self.records_there(self.start)
                if record.timestamp_ms >= timestamp_ms
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
        # A batch without records still has their time.
        if data and not self.gone and self.start == self.log.segments[0].base_offset:
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
            if at >= self.start and at < self.last_stable_offset() and self.is_committed(at) and self.is_there(at)
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

    def records_there(self, offset: int) -> Iterator[tuple[int, Record]]:
        """From the offset on."""
        for at, entry in enumerate(self.entries):
            if at >= offset and at not in self.gone and entry.record is not None:
                yield at, entry.record

    def is_there(self, offset: int) -> bool:
        return self.entries[offset].record is not None and offset not in self.gone

    def may_be_left_out(self, offset: int) -> bool:
        """Whether compaction may leave out a record: it has no key, was aborted, deletes, or was written again."""
        record = self.entries[offset].record
        assert record is not None
        if offset >= self.compacted:
            return False
        if record.key is None or record.value is None or not self.is_committed(offset):
            return True
        later = range(offset + 1, self.compacted)
        return any(self.has_key(at, record.key) and self.is_committed(at) for at in later)

    def has_key(self, offset: int, key: bytes) -> bool:
        record = self.entries[offset].record
        return record is not None and record.key == key

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
