"""Windows of offsets of a partition: how much of each copy is compared at a time, and what a comparison finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch, wrong_checksum
from duralog.columnar.runs import Rows
from duralog.format.checkpoints import EpochStart
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.cluster import Copies
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.planning import plan
from duralog.scanning.slices import Slice

WINDOW_BYTES = 16 << 20
"""Of one copy. Where copies differ, the records of a window are in memory, decompressed, of two copies."""

ROW = np.dtype(
    [
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("leader_epoch", np.int32),
        ("size", np.int32),
        ("crc", np.uint32),
        ("magic", np.int32),
    ]
)
"""What is compared of a batch."""


class FindingKind(Enum):
    DAMAGE = "damage"
    """Bytes of a copy that are not a batch, or not the batch that was written."""
    HOLE = "hole"
    """Offsets that a copy lacks and another has, and that no cleaner has removed."""
    DIVERGENCE = "divergence"
    """Two copies have different records, or different leader epochs, at an offset."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: FindingKind
    copy: int
    """Its number in the window."""
    first_offset: int
    last_offset: int
    text: str
    path: str = ""
    position: int | None = None
    other: int | None = None
    """The copy that it was compared with."""


@dataclass(frozen=True, slots=True)
class CopyWindow:
    """The bytes of a copy that hold the offsets of a window."""

    slices: tuple[Slice, ...]
    start_offset: int
    agreed_end: int
    """From here on, the copy has another history."""


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets of a partition, and where each copy has them. Can be pickled."""

    partition: TopicPartition
    start_offset: int
    end_offset: int
    chosen: int
    dense_from: int | None
    log_start: int
    """Where the log starts: a copy that starts later has lost its start, or has deleted it by retention."""
    high_watermark: int
    epochs: tuple[EpochStart, ...]
    """The history of the log."""
    copies: tuple[CopyWindow, ...]

    @property
    def size_bytes(self) -> int:
        return sum(found.size_bytes for copy in self.copies for found in copy.slices)


def windows_of(copies: Copies, *, window_bytes: int = WINDOW_BYTES) -> Iterator[Window]:
    """The windows of a partition; together they have every batch of every copy."""
    partition, choice = copies.partition, copies.choice
    whole = [OffsetRange(copy.state.start_offset, copy.state.end_offset) for copy in copies.copies]
    largest = max(range(len(whole)), key=lambda number: copies.copies[number].size_bytes)
    cuts = plan(
        copies.copies[largest].directory.store, {partition: whole[largest]}, max_slice_bytes=window_bytes
    ).slices
    start, end = min(each.start_offset for each in whole), max(each.end_offset for each in whole)
    if start >= end:
        return
    bounds = [start]
    size_bytes = 0
    for found in cuts:
        if size_bytes + found.size_bytes > window_bytes and found.start_offset > bounds[-1]:
            bounds.append(found.start_offset)
            size_bytes = 0
        size_bytes += found.size_bytes
    bounds.append(end)
    for first, last in pairwise(bounds):
        parts: list[CopyWindow] = []
        for number, copy in enumerate(copies.copies):
            wanted = OffsetRange(max(first, whole[number].start_offset), min(last, whole[number].end_offset))
            slices: tuple[Slice, ...] = ()
            if wanted.start_offset < wanted.end_offset:
                slices = plan(copy.directory.store, {partition: wanted}, max_slice_bytes=2 * window_bytes).slices
            parts.append(CopyWindow(slices, copy.state.start_offset, choice.agreed[number]))
        yield Window(
            partition,
            first,
            last,
            choice.copy,
            copies.dense_from,
            choice.start_offset,
            choice.high_watermark,
            choice.epochs,
            tuple(parts),
        )


def compared_rows(piece: Piece, _: Rows | None, refuse: OnCorruptBatch) -> Iterator[NDArray[Any]]:
    batches = piece.batches
    is_good = batches["crc_ok"] == 1
    for row in np.flatnonzero(~is_good).tolist():
        begin = int(batches["position"][row]) - piece.position
        data = piece.data[begin : begin + int(batches["size"][row])]
        refuse(wrong_checksum(batches[row], data).in_file(piece.name, int(batches["position"][row])), row)
    rows = np.empty(len(batches), ROW)
    for name in ROW.names or ():
        rows[name] = batches[name]
    yield rows if is_good.all() else rows[is_good]
