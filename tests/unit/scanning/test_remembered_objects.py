"""What is kept of an object store between two openings: only bytes that cannot have changed, and not too many."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from duralog.errors import StorageError
from duralog.scanning import remote_files
from duralog.scanning.remembered_objects import SETTLED_SECONDS, ObjectIdentity, RememberedObjects
from duralog.scanning.remote_files import RemoteFileSystem

OBJECT = ObjectIdentity("bucket/x", 1000, 1)
DATA = memoryview(bytes(range(200)) * 5)


class Clock:
    """Both clocks at once. Files of a test are as old as the time of the test's start."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def remembered(self, **limits: int) -> RememberedObjects:
        return RememberedObjects(clock=lambda: self.seconds, clock_ms=lambda: 0, **limits)


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Objects:
    """A local folder as an object store that counts requests."""

    def __init__(self) -> None:
        self._below = pafs.LocalFileSystem()
        self.asked: Counter[str] = Counter()
        self.cut_trees: list[int] = []
        """How many entries are left of the next listings of everything."""

    def open_input_file(self, path: str) -> Any:
        self.asked["open"] += 1
        return self._below.open_input_file(path)

    def get_file_info(self, wanted: Any) -> Any:
        if not isinstance(wanted, pafs.FileSelector):
            self.asked["stat"] += 1
            return self._below.get_file_info(wanted)
        self.asked["tree" if wanted.recursive else "list"] += 1
        found = self._below.get_file_info(wanted)
        return found[: self.cut_trees.pop(0)] if wanted.recursive and self.cut_trees else found

    def take(self) -> dict[str, int]:
        taken, self.asked = dict(self.asked), Counter()
        return taken


def write(path: Path, data: bytes, second: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (second, second))


# Bytes


def test_bytes_are_kept_for_their_object_alone(clock: Clock) -> None:
    remembered = RememberedObjects()
    remembered.keep(OBJECT, 100, DATA)
    assert remembered.find(OBJECT, 150, 20) == DATA[50:70]
    assert remembered.find(OBJECT, 90, 20) is None
    assert remembered.find(OBJECT, 1090, 20) is None
    for other in (OBJECT._replace(size=1001), OBJECT._replace(modified_ms=1000), OBJECT._replace(path="bucket/y")):
        assert remembered.find(other, 150, 20) is None


def test_a_young_object_may_be_replaced_unnoticed_so_it_is_read_again(clock: Clock) -> None:
    remembered = clock.remembered()
    remembered.keep(OBJECT, 0, DATA)
    clock.seconds += SETTLED_SECONDS - 0.1
    remembered.keep(OBJECT, 0, DATA)
    assert remembered.find(OBJECT, 0, 10) is None
    clock.seconds += 0.2
    remembered.keep(OBJECT, 0, DATA)
    assert remembered.find(OBJECT, 0, 10) == DATA[:10]
    replaced = OBJECT._replace(modified_ms=2000)
    remembered.keep(replaced, 0, DATA)
    assert remembered.find(replaced, 0, 10) is None


@pytest.mark.parametrize(
    ("newer_by_ms", "is_kept"), [(2_999, False), (3_000, True), (20 * 60_000 - 1, True), (20 * 60_000 + 1, False)]
)
def test_a_newer_object_tells_the_time_of_the_object_store(newer_by_ms: int, is_kept: bool) -> None:
    """Unless it is from the future. Here, the object is of now, so by this machine's clock it is young."""
    remembered = RememberedObjects(clock_ms=lambda: OBJECT.modified_ms)
    remembered.see(OBJECT.modified_ms + newer_by_ms)
    remembered.see(OBJECT.modified_ms)
    remembered.keep(OBJECT, 0, DATA)
    assert (remembered.find(OBJECT, 0, 10) is not None) is is_kept


def test_the_newest_object_of_a_listing_is_read_again(tmp_path: Path) -> None:
    for number, second in enumerate((100, 200, 201)):
        write(tmp_path / f"{number}", b"x", second)
    below, remembered = Objects(), RememberedObjects(clock_ms=lambda: 201_000)
    for _ in range(2):
        files = RemoteFileSystem(below, "s3://", remembered)
        files.list(str(tmp_path))
        below.take()
        for number in range(3):
            files.read_all(str(tmp_path / f"{number}"))
    assert below.take() == {"open": 2}


def test_an_object_without_a_time_is_read_again() -> None:
    remembered = RememberedObjects()
    untimed = OBJECT._replace(modified_ms=0)
    remembered.keep(untimed, 0, DATA)
    assert remembered.find(untimed, 0, 10) is None


def test_zeros_at_the_end_take_no_memory() -> None:
    remembered = RememberedObjects(most_bytes=10_000)
    index = ObjectIdentity("bucket/index", 10 << 20, 1)
    remembered.keep(index, 0, memoryview(b"entry" + bytes((10 << 20) - 5)))
    assert remembered.find(index, 0, 8) == b"entry\0\0\0"
    assert remembered.find(index, 1 << 20, 3) == b"\0\0\0"
    assert remembered.find(index, 0, (10 << 20) + 1) is None


def test_memory_is_bounded() -> None:
    remembered = RememberedObjects(most_bytes=10_000)
    objects = [ObjectIdentity(f"bucket/{number}", 1000, 1) for number in range(20)]
    for identity in objects:
        remembered.keep(identity, 0, DATA)
        remembered.find(objects[0], 0, 1)
    kept = [identity for identity in objects if remembered.find(identity, 0, 1000) is not None]
    assert kept == [objects[0], *objects[-6:]]
    large = ObjectIdentity("bucket/large", 1 << 30, 1)
    remembered.keep(large, 0, memoryview(bytes(2 << 20)))
    assert remembered.find(large, 0, 1) is None


def test_another_process_continues_with_them() -> None:
    remembered = RememberedObjects()
    for number in range(20):
        remembered.keep(ObjectIdentity(f"bucket/{number % 2}/{number}", 1000, 1), 0, DATA)
    exported = pickle.loads(pickle.dumps(remembered.export("bucket/1", most_bytes=6500)))
    other = RememberedObjects()
    other.take(exported)
    kept = [number for number in range(20) if other.find(ObjectIdentity(f"bucket/1/{number}", 1000, 1), 0, 1)]
    assert kept == [11, 13, 15, 17, 19]


# Files


def test_an_unchanged_object_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path / "a", b"12345", 1000)
    write(tmp_path / "empty", b"", 1000)
    below, remembered = Objects(), RememberedObjects()
    for requests in ({"list": 1, "open": 1}, {"list": 1}):
        files = RemoteFileSystem(below, "s3://", remembered)
        files.list(str(tmp_path))
        assert files.read_all(str(tmp_path / "a")) == b"12345"
        assert files.read_all(str(tmp_path / "empty")) == b""
        assert below.take() == requests


@pytest.mark.parametrize(("data", "second"), [(b"54321", 1001), (b"1234567", 1000), (b"123", 1000)])
def test_an_object_that_was_replaced_is_read_again(tmp_path: Path, data: bytes, second: int) -> None:
    path = tmp_path / "a"
    write(path, b"12345", 1000)
    remembered = RememberedObjects()
    for content, modified in ((b"12345", 1000), (data, second), (b"12345", 1000)):
        write(path, content, modified)
        files = RemoteFileSystem(Objects(), "s3://", remembered)
        files.list(str(tmp_path))
        assert files.read_all(str(path)) == content
    path.unlink()
    files = RemoteFileSystem(Objects(), "s3://", remembered)
    files.list(str(tmp_path))
    assert not files.exists(str(path))
    with pytest.raises(StorageError, match=f"s3://{path}: cannot open: "):
        files.read_all(str(path))


def test_an_object_that_is_replaced_after_it_was_listed(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    write(tmp_path / "a", b"12345", 1000)
    files = RemoteFileSystem(Objects(), "s3://", RememberedObjects())
    files.list(str(tmp_path))
    file = files.open(path)
    assert file.size == 5
    write(tmp_path / "a", b"1234567", 1001)
    with pytest.raises(
        StorageError, match=r"has 7 bytes, but the listing of its folder has it with 5 bytes: if it was replaced since"
    ):
        file.read(0, 5)
    assert files.read_all(path) == b"1234567"


def test_an_object_that_is_removed_after_it_was_listed(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    write(tmp_path / "a", b"12345", 1000)
    files = RemoteFileSystem(Objects(), "s3://", RememberedObjects())
    files.list(str(tmp_path))
    file = files.open(path)
    (tmp_path / "a").unlink()
    with pytest.raises(StorageError, match=f"s3://{path}: cannot open: "):
        file.read(0, 5)


def test_an_open_object_is_read_in_windows(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    write(tmp_path / "a", data, 1000)
    below, remembered = Objects(), RememberedObjects()
    for _ in range(2):
        files = RemoteFileSystem(below, "s3://", remembered)
        files.list(str(tmp_path))
        file = files.open(str(tmp_path / "a"))
        for position, size in ((5, 10), (15, 4000), (200_000, 56_000), (0, 100_000), (255_990, 10)):
            assert file.read(position, size) == data[position : position + size]
        target = bytearray(50)
        file.read_into(1000, memoryview(target))
        assert target == data[1000:1050]
        file.close()
    assert below.asked == {"list": 2, "open": 1}


# Listings


def make_partitions(directory: Path, count: int, files: int = 5) -> list[str]:
    for number in range(count):
        for each in range(files):
            write(directory / f"t-{number}" / f"{each}.log", b"x" * each, 1000)
    return [str(directory / f"t-{number}") for number in range(count)]


def test_one_listing_of_everything(tmp_path: Path) -> None:
    folders = make_partitions(tmp_path, 24)
    below, remembered = Objects(), RememberedObjects()
    for requests in ({"list": 1, "tree": 1}, {"tree": 1}):
        files = RemoteFileSystem(below, "s3://", remembered)
        files.list_as_before(str(tmp_path))
        assert len(files.list(str(tmp_path))) == 24
        files.list_ahead(str(tmp_path), folders)
        for folder in folders:
            assert {entry.name: entry.size for entry in files.list(folder)} == {f"{n}.log": n for n in range(5)}
            assert files.list_names(folder) == {f"{n}.log" for n in range(5)}
            assert files.exists(f"{folder}/1.log")
        assert below.take() == requests


def test_a_folder_of_another_use_is_not_listed(tmp_path: Path) -> None:
    folders = make_partitions(tmp_path, 24)
    write(tmp_path / "backups" / "year" / "0.tar", b"", 1000)
    below, remembered = Objects(), RememberedObjects()
    for _ in range(2):
        files = RemoteFileSystem(below, "s3://", remembered)
        files.list_as_before(str(tmp_path))
        files.list(str(tmp_path))
        files.list_ahead(str(tmp_path), folders)
        assert all(len(files.list(folder)) == 5 for folder in folders)
        assert below.take() == {"list": 25}


def test_few_of_many_folders_are_listed_one_by_one(tmp_path: Path) -> None:
    folders = make_partitions(tmp_path, 200, files=1)
    below, remembered = Objects(), RememberedObjects()
    for _ in range(2):
        files = RemoteFileSystem(below, "s3://", remembered)
        files.list_as_before(str(tmp_path))
        files.list(str(tmp_path))
        files.list_ahead(str(tmp_path), folders[:1])
        files.list(folders[0])
        assert below.take() == {"list": 2}


def test_a_listing_that_was_fetched_ahead_is_returned_once(tmp_path: Path) -> None:
    """Who lists again has found that something has changed."""
    folders = make_partitions(tmp_path, 3)
    files = RemoteFileSystem(Objects(), "s3://", RememberedObjects())
    files.list(str(tmp_path))
    files.list_ahead(str(tmp_path), folders)
    write(tmp_path / "t-0" / "new.log", b"", 1000)
    assert len(files.list(folders[0])) == 5
    assert len(files.list(folders[0])) == 6


@pytest.mark.parametrize("cut", [[40], [40, 30]])
def test_a_large_listing_that_lost_its_last_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: list[int]
) -> None:
    monkeypatch.setattr(remote_files, "LISTED_AT_ONCE", 20)
    folders = make_partitions(tmp_path, 10)
    below, remembered = Objects(), RememberedObjects()

    def list_all() -> int:
        files = RemoteFileSystem(below, "s3://", remembered)
        files.list(str(tmp_path))
        files.list_ahead(str(tmp_path), folders)
        return sum(len(files.list(folder)) for folder in folders)

    below.cut_trees = list(cut)
    assert list_all() == 50
    assert below.take() == {"list": 1, "tree": len(cut) + 2}
    # The same names as before: nothing is missing.
    assert list_all() == 50
    assert below.take() == {"list": 1, "tree": 1}
    below.cut_trees = list(cut)
    assert list_all() == 50
