"""duralog's scan of a segment: FILE THREADS PASSES."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from bench.workers.passes import timed
from duralog.columnar.pieces import read_pieces
from duralog.storage.disk.file_source import FileSource


def slices(source: FileSource, count: int) -> list[tuple[int, int]]:
    """The file in as many parts of about the same size, cut where a batch starts."""
    positions = np.concatenate([piece.batches["position"] for piece in read_pieces(source, check_crc=False)])
    inner = [int(positions[np.searchsorted(positions, source.size * n // count)]) for n in range(1, count)]
    return list(pairwise([0, *inner, source.size]))


def scan(source: FileSource, start: int, end: int) -> None:
    for piece in read_pieces(source, start=start, end=end, check_crc=True):
        if piece.fault is not None or piece.tail_bytes or not piece.batches["crc_ok"].all():
            raise SystemExit(f"the segment is damaged after position {piece.position}")


def main(file: str, threads: int, passes: int) -> None:
    with FileSource(file) as source, ThreadPoolExecutor(threads) as pool:
        parts = slices(source, threads)

        def work() -> int:
            for done in [pool.submit(scan, source, *part) for part in parts]:
                done.result()
            return source.size

        timed(work, passes)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
