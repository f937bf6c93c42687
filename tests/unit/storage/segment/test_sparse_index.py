"""The sparse indexes: their files byte for byte, their lookups against a plain list, and readers that need no lock."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import StorageError
from duralog.format.index_entries import OffsetIndexEntry, TimeIndexEntry, encode_offset_index, encode_time_index
from duralog.storage.disk.file_system import Entry, LocalFileSystem
from duralog.storage.segment.sparse_index import OffsetIndex, TimeIndex

FS = LocalFileSystem()
BASE = 1000


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "00000000000000001000.index")


def offset_index(path: str, entries: list[tuple[int, int]], max_bytes: int = 1 << 16) -> OffsetIndex:
    index = OffsetIndex(FS, path, BASE, max_bytes=max_bytes)
    index.reserve(len(entries))
    for offset, position in entries:
        index.append(offset, position)
    return index


def time_index(path: str, entries: list[tuple[int, int]], max_bytes: int = 1 << 16) -> TimeIndex:
    index = TimeIndex(FS, path, BASE, max_bytes=max_bytes)
    index.reserve(len(entries))
    for timestamp, offset in entries:
        index.maybe_append(timestamp, offset)
    return index


@pytest.mark.parametrize(("kind", "entry_bytes"), [(OffsetIndex, 8), (TimeIndex, 12)])
def test_the_file_is_full_size_while_it_grows_and_as_long_as_its_entries_after(
    path: str, kind: Callable[..., OffsetIndex | TimeIndex], entry_bytes: int
) -> None:
    index = kind(FS, path, BASE, max_bytes=1000)
    assert index.entry_count == 0
    assert not os.path.exists(path)
    index.resize()
    assert os.path.getsize(path) == 1000 // entry_bytes * entry_bytes
    index.trim()
    assert os.path.getsize(path) == 0
    index.resize()
    assert os.path.getsize(path) == 1000 // entry_bytes * entry_bytes


def test_entries_are_those_of_the_format(path: str) -> None:
    index = offset_index(path, [(1005, 77), (1007, 4200), (BASE + 2**31 - 1, 2**31 - 1)])
    index.trim()
    expected = [OffsetIndexEntry(1005, 77), OffsetIndexEntry(1007, 4200), OffsetIndexEntry(BASE + 2**31 - 1, 2**31 - 1)]
    assert Path(path).read_bytes() == encode_offset_index(expected, BASE)
    assert list(index.entries()) == expected
    assert index.last == expected[-1]


def test_time_entries_are_those_of_the_format(path: str) -> None:
    index = time_index(path, [(0, 1000), (5, 1003), (2**62, 1003)])
    index.trim()
    expected = [TimeIndexEntry(0, 1000), TimeIndexEntry(5, 1003), TimeIndexEntry(2**62, 1003)]
    assert Path(path).read_bytes() == encode_time_index(expected, BASE)
    assert list(index.entries()) == expected
    assert index.last == expected[-1]


def test_only_a_larger_timestamp_is_worth_an_entry(path: str) -> None:
    index = time_index(path, [(-1, 1000), (5, 1001), (5, 1002), (4, 1003), (6, 1004)])
    assert list(index.entries()) == [TimeIndexEntry(5, 1001), TimeIndexEntry(6, 1004)]
    index.trim()
    index = TimeIndex(FS, path, BASE, max_bytes=1 << 16)
    index.reserve(2)
    index.maybe_append(6, 1005)
    index.maybe_append(7, 1006)
    assert list(index.entries()) == [TimeIndexEntry(5, 1001), TimeIndexEntry(6, 1004), TimeIndexEntry(7, 1006)]


rising = st.lists(st.integers(0, 500), max_size=60, unique=True).map(sorted)


@given(rising, rising)
def test_lookups_give_the_greatest_entry_not_above(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int], positions: list[int]
) -> None:
    path = str(tmp_path_factory.mktemp("index") / "i")
    entries = [(BASE + offset, position) for offset, position in zip(offsets, positions, strict=False)]
    index = offset_index(path, entries)
    for target in range(-1, 502):
        below = [entry for entry in entries if entry[0] <= BASE + target]
        assert index.lookup(BASE + target) == OffsetIndexEntry(*(below[-1] if below else (BASE, 0)))
        before = [entry for entry in entries if entry[1] <= target]
        assert index.lookup_position(target) == OffsetIndexEntry(*(before[-1] if before else (BASE, 0)))
        behind = [entry for entry in entries if entry[1] >= target]
        assert index.upper_bound_by_position(target) == (OffsetIndexEntry(*behind[0]) if behind else None)


@given(rising)
def test_time_lookups_give_the_greatest_entry_not_above(
    tmp_path_factory: pytest.TempPathFactory, timestamps: list[int]
) -> None:
    path = str(tmp_path_factory.mktemp("index") / "i")
    entries = [(timestamp, BASE + place // 2) for place, timestamp in enumerate(timestamps)]
    index = time_index(path, entries)
    for target in range(-1, 502):
        below = [entry for entry in entries if entry[0] <= target]
        assert index.lookup(target) == TimeIndexEntry(*(below[-1] if below else (-1, BASE)))
        before = [entry for entry in entries if entry[1] <= BASE + target]
        assert index.lookup_offset(BASE + target) == TimeIndexEntry(*(before[-1] if before else (-1, BASE)))


@given(rising, st.integers(0, 502))
def test_truncation_drops_the_offset_and_above(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("index")
    by_offset = offset_index(str(folder / "i"), [(BASE + offset, 10 * offset) for offset in offsets])
    by_time = time_index(str(folder / "t"), [(7 * offset, BASE + offset) for offset in offsets])
    by_offset.truncate_to(BASE + cut)
    by_time.truncate_to(BASE + cut)
    kept = [offset for offset in offsets if offset < cut]
    assert [entry.offset for entry in by_offset.entries()] == [BASE + offset for offset in kept]
    assert [entry.offset for entry in by_time.entries()] == [BASE + offset for offset in kept]
    if offsets:
        # Both are ready for the next append, at full size.
        assert (folder / "i").stat().st_size == 1 << 16
        by_offset.append(BASE + 600, 6000)
        by_time.maybe_append(7 * 600, BASE + 600)
        assert by_offset.last == OffsetIndexEntry(BASE + 600, 6000)
        assert by_time.last == TimeIndexEntry(7 * 600, BASE + 600)


def test_a_full_index_says_so_and_leaves_entries_out(path: str) -> None:
    index = offset_index(path, [(1001, 1), (1002, 2)], max_bytes=24)
    assert not index.is_full
    index.append(1003, 3)
    assert index.is_full
    index.append(1004, 4)
    assert index.last == OffsetIndexEntry(1003, 3)


def test_the_last_place_of_a_time_index_is_for_the_final_entry(path: str) -> None:
    index = time_index(path, [(1, 1001)], max_bytes=36)
    assert not index.is_full
    index.maybe_append(2, 1002)
    assert index.is_full
    index.maybe_append(3, 1003)
    assert index.last == TimeIndexEntry(2, 1002)
    index.maybe_append(3, 1003, is_final=True)
    index.maybe_append(4, 1004, is_final=True)
    assert index.last == TimeIndexEntry(3, 1003)


def test_an_index_without_room_for_any_entry_is_full_from_the_start(path: str) -> None:
    index = OffsetIndex(FS, path, BASE, max_bytes=7)
    assert index.is_full
    index.reserve(5)
    index.append(1001, 1)
    assert index.entry_count == 0
    index.trim()
    assert os.path.getsize(path) == 0


def test_zeros_behind_the_entries_are_no_entries(path: str) -> None:
    entries = [(1001, 5), (1002, 9)]
    offset_index(path, entries)
    assert os.path.getsize(path) == 1 << 16
    for index in (OffsetIndex(FS, path, BASE), OffsetIndex(FS, path, BASE, read_only=True)):
        assert index.last == OffsetIndexEntry(1002, 9)
        assert index.entry_count == 2


def test_the_last_entry_of_an_index_is_known_without_opening_it(path: str) -> None:
    offset_index(path, [(1001, 5), (1002, 9)]).trim()
    index = OffsetIndex(FS, path, BASE)
    assert index.last == OffsetIndexEntry(1002, 9)
    assert index._table is None
    time = TimeIndex(FS, path + ".time", BASE, rebuild=lambda: encode_time_index([TimeIndexEntry(0, BASE)], BASE))
    assert time.last == TimeIndexEntry(0, BASE)  # There was no file, so it was built.
    assert TimeIndex(FS, path + ".time", BASE).last == TimeIndexEntry(0, BASE)


GOOD = encode_offset_index([OffsetIndexEntry(1001, 5), OffsetIndexEntry(1002, 9), OffsetIndexEntry(1005, 30)], BASE)
WRONG = {
    "missing": None,
    "ends inside an entry": GOOD[:-1],
    "offsets fall": GOOD[8:16] + GOOD[:8],
    "positions fall": encode_offset_index([OffsetIndexEntry(1001, 5), OffsetIndexEntry(1002, 4)], BASE),
    "below the base": b"\xff" * 8,
    "garbage": bytes(range(256)) * 3,
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("read_only", [False, True])
def test_an_index_that_cannot_be_right_is_built_again(path: str, wrong: str, read_only: bool) -> None:
    before = WRONG[wrong]
    if before is not None:
        Path(path).write_bytes(before)
    index = OffsetIndex(FS, path, BASE, read_only=read_only, rebuild=lambda: GOOD)
    assert index.lookup(1004) == OffsetIndexEntry(1002, 9)
    assert index.as_bytes() == GOOD
    on_disk = Path(path).read_bytes() if os.path.exists(path) else None
    assert on_disk == (before if read_only else GOOD)


def test_an_index_of_times_that_do_not_rise_is_built_again(path: str) -> None:
    good = encode_time_index([TimeIndexEntry(5, 1001)], BASE)
    for wrong in ([(5, 1001), (5, 1002)], [(5, 1002), (6, 1001)], [(2**63 - 1, 1001), (-(2**63), 1002)]):
        Path(path).write_bytes(encode_time_index([TimeIndexEntry(*entry) for entry in wrong], BASE))
        assert TimeIndex(FS, path, BASE, rebuild=lambda: good).as_bytes() == good


def test_a_read_only_index_is_not_written(path: str) -> None:
    Path(path).write_bytes(GOOD)
    index = OffsetIndex(FS, path, BASE, read_only=True)
    for write in (index.resize, lambda: index.reserve(1), lambda: index.truncate_to(0)):
        with pytest.raises(StorageError, match="opened for reading"):
            write()
    index.rewrite(b"")
    assert index.entry_count == 0
    assert Path(path).read_bytes() == GOOD


def test_the_last_entry_of_an_index_that_its_owner_cuts_at_this_moment(path: str) -> None:
    class Late(LocalFileSystem):
        """Reports the size that the file had before it was truncated."""

        def entry(self, path: str) -> Entry | None:
            found = super().entry(path)
            return None if found is None else found._replace(size=found.size + 80)

    Path(path).write_bytes(GOOD)
    assert OffsetIndex(Late(), path, BASE, read_only=True).last == OffsetIndex(FS, path, BASE).last


def test_an_index_that_is_withheld_has_its_name_when_it_is_released(path: str) -> None:
    Path(path).write_bytes(GOOD)
    index = OffsetIndex(FS, path, BASE)
    index.withhold()
    index.rewrite(GOOD[:8])
    index.flush()
    assert (Path(path).exists(), index.entry_count) == (False, 1)
    index.release()
    assert Path(path).read_bytes() == GOOD[:8]
    assert [file.name for file in Path(path).parent.iterdir()] == [Path(path).name]
    with pytest.raises(StorageError, match="opened for reading"):
        OffsetIndex(FS, path, BASE, read_only=True).withhold()


def test_a_read_only_index_outlives_its_file(path: str) -> None:
    Path(path).write_bytes(GOOD)
    index = OffsetIndex(FS, path, BASE, read_only=True)
    assert index.entry_count == 3
    os.truncate(path, 0)
    assert index.lookup(1005) == OffsetIndexEntry(1005, 30)


def test_no_room_on_the_disk_changes_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = offset_index(path, [(1001, 5)], max_bytes=10 << 20)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(StorageError, match="No space left"):
        index.reserve(1 << 20)
    assert index.last == OffsetIndexEntry(1001, 5)


def test_flushing_syncs_once_for_what_was_written(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    index = offset_index(path, [(1001, 5)])
    index.flush()
    assert synced == []  # The mapping has a way of its own.
    assert not index._is_unsynced
    index.trim()
    index.flush()
    assert len(synced) == 1
    index.flush()
    assert len(synced) == 1


def test_a_flush_that_fails_is_done_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index = offset_index(path, [(1001, 5)])
    index.trim()
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        with pytest.raises(StorageError, match="cannot sync: broken"):
            index.flush()
    assert index._is_unsynced
    index.flush()
    assert not index._is_unsynced


HELD_TABLE = """
import sys
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.segment.sparse_index import OffsetIndex

index = OffsetIndex(LocalFileSystem(), sys.argv[1], 0, max_bytes=1 << 20)
index.reserve(100_000)
for n in range(100_000):
    index.append(n, n)
held = index._opened()
index.truncate_to(10)
index.trim()
assert index.entry_count == 10
print(sum(held.view[: held.count * 8]) > 0)
"""


def test_a_reader_in_the_middle_of_a_search_survives_truncation(path: str) -> None:
    """Touching a page behind the end of a mapped file would end the process, so this is one of its own."""
    done = subprocess.run([sys.executable, "-c", HELD_TABLE, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert os.path.getsize(path) == 80


def test_readers_see_whole_entries_while_one_appends(path: str) -> None:
    index = OffsetIndex(FS, path, 0, max_bytes=1 << 20)
    index.resize()
    last = 50_000
    wrong: list[OffsetIndexEntry] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            entry = index.lookup(last)
            if entry.position != 3 * entry.offset:
                wrong.append(entry)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    index.reserve(last)
    for offset in range(1, last + 1):
        index.append(offset, 3 * offset)
    index.trim()
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert index.lookup(last) == OffsetIndexEntry(last, 3 * last)
