"""Object stores and HDFS as a file system of the store, for reading, over `pyarrow.fs`.

A request to such a store costs milliseconds and money, large or small. So sizes and times of files come from the last
listing of their folder, small reads of a file fetch a window around them, and a file that is read from end to end is
read through `ReadAhead`, which fetches large blocks before they are needed.

What must always be true:
- Nothing is ever written: every operation that would change something raises `StorageError`.
- An error of the object store raises `StorageError` with the URL, the operation and the reason.
- A broken response is never taken for a smaller file or an empty folder (see below).
- Memory is bounded: one window for each open file, and a few blocks for each `ReadAhead`.

A file of a listing may be gone or replaced by now. Opening it shows that, and the caller loads the log again
(`storage.recovery`).

If a connection ends inside the headers of a response, pyarrow's S3 client reports success, with the headers so far. The
client retries every other broken response. What is left for this module:

| request | what pyarrow returns | how it is noticed |
|---|---|---|
| HEAD | size 0 | the size is compared with the listing; 0 is never believed without it |
| GET | as many bytes as were asked for, the rest of them never written to | a mark in the last byte is still there |
| LIST, first page | no such folder; of a bucket, no entries | the folder is listed again |
| LIST, a later page | the entries of the pages before | large folders are listed until two listings agree |

Each request is retried a few times; then it is an error with the URL.
"""

# ruff: noqa: ARG002 (what is refused has the arguments of the protocol)

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from duralog.errors import StorageError
from duralog.format.varint import Bytes
from duralog.storage.disk.file_system import Entry, Lock, MappedFile, check_small
from duralog.storage.disk.local_files import refusals

WINDOW_BYTES = 64 << 10
"""What a small read fetches at least: a walk over batch headers asks for 4 KiB at a time."""

BLOCK_BYTES = 8 << 20
BLOCKS_AHEAD = 3

LISTED_AT_ONCE = 1000
"""The most entries in one response of an object store; a folder with more takes several requests."""

_END_MARKS = (0xA5, 0x5A, 0xC3, 0x3C)
"""What the last byte of a buffer is before it is read into, by attempt.

They differ: data that ends with one of them by chance does not end with the next one."""

_ATTEMPTS = 3
"""For a listing or a size that cannot be right."""


class RemoteFileSystem:
    """`below`, whose paths are `bucket/key` or the like; `prefix` makes URLs of them, for errors."""

    def __init__(self, below: pafs.FileSystem, prefix: str) -> None:
        self._below = below
        self._prefix = prefix
        self._listings: dict[str, dict[str, Entry]] = {}

    def url(self, path: str) -> str:
        return f"{self._prefix}{path}"

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> RemoteFile:
        if writable or create:
            raise self._refused("open for writing", path)
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.list(posixpath.dirname(path))
            with _refusals("open", self.url(path)):
                file = self._below.open_input_file(path)
                size = file.size()
            listed = self._listed(path)
            # It may have grown since it was listed.
            if size >= listed.size if listed is not None else size > 0:
                return RemoteFile(self.url(path), file, size)
            file.close()
        expected = "does not have it" if listed is None else f"has it with {listed.size} bytes"
        raise StorageError(
            f"{self.url(path)}: cannot open: the object store says that it has {size} bytes, but the listing of its"
            f" folder {expected}"
        )

    def read_all(self, path: str) -> bytes:
        file = self.open(path)
        try:
            check_small(file.name, file.size)
            return file.read(0, file.size)
        finally:
            file.close()

    def list(self, folder: str) -> list[Entry]:
        found = self._list(folder)
        if len(found) >= LISTED_AT_ONCE:
            found = self._list_until_steady(folder, found)
        self._listings[posixpath.normpath(folder)] = found
        return [*found.values()]

    def _list_until_steady(self, folder: str, found: dict[str, Entry]) -> dict[str, Entry]:
        for _ in range(_ATTEMPTS):
            before, found = found, self._list(folder)
            if found.keys() == before.keys():
                return found
        raise StorageError(f"{self.url(folder)}: cannot list: {_ATTEMPTS + 1} listings in a row differ")

    def _list(self, folder: str) -> dict[str, Entry]:
        with _refusals("list", self.url(folder)):
            for _ in range(_ATTEMPTS - 1):
                with suppress(FileNotFoundError):
                    return self._list_once(folder)
            return self._list_once(folder)

    def _list_once(self, folder: str) -> dict[str, Entry]:
        found = self._below.get_file_info(pafs.FileSelector(folder))
        # Of a bucket without objects, pyarrow returns an empty list and no error.
        if not found and "/" not in folder:
            raise FileNotFoundError(errno.ENOENT, "the bucket is empty")
        return {info.base_name: _entry(info) for info in found}

    def list_names(self, folder: str) -> set[str]:
        return {entry.name for entry in self.list(folder)}

    def entry(self, path: str) -> Entry | None:
        folder, name = posixpath.split(posixpath.normpath(path))
        if folder not in self._listings:
            with _refusals("stat", self.url(path)):
                info = self._below.get_file_info(path)
            if info.type == pafs.FileType.NotFound:
                return None
            if info.type != pafs.FileType.File or info.size:
                return _entry(info)
            self.list(folder)
        return self._listings[folder].get(name)

    def _listed(self, path: str) -> Entry | None:
        folder, name = posixpath.split(posixpath.normpath(path))
        return self._listings.get(folder, {}).get(name)

    def exists(self, path: str) -> bool:
        return self.entry(path) is not None

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:
        raise self._refused("write", path)

    def replace(self, path: str, data: Bytes) -> None:
        raise self._refused("replace", path)

    def rename(self, source: str, target: str) -> None:
        raise self._refused("rename", source)

    def remove(self, path: str) -> None:
        raise self._refused("remove", path)

    def make_folder(self, path: str) -> None:
        raise self._refused("make the folder", path)

    def remove_folder(self, path: str) -> None:
        raise self._refused("remove the folder", path)

    def sync_folder(self, path: str) -> None:
        raise self._refused("sync the folder", path)

    def map(self, path: str, size: int) -> MappedFile:
        raise self._refused("map", path)

    def truncate(self, path: str, size: int) -> None:
        raise self._refused("truncate", path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        raise self._refused("set the time of", path)

    def lock(self, path: str) -> Lock:
        raise self._refused("lock", path)

    def _refused(self, operation: str, path: str) -> StorageError:
        return _refused(operation, self.url(path))


class RemoteFile:
    """An open file. Any thread may read."""

    def __init__(self, name: str, file: Any, size: int) -> None:
        self.name = name
        self.size = size
        self._file = file
        self._window = 0, memoryview(b"")

    def read(self, position: int, size: int) -> bytes:
        start, window = self._window
        if not start <= position <= position + size <= start + len(window):
            if size >= WINDOW_BYTES:
                return bytes(self.fetch(position, size))
            start, window = position, self.fetch(position, max(size, min(WINDOW_BYTES, self.size - position)))
            self._window = start, window
        return bytes(window[position - start : position - start + size])

    def read_into(self, position: int, target: memoryview) -> None:
        target[:] = self.read(position, len(target))

    def bring(self, position: int, end_position: int) -> None:
        """Fetch these bytes for the reads within them, until there is a read elsewhere."""
        self._window = position, self.fetch(position, end_position - position)

    def is_at_hand(self, position: int, end_position: int) -> bool:
        start, window = self._window
        return start <= position <= end_position <= start + len(window)

    def fetch(self, position: int, size: int) -> memoryview:
        """Exactly `size` bytes, by one request, or by a few if responses are broken."""
        data = np.empty(size, np.uint8)
        if not size:
            return data.data
        for mark in _END_MARKS:
            data[-1] = mark
            with _refusals("read", self.name):
                # Not `read_at`, which allocates the buffer: it would hide what a response did not fill.
                count = self._file.get_stream(position, size).readinto(data)
            if count == size and data[-1] != mark:
                return data.data
        raise StorageError(
            f"{self.name}: cannot read: {size} bytes from position {position} on were asked for, and fewer came"
            f" {len(_END_MARKS)} times: the file became shorter meanwhile, or connections end early"
        )

    def forget(self, position: int, size: int) -> None:
        """No effect: it is about speed."""

    def append(self, *buffers: Bytes) -> int:
        raise _refused("append to", self.name)

    def truncate(self, size: int) -> None:
        raise _refused("truncate", self.name)

    def allocate(self, size: int) -> None:
        raise _refused("allocate room in", self.name)

    def begin_sync(self, position: int) -> None:
        """No effect: it is about speed."""

    def sync(self) -> None:
        raise _refused("sync", self.name)

    def fileno(self) -> int:
        raise _refused("send from", self.name)

    def close(self) -> None:
        self._file.close()


class ReadAhead:
    """Part of a remote file for a reader that goes forward: the next blocks are fetched while it works on this one.

    Blocks below the last position that was read are evicted. Bytes that are read twice in a row are still there the
    second time: a reader of whole batches does that at the end of each piece.
    """

    def __init__(
        self, file: RemoteFile, start: int, end: int, *, block_bytes: int = BLOCK_BYTES, ahead: int = BLOCKS_AHEAD
    ) -> None:
        self.name = file.name
        self.size = min(end, file.size)
        self._file = file
        self._start = start
        self._block_bytes = block_bytes
        self._ahead = ahead
        self._blocks: dict[int, Future[memoryview]] = {}
        self._pool = ThreadPoolExecutor(1 + ahead, thread_name_prefix="duralog-read-ahead")

    def read(self, position: int, size: int) -> Bytes:
        first = (position - self._start) // self._block_bytes
        last = max(first, (position + size - 1 - self._start) // self._block_bytes)
        for number in [number for number in self._blocks if number < first]:
            self._blocks.pop(number).cancel()
        for number in range(first, last + 1 + self._ahead):
            begin = self._start + number * self._block_bytes
            if number not in self._blocks and begin < self.size:
                length = min(self._block_bytes, self.size - begin)
                self._blocks[number] = self._pool.submit(self._file.fetch, begin, length)
        blocks = [self._blocks[number].result() for number in range(first, last + 1) if number in self._blocks]
        return self._part_of(blocks, position - self._start - first * self._block_bytes, size)

    def peek(self, position: int, size: int) -> Bytes:
        """As `read`, for bytes that may be needed again. Nothing is fetched ahead, and nothing evicted."""
        first = (position - self._start) // self._block_bytes
        last = max(first, (position + size - 1 - self._start) // self._block_bytes)
        known = [self._blocks.get(number) for number in range(first, last + 1)]
        if position < self._start or None in known:
            return self._file.fetch(position, size)
        blocks = [block.result() for block in known if block is not None]
        return self._part_of(blocks, position - self._start - first * self._block_bytes, size)

    @staticmethod
    def _part_of(blocks: list[memoryview], at: int, size: int) -> memoryview:
        data = blocks[0] if len(blocks) == 1 else memoryview(b"".join(blocks))
        return data[at : at + size]

    def close(self) -> None:
        """Fetch nothing more, and wait for the requests in flight."""
        self._blocks.clear()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _refusals(operation: str, url: str) -> Iterator[None]:
    try:
        with refusals(operation, url):
            yield
    except pa.ArrowException as error:
        raise StorageError(f"{url}: cannot {operation}: {error}") from error


def _entry(info: pafs.FileInfo) -> Entry:
    modified_ms = 0 if info.mtime_ns is None else info.mtime_ns // 1_000_000
    return Entry(info.base_name, info.size or 0, modified_ms, info.type == pafs.FileType.Directory)


def _refused(operation: str, url: str) -> StorageError:
    return StorageError(f"{url}: cannot {operation}: remote files are only read")
