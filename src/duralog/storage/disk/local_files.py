"""Open files and mapped files of the local disk, as `duralog.storage.disk.file_system` describes them."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from duralog.errors import CorruptRecord, Fault, StorageError
from duralog.format.filenames import CLUSTER_METADATA_FOLDER
from duralog.format.varint import Bytes
from duralog.storage.disk import forks

FILE_MODE = 0o666
"""Before the umask, as for all files of Kafka."""
_PRIVATE_MODE = 0o600
_MOST_BUFFERS = os.sysconf("SC_IOV_MAX")
_ALLOCATED_AHEAD = 1 << 20
_KEEP_SIZE = 1
_BEGIN_WRITING = 2


def _find_call(name: str, *argument_types: Any) -> Callable[..., int] | None:
    """A Linux call that Python's `os` does not offer."""
    call: Any = getattr(ctypes.CDLL(None), name, None)
    if call is not None:
        call.argtypes = argument_types
    return cast("Callable[..., int] | None", call)


_fallocate = _find_call("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
"""`os.posix_fallocate` would move the end of the file."""
_sync_file_range = _find_call("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def file_mode(path: str) -> int:
    """The mode of a new file. The cluster metadata may hold passwords and credentials: only the owner may read it.

    This applies to everything in its folder: segments, snapshots, and quarantined bytes.
    """
    return _PRIVATE_MODE if f"/{CLUSTER_METADATA_FOLDER}/" in f"/{path}" else FILE_MODE


@contextmanager
def refusals(operation: str, path: str) -> Iterator[None]:
    """Raise an `OSError` as a `StorageError`."""
    try:
        yield
    except OSError as error:
        raise _storage_error(operation, path, error) from error


def _storage_error(operation: str, path: str, error: OSError) -> StorageError:
    return StorageError(f"{path}: cannot {operation}: {error.strerror or error}")


class LocalFile:
    """A file of the local disk. A forked child can only read it (`duralog.storage.disk.forks`)."""

    __slots__ = ("__weakref__", "_allocated", "_descriptor", "_process", "name", "size")

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.name = path
        self.size = size
        self._descriptor = descriptor
        self._process = forks.here
        self._allocated = max(size, _ALLOCATED_AHEAD)
        """Appends below this position do not preallocate. Small files never do."""

    def read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
        except OSError as error:
            raise _storage_error("read", self.name, error) from error
        if len(data) == size:
            return data
        # One call returns at most 2 GiB, and less if the file was cut meanwhile.
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
        """Preallocate space after the end of the file, which does not move. Truncating the file releases the space.

        A write into preallocated space is cheaper, and the file has fewer extents. If the disk is full or there is no
        such call, the next write reports it.
        """
        self._allocated = self.size + _ALLOCATED_AHEAD
        if _fallocate is None or _fallocate(self._descriptor, _KEEP_SIZE, self.size, _ALLOCATED_AHEAD) != 0:
            self._allocated = sys.maxsize

    def _write_rest(self, buffers: tuple[Bytes, ...], position: int, written: int) -> int:
        """Write what follows the first `written` bytes of the buffers. Returns the size of all buffers."""
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
        # If this fails, part of a batch stays after the end. The next append overwrites it, or recovery cuts it off.
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
        # `sync` reports what goes wrong here.
        if _sync_file_range is not None:
            _sync_file_range(self._descriptor, position, self.size - position, _BEGIN_WRITING)

    def sync(self) -> None:
        with refusals("sync", self.name):
            os.fsync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self, _close: Callable[[int], None] = os.close) -> None:
        # A default argument, since `os` may be gone when the interpreter exits and the last files are closed.
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
        # More than asked for, so that only one entry in thousands needs this call.
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
