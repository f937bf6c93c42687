"""Bytes that recovery takes out: on disk before they leave the log, once, with a report."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from duralog.errors import CorruptRecord, Fault
from duralog.storage.recovery.quarantine import QUARANTINE_FOLDER, Quarantine, QuarantineReport
from duralog.storage.segment.damage import Damage
from tests.support.faults.crashing_files import CrashingFiles, PowerLost
from tests.support.storage.recovery_files import FOLDER, NOW_MS, make_partition, names, path

IN_QUARANTINE = f"{FOLDER}/{QUARANTINE_FOLDER}"
LOG = bytes(range(1, 201))
REASON = CorruptRecord("wrong checksum", fault=Fault.CRC_MISMATCH, expected="0x1", found="0x2")


@pytest.fixture
def disk() -> CrashingFiles:
    disk = CrashingFiles()
    make_partition(disk, {7: LOG})
    return disk


def keep(disk: CrashingFiles, start: int = 50, end: int = 120) -> QuarantineReport:
    return Quarantine(disk, FOLDER, lambda: NOW_MS).keep_range(
        disk.open(path(7)),
        Damage(start, end, REASON),
        base_offset=7,
        offset_before=9,
        offset_after=12,
        kafka="does something else",
    )


def move(disk: CrashingFiles) -> QuarantineReport:
    return Quarantine(disk, FOLDER, lambda: NOW_MS).keep_log(
        path(7), base_offset=7, size_bytes=len(LOG), reason=REASON, offset_before=6, kafka="deletes it"
    )


def reports(disk: CrashingFiles) -> list[QuarantineReport]:
    return Quarantine(disk, FOLDER, lambda: NOW_MS).reports()


def content(disk: CrashingFiles, report: QuarantineReport) -> bytes:
    file = Quarantine(disk, FOLDER, lambda: NOW_MS).open(report)
    return file.read(0, file.size)


def test_without_an_entry_there_is_no_folder(disk: CrashingFiles) -> None:
    assert reports(disk) == []
    assert names(disk) == ["00000000000000000007.log"]


def test_a_range_is_copied_with_a_report(disk: CrashingFiles) -> None:
    kept = keep(disk)
    assert reports(disk) == [kept]
    assert content(disk, kept) == LOG[50:120]
    assert disk.read_all(path(7)) == LOG
    told = json.loads(disk.read_all(f"{IN_QUARANTINE}/{kept.name}.json"))
    assert told == {
        "version": 1,
        "name": kept.name,
        "file": "00000000000000000007.log",
        "base_offset": 7,
        "start": 50,
        "end": 120,
        "zeros_from": 120,
        "fault": "CRC_MISMATCH",
        "reason": "wrong checksum",
        "expected": "0x1",
        "found": "0x2",
        "offset_before": 9,
        "offset_after": 12,
        "kafka": "does something else",
        "time_ms": NOW_MS,
        "restored_batches": 0,
    }


def test_the_same_bytes_are_kept_once_and_others_separately(disk: CrashingFiles) -> None:
    first = keep(disk)
    assert keep(disk).name == first.name
    assert len(reports(disk)) == 1
    disk.write(path(7), LOG[::-1], sync=True)
    assert keep(disk).name != first.name
    assert len(reports(disk)) == 2


@pytest.mark.parametrize("zeros", [1, 3, 5 << 20])
def test_zeros_at_the_end_are_a_hole(disk: CrashingFiles, zeros: int) -> None:
    disk.write(path(7), LOG + bytes(zeros), sync=True)
    used = disk.used_bytes
    kept = keep(disk, 100, 200 + zeros)
    assert kept.zeros_from == 200
    assert content(disk, kept) == LOG[100:] + bytes(zeros)
    assert disk.used_bytes - used < 64 << 10


def test_nothing_but_zeros(disk: CrashingFiles) -> None:
    disk.write(path(7), bytes(4096), sync=True)
    kept = keep(disk, 0, 4096)
    assert (kept.zeros_from, content(disk, kept)) == (0, bytes(4096))


def test_a_whole_log_is_moved(disk: CrashingFiles) -> None:
    moved = move(disk)
    assert names(disk) == [QUARANTINE_FOLDER]
    assert reports(disk) == [moved]
    assert content(disk, moved) == LOG
    assert (moved.start, moved.end, moved.offset_after) == (0, len(LOG), -1)


def test_another_log_of_the_same_name_and_size_has_an_entry_of_its_own(disk: CrashingFiles) -> None:
    first = move(disk)
    disk.write(path(7), LOG[::-1], sync=True)
    second = move(disk)
    assert content(disk, first) == LOG
    assert content(disk, second) == LOG[::-1]
    assert len(reports(disk)) == 2


def test_a_folder_that_a_killed_process_has_made_survives_a_loss_of_power(disk: CrashingFiles) -> None:
    disk.make_folder(IN_QUARANTINE)
    kept = keep(disk)
    for seed in range(8):
        after = disk.after_power_loss(seed)
        assert reports(after) == [kept]


def test_files_that_are_no_reports_are_passed_over(disk: CrashingFiles) -> None:
    kept = keep(disk)
    told = disk.read_all(f"{IN_QUARANTINE}/{kept.name}.json")
    for name, text in {
        "no-json": b"\xff{",
        "no-report": b"{}",
        "a-list": b"[]",
        "too-deep": b"[" * 100_000,
        "renamed": told,
        "too-large": b" " * (1 << 20) + told,
        "wrong-type": told.replace(b'"start": 50', b'"start": "x"').replace(kept.name.encode(), b"wrong-type"),
        "wrong-text": told.replace(b'"00000000000000000007.log"', b"7").replace(kept.name.encode(), b"wrong-text"),
        "below-zero": told.replace(b'"base_offset": 7', b'"base_offset": -7').replace(
            kept.name.encode(), b"below-zero"
        ),
    }.items():
        disk.write(f"{IN_QUARANTINE}/{name}.json", text, sync=True)
        disk.write(f"{IN_QUARANTINE}/{name}.bytes", b"", sync=True)
    disk.write(f"{IN_QUARANTINE}/without-bytes.json", told, sync=True)
    assert reports(disk) == [kept]


def test_what_was_restored_is_reported(disk: CrashingFiles) -> None:
    quarantine = Quarantine(disk, FOLDER, lambda: NOW_MS)
    quarantine.mark_restored(keep(disk), 2)
    quarantine.mark_restored(quarantine.reports()[0], 1)
    assert [report.restored_batches for report in reports(disk)] == [3]


@pytest.mark.parametrize("act", [keep, move])
def test_no_crash_loses_bytes_or_makes_two_entries(act: Callable[[CrashingFiles], QuarantineReport]) -> None:
    def fresh() -> CrashingFiles:
        disk = CrashingFiles()
        make_partition(disk, {7: LOG})
        return disk

    finished = fresh()
    begin = finished.changes
    act(finished)
    for change in range(finished.changes - begin + 1):
        for seed in range(3):
            disk = fresh()
            disk.lose_power_after(change)
            try:
                act(disk)
                is_done = True
            except PowerLost:
                is_done = False
            disk = disk.after_power_loss(seed)
            found = reports(disk)
            log = disk.read_all(path(7)) if disk.exists(path(7)) else None
            assert log == LOG or [content(disk, report) for report in found] == [LOG]
            if is_done:
                assert len(found) == 1
            if log is not None:
                act(disk)
                assert len(reports(disk)) == 1
