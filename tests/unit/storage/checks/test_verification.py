"""Verification: what Kafka wrote passes, every kind of damage is found where it is, and nothing is changed."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from duralog.errors import CorruptRecord, DuralogError, Fault, UnknownTopic
from duralog.format import record_batch
from duralog.format.checkpoints import (
    EpochStart,
    PartitionOffset,
    decode_offset_checkpoint,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from duralog.format.control_records import ControlType, EndTransactionMarker, encode
from duralog.format.index_entries import AbortedTransaction, encode_transaction_index
from duralog.format.producer_snapshot import decode_producer_snapshot, encode_producer_snapshot
from duralog.format.properties import encode_partition_metadata
from duralog.format.record import Record
from duralog.storage.checks.partition import PartitionCheck, PartitionReport
from duralog.storage.checks.verification import Verification
from duralog.storage.store import Store
from tests.support.places import GOLDEN

TXN_LOG = "00000000000000000080.log"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A directory that Kafka closed in order."""
    path = tmp_path / "store"
    shutil.copytree(GOLDEN / "store", path, ignore=shutil.ignore_patterns("*.gz"))
    return path


def verify(path: Path, **options: object) -> tuple[list[CorruptRecord], Verification]:
    verification = Verification(str(path), **options)  # type: ignore[arg-type]
    errors = [error for report in verification.run() for error in report.errors]
    return [*errors, *verification.errors], verification


def only_error(path: Path, **options: object) -> CorruptRecord:
    errors, verification = verify(path, **options)
    assert len(errors) == 1, [str(error) for error in errors]
    assert verification.totals.errors == 1
    return errors[0]


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def test_what_kafka_wrote_passes(store: Path) -> None:
    errors, verification = verify(store)
    assert errors == []
    totals = verification.totals
    assert (totals.partitions, totals.counts.segments, totals.counts.batches) == (20, 24, 1072)
    assert totals.counts.records == 22_845
    assert totals.counts.size_bytes == verification.size_bytes


@pytest.mark.parametrize("folder", ["compaction/before", "legacy"])
def test_other_directories_of_kafka_pass(folder: str) -> None:
    assert verify(GOLDEN / folder)[0] == []


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_number_of_threads_changes_nothing(store: Path, threads: int) -> None:
    reports = [report.name for report in Verification(str(store), threads=threads).run()]
    assert reports == sorted(reports)
    assert len(reports) == 20


def test_nothing_is_changed(store: Path) -> None:
    before = contents(store)
    verify(store, decode=True)
    assert contents(store) == before


def test_the_range_of_offsets(store: Path) -> None:
    by_name = {report.name: report for report in Verification(str(store)).run()}
    assert (by_name["plain-0"].base_offset, by_name["plain-0"].end_offset) == (0, 6001)
    assert (by_name["__consumer_offsets-1"].base_offset, by_name["__consumer_offsets-1"].end_offset) == (0, 0)


def test_one_partition_of_a_directory(store: Path) -> None:
    names = [report.name for report in Verification(str(store), topics=["codecs"]).run()]
    assert names == [f"codecs-{number}" for number in range(5)]
    names = [report.name for report in Verification(str(store), topics=["codecs"], partition=3).run()]
    assert names == ["codecs-3"]
    with pytest.raises(UnknownTopic, match="no partition 7 of codecs"):
        Verification(str(store), topics=["codecs"], partition=7)


def test_a_partition_folder(store: Path) -> None:
    (report,) = Verification(str(store / "txn-0")).run()
    assert (report.name, report.counts.segments, report.errors) == ("txn-0", 2, [])
    assert report.partition is not None
    assert report.partition.topic == "txn"


def test_something_called_log_in_a_directory_does_not_make_it_a_partition(store: Path) -> None:
    (store / "server.log").write_bytes(b"started\n")
    flip(store / "plain-0" / "00000000000000000000.log", 100)
    errors, verification = verify(store)
    assert [error.fault for error in errors] == [Fault.CRC_MISMATCH]
    assert verification.totals.partitions > 1


def test_a_link_to_a_log_that_is_not_there(store: Path) -> None:
    """As of a disk that is not mounted. A file that is removed meanwhile is a note."""
    log = store / "plain-0" / "00000000000000000000.log"
    log.unlink()
    log.symlink_to(store.parent / "disk" / "0.log")
    errors, _ = verify(store)
    assert any(error.file == str(log) and "not there" in str(error.found) for error in errors)


def test_a_link_to_itself(store: Path) -> None:
    """One file that cannot be read does not keep the others of its folder from being checked."""
    log = store / "plain-0" / "00000000000000000000.log"
    log.unlink()
    log.symlink_to(log)
    errors, verification = verify(store)
    assert any(error.file == str(log) and "symbolic links" in str(error.found) for error in errors)
    assert verification.totals.partitions > 1


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DuralogError, match="no log files"):
        Verification(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        Verification(str(tmp_path / "missing"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def test_a_wrong_checksum(store: Path) -> None:
    log = store / "txn-0" / TXN_LOG
    flip(log, 100)
    error = only_error(store)
    assert (error.file, error.fault, error.position) == (str(log), Fault.CRC_MISMATCH, 78)


def test_half_a_batch(store: Path) -> None:
    log = store / "appendtime-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes() + b"\0" * 11 + b"\x77")
    error = only_error(store)
    assert (error.fault, error.position) == (Fault.PARTIAL_BATCH, 53_634)


def test_an_offset_of_the_next_segment(store: Path) -> None:
    """Offsets are outside of the checksum: only their order shows that they are wrong."""
    folder = store / "plain-0"
    log = folder / "00000000000000003229.log"
    batch = record_batch.encode([Record(value=b"x")], base_offset=6000, leader_epoch=0)
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + batch)
    errors, _ = verify(store)
    assert [(error.reason, error.position) for error in errors if error.file == str(log)] == [
        ("the batch's offset lies in the next segment", size)
    ]


def test_an_offset_below_its_segment(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / "00000000000000000010.log").write_bytes(record_batch.encode([Record(value=b"x")], base_offset=3))
    error = only_error(tmp_path)
    assert (error.expected, error.found) == ("an offset over 9", 3)


def test_a_batch_that_cannot_be_decoded_is_found_when_records_are_decoded(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    lying = bytearray(record_batch.encode([Record(value=b"value")], base_offset=0))
    lying[57:61] = (2).to_bytes(4, "big")
    lying[17:21] = _crc32c(bytes(lying[21:])).to_bytes(4, "big")
    (folder / "00000000000000000000.log").write_bytes(lying)
    assert verify(tmp_path)[0] == []
    assert only_error(tmp_path, decode=True).fault is Fault.RECORD_COUNT


def _crc32c(data: bytes) -> int:
    from duralog.format.checksum import crc32c

    return crc32c(data)


def test_a_damaged_snapshot(store: Path) -> None:
    path = store / "txn-0" / "00000000000000002480.snapshot"
    flip(path, 30)
    error = only_error(store)
    assert (error.file, error.fault) == (str(path), Fault.CRC_MISMATCH)


@pytest.mark.parametrize("name", ["00000000000000000080.snapshot", "00000000000000002480.snapshot"])
def test_a_snapshot_that_the_log_contradicts(store: Path, name: str) -> None:
    path = store / "txn-0" / name
    first, *others = decode_producer_snapshot(path.read_bytes())
    path.write_bytes(encode_producer_snapshot([replace(first, last_sequence=first.last_sequence + 1), *others]))
    error = next(error for error in verify(store)[0] if error.file == str(path))
    assert "another state of producer" in error.reason


def test_a_snapshot_without_an_open_transaction(store: Path) -> None:
    """A transaction that is open must be known: its records would count as committed."""
    path = store / "txn-0" / "00000000000000000080.snapshot"
    entries = decode_producer_snapshot(path.read_bytes())
    is_open = [entry for entry in entries if entry.transaction_first_offset >= 0]
    assert is_open
    path.write_bytes(encode_producer_snapshot([entry for entry in entries if entry not in is_open]))
    errors = [error for error in verify(store)[0] if error.file == str(path)]
    assert ["transaction is open" in error.reason for error in errors] == [True] * len(is_open)


def test_an_expired_producer_may_be_missing_in_a_snapshot(store: Path) -> None:
    path = store / "plain-0" / "00000000000000006001.snapshot"
    path.write_bytes(encode_producer_snapshot([]))
    assert verify(store)[0] == []


def test_what_cannot_be_read_is_not_held_against_the_transactions_after_it(tmp_path: Path) -> None:
    """A transaction may have ended there. The next one of its producer has an entry of its own."""

    def batch(offset: int, marker: ControlType | None = None) -> bytes:
        key, value = (b"k", b"v") if marker is None else encode(EndTransactionMarker(type=marker, coordinator_epoch=0))
        return record_batch.encode(
            [Record(key=key, value=value, timestamp_ms=1)],
            base_offset=offset,
            producer_id=1,
            producer_epoch=0,
            base_sequence=-1 if marker else offset,
            is_transactional=True,
            is_control=marker is not None,
        )

    folder = tmp_path / "t-0"
    folder.mkdir()
    commit = batch(1, ControlType.COMMIT)
    (folder / "00000000000000000000.log").write_bytes(batch(0) + b"\xff" * len(commit))
    (folder / "00000000000000000002.log").write_bytes(batch(2) + batch(3, ControlType.ABORT))
    entry = AbortedTransaction(producer_id=1, first_offset=2, last_offset=3, last_stable_offset=4)
    (folder / "00000000000000000002.txnindex").write_bytes(encode_transaction_index([entry]))
    assert only_error(folder).fault is Fault.BATCH_LENGTH


def test_a_snapshot_behind_the_end(store: Path) -> None:
    path = store / "plain-0" / "00000000000000009000.snapshot"
    path.write_bytes(encode_producer_snapshot([]))
    assert only_error(store).found == 9000


def test_leader_epochs(store: Path) -> None:
    path = store / "codecs-0" / "leader-epoch-checkpoint"
    path.write_bytes(encode_leader_epoch_checkpoint([EpochStart(3, 0)]))
    assert only_error(store).found == "epoch 0"
    path.write_bytes(encode_leader_epoch_checkpoint([EpochStart(0, 0), EpochStart(1, 900)]))
    error = only_error(store)
    assert (error.file, error.found) == (str(path), 900)
    path.write_bytes(b"0\n1\nnonsense\n")
    assert only_error(store).file == str(path)


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"],
)
def test_a_checkpoint_outside_of_the_log(store: Path, name: str) -> None:
    path = store / name
    entries = [entry for entry in decode_offset_checkpoint(path.read_bytes()) if entry.topic != "trimmed"]
    path.write_bytes(encode_offset_checkpoint([*entries, PartitionOffset("trimmed", 0, 5001)]))
    error = only_error(store)
    assert (error.file, error.found) == (str(path), 5001)
    path.write_bytes(b"7\n")
    assert only_error(store).file == str(path)


def test_a_checkpoint_of_a_partition_that_is_gone_is_a_note(store: Path) -> None:
    path = store / "cleaner-offset-checkpoint"
    path.write_bytes(encode_offset_checkpoint([PartitionOffset("gone", 4, 1)]))
    errors, verification = verify(store)
    assert errors == []
    assert any("gone-4" in note.text for note in verification.notes)


def test_meta_properties(store: Path) -> None:
    (store / "meta.properties").write_text("version=77\n")
    assert "meta.properties" in (only_error(store).file or "")
    (store / "meta.properties").unlink()
    assert verify(store)[0] == []


def test_the_records_that_kafka_starts_with(store: Path) -> None:
    flip(store / "bootstrap.checkpoint", 100)
    error = only_error(store)
    assert error.fault is Fault.CRC_MISMATCH
    assert "bootstrap.checkpoint" in (error.file or "")
    (store / "bootstrap.checkpoint").unlink()
    assert verify(store)[0] == []


def test_a_folder_of_another_topic(store: Path) -> None:
    (store / "plain-0" / "partition.metadata").write_bytes(encode_partition_metadata("AAAAAAAAQACAAAAAAAAAAQ"))
    error = only_error(store)
    assert error.found == "AAAAAAAAQACAAAAAAAAAAQ"
    (store / "plain-0" / "partition.metadata").write_text("version: 0\n")
    assert "partition.metadata" in only_error(store).reason


def test_metadata_and_folders(store: Path) -> None:
    (store / "plain-0").rename(store / "other-0")
    errors, _ = verify(store)
    assert any("folder of plain-0 is missing" in error.reason for error in errors)
    assert any("does not place other-0" in error.reason for error in errors)


def test_damaged_metadata(store: Path) -> None:
    flip(store / "__cluster_metadata-0" / "00000000000000000000.log", 100)
    errors, _ = verify(store)
    assert len(errors) == 2
    assert all(error.fault is Fault.CRC_MISMATCH for error in errors)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: (folder / "00000000000000000000.log.deleted").write_bytes(b"x"), "left over"),
        (lambda folder: (folder / "00000000000000000777.index").write_bytes(b""), "without its log"),
        (lambda folder: (folder / "leader-epoch-checkpoint.tmp").write_bytes(b"0"), "incomplete file"),
        (lambda folder: (folder / "notes.txt").write_text("hello"), "not that of a log file"),
        (lambda folder: (folder / "00000000000000000000.index").unlink(), "is missing"),
        (lambda folder: (folder / "stuff").mkdir(), "belongs to no log"),
    ],
)
def test_leftovers_are_notes(store: Path, make: Callable[[Path], object], told: str) -> None:
    make(store / "codecs-1")
    reports: list[PartitionReport] = list(Verification(str(store)).run())
    assert all(not report.errors for report in reports)
    assert any(told in note.text for report in reports for note in report.notes)


def test_a_folder_in_the_place_of_a_file(store: Path) -> None:
    for path in (store / "codecs-1" / "00000000000000000000.index", store / "log-start-offset-checkpoint"):
        path.unlink()
        path.mkdir()
    errors, _ = verify(store)
    assert [error.reason for error in errors] == ["not a regular file"] * 2


def test_folders_of_deleted_topics_are_left_alone(store: Path) -> None:
    shutil.copytree(store / "plain-0", store / f"plain-0.{'0' * 32}-delete")
    flip(store / f"plain-0.{'0' * 32}-delete" / "00000000000000000000.log", 100)
    errors, verification = verify(store)
    assert errors == []
    assert any("deleted topic" in note.text for note in verification.notes)


def test_a_log_of_garbage_is_not_listed_without_end(store: Path) -> None:
    log = store / "txn-0" / TXN_LOG
    data = bytearray(log.read_bytes())
    for position in range(70, len(data), 50):
        data[position] ^= 1
    log.write_bytes(data)
    (report,) = [report for report in Verification(str(store)).run() if report.name == "txn-0"]
    assert sum(error.file == str(log) for error in report.errors) <= 5
    assert report.error_count >= len(report.errors)


def test_stopping_in_the_middle(store: Path) -> None:
    """Closing the iterator ends the work: no thread is left."""
    before = set(threading.enumerate())
    run = Verification(str(store)).run()
    next(run)
    assert isinstance(run, Generator)
    run.close()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("duralog-verify")]


def test_a_batch_that_is_being_written(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large write shows page after page: what is there of the batch so far is no damage."""
    log = store / "plain-0" / "00000000000000000000.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-5])

    def write_the_rest(_seconds: float) -> None:
        log.write_bytes(whole)

    monkeypatch.setattr("duralog.storage.disk.file_source.time.sleep", write_the_rest)
    monkeypatch.setattr("duralog.storage.disk.file_source._LATELY_MS", math.inf)
    (report,) = [report for report in Verification(str(store)).run() if report.name == "plain-0"]
    assert "the file ends inside a batch" not in [error.reason for error in report.errors]
    assert any("being written" in note.text for note in report.notes)
    assert verify(store)[0] == []


def test_a_batch_that_was_not_written_to_its_end(store: Path) -> None:
    log = store / "plain-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-5])
    assert "the file ends inside a batch" in [error.reason for error in verify(store)[0]]


def test_a_directory_that_is_written_to(tmp_path: Path) -> None:
    """Segments roll, indexes are trimmed and files go meanwhile: nothing of that is wrong."""
    with Store(str(tmp_path)) as store:
        store.create_topic(
            "t", 1, {"internal.segment.bytes": 50_000, "retention.bytes": 200_000, "file.delete.delay.ms": 0}
        )
        log = store.partition("t", 0)

        def append() -> None:
            for number in range(300):
                log.append([Record(key=b"k", value=bytes([number % 251]) * 500)] * 10)
                if number % 50 == 0:
                    store.apply_retention()

        writer = threading.Thread(target=append)
        writer.start()
        while writer.is_alive():
            assert verify(tmp_path)[0] == []
        writer.join()
    assert verify(tmp_path)[0] == []


def test_a_folder_that_cannot_be_read_is_not_missing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(store / "txn-0")

    def refused(path: str, *arguments: object) -> PartitionCheck:
        if path == folder:
            raise PermissionError(13, "Permission denied", path)
        return PartitionCheck(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("duralog.storage.checks.verification.PartitionCheck", refused)
    verification = Verification(str(store))
    assert not any(report.errors for report in verification.run())
    (error,) = verification.errors
    assert "cannot be read" in str(error)
    assert not [note for note in verification.notes if "no folder" in str(note)]
