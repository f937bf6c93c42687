"""A file system that keeps changes in memory: for opening a directory read-only.

Opening a log cleans up after a crash: files are renamed, removed and rewritten. Opening it read-only runs the same
code, but nothing reaches the disk: a name may lead to a file with another name, be hidden, or have its contents in
memory.

Another process may write to the directory. So a folder is listed until two listings agree, and that listing is kept. A
file that was listed with an unfinished name may have its final name when it is opened: then that one is opened.
"""

# ruff: noqa: ARG002 (methods that only raise have the arguments of the protocol)

from __future__ import annotations

import os

from duralog.errors import CorruptRecord, Fault, StorageError
from duralog.format.filenames import FileState
from duralog.format.varint import Bytes
from duralog.storage.disk.file_system import Entry, File, FileSystem, Lock, MappedFile

_MOST_LISTINGS = 10
_MOVING_STATES = tuple(state.value for state in FileState if state is not FileState.LIVE)


class ShadowFileSystem:
    """`below` with private changes on top. Files can be read, and replaced as a whole."""

    def __init__(self, below: FileSystem) -> None:
        self._below = below
        self._changed: dict[str, str | bytes | None] = {}
        """By path: the path of the real file, new contents, or None for a removed file."""
        self._listed: dict[str, list[Entry]] = {}
        self._dangling: dict[str, set[str]] = {}
        """By folder: the names of dangling links, which its listing leaves out."""

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> File:
        if writable or create:
            raise _refused("open for writing", path)
        content = self._seen(path)
        if isinstance(content, bytes):
            return MemoryFile(path, content)
        return self._below.open(self._name_now(content))

    def read_all(self, path: str) -> bytes:
        content = self._seen(path)
        return content if isinstance(content, bytes) else self._below.read_all(self._name_now(content))

    def list(self, folder: str) -> list[Entry]:
        if folder not in self._listed:
            self._listed[folder], self._dangling[folder] = _steady_listing(self._below, folder)
        entries = {entry.name: entry for entry in self._listed[folder]}
        for path, content in self._changed.items():
            if os.path.dirname(path) != os.path.normpath(folder):
                continue
            name = os.path.basename(path)
            entries.pop(name, None)
            if content is not None:
                seen = self.entry(path)
                if seen is not None:
                    entries[name] = seen
        return list(entries.values())

    def list_names(self, folder: str) -> set[str]:
        names = {entry.name for entry in self.list(folder)}
        return names.union(
            name for name in self._dangling[folder] if os.path.normpath(os.path.join(folder, name)) not in self._changed
        )

    def entry(self, path: str) -> Entry | None:
        content = self._changed.get(os.path.normpath(path), path)
        if content is None:
            return None
        name = os.path.basename(path)
        if isinstance(content, bytes):
            return Entry(name, len(content), 0, is_folder=False)
        found = self._below.entry(self._name_now(content))
        return None if found is None else found._replace(name=name)

    def exists(self, path: str) -> bool:
        return self.entry(path) is not None

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:
        self._changed[os.path.normpath(path)] = bytes(data)

    def replace(self, path: str, data: Bytes) -> None:
        self.write(path, data, sync=True)

    def rename(self, source: str, target: str) -> None:
        self._changed[os.path.normpath(target)] = self._seen(source)
        self.remove(source)

    def remove(self, path: str) -> None:
        self._changed[os.path.normpath(path)] = None

    def make_folder(self, path: str) -> None:
        """Nothing to do: a folder exists if it has files."""

    def remove_folder(self, path: str) -> None:
        self.remove(path)

    def sync_folder(self, path: str) -> None:
        """Nothing to do: changes end with this object."""

    def map(self, path: str, size: int) -> MappedFile:
        raise _refused("map", path)

    def truncate(self, path: str, size: int) -> None:
        raise _refused("truncate", path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        raise _refused("set the time of", path)

    def lock(self, path: str) -> Lock:
        raise _refused("lock", path)

    def _name_now(self, path: str) -> str:
        settled = _settled(path)
        return path if settled == path or self._below.exists(path) else settled

    def _seen(self, path: str) -> str | bytes:
        content = self._changed.get(os.path.normpath(path), path)
        if content is None:
            raise StorageError(f"{path}: cannot open: there is no such file")
        return content


class MemoryFile:
    """Bytes in memory with the interface of a file."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.size = len(content)
        self._content = content

    def read(self, position: int, size: int) -> bytes:
        data = self._content[position : position + size]
        if len(data) != size:
            raise CorruptRecord(
                "the contents end early",
                fault=Fault.PARTIAL_BATCH,
                file=self.name,
                position=position,
                expected=f"{size} bytes",
                found=f"{len(data)} bytes",
            )
        return data

    def read_into(self, position: int, target: memoryview) -> None:
        target[:] = self.read(position, len(target))

    def forget(self, position: int, size: int) -> None:
        """Nothing to do: it only affects speed."""

    def append(self, *buffers: Bytes) -> int:
        raise _refused("append to", self.name)

    def truncate(self, size: int) -> None:
        raise _refused("truncate", self.name)

    def allocate(self, size: int) -> None:
        raise _refused("allocate room in", self.name)

    def begin_sync(self, position: int) -> None:
        """Nothing to do: it only affects speed."""

    def sync(self) -> None:
        """Nothing to do."""

    def fileno(self) -> int:
        raise _refused("send from", self.name)

    def close(self) -> None:
        """Nothing to do."""


def _steady_listing(fs: FileSystem, folder: str) -> tuple[list[Entry], set[str]]:
    """The entries of the folder, and the names of dangling links in it."""
    before: set[str] | None = None
    for _ in range(_MOST_LISTINGS):
        listing = fs.list(folder)
        names = fs.list_names(folder)
        # A listing leaves out the names of dangling links.
        listed = {entry.name for entry in listing}
        if names in (listed, before):
            break
        before = names
    return listing, names - listed


def _settled(path: str) -> str:
    """The name of a file once the work on it is finished."""
    for suffix in _MOVING_STATES:
        path = path.removesuffix(suffix)
    return path


def _refused(operation: str, path: str) -> StorageError:
    return StorageError(f"{path}: cannot {operation}: the directory was opened for reading only")
