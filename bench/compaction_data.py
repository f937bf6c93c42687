"""The log directories that compaction is measured on, made from the benchmarks' segments.

A log is the segment once or several times, one behind the other: the same records with higher offsets. There is nothing
beside the `.log` files, so whoever opens the directory recovers it first.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bench import data
from duralog.format.layout import BATCH_V2, ENTRY_PREFIX

TOPIC = "orders"


def partition(directory: Path, number: int) -> Path:
    return directory / f"{TOPIC}-{number}"


def make_partition(folder: Path, segment: data.Segment, *, copies: int = 1) -> None:
    folder.mkdir(parents=True)
    shutil.copyfile(segment.path, folder / f"{0:020d}.log")
    for copy in range(1, copies):
        first = copy * segment.records
        _copy_behind(segment.path, folder / f"{first:020d}.log", raise_offsets_by=first)
    os.sync()


def _copy_behind(source: Path, target: Path, *, raise_offsets_by: int) -> None:
    """A batch at a time, since the memory of this process counts for its children. The checksums stay right."""
    assert BATCH_V2.at.base_offset == 0
    with source.open("rb") as batches, target.open("wb") as copy:
        while prefix := batches.read(ENTRY_PREFIX.size):
            base_offset, length = ENTRY_PREFIX.unpack(prefix)
            copy.write(ENTRY_PREFIX.pack(base_offset + raise_offsets_by, length))
            copy.write(batches.read(length))
