"""The seam between the store and the operating system: every byte that the store reads or writes passes here.

The store asks for what `FileSystem` lists and nothing else, so that a test can put a disk in its place that tears
writes, forgets what was not synced, or is full. `LocalFileSystem` is the real one.

What must always be true:
- A refused operation raises `StorageError` with the path, the operation and the system's reason; the `OSError` is its
  cause.
- `File.append` is all or nothing: after an error the file ends where it ended before, and the next append starts there
  even if the cut itself failed.
- A descriptor lives as long as somebody holds its `File`, and mapped memory as long as somebody holds its view. A
  reader that has one keeps reading after the file was renamed, deleted or replaced.
- A mapped page beyond the end of its file kills the process that touches it, and so does a page of a hole that a full
  disk has no block for. Hence `Mapping.reserve` before writing, and whoever cuts a mapped file makes sure that no
  reader looks behind the cut.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import shutil
import stat
from contextlib import suppress
from typing import NamedTuple, Protocol

from duralog.errors import CorruptRecord, Fault, StorageError
from duralog.format.filenames import HALF_WRITTEN_SUFFIX
from duralog.format.varint import Bytes
from duralog.storage.disk import forks
from duralog.storage.disk.local_files import LocalFile, LocalLock, LocalMapping, LockLost, file_mode, refusals

__all__ = [
    "LARGEST_SMALL_FILE_BYTES",
    "DiskSpace",
    "Entry",
    "File",
    "FileSystem",
    "LocalFileSystem",
    "Lock",
    "LockLost",
    "Mapping",
    "check_small",
    "disk_space",
    "raise_open_file_limit",
]


LARGEST_SMALL_FILE_BYTES = 1 << 30
"""An index of Kafka's default size has 10 MiB; a snapshot of 100,000 producers has 5 MB."""


def check_small(path: str, size: int, limit: int = LARGEST_SMALL_FILE_BYTES) -> None:
    """Raise `CorruptRecord` before a file is read whole that is too large for it."""
    if size > limit:
        raise CorruptRecord(
            "the file is too large to be what its name says",
            fault=Fault.TOO_LARGE,
            file=path,
            expected=f"at most {limit} bytes",
            found=f"{size} bytes",
        )


class Entry(NamedTuple):
    """A file or folder as a listing shows it."""

    name: str
    size: int
    modified_ms: int
    is_folder: bool
    file_id: int = 0
    """Another file that takes the place of this one has another; 0 if that is not known."""


class File(Protocol):
    """An open file. Appending is for one thread at a time, reading for any number, also meanwhile."""

    @property
    def name(self) -> str:
        """The path that the file was opened by; it may have another one by now."""

    @property
    def size(self) -> int:
        """Where the contents end and the next append starts. It grows once an append is complete."""

    def read(self, position: int, size: int) -> bytes:
        """Exactly `size` bytes; `CorruptRecord` if the file ends before."""

    def read_into(self, position: int, target: memoryview) -> None:
        """Fill `target`; `CorruptRecord` if the file ends before."""

    def forget(self, position: int, size: int) -> None:
        """These bytes will hardly be read again: the system need not keep them in memory."""

    def append(self, *buffers: Bytes) -> int:
        """Write the buffers behind each other at the end, all or nothing. Returns how many bytes that was."""

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes, allocated room included."""

    def allocate(self, size: int) -> None:
        """Make room for `size` bytes in all: zeros behind the contents, whose end does not move."""

    def begin_sync(self, position: int) -> None:
        """Have the contents from here on go to disk meanwhile: a `sync` after it has less to wait for."""

    def sync(self) -> None:
        """Return when the contents would survive a loss of power."""

    def fileno(self) -> int:
        """The descriptor, to send from. REQUIRES: the caller holds on to this object while it uses it."""

    def close(self) -> None:
        """Let go of the descriptor now. REQUIRES: nobody else uses the file; otherwise just drop it."""


class Mapping(Protocol):
    """A file's bytes as memory, shared with every reader of the file."""

    @property
    def view(self) -> memoryview: ...

    def reserve(self, end: int) -> None:
        """Make sure that the disk has room for the bytes below `end`. REQUIRED before they are written."""

    def sync(self) -> None: ...


class Lock(Protocol):
    """A lock that this process holds until it releases it or ends."""

    def check(self) -> None:
        """Raise `LockLost` if it does not keep others out any more."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """What the store needs of an operating system. Paths are absolute or relative to the process."""

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> File: ...

    def map(self, path: str, size: int) -> Mapping:
        """The file as memory, after it was created, extended with zeros or cut to this size."""

    def truncate(self, path: str, size: int) -> None: ...

    def read_all(self, path: str) -> bytes:
        """A file that is no log, as it is now; `CorruptRecord` for one that is far too large to be anything else."""

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:
        """Create or overwrite a file. A crash may leave any part of it."""

    def replace(self, path: str, data: Bytes) -> None:
        """Replace a file so that a crash leaves the old contents or the new ones, and the new ones for good after."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file, or find that there is none."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, or find that it is there."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all that is in it, or find that there is none."""

    def list(self, folder: str) -> list[Entry]: ...

    def list_names(self, folder: str) -> set[str]:
        """Those that a listing would show, and perhaps some that lead nowhere. It takes less time than a listing."""

    def entry(self, path: str) -> Entry | None:
        """The file or folder as its folder's listing would show it; None if there is none."""

    def exists(self, path: str) -> bool: ...

    def sync_folder(self, path: str) -> None:
        """Return when the names in the folder would survive a loss of power."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def lock(self, path: str) -> Lock:
        """Lock a file against every other opener, this process included; `StoreLocked` if one has it."""


class LocalFileSystem:
    """The local disk. A forked child can read with it, and change nothing (`duralog.storage.disk.forks`)."""

    def __init__(self) -> None:
        self._process = forks.here

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        if writable or create:
            self._process.check(path)
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return self._open(path, flags, "open")

    def map(self, path: str, size: int) -> LocalMapping:
        self._process.check(path)
        with refusals("map", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_mode(path))
            try:
                if os.fstat(descriptor).st_size != size:
                    os.ftruncate(descriptor, size)
                if not size:
                    return LocalMapping(path, None)  # There is no mapping of no bytes.
                mapped = mmap.mmap(descriptor, size)
                # Or the first touch of a page would fetch as much of the file as the disk reads ahead, zeros and all:
                # milliseconds, for some bytes.
                mapped.madvise(mmap.MADV_RANDOM)
                return LocalMapping(path, mapped)
            finally:
                os.close(descriptor)

    def truncate(self, path: str, size: int) -> None:
        self._process.check(path)
        with refusals("truncate", path):
            os.truncate(path, size)

    def read_all(self, path: str) -> bytes:
        file = self.open(path)
        check_small(path, file.size)
        with refusals("read", path):
            # In one call, which gives less if the file's owner cuts it meanwhile, as Kafka does with an index.
            return os.pread(file.fileno(), file.size, 0)

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:
        self._process.check(path)
        file = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "write")
        with refusals("write", path):
            view = memoryview(data).cast("B")
            while view:
                view = view[os.write(file.fileno(), view) :]
            if sync:
                os.fsync(file.fileno())
            file.close()

    def replace(self, path: str, data: Bytes) -> None:
        half_written = path + HALF_WRITTEN_SUFFIX
        self.write(half_written, data, sync=True)
        self.rename(half_written, path)
        self.sync_folder(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        self._process.check(source)
        with refusals(f"rename to {os.path.basename(target)}", source):
            os.replace(source, target)

    def remove(self, path: str) -> None:
        self._process.check(path)
        with refusals("remove", path), suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, path: str) -> None:
        self._process.check(path)
        with refusals("make the folder", path):
            os.makedirs(path, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        self._process.check(path)
        with refusals("remove the folder", path), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def list(self, folder: str) -> list[Entry]:
        entries: list[Entry] = []
        with refusals("list", folder), os.scandir(folder) as found:
            for item in found:
                try:
                    entries.append(_entry(item.name, item.stat()))
                except OSError as error:
                    # A file that its owner has removed meanwhile, a link to nowhere, or one that leads to itself.
                    if error.errno not in (errno.ENOENT, errno.ELOOP):
                        raise
        return entries

    def list_names(self, folder: str) -> set[str]:
        with refusals("list", folder):
            return set(os.listdir(folder))

    def entry(self, path: str) -> Entry | None:
        with refusals("look at", path):
            try:
                return _entry(os.path.basename(path), os.stat(path))
            except FileNotFoundError:
                return None

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def sync_folder(self, path: str) -> None:
        with refusals("sync the folder", path):
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._process.check(path)
        with refusals("set the time of", path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def lock(self, path: str) -> LocalLock:
        self._process.check(path)
        return LocalLock(path)

    def _open(self, path: str, flags: int, operation: str) -> LocalFile:
        refused = StorageError(f"{path}: cannot {operation}: not a regular file")
        with refusals(operation, path):
            try:
                # Without O_NONBLOCK, opening a pipe that nobody is at the other end of would never return.
                descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, file_mode(path))
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                raise refused from error  # A socket, or a pipe that nobody reads.
            status = os.fstat(descriptor)
        file = LocalFile(path, descriptor, status.st_size)
        if not stat.S_ISREG(status.st_mode):
            raise refused
        return file


def _entry(name: str, status: os.stat_result) -> Entry:
    is_folder = stat.S_ISDIR(status.st_mode)
    return Entry(name, status.st_size, status.st_mtime_ns // 1_000_000, is_folder, status.st_ino)


class DiskSpace(NamedTuple):
    total_bytes: int
    usable_bytes: int


def disk_space(path: str) -> DiskSpace:
    """Of the disk that a folder is on, in all and for this process."""
    with refusals("ask for the space on the disk", path):
        status = os.statvfs(path)
    return DiskSpace(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def raise_open_file_limit() -> int:
    """Let this process open as many files as it may, as a JVM does by itself. Returns how many that is.

    A partition that is written to holds three files open, and every older segment that was read up to three more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
