"""duralog's offset map, filled with the keys of a segment: MAP_BYTES SOURCE FILE PASSES.

SOURCE is `file`: read, with the CRCs checked, as the first pass of compaction does it. Or it is `memory`: the keys lie
in memory before the clock starts, one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.workers.passes import timed
from duralog.columnar.key_reading import read_keys
from duralog.columnar.pieces import read_pieces
from duralog.kernels.key_digests import digests_of
from duralog.kernels.offset_map import OffsetMap
from duralog.storage.disk.file_source import FileSource

_MOST_OFFSETS = 1 << 24
"""More than a segment of the benchmarks has."""


def from_file(source: FileSource, offset_map: OffsetMap) -> int:
    offset_map.watch(0, _MOST_OFFSETS)
    records = 0
    for piece in read_pieces(source):
        for keyed in read_keys(piece):
            records += offset_map.put(keyed.digests, keyed.offsets)
    return records


def keys_of(source: FileSource) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Keys one after the other, where each of them starts, how long it is, and its record's offset."""
    for piece in read_pieces(source):
        for table in piece.to_arrow(columns=["offset", "key"]):
            _, edges, content = table.column("key").buffers()
            positions = np.frombuffer(edges, np.int32)[: table.num_rows + 1]
            data = np.frombuffer(content, np.uint8)
            yield data, positions[:-1].astype(np.int64), np.diff(positions), table.column("offset").to_numpy()


def from_memory(source: FileSource, offset_map: OffsetMap) -> Callable[[], int]:
    chunks = list(keys_of(source))

    def work() -> int:
        offset_map.watch(0, _MOST_OFFSETS)
        return sum(offset_map.put(digests_of(*keys), offsets) for *keys, offsets in chunks)

    return work


def main(map_bytes: int, kind: str, file: str, passes: int) -> None:
    offset_map = OffsetMap(map_bytes)
    with FileSource(file) as source:
        work = from_memory(source, offset_map) if kind == "memory" else lambda: from_file(source, offset_map)
        timed(work, passes, before=offset_map.clear)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
