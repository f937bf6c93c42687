"""Where checks read from: the disk of this machine, or something with the same interface, such as an object store.

All raise the errors of the operating system: `FileNotFoundError` for a file that was removed, another `OSError` for one
that cannot be read, and `CorruptRecord` for one that is not a file of its kind. Nothing is written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from duralog.columnar.pieces import ByteSource
from duralog.storage.disk.file_source import FileSource, is_growing, os_errors, read_small, size_of
from duralog.storage.disk.file_system import File, FileSystem, check_small
from duralog.storage.disk.found_files import FoundFile, in_order, look_into


class CheckedFiles(Protocol):
    """Files to be checked. Paths are whatever `look_into` gives, and what findings call the files."""

    def look_into(self, folder: str) -> tuple[list[FoundFile], list[str]]:
        """As `duralog.storage.disk.found_files.look_into`."""

    def read_small(self, path: str) -> bytes | None:
        """All of a file that is not a log; None if there is no such file."""

    def size_of(self, path: str) -> int:
        """The size of a file that was listed; 0 if it was removed meanwhile."""

    def is_growing(self, path: str, size: int) -> bool:
        """Whether another process appends to a file that had this size."""

    def open(self, path: str) -> AbstractContextManager[ByteSource]:
        """A log, to be read from its start to its end."""


class LocalFiles:
    """The disk of this machine."""

    def look_into(self, folder: str) -> tuple[list[FoundFile], list[str]]:
        return look_into(folder)

    def read_small(self, path: str) -> bytes | None:
        return read_small(path)

    def size_of(self, path: str) -> int:
        return size_of(path)

    def is_growing(self, path: str, size: int) -> bool:
        return is_growing(path, size)

    def open(self, path: str) -> AbstractContextManager[ByteSource]:
        try:
            return FileSource(path)
        except FileNotFoundError:
            if not os.path.islink(path):
                raise
            raise OSError(errno.ENXIO, "a link to a file that is not there", path) from None


LOCAL_FILES = LocalFiles()


class FilesOf:
    """The files of a file system, perhaps of one that only rehearses changes."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def look_into(self, folder: str) -> tuple[list[FoundFile], list[str]]:
        with os_errors():
            entries = self._fs.list(folder)
        files = (os.path.join(folder, entry.name) for entry in entries if not entry.is_folder)
        return in_order(files, (os.path.join(folder, entry.name) for entry in entries if entry.is_folder))

    def read_small(self, path: str) -> bytes | None:
        if not self._fs.exists(path):
            return None
        check_small(path, self.size_of(path))
        with os_errors():
            return self._fs.read_all(path)

    def size_of(self, path: str) -> int:
        entry = self._fs.entry(path)
        return 0 if entry is None else entry.size

    def is_growing(self, path: str, size: int) -> bool:  # noqa: ARG002 (no other process writes here)
        return False

    @contextmanager
    def open(self, path: str) -> Iterator[File]:
        with os_errors():
            file = self._fs.open(path)
        try:
            yield file
        finally:
            file.close()
