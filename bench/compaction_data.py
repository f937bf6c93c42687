"""The log directories that compaction is measured on, made from the benchmarks' segments.

A log is the segment once or several times, one behind the other: the same records with higher offsets. There is nothing
beside the `.log` files, so whoever opens the directory recovers it first.
"""

from __future__ import annotations

import os
from pathlib import Path

from bench import data
from duralog.format.layout import BATCH_V2, ENTRY_PREFIX

TOPIC = "orders"


def partition(directory: Path, number: int) -> Path:
    return directory / f"{TOPIC}-{number}"


def make_partition(folder: Path, segment: data.Segment, *, copies: int = 1) -> None:
    folder.mkdir(parents=True)
    written = bytearray(segment.path.read_bytes())
    for copy in range(copies):
        if copy:
            _raise_offsets(written, segment.records)
        (folder / f"{copy * segment.records:020d}.log").write_bytes(written)
    os.sync()


def _raise_offsets(log: bytearray, by: int) -> None:
    """Move all batches: a base offset lies outside of its batch's checksum."""
    assert BATCH_V2.at.base_offset == 0
    position = 0
    while position < len(log):
        base_offset, length = ENTRY_PREFIX.unpack(log, position)
        ENTRY_PREFIX.struct.pack_into(log, position, base_offset + by, length)
        position += ENTRY_PREFIX.size + length
