"""Where a log ends for a reader that does not own it: before half a batch, but not before one damaged later."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

import duralog
from duralog import CorruptRecord, Record
from duralog.format.checkpoints import EpochStart
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.local_files import LocalFile
from duralog.storage.segment import lookup
from duralog.storage.store import Store

START_MS = 1_700_000_000_000


@pytest.fixture(autouse=True, params=[0, 64 << 10], ids=["by-indexes", "from-the-start"])
def walked_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Up to which size a log is walked from its start: both ways lead to the same end."""
    monkeypatch.setattr(lookup, "_WALKED_BYTES", request.param)
    size: int = request.param
    return size


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """Five batches of one size, too few for an index entry."""
    return write_five(tmp_path, {})


def write_five(path: Path, config: dict[str, object]) -> Path:
    with duralog.open(path) as store:
        store.create_topic("t", partitions=1, config=config)
        for number in range(5):
            store.partition("t", 0).append([Record(key=b"k", value=b"%d" % number, timestamp_ms=START_MS + number)])
    return path / "t-0" / f"{0:020}.log"


def damage(file: Path, batch: int) -> None:
    data = bytearray(file.read_bytes())
    data[(batch + 1) * (len(data) // 5) - 2] ^= 0xFF
    file.write_bytes(data)


def test_damage_that_a_sound_batch_follows_is_an_error(log_file: Path) -> None:
    damage(log_file, 2)
    with duralog.open(log_file.parent.parent, read_only=True) as store:
        log = store.partition("t", 0)
        assert log.end_offset == 5
        records = log.read(0)
        assert [next(records).offset for _ in range(2)] == [0, 1]
        with pytest.raises(CorruptRecord, match="wrong checksum"):
            next(records)
        assert [record.offset for record in log.read(3)] == [3, 4]


@pytest.mark.parametrize("length", [0, 7, 1 << 20, -1])
def test_a_length_that_leads_nowhere_is_an_error_if_a_sound_batch_follows(log_file: Path, length: int) -> None:
    data = bytearray(log_file.read_bytes())
    at = 2 * (len(data) // 5) + 8
    data[at : at + 4] = length.to_bytes(4, "big", signed=True)
    log_file.write_bytes(data)
    with duralog.open(log_file.parent.parent, read_only=True) as store:
        log = store.partition("t", 0)
        assert log.end_offset == 5
        records = log.read(0)
        assert [next(records).offset for _ in range(2)] == [0, 1]
        with pytest.raises(CorruptRecord):
            next(records)


@pytest.mark.parametrize("added", [bytes(5000), b"\0" * 11, b"garbage " * 100])
def test_room_that_was_allocated_ahead_is_no_damage(log_file: Path, added: bytes) -> None:
    log_file.write_bytes(log_file.read_bytes() + added)
    with duralog.open(log_file.parent.parent, read_only=True) as store:
        assert [record.offset for record in store.partition("t", 0).read(0)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("relative_offset", [-3, 1, 1 << 30])
@pytest.mark.parametrize("position", [-1_913_603_549, -1, 1, 1 << 30])
def test_an_index_that_ends_with_nonsense_does_not_count(log_file: Path, relative_offset: int, position: int) -> None:
    log_file.with_suffix(".index").write_bytes(struct.pack(">ii", relative_offset, position))
    with duralog.open(log_file.parent.parent, read_only=True) as store:
        assert [record.offset for record in store.partition("t", 0).read(0)] == [0, 1, 2, 3, 4]


class Trimming(LocalFileSystem):
    """Its owner cuts a log to its contents when a reader has listed it already, and may have opened it, too."""

    def __init__(self, size: int, *, is_opened: bool) -> None:
        super().__init__()
        self._size = size
        self._is_opened = is_opened

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        opened = super().open(path) if self._is_opened else None
        if path.endswith("t-0/00000000000000000000.log"):
            self.truncate(path, self._size)
        return opened or super().open(path, writable=writable, create=create)


@pytest.mark.parametrize("is_opened", [False, True])
@pytest.mark.parametrize("interval_bytes", [1, 4096])
def test_room_that_is_cut_off_while_the_log_is_looked_at_is_not_missed(
    tmp_path: Path, interval_bytes: int, is_opened: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log_file = write_five(tmp_path, {"index.interval.bytes": interval_bytes})
    size = log_file.stat().st_size
    os.truncate(log_file, 1 << 20)
    caplog.clear()
    with Store(str(log_file.parents[1]), read_only=True, file_system=Trimming(size, is_opened=is_opened)) as store:
        assert [record.offset for record in store.partition("t", 0).read(0)] == [0, 1, 2, 3, 4]
    assert caplog.messages == []


def test_the_last_batch_may_still_be_written(log_file: Path) -> None:
    damage(log_file, 4)
    with duralog.open(log_file.parent.parent, read_only=True) as store:
        assert [record.offset for record in store.partition("t", 0).read(0)] == [0, 1, 2, 3]


def test_the_times_of_damaged_batches_do_not_count(log_file: Path) -> None:
    data = bytearray(log_file.read_bytes())
    at = 2 * (len(data) // 5) + 35  # the largest timestamp in the header of the third batch
    data[at : at + 8] = (START_MS * 2).to_bytes(8, "big")
    log_file.write_bytes(data)
    with duralog.open(log_file.parent.parent, read_only=True) as store:
        assert store.partition("t", 0).segments[-1].largest_timestamp_ms == START_MS + 4


def test_the_time_index_is_read_when_a_time_is_needed(tmp_path: Path, walked_bytes: int) -> None:
    log_file = write_five(tmp_path, {"index.interval.bytes": 1})
    with duralog.open(tmp_path, read_only=True) as store:
        segment = store.partition("t", 0).view.segments.active
        assert segment.next_offset() == 5
        log_file.with_suffix(".timeindex").write_bytes(struct.pack(">qi", START_MS + 9, 3))
        # A time that no batch of the end has, as that of a batch which compaction has left empty.
        assert segment.max_timestamp_ms == START_MS + (4 if walked_bytes else 9)


def test_a_time_index_that_has_grown_since_counts_up_to_the_end(tmp_path: Path) -> None:
    log_file = write_five(tmp_path, {"index.interval.bytes": 1})
    with duralog.open(tmp_path, read_only=True) as store:
        segment = store.partition("t", 0).view.segments.active
        assert segment.next_offset() == 5
        with log_file.with_suffix(".timeindex").open("ab") as index:
            index.write(struct.pack(">qi", START_MS + 9, 7))
        assert segment.max_timestamp_ms == START_MS + 4


@pytest.mark.parametrize("damaged", [False, True])
def test_leader_epochs_of_a_reader(log_file: Path, damaged: bool, caplog: pytest.LogCaptureFixture) -> None:
    if damaged:
        (log_file.parent / "leader-epoch-checkpoint").write_text("garbage")
    with duralog.open(log_file.parents[1], read_only=True) as store:
        log = store.partition("t", 0)
        assert caplog.messages == []
        assert log.leader_epoch == 0
        assert log.leader_epochs.entries == (EpochStart(0, 0),)
    assert len(caplog.messages) == damaged
