"""Open files of an object store or HDFS: small reads fetch a window, `ReadAhead` fetches blocks before they are needed.

Truncated responses are detected here: `remote_files` has the table of what pyarrow returns then.
"""

# ruff: noqa: ARG002 (refused methods have the arguments of the protocol)

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from duralog.errors import StorageError
from duralog.format.varint import Bytes
from duralog.scanning.remembered_objects import ObjectIdentity, RememberedObjects
from duralog.storage.disk.local_files import refusals

WINDOW_BYTES = 64 << 10
"""The minimum that a small read fetches: a scan of batch headers reads 4 KiB at a time."""

BLOCK_BYTES = 8 << 20
BLOCKS_AHEAD = 3

_END_MARKS = (0xA5, 0x5A, 0xC3, 0x3C)
"""The last byte of a buffer before each attempt to read into it. They differ: data that ends with one of them by chance
does not end with the next."""


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
        """Fetch these bytes for the reads within them, until there is a read at another position."""
        self._window = position, self.fetch(position, end_position - position)

    def is_at_hand(self, position: int, end_position: int) -> bool:
        start, window = self._window
        return start <= position <= end_position <= start + len(window)

    def _opened(self) -> Any:
        return self._file

    def fetch(self, position: int, size: int) -> memoryview:
        """Exactly `size` bytes, by one request, or by a few if responses are broken."""
        data = np.empty(size, np.uint8)
        if not size:
            return data.data
        for mark in _END_MARKS:
            data[-1] = mark
            with remote_refusals("read", self.name):
                # Not `read_at`, which allocates the buffer: it would hide bytes that a response did not fill.
                count = self._opened().get_stream(position, size).readinto(data)
            if count == size and data[-1] != mark:
                return data.data
        raise StorageError(
            f"{self.name}: cannot read: {size} bytes from position {position} on were requested, but fewer were"
            " received"
            f" {len(_END_MARKS)} times: the file became shorter meanwhile, or connections end early"
        )

    def forget(self, position: int, size: int) -> None:
        """No effect: it is about speed."""

    def append(self, *buffers: Bytes) -> int:
        raise refused("append to", self.name)

    def truncate(self, size: int) -> None:
        raise refused("truncate", self.name)

    def allocate(self, size: int) -> None:
        raise refused("allocate room in", self.name)

    def begin_sync(self, position: int) -> None:
        """No effect: it is about speed."""

    def sync(self) -> None:
        raise refused("sync", self.name)

    def fileno(self) -> int:
        raise refused("send from", self.name)

    def close(self) -> None:
        self._file.close()


class ListedFile(RemoteFile):
    """A file of a listing. It is opened when bytes are needed that are not cached."""

    def __init__(
        self, name: str, identity: ObjectIdentity, open_file: Callable[[], Any], remembered: RememberedObjects
    ) -> None:
        super().__init__(name, None, identity.size)
        self._identity = identity
        self._open_file = open_file
        self._opening = Lock()
        self._remembered = remembered

    def read(self, position: int, size: int) -> bytes:
        if not size or self.is_at_hand(position, position + size):
            return super().read(position, size)
        length = max(size, min(WINDOW_BYTES, self.size - position))
        data = self._remembered.find(self._identity, position, length)
        if data is None:
            data = self.fetch(position, length)
            self._remembered.keep(self._identity, position, data)
        if length <= WINDOW_BYTES:
            self._window = position, data
        return bytes(data[:size])

    def _opened(self) -> Any:
        with self._opening:
            if self._file is None:
                self._file = self._open_file()
            return self._file

    def close(self) -> None:
        if self._file is not None:
            super().close()


class ReadAhead:
    """Part of a remote file for a sequential reader: the next blocks are fetched while it processes the current one.

    Blocks below the last position that was read are evicted. Bytes that are read twice in a row are still buffered the
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
def remote_refusals(operation: str, url: str) -> Iterator[None]:
    try:
        with refusals(operation, url):
            yield
    except pa.ArrowException as error:
        raise StorageError(f"{url}: cannot {operation}: {error}") from error


def refused(operation: str, url: str) -> StorageError:
    return StorageError(f"{url}: cannot {operation}: remote files are only read")
