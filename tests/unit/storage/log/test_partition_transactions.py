"""Transactions in a log: markers, the last stable offset, and what readers of committed data see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from duralog.errors import (
    CoordinatorFenced,
    InvalidRecord,
    InvalidTransactionState,
    ProducerFenced,
    StorageError,
)
from duralog.format.index_entries import AbortedTransaction
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.local_files import LocalFile
from duralog.storage.log.partition_log import AppendResult, PartitionLog
from tests.support.storage.log_in_folder import LogInFolder, numbered, values

COMMITTED = "read_committed"


class Sender:
    """A transactional producer."""

    def __init__(self, log: PartitionLog, producer_id: int, epoch: int = 0) -> None:
        self.log = log
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def send(self, first: int, end: int) -> AppendResult:
        result = self.log.append(
            numbered(first, end),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += end - first
        return result

    def end(self, *, commit: bool) -> AppendResult:
        return self.log.end_transaction(self.producer_id, self.epoch, commit=commit)


def test_committed_data_is_seen_once_it_is_committed(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    log.append(numbered(0, 2))
    sender = Sender(log, 1)
    sender.send(2, 4)
    log.append(numbered(4, 5))
    assert (log.end_offset, log.last_stable_offset) == (5, 2)
    assert values(log.read(0)) == [b"0", b"1", b"2", b"3", b"4"]
    assert values(log.read(0, isolation=COMMITTED)) == [b"0", b"1"]
    assert values(log.read(3, isolation=COMMITTED)) == []
    assert log.read_slice(3, isolation=COMMITTED).size == 0
    assert sender.end(commit=True) == AppendResult(5, 5, -1)
    assert (log.end_offset, log.last_stable_offset) == (6, 6)
    assert values(log.read(0, isolation=COMMITTED)) == [b"0", b"1", b"2", b"3", b"4"]
    assert [record.offset for record in log.read(0)] == [0, 1, 2, 3, 4]
    assert not (tmp_path / "00000000000000000000.txnindex").exists()


def test_aborted_data_is_hidden_from_readers_of_committed_data(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    one, two = Sender(log, 1), Sender(log, 2)
    one.send(0, 2)
    two.send(2, 4)
    one.send(4, 5)
    log.append(numbered(5, 6))
    one.end(commit=False)
    assert log.last_stable_offset == 2
    two.send(7, 8)
    two.end(commit=True)
    one.send(9, 10)
    one.end(commit=True)
    assert values(log.read(0)) == [b"0", b"1", b"2", b"3", b"4", b"5", b"7", b"9"]
    assert values(log.read(0, isolation=COMMITTED)) == [b"2", b"3", b"5", b"7", b"9"]
    assert log.read_arrow(isolation=COMMITTED)["offset"].to_pylist() == [2, 3, 5, 7, 9]
    assert log.read_arrow(1, 8, isolation=COMMITTED)["offset"].to_pylist() == [2, 3, 5, 7]
    aborted = AbortedTransaction(producer_id=1, first_offset=0, last_offset=6, last_stable_offset=2)
    assert log.aborted_transactions(0, 10) == [aborted]
    assert log.aborted_transactions(7, 10) == []


def test_a_slice_lists_what_to_leave_out(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    sender = Sender(log, 1)
    sender.send(0, 2)
    sender.end(commit=False)
    stable = log.size_bytes
    sender.send(3, 5)
    aborted = AbortedTransaction(producer_id=1, first_offset=0, last_offset=2, last_stable_offset=3)
    found = log.read_slice(0, isolation=COMMITTED)
    assert (found.position, found.size, found.aborted) == (0, stable, (aborted,))
    assert log.read_slice(0).aborted is None
    assert log.read_slice(0).size == log.size_bytes
    assert log.read_slice(3, isolation=COMMITTED) == (None, 0, 0, ())


def test_a_transaction_over_several_segments(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    sender = Sender(log, 1)
    sender.send(0, 2)
    log.roll()
    sender.send(2, 4)
    log.append(numbered(4, 5))
    log.roll()
    sender.end(commit=False)
    log.append(numbered(6, 7))
    assert len(log.segments) == 3
    assert values(log.read(0, isolation=COMMITTED)) == [b"4", b"6"]
    for offset in (0, 2, 4):
        assert [entry.last_offset for entry in log.read_slice(offset, isolation=COMMITTED).aborted or ()] == [5]
    assert [path.name for path in tmp_path.glob("*.txnindex")] == ["00000000000000000005.txnindex"]


def test_everything_is_known_again_after_reopening(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    for clean in (True, False):
        log = folder.open(clean=clean)
        start = log.end_offset
        done, open_ = Sender(log, 10 + start), Sender(log, 11 + start)
        done.send(0, 2)
        open_.send(2, 3)
        done.end(commit=False)
        if clean:
            log.close()
        again = folder.open(clean=clean)
        assert (again.end_offset, again.last_stable_offset) == (start + 4, start + 2)
        assert [entry.first_offset for entry in again.aborted_transactions(start, start + 4)] == [start]
        done.log, done.sequence = again, 0
        repeated = done.send(0, 2)
        assert (repeated.base_offset, repeated.last_offset, repeated.duplicate) == (start, start + 1, True)
        open_.log = again
        open_.end(commit=True)
        assert again.last_stable_offset == again.end_offset
        again.close()


def test_a_marker_without_a_transaction_changes_nothing_for_readers(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    assert log.end_transaction(9, 0, commit=False) == AppendResult(0, 0, -1)
    assert log.aborted_transactions(0, 1) == []
    assert list(log.read(0)) == []
    assert log.last_stable_offset == 1


def test_markers_of_the_past_are_refused(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    Sender(log, 1, epoch=3).send(0, 1)
    with pytest.raises(ProducerFenced):
        log.end_transaction(1, 2, commit=True)
    log.end_transaction(1, 3, commit=True, coordinator_epoch=5)
    with pytest.raises(CoordinatorFenced):
        log.end_transaction(1, 3, commit=True, coordinator_epoch=4)
    for producer_id, epoch in ((-1, 0), (1, -1)):
        with pytest.raises(InvalidRecord):
            log.end_transaction(producer_id, epoch, commit=True)
    assert log.end_offset == 2


def test_a_producer_cannot_leave_its_transaction(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    Sender(log, 1).send(0, 1)
    with pytest.raises(InvalidTransactionState):
        log.append(numbered(1, 2), producer_id=1, producer_epoch=0, base_sequence=1)
    assert log.end_offset == 1


def test_a_newer_kind_of_transaction_takes_a_new_epoch_with_its_marker(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    Sender(log, 1, epoch=3).send(0, 1)
    with pytest.raises(ProducerFenced):
        log.end_transaction(1, 3, commit=True, transaction_version=2)
    log.end_transaction(1, 4, commit=True, transaction_version=2)
    assert log.last_stable_offset == 2
    assert Sender(log, 1, epoch=4).send(2, 3).base_offset == 2


def test_the_start_of_the_log_may_pass_an_open_transaction(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    sender = Sender(log, 1)
    sender.send(0, 2)
    log.append(numbered(2, 5))
    log.delete_records(before_offset=3)
    assert (log.start_offset, log.last_stable_offset) == (3, 3)
    assert values(log.read(3, isolation=COMMITTED)) == []
    sender.end(commit=False)
    assert values(log.read(3, isolation=COMMITTED)) == [b"3", b"4"]


def test_truncating_takes_back_what_markers_said(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    sender = Sender(log, 1)
    sender.send(0, 2)
    sender.end(commit=False)
    sender.send(3, 4)
    log.truncate_to(2)
    assert (log.end_offset, log.last_stable_offset) == (2, 0)
    assert log.aborted_transactions(0, 9) == []
    assert sender.end(commit=True).base_offset == 2
    assert values(log.read(0, isolation=COMMITTED)) == [b"0", b"1"]


def test_unknown_isolation_is_refused(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    with pytest.raises(ValueError, match="read_everything"):
        log.read(0, isolation="read_everything")


class _FullForIndexes(LocalFileSystem):
    """A disk that has no room for another entry of a transaction index."""

    is_full = False

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> Any:
        if self.is_full and path.endswith(".txnindex"):
            raise StorageError(f"{path}: cannot open: No space left on device")
        return super().open(path, writable=writable, create=create)


def test_a_marker_that_cannot_be_indexed_is_not_written(tmp_path: Path) -> None:
    disk = _FullForIndexes()
    folder = LogInFolder(tmp_path, files=disk)
    log = folder.open()
    sender = Sender(log, 1)
    sender.send(0, 2)
    before = log.view
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(StorageError, match="No space left"):
            sender.end(commit=False)
        assert log.view == before
    assert not log.in_doubt
    assert (tmp_path / "00000000000000000000.log").stat().st_size == before.end_position
    disk.is_full = False
    sender.send(2, 3)
    assert sender.end(commit=False).base_offset == 3
    assert list(log.read(0, isolation=COMMITTED)) == []
    log.close()
    assert [entry.last_offset for entry in folder.open().aborted_transactions(0, 9)] == [3]


class _NoDescriptors(LocalFileSystem):
    has_none = False

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        if self.has_none:
            raise StorageError(f"{path}: cannot open: Too many open files")
        return super().open(path, writable=writable, create=create)

    def read_all(self, path: str) -> bytes:
        if self.has_none:
            raise StorageError(f"{path}: cannot open: Too many open files")
        return super().read_all(path)


def test_a_marker_that_cannot_be_indexed_leaves_nothing_to_undo(tmp_path: Path) -> None:
    """To undo a marker, a snapshot of the producers is read: that needs a descriptor, too."""
    disk = _NoDescriptors()
    folder = LogInFolder(tmp_path, files=disk)
    log = folder.open()
    Sender(log, 2).send(0, 1)
    log.close()
    log = folder.open()
    sender = Sender(log, 1)
    sender.send(1, 2)
    disk.has_none = True
    with pytest.raises(StorageError, match="txnindex: cannot open: Too many open files"):
        sender.end(commit=False)
    disk.has_none = False
    assert not log.in_doubt
    assert sender.end(commit=False).base_offset == 2
