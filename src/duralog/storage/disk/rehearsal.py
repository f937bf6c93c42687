"""A file system for dry runs: the real code runs, and the disk stays as it is.

New contents go to temporary files without a name; names are kept in memory. A file that is only cut or appended to is
not copied: its old contents are read from the original.

REQUIRES: no other process changes the folder meanwhile. A dry run on a directory in use may give wrong results.
"""

from __future__ import annotations

import os
import tempfile

from duralog.errors import StorageError
from duralog.format.varint import Bytes
from duralog.storage.disk.file_system import Entry, File, FileSystem, check_small
from duralog.storage.disk.local_files import LocalFile


class RehearsalFileSystem:
    """`below` with private changes on top."""

    def __init__(self, below: FileSystem) -> None:
        self._below = below
        self._changed: dict[str, _Content | str | None] = {}
        """By path: new contents, the path of the real file, or None for a removed file."""

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> File:
        content = self._seen(path)
        if isinstance(content, str) and not writable:
            return self._below.open(content)
        if content is None and not create:
            raise StorageError(f"{path}: cannot open: there is no such file") from FileNotFoundError(path)
        return RehearsedFile(path, self._content(path))

    def map(self, path: str, size: int) -> RehearsedMapping:
        old = b"" if self._seen(path) is None else self.read_all(path)
        memory = bytearray(old[:size].ljust(size, b"\0"))
        self._changed[os.path.normpath(path)] = _Content(memory=memory)
        return RehearsedMapping(memoryview(memory))

    def truncate(self, path: str, size: int) -> None:
        self._content(path).truncate(size)

    def read_all(self, path: str) -> bytes:
        file = self.open(path)
        check_small(path, file.size)
        return file.read(0, file.size)

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:  # noqa: ARG002 (changes end with this object)
        self._changed[os.path.normpath(path)] = _Content(memory=bytearray(data))

    def replace(self, path: str, data: Bytes) -> None:
        self.write(path, data, sync=True)

    def rename(self, source: str, target: str) -> None:
        content = self._seen(source)
        if content is None:
            raise StorageError(f"{source}: cannot rename: there is no such file")
        self._changed[os.path.normpath(target)] = content
        self._changed[os.path.normpath(source)] = None

    def remove(self, path: str) -> None:
        self._changed[os.path.normpath(path)] = None

    def make_folder(self, path: str) -> None:
        """Nothing to do: a folder exists if it has files."""

    def remove_folder(self, path: str) -> None:
        for entry in self.list(path):
            inner = os.path.join(path, entry.name)
            if entry.is_folder:
                self.remove_folder(inner)
            else:
                self.remove(inner)

    def list(self, folder: str) -> list[Entry]:
        entries = {entry.name: entry for entry in self._below.list(folder)} if self._below.exists(folder) else {}
        for path, content in self._changed.items():
            if os.path.dirname(path) == os.path.normpath(folder):
                entries.pop(os.path.basename(path), None)
                if content is not None and (entry := self.entry(path)) is not None:
                    entries[entry.name] = entry
        return list(entries.values())

    def list_names(self, folder: str) -> set[str]:
        names = self._below.list_names(folder) if self._below.exists(folder) else set()
        unchanged = {name for name in names if os.path.normpath(os.path.join(folder, name)) not in self._changed}
        return unchanged.union(entry.name for entry in self.list(folder))

    def entry(self, path: str) -> Entry | None:
        content = self._seen(path)
        name = os.path.basename(path)
        if isinstance(content, _Content):
            return Entry(name, content.size, content.modified_ms, is_folder=False)
        if content is not None:
            found = self._below.entry(content)
            return None if found is None else found._replace(name=name)
        inside = os.path.normpath(path) + os.sep
        is_new_folder = any(other.startswith(inside) and content for other, content in self._changed.items())
        return Entry(name, 0, 0, is_folder=True) if is_new_folder else None

    def exists(self, path: str) -> bool:
        return self.entry(path) is not None

    def sync_folder(self, path: str) -> None:
        """Nothing to do: changes end with this object."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._content(path).modified_ms = modified_ms

    def lock(self, path: str) -> RehearsedLock:  # noqa: ARG002 (no other process sees it)
        return RehearsedLock()

    def _seen(self, path: str) -> _Content | str | None:
        path = os.path.normpath(path)
        if path in self._changed:
            return self._changed[path]
        return path if self._below.exists(path) else None

    def _content(self, path: str) -> _Content:
        """The contents of the file, to be changed. A file that does not exist becomes an empty one."""
        content = self._seen(path)
        if not isinstance(content, _Content):
            content = _Content() if content is None else _Content(below=self._below.open(content))
            self._changed[os.path.normpath(path)] = content
        return content


class _Content:
    """The contents of a file: the start of a file on disk or of a buffer, then what was appended."""

    def __init__(self, below: File | None = None, memory: bytearray | None = None) -> None:
        self._below = below
        self._memory = memory
        self._kept = below.size if below is not None else len(memory or b"")
        self._added: LocalFile | None = None
        self.modified_ms = 0

    @property
    def size(self) -> int:
        return self._kept + (0 if self._added is None else self._added.size)

    def read(self, position: int, size: int) -> bytes:
        first = b""
        if position < self._kept:
            length = min(size, self._kept - position)
            if self._memory is not None:
                first = bytes(self._memory[position : position + length])
            elif self._below is not None:
                first = self._below.read(position, length)
        if len(first) < size and self._added is not None:
            return first + self._added.read(position + len(first) - self._kept, size - len(first))
        return first

    def append(self, *buffers: Bytes) -> int:
        if self._added is None:
            self._added = _unnamed_file()
        return self._added.append(*buffers)

    def truncate(self, size: int) -> None:
        if size <= self._kept:
            self._kept, self._added = size, None
        else:
            if self._added is None:
                self._added = _unnamed_file()
            self._added.truncate(size - self._kept)


class RehearsedFile:
    def __init__(self, name: str, content: _Content) -> None:
        self.name = name
        self._content = content

    @property
    def size(self) -> int:
        return self._content.size

    def read(self, position: int, size: int) -> bytes:
        return self._content.read(position, size)

    def read_into(self, position: int, target: memoryview) -> None:
        target[:] = self._content.read(position, len(target))

    def forget(self, position: int, size: int) -> None:
        """Nothing to do: it only affects speed."""

    def append(self, *buffers: Bytes) -> int:
        return self._content.append(*buffers)

    def truncate(self, size: int) -> None:
        self._content.truncate(size)

    def allocate(self, size: int) -> None:
        """Nothing to do: a dry run does not check for space."""

    def begin_sync(self, position: int) -> None:
        """Nothing to do: it only affects speed."""

    def sync(self) -> None:
        """Nothing to do: changes end with the dry run."""

    def fileno(self) -> int:
        raise StorageError(f"{self.name}: cannot send from it: this is a dry run")

    def close(self) -> None:
        """Nothing to do."""


class RehearsedMapping:
    def __init__(self, view: memoryview) -> None:
        self.view = view

    def reserve(self, end: int) -> None:
        """Nothing to do."""

    def sync(self) -> None:
        """Nothing to do."""


class RehearsedLock:
    def check(self) -> None:
        """Nothing to do."""

    def release(self) -> None:
        """Nothing to do."""


def _unnamed_file() -> LocalFile:
    with tempfile.TemporaryFile(prefix="duralog-rehearsal") as file:
        return LocalFile("a file of a dry run", os.dup(file.fileno()), 0)
