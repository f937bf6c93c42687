"""The disk in memory: it must behave like the real one until it is set to fail, and then fail as specified."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from duralog.errors import CorruptRecord, StorageError, StoreLocked
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from tests.support.faults.crashing_files import CrashingFiles, PowerLost
from tests.support.faults.power_loss import SECTOR_BYTES, file_after_power_loss


@pytest.fixture(params=["local", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    """A file system and a folder in it: each test of this fixture holds for the real disk and for ours."""
    if request.param == "local":
        return LocalFileSystem(), str(tmp_path)
    files = CrashingFiles()
    files.make_folder("/data")
    return files, "/data"


def test_files_are_appended_to_read_and_cut(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    path = f"{folder}/log"
    with pytest.raises(StorageError, match=r"log: cannot open: No such file"):
        fs.open(path, writable=True)
    file = fs.open(path, writable=True, create=True)
    assert file.append(b"abc", bytearray(b"def"), memoryview(b"gh")) == 8
    reader = fs.open(path)
    assert (file.size, reader.size) == (8, 8)
    assert reader.read(2, 4) == b"cdef"
    target = bytearray(3)
    reader.read_into(5, memoryview(target))
    assert target == b"fgh"
    with pytest.raises(CorruptRecord, match="became shorter"):
        reader.read(6, 3)
    file.truncate(4)
    file.append(b"X")
    assert fs.read_all(path) == b"abcdX"
    with pytest.raises(StorageError):
        reader.append(b"no")
    file.close()
    fs.truncate(path, 2)
    assert fs.read_all(path) == b"ab"


def test_allocated_room_is_behind_the_contents(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    file = fs.open(f"{folder}/log", writable=True, create=True)
    file.append(b"abc")
    file.allocate(10)
    assert file.size == 3
    file.append(b"de")
    assert fs.read_all(f"{folder}/log") == b"abcde" + bytes(5)
    file.truncate(file.size)
    assert fs.read_all(f"{folder}/log") == b"abcde"


def test_a_mapping_is_shared_with_readers(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    path = f"{folder}/index"
    mapping = fs.map(path, 16)
    mapping.reserve(8)
    mapping.view[:8] = b"entries!"
    mapping.sync()
    assert fs.read_all(path) == b"entries!" + bytes(8)
    fs.truncate(path, 8)
    assert fs.map(path, 12).view[:] == b"entries!" + bytes(4)
    assert len(fs.map(path, 0).view) == 0


def test_a_reader_keeps_a_file_that_is_gone(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    fs.write(f"{folder}/log", b"old", sync=False)
    reader = fs.open(f"{folder}/log")
    fs.rename(f"{folder}/log", f"{folder}/log.deleted")
    fs.remove(f"{folder}/log.deleted")
    fs.remove(f"{folder}/log.deleted")
    fs.write(f"{folder}/log", b"new", sync=True)
    assert reader.read(0, 3) == b"old"
    assert fs.read_all(f"{folder}/log") == b"new"


def test_folders(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    fs.make_folder(f"{folder}/a/b")
    fs.make_folder(f"{folder}/a")
    fs.replace(f"{folder}/a/file", b"12345")
    fs.set_modified_ms(f"{folder}/a/file", 1234)
    assert sorted((e.name, e.is_folder) for e in fs.list(f"{folder}/a")) == [("b", True), ("file", False)]
    entry = fs.entry(f"{folder}/a/file")
    assert entry is not None
    assert (entry.name, entry.size, entry.modified_ms, entry.is_folder) == ("file", 5, 1234, False)
    assert fs.entry(f"{folder}/a/none") is None
    assert not fs.exists(f"{folder}/a/file/below")
    fs.rename(f"{folder}/a", f"{folder}/c")
    assert fs.exists(f"{folder}/c/file")
    assert not fs.exists(f"{folder}/a")
    fs.remove_folder(f"{folder}/c")
    fs.remove_folder(f"{folder}/c")
    assert fs.list(folder) == []
    for refused in (
        lambda: fs.list(f"{folder}/c"),
        lambda: fs.rename(f"{folder}/c", f"{folder}/d"),
        lambda: fs.read_all(f"{folder}/c"),
        lambda: fs.truncate(f"{folder}/c", 0),
        lambda: fs.sync_folder(f"{folder}/c"),
    ):
        with pytest.raises(StorageError, match="No such file"):
            refused()


def test_a_lock_keeps_others_out(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    lock = fs.lock(f"{folder}/.lock")
    with pytest.raises(StoreLocked):
        fs.lock(f"{folder}/.lock")
    lock.release()
    fs.lock(f"{folder}/.lock").release()


def outcomes(act: Callable[[CrashingFiles], None], seeds: int = 200) -> list[CrashingFiles]:
    files = CrashingFiles()
    files.make_folder("/data")
    files.sync_folder("/")
    act(files)
    return [files.after_power_loss(seed) for seed in range(seeds)]


def test_what_was_synced_survives_and_the_rest_may_not() -> None:
    def act(files: CrashingFiles) -> None:
        file = files.open("/data/log", writable=True, create=True)
        file.append(b"synced")
        file.sync()
        files.sync_folder("/data")
        file.append(b"not synced")

    found = {disk.read_all("/data/log") for disk in outcomes(act)}
    assert all(content.startswith(b"synced") for content in found)
    assert {b"synced", b"syncednot synced", b"syncednot", b"syncedn"} <= found
    assert any(content != b"syncednot synced"[: len(content)] for content in found), "no hole was ever found"


def test_names_need_a_sync_of_their_folder() -> None:
    def act(files: CrashingFiles) -> None:
        for name in ("a", "b"):
            files.write(f"/data/{name}", name.encode(), sync=True)

    found = {tuple(sorted(disk.contents())) for disk in outcomes(act)}
    assert found == {(), ("/data/a",), ("/data/b",), ("/data/a", "/data/b")}


def test_renames_happen_or_not_but_never_lose_a_file() -> None:
    def act(files: CrashingFiles) -> None:
        files.replace("/data/log", b"old")
        files.rename("/data/log", "/data/log.deleted")
        files.write("/data/log", b"new", sync=True)

    found = {tuple(sorted(disk.contents().items())) for disk in outcomes(act)}
    old, moved, new = ("/data/log", b"old"), ("/data/log.deleted", b"old"), ("/data/log", b"new")
    assert found == {(old,), (moved,), (new, moved)}


def test_replace_leaves_the_old_contents_or_the_new_at_every_change() -> None:
    files = CrashingFiles(write_back=0.5)
    files.make_folder("/data")
    files.sync_folder("/")
    files.replace("/data/checkpoint", b"old" * 1000)
    done = False
    found = set()

    def look() -> None:
        for seed in range(50):
            found.add((done, files.after_power_loss(seed).read_all("/data/checkpoint")[:3]))

    files.on_change = look
    files.replace("/data/checkpoint", b"new" * 1000)
    assert found == {(False, b"old"), (False, b"new")}
    done = True
    found.clear()
    look()
    assert found == {(True, b"new")}


def test_a_kill_loses_nothing_but_syncs_nothing() -> None:
    files = CrashingFiles()
    files.write("/a", b"abc", sync=False)
    killed = files.after_kill()
    assert killed.contents() == {"/a": b"abc"}
    assert {tuple(killed.after_power_loss(seed).contents()) for seed in range(20)} == {(), ("/a",)}


def test_damage_stays_within_what_was_not_synced() -> None:
    random = Random(1)
    kinds: set[object] = set()
    for _ in range(2000):
        synced = random.randbytes(random.randrange(3 * SECTOR_BYTES))
        written = synced[: random.randrange(len(synced) + 1)] if random.random() < 0.3 else synced
        written += random.randbytes(random.randrange(4 * SECTOR_BYTES))
        found = file_after_power_loss(synced, written, random)
        assert min(len(synced), len(written)) <= len(found) <= max(len(synced), len(written))
        for old, new, byte in zip(synced, written, found, strict=False):
            assert byte in (old, new)
        kinds.add(found == synced)
        kinds.add((found == written[: len(found)], len(found) == len(written)))
    assert len(kinds) == 6


def test_power_is_lost_at_the_chosen_change() -> None:
    files = CrashingFiles()
    file = files.open("/log", writable=True, create=True)
    files.lose_power_after(1)
    file.append(b"1")
    with pytest.raises(PowerLost):
        file.append(b"2")
    with pytest.raises(PowerLost):
        files.list("/")
    assert files.contents() == {"/log": b"1"}


def test_refusals_name_the_file_the_operation_and_the_reason() -> None:
    files = CrashingFiles()
    files.write("/a.log", b"abc", sync=True)
    files.refuse(errno.EIO, operation="rename", path=".log")
    with pytest.raises(StorageError, match=r"^/a.log: cannot rename to b: Input/output error$") as caught:
        files.rename("/a.log", "/b")
    assert isinstance(caught.value.__cause__, OSError)
    files.rename("/a.log", "/b.log")
    files.refuse(errno.EIO, operation="read", skip=1, times=None)
    files.read_all("/b.log")
    for _ in range(3):
        with pytest.raises(StorageError):
            files.read_all("/b.log")
    files.stop_refusing()
    assert files.read_all("/b.log") == b"abc"


@pytest.mark.parametrize("cut_fails", [False, True])
def test_a_failed_append_leaves_the_file_as_it_was(cut_fails: bool) -> None:
    files = CrashingFiles(seed=1)
    file = files.open("/log", writable=True, create=True)
    file.append(b"abc")
    files.refuse(errno.EIO, operation="append")
    if cut_fails:
        files.refuse(errno.EIO, operation="truncate")
    with pytest.raises(StorageError, match="cannot append to"):
        file.append(b"defghi")
    assert file.size == 3
    assert (files.read_all("/log") == b"abc") is not cut_fails
    file.append(b"XYZXYZ")
    assert files.read_all("/log") == b"abcXYZXYZ"


def test_what_a_sync_failed_to_write_is_lost_even_if_the_next_succeeds() -> None:
    files = CrashingFiles(forgets_failed_syncs=True)
    file = files.open("/log", writable=True, create=True)
    files.sync_folder("/")
    file.append(b"abc")
    files.refuse(errno.EIO, operation="sync")
    with pytest.raises(StorageError):
        file.sync()
    file.append(b"def")
    file.sync()
    assert files.read_all("/log") == b"abcdef"
    assert files.after_power_loss(0).read_all("/log") == b"\0\0\0def"
    file.truncate(0)
    file.append(b"ABC")
    file.sync()
    assert files.after_power_loss(0).read_all("/log") == b"ABC"


def test_a_disk_that_is_full() -> None:
    files = CrashingFiles(capacity_bytes=10)
    file = files.open("/log", writable=True, create=True)
    file.append(b"12345")
    with pytest.raises(StorageError, match="No space left"):
        file.append(b"123456")
    assert files.read_all("/log") == b"12345"
    mapping = files.map("/index", 100)
    mapping.reserve(4)
    with pytest.raises(StorageError, match="No space left"):
        mapping.reserve(8)
    with pytest.raises(StorageError, match="No space left"):
        files.replace("/checkpoint", b"much too long")
    with pytest.raises(StorageError, match="No space left"):
        file.allocate(20)
    files.remove("/checkpoint.tmp")
    files.remove("/index")
    file.append(b"12345")
    assert files.used_bytes == 10


def test_a_mapping_must_not_be_written_to_where_no_room_was_reserved() -> None:
    files = CrashingFiles()
    mapping = files.map("/index", 16)
    mapping.view[8] = 1
    with pytest.raises(AssertionError, match="no room was reserved"):
        mapping.sync()
