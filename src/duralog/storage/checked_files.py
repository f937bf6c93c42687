"""Where checks read from: the disk of this machine, or whatever else somebody makes look like it, an object store say.

The checks' language is the operating system's: a file that is gone is a `FileNotFoundError`, one that cannot be read
another `OSError`, and one that is no file of its kind a `CorruptRecord`. Nothing is written.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from duralog.columnar.pieces import ByteSource
from duralog.storage.files import FileSource, FoundFile, is_growing, look_into, read_small, size_of


class CheckedFiles(Protocol):
    """Files to be checked. Paths are whatever `look_into` gives, and what findings call the files."""

    def look_into(self, folder: str) -> tuple[list[FoundFile], list[str]]:
        """As `duralog.storage.files.look_into`."""

    def read_small(self, path: str) -> bytes | None:
        """All of a file that is no log; None if there is no such file."""

    def size_of(self, path: str) -> int:
        """Of a file that a listing had; 0 if it has gone meanwhile."""

    def is_growing(self, path: str, size: int) -> bool:
        """Whether somebody writes to the end of a file that had this size."""

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
        return FileSource(path)


LOCAL_FILES = LocalFiles()
