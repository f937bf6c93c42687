"""What becomes of the files that a crash leaves, in every combination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from duralog.columnar.pieces import ByteSource, Piece, read_pieces
from duralog.errors import CorruptRecord, StorageError
from duralog.format.filenames import FileKind, FileState
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.disk.rehearsal import RehearsalFileSystem
from duralog.storage.disk.shadow import ShadowFileSystem
from duralog.storage.recovery import leftovers, segment_rewrite
from duralog.storage.recovery.leftovers import STAGING_FOLDER, settle_leftovers
from duralog.storage.recovery.segment_rewrite import ByteRange, NewSegment, rewrite_segment
from tests.support.faults.crashing_files import CrashingFiles, PowerLost
from tests.support.storage.recovery_files import FOLDER, batch, batches, make_partition, names, offsets_on_disk, path

OLD = {0: batches((0, 2, 4)), 10: batches((10, 12)), 20: batches((20, 22)), 30: batches((30, 32))}
COMPACTED = batches((4, 12, 22))
"""What compaction made of the segments at 0, 10 and 20."""

INDEX, TIMES, ABORTED, SNAPSHOT = (
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
    FileKind.PRODUCER_SNAPSHOT,
)
CLEANED, SWAP, DELETED = FileState.CLEANED, FileState.SWAP, FileState.DELETED


def disk_with_old() -> CrashingFiles:
    disk = CrashingFiles()
    make_partition(disk, OLD)
    for base_offset in OLD:
        for kind in (INDEX, TIMES):
            disk.write(path(base_offset, kind), b"old", sync=True)
    disk.write(path(20, SNAPSHOT), b"", sync=True)
    disk.sync_folder(FOLDER)
    return disk


def test_a_folder_without_leftovers_is_listed_and_left_alone() -> None:
    disk = disk_with_old()
    changes = disk.changes
    assert {entry.name for entry in settle_leftovers(disk, FOLDER)} == set(names(disk))
    assert disk.changes == changes


def test_what_the_tasks_of_a_job_have_written_goes() -> None:
    """On disk for good, and only from sight for who reads."""
    disk = disk_with_old()
    staged = f"{FOLDER}/{STAGING_FOLDER}"
    before = names(disk)
    disk.make_folder(staged)
    disk.write(f"{staged}/0.marks", b"marks", sync=True)
    assert STAGING_FOLDER not in {entry.name for entry in settle_leftovers(ShadowFileSystem(disk), FOLDER)}
    assert disk.exists(f"{staged}/0.marks")
    settle_leftovers(disk, FOLDER)
    assert not disk.exists(staged)
    assert names(disk) == before


def test_an_empty_log_does_not_keep_the_indexes_of_the_one_that_it_replaces() -> None:
    disk = disk_with_old()
    disk.write(path(0, ABORTED), b"old", sync=True)
    for kind in (FileKind.LOG, INDEX, TIMES):
        disk.write(path(0, kind, SWAP), b"", sync=True)
    settle_leftovers(disk, FOLDER)
    assert not disk.exists(path(0, ABORTED))
    assert disk.read_all(path(0)) == disk.read_all(path(0, TIMES)) == b""
    # What cannot be told apart from a new one that was renamed already makes recovery build it again.
    assert not disk.exists(path(0, INDEX))
    assert disk.read_all(path(10, INDEX)) == b"old"


def test_deleted_files_go() -> None:
    disk = disk_with_old()
    before = names(disk)
    for kind in FileKind:
        disk.write(path(5, kind, DELETED), b"x", sync=True)
    disk.write(f"{FOLDER}/00000000000000000000-0000000001.checkpoint.deleted", b"x", sync=True)
    settle_leftovers(disk, FOLDER)
    assert set(names(disk)) - set(before) == {"00000000000000000000-0000000001.checkpoint.deleted"}


def test_indexes_without_a_log_go_and_snapshots_stay() -> None:
    disk = disk_with_old()
    before = names(disk)
    for kind in (INDEX, TIMES, ABORTED, SNAPSHOT):
        disk.write(path(15, kind), b"x", sync=True)
    settle_leftovers(disk, FOLDER)
    assert set(names(disk)) - set(before) == {"00000000000000000015.snapshot"}


def test_an_unfinished_compaction_is_undone() -> None:
    disk = disk_with_old()
    before = names(disk)
    disk.write(path(0, state=CLEANED), COMPACTED[:50], sync=True)
    disk.write(path(0, INDEX, CLEANED), b"", sync=True)
    settle_leftovers(disk, FOLDER)
    assert names(disk) == before


def test_a_finished_compaction_replaces_its_range() -> None:
    disk = disk_with_old()
    disk.write(path(0, state=SWAP), COMPACTED, sync=True)
    disk.write(path(0, INDEX, SWAP), b"new", sync=True)
    settle_leftovers(disk, FOLDER)
    assert offsets_on_disk(disk) == {0: [(4, 5), (12, 13), (22, 23)], 30: [(30, 31), (32, 33)]}
    assert disk.read_all(path(0, INDEX)) == b"new"
    # Neither the old time index, nor the snapshot at a base that is gone, nor any file of 10 and 20.
    assert names(disk) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000030.index",
        "00000000000000000030.log",
        "00000000000000000030.timeindex",
    ]


def test_a_swapped_log_may_have_lost_its_original_and_its_siblings() -> None:
    disk = CrashingFiles()
    make_partition(disk, {})
    disk.write(path(0, state=SWAP), COMPACTED, sync=True)
    settle_leftovers(disk, FOLDER)
    assert names(disk) == ["00000000000000000000.log"]


def test_an_empty_result_replaces_the_segment_of_its_name_only() -> None:
    # As in Kafka: an empty log covers no offsets.
    disk = disk_with_old()
    disk.write(path(10, state=SWAP), b"", sync=True)
    settle_leftovers(disk, FOLDER)
    assert offsets_on_disk(disk)[10] == []
    assert offsets_on_disk(disk)[20] == [(20, 21), (22, 23)]


@pytest.mark.parametrize("finished", [FileKind.LOG, INDEX, TIMES])
def test_a_swap_that_was_being_renamed_is_finished(finished: FileKind) -> None:
    # The log has its plain name already, an index still waits; or the other way round.
    disk = CrashingFiles()
    make_partition(disk, {})
    for kind, content in ((FileKind.LOG, COMPACTED), (INDEX, b"i"), (TIMES, b"t")):
        disk.write(path(0, kind, FileState.LIVE if kind is finished else SWAP), content, sync=True)
    settle_leftovers(disk, FOLDER)
    assert disk.read_all(path(0)) == COMPACTED
    left = {"00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"}
    # An index that lost its log to the new one is in the range that goes, and is built again.
    assert left - set(names(disk)) <= {path(0, finished).rsplit("/", 1)[1]}


def test_a_transaction_index_that_may_have_been_the_new_one_is_built_again() -> None:
    disk = CrashingFiles()
    make_partition(disk, {})
    disk.write(path(0, ABORTED), b"", sync=True)
    disk.write(path(0, INDEX, SWAP), b"", sync=True)
    disk.write(path(0, state=SWAP), COMPACTED, sync=True)
    settle_leftovers(disk, FOLDER)
    # Without an offset index, the segment is recovered when it is loaded.
    assert names(disk) == ["00000000000000000000.log"]


def test_a_crash_while_renaming_costs_no_transaction_index(randomised: int) -> None:
    # A segment that comes out of it with an offset index is trusted.
    def swapped() -> CrashingFiles:
        disk = disk_with_old()
        for kind in (ABORTED, INDEX, TIMES):
            disk.write(path(0, kind, SWAP), b"", sync=True)
        disk.write(path(0, state=SWAP), COMPACTED, sync=True)
        disk.sync_folder(FOLDER)
        return disk

    finished = swapped()
    begin = finished.changes
    settle_leftovers(finished, FOLDER)
    for change in range(finished.changes - begin):
        for seed in range(4 * randomised):
            disk = swapped()
            disk.lose_power_after(change)
            with suppress(PowerLost):
                settle_leftovers(disk, FOLDER)
            disk = disk.after_power_loss(seed)
            settle_leftovers(disk, FOLDER)
            assert names(disk) == names(finished), (change, seed)


@pytest.mark.parametrize(("cleaned", "swapped"), [(0, 10), (0, 0), (10, 10), (10, 30)])
def test_a_swap_at_or_above_an_unfinished_file_goes(cleaned: int, swapped: int) -> None:
    disk = disk_with_old()
    before = names(disk)
    disk.write(path(cleaned, INDEX, CLEANED), b"", sync=True)
    disk.write(path(swapped, state=SWAP), batches((swapped,)), sync=True)
    settle_leftovers(disk, FOLDER)
    assert names(disk) == before


def test_a_swap_below_an_unfinished_file_wins() -> None:
    disk = disk_with_old()
    disk.write(path(0, state=SWAP), COMPACTED, sync=True)
    disk.write(path(30, state=CLEANED), b"", sync=True)
    settle_leftovers(disk, FOLDER)
    assert list(offsets_on_disk(disk)) == [0, 30]


@pytest.mark.parametrize("states", list(product([None, *FileState], repeat=2)))
def test_every_combination_settles_permanently_and_the_same_in_memory(
    states: tuple[FileState | None, FileState | None],
) -> None:
    disk = disk_with_old()
    for kind, state in zip((FileKind.LOG, INDEX), states, strict=True):
        if state is not None:
            disk.write(path(10, kind, state), batches((10, 14)) if kind is FileKind.LOG else b"", sync=True)
    shadow = ShadowFileSystem(disk)
    before = disk.contents(FOLDER)
    in_memory = {entry.name for entry in settle_leftovers(shadow, FOLDER)}
    assert disk.contents(FOLDER) == before
    assert {entry.name for entry in settle_leftovers(disk, FOLDER)} == in_memory == set(names(disk))
    assert {name: shadow.read_all(f"{FOLDER}/{name}") for name in in_memory} == {
        name: disk.read_all(f"{FOLDER}/{name}") for name in names(disk)
    }
    changes = disk.changes
    settle_leftovers(disk, FOLDER)
    assert disk.changes == changes


def rewrite(disk: CrashingFiles) -> None:
    """The segment at 10 is split in three; one batch of it is left out."""
    file = disk.open(path(10))
    size = len(batches((10,)))
    rewrite_segment(
        disk,
        FOLDER,
        10,
        [
            NewSegment(10, [ByteRange(file, 0, size)]),
            NewSegment(14, [ByteRange(file, 2 * size, 3 * size)]),
            NewSegment(16, [ByteRange(file, 3 * size, 5 * size)]),
        ],
        modified_ms=1_600_000_000_000,
    )


def disk_to_rewrite() -> CrashingFiles:
    disk = CrashingFiles()
    make_partition(disk, {**OLD, 10: batches((10, 12, 14, 16, 18))})
    disk.write(path(10, INDEX), b"", sync=True)
    disk.sync_folder(FOLDER)
    return disk


def test_a_segment_is_rewritten_as_several() -> None:
    disk = disk_to_rewrite()
    rewrite(disk)
    found = offsets_on_disk(disk)
    assert [found[base] for base in (10, 14, 16)] == [[(10, 11)], [(14, 15)], [(16, 17), (18, 19)]]
    assert [found[base] for base in (0, 20, 30)] == [
        [(0, 1), (2, 3), (4, 5)],
        [(20, 21), (22, 23)],
        [(30, 31), (32, 33)],
    ]
    assert not disk.exists(path(10, INDEX))
    entry = disk.entry(path(14))
    assert entry is not None
    assert entry.modified_ms == 1_600_000_000_000


@pytest.mark.parametrize("piece_bytes", [1, 50, 1 << 20])
def test_pieces_that_are_read_ahead_stay_in_order(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(segment_rewrite, "_COPIED_AT_ONCE", piece_bytes)
    disk = disk_to_rewrite()
    rewrite(disk)
    found = offsets_on_disk(disk)
    assert [found[base] for base in (10, 14, 16)] == [[(10, 11)], [(14, 15)], [(16, 17), (18, 19)]]


def test_a_range_that_cannot_be_read_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_rewrite, "_COPIED_AT_ONCE", 50)
    disk = disk_to_rewrite()
    before = offsets_on_disk(disk)
    file = disk.open(path(10))
    with pytest.raises(CorruptRecord):
        rewrite_segment(disk, FOLDER, 10, [NewSegment(10, [ByteRange(file, 0, file.size + 100)])])
    settle_leftovers(disk, FOLDER)
    assert offsets_on_disk(disk) == before


@pytest.mark.parametrize("is_last", [True, False])
def test_a_new_last_log_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_last: bool) -> None:
    folder = str(tmp_path / "t-0")
    disk = LocalFileSystem()
    data = b"".join(batch(offset, 1, value=bytes(1 << 20)) for offset in range(16))
    make_partition(disk, {0: batches((0,))} | ({} if is_last else {8: batches((8,)), 20: batches((20,))}), folder)
    disk.write(path(0, state=FileState.SWAP, folder=folder), data, sync=True)
    read_bytes = 0

    def counted(file: ByteSource, **options: Any) -> Iterator[Piece]:
        nonlocal read_bytes
        for piece in read_pieces(file, **options):
            read_bytes += len(piece.data)
            yield piece

    monkeypatch.setattr(leftovers, "read_pieces", counted)
    settle_leftovers(disk, folder)
    assert (read_bytes < len(data)) == is_last
    left = {entry.name for entry in disk.list(folder)}
    assert left == {path(base, folder="").strip("/") for base in ((0,) if is_last else (0, 20))}


def test_a_rewrite_that_loses_power_is_done_or_undone_as_a_whole() -> None:
    finished = disk_to_rewrite()
    before = offsets_on_disk(finished)
    begin = finished.changes
    rewrite(finished)
    after = offsets_on_disk(finished)
    seen = set()
    for change in range(finished.changes - begin + 1):
        for seed in range(4):
            disk = disk_to_rewrite()
            disk.lose_power_after(change)
            try:
                rewrite(disk)
            except PowerLost:
                disk = disk.after_power_loss(seed)
            settle_leftovers(disk, FOLDER)
            found = offsets_on_disk(disk)
            assert found in (before, after), (change, seed)
            seen.add(found == after)
    assert seen == {True, False}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_in_place_of_a_log_is_refused_and_costs_nothing(tmp_path: Path, read_only: bool) -> None:
    files = LocalFileSystem()
    (tmp_path / "00000000000000000000.log").mkdir()
    (tmp_path / "00000000000000000000.index").write_bytes(b"")
    (tmp_path / "00000000000000000005.log").write_bytes(b"")
    with pytest.raises(StorageError, match=r"0\.log: cannot open: neither a regular file nor a link to one"):
        settle_leftovers(ShadowFileSystem(files) if read_only else files, str(tmp_path))
    assert (tmp_path / "00000000000000000000.index").exists()


@pytest.mark.parametrize("seen_through", [lambda fs: fs, ShadowFileSystem, RehearsalFileSystem])
def test_a_log_on_a_disk_that_is_not_mounted_is_not_taken_for_a_deleted_one(
    tmp_path: Path, seen_through: Callable[[FileSystem], FileSystem]
) -> None:
    folder, other_disk = tmp_path / "t-0", tmp_path / "disk"
    folder.mkdir()
    (folder / "00000000000000000000.log").symlink_to(other_disk / "0.log")
    (folder / "00000000000000000000.index").write_bytes(b"")
    with pytest.raises(StorageError, match="neither a regular file nor a link to one"):
        settle_leftovers(seen_through(LocalFileSystem()), str(folder))
    other_disk.mkdir()
    (other_disk / "0.log").write_bytes(b"")
    assert len(settle_leftovers(seen_through(LocalFileSystem()), str(folder))) == 2
