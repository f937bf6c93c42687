"""Loading a partition's folder: clean, after a crash, damaged, and read-only."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from duralog.config import TopicConfig
from duralog.errors import CorruptRecord, StorageError
from duralog.format import record_batch
from duralog.format.checkpoints import EpochStart, decode_leader_epoch_checkpoint
from duralog.format.control_records import ControlType, EndTransactionMarker, encode
from duralog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, FileState
from duralog.format.index_entries import AbortedTransaction, encode_transaction_index
from duralog.format.layout import MAGIC_POSITION
from duralog.format.record import Record
from duralog.storage.disk.file_system import Entry
from duralog.storage.log.loaded_log import LoadedLog
from duralog.storage.recovery.quarantine import QUARANTINE_FOLDER, Quarantine
from duralog.storage.recovery.recovery import LoadOptions, load_partition
from duralog.storage.segment.segment_files import segment_options
from tests.support.faults.crashing_files import CrashingFiles, OpenFile, PowerLost
from tests.support.storage.recovery_files import (
    FOLDER,
    NOW_MS,
    RECORD_TIME_MS,
    batch,
    batches,
    close,
    load,
    make_partition,
    names,
    offsets_on_disk,
    path,
    with_flipped_bit,
)

SIZE = len(batch(0))
SOUND = {base_offset: batches(range(base_offset, base_offset + 10, 2)) for base_offset in (0, 10, 20)}
OFFSETS = {base: [(first, first + 1) for first in range(base, base + 10, 2)] for base in SOUND}
INDEX, TIMES, ABORTED, SNAPSHOT = (
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
    FileKind.PRODUCER_SNAPSHOT,
)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def disk_with(logs: dict[int, bytes]) -> CrashingFiles:
    disk = CrashingFiles()
    make_partition(disk, logs)
    return disk


def closed_disk(logs: dict[int, bytes] = SOUND) -> CrashingFiles:
    """A partition after a clean stop."""
    disk = disk_with(logs)
    close(load(disk))
    return disk


def quarantined(disk: CrashingFiles) -> list[tuple[str, int, int]]:
    return [(report.file, report.start, report.end) for report in Quarantine(disk, FOLDER, lambda: NOW_MS).reports()]


def kafka(disk: CrashingFiles) -> list[str]:
    return [report.kafka for report in Quarantine(disk, FOLDER, lambda: NOW_MS).reports()]


# A clean start


def test_an_empty_folder_becomes_an_empty_log() -> None:
    disk = disk_with({})
    loaded = load(disk, clean=True)
    assert (loaded.log_start_offset, loaded.end_offset, loaded.recovery_point) == (0, 0, 0)
    assert [segment.base_offset for segment in loaded.segments] == [0]
    assert names(disk) == ["00000000000000000000.log", LEADER_EPOCH_CHECKPOINT]


def test_a_log_without_segments_begins_at_its_start() -> None:
    loaded = load(disk_with({}), log_start=42)
    assert (loaded.log_start_offset, loaded.end_offset, loaded.recovery_point) == (42, 42, 0)


def test_a_clean_start_reads_hardly_anything_and_changes_nothing() -> None:
    disk = closed_disk()
    before = disk.contents(FOLDER)
    opened: list[str] = []

    class Watched(CrashingFiles):
        def open(self, path: str, *, writable: bool = False, create: bool = False) -> OpenFile:
            opened.append(path)
            return super().open(path, writable=writable, create=create)

    disk.__class__ = Watched
    loaded = load(disk, clean=True)
    assert (loaded.log_start_offset, loaded.end_offset, loaded.recovery_point) == (0, 30, 30)
    assert {name.rsplit("/", 1)[1].split(".")[0] for name in opened} == {"00000000000000000020"}
    close(loaded)
    assert disk.contents(FOLDER) == before


def test_the_log_starts_at_its_checkpoint_or_its_first_segment() -> None:
    disk = closed_disk()
    assert load(disk, clean=True, log_start=5).log_start_offset == 5
    disk.remove(path(0))
    assert load(disk, clean=True, log_start=5).log_start_offset == 10


def test_a_closed_log_that_does_not_end_with_a_batch_is_recovered() -> None:
    disk = closed_disk()
    make_partition(disk, {20: SOUND[20][:-1]})
    loaded = load(disk, clean=True)
    assert loaded.end_offset == loaded.recovery_point == 28
    assert quarantined(disk) == [("00000000000000000020.log", 4 * SIZE, 5 * SIZE - 1)]


def test_a_missing_index_is_built_again_after_a_clean_stop() -> None:
    disk = closed_disk()
    before = disk.contents(FOLDER)
    for base_offset in (10, 20):
        disk.remove(path(base_offset, INDEX))
        disk.remove(path(base_offset, TIMES))
    close(load(disk, clean=True))
    assert disk.contents(FOLDER) == before


def test_a_missing_time_index_is_built_when_it_is_needed() -> None:
    disk = closed_disk()
    disk.remove(path(10, TIMES))
    segment = load(disk, clean=True).segments[1]
    assert segment.largest_timestamp_ms == RECORD_TIME_MS + 19


def test_a_damaged_index_of_aborted_transactions_is_built_again() -> None:
    disk = closed_disk({0: transactions(0), 10: transactions(10)})
    good = disk.read_all(path(10, ABORTED))
    entry = AbortedTransaction(producer_id=1, first_offset=0, last_offset=3, last_stable_offset=4)
    for damaged in (encode_transaction_index([entry]), b"\xff" * 34):
        disk.write(path(10, ABORTED), damaged, sync=True)
        assert [len(found.transaction_index.entries) for found in load(disk, read_only=True).segments] == [1, 1]
        close(load(disk, clean=True))
        assert disk.read_all(path(10, ABORTED)) == good


def test_a_clean_log_without_snapshots_gets_empty_ones() -> None:
    disk = closed_disk()
    for entry in disk.list(FOLDER):
        if entry.name.endswith(".snapshot"):
            disk.remove(f"{FOLDER}/{entry.name}")
    loaded = load(disk, clean=True)
    assert loaded.producer_snapshots.offsets == (10, 20, 30)
    assert len(loaded.read_producers()) == 0


# After a crash


def test_everything_is_built_again() -> None:
    disk = closed_disk()
    before = disk.contents(FOLDER)
    for entry in disk.list(FOLDER):
        if not entry.name.endswith(".log"):
            disk.write(f"{FOLDER}/{entry.name}", b"garbage" * 100, sync=True)
    loaded = load(disk)
    assert (loaded.end_offset, loaded.recovery_point) == (30, 0)
    close(loaded)
    assert disk.contents(FOLDER) == before


def test_segments_below_the_recovery_point_are_not_looked_at() -> None:
    disk = closed_disk()
    make_partition(disk, {0: with_flipped_bit(SOUND[0], 70)})
    loaded = load(disk, recovery_point=12)
    assert (loaded.end_offset, loaded.recovery_point) == (30, 12)
    assert quarantined(disk) == []
    assert load(disk, recovery_point=1000).recovery_point == 30


def test_progress_shows_what_was_checked() -> None:
    checked: list[int] = []
    load_partition(
        closed_disk(),
        FOLDER,
        LoadOptions(
            config=TopicConfig(),
            clean=False,
            recovery_point=10,
            clock=lambda: NOW_MS,
            on_bytes=checked.append,
        ),
    )
    assert sum(checked) == len(SOUND[10]) + len(SOUND[20])


@pytest.mark.parametrize(
    ("logs", "recovery_point", "told"),
    [
        pytest.param(SOUND, 0, [], id="sound"),
        pytest.param({**SOUND, 10: with_flipped_bit(SOUND[10], 70)}, 0, [10], id="cut off"),
        pytest.param({**SOUND, 10: with_flipped_bit(SOUND[10], 70)}, 1000, [10], id="rewritten"),
        pytest.param({**SOUND, 0: SOUND[0] + bytes(9), 10: SOUND[10] + b"x"}, 1000, [0, 10], id="two"),
    ],
)
def test_a_listener_is_called_before_the_log_of_a_segment_changes(
    logs: dict[int, bytes], recovery_point: int, told: list[int]
) -> None:
    disk = CrashingFiles()
    make_partition(disk, logs)
    found: list[int] = []

    def before_change(base_offset: int) -> None:
        assert disk.read_all(path(base_offset)) == logs[base_offset]
        found.append(base_offset)

    for read_only in (True, False):
        assert found == []
        load_partition(
            disk,
            FOLDER,
            LoadOptions(
                config=TopicConfig(),
                clean=False,
                recovery_point=recovery_point,
                clock=lambda: NOW_MS,
                read_only=read_only,
                before_change=before_change,
            ),
        )
    assert found == told


def test_recovered_segments_are_synced_with_the_next_flush() -> None:
    disk = CrashingFiles()
    disk.make_folder(FOLDER)
    disk.write(path(0), SOUND[0], sync=False)
    loaded = load(disk)
    for segment in loaded.segments:
        segment.flush()
    for folder in (FOLDER, "/data", "/"):
        disk.sync_folder(folder)
    assert all(disk.after_power_loss(seed).read_all(path(0)) == SOUND[0] for seed in range(5))


@pytest.mark.parametrize(
    "garbage",
    [b"\0" * 300, b"\0" * 5, b"\xff" * 300, batch(30)[:-1], batch(30)[:20], with_flipped_bit(batch(30), 70)],
    ids=["zeros", "a few zeros", "ones", "all but a byte", "no header", "wrong checksum"],
)
def test_garbage_at_the_end_is_cut_off(garbage: bytes) -> None:
    disk = disk_with(SOUND | {20: SOUND[20] + garbage})
    loaded = load(disk)
    assert loaded.end_offset == 30
    close(loaded)
    assert disk.read_all(path(20)) == SOUND[20]
    assert quarantined(disk) == [("00000000000000000020.log", 5 * SIZE, 5 * SIZE + len(garbage))]
    assert "deletes the segments that follow" in kafka(disk)[0]


def test_room_that_was_allocated_ahead_is_cut_off_and_that_is_all() -> None:
    disk = disk_with({0: SOUND[0] + bytes(5000)})
    loaded = load(disk, config=TopicConfig(preallocate=True))
    assert loaded.end_offset == 10
    assert disk.read_all(path(0)) == SOUND[0]
    assert not disk.exists(f"{FOLDER}/{QUARANTINE_FOLDER}")
    make_partition(disk, {0: SOUND[0] + bytes(100) + b"x"})
    load(disk, config=TopicConfig(preallocate=True))
    assert len(quarantined(disk)) == 1


def test_the_log_ends_at_the_first_damage() -> None:
    disk = disk_with(SOUND | {10: with_flipped_bit(SOUND[10], SIZE + 70), 30: b""})
    loaded = load(disk)
    assert loaded.end_offset == 12
    close(loaded)
    assert offsets_on_disk(disk) == {0: OFFSETS[0], 10: [(10, 11)]}
    assert quarantined(disk) == [
        ("00000000000000000010.log", SIZE, 5 * SIZE),
        ("00000000000000000020.log", 0, 5 * SIZE),
    ]
    assert [name for name in names(disk) if name.startswith(("00000000000000000020", "00000000000000000030"))] == []


@pytest.mark.parametrize(
    ("recovery_point", "policy", "end_offset"),
    [(1, "delete", 6), (0, "delete", 30), (10, "delete", 30), (1, "compact", 30)],
)
def test_a_log_that_lost_the_end_of_a_segment_ends_there(recovery_point: int, policy: str, end_offset: int) -> None:
    disk = closed_disk()
    make_partition(disk, {0: SOUND[0][: 3 * SIZE]})
    config = TopicConfig(cleanup_policy=frozenset({policy}))
    assert load(disk, recovery_point=recovery_point, config=config).end_offset == end_offset
    assert len(quarantined(disk)) == (2 if end_offset == 6 else 0)


def test_a_segment_without_a_valid_batch_stays_empty() -> None:
    disk = disk_with(SOUND | {10: b"\xff" * 100})
    loaded = load(disk)
    assert loaded.end_offset == 10
    assert offsets_on_disk(disk) == {0: OFFSETS[0], 10: []}


# Where only the damage goes


def test_damage_below_the_recovery_point_costs_no_segment_that_follows() -> None:
    # The segment is recovered for want of an index only; Kafka would keep those after it, but not the rest of it.
    disk = closed_disk()
    make_partition(disk, {0: with_flipped_bit(SOUND[0], SIZE + 70)})
    disk.remove(path(0, INDEX))
    loaded = load(disk, recovery_point=20)
    assert loaded.end_offset == 30
    assert offsets_on_disk(disk) == OFFSETS | {0: [(0, 1), *OFFSETS[0][2:]]}
    assert quarantined(disk) == [("00000000000000000000.log", SIZE, 2 * SIZE)]
    assert "keeps the segments that follow" in kafka(disk)[0]


def test_a_batch_of_an_unknown_version_goes_alone() -> None:
    position = SIZE + MAGIC_POSITION
    disk = disk_with(SOUND | {10: SOUND[10][:position] + b"\x03" + SOUND[10][position + 1 :]})
    assert load(disk).end_offset == 30
    assert offsets_on_disk(disk) == OFFSETS | {10: [(10, 11), *OFFSETS[10][2:]]}
    assert quarantined(disk) == [("00000000000000000010.log", SIZE, 2 * SIZE)]
    assert kafka(disk) == ["does not check the version of a batch whose checksum is right, and keeps it"]


def test_a_batch_of_an_unknown_version_and_damage_after_it() -> None:
    position = SIZE + MAGIC_POSITION
    log = SOUND[10][:position] + b"\x03" + SOUND[10][position + 1 :]
    disk = disk_with(SOUND | {10: with_flipped_bit(log, 3 * SIZE + 70)})
    assert load(disk).end_offset == 16
    assert kafka(disk)[:2] == [
        "does not check the version of a batch whose checksum is right, and keeps it",
        "cuts the log off here and deletes the segments that follow",
    ]


def test_a_batch_of_an_unknown_version_at_the_end_of_a_segment_leaves_a_gap_and_no_more() -> None:
    position = 4 * SIZE + MAGIC_POSITION
    disk = closed_disk()
    make_partition(disk, {10: SOUND[10][:position] + b"\x03" + SOUND[10][position + 1 :]})
    assert load(disk, recovery_point=10).end_offset == 30
    assert offsets_on_disk(disk) == OFFSETS | {10: OFFSETS[10][:-1]}


@pytest.mark.parametrize(("recovery_point", "end_offset"), [(10, 12), (13, 30)])
def test_a_misplaced_batch_after_the_recovery_point_ends_the_log(recovery_point: int, end_offset: int) -> None:
    # There no offset was left out before the crash, and no sync has told that anything came to the disk.
    disk = closed_disk()
    make_partition(disk, {10: batches((10, 2, 14, 16, 18))})
    assert load(disk, recovery_point=recovery_point).end_offset == end_offset


@pytest.mark.parametrize("wrong", [(10, 2, 14), (10, 18, 14), (10, 2**45, 14), (10, 12, 19)])
def test_a_batch_in_the_wrong_place_goes_alone(wrong: tuple[int, int, int]) -> None:
    # The last one reaches into the next segment, which begins at 20.
    disk = disk_with(SOUND | {10: batches(wrong)})
    loaded = load(disk)
    assert loaded.end_offset == 30
    assert len(offsets_on_disk(disk)[10]) == 2
    assert offsets_on_disk(disk)[20] == OFFSETS[20]
    assert len(quarantined(disk)) == 1
    close(loaded)
    before = disk.contents(FOLDER)
    close(load(disk))
    assert disk.contents(FOLDER) == before


def test_a_batch_in_the_wrong_place_and_damage_after_it() -> None:
    disk = disk_with({0: batches((0, 4, 2)) + with_flipped_bit(batch(6), 70) + batch(8), 10: batches((10,))})
    assert load(disk).end_offset == 4
    assert offsets_on_disk(disk) == {0: [(0, 1), (2, 3)]}
    assert sorted((start, end) for _, start, end in quarantined(disk)) == [
        (0, SIZE),
        (SIZE, 2 * SIZE),
        (3 * SIZE, 5 * SIZE),
    ]


def test_damage_before_the_start_of_the_log_does_not_cost_the_log() -> None:
    disk = disk_with(SOUND | {0: with_flipped_bit(SOUND[0], SIZE + 70)})
    loaded = load(disk, log_start=5)
    assert (loaded.log_start_offset, loaded.end_offset) == (5, 30)
    assert offsets_on_disk(disk)[0] == [(0, 1), *OFFSETS[0][2:]]
    assert "deletes all of it" in kafka(disk)[0]


def test_damage_without_a_way_on_before_the_start_of_the_log() -> None:
    disk = disk_with(SOUND | {0: SOUND[0][: SIZE + 8] + b"\xff" * 50})
    assert load(disk, log_start=5).end_offset == 30
    assert offsets_on_disk(disk)[0] == [(0, 1)]
    # From the start on, damage ends the log again.
    make_partition(disk, {10: with_flipped_bit(SOUND[10], SIZE + 70)})
    assert load(disk, log_start=5).end_offset == 12


def test_a_log_that_ends_before_its_start_is_emptied() -> None:
    disk = disk_with(SOUND)
    loaded = load(disk, log_start=100)
    assert (loaded.log_start_offset, loaded.end_offset, loaded.recovery_point) == (100, 100, 0)
    assert (loaded.read_leader_epochs().entries, loaded.producer_snapshots.offsets) == ((), ())
    close(loaded)
    assert offsets_on_disk(disk) == {100: []}
    assert len(quarantined(disk)) == 3
    again = load(disk, clean=True, log_start=100)
    assert again.end_offset == 100


# Splitting

FAR = 2**31


def test_a_segment_whose_offsets_need_more_than_32_bits_is_split() -> None:
    log = batches((0, 2, FAR - 2, FAR, FAR + 2, 2 * FAR + 2))
    disk = disk_with({0: log, 3 * FAR: batches((3 * FAR,))})
    disk.set_modified_ms(path(0), 1_600_000_000_000)
    loaded = load(disk)
    assert loaded.end_offset == 3 * FAR + 2
    assert quarantined(disk) == []
    # The batch at FAR - 2 is the last that fits; its last offset is the largest.
    assert offsets_on_disk(disk) == {
        0: [(0, 1), (2, 3), (FAR - 2, FAR - 1)],
        FAR: [(FAR, FAR + 1), (FAR + 2, FAR + 3)],
        2 * FAR + 2: [(2 * FAR + 2, 2 * FAR + 3)],
        3 * FAR: [(3 * FAR, 3 * FAR + 1)],
    }
    assert loaded.segments[1].modified_ms == 1_600_000_000_000
    close(loaded)
    before = disk.contents(FOLDER)
    close(load(disk, clean=True))
    assert disk.contents(FOLDER) == before


@pytest.mark.parametrize("clean", [True, False])
def test_a_batch_that_takes_the_last_of_all_offsets_is_named_and_can_be_read(clean: bool) -> None:
    base_offset = 2**63 - 8
    log = b"".join((base_offset + delta).to_bytes(8) + batch(0)[8:] for delta in (0, 6))
    disk = disk_with({base_offset: log})
    with pytest.raises(CorruptRecord, match=f"at most offset {2**63 - 2}, found offset {2**63 - 1}") as refused:
        load(disk, clean=clean)
    assert (refused.value.file, refused.value.position) == (path(base_offset), SIZE)
    assert load(disk, clean=clean, read_only=True).segments[0].next_offset() == 2**63


# Producers, transactions, epochs


def transactions(offset: int) -> bytes:
    """A transaction that is aborted, and one that stays open; ten offsets."""

    marker = end_of_transaction(offset + 2, offset, ControlType.ABORT)
    return in_transaction(offset, offset) + in_transaction(offset + 1, offset + 1) + marker + batch(offset + 3, 7)


def in_transaction(offset: int, producer_id: int) -> bytes:
    return record_batch.encode(
        [Record(key=b"k", value=b"v", timestamp_ms=RECORD_TIME_MS)],
        base_offset=offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
        is_transactional=True,
    )


def end_of_transaction(offset: int, producer_id: int, how: ControlType) -> bytes:
    key, value = encode(EndTransactionMarker(type=how, coordinator_epoch=0))
    return record_batch.encode(
        [Record(key=key, value=value, timestamp_ms=RECORD_TIME_MS)],
        base_offset=offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


@pytest.mark.parametrize("recovery_point", [0, 10])
def test_producers_and_aborted_transactions_are_read_from_the_log(recovery_point: int) -> None:
    disk = disk_with({0: transactions(0), 10: transactions(10)})
    if recovery_point:
        close(load(disk))
    loaded = load(disk, recovery_point=recovery_point)
    assert [segment.transaction_index.entries for segment in loaded.segments] == [
        [AbortedTransaction(producer_id=0, first_offset=0, last_offset=2, last_stable_offset=1)],
        [AbortedTransaction(producer_id=10, first_offset=10, last_offset=12, last_stable_offset=1)],
    ]
    assert loaded.read_producers().first_unstable_offset == 1
    assert sorted(entry.producer_id for entry in loaded.read_producers().entries()) == [0, 1, 10, 11]
    assert loaded.read_producers().end_offset == loaded.end_offset == 20
    assert loaded.producer_snapshots.offsets == (10, 20)


def test_a_commit_that_is_damaged_does_not_let_a_later_abort_hide_what_it_had_committed() -> None:
    committed = in_transaction(0, 7) + end_of_transaction(1, 7, ControlType.COMMIT)
    disk = closed_disk({0: committed, 2: in_transaction(2, 7) + end_of_transaction(3, 7, ControlType.ABORT)})
    make_partition(disk, {0: with_flipped_bit(committed, len(committed) - 1)})
    disk.remove(path(0, INDEX))
    loaded = load(disk, recovery_point=2)
    assert offsets_on_disk(disk) == {0: [(0, 0)], 2: [(2, 2), (3, 3)]}
    assert loaded.segments[1].transaction_index.entries == [
        AbortedTransaction(producer_id=7, first_offset=2, last_offset=3, last_stable_offset=4)
    ]


def test_snapshots_of_what_never_came_to_the_disk_go() -> None:
    disk = closed_disk({0: transactions(0), 10: transactions(10)})
    make_partition(disk, {10: transactions(10)[:-1]})
    disk.write(path(12, SNAPSHOT), b"", sync=True)
    loaded = load(disk, recovery_point=10)
    assert loaded.end_offset == 13
    assert loaded.producer_snapshots.offsets == (10, 13)


def test_a_damaged_snapshot_is_replaced() -> None:
    disk = closed_disk({0: transactions(0), 10: transactions(10)})
    disk.write(path(20, SNAPSHOT), b"garbage", sync=True)
    before = disk.contents(FOLDER)
    loaded = load(disk, clean=True, read_only=True)
    assert len(loaded.read_producers()) == 4
    assert disk.contents(FOLDER) == before
    assert len(load(disk, clean=True).read_producers()) == 4
    assert disk.contents(FOLDER) != before


def test_an_unreadable_marker_is_skipped() -> None:
    marker = record_batch.encode(
        [Record(key=b"?", value=b"?", timestamp_ms=1)],
        base_offset=4,
        leader_epoch=0,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    loaded = load(disk_with({0: batches((0, 2)) + marker}))
    assert loaded.end_offset == loaded.read_producers().end_offset == 5


def test_epochs_are_read_from_the_log_and_cut_to_it() -> None:
    log = batch(0, leader_epoch=1) + batch(2, leader_epoch=1) + batch(4, leader_epoch=3)
    disk = disk_with({0: log})
    assert load(disk).read_leader_epochs().entries == (EpochStart(1, 0), EpochStart(3, 4))
    disk.write(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}", b"0\n3\n1 0\n3 4\n4 6\n", sync=True)
    assert load(disk, clean=True).read_leader_epochs().entries == (EpochStart(1, 0), EpochStart(3, 4))
    assert load(disk, clean=True, log_start=2).read_leader_epochs().entries == (EpochStart(1, 2), EpochStart(3, 4))


def test_a_damaged_epoch_file_is_made_new() -> None:
    disk = closed_disk({0: batch(0, leader_epoch=1) + batch(2, leader_epoch=2)})
    good = disk.read_all(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}")
    disk.write(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}", b"garbage", sync=True)
    assert load(disk, clean=True).read_leader_epochs().entries == (EpochStart(1, 0), EpochStart(2, 2))
    assert disk.read_all(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}") == good


def test_a_damaged_epoch_file_is_created_again_if_there_are_no_epochs() -> None:
    disk = closed_disk({0: b""})
    disk.write(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}", b"garbage", sync=True)
    assert load(disk, clean=True).read_leader_epochs().entries == ()
    assert decode_leader_epoch_checkpoint(disk.read_all(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}")) == []


def test_a_damaged_epoch_file_stays_until_all_epochs_are_known() -> None:
    # The next start, after a crash, reads only what follows the recovery point.
    logs = {base: batch(base, leader_epoch=base) for base in (0, 10, 20)}
    finished = closed_disk(logs)
    for change in range(12):
        disk = closed_disk(logs)
        disk.write(f"{FOLDER}/{LEADER_EPOCH_CHECKPOINT}", b"garbage", sync=True)
        disk.lose_power_after(change)
        with suppress(PowerLost):
            load(disk, recovery_point=22)
        disk = disk.after_power_loss(change)
        expected = load(finished, clean=True).read_leader_epochs().entries
        assert load(disk, recovery_point=22).read_leader_epochs().entries == expected


def test_epochs_of_batches_that_go_are_not_kept() -> None:
    disk = disk_with({0: batch(40, leader_epoch=2) + batch(0, leader_epoch=2) + batch(2, leader_epoch=2)})
    loaded = load(disk)
    assert loaded.end_offset == 4
    assert loaded.read_leader_epochs().entries == (EpochStart(2, 0),)


# Read-only


def read_only(disk: CrashingFiles, **options: Any) -> LoadedLog:
    """With a check that nothing has changed."""
    changes = disk.changes
    loaded = load(disk, read_only=True, **options)
    assert disk.changes == changes
    return loaded


def test_reading_only_sees_what_recovery_would_leave() -> None:
    disk = disk_with(SOUND | {20: SOUND[20] + batch(30)[:-1]})
    disk.write(path(10, state=FileState.SWAP), batches((12,)), sync=True)
    disk.write(path(0, INDEX, FileState.DELETED), b"", sync=True)
    loaded = read_only(disk)
    assert loaded.end_offset == 30
    assert [segment.size_bytes for segment in loaded.segments] == [5 * SIZE, SIZE, 5 * SIZE]
    assert loaded.segments[1].next_offset() == 14
    assert [segment.offset_index.entry_count for segment in loaded.segments] == [4, 0, 4]


def test_reading_only_knows_the_transactions_of_a_log_that_has_no_side_files() -> None:
    # A copy of the logs alone. Who reads committed data must see neither what was aborted nor what is open.
    loaded = read_only(disk_with({0: transactions(0), 10: transactions(10)}), clean=True)
    assert [len(segment.transaction_index.entries) for segment in loaded.segments] == [1, 1]
    assert loaded.read_producers().last_stable_offset(loaded.end_offset) == 1


def test_reading_only_knows_what_is_open_in_a_log_that_was_never_rolled() -> None:
    # Its owner is at work: there are indexes, but the first snapshot comes with the first roll.
    disk = closed_disk({0: transactions(0)})
    disk.remove(path(10, SNAPSHOT))
    loaded = read_only(disk, clean=True)
    assert loaded.read_producers().last_stable_offset(loaded.end_offset) == 1


def test_reading_only_an_empty_folder_or_past_the_end() -> None:
    assert read_only(disk_with({}), log_start=7).end_offset == 7
    loaded = read_only(disk_with(SOUND), log_start=100)
    assert (loaded.log_start_offset, loaded.end_offset) == (100, 100)
    assert [segment.base_offset for segment in loaded.segments] == [100]


def test_reading_only_leaves_damage_to_who_reads_it() -> None:
    disk = disk_with(SOUND | {10: with_flipped_bit(SOUND[10], SIZE + 70)})
    assert read_only(disk).end_offset == 30


class Vanishing(CrashingFiles):
    """Its owner removes the first segment between a reader's listing and the reader's look at it, a few times."""

    times = 2

    def entry(self, path: str) -> Entry | None:
        if self.times and path.endswith(".log"):
            self.times -= 1
            raise StorageError(f"{path}: cannot stat: gone")
        return super().entry(path)

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> OpenFile:
        if self.times and path.endswith(".log"):
            self.times -= 1
            raise StorageError(f"{path}: cannot open: gone")
        return super().open(path, writable=writable, create=create)


def test_a_live_directory_is_looked_at_again() -> None:
    disk = Vanishing()
    make_partition(disk, SOUND)
    assert read_only(disk).end_offset == 30
    disk.times = 1000
    with pytest.raises(StorageError, match="gone"):
        load(disk, read_only=True)


def test_who_may_write_gets_the_error_at_once() -> None:
    disk = Vanishing()
    make_partition(disk, SOUND)
    with pytest.raises(StorageError, match="gone"):
        load(disk)


# Crashes while recovering

CASES: dict[str, dict[int, bytes]] = {
    "cut": SOUND | {10: with_flipped_bit(SOUND[10], SIZE + 70)},
    "misplaced": SOUND | {10: batches((10, 2, 14))},
    "misplaced and broken": SOUND | {10: batches((10, 2, 14)) + b"\xff" * 100},
    "split": {0: batches((0, FAR, FAR + 2)), 3 * FAR: batches((3 * FAR,))},
    "before its start": SOUND | {0: with_flipped_bit(SOUND[0], SIZE + 70)},
    "past its end": SOUND,
}
LOG_STARTS = {"before its start": 5, "past its end": 100}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_crash_while_recovering_changes_nothing_about_the_outcome(case: str, randomised: int) -> None:
    log_start = LOG_STARTS.get(case, 0)
    finished = disk_with(CASES[case])
    begin = finished.changes
    expected = load(finished, log_start=log_start)
    close(expected)
    for change in range(finished.changes - begin):
        for seed in range(2 * randomised):
            disk = disk_with(CASES[case])
            disk.lose_power_after(change)
            with suppress(PowerLost):
                close(load(disk, log_start=log_start))
            disk = disk.after_power_loss(seed)
            found = load(disk, log_start=log_start)
            assert (found.log_start_offset, found.end_offset) == (expected.log_start_offset, expected.end_offset)
            assert found.read_leader_epochs().entries == expected.read_leader_epochs().entries, (change, seed)
            assert offsets_on_disk(disk) == offsets_on_disk(finished), (change, seed)
            assert quarantined(disk) == quarantined(finished), (change, seed)


def refuse_quarantine(disk: CrashingFiles) -> None:
    disk.refuse(28, path=QUARANTINE_FOLDER, times=None)


@pytest.mark.parametrize("case", ["cut", "misplaced", "before its start", "past its end"])
@pytest.mark.parametrize("prevent", [refuse_quarantine])
def test_what_cannot_go_to_quarantine_stays_in_the_log(case: str, prevent: Callable[[CrashingFiles], None]) -> None:
    disk = disk_with(CASES[case])
    prevent(disk)
    with pytest.raises(StorageError, match=QUARANTINE_FOLDER):
        load(disk, log_start=LOG_STARTS.get(case, 0))
    assert {base: disk.read_all(path(base)) for base in CASES[case]} == CASES[case]


def test_the_options_of_segments_come_from_the_config() -> None:
    config = TopicConfig(index_interval_bytes=7, segment_index_bytes=800, preallocate=True)
    options = segment_options(config)
    assert (options.index_interval_bytes, options.index_max_bytes, options.preallocate) == (7, 800, True)


@pytest.mark.parametrize("lost", [INDEX, ABORTED])
def test_a_crash_while_a_trusted_segment_is_recovered_loses_no_aborted_transaction(
    lost: FileKind, randomised: int
) -> None:
    """Below the recovery point a segment is looked at again only if it has no offset index."""

    def crashed() -> CrashingFiles:
        disk = closed_disk({0: transactions(0), 10: transactions(10), 20: batches((20,))})
        if lost is INDEX:
            disk.remove(path(10, INDEX))
        else:
            disk.write(path(10, ABORTED), b"\xff" * 34, sync=True)
        disk.sync_folder(FOLDER)
        return disk

    finished = crashed()
    begin = finished.changes
    close(load(finished, recovery_point=22))
    expected = [finished.read_all(path(10, kind)) for kind in (ABORTED, TIMES)]
    for change in range(finished.changes - begin):
        for seed in range(2 * randomised):
            disk = crashed()
            disk.lose_power_after(change)
            with suppress(PowerLost):
                close(load(disk, recovery_point=22))
            disk = disk.after_power_loss(seed)
            close(load(disk, recovery_point=22))
            assert [disk.read_all(path(10, kind)) for kind in (ABORTED, TIMES)] == expected, (change, seed)


def test_a_crash_while_a_trusted_segment_is_repaired_leaves_no_damage_behind(randomised: int) -> None:
    def crashed() -> CrashingFiles:
        disk = closed_disk()
        disk.remove(path(10, INDEX))
        make_partition(disk, {10: with_flipped_bit(SOUND[10], SIZE + 70)})
        return disk

    finished = crashed()
    begin = finished.changes
    close(load(finished, recovery_point=30))
    for change in range(finished.changes - begin):
        for seed in range(randomised):
            disk = crashed()
            disk.lose_power_after(change)
            with suppress(PowerLost):
                close(load(disk, recovery_point=30))
            disk = disk.after_power_loss(seed)
            close(load(disk, recovery_point=30))
            assert offsets_on_disk(disk) == offsets_on_disk(finished), (change, seed)
            assert names(disk) == names(finished), (change, seed)


def test_a_segment_before_the_recovery_point_that_cannot_be_walked_is_recovered() -> None:
    # Nothing but its end is looked at, and the way there is blocked.
    disk = closed_disk()
    make_partition(disk, {10: b"\xff" * SIZE + SOUND[10][SIZE:]})
    disk.write(path(10, INDEX), b"", sync=True)
    assert load(disk, recovery_point=20).end_offset == 30
    assert quarantined(disk)
