"""A file system whose changes stay in memory."""

from __future__ import annotations

import pytest

from duralog.errors import CorruptRecord, StorageError
from duralog.storage.disk.file_system import Entry
from duralog.storage.disk.shadow import ShadowFileSystem
from tests.support.faults.crashing_files import CrashingFiles


@pytest.fixture
def disk() -> CrashingFiles:
    disk = CrashingFiles()
    disk.make_folder("/d")
    disk.write("/d/a", b"aaaa", sync=True)
    disk.write("/d/b.swap", b"bb", sync=True)
    return disk


@pytest.fixture
def shadow(disk: CrashingFiles) -> ShadowFileSystem:
    return ShadowFileSystem(disk)


def names(shadow: ShadowFileSystem) -> dict[str, int]:
    return {entry.name: entry.size for entry in shadow.list("/d")}


def test_it_shows_what_is_there(shadow: ShadowFileSystem) -> None:
    assert names(shadow) == {"a": 4, "b.swap": 2}
    assert shadow.read_all("/d/a") == b"aaaa"
    assert shadow.open("/d/a").read(1, 2) == b"aa"
    assert shadow.exists("/d")
    assert not shadow.exists("/d/c")


def test_changes_are_seen_and_reach_nothing(disk: CrashingFiles, shadow: ShadowFileSystem) -> None:
    changes = disk.changes
    shadow.rename("/d/b.swap", "/d/b")
    shadow.remove("/d/a")
    shadow.remove("/d/none")
    shadow.write("/d/c", b"ccc", sync=True)
    shadow.replace("/d/d", b"d")
    shadow.make_folder("/d/e")
    shadow.sync_folder("/d")
    assert names(shadow) == {"b": 2, "c": 3, "d": 1}
    assert shadow.read_all("/d/b") == b"bb"
    assert shadow.entry("/d/c") == Entry("c", 3, 0, is_folder=False)
    assert shadow.entry("/d/a") is None
    with pytest.raises(StorageError, match="no such file"):
        shadow.read_all("/d/a")
    with pytest.raises(StorageError, match="no such file"):
        shadow.open("/d/b.swap")
    assert disk.changes == changes


def test_contents_in_memory_read_like_a_file(shadow: ShadowFileSystem) -> None:
    shadow.write("/d/c", b"0123456789", sync=False)
    file = shadow.open("/d/c")
    assert (file.size, file.read(2, 3)) == (10, b"234")
    target = bytearray(4)
    file.read_into(6, memoryview(target))
    assert target == b"6789"
    with pytest.raises(CorruptRecord, match="end early"):
        file.read(8, 3)
    for refused in (lambda: file.append(b"x"), lambda: file.truncate(0), lambda: file.allocate(9), file.fileno):
        with pytest.raises(StorageError, match="for reading only"):
            refused()
    file.sync()
    file.close()


def test_what_would_reach_the_disk_is_refused(shadow: ShadowFileSystem) -> None:
    for refused in (
        lambda: shadow.open("/d/a", writable=True),
        lambda: shadow.map("/d/a", 8),
        lambda: shadow.truncate("/d/a", 0),
        lambda: shadow.set_modified_ms("/d/a", 0),
        lambda: shadow.lock("/d/.lock"),
    ):
        with pytest.raises(StorageError, match="for reading only"):
            refused()


def test_a_folder_that_is_removed_is_hidden(disk: CrashingFiles, shadow: ShadowFileSystem) -> None:
    disk.make_folder("/d/inner")
    assert shadow.exists("/d/inner")
    shadow.remove_folder("/d/inner")
    assert not shadow.exists("/d/inner")
    assert disk.exists("/d/inner")


def test_a_file_is_found_under_its_final_name(disk: CrashingFiles, shadow: ShadowFileSystem) -> None:
    shadow.rename("/d/b.swap", "/d/b")
    disk.rename("/d/b.swap", "/d/b")
    assert shadow.read_all("/d/b") == shadow.open("/d/b").read(0, 2) == b"bb"
    assert names(shadow) == {"a": 4, "b": 2}


def test_a_folder_counts_as_it_was_when_its_names_held_still(disk: CrashingFiles) -> None:
    class Restless(CrashingFiles):
        """A file is renamed while the folder is listed, the first few times."""

        renames = 3

        def list(self, folder: str) -> list[Entry]:
            found = super().list(folder)
            if self.renames:
                self.renames -= 1
                self.write(f"/d/{self.renames}", b"", sync=True)
            return found

    restless = Restless()
    restless.make_folder("/d")
    shadow = ShadowFileSystem(restless)
    assert sorted(names(shadow)) == ["0", "1", "2"]
    restless.write("/d/later", b"", sync=True)
    assert sorted(names(shadow)) == ["0", "1", "2"]
