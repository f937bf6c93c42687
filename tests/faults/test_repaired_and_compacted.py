"""A deleted key stays deleted, whatever was damaged during a compaction and repaired later.

Compaction does not read beyond damage, but continues with the next segment, and so does the checkpoint. Were the
checkpoint to stay there when the damage is taken out, a tombstone behind it would never be held against older values of
its key.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.config import BrokerConfig
from duralog.errors import StorageError
from duralog.format.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    FileKind,
    FileState,
    SegmentFile,
    parse_segment_file,
)
from duralog.format.layout import BATCH_V2, MAGIC_POSITION
from duralog.format.record import Record
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.recovery.leftovers import settle_leftovers
from duralog.storage.repair.repair import Repair
from duralog.storage.store import Store
from tests.support.faults.crashing_files import START_MS, CrashingFiles, PowerLost

RETENTION_MS = 1000
TOPIC = {"cleanup.policy": "compact", "delete.retention.ms": RETENTION_MS}
CONFIG = {"num.recovery.threads.per.data.dir": 1, "log.index.size.max.bytes": 1024}
PARTITION = TopicPartition("t", 0)
KEY = b"deleted"
BASE, BREAK, TOMBSTONE, END = 2, 3, 5, 6
"""Offsets of the segment that gets damaged: its first batch, the damaged one, the tombstone, and where it ends."""

Files = TypeVar("Files", bound=FileSystem)
Damage = Callable[[bytearray, int], None]
"""Changes a log, in the batch that starts at this position."""


class Log(Generic[Files]):
    """A compacted partition in a directory, on whatever disk."""

    def __init__(self, files: Files, path: str = "/data") -> None:
        self.files = files
        self.path = path
        self.now_ms = START_MS
        self.directory = LogDirectory(files, path)
        self.folder = self.directory.folder_of(PARTITION)

    def on(self, files: CrashingFiles) -> Log[CrashingFiles]:
        """The same on another disk."""
        found = Log(files, self.path)
        found.now_ms = self.now_ms
        return found

    def open(self, *, has_cleaner: bool = False, read_only: bool = False) -> Store:
        """Nothing is compacted but on request: the scheduler has no threads."""
        return Store(
            self.path,
            config=BrokerConfig.of({**CONFIG, "log.cleaner.enable": has_cleaner}),
            file_system=self.files,
            clock=lambda: self.now_ms,
            read_only=read_only,
            scheduler=Scheduler(lambda: self.now_ms, threads=0),
        )

    def write(self, *segments: list[tuple[bytes, bytes | None]]) -> None:
        """Segments of these records, each a batch of its own; an empty one follows that is active."""
        with self.open() as store:
            if not store.topics():
                store.create_topic("t", 1, TOPIC)
            log = store.partition("t", 0)
            for records in segments:
                for key, value in records:
                    log.append([Record(key=key, value=value, timestamp_ms=self.now_ms)])
                log.roll()

    def compact(self) -> list[str]:
        """Returns the reports of segments that stay unchanged."""
        with self.open() as store:
            return list(store.compact("t", 0).left_segments)

    def grow_old(self) -> None:
        """Let delete horizons be set and pass, and what they hold go."""
        for number in range(3):
            self.write([(b"later", b"%d" % number)])
            self.compact()
            self.now_ms += RETENTION_MS + 1

    def damage(self, change: Damage) -> None:
        path = self.log_path(BASE)
        log = bytearray(self.files.read_all(path))
        (piece,) = read_pieces(MemorySource(bytes(log)))
        assert piece.batches["base_offset"].tolist() == [*range(BASE, END)]
        change(log, int(piece.batches["position"][BREAK - BASE]))
        self.files.write(path, log, sync=True)

    def log_path(self, base_offset: int, kind: FileKind = FileKind.LOG) -> str:
        return f"{self.folder}/{SegmentFile(base_offset, kind).name}"

    def lose_index(self) -> None:
        self.files.remove(self.log_path(BASE, FileKind.OFFSET_INDEX))
        self.files.sync_folder(self.folder)

    @property
    def checkpoint(self) -> int:
        return LogDirectory(self.files, self.path).read_checkpoint(CLEANER_OFFSET_CHECKPOINT)[PARTITION]

    def values(self) -> dict[bytes, bytes | None]:
        with self.open() as store:
            return {record.key or b"": record.value for record in store.partition("t", 0).read(0)}


def break_version(log: bytearray, position: int) -> None:
    """The next batch can be found by the length, but not by a compaction."""
    log[position + MAGIC_POSITION] = 77


def break_length(log: bytearray, position: int) -> None:
    """The start of the next batch is unknown."""
    log[position + BATCH_V2.at.length : position + BATCH_V2.at.magic] = b"\xff" * 5


def break_offset(log: bytearray, position: int) -> None:
    log[position] = 1


def damaged(files: Files, damage: Damage, path: str = "/data") -> Log[Files]:
    """A log that was compacted past the damage, with a tombstone behind it."""
    log = Log(files, path)
    log.write(
        [(KEY, b"value"), (b"a", b"1")],
        [(b"b", b"1"), (b"c", b"1"), (b"d", b"1"), (KEY, None)],
        [(b"e", b"1")],
    )
    log.damage(damage)
    (left,) = log.compact()
    assert SegmentFile(BASE, FileKind.LOG).name in left
    assert log.checkpoint > END
    return log


def repair(log: Log[LocalFileSystem], *, restore: bool = False, dry_run: bool = False) -> list[str]:
    work = Repair(log.path, restore=restore, dry_run=dry_run, clock=lambda: log.now_ms)
    assert all(repaired.failure is None for repaired in work.run())
    return [action.detail for action in work.actions]


@pytest.mark.parametrize("damage", [break_version, break_offset])
def test_recovered(damage: Damage) -> None:
    log = damaged(CrashingFiles(), damage)
    log.lose_index()
    values = log.values()
    assert values[KEY] is None
    assert log.checkpoint == BASE
    log.grow_old()
    values = log.values()
    assert KEY not in values
    assert values.keys() == {b"a", b"b", b"d", b"e", b"later"}


@pytest.mark.parametrize("damage", [break_version, break_offset])
def test_repaired(tmp_path: Path, damage: Damage) -> None:
    log = damaged(LocalFileSystem(), damage, str(tmp_path))
    before = log.checkpoint
    told = repair(log, dry_run=True)
    assert log.checkpoint == before
    assert repair(log) == told == [f"t-0: {before} becomes {BASE}, where the log is repaired"]
    assert log.checkpoint == BASE
    assert log.values()[KEY] is None
    log.grow_old()
    assert KEY not in log.values()


def test_restored(tmp_path: Path) -> None:
    log = damaged(LocalFileSystem(), break_length, str(tmp_path))
    repair(log)
    assert log.values()[KEY] == b"value"
    log.write([(b"f", b"1")])
    assert log.compact() == []
    before = log.checkpoint
    assert before > END
    repair(log, restore=True)
    assert log.checkpoint == 0, "where all segments were made one"
    assert log.values()[KEY] is None
    log.grow_old()
    assert KEY not in log.values()


def test_cut_off() -> None:
    """What is before the break was mapped, but stayed: it is compacted for the first time now."""
    log = Log(CrashingFiles())
    log.write([(b"a", b"1")], [(KEY, b"value"), (b"b", b"1"), (KEY, None)])
    path = log.log_path(1)
    log.files.write(path, log.files.read_all(path) + b"half a batch", sync=True)
    assert len(log.compact()) == 1
    assert log.checkpoint == 4
    # The next start goes over all of the log, which ends at the break.
    log.directory.write_checkpoint(RECOVERY_POINT_CHECKPOINT, dict)
    log.directory.take_clean_shutdown()
    with log.open() as store:
        assert store.partition("t", 0).end_offset == 4
    assert log.checkpoint == 1
    log.grow_old()
    assert KEY not in log.values()


# The checkpoint is lowered first


def is_mended(files: CrashingFiles, log: Log[CrashingFiles], damaged: bytes) -> bool:
    """Whether the next start finds another log than the damaged one."""
    settle_leftovers(files, log.folder)
    return files.read_all(log.log_path(BASE)) != damaged


@pytest.mark.parametrize("seed", range(3))
def test_no_crash_leaves_the_checkpoint_above_a_segment_that_was_recovered(seed: int) -> None:
    log = damaged(CrashingFiles(), break_version)
    log.lose_index()
    before = log.files.read_all(log.log_path(BASE))
    raised, found = log.checkpoint, set()
    disk = log.files.after_kill()

    def look() -> None:
        after = log.on(disk.after_power_loss(seed))
        mended = is_mended(after.files, after, before)
        found.add((mended, after.checkpoint))

    disk.on_change = look
    log.on(disk).open().close()
    assert found == {(False, raised), (False, BASE), (True, BASE)}


def test_a_start_that_is_interrupted_anywhere_keeps_the_key_deleted() -> None:
    log = damaged(CrashingFiles(), break_version)
    log.lose_index()
    counted = log.on(log.files.after_kill())
    counted.open().close()
    for change in range(0, counted.files.changes, 4):
        disk = log.files.after_kill()
        disk.lose_power_after(change)
        with suppress(PowerLost):
            log.on(disk).open().close()
        after = log.on(disk.after_power_loss(change))
        assert after.values()[KEY] is None
        after.grow_old()
        assert KEY not in after.values(), change


def test_a_checkpoint_that_cannot_be_lowered_leaves_the_log_alone() -> None:
    log = damaged(CrashingFiles(), break_version)
    log.lose_index()
    before, raised = log.files.read_all(log.log_path(BASE)), log.checkpoint
    log.files.refuse(5, operation="write", path=CLEANER_OFFSET_CHECKPOINT)
    with log.open() as store:
        assert CLEANER_OFFSET_CHECKPOINT in str(store.offline[PARTITION])
    assert log.files.read_all(log.log_path(BASE)) == before
    assert log.checkpoint == raised
    assert log.values()[KEY] is None
    assert log.checkpoint == BASE


class Recording(LocalFileSystem):
    """Remembers in which order files got their names."""

    names: list[str]

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.names.append(Path(target).name)


@pytest.mark.parametrize("restore", [False, True])
def test_offline_the_checkpoint_is_lowered_first_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restore: bool
) -> None:
    log = damaged(LocalFileSystem(), break_length if restore else break_version, str(tmp_path))
    if restore:
        repair(log)
        log.write([(b"f", b"1")])
        log.compact()
    Recording.names = []
    monkeypatch.setattr("duralog.storage.repair.repair.LocalFileSystem", Recording)
    repair(log, restore=restore)
    swapped = SegmentFile(0 if restore else BASE, FileKind.LOG, FileState.SWAP).name
    assert CLEANER_OFFSET_CHECKPOINT in Recording.names[: Recording.names.index(swapped)]


# Where nothing was mended


def test_a_start_without_repairs_leaves_the_checkpoint_alone() -> None:
    log = Log(CrashingFiles())
    log.write([(KEY, b"value")], [(KEY, None)], [(b"a", b"1")])
    log.compact()
    before = log.checkpoint
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        for entry in log.files.list(log.folder):
            file = parse_segment_file(entry.name)
            if file is not None and file.kind is kind:
                log.files.remove(f"{log.folder}/{entry.name}")
    log.directory.write_checkpoint(RECOVERY_POINT_CHECKPOINT, dict)
    log.directory.take_clean_shutdown()
    log.open()
    assert log.checkpoint == before


# Logs that have lost more than damage


def without_end(log: Log[CrashingFiles]) -> int:
    """Take all segments but the first. Returns where the log ends then."""
    log.write([(b"a", b"1"), (KEY, b"value")], [(b"b", b"1"), (b"c", b"1")], [(b"d", b"1")])
    with log.open() as store:
        # One segment after the other, so that they are not made one.
        store.alter_topic_config("t", {"segment.index.bytes": 16})
    log.compact()
    assert log.checkpoint == 5
    for entry in log.files.list(log.folder):
        file = parse_segment_file(entry.name)
        if file is not None and file.offset > 0:
            log.files.remove(f"{log.folder}/{entry.name}")
    log.files.sync_folder(log.folder)
    return 2


@pytest.mark.parametrize("has_cleaner", [False, True])
def test_a_log_without_its_end_counts_as_new_before_the_first_append(has_cleaner: bool) -> None:
    log = Log(CrashingFiles())
    end_offset = without_end(log)
    store = log.open(has_cleaner=has_cleaner)
    assert store.partition("t", 0).end_offset == end_offset
    assert LogDirectory(log.files.after_power_loss(0), log.path).read_checkpoint(CLEANER_OFFSET_CHECKPOINT) == {
        PARTITION: 0
    }
    store.close()
    log.write([(KEY, None), (b"e", b"1"), (b"f", b"1"), (b"g", b"1")])
    log.grow_old()
    assert KEY not in log.values()


def test_a_log_without_its_end_counts_as_new_for_readers_too() -> None:
    log = Log(CrashingFiles())
    without_end(log)
    before = log.files.contents()
    (state,) = log.open(read_only=True).cleaner.states()
    assert state.dirty is not None
    assert state.dirty.first_dirty_offset == 0
    assert log.files.contents() == before


def test_a_new_log_ignores_the_checkpoint_of_another_one() -> None:
    log = Log(CrashingFiles())
    with log.open():
        pass
    log.directory.write_checkpoint(CLEANER_OFFSET_CHECKPOINT, lambda: {PARTITION: 3})
    with log.open() as store:
        log.files.refuse(5, operation="write", path=CLEANER_OFFSET_CHECKPOINT)
        with pytest.raises(StorageError):
            store.create_topic("t", 1, TOPIC)
        for number in range(5):
            store.partition("t", 0).append([Record(key=b"%d" % number, value=b"1")])
            found = LogDirectory(log.files.after_kill(), log.path).read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
            assert found == {}


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("damage", [break_version, break_length, break_offset])
def test_a_tombstone_stays_while_an_unreadable_segment_may_hold_a_value_of_its_key(damage: Damage, place: int) -> None:
    log = Log(CrashingFiles())
    broken: list[tuple[bytes, bytes | None]] = [(b"b", b"1"), (b"c", b"1"), (b"d", b"1"), (b"f", b"1")]
    broken[place] = (KEY, b"value")
    log.write([(b"a", b"1"), (b"a", b"2")], broken, [(KEY, None), (b"e", b"1")])
    log.damage(damage)
    assert log.compact()
    log.grow_old()
    with log.open() as store:
        # What stands before the break can be read, and what is behind it after a repair.
        records = [record for record in store.partition("t", 0).read(END) if record.key == KEY]
        assert [record.value for record in records] == [None]
