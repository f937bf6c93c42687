"""Measures the machine on one thread: the limits that a log is compared with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from duralog.cli.bench.rows import CHECKSUM, MACHINE, READ, WRITE, WRITE_SYNC, Row
from duralog.format.checksum import crc32c

PASSES = 3
_CHUNK_BYTES = 1 << 20

Advance = Callable[[int], None]


def machine_rows(folder: str, size_bytes: int, begin: Callable[[str], None], advance: Advance) -> Iterator[Row]:
    """Measure each limit with about `size_bytes`. Uses one file, which is removed at the end."""
    path = os.path.join(folder, "written")
    # Random bytes: some disks and file systems are faster with zeros.
    chunk = os.urandom(min(_CHUNK_BYTES, size_bytes))
    chunks = -(-size_bytes // len(chunk))
    try:
        for name, sync in ((WRITE, False), (WRITE_SYNC, True)):
            begin(name)
            yield _row(name, lambda sync=sync: _write(path, chunk, chunks, advance, sync=sync))  # type: ignore[misc]
        begin(READ)
        yield _row(READ, lambda: _read(path, len(chunk), advance))
    finally:
        if os.path.exists(path):
            os.remove(path)
    begin(CHECKSUM)
    yield _row(CHECKSUM, lambda: _checksum(chunk, chunks, advance))


def _row(name: str, work: Callable[[], int]) -> Row:
    """The fastest of several passes, so that other processes disturb less."""
    passes: list[tuple[float, int]] = []
    for _ in range(PASSES):
        began = time.perf_counter()
        done = work()
        passes.append((time.perf_counter() - began, done))
    seconds, done = min(passes)
    return Row(of=MACHINE, name=name, seconds=seconds, data_bytes=done, file_bytes=done)


def _write(path: str, chunk: bytes, chunks: int, advance: Advance, *, sync: bool) -> int:
    with open(path, "wb", buffering=0) as file:
        for _ in range(chunks):
            file.write(chunk)
            advance(len(chunk))
        if sync:
            os.fsync(file.fileno())
    return chunks * len(chunk)


def _read(path: str, chunk_bytes: int, advance: Advance) -> int:
    buffer = bytearray(chunk_bytes)
    total = 0
    with open(path, "rb", buffering=0) as file:
        while got := file.readinto(buffer):
            total += got
            advance(got)
    return total


def _checksum(chunk: bytes, chunks: int, advance: Advance) -> int:
    for _ in range(chunks):
        crc32c(chunk)
        advance(len(chunk))
    return chunks * len(chunk)
