"""Rebuilds the two indexes of a segment from its batches, at the speed of reading them.

The batches are used up to the first one that is corrupt or out of order. Nothing is written: the caller writes the
indexes, and decides what to do with the bytes after the valid batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import PIECE_BYTES, Piece, read_pieces
from duralog.columnar.refusals import wrong_checksum
from duralog.errors import CorruptRecord, Fault
from duralog.format.layout import NO_TIMESTAMP
from duralog.kernels.indexing import (
    LARGEST_OFFSET,
    LARGEST_TIMESTAMP,
    LAST_OFFSET,
    LAST_TIMESTAMP,
    index_batches,
)
from duralog.storage.disk.file_system import File
from duralog.storage.segment.sparse_index import TIME_ENTRIES

Visit = Callable[[Piece], None]
"""Called with each run of valid batches. The bytes of the piece are only valid during the call."""


class IndexBuilder:
    """Takes the batches of a segment in order, from its start, and returns the entries of both indexes."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._state = np.zeros(5, np.int64)
        self._state[[LARGEST_TIMESTAMP, LAST_TIMESTAMP]] = NO_TIMESTAMP
        self._state[[LARGEST_OFFSET, LAST_OFFSET]] = base_offset - 1
        self._offset_entries = bytearray()
        self._time_entries = bytearray()

    def add(self, batches: NDArray[Any]) -> int:
        """Add batches (`BATCH_DTYPE` rows). Returns how many are valid and in order; the rest is ignored."""
        room = len(batches)
        offset_entries = np.empty((room, 2), np.int32)
        timestamps, timestamp_offsets = np.empty(room, np.int64), np.empty(room, np.int32)
        valid, offset_count, time_count = index_batches(
            batches,
            self._base_offset,
            self._interval_bytes,
            self._state,
            offset_entries,
            timestamps,
            timestamp_offsets,
        )
        self._offset_entries += offset_entries[:offset_count].astype(">i4").tobytes()
        self._add_times(timestamps[:time_count], timestamp_offsets[:time_count])
        return int(valid)

    def finish(self) -> tuple[bytes, bytes]:
        """The contents of the offset index and of the time index, the final entry included."""
        state = self._state
        if state[LARGEST_TIMESTAMP] > state[LAST_TIMESTAMP]:
            state[LAST_TIMESTAMP] = state[LARGEST_TIMESTAMP]
            self._add_times(state[[LARGEST_TIMESTAMP]], state[[LARGEST_OFFSET]] - self._base_offset)
        return bytes(self._offset_entries), bytes(self._time_entries)

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch added; one below the base offset if there was none."""
        return int(self._state[LAST_OFFSET])

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """The timestamp, and the last offset of the first batch that has it."""
        return int(self._state[LARGEST_TIMESTAMP]), int(self._state[LARGEST_OFFSET])

    def _add_times(self, timestamps: NDArray[Any], relative_offsets: NDArray[Any]) -> None:
        entries = np.empty(len(timestamps), TIME_ENTRIES)
        entries["timestamp"], entries["relative_offset"] = timestamps, relative_offsets
        self._time_entries += entries.tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIndexes:
    """The indexes of the valid part of a segment, and why that part ends."""

    offset_entries: bytes
    time_entries: bytes
    last_offset: int
    largest_timestamp: tuple[int, int]
    valid_bytes: int
    reason: CorruptRecord | None
    """What is wrong with the bytes from `valid_bytes` on; None if there are none."""
    is_overflow: bool
    """The batch there is valid, but its offset is too far from the base offset of the segment."""


def build_indexes(
    file: File,
    base_offset: int,
    *,
    end: int,
    interval_bytes: int,
    check_crc: bool = True,
    visit: Visit | None = None,
) -> BuiltIndexes:
    """Build both indexes of the first `end` bytes of a segment's log."""
    builder = IndexBuilder(base_offset, interval_bytes)
    valid_bytes = 0
    reason, is_overflow = None, False
    for piece in read_pieces(_OneBuffer(file), end=end, check_crc=check_crc):
        valid = builder.add(piece.batches)
        if valid:
            last = piece.batches[valid - 1]
            valid_bytes = int(last["position"]) + int(last["size"])
            if visit is not None:
                visit(
                    piece if valid == len(piece.batches) else dataclasses.replace(piece, batches=piece.batches[:valid])
                )
        if valid < len(piece.batches):
            reason, is_overflow = _refusal(piece, valid, builder.last_offset, base_offset)
            break
        reason = piece.fault or (half_a_batch(piece, valid_bytes) if piece.tail_bytes else None)
    offset_entries, time_entries = builder.finish()
    return BuiltIndexes(
        offset_entries=offset_entries,
        time_entries=time_entries,
        last_offset=builder.last_offset,
        largest_timestamp=builder.largest_timestamp,
        valid_bytes=valid_bytes,
        reason=reason,
        is_overflow=is_overflow,
    )


class _OneBuffer:
    """A file that reads into one buffer: to allocate new memory would take as long as to fill it."""

    def __init__(self, file: File) -> None:
        self.name = file.name
        self.size = file.size
        self._file = file
        self._memory = np.empty(PIECE_BYTES, np.uint8).data

    def read(self, position: int, size: int) -> memoryview:
        if size > len(self._memory):
            self._memory = np.empty(size, np.uint8).data
        view = self._memory[:size]
        self._file.read_into(position, view)
        return view


def _refusal(piece: Piece, row: int, last_offset: int, base_offset: int) -> tuple[CorruptRecord, bool]:
    """Why this batch does not continue the segment, and whether only its relative offset exceeds 32 bits."""
    batch = piece.batches[row]
    position = int(batch["position"])
    if batch["crc_ok"] == 0:
        begin = position - piece.position
        error = wrong_checksum(batch, piece.data[begin : begin + int(batch["size"])])
        error.position = 0
        return error.in_file(piece.name, position), False
    first = int(batch["base_offset"]) if batch["magic"] == 2 else int(batch["last_offset"])
    last = int(batch["last_offset"])
    is_overflow = last_offset < first <= last
    expected = f"at most {base_offset + 2**31 - 1}" if is_overflow else f"above {last_offset}"
    too_far = "a batch's offset is too far from its segment's base"
    error = CorruptRecord(
        too_far if is_overflow else "the offsets of a segment do not rise",
        fault=Fault.FIELD_VALUE,
        file=piece.name,
        position=position,
        expected=expected,
        found=f"{first} to {last}",
    )
    return error, is_overflow


def half_a_batch(piece: Piece, position: int) -> CorruptRecord:
    """The error for an incomplete batch at the end of a file. REQUIRES: `piece` is the last one."""
    return CorruptRecord(
        "the file ends inside a batch",
        fault=Fault.PARTIAL_BATCH,
        file=piece.name,
        position=position,
        expected="a whole batch",
        found=f"{piece.tail_bytes} bytes",
    )
