"""The file system of a dry run: everything works as on the disk below it, and the disk stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from duralog.errors import StorageError
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.rehearsal import RehearsalFileSystem


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "old").write_bytes(b"0123456789")
    (tmp_path / "inner").mkdir()
    return str(tmp_path)


@pytest.fixture
def fs() -> RehearsalFileSystem:
    return RehearsalFileSystem(LocalFileSystem())


def on_disk(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_what_is_there_can_be_read(fs: RehearsalFileSystem, folder: str) -> None:
    assert fs.read_all(f"{folder}/old") == b"0123456789"
    file = fs.open(f"{folder}/old")
    assert (file.size, file.read(2, 3)) == (10, b"234")
    assert {(entry.name, entry.is_folder) for entry in fs.list(folder)} == {("old", False), ("inner", True)}
    with pytest.raises(StorageError):
        fs.open(f"{folder}/missing")


def test_cutting_and_adding(fs: RehearsalFileSystem, folder: str) -> None:
    file = fs.open(f"{folder}/old", writable=True)
    file.truncate(4)
    assert file.append(b"ab", b"cd") == 4
    assert (file.size, file.read(0, 8), file.read(3, 3), file.read(5, 2)) == (8, b"0123abcd", b"3ab", b"bc")
    target = bytearray(5)
    file.read_into(2, memoryview(target))
    assert bytes(target) == b"23abc"
    file.truncate(6)
    assert fs.read_all(f"{folder}/old") == b"0123ab"
    file.truncate(9)
    assert fs.read_all(f"{folder}/old") == b"0123ab\0\0\0"
    fs.truncate(f"{folder}/old", 1)
    assert (fs.read_all(f"{folder}/old"), on_disk(folder)) == (b"0", {"old": b"0123456789"})


def test_a_file_that_is_open_twice(fs: RehearsalFileSystem, folder: str) -> None:
    writer, reader = fs.open(f"{folder}/new", writable=True, create=True), fs.open(f"{folder}/new")
    writer.append(b"hello")
    assert (reader.size, reader.read(0, 5)) == (5, b"hello")


def test_names(fs: RehearsalFileSystem, folder: str) -> None:
    fs.rename(f"{folder}/old", f"{folder}/inner/moved")
    fs.write(f"{folder}/new", b"1", sync=True)
    fs.replace(f"{folder}/new", b"22")
    assert [entry.name for entry in fs.list(f"{folder}/inner")] == ["moved"]
    assert fs.read_all(f"{folder}/inner/moved") == b"0123456789"
    assert {entry.name: entry.size for entry in fs.list(folder) if not entry.is_folder} == {"new": 2}
    assert not fs.exists(f"{folder}/old")
    fs.remove(f"{folder}/new")
    fs.remove(f"{folder}/new")
    assert fs.entry(f"{folder}/new") is None
    with pytest.raises(StorageError):
        fs.rename(f"{folder}/old", f"{folder}/older")
    assert on_disk(folder) == {"old": b"0123456789"}


def test_folders(fs: RehearsalFileSystem, folder: str) -> None:
    fs.make_folder(f"{folder}/made")
    fs.write(f"{folder}/made/file", b"x", sync=False)
    entry = fs.entry(f"{folder}/made")
    assert entry is not None
    assert entry.is_folder
    assert [found.name for found in fs.list(f"{folder}/made")] == ["file"]
    fs.remove_folder(f"{folder}/made")
    assert fs.list(f"{folder}/made") == []
    assert not Path(folder, "made").exists()


def test_mapped_files(fs: RehearsalFileSystem, folder: str) -> None:
    mapping = fs.map(f"{folder}/old", 16)
    assert bytes(mapping.view) == b"0123456789" + bytes(6)
    mapping.reserve(16)
    mapping.view[10:12] = b"ab"
    mapping.sync()
    assert fs.read_all(f"{folder}/old")[:12] == b"0123456789ab"
    fs.truncate(f"{folder}/old", 12)
    assert fs.read_all(f"{folder}/old") == b"0123456789ab"
    assert on_disk(folder) == {"old": b"0123456789"}


def test_times(fs: RehearsalFileSystem, folder: str) -> None:
    fs.set_modified_ms(f"{folder}/old", 5000)
    entry = fs.entry(f"{folder}/old")
    assert entry is not None
    assert (entry.size, entry.modified_ms) == (10, 5000)
