"""Open files, mapped files and locks of the local disk, as `duralog.storage.file_system` describes them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, cast

from duralog.errors import CorruptRecord, Fault, StorageError, StoreLocked
from duralog.format.filenames import CLUSTER_METADATA_FOLDER
from duralog.format.varint import Bytes

FILE_MODE = 0o666
"""Less what the process's umask takes away, as of any file of Kafka's."""
_PRIVATE_MODE = 0o600
_MOST_BUFFERS = os.sysconf("SC_IOV_MAX")
_ALLOCATED_AHEAD = 1 << 20
_KEEP_SIZE = 1
_BEGIN_WRITING = 2


def _find_call(name: str, *argument_types: Any) -> Callable[..., int] | None:
    """A call of Linux that Python does not have."""
    call: Any = getattr(ctypes.CDLL(None), name, None)
    if call is not None:
        call.argtypes = argument_types
    return cast("Callable[..., int] | None", call)


_fallocate = _find_call("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
"""That of POSIX, which Python has, would move the end of the file."""
_sync_file_range = _find_call("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def file_mode(path: str) -> int:
    """With which a new file is made. The cluster metadata may hold passwords and credentials: only its owner reads it.

    That holds for everything in its folder: segments, snapshots, and what recovery has put in quarantine.
    """
    return _PRIVATE_MODE if f"/{CLUSTER_METADATA_FOLDER}/" in f"/{path}" else FILE_MODE


@contextmanager
def refusals(operation: str, path: str) -> Iterator[None]:
    """Tell what the system refuses as a `StorageError`."""
    try:
        yield
    except OSError as error:
        raise _storage_error(operation, path, error) from error


def _storage_error(operation: str, path: str, error: OSError) -> StorageError:
    return StorageError(f"{path}: cannot {operation}: {error.strerror or error}")


class LocalFile:
    """A file of the local disk."""

    __slots__ = ("__weakref__", "_allocated", "_descriptor", "name", "size")

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.name = path
        self.size = size
        self._descriptor = descriptor
        self._allocated = max(size, _ALLOCATED_AHEAD)
        """Up to here an append asks for no room ahead: small files get none."""

    def read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
        except OSError as error:
            raise _storage_error("read", self.name, error) from error
        if len(data) == size:
            return data
        # One call gives at most 2 GiB; a file that was cut meanwhile gives nothing more.
        whole = bytearray(size)
        whole[: len(data)] = data
        self.read_into(position + len(data), memoryview(whole)[len(data) :])
        return bytes(whole)

    def read_into(self, position: int, target: memoryview) -> None:
        got = 0
        while got < len(target):
            with refusals("read", self.name):
                count = os.preadv(self._descriptor, (target[got:],), position + got)
            if count == 0:
                raise CorruptRecord(
                    "the file became shorter while it was read",
                    fault=Fault.PARTIAL_BATCH,
                    file=self.name,
                    position=position + got,
                    expected=f"{len(target) - got} bytes more",
                    found="the end of the file",
                )
            got += count

    def forget(self, position: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):
                os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_DONTNEED)

    def append(self, *buffers: Bytes) -> int:
        size = self.size
        try:
            if len(buffers) == 1:
                written = os.pwrite(self._descriptor, buffers[0], size)
                if written < len(buffers[0]):
                    written = self._write_rest(buffers, size, written)
            else:
                written = self._write_rest(buffers, size, 0)
        except OSError as error:
            self._cut_back(size)
            raise _storage_error("append to", self.name, error) from error
        self.size = size + written
        if self.size > self._allocated:
            self._allocate_ahead()
        return written

    def _allocate_ahead(self) -> None:
        """Have the system set room aside behind the end, which stays where it is, until the file is truncated.

        A write into such room is cheaper than one for which the system has to find some, and the file comes to lie
        in fewer parts. Where there is none, or no such call, the next write finds out.
        """
        self._allocated = self.size + _ALLOCATED_AHEAD
        if _fallocate is None or _fallocate(self._descriptor, _KEEP_SIZE, self.size, _ALLOCATED_AHEAD) != 0:
            self._allocated = sys.maxsize

    def _write_rest(self, buffers: tuple[Bytes, ...], position: int, written: int) -> int:
        """Write what follows the first `written` bytes of the buffers. Returns how many bytes they all are."""
        end = 0
        waiting: list[memoryview] = []
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            end += len(view)
            if end > written:
                waiting.append(view[max(0, len(view) - (end - written)) :])
        while waiting:
            count = os.pwritev(self._descriptor, waiting[:_MOST_BUFFERS], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count
            while waiting and count >= len(waiting[0]):
                count -= len(waiting.pop(0))
            if count:
                waiting[0] = waiting[0][count:]
        return written

    def _cut_back(self, size: int) -> None:
        # Where this fails, half a batch stays behind the end. The next append overwrites it; recovery would cut it off.
        with suppress(StorageError):
            self.truncate(size)

    def truncate(self, size: int) -> None:
        with refusals("truncate", self.name):
            os.ftruncate(self._descriptor, size)
        self.size = size
        self._allocated = max(size, _ALLOCATED_AHEAD)

    def allocate(self, size: int) -> None:
        if size > 0:
            with refusals("allocate room in", self.name):
                os.posix_fallocate(self._descriptor, 0, size)

    def begin_sync(self, position: int) -> None:
        # What goes wrong here, `sync` finds out.
        if _sync_file_range is not None:
            _sync_file_range(self._descriptor, position, self.size - position, _BEGIN_WRITING)

    def sync(self) -> None:
        with refusals("sync", self.name):
            os.fsync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self, _close: Callable[[int], None] = os.close) -> None:
        # Bound above, since a file that lives to the end of the process is closed when `os` is gone already.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _close(descriptor)

    def __del__(self) -> None:
        self.close()


class LocalMapping:
    """A mapped file of the local disk."""

    __slots__ = ("_mapped", "_path", "_reserved", "view")

    _RESERVE_BYTES = 64 << 10

    def __init__(self, path: str, mapped: mmap.mmap | None) -> None:
        self.view = memoryview(b"" if mapped is None else mapped)
        self._mapped = mapped
        self._path = path
        self._reserved = 0

    def reserve(self, end: int) -> None:
        if end <= self._reserved:
            return
        # Some more than asked for, so that this is done for one entry in thousands.
        reserved = min(end + self._RESERVE_BYTES, len(self.view))
        with refusals("reserve room in", self._path):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.posix_fallocate(descriptor, 0, reserved)
            finally:
                os.close(descriptor)
        self._reserved = reserved

    def sync(self) -> None:
        if self._mapped is not None:
            with refusals("sync", self._path):
                self._mapped.flush()


class LocalLock:
    """A POSIX lock, as Java's `FileLock` takes it, so that it keeps Kafka out and is kept out by it.

    Such a lock belongs to the process: a second one of the same process would be granted, and closing any descriptor of
    the file would drop them all. So the process remembers which files it has locked, and does not open them again.

    A shared one keeps writers out and other readers not. It changes nothing, so it can be had on a disk or of an owner
    that lets this process only read.

    The file is empty, unless a job has lent the directory to its tasks (`duralog.storage.lent_lock`).
    """

    held: ClassVar[set[tuple[int, int]]] = set()
    """The lock files that this process has open."""
    guard = threading.Lock()
    """For whoever looks at `held`, or changes it."""

    def __init__(self, path: str, *, shared: bool = False) -> None:
        """The file is made if it is not there, unless the lock is a shared one."""
        self.path = path
        # Without O_NONBLOCK, opening a pipe that nobody writes to would never return.
        access = os.O_RDONLY | os.O_NONBLOCK if shared else os.O_RDWR | os.O_CREAT
        with self.guard, refusals("lock", path):
            if os.path.exists(path) and identity_of(os.stat(path)) in self.held:
                raise StoreLocked(f"{path}: this process has it open already")
            self.descriptor = os.open(path, access | os.O_CLOEXEC, FILE_MODE)
            try:
                fcntl.lockf(self.descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                if not shared:
                    # A job that was here before may have died: its tasks are not to find their way in any more.
                    os.ftruncate(self.descriptor, 0)
            except OSError as error:
                os.close(self.descriptor)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise StoreLocked(f"{path}: another process has it locked") from error
                raise
            self.identity = identity_of(os.fstat(self.descriptor))
            self.held.add(self.identity)

    def release(self) -> None:
        with self.guard:
            if self.identity in self.held:
                self.held.remove(self.identity)
                os.close(self.descriptor)


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """What tells a file from all others, whatever its name."""
    return status.st_dev, status.st_ino
