"""Where checks read from: any `FileSystem`.

`duralog.scanning.remote_checks` has the files of an object store, read ahead.

All raise the errors of the operating system: `FileNotFoundError` for a file that was removed, another `OSError` for one
that cannot be read, and `CorruptRecord` for one that is not a file of its kind. Nothing is written.
"""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager
from typing import Protocol

from duralog.columnar.pieces import ByteSource
from duralog.storage.disk.file_source import LOCAL, FileSource, is_growing, os_errors, read_small, size_of
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.found_files import FoundFile, look_into


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


class FilesOf:
    """The files of a file system: of the local disk, or of one that only rehearses changes."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def look_into(self, folder: str) -> tuple[list[FoundFile], list[str]]:
        return look_into(folder, self._fs)

    def read_small(self, path: str) -> bytes | None:
        return read_small(path, self._fs)

    def size_of(self, path: str) -> int:
        return size_of(path, self._fs)

    def is_growing(self, path: str, size: int) -> bool:
        return is_growing(path, size, self._fs)

    def open(self, path: str) -> AbstractContextManager[ByteSource]:
        try:
            return FileSource(path, self._fs)
        except FileNotFoundError:
            if not self._is_link(path):
                raise
            raise OSError(errno.ENXIO, "a link to a file that is not there", path) from None

    def _is_link(self, path: str) -> bool:
        """Whether a file that cannot be found is a link to one that does not exist."""
        with os_errors():
            is_listed = os.path.basename(path) in self._fs.list_names(os.path.dirname(path))
        return is_listed and self._fs.entry(path) is None


LOCAL_FILES = FilesOf(LOCAL)
