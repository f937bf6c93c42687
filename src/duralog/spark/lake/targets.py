"""Where tables are written: a folder on a disk or in an object store.

What must always be true:
- A file appears under its name only when it is complete. On a disk it is first written as `.<name>.<id>.part`,
  synced and renamed; an object store shows no object before its upload is finished.
- `replace` leaves the old contents or the new ones, whenever the machine dies.
- A writer that is killed leaves at most a `.part` file, which every reader of Parquet folders ignores and the next run
  removes.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa
import pyarrow.fs as pafs

from duralog.errors import DuralogError, StorageError
from duralog.scanning.locations import Location, arrow_file_system
from duralog.scanning.remote_files import RemoteFileSystem
from duralog.storage.disk.file_system import LocalFileSystem

PART_SUFFIX = ".part"
_ATTEMPTS = 3


class TargetFile(NamedTuple):
    path: str
    """Relative to the target."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LakeTarget:
    """A folder that tables are written to. It can be pickled, and means the same folder on another machine."""

    location: str
    """An absolute path, or a URL such as `s3://bucket/folder`."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of the file system, by the names of `locations.STORAGE_OPTIONS`. They may hold secrets, so they are not shown."""

    @classmethod
    def of(cls, path: str, options: Mapping[str, str] | None = None) -> LakeTarget:
        """What a user gave, checked, and made absolute: the process that writes to it may run in another directory."""
        return cls(Location.of(path, options).url, dict(options or {}))

    def child(self, name: str) -> LakeTarget:
        return LakeTarget(f"{self.location.rstrip('/')}/{name}", self.options)

    @property
    def _opened(self) -> tuple[pafs.FileSystem, str]:
        return _open(self.location, tuple(sorted(self.options.items())))

    @property
    def file_system(self) -> pafs.FileSystem:
        return self._opened[0]

    @property
    def is_local(self) -> bool:
        return isinstance(self.file_system, pafs.LocalFileSystem)

    def path(self, name: str = "") -> str:
        """In the file system."""
        root = self._opened[1].rstrip("/") or "/"
        return f"{root}/{name}" if name else root

    @property
    def uri(self) -> str:
        """As Delta and Iceberg want it: absolute, with a scheme unless it is on this machine's disks."""
        return os.path.abspath(self.path()) if self.is_local else self.location.rstrip("/")

    def read(self, name: str, *, most_bytes: int) -> bytes | None:
        """The contents of a small file, None if there is none."""
        with _refusals("read", f"{self.location}/{name}"):
            info = self.file_system.get_file_info(self.path(name))
            if info.type == pafs.FileType.NotFound:
                return None
            if info.size is not None and info.size > most_bytes:
                raise DuralogError(
                    f"{self.location}/{name}: expected at most {most_bytes} bytes, found {info.size}: duralog"
                    " did not write it"
                )
            if not self.is_local:
                prefix = self.location.removesuffix(self._opened[1])
                return RemoteFileSystem(self.file_system, prefix).read_all(self.path(name))
            with self.file_system.open_input_stream(self.path(name)) as stream:
                return cast("bytes", stream.read())

    def replace(self, name: str, data: bytes) -> None:
        """Put a small file in place of the one that is there, if any."""
        path = self.path(name)
        if self.is_local:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            LocalFileSystem().replace(path, data)
            return
        with _refusals("write", f"{self.location}/{name}"), self.file_system.open_output_stream(path) as stream:
            stream.write(data)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO | pa.NativeFile]:
        """A file to write to. It is there when the block is left without an error."""
        path = self.path(name)
        with _refusals("write", f"{self.location}/{name}"):
            if self.is_local:
                with _local_file(path) as file:
                    yield file
                return
            stream = self.file_system.open_output_stream(path)
            try:
                yield stream
            except BaseException:
                # Closing is the only way to end an upload, and makes an object of what was sent.
                with suppress(OSError):
                    stream.close()
                    self.file_system.delete_file(path)
                raise
            stream.close()

    def files(self, folder: str = "") -> list[TargetFile]:
        """All files in it and in the folders below, hidden ones too. Nothing if there is no such folder."""
        found = self._files(folder)
        if self.is_local:
            return found
        # A broken connection may have cost the end of the list, or all of it: see `remote_files`.
        for _ in range(_ATTEMPTS):
            before, found = found, self._files(folder)
            if sorted(before) == sorted(found):
                return found
        raise StorageError(f"cannot list {self.path(folder)}: {_ATTEMPTS + 1} listings in a row differ")

    def _files(self, folder: str) -> list[TargetFile]:
        root = self.path(folder)
        with _refusals("list", root):
            found = self.file_system.get_file_info(pafs.FileSelector(root, allow_not_found=True, recursive=True))
        start = len(self.path()) + 1
        return [TargetFile(info.path[start:], info.size) for info in found if info.type == pafs.FileType.File]

    def exists(self, name: str) -> bool:
        with _refusals("stat", f"{self.location}/{name}"):
            info = self.file_system.get_file_info(self.path(name))
        return bool(info.type != pafs.FileType.NotFound)

    def copy(self, source: str, name: str) -> None:
        path = self.path(name)
        with _refusals("copy to", f"{self.location}/{name}"):
            if self.is_local:
                with self.file_system.open_input_stream(self.path(source)) as old, _local_file(path) as new:
                    while block := old.read(1 << 20):
                        new.write(block)
                return
            self.file_system.copy_file(self.path(source), path)

    def delete(self, names: Iterable[str]) -> int:
        """Delete files. Returns how many were there."""
        deleted = 0
        for name in names:
            with _refusals("delete", f"{self.location}/{name}"), suppress(FileNotFoundError):
                self.file_system.delete_file(self.path(name))
                deleted += 1
        return deleted

    def delete_folder(self, name: str) -> None:
        with _refusals("delete", f"{self.location}/{name}"), suppress(FileNotFoundError):
            self.file_system.delete_dir(self.path(name))


@lru_cache(maxsize=64)
def _open(location: str, options: tuple[tuple[str, str], ...]) -> tuple[pafs.FileSystem, str]:
    file_system, path = arrow_file_system(location, dict(options))
    return file_system, os.path.abspath(path) if isinstance(file_system, pafs.LocalFileSystem) else path


@contextmanager
def _refusals(what: str, name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(f"cannot {what} {name}: {reason}") from error


@contextmanager
def _local_file(path: str) -> Iterator[BinaryIO]:
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    part = f"{folder}/.{name}.{uuid.uuid4().hex}{PART_SUFFIX}"
    try:
        with open(part, "wb", buffering=0) as file:
            yield cast("BinaryIO", _WholeWrites(file))
            os.fsync(file.fileno())
        os.replace(part, path)
        LocalFileSystem().sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


class _WholeWrites:
    """A file whose writes are never partial: one call of the system may take less than all."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += self._file.write(view[written:]) or 0
        return written

    def tell(self) -> int:
        return int(self._file.tell())

    def flush(self) -> None:
        pass

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        """No effect: the caller that opened the file closes it."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
