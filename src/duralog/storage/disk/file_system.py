"""The interface between the store and the operating system: the store reads and writes all files through it.

The implementations of `FileSystem`:

| class                                    | files                                                                  |
|------------------------------------------|------------------------------------------------------------------------|
| `LocalFileSystem`                        | the local disk                                                         |
| `disk.shadow.ShadowFileSystem`           | read-only, with changes in memory: for opening a directory read-only    |
| `disk.rehearsal.RehearsalFileSystem`     | with changes in temporary files: for a dry run                          |
| `scanning.remote_files.RemoteFileSystem` | an object store or HDFS, read-only                                     |
| in tests                                 | a disk that tears writes, loses what was not synced, or is full         |

A read-only implementation raises `StorageError` from the methods that write.

What must always be true:
- A refused operation raises `StorageError` with the path, the operation and the system's reason. The `OSError` is its
  cause.
- `File.append` is all or nothing. After an error the file ends where it ended before, and the next append starts there
  even if cutting off the rest failed.
- A descriptor stays open while its `File` is referenced, and mapped memory while its view is referenced. So a reader
  can read on after the file was renamed, deleted or replaced.
- Access to a mapped page beyond the end of its file kills the process, and so does a page of a hole for which a full
  disk has no block. Hence `MappedFile.reserve` before a write, and no reader may use a page that is cut off.

A few calls of `os` in `storage` do not go through `FileSystem`:
- `local_lock` and `lent_lock`: POSIX locks on ranges of bytes, which belong to the process and its descriptors.
- `forks`: process ids, and the hook that runs in a forked child.
- `rehearsal`: temporary files without a name.
- `storage.read_only_partitions`: follows folders by their times in nanoseconds, which `Entry` does not have.
- `os.path`: names only, no I/O.
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
from duralog.storage.disk.local_files import LocalFile, LocalMapping, file_mode, refusals
from duralog.storage.disk.local_lock import LocalLock, LockLost

__all__ = [
    "LARGEST_SMALL_FILE_BYTES",
    "DiskSpace",
    "Entry",
    "File",
    "FileSystem",
    "LocalFileSystem",
    "Lock",
    "LockLost",
    "MappedFile",
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
            "the file is too large for its kind",
            fault=Fault.TOO_LARGE,
            file=path,
            expected=f"at most {limit} bytes",
            found=f"{size} bytes",
        )


class Entry(NamedTuple):
    """A file or folder in a listing."""

    name: str
    size: int
    modified_ms: int
    is_folder: bool
    file_id: int = 0
    """Differs if another file takes the place of this one. 0 if it is not known."""


class File(Protocol):
    """An open file. One thread may append at a time; any number of threads may read meanwhile."""

    @property
    def name(self) -> str:
        """The path that the file was opened with. It may have been renamed since."""

    @property
    def size(self) -> int:
        """The end of the contents, where the next append starts. It grows when an append is complete."""

    def read(self, position: int, size: int) -> bytes:
        """Exactly `size` bytes; `CorruptRecord` if the file ends before."""

    def read_into(self, position: int, target: memoryview) -> None:
        """Fill `target`; `CorruptRecord` if the file ends before."""

    def forget(self, position: int, size: int) -> None:
        """Advise the system to drop these bytes from the page cache."""

    def append(self, *buffers: Bytes) -> int:
        """Append the buffers in order, all or nothing. Returns the number of bytes."""

    def truncate(self, size: int) -> None:
        """Cut to `size` bytes. Preallocated space is released."""

    def allocate(self, size: int) -> None:
        """Preallocate the file to `size` bytes in all: zeros after the contents, whose end does not move."""

    def begin_sync(self, position: int) -> None:
        """Start writing the contents from here on to disk, so that a later `sync` has less to wait for."""

    def sync(self) -> None:
        """Return when the contents would survive a loss of power."""

    def fileno(self) -> int:
        """The descriptor, for `sendfile`. REQUIRES: the caller keeps a reference to this object meanwhile."""

    def close(self) -> None:
        """Close the descriptor now. REQUIRES: no other thread uses the file; otherwise just drop the reference."""


class MappedFile(Protocol):
    """A file's bytes as memory, shared with every reader of the file."""

    @property
    def view(self) -> memoryview: ...

    def reserve(self, end: int) -> None:
        """Reserve disk space for the bytes below `end`. REQUIRED before they are written."""

    def sync(self) -> None: ...


class Lock(Protocol):
    """A lock that this process holds until it releases the lock or ends."""

    def check(self) -> None:
        """Raise `LockLost` if it no longer keeps other processes out."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """What the store needs of an operating system. Paths are absolute, or relative to the working directory."""

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> File: ...

    def map(self, path: str, size: int) -> MappedFile:
        """Map the file. It is created, extended with zeros or cut to this size first."""

    def truncate(self, path: str, size: int) -> None: ...

    def read_all(self, path: str) -> bytes:
        """A small file as a whole. Raises `CorruptRecord` if it is larger than any file but a log can be."""

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:
        """Create or overwrite a file. A crash may leave any part of it."""

    def replace(self, path: str, data: Bytes) -> None:
        """Replace a file atomically: a crash leaves the old or the new contents. They are durable when this returns."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""

    def make_folder(self, path: str) -> None:
        """Create a folder and those above it if they do not exist."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder and its contents if it exists."""

    def list(self, folder: str) -> list[Entry]: ...

    def list_names(self, folder: str) -> set[str]:
        """The names in a folder, perhaps also of dangling links. Faster than `list`."""

    def entry(self, path: str) -> Entry | None:
        """One file or folder as `list` would return it; None if it does not exist."""

    def exists(self, path: str) -> bool: ...

    def sync_folder(self, path: str) -> None:
        """Return when the names in the folder are durable."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def lock(self, path: str) -> Lock:
        """Lock a file exclusively, also within this process. Raises `StoreLocked` if it is locked already."""


class LocalFileSystem:
    """The local disk. A forked child can only read with it (`duralog.storage.disk.forks`)."""

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
                    return LocalMapping(path, None)  # An empty file cannot be mapped.
                mapped = mmap.mmap(descriptor, size)
                # Without this, the first access to a page reads ahead, which takes milliseconds for a few bytes.
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
            # In one call. It returns less if the writer of the file cuts it meanwhile, as Kafka does with an index.
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
                    # The file was removed meanwhile, or the link is dangling or a loop.
                    if error.errno not in (errno.ENOENT, errno.ELOOP):
                        raise
        return entries

    def list_names(self, folder: str) -> set[str]:
        with refusals("list", folder):
            return set(os.listdir(folder))

    def entry(self, path: str) -> Entry | None:
        with refusals("stat", path):
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
                # Without O_NONBLOCK, opening a pipe without a peer would never return.
                descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, file_mode(path))
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                raise refused from error  # A socket, or a pipe without a reader.
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
    """The size of the disk that a folder is on, and the space that this process may still use."""
    with refusals("ask for the space on the disk", path):
        status = os.statvfs(path)
    return DiskSpace(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def raise_open_file_limit() -> int:
    """Raise the limit of open files to the hard limit, as a JVM does. Returns the limit.

    A partition that is written to has three files open, and every older segment that was read up to three more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
