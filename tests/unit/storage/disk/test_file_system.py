"""The local disk behind the store's seam: all or nothing, errors with names, and what readers hold stays readable."""

from __future__ import annotations

import errno
import gc
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from duralog.errors import CorruptRecord, StorageError, StoreLocked
from duralog.storage.disk import local_files
from duralog.storage.disk.file_system import LARGEST_SMALL_FILE_BYTES, Entry, LocalFileSystem, raise_open_file_limit

FS = LocalFileSystem()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file grows beyond this size: the system's own way of a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "00000000000000000000.log")


def test_appends_follow_each_other(path: str) -> None:
    file = FS.open(path, writable=True, create=True)
    assert file.append(b"abc") == 3
    assert file.append(b"de", bytearray(b"f"), memoryview(b"ghi")) == 6
    assert file.size == 9
    assert file.read(0, 9) == b"abcdefghi"
    assert Path(path).read_bytes() == b"abcdefghi"


def test_an_append_of_more_buffers_than_one_call_takes(path: str) -> None:
    buffers = [bytes([n % 251]) * (n % 7) for n in range(3000)]
    file = FS.open(path, writable=True, create=True)
    file.append(b"before")
    assert file.append(*buffers) == len(b"".join(buffers))
    assert Path(path).read_bytes() == b"before" + b"".join(buffers)


@pytest.mark.parametrize("buffers", [(b"x" * 1000,), (b"x" * 10, b"y" * 990)])
def test_a_failed_append_leaves_the_file_as_it_was(path: str, buffers: tuple[bytes, ...]) -> None:
    file = FS.open(path, writable=True, create=True)
    file.append(b"kept")
    with largest_file(104), pytest.raises(StorageError, match="cannot append to") as caught:
        file.append(*buffers)
    assert path in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EFBIG
    assert file.size == 4
    assert Path(path).read_bytes() == b"kept"
    file.append(b" on")
    assert Path(path).read_bytes() == b"kept on"


def test_an_append_after_a_cut_that_failed_overwrites_what_is_left(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FS.open(path, writable=True, create=True)
    file.append(b"kept")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(os, "ftruncate", refuse)
        with largest_file(10), pytest.raises(StorageError):
            file.append(b"half" * 100)
    assert Path(path).read_bytes() == b"kepthalfha"
    file.append(b"good")
    assert file.read(0, file.size) == b"keptgood"


def test_an_interrupted_write_continues(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FS.open(path, writable=True, create=True)
    write, write_many = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: write_many(fd, [b"".join(parts)[:5]], at))
    assert file.append(b"0123456789") == 10
    assert file.append(b"abc", b"", b"defghij", b"kl") == 12
    assert Path(path).read_bytes() == b"0123456789abcdefghijkl"


def test_allocated_room_is_not_contents(path: str) -> None:
    file = FS.open(path, writable=True, create=True)
    file.allocate(100)
    assert (file.size, os.path.getsize(path)) == (0, 100)
    file.append(b"abc")
    file.append(b"def")
    assert Path(path).read_bytes() == b"abcdef" + bytes(94)
    file.truncate(file.size)
    assert Path(path).read_bytes() == b"abcdef"


def test_room_that_is_set_aside_behind_the_end_is_given_back(path: str) -> None:
    file = FS.open(path, writable=True, create=True)
    part = bytes(range(256)) * 1024
    for _ in range(7):
        file.append(part)
    assert file.size == os.path.getsize(path) == 7 * len(part)
    file.truncate(file.size)
    status = os.stat(path)
    assert status.st_size == 7 * len(part)
    assert status.st_blocks * 512 < 7 * len(part) + 64 * 1024
    assert Path(path).read_bytes() == 7 * part


def test_appends_go_on_where_no_room_can_be_set_aside(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def refuse(*_: int) -> int:
        nonlocal asked
        asked += 1
        return -1

    monkeypatch.setattr(local_files, "_fallocate", refuse)
    file = FS.open(path, writable=True, create=True)
    part = bytes(300_000)
    for _ in range(9):
        file.append(part)
    assert file.size == os.path.getsize(path) == 9 * len(part)
    assert asked == 1


def test_what_is_forgotten_is_still_there(path: str) -> None:
    file = FS.open(path, writable=True, create=True)
    content = bytes(range(256)) * 256
    file.append(content)
    file.sync()
    file.forget(0, len(content))
    file.forget(100, 1 << 40)
    assert file.read(0, len(content)) == content


def test_the_system_is_asked_to_begin_with_what_a_sync_will_wait_for(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(local_files, "_sync_file_range", lambda *arguments: asked.append(arguments))
    file = FS.open(path, writable=True, create=True)
    file.append(bytes(100))
    file.begin_sync(30)
    assert [(descriptor, position, size) for descriptor, position, size, _ in asked] == [(file.fileno(), 30, 70)]
    monkeypatch.undo()
    file.begin_sync(0)
    file.sync()
    assert file.read(0, 100) == bytes(100)
    monkeypatch.setattr(local_files, "_sync_file_range", None)
    file.begin_sync(0)


def test_reading_past_the_end_names_the_place(path: str) -> None:
    Path(path).write_bytes(b"0123456789")
    file = FS.open(path)
    os.truncate(path, 4)
    with pytest.raises(CorruptRecord, match="became shorter") as caught:
        file.read(2, 8)
    assert (caught.value.file, caught.value.position) == (path, 2)


def test_read_into_fills_a_buffer(path: str) -> None:
    Path(path).write_bytes(b"0123456789")
    target = bytearray(4)
    FS.open(path).read_into(3, memoryview(target))
    assert target == b"3456"
    with pytest.raises(CorruptRecord):
        FS.open(path).read_into(8, memoryview(target))


def test_a_file_that_was_opened_for_reading_is_not_written(path: str) -> None:
    Path(path).write_bytes(b"abc")
    file = FS.open(path)
    with pytest.raises(StorageError, match="cannot append to"):
        file.append(b"x")
    with pytest.raises(StorageError, match="cannot truncate"):
        file.truncate(0)
    assert Path(path).read_bytes() == b"abc"


def test_a_missing_file_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot open: No such file"):
        FS.open(str(tmp_path / "missing"))
    pipe, socket_path = str(tmp_path / "pipe"), str(tmp_path / "socket")
    os.mkfifo(pipe)
    os.mknod(socket_path, 0o600 | stat.S_IFSOCK)
    os.symlink("/dev/null", tmp_path / "device")
    for path in (pipe, socket_path, str(tmp_path / "device")):
        for opened in (
            lambda path: FS.open(path),
            lambda path: FS.open(path, writable=True, create=True),
            lambda path: FS.read_all(path),
            lambda path: FS.write(path, b"x", sync=True),
        ):
            with pytest.raises(StorageError, match=f"{path}: cannot (open|write): not a regular file"):
                opened(path)
    os.mkfifo(pipe + ".tmp")
    with pytest.raises(StorageError, match="not a regular file"):
        FS.replace(pipe, b"x")


def test_a_link_to_a_file_is_as_good_as_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    os.symlink("file", tmp_path / "link")
    assert FS.read_all(str(tmp_path / "link")) == b"abc"
    FS.write(str(tmp_path / "link"), b"x", sync=True)
    FS.open(str(tmp_path / "link"), writable=True).append(b"y")
    assert (tmp_path / "file").read_bytes() == b"xy"


def test_the_umask_decides_who_may_write(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        FS.open(str(tmp_path / "log"), writable=True, create=True)
        FS.map(str(tmp_path / "index"), 8)
        FS.write(str(tmp_path / "checkpoint"), b"x", sync=False)
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("log", "index", "checkpoint"), 0o664
    )


def test_what_is_read_whole_has_a_limit(path: str) -> None:
    Path(path).write_bytes(b"")
    os.truncate(path, LARGEST_SMALL_FILE_BYTES + 1)
    with pytest.raises(CorruptRecord, match="too large for its kind"):
        FS.read_all(path)


def test_who_holds_a_file_reads_on_after_its_removal(path: str) -> None:
    Path(path).write_bytes(b"0123456789")
    gc.collect()
    before = open_descriptors()
    file = FS.open(path)
    FS.remove(path)
    assert file.read(0, 10) == b"0123456789"
    del file
    assert open_descriptors() == before


def test_a_mapping_and_its_file_are_one(path: str) -> None:
    Path(path).write_bytes(b"ab")
    mapping = FS.map(path, 8192)
    assert os.path.getsize(path) == 8192
    assert bytes(mapping.view[:4]) == b"ab\0\0"
    mapping.reserve(4)
    mapping.view[2:4] = b"cd"
    mapping.sync()
    assert Path(path).read_bytes()[:5] == b"abcd\0"
    assert os.path.getsize(path) == 8192
    FS.remove(path)
    assert bytes(mapping.view[:4]) == b"abcd"


def test_a_mapping_cuts_and_may_be_empty(path: str) -> None:
    Path(path).write_bytes(b"abcdef")
    assert bytes(FS.map(path, 3).view) == b"abc"
    empty = FS.map(path, 0)
    assert (len(empty.view), os.path.getsize(path)) == (0, 0)
    empty.sync()


def test_a_full_disk_is_an_error_before_anything_is_written_to_a_mapping(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapping = FS.map(path, 1 << 20)
    mapping.reserve(8)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    mapping.reserve(16)  # There was room for this already.
    with pytest.raises(StorageError, match="cannot reserve room in: No space left"):
        mapping.reserve(1 << 20)


def test_replacing_a_file_leaves_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    FS.replace(str(path), b"0\n0\n")
    FS.replace(str(path), b"0\n1\na 0 5\n")
    assert path.read_bytes() == b"0\n1\na 0 5\n"
    assert os.listdir(tmp_path) == [path.name]


def test_a_replacement_that_fails_keeps_the_old_contents(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    FS.replace(str(path), b"old")
    with largest_file(10), pytest.raises(StorageError, match=r"checkpoint\.tmp: cannot write"):
        FS.replace(str(path), b"new" * 100)
    assert path.read_bytes() == b"old"


def test_files_and_folders(tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    FS.make_folder(folder)
    FS.make_folder(folder)
    FS.write(f"{folder}/one", b"123", sync=True)
    FS.write(f"{folder}/one", b"12", sync=False)
    FS.set_modified_ms(f"{folder}/one", 1_700_000_000_123)
    (one,) = FS.list(folder)
    FS.rename(f"{folder}/one", f"{folder}/two")
    FS.sync_folder(folder)
    assert FS.list(folder) == [Entry("two", 2, 1_700_000_000_123, is_folder=False, file_id=one.file_id)]
    FS.write(f"{folder}/other", b"", sync=False)
    other = FS.entry(f"{folder}/other")
    assert other is not None
    assert other.file_id not in (0, one.file_id)
    FS.remove(f"{folder}/other")
    assert FS.entry(f"{folder}/two") == FS.list(folder)[0]
    assert FS.entry(f"{folder}/one") is None
    assert FS.exists(f"{folder}/two")
    assert not FS.exists(f"{folder}/one")
    assert FS.read_all(f"{folder}/two") == b"12"
    FS.truncate(f"{folder}/two", 1)
    assert FS.read_all(f"{folder}/two") == b"1"
    FS.remove(f"{folder}/two")
    FS.remove(f"{folder}/two")
    [inner] = FS.list(str(tmp_path / "a"))
    assert (inner.name, inner.is_folder) == ("b", True)
    FS.write(f"{folder}/three", b"", sync=False)
    FS.remove_folder(str(tmp_path / "a"))
    FS.remove_folder(str(tmp_path / "a"))
    assert os.listdir(tmp_path) == []


def test_a_link_to_nowhere_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert FS.list(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (lambda path: FS.list(path), "cannot list"),
        (lambda path: FS.read_all(path), "cannot open"),
        (lambda path: FS.truncate(path, 1), "cannot truncate"),
        (lambda path: FS.rename(path, path + ".deleted"), r"cannot rename to x\.deleted"),
        (lambda path: FS.write(path + "/y", b"", sync=False), "cannot write"),
        (lambda path: FS.map(path + "/y", 10), "cannot map"),
        (lambda path: FS.sync_folder(path), "cannot sync the folder"),
        (lambda path: FS.set_modified_ms(path, 0), "cannot set the time of"),
        (lambda path: FS.lock(path + "/y"), "cannot lock"),
    ],
)
def test_a_refused_operation_is_named(tmp_path: Path, operation: object, told: str) -> None:
    path = str(tmp_path / "x")
    with pytest.raises(StorageError, match=told) as caught:
        operation(path)  # type: ignore[operator]
    assert str(caught.value).startswith(path)
    assert "No such file" in str(caught.value)


LOCKING = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_lock_keeps_others_out_until_it_is_released(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = FS.lock(path)
    with pytest.raises(StoreLocked, match="this process has already opened it"):
        FS.lock(path)
    # The refused attempt has not dropped the lock, as closing another descriptor of the file would.
    other = subprocess.run([sys.executable, "-c", LOCKING, path], capture_output=True, check=False, input="", text=True)
    assert other.returncode != 0
    assert "BlockingIOError" in other.stderr
    lock.release()
    lock.release()
    FS.lock(path).release()


def test_a_lock_of_another_process_is_respected(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    with subprocess.Popen(
        [sys.executable, "-c", LOCKING, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(StoreLocked, match="another process"):
            FS.lock(path)
        other.communicate("")
    FS.lock(path).release()


def test_the_limit_of_open_files_is_raised_to_what_is_allowed() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert raise_open_file_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
