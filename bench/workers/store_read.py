"""Reading from a log in a directory: READER DIRECTORY TOPIC PASSES.

The directory is opened for reading only, so that it can be used again.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duralog
from bench.workers.passes import timed
from duralog.columnar.pieces import Piece, read_pieces
from duralog.storage.disk.file_source import FileSource

_POINTS = 5_000


class Reader(NamedTuple):
    work: Callable[[], int]
    each: bool = False


def read_arrow(directory: Path, topic: str) -> Reader:
    log = _log(directory, topic)
    return Reader(lambda: int(log.read_arrow().num_rows))


def bare_decode(directory: Path, topic: str) -> Reader:
    """The same file decoded to the same table, by the kernels alone: no store, no offsets, no transactions."""
    import pyarrow as pa

    pieces = _pieces(directory, topic)
    return Reader(lambda: int(pa.Table.from_batches(_decoded(pieces(), topic)).num_rows))


def bare_decode_dropped(directory: Path, topic: str) -> Reader:
    """The same, each record batch dropped as soon as it is there, so that the memory is used again."""
    pieces = _pieces(directory, topic)
    return Reader(lambda: sum(rows.num_rows for rows in _decoded(pieces(), topic)))


def _pieces(directory: Path, topic: str) -> Callable[[], Iterator[Piece]]:
    sources = [FileSource(path) for path in sorted((directory / f"{topic}-0").glob("*.log"))]
    return lambda: (piece for source in sources for piece in read_pieces(source))


def _decoded(pieces: Iterator[Piece], topic: str) -> Iterator[Any]:
    return (rows for piece in pieces for rows in piece.to_arrow(topic=topic, partition=0))


def point_slices(directory: Path, topic: str) -> Reader:
    """Where the batch with an offset lies: what a fetch needs to know, and what a broker then sends from the file."""
    log = _log(directory, topic)
    offsets = _random_offsets(log)

    def work() -> int:
        for offset in offsets:
            log.read_slice(offset)
        return len(offsets)

    return Reader(work, each=True)


def point_records(directory: Path, topic: str) -> Reader:
    """The record at an offset."""
    log = _log(directory, topic)
    offsets = _random_offsets(log)

    def work() -> int:
        for offset in offsets:
            if next(log.read(offset, max_bytes=1)).offset != offset:
                raise SystemExit(f"another record than {offset} was read")
        return len(offsets)

    return Reader(work, each=True)


def _log(directory: Path, topic: str) -> duralog.PartitionLog:
    return duralog.open(directory, read_only=True).partition(topic, 0)


def _random_offsets(log: duralog.PartitionLog) -> list[int]:
    rng = random.Random(1)
    return [rng.randrange(log.start_offset, log.end_offset) for _ in range(_POINTS)]


READERS = {
    reader.__name__: reader for reader in (read_arrow, bare_decode, bare_decode_dropped, point_slices, point_records)
}

if __name__ == "__main__":
    name, directory, topic, passes = sys.argv[1:]
    work, each = READERS[name](Path(directory), topic)
    timed(work, int(passes), each=each)
