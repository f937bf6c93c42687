"""Open files, mapped files and locks of the local disk, as `duralog.storage.disk.file_system` describes them."""

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
from duralog.storage.disk import forks

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


class LockLost(StorageError):
    """A lock file was removed while it was locked: another process may have locked a new one."""


class LocalFile:
    """A file of the local disk. A forked child can read from it, and not change it (`duralog.storage.disk.forks`)."""

    __slots__ = ("__weakref__", "_allocated", "_descriptor", "_process", "name", "size")

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.name = path
        self.size = size
        self._descriptor = descriptor
        self._process = forks.here
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
        self.read_into(position, memoryview(whole))
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
                    position=position,
                    expected=f"{len(target)} bytes",
                    found=f"{got} bytes",
                )
            got += count

    def forget(self, position: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):
                os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_DONTNEED)

    def append(self, *buffers: Bytes) -> int:
        if self._process is not forks.here:
            self._process.check(self.name)
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
        self._process.check(self.name)
        with refusals("truncate", self.name):
            os.ftruncate(self._descriptor, size)
        self.size = size
        self._allocated = max(size, _ALLOCATED_AHEAD)

    def allocate(self, size: int) -> None:
        self._process.check(self.name)
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

    __slots__ = ("_mapped", "_path", "_process", "_reserved", "view")

    _RESERVE_BYTES = 64 << 10

    def __init__(self, path: str, mapped: mmap.mmap | None) -> None:
        self.view = memoryview(b"" if mapped is None else mapped)
        self._mapped = mapped
        self._path = path
        self._process = forks.here
        self._reserved = 0

    def reserve(self, end: int) -> None:
        self._process.check(self._path)
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
    the file would drop them all. So the process remembers which files it has locked, and does not open them again. A
    forked child has no part in it, and its copies of the descriptors are closed at the fork.

    A shared one keeps writers out and other readers not. It changes nothing, so it can be had on a disk or of an owner
    that lets this process only read.

    The lock is on the file, not on its name. If somebody removes the file, another process can make a new one and lock
    that: `check` finds out.

    The file is empty, unless a job has lent the directory to its tasks (`duralog.storage.disk.lent_lock`).
    """

    held: ClassVar[dict[tuple[int, int], int]] = {}
    """The lock files that this process has open, and their descriptors."""
    guard = threading.Lock()
    """For whoever looks at `held`, or changes it."""

    def __init__(self, path: str, *, shared: bool = False) -> None:
        """The file is made if it is not there, unless the lock is a shared one."""
        self.path = path
        self.process = forks.here
        self._checked_path = os.path.abspath(path)  # The process may change its working directory.
        with self.guard, refusals("lock", path):
            while True:
                if os.path.exists(path) and identity_of(os.stat(path)) in self.held:
                    raise StoreLocked(f"{path}: this process has it open already")
                self.descriptor = _locked(path, shared=shared)
                self.identity = identity_of(os.fstat(self.descriptor))
                if _identity_at(path) == self.identity:
                    break
                # Between opening and locking, the file was removed: others would lock the next one.
                os.close(self.descriptor)
            self.held[self.identity] = self.descriptor

    def check(self) -> None:
        """Raise `LockLost` if the file at the path is not the one that is locked."""
        self.process.check(self.path)
        check_in_place(self._checked_path, self.identity)

    def release(self) -> None:
        """In a forked child, this does nothing: the lock is its parent's."""
        with self.guard:
            if self.process is forks.here and self.held.pop(self.identity, None) is not None:
                os.close(self.descriptor)

    @classmethod
    def let_go_of_inherited(cls) -> None:
        """In a forked child."""
        cls.guard = threading.Lock()
        for descriptor in cls.held.values():
            os.close(descriptor)
        cls.held.clear()


forks.call_in_child(LocalLock.let_go_of_inherited)


def _locked(path: str, *, shared: bool) -> int:
    """The descriptor of the file, opened and locked."""
    # Without O_NONBLOCK, opening a pipe that nobody writes to would never return.
    access = os.O_RDONLY | os.O_NONBLOCK if shared else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, access | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.lockf(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if not shared:
            # A job that was here before may have died: its tasks are not to find their way in any more.
            os.ftruncate(descriptor, 0)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise StoreLocked(f"{path}: another process has it locked") from error
        raise
    return descriptor


def check_in_place(path: str, identity: tuple[int, int]) -> None:
    """Raise `LockLost` if a lock file is not at its path any more, so that others can lock another one there."""
    with refusals("look at", path):
        found = _identity_at(path)
    if found != identity:
        happened = "was removed" if found is None else "was removed, and another process has made a new one"
        raise LockLost(
            f"{path}: the lock file {happened}, so other writers are not kept out any more: this process writes nothing"
            " from now on. Make sure that only one process writes to the directory, then open it again"
        )


def _identity_at(path: str) -> tuple[int, int] | None:
    try:
        return identity_of(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """What tells a file from all others, whatever its name."""
    return status.st_dev, status.st_ino
