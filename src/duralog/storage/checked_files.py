"""Where checks read from: the disk of this machine, or whatever a store's file system reaches, an object store say.

Both speak the checks' language: a file that is gone is a `FileNotFoundError`, one that cannot be read another
`OSError`, and one that is no file of its kind a `CorruptRecord`. Nothing is written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from duralog.columnar.pieces import ByteSource
from duralog.errors import StorageError
from duralog.storage.file_system import FileSystem, LocalFileSystem
from duralog.storage.files import FileSource, FoundFile, in_order, look_into, read_small, size_of


class CheckedFiles(Protocol):
    """Files to be checked."""

    @property
    def file_system(self) -> FileSystem: ...

    def look_into(self, folder: str) -> tuple[list[FoundFile], list[str]]:
        """As `duralog.storage.files.look_into`."""

    def read_small(self, path: str) -> bytes | None:
        """All of a file that is no log; None if there is no such file."""

    def size_of(self, path: str) -> int:
        """Of a file that a listing had; 0 if it has gone meanwhile."""

    def open(self, path: str) -> AbstractContextManager[ByteSource]: ...


class LocalFiles:
    """The disk of this machine."""

    file_system = LocalFileSystem()

    def look_into(self, folder: str) -> tuple[list[FoundFile], list[str]]:
        return look_into(folder)

    def read_small(self, path: str) -> bytes | None:
        return read_small(path)

    def size_of(self, path: str) -> int:
        return size_of(path)

    def open(self, path: str) -> AbstractContextManager[ByteSource]:
        return FileSource(path)


LOCAL_FILES = LocalFiles()


class FilesOf:
    """What a file system reaches. Sizes are those of the last listing: there, asking for one is a request."""

    def __init__(self, file_system: FileSystem) -> None:
        self.file_system = file_system
        self._sizes: dict[str, int] = {}

    def look_into(self, folder: str) -> tuple[list[FoundFile], list[str]]:
        with _as_os_errors():
            entries = self.file_system.list(folder)
        paths = {os.path.join(folder, entry.name): entry for entry in entries}
        self._sizes |= {path: entry.size for path, entry in paths.items() if not entry.is_folder}
        return in_order(
            [path for path, entry in paths.items() if not entry.is_folder],
            [path for path, entry in paths.items() if entry.is_folder],
        )

    def read_small(self, path: str) -> bytes | None:
        with _as_os_errors():
            return self.file_system.read_all(path) if self.file_system.exists(path) else None

    def size_of(self, path: str) -> int:
        if path not in self._sizes:
            entry = self.file_system.entry(path)
            return 0 if entry is None else entry.size
        return self._sizes[path]

    @contextmanager
    def open(self, path: str) -> Iterator[ByteSource]:
        with _as_os_errors():
            if not self.file_system.exists(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            file = self.file_system.open(path)
            try:
                yield file
            finally:
                file.close()


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise OSError(errno.EIO, str(error)) from error
