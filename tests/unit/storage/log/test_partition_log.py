"""The life of a log: segments, flushing, deletion, truncation, closing and opening again, read-only logs."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duralog.errors import OffsetOutOfRange, StorageError
from duralog.format.record import Record
from duralog.format.varint import Bytes
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log.partition_log import AppendResult, PartitionLog
from tests.support.storage.log_in_folder import NOW_MS, LogInFolder, numbered, values

FIRST = "0" * 20


def with_segments(folder: LogInFolder, segments: int = 4) -> PartitionLog:
    """Ten records in each segment."""
    log = folder.open()
    for number in range(segments):
        if number:
            log.roll()
        for first in (0, 5):
            log.append(numbered(number * 10 + first, number * 10 + first + 5))
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_new_log(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    assert (log.start_offset, log.end_offset, log.size_bytes, log.recovery_point) == (0, 0, 0, 0)
    assert (log.topic, log.partition, log.folder) == ("orders", 3, str(tmp_path))
    (segment,) = log.segments
    assert (segment.base_offset, segment.size_bytes, segment.is_active) == (0, 0, True)
    assert segment.path == str(tmp_path / f"{FIRST}.log")
    assert repr(log) == "<PartitionLog orders-3 from 0 to 0>"


def test_segments_have_their_size_and_time(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    log.append([Record(value=b"", timestamp_ms=time) for time in (30, 70, 50)])
    log.roll()
    assert bases(log) == [0, 3]
    log.roll()
    assert bases(log) == [0, 3]
    log.append([Record(value=b"", timestamp_ms=90)])
    first, second = log.segments
    assert (first.largest_timestamp_ms, first.is_active) == (70, False)
    assert (second.largest_timestamp_ms, second.is_active) == (90, True)
    assert log.size_bytes == first.size_bytes + second.size_bytes
    assert first.size_bytes == Path(first.path).stat().st_size


def test_a_roll_leaves_finished_files_and_a_snapshot(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path, index_interval_bytes=1)
    log = with_segments(folder, 2)
    assert (tmp_path / f"{FIRST}.index").stat().st_size == 8
    assert (tmp_path / f"{FIRST}.timeindex").stat().st_size == 12
    assert (tmp_path / f"{10:020}.index").stat().st_size == 10 << 20
    assert [(delay, name.split()[0]) for delay, name, _ in folder.waiting] == [(0, "flush")]
    assert log.recovery_point == 0
    assert not (tmp_path / f"{10:020}.snapshot").exists()
    folder.catch_up()
    assert (tmp_path / f"{10:020}.snapshot").exists()
    assert log.recovery_point == 10


# Flushing


class AtSync(LocalFileSystem):
    """Has a test do something before a file is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.does: Callable[[str], object] = lambda _: None

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> Any:
        file = super().open(path, writable=writable, create=create)
        disk = self

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def sync(self) -> None:
                disk.does(Path(path).name)
                file.sync()

        return Watched()

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:
        if sync:
            self.does(Path(path).name)
        super().write(path, data, sync=sync)


class Counting(AtSync):
    """Notes which files and folders were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.does = self.synced.append

    def sync_folder(self, path: str) -> None:
        self.synced.append(".")
        super().sync_folder(path)


def test_a_flush_syncs_what_is_new_and_the_folder(tmp_path: Path) -> None:
    disk = Counting()
    log = LogInFolder(tmp_path, files=disk).open()
    log.append(numbered(0, 5))
    assert log.recovery_point == 0
    disk.synced.clear()
    log.flush()
    assert disk.synced == [f"{FIRST}.log", "."]
    assert log.recovery_point == 5
    log.flush()
    assert disk.synced == [f"{FIRST}.log", "."]
    log.append(numbered(5, 6))
    log.flush()
    assert disk.synced == [f"{FIRST}.log", ".", f"{FIRST}.log"]
    log.append(numbered(6, 7), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.end_transaction(1, 0, commit=False)
    disk.synced.clear()
    log.flush()
    assert disk.synced == [f"{FIRST}.log", f"{FIRST}.txnindex", "."]


def test_a_flush_after_a_roll_leaves_the_active_segment_alone(tmp_path: Path) -> None:
    disk = Counting()
    folder = LogInFolder(tmp_path, files=disk)
    log = with_segments(folder, 2)
    disk.synced.clear()
    folder.catch_up()
    first_files = [f"{FIRST}.{suffix}" for suffix in ("log", "index", "timeindex")]
    assert disk.synced == [f"{10:020}.snapshot", *first_files, "."]
    disk.synced.clear()
    log.flush()
    assert disk.synced == [f"{10:020}.log", "."]
    assert log.recovery_point == 20


def with_unsynced_files(folder: LogInFolder) -> PartitionLog:
    """The names in its folder are new, though its active segment is not."""
    log = with_segments(folder, 2)
    log.flush()
    log.append(numbered(20, 21), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.end_transaction(1, 0, commit=False)
    return log


@pytest.mark.parametrize("interrupted", range(3))
def test_an_interrupted_flush_is_completed_by_the_next(tmp_path: Path, interrupted: int) -> None:
    undisturbed = Counting()
    log = with_unsynced_files(LogInFolder(tmp_path / "undisturbed", files=undisturbed))
    undisturbed.synced.clear()
    log.flush()
    wanted = undisturbed.synced
    assert wanted == [f"{10:020}.log", f"{10:020}.txnindex", "."]

    disk = Interrupted()
    log = with_unsynced_files(LogInFolder(tmp_path / "interrupted", files=disk))
    disk.synced.clear()
    disk.at = wanted[interrupted]
    with pytest.raises(KeyboardInterrupt):
        log.flush()
    assert disk.synced == wanted[:interrupted]
    disk.synced.clear()
    log.flush()
    assert disk.synced == wanted[interrupted:]


class Interrupted(Counting):
    """Ctrl-C is pressed while this file or folder is synced for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.at = ""
        self.does = self.note

    def note(self, name: str) -> None:
        if name == self.at:
            self.at = ""
            raise KeyboardInterrupt
        self.synced.append(name)

    def sync_folder(self, path: str) -> None:
        self.note(".")
        LocalFileSystem.sync_folder(self, path)


def test_a_failed_sync_is_not_forgotten_because_another_segment_was_deleted_meanwhile(tmp_path: Path) -> None:
    disk = AtSync()
    log = with_segments(LogInFolder(tmp_path, files=disk), 2)

    def lose_both(name: str) -> None:
        if name == f"{FIRST}.log":
            log.delete_segments([0], "in the test")
        if name == f"{10:020}.log":
            raise StorageError(f"{name}: cannot sync: Input/output error")

    disk.does = lose_both
    with pytest.raises(StorageError, match="cannot sync"):
        log.flush()
    assert bases(log) == [10]
    assert log.in_doubt


def test_a_waiter_for_a_failed_sync_of_another_thread_gets_the_error(tmp_path: Path) -> None:
    disk = AtSync()
    log = LogInFolder(tmp_path, files=disk, flush_messages=2).open()
    log.append(numbered(0, 1))
    began, may_fail = threading.Event(), threading.Event()
    ended: list[object] = []

    def fail_once(name: str) -> None:
        disk.does = lambda _: None
        began.set()
        may_fail.wait(60)
        raise StorageError(f"{name}: cannot sync: Input/output error")

    def attempt(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                ended.append(work())
            except StorageError as error:
                ended.append(type(error))

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    disk.does = fail_once
    flushing = attempt(log.flush)
    assert began.wait(60)
    appending = attempt(lambda: log.append(numbered(1, 2)))
    while log.end_offset < 2 and appending.is_alive():
        threading.Event().wait(0.001)
    may_fail.set()
    flushing.join(60)
    appending.join(60)
    assert ended == [StorageError] * 2
    assert (log.recovery_point, log.in_doubt) == (0, True)


def test_a_log_that_was_closed_and_deleted_after_a_roll_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = LogInFolder(tmp_path / "orders-3")
    with_segments(folder, 2).close()
    folder.path.rename(tmp_path / "orders-3.deleted")
    folder.catch_up()
    assert caplog.records == []


def test_flushing_every_n_messages(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, flush_messages=10).open()
    log.append(numbered(0, 9))
    assert log.recovery_point == 0
    log.append(numbered(9, 10))
    assert log.recovery_point == 10
    log.append(numbered(10, 25))
    assert log.recovery_point == 25


def test_the_time_of_the_last_flush(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = folder.open()
    folder.now_ms += 500
    assert log.last_flush_ms == NOW_MS
    log.append(numbered(0, 1))
    log.flush()
    assert log.last_flush_ms == NOW_MS + 500


# Deletion


def test_deleted_segments_are_renamed_first_and_removed_later(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path, file_delete_delay_ms=1234)
    log = with_segments(folder)
    folder.catch_up()
    assert log.delete_segments([0, 10], "too old") == 2
    assert (log.start_offset, log.end_offset, bases(log)) == (20, 40, [20, 30])
    assert [name for name in folder.names if name.endswith(".deleted")] == [
        f"{FIRST}.index.deleted",
        f"{FIRST}.log.deleted",
        f"{FIRST}.timeindex.deleted",
        f"{10:020}.index.deleted",
        f"{10:020}.log.deleted",
        f"{10:020}.snapshot.deleted",
        f"{10:020}.timeindex.deleted",
    ]
    assert [delay for delay, _, _ in folder.waiting] == [1234]
    with pytest.raises(OffsetOutOfRange):
        log.read(19)
    folder.catch_up()
    assert not [name for name in folder.names if name < f"{20:020}"]
    assert log.delete_segments([0, 10], "once more") == 0
    assert [entry.start_offset for entry in log.leader_epochs.entries] == [20]


def test_deleting_all_segments_empties_the_log_and_keeps_its_offsets(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = with_segments(folder, 2)
    assert log.delete_segments(bases(log), "all") == 2
    assert (log.start_offset, log.end_offset, bases(log), log.size_bytes) == (20, 20, [20], 0)
    assert log.delete_segments(bases(log), "an empty one") == 0
    assert log.append(numbered(20, 21)) == AppendResult(20, 20, -1)
    folder.catch_up()
    log.close()
    assert values(folder.open().read(20)) == [b"20"]


def test_deleting_records_moves_the_start(tmp_path: Path) -> None:
    log = with_segments(LogInFolder(tmp_path))
    assert log.delete_records(before_offset=17) == 17
    assert (log.start_offset, bases(log)) == (17, [0, 10, 20, 30])
    assert next(log.read(17)).offset == 17
    assert log.delete_records(3) == 17
    assert [entry.start_offset for entry in log.leader_epochs.entries] == [17]
    for offset in (41, -2):
        with pytest.raises(OffsetOutOfRange):
            log.delete_records(offset)
    assert log.delete_records(-1) == 40
    assert list(log.read(40)) == []


def test_records_of_a_compacted_topic_can_be_deleted_too(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, cleanup_policy="compact").open()
    log.append([Record(key=b"k", value=b"")])
    assert log.delete_records(1) == 1
    assert log.start_offset == 1


# Truncation


@pytest.mark.parametrize(
    ("offset", "end", "left"),
    [
        (40, 40, [0, 10, 20, 30]),
        (39, 35, [0, 10, 20, 30]),
        (35, 35, [0, 10, 20, 30]),
        (30, 30, [0, 10, 20, 30]),
        (29, 25, [0, 10, 20]),
        (12, 10, [0, 10]),
        (0, 0, [0]),
    ],
)
def test_truncation_takes_whole_batches_from_the_end(tmp_path: Path, offset: int, end: int, left: list[int]) -> None:
    folder = LogInFolder(tmp_path, index_interval_bytes=1)
    log = with_segments(folder)
    log.flush()
    log.truncate_to(offset)
    assert (log.end_offset, bases(log), log.recovery_point) == (end, left, end)
    assert values(log.read(0)) == [b"%d" % number for number in range(end)]
    assert log.append(numbered(end, end + 3)) == AppendResult(end, end + 2, -1)
    assert log.offset_for_timestamp(NOW_MS + 1) is None
    log.close()
    folder.catch_up()
    again = folder.open()
    assert values(again.read(0)) == [b"%d" % number for number in range(end + 3)]
    assert not [name for name in folder.names if name.endswith(".deleted")]


def test_a_reader_that_is_where_the_log_is_cut_comes_to_its_end(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    for number in range(3):
        log.append(numbered(number, number + 1))
    reader = log.read(0)
    assert next(iter(reader)).value == b"0"
    log.truncate_to(1)
    assert list(reader) == []


def test_truncation_forgets_producers_and_epochs_of_the_end(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    sender: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0}
    log.append(numbered(0, 2), base_sequence=0, **sender)
    log.become_leader(5)
    log.roll()
    log.append(numbered(2, 4), base_sequence=2, **sender)
    log.truncate_to(2)
    assert [entry.epoch for entry in log.leader_epochs.entries] == [0]
    assert log.append(numbered(0, 2), base_sequence=0, **sender).duplicate
    assert log.append(numbered(2, 4), base_sequence=2, **sender) == AppendResult(2, 3, -1)
    assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries] == [(0, 0), (5, 2)]


def test_a_log_cannot_be_cut_before_its_start(tmp_path: Path) -> None:
    log = with_segments(LogInFolder(tmp_path))
    log.delete_records(15)
    with pytest.raises(OffsetOutOfRange):
        log.truncate_to(14)
    log.truncate_to(15)
    assert (log.start_offset, log.end_offset) == (15, 15)


# Closing and opening


def test_closing_brings_everything_to_disk_and_to_size(tmp_path: Path) -> None:
    disk = Counting()
    folder = LogInFolder(tmp_path, files=disk, index_interval_bytes=1, preallocate=True, internal_segment_bytes=4000)
    log = folder.open()
    log.append(numbered(0, 5))
    log.append(numbered(5, 10))
    assert (tmp_path / f"{FIRST}.log").stat().st_size == 4000
    disk.synced.clear()
    log.close()
    assert disk.synced[0] == f"{FIRST}.log"
    assert log.recovery_point == 10
    assert (tmp_path / f"{FIRST}.log").stat().st_size == log.view.end_position
    assert (tmp_path / f"{FIRST}.index").stat().st_size == 8
    assert (tmp_path / f"{FIRST}.timeindex").stat().st_size == 12
    assert (tmp_path / f"{10:020}.snapshot").exists()
    for attempt in (lambda: log.append(numbered(0, 1)), log.roll, log.flush):
        with pytest.raises(StorageError, match="it was closed"):
            attempt()
    log.close()


def test_opening_and_closing_changes_nothing(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = with_segments(folder)
    folder.catch_up()
    log.close()
    before = folder.contents()
    again = folder.open()
    assert values(again.read(0)) == [b"%d" % number for number in range(40)]
    again.close()
    assert folder.contents() == before


def test_a_log_that_was_not_closed_is_found_again(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = with_segments(folder)
    again = folder.open(clean=False, recovery_point=log.recovery_point)
    assert (again.start_offset, again.end_offset, bases(again)) == (0, 40, [0, 10, 20, 30])
    assert values(again.read(0)) == values(log.read(0))


def test_leader_epochs_follow_the_leader(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = folder.open()
    log.append(numbered(0, 2))
    log.become_leader(3)
    log.append(numbered(2, 4))
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 2\n"
    log.close()
    again = folder.open(leader_epoch=1)
    again.append(numbered(4, 5))
    assert again.leader_epochs.latest_epoch == 3
    again.close()
    newer = folder.open(leader_epoch=7)
    newer.append(numbered(5, 6))
    assert [(entry.epoch, entry.start_offset) for entry in newer.leader_epochs.entries] == [(0, 0), (3, 2), (7, 5)]


def test_a_read_only_log_changes_nothing(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    live = with_segments(folder)
    before, modified = folder.contents(), {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    log = folder.open(read_only=True)
    assert log.read_only
    assert values(log.read(0)) == [b"%d" % number for number in range(40)]
    assert log.read_arrow().num_rows == 40
    assert log.read_slice(7).size
    assert log.offset_for_timestamp(0) is not None
    forbidden: list[Any] = [
        lambda: log.append(numbered(0, 1)),
        lambda: log.append_batches(b""),
        lambda: log.end_transaction(1, 0, commit=True),
        lambda: log.become_leader(1),
        lambda: log.delete_records(1),
        lambda: log.delete_segments([0], "no"),
        lambda: log.truncate_to(0),
        log.roll,
    ]
    for attempt in forbidden:
        with pytest.raises(StorageError, match="it was opened for reading"):
            attempt()
    log.flush()
    log.close()
    assert folder.contents() == before
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == modified
    assert live.append(numbered(40, 41)).base_offset == 40


def test_a_view_does_not_change(tmp_path: Path) -> None:
    log = with_segments(LogInFolder(tmp_path))
    view = log.view
    seen = copy.copy(view)
    log.append(numbered(40, 50))
    log.roll()
    log.delete_segments([0], "test")
    assert view == seen
    assert log.view != seen
