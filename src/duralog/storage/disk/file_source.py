"""Files as checks and dumps read them: through `FileSystem`, with the errors of the operating system.

A check reports what the system said of a file, so a refused operation raises `OSError` here, and not `StorageError`.
Nothing is written.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from duralog.errors import CorruptRecord, Fault, StorageError
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.disk.file_system import LARGEST_SMALL_FILE_BYTES, FileSystem, LocalFileSystem, check_small

LOCAL = LocalFileSystem()
_READ_ATTEMPTS = 3
_LATELY_MS = 2_000
_GROWTH_CHECKS = 25
_BETWEEN_CHECKS_SECONDS = 0.01


@contextmanager
def os_errors() -> Iterator[None]:
    """Raise the `OSError` that caused a `StorageError`; EIO for one without."""
    try:
        yield
    except StorageError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise OSError(errno.EIO, str(error)) from error


class FileSource:
    """A regular file, open for reading at any position. `size` is what it was when the file was opened."""

    def __init__(self, path: str | os.PathLike[str], fs: FileSystem = LOCAL) -> None:
        self.name = os.fspath(path)
        with os_errors():
            try:
                self._file = fs.open(self.name)
            except StorageError as error:
                if error.__cause__ is None:
                    raise CorruptRecord("not a regular file", file=self.name) from None
                raise
        self.size = self._file.size

    def read(self, position: int, size: int) -> bytes:
        """Exactly `size` bytes; `CorruptRecord` if the file ends before."""
        with os_errors():
            return self._file.read(position, size)

    def read_into(self, position: int, target: memoryview) -> None:
        """Fill `target`; `CorruptRecord` if the file ends before."""
        with os_errors():
            self._file.read_into(position, target)

    def read_all(self, *, limit: int = LARGEST_SMALL_FILE_BYTES) -> bytes:
        """The whole file; `CorruptRecord` if it is larger than `limit`, and so not what its name says."""
        check_small(self.name, self.size, limit)
        return self.read(0, self.size)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_small(path: str, fs: FileSystem = LOCAL) -> bytes | None:
    """All of a file that is not a log; None if there is no such file.

    A broker cuts the unused end off an index when its segment is complete. So a file that becomes shorter is read
    again.
    """
    attempts = _READ_ATTEMPTS
    while True:
        attempts -= 1
        try:
            with FileSource(path, fs) as source:
                return source.read_all()
        except FileNotFoundError:
            return None
        except CorruptRecord as error:
            if error.fault is not Fault.PARTIAL_BATCH or not attempts:
                raise


def size_of(path: str, fs: FileSystem = LOCAL) -> int:
    """The size of a file that was listed; 0 if it was removed meanwhile."""
    try:
        entry = fs.entry(path)
    except StorageError:
        return 0
    return 0 if entry is None else entry.size


def is_growing(path: str, size: int, fs: FileSystem = LOCAL) -> bool:
    """Whether another process appends to a file that had this size.

    A write of several pages becomes visible page by page, and the writer may be paused in the middle of it. So a file
    that was modified in the last seconds is checked several times.
    """
    for _ in range(_GROWTH_CHECKS):
        with os_errors():
            entry = fs.entry(path)
        if entry is None:
            return False
        if entry.size != size:
            return entry.size > size
        if abs(wall_clock_ms() - entry.modified_ms) > _LATELY_MS:
            return False
        time.sleep(_BETWEEN_CHECKS_SECONDS)
    return False
