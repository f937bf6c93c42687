"""A file system in memory that loses power, refuses and fills up when a test asks it to.

It behaves as `duralog.storage.disk.file_system.FileSystem` demands, and remembers for every file and folder what was
synced beside what is there now. Every operation that changes something is numbered:

- `after_power_loss(seed)` is the disk that the next start finds if power is lost now; the seed chooses one of the many.
- `lose_power_after(n)` ends the program at a change: that operation and all that follow raise `PowerLost`.
- `on_change` is called after each change, to look at all possible crashes of one run.
- `refuse(...)` makes operations fail, once or for good, as a broken disk or one that was mounted read-only.
- `capacity_bytes` is the size of the disk.

With `forgets_failed_syncs`, a sync that fails loses what it should have written for good, as Linux does: a later sync
that succeeds says nothing about those bytes, although they can still be read.

A mapping that is written to where no room was reserved is an error of the program: the system would end it with a
signal if the disk were full.
"""

from __future__ import annotations

import copy
import errno
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from threading import RLock

from duralog.errors import CorruptRecord, Fault, StoreLocked
from duralog.format.filenames import HALF_WRITTEN_SUFFIX
from duralog.format.varint import Bytes
from duralog.storage.disk.file_system import Entry
from duralog.storage.disk.local_files import refusals
from tests.support.faults.power_loss import (
    File,
    Folder,
    NameChange,
    file_after_power_loss,
    file_after_write_back,
    names_after_power_loss,
    sync_names,
)

START_MS = 1_700_000_000_000


class PowerLost(BaseException):
    """The program ends here. Not an `Exception`: nothing may catch it and go on."""


@dataclass
class _Refusal:
    code: int
    operation: str
    path: str
    skipped: int
    times: int | None
    refused: bool = False


class CrashingFiles:
    """The disk, and the file system on it."""

    def __init__(
        self,
        *,
        seed: int = 0,
        capacity_bytes: int | None = None,
        write_back: float = 0.0,
        forgets_failed_syncs: bool = False,
        clock: Callable[[], int] = lambda: START_MS,
    ) -> None:
        self.changes = 0
        self.on_change: Callable[[], None] | None = None
        self.capacity_bytes = capacity_bytes
        self.write_back = write_back
        """How likely the system writes some unsynced sectors after a change."""
        self.forgets_failed_syncs = forgets_failed_syncs
        self.clock = clock
        self._random = Random(seed)
        self._root = Folder()
        self._name_changes: list[NameChange] = []
        self._refusals: list[_Refusal] = []
        self._loses_power_at: int | None = None
        self._locked: set[int] = set()
        self._guard = RLock()

    # What tests ask for.

    def lose_power_after(self, changes: int) -> None:
        """Let this many more changes happen, and none after them."""
        self._loses_power_at = self.changes + changes

    def refuse(self, code: int, *, operation: str = "", path: str = "", skip: int = 0, times: int | None = 1) -> None:
        """Fail operations whose name begins so, on paths that contain this: `times` of them, or all if that is None."""
        self._refusals.append(_Refusal(code, operation, path, skip, times))

    def stop_refusing(self) -> None:
        self._refusals.clear()

    @property
    def has_refused(self) -> bool:
        """Whether any of what was to be refused came."""
        return any(refusal.refused for refusal in self._refusals)

    def after_power_loss(self, seed: int) -> CrashingFiles:
        """One of the disks that may be found if power is lost now. This one is not touched."""
        random = Random(seed)
        tables = names_after_power_loss(self._name_changes, random)
        copies: dict[int, File] = {}

        def file(lost: File) -> File:
            if id(lost) not in copies:
                content = file_after_power_loss(lost.synced, lost.writable_content(), random)
                copies[id(lost)] = _settled(content, lost.modified_ms)
            return copies[id(lost)]

        return self._next_start(random.getrandbits(32), _copied(self._root, tables, file))

    def after_kill(self) -> CrashingFiles:
        """The disk that is found if the process dies and the system lives: all that was written is there, unsynced."""
        root, changes = copy.deepcopy((self._root, self._name_changes))
        disk = self._next_start(self._random.getrandbits(32), root)
        disk._name_changes = changes
        return disk

    def contents(self, folder: str = "/") -> dict[str, bytes]:
        """All files below a folder, by path."""
        found: dict[str, bytes] = {}
        for name, item in sorted(self._folder(folder).names.items()):
            path = os.path.join(folder, name)
            if isinstance(item, Folder):
                found |= self.contents(path)
            else:
                found[path] = bytes(item.content)
        return found

    @property
    def has_no_power(self) -> bool:
        return self._loses_power_at is not None and self.changes >= self._loses_power_at

    @property
    def used_bytes(self) -> int:
        return sum(file.allocated for file in _files(self._root))

    # The file system.

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> OpenFile:
        self._check("open", path)
        with refusals("open", path):
            item = self._find(path)
            if item is None:
                if not (writable and create):
                    raise _error(errno.ENOENT)
                item = self._create(path)
            if isinstance(item, Folder):
                raise _error(errno.EISDIR)
        return OpenFile(self, path, item, writable)

    def map(self, path: str, size: int) -> OpenMapping:
        self._check("map", path)
        with refusals("map", path):
            item = self._file(path) if self.exists(path) else self._create(path)
            if len(item.content) != size:
                item.resize(size)
                self._changed(item)
        return OpenMapping(self, path, item)

    def truncate(self, path: str, size: int) -> None:
        self._check("truncate", path)
        with refusals("truncate", path):
            self._file(path).resize(size)
        self._changed(self._file(path))

    def read_all(self, path: str) -> bytes:
        self._check("read", path)
        with refusals("read", path):
            return bytes(self._file(path).content)

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:
        self._check("write", path)
        with refusals("write", path):
            item = self._file(path) if self.exists(path) else self._create(path)
            item.resize(0)
            whole = bytes(data)
            room = self.room_for(item, len(whole))
            item.write(0, whole[:room])
            self._changed(item)
            if room < len(whole):
                raise _error(errno.ENOSPC)
        if sync:
            self._sync(path, item)

    def replace(self, path: str, data: Bytes) -> None:
        self.write(path + HALF_WRITTEN_SUFFIX, data, sync=True)
        self.rename(path + HALF_WRITTEN_SUFFIX, path)
        self.sync_folder(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        operation = f"rename to {os.path.basename(target)}"
        self._check(operation, source)
        with refusals(operation, source):
            item = self._find(source)
            if item is None:
                raise _error(errno.ENOENT)
            old, new = self._place(source), self._place(target)
            replaced = new[0].names.get(new[1])
            if isinstance(replaced, Folder) and replaced.names:
                raise _error(errno.ENOTEMPTY)
        with self._guard:
            del old[0].names[old[1]]
            new[0].names[new[1]] = item
            self._name_changes.append(NameChange(item, source=old, target=new))
        self._changed()

    def remove(self, path: str) -> None:
        self._check("remove", path)
        with refusals("remove", path):
            item = self._find(path)
            if isinstance(item, Folder):
                raise _error(errno.EISDIR)
        if item is not None:
            self._unlink(path, item)

    def make_folder(self, path: str) -> None:
        self._check("make the folder", path)
        with refusals("make the folder", path):
            item = self._find(path)
            if isinstance(item, File):
                raise _error(errno.EEXIST)
        if item is None:
            self.make_folder(os.path.dirname(path))
            self._link(path, Folder())

    def remove_folder(self, path: str) -> None:
        self._check("remove the folder", path)
        with refusals("remove the folder", path):
            item = self._find(path)
            if isinstance(item, File):
                raise _error(errno.ENOTDIR)
        if item is None:
            return
        for name, child in list(item.names.items()):
            inner = os.path.join(path, name)
            self.remove_folder(inner) if isinstance(child, Folder) else self.remove(inner)
        self._unlink(path, item)

    def list(self, folder: str) -> list[Entry]:
        self._check("list", folder)
        with refusals("list", folder):
            return [_entry(name, item) for name, item in list(self._folder(folder).names.items())]

    def list_names(self, folder: str) -> set[str]:
        return {entry.name for entry in self.list(folder)}

    def entry(self, path: str) -> Entry | None:
        self._check("look at", path)
        with refusals("look at", path):
            item = self._find(path)
        return None if item is None else _entry(os.path.basename(path), item)

    def exists(self, path: str) -> bool:
        # It is never refused: for the real one, what cannot be looked at does not exist.
        if self.has_no_power:
            raise PowerLost
        try:
            return self._find(path) is not None
        except NotADirectoryError:
            return False

    def sync_folder(self, path: str) -> None:
        self._check("sync the folder", path)
        with refusals("sync the folder", path):
            folder = self._folder(path or "/")
        with self._guard:
            self._name_changes = sync_names(self._name_changes, folder)
        self._changed()

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._check("set the time of", path)
        with refusals("set the time of", path):
            item = self._file(path)
        self._changed()
        item.modified_ms = modified_ms

    def lock(self, path: str) -> OpenLock:
        self._check("lock", path)
        with refusals("lock", path):
            item = self._file(path) if self.exists(path) else self._create(path)
        if id(item) in self._locked:
            raise StoreLocked(f"{path}: another process has it locked")
        self._locked.add(id(item))
        return OpenLock(self._locked, item)

    # For open files and mappings.

    def _check(self, operation: str, path: str) -> None:
        """Refuse what is to be refused. Every operation begins with this."""
        if self.has_no_power:
            raise PowerLost
        for refusal in self._refusals:
            if operation.startswith(refusal.operation) and refusal.path in path:
                if refusal.skipped > 0:
                    refusal.skipped -= 1
                elif refusal.times != 0:
                    refusal.refused = True
                    if refusal.times is not None:
                        refusal.times -= 1
                    with refusals(operation, path):
                        raise _error(refusal.code)

    def _changed(self, file: File | None = None) -> None:
        with self._guard:
            self.changes += 1
            if file is not None:
                file.modified_ms = self.clock()
            if self.write_back and self._random.random() < self.write_back:
                files = [file for file in _files(self._root) if file.synced != file.content]
                if files:
                    chosen = self._random.choice(files)
                    chosen.synced = file_after_write_back(chosen.synced, chosen.writable_content(), self._random)
        if self.on_change is not None:
            self.on_change()

    def room_for(self, file: File, end: int) -> int:
        """Up to where the file can be written, if not to `end`."""
        if self.capacity_bytes is None:
            return end
        return min(end, max(file.allocated, file.allocated + self.capacity_bytes - self.used_bytes))

    def _sync(self, path: str, file: File) -> None:
        try:
            self._check("sync", path)
        except PowerLost:
            raise
        except BaseException:
            if self.forgets_failed_syncs:
                file.fail_to_sync()
            raise
        file.sync()
        self._changed()

    # Names.

    def _find(self, path: str) -> File | Folder | None:
        item: File | Folder = self._root
        for name in _names(path):
            if isinstance(item, File):
                raise _error(errno.ENOTDIR)
            found = item.names.get(name)
            if found is None:
                return None
            item = found
        return item

    def _file(self, path: str) -> File:
        item = self._find(path)
        if item is None:
            raise _error(errno.ENOENT)
        if isinstance(item, Folder):
            raise _error(errno.EISDIR)
        return item

    def _folder(self, path: str) -> Folder:
        item = self._find(path)
        if item is None:
            raise _error(errno.ENOENT)
        if isinstance(item, File):
            raise _error(errno.ENOTDIR)
        return item

    def _place(self, path: str) -> tuple[Folder, str]:
        return self._folder(os.path.dirname(path)), os.path.basename(path)

    def _create(self, path: str) -> File:
        file = File(modified_ms=self.clock())
        self._link(path, file)
        return file

    def _link(self, path: str, item: File | Folder) -> None:
        folder, name = self._place(path)
        with self._guard:
            folder.names[name] = item
            self._name_changes.append(NameChange(item, target=(folder, name)))
        self._changed()

    def _unlink(self, path: str, item: File | Folder) -> None:
        folder, name = self._place(path)
        with self._guard:
            del folder.names[name]
            self._name_changes.append(NameChange(item, source=(folder, name)))
        self._changed()

    def _next_start(self, seed: int, root: Folder) -> CrashingFiles:
        disk = CrashingFiles(
            seed=seed,
            capacity_bytes=self.capacity_bytes,
            write_back=self.write_back,
            forgets_failed_syncs=self.forgets_failed_syncs,
            clock=self.clock,
        )
        disk._root = root
        return disk


class OpenFile:
    """An open file, as `duralog.storage.disk.file_system.File`."""

    def __init__(self, disk: CrashingFiles, path: str, file: File, writable: bool) -> None:
        self.name = path
        self.size = len(file.content)
        self._disk = disk
        self._file: File | None = file
        self._writable = writable

    def read(self, position: int, size: int) -> bytes:
        data = bytearray(size)
        self.read_into(position, memoryview(data))
        return bytes(data)

    def read_into(self, position: int, target: memoryview) -> None:
        file = self._opened()
        self._disk._check("read", self.name)
        found = file.content[position : position + len(target)]
        target[: len(found)] = found
        if len(found) < len(target):
            raise CorruptRecord(
                "the file became shorter while it was read",
                fault=Fault.PARTIAL_BATCH,
                file=self.name,
                position=position + len(found),
                expected=f"{len(target) - len(found)} bytes more",
                found="the end of the file",
            )

    def forget(self, position: int, size: int) -> None:
        """Nothing to do: that is about speed."""

    def append(self, *buffers: Bytes) -> int:
        file = self._opened(writing=True)
        data = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers)
        disk = self._disk
        try:
            disk._check("append to", self.name)
        except PowerLost:
            raise
        except BaseException:
            self._write_part_and_cut_back(file, data, disk._random.randint(0, len(data)))
            raise
        room = disk.room_for(file, self.size + len(data))
        if room < self.size + len(data):
            self._write_part_and_cut_back(file, data, max(0, room - self.size))
            with refusals("append to", self.name):
                raise _error(errno.ENOSPC)
        file.write(self.size, data)
        self.size += len(data)
        disk._changed(file)
        return len(data)

    def _write_part_and_cut_back(self, file: File, data: bytes, size: int) -> None:
        file.write(self.size, data[:size])
        self._disk._changed(file)
        try:
            self._disk._check("truncate", self.name)
        except PowerLost:
            raise
        except BaseException:
            return  # Half a batch stays behind the end.
        file.resize(self.size)
        self._disk._changed(file)

    def truncate(self, size: int) -> None:
        file = self._opened(writing=True)
        self._disk._check("truncate", self.name)
        file.resize(size)
        self.size = size
        self._disk._changed(file)

    def allocate(self, size: int) -> None:
        file = self._opened(writing=True)
        self._disk._check("allocate room in", self.name)
        if size > 0:
            with refusals("allocate room in", self.name):
                if self._disk.room_for(file, size) < size:
                    raise _error(errno.ENOSPC)
            file.resize(max(size, len(file.content)))
            file.allocated = max(file.allocated, size)
            self._disk._changed(file)

    def begin_sync(self, position: int) -> None:
        """Nothing to do: that is about speed."""

    def sync(self) -> None:
        self._disk._sync(self.name, self._opened())

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def close(self) -> None:
        self._file = None

    def _opened(self, *, writing: bool = False) -> File:
        with refusals("use", self.name):
            if self._file is None or (writing and not self._writable):
                raise _error(errno.EBADF)
        return self._file


class OpenMapping:
    """A mapped file, as `duralog.storage.disk.file_system.MappedFile`."""

    def __init__(self, disk: CrashingFiles, path: str, file: File) -> None:
        self.view = memoryview(file.content)
        self._disk = disk
        self._path = path
        self._file = file

    def reserve(self, end: int) -> None:
        file = self._file
        if end <= file.allocated:
            return
        self._disk._check("reserve room in", self._path)
        with refusals("reserve room in", self._path):
            if self._disk.room_for(file, end) < end:
                raise _error(errno.ENOSPC)
        file.allocated = end
        self._disk._changed()

    def sync(self) -> None:
        file = self._file
        assert not any(file.content[file.allocated :]), f"{self._path}: written to where no room was reserved"
        self._disk._sync(self._path, file)


class OpenLock:
    def __init__(self, locked: set[int], file: File) -> None:
        self._locked = locked
        self._file = file

    def check(self) -> None:
        """No test removes the lock file of this disk."""

    def release(self) -> None:
        self._locked.discard(id(self._file))


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _entry(name: str, item: File | Folder) -> Entry:
    if isinstance(item, Folder):
        return Entry(name, 0, START_MS, True)
    return Entry(name, len(item.content), item.modified_ms, False)


def _files(folder: Folder) -> Iterator[File]:
    for item in list(folder.names.values()):
        if isinstance(item, Folder):
            yield from _files(item)
        else:
            yield item


def _settled(content: bytes, modified_ms: int) -> File:
    return File(bytearray(content), content, len(content), modified_ms)


def _copied(
    folder: Folder, tables: Callable[[Folder], dict[str, File | Folder]], file: Callable[[File], File]
) -> Folder:
    names: dict[str, File | Folder] = {
        name: _copied(item, tables, file) if isinstance(item, Folder) else file(item)
        for name, item in tables(folder).items()
    }
    return Folder(names, dict(names))
