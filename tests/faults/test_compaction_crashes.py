"""Power is lost, the process dies or the disk fails at every step of a compaction: nothing is lost, and it can go on.

`--randomised 20` tries twenty lives, and twenty fates of each step.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from random import Random

import pytest

from duralog.errors import StorageError
from duralog.format.batches import decode_records, scan
from duralog.format.filenames import FileState, parse_segment_file
from duralog.format.record import Record
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.report import CompactionReport
from duralog.storage.log.partition_log import PartitionLog
from tests.support.faults.aftermath import check_log_files, check_opens_alike
from tests.support.faults.crashing_files import START_MS, CrashingFiles, PowerLost
from tests.support.faults.partition import NOW_MS, SMALL_SEGMENTS, Partition

CONFIG = SMALL_SEGMENTS.with_overrides({"cleanup.policy": "compact", "internal.segment.bytes": 3000})
SEGMENTS = 9
KEYS = 12
IDEMPOTENT, TRANSACTIONAL = 7, 8


class History:
    """A log with a few groups to compact, and what must be found in it whatever happens."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._sequences = {IDEMPOTENT: 0, TRANSACTIONAL: 0}
        self.files = CrashingFiles(seed=seed)
        self.partition = Partition(self.files, config=CONFIG)
        self.log = self.partition.open()
        while len(self.log.segments) < SEGMENTS:
            self._append()
            if self._random.random() < 0.15:
                self.log.roll()
        self.partition.catch_up()
        self.log.flush()
        self.partition.checkpoint(self.log)
        self.end = self.log.view.segments.active.base_offset
        self.old = batches_of(self.log)
        self.records = {record.offset: record for record in self.log.read(0)}
        self.last_of_key = {record.key: record for record in self.log.read(0, isolation="read_committed")}

    def _append(self) -> None:
        producer_id = self._random.choice((-1, -1, IDEMPOTENT, TRANSACTIONAL))
        records = [self._record() for _ in range(self._random.randint(1, 4))]
        codec = self._random.choice(("none", "none", "lz4"))
        if producer_id < 0:
            self.log.append(records, codec=codec)
            return
        sequence = self._sequences[producer_id]
        self.log.append(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=producer_id == TRANSACTIONAL,
        )
        self._sequences[producer_id] += len(records)
        if producer_id == TRANSACTIONAL and self._random.random() < 0.6:
            self.log.end_transaction(producer_id, 0, commit=self._random.random() < 0.5)
        elif producer_id == TRANSACTIONAL and self._random.random() < 0.9:
            self.log.end_transaction(producer_id, 0, commit=True)

    def _record(self) -> Record:
        # At first only a few keys, so that nothing is left of whole segments.
        key = b"key %d" % self._random.randrange(KEYS if len(self.log.segments) > SEGMENTS // 2 else 2)
        value = self._random.choice((None, self._random.randbytes(200), self._random.randbytes(50)))
        return Record(key=key, value=value, timestamp_ms=START_MS + self._random.randrange(1000))

    def compact(self, log: PartitionLog) -> CompactionReport:
        return compact_log(log, first_dirty_offset=0, end=self.end, now_ms=NOW_MS)

    def check(self, log: PartitionLog) -> None:
        """All last values are there, and nothing that never was; each segment is one of before or one of after."""
        found = {record.offset: record for record in log.read(0)}
        assert found.items() <= self.records.items()
        assert list(found) == sorted(found)
        committed = {record.key: record for record in log.read(0, isolation="read_committed")}
        assert committed == self.last_of_key
        assert log.end_offset >= self.end


def batches_of(log: PartitionLog) -> dict[int, list[tuple[int, ...]]]:
    """For each segment below the active one, what its batches are."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for segment in log.view.segments.inactive:
        data = segment.file.read(0, segment.size_bytes)
        found[segment.base_offset] = [
            (batch.base_offset, batch.last_offset, *(record.offset for record in decode_records(data, batch)))
            for batch in scan(data)
        ]
    return found


class Groups:
    """What each group of segments was, and what it becomes, by base offsets."""

    def __init__(self, history: History) -> None:
        finished = Partition(history.files.after_kill(), config=CONFIG)
        log = finished.open()
        assert batches_of(log) == history.old
        history.compact(log)
        self.old, self.new = history.old, batches_of(log)
        self.records = list(log.read(0))

    @property
    def are_telling(self) -> bool:
        """There are several, and of several segments each."""
        return 2 <= len(self.new) < len(self.old)

    def check(self, log: PartitionLog) -> None:
        """Every group is old or new. Of a new one, old segments without surviving records may have come back."""
        found = batches_of(log)
        bases = sorted(self.new)
        for base, following in zip(bases, [*bases[1:], 1 << 62], strict=True):
            old = {other: batches for other, batches in self.old.items() if base <= other < following}
            now = {other: batches for other, batches in found.items() if base <= other < following}
            if now != old:
                assert now.pop(base) == self.new[base]
                assert now.items() <= old.items()
                end = max((batch[1] for batch in self.new[base]), default=base - 1)
                assert all(other > end for other in now)


def check_no_leftovers(files: CrashingFiles, partition: Partition) -> None:
    for path in files.contents(partition.folder):
        file = parse_segment_file(path.rpartition("/")[2])
        assert file is None or file.state is FileState.LIVE, path


def check_aftermath(files: CrashingFiles, history: History, groups: Groups, random: Random) -> None:
    if random.random() < 0.2:
        files.lose_power_after(random.randint(0, 20))
        with suppress(PowerLost):
            Partition(files, config=CONFIG).open()
        files = files.after_power_loss(random.getrandbits(32))
    partition = Partition(files, config=CONFIG)
    log = partition.open()
    history.check(log)
    groups.check(log)
    check_log_files(files, partition, log)
    check_no_leftovers(files, partition)
    files.capacity_bytes = None
    if random.random() < 0.2:
        check_opens_alike(files, log, random, CONFIG)
    log.append([Record(key=b"after", value=b"the crash", timestamp_ms=START_MS)])
    history.compact(log)
    assert list(log.read(0))[:-1] == groups.records


def lives(randomised: int) -> Iterator[tuple[History, Groups, Random]]:
    found = 0
    for seed in count():
        history = History(seed)
        groups = Groups(history)
        if groups.are_telling:
            yield history, groups, Random(seed)
            found += 1
        if found == randomised:
            return


def crash_everywhere(history: History, groups: Groups, random: Random, *, loses_power: bool, fates: int) -> int:
    """Compact, and look at what a crash at each change would leave. Returns how many crashes that were."""
    crashes = 0
    failures: list[Exception] = []

    def crash() -> None:
        nonlocal crashes
        for _ in range(fates if loses_power else 1):
            crashes += 1
            fate = random.getrandbits(32)
            found = history.files.after_power_loss(fate) if loses_power else history.files.after_kill()
            try:
                check_aftermath(found, history, groups, Random(fate))
            except Exception as error:
                error.add_note(f"change {history.files.changes}, fate {fate}")
                failures.append(error)

    history.files.on_change = crash
    history.compact(history.log)
    history.partition.catch_up()
    history.files.on_change = None
    if failures:
        raise failures[0]
    return crashes


@pytest.mark.parametrize("loses_power", [True, False], ids=["power loss", "kill"])
def test_a_crash_at_any_step_leaves_every_group_old_or_new(loses_power: bool, randomised: int) -> None:
    for history, groups, random in lives(randomised):
        assert crash_everywhere(history, groups, random, loses_power=loses_power, fates=randomised) > 50


def test_a_disk_that_refuses_one_operation_leaves_every_group_old_or_new(randomised: int) -> None:
    for history, groups, random in lives(randomised):
        refused = 0
        while True:
            files = history.files.after_kill()
            partition = Partition(files, config=CONFIG)
            log = partition.open()
            files.refuse(errno.EIO, skip=refused)
            refused += random.randint(1, 3)
            try:
                history.compact(log)
            except StorageError:
                files.stop_refusing()
            else:
                break
            history.check(log)
            found = files.after_kill()
            if not log.in_doubt:
                log.append([Record(key=b"after", value=b"the error", timestamp_ms=START_MS)])
                history.compact(log)
                assert list(log.read(0))[:-1] == groups.records
            check_aftermath(found, history, groups, random)
        assert refused > 50


def test_a_full_disk_leaves_every_group_old_or_new(randomised: int) -> None:
    for history, groups, random in lives(randomised):
        files = history.files.after_kill()
        partition = Partition(files, config=CONFIG)
        log = partition.open()
        files.capacity_bytes = files.used_bytes + 100
        with pytest.raises(StorageError):
            history.compact(log)
        assert not log.in_doubt
        assert not any(path.endswith(FileState.CLEANED.value) for path in files.contents(partition.folder))
        history.check(log)
        groups.check(log)
        check_aftermath(files.after_kill(), history, groups, random)
        files.capacity_bytes = None
        history.compact(log)
        assert list(log.read(0)) == groups.records
