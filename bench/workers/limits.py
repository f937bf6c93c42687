"""What the machine can do at all, on one thread: WHAT FILE SCRATCH PASSES."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import crc32c
import numpy as np

from bench.workers.passes import timed

_CHUNK_BYTES = 4 << 20
_MEMORY_BYTES = 256 << 20
_WRITE_BYTES = 512 << 20


def memory_copy() -> Callable[[], int]:
    source = np.ones(_MEMORY_BYTES, np.uint8)
    target = np.zeros(_MEMORY_BYTES, np.uint8)

    def work() -> int:
        np.copyto(target, source)
        return _MEMORY_BYTES

    return work


def crc32c_of_memory() -> Callable[[], int]:
    # Not zeros: untouched memory would be one and the same page, in the cache all the time.
    data = b"\x5a" * _MEMORY_BYTES

    def work() -> int:
        crc32c.crc32c(data)
        return _MEMORY_BYTES

    return work


def page_cache_read(file: Path) -> Callable[[], int]:
    buffer = bytearray(_CHUNK_BYTES)

    def work() -> int:
        total = 0
        with file.open("rb", buffering=0) as source:
            while got := source.readinto(buffer):
                total += got
        return total

    return work


def write(folder: Path, *, sync: bool) -> Callable[[], int]:
    chunk = b"\x5a" * _CHUNK_BYTES
    path = folder / "written"

    def work() -> int:
        with path.open("wb", buffering=0) as target:
            for _ in range(_WRITE_BYTES // _CHUNK_BYTES):
                target.write(chunk)
            if sync:
                os.fsync(target.fileno())
        path.unlink()
        return _WRITE_BYTES

    return work


def limit(what: str, file: Path, folder: Path) -> Callable[[], int]:
    match what:
        case "memory-copy":
            return memory_copy()
        case "crc32c":
            return crc32c_of_memory()
        case "page-cache-read":
            return page_cache_read(file)
        case "write":
            return write(folder, sync=False)
        case "write-and-sync":
            return write(folder, sync=True)
        case _:
            raise SystemExit(f"no such limit: {what}")


if __name__ == "__main__":
    what, log, folder, times = sys.argv[1:]
    timed(limit(what, Path(log), Path(folder)), int(times))
