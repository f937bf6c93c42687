"""Reading the batches of one file that hold the offsets of a slice: exactly those records, and a report of damage.

If the file is no longer the planned one, or the index was wrong, `NotAsExpected` is raised before a record of the piece
is returned; `next_offset` is where to continue, and the caller looks up the offsets in the current log. So only a file
that matches the plan is reported as corrupt.

The checksums of batches do not cover their offsets, which must rise. If two batches overlap, either may be wrong, so
both are corrupt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import ByteSource, Piece, read_pieces
from duralog.columnar.refusals import OnCorruptBatch
from duralog.columnar.runs import Rows
from duralog.errors import CorruptRecord, Fault, StorageError
from duralog.format.filenames import FileKind, SegmentFile
from duralog.format.index_entries import AbortedTransaction
from duralog.scanning.hidden_transactions import HiddenTransactions
from duralog.scanning.remote_file import ReadAhead, RemoteFile
from duralog.scanning.slices import CorruptBytes, Slice
from duralog.storage.disk.file_system import File, FileSystem
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.reading import end_fault, wanted_rows
from duralog.storage.segment.damage import resume
from duralog.storage.segment.sparse_index import OffsetIndex

OnCorruptBytes = Callable[[CorruptBytes], None]

T = TypeVar("T")
Convert = Callable[[Piece, Rows | None, OnCorruptBatch], Iterator[T]]
"""Called with a piece, its batches that hold records of the slice (None for all), and what to call for corrupt ones.

The first and the last of these batches may hold records of other offsets, too."""


class NotAsExpected(Exception):
    """The file is not the planned one, or its index is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Bytes of an open file that should hold offsets of a slice."""

    files: FileSystem
    file: File
    path: str
    base_offset: int
    position: int
    """Where a batch starts; unless it is 0, it must not be after the first offset that is wanted."""
    end_position: int
    ends_with_batch: bool
    """A batch certainly ends there, if nothing is corrupt."""
    is_same: Callable[[], bool]
    """Whether the file at the path is still the one that was opened."""


class PartReader(Generic[T]):
    """Reads the parts of one slice, one after the other. `convert` produces the results from their batches."""

    def __init__(self, found: Slice, convert: Convert[T], on_corrupt: OnCorruptBytes | None) -> None:
        self._slice = found
        self._convert = convert
        self._on_corrupt = on_corrupt
        self.next_offset = found.start_offset
        """All records of the slice below it were returned or reported as corrupt."""
        self._begin = self.next_offset
        """Its value at the start of the current part: an index may lead to earlier batches, which are skipped."""
        self.aborted: Sequence[AbortedTransaction] = found.aborted
        """Those that a transaction index has."""
        self._hidden: HiddenTransactions | None = None

    def is_done(self) -> bool:
        return self.next_offset >= self._slice.end_offset

    def read(self, part: FilePart) -> Iterator[T]:
        self._begin = self.next_offset
        position = part.position
        must_reach = position > 0
        reached = part.base_offset - 1
        with _source(part) as source:
            self._hidden = None
            if self._slice.isolation is Isolation.READ_COMMITTED:
                self._hidden = HiddenTransactions(self._slice, part.file, source, part.end_position, self.aborted)
            while position < part.end_position and not self.is_done():
                fault: CorruptRecord | None = None
                for piece in _pieces(part, source, position):
                    fault = end_fault(piece)
                    reached, overlapping = _mark_overlapping(piece.batches, reached)
                    self._check(part, piece, fault, must_reach)
                    must_reach = False
                    yield from self._records(part, piece, overlapping)
                    if self.is_done():
                        return
                if fault is None:
                    return
                position = self._skip(part, fault)

    def _check(self, part: FilePart, piece: Piece, fault: CorruptRecord | None, must_reach: bool) -> None:
        batches = piece.batches
        if must_reach and (not len(batches) or batches["last_offset"][0] > self.next_offset):
            raise NotAsExpected
        if piece.tail_bytes and piece.fault is None and not part.ends_with_batch:
            raise NotAsExpected
        if (fault is not None or not batches["crc_ok"].all()) and not part.is_same():
            raise NotAsExpected

    def _records(self, part: FilePart, piece: Piece, overlapping: frozenset[int]) -> Iterator[T]:
        batches = piece.batches
        is_good = batches["crc_ok"] == 1
        reported = self.next_offset

        def refuse(error: CorruptRecord, row: int) -> None:
            nonlocal reported
            if row in overlapping:
                error = _overlap(batches[row], piece.name)
            before, behind = np.flatnonzero(is_good[:row]), np.flatnonzero(is_good[row + 1 :])
            first = max(reported, int(batches["last_offset"][before[-1]]) + 1 if len(before) else 0)
            begin = int(batches["position"][row])
            end = begin + int(batches["size"][row])
            if len(behind):
                last = _first_offset(batches[row + 1 + behind[0]]) - 1
            else:
                last = self._last_before(part, end, claimed=int(batches["last_offset"][row]), first=first)
            if row + 1 < len(batches) and first < (following := _first_offset(batches[row + 1])) <= last:
                # Also a bad one probably has its offset.
                last = following - 1
            reported = max(reported, self._report(error, begin, end, first, last))

        yield from self._convert(piece, self._rows(piece, is_good), refuse)
        reached = batches["last_offset"][is_good]
        self.next_offset = max(reported, int(reached.max()) + 1 if len(reached) else 0)

    def _rows(self, piece: Piece, is_good: NDArray[np.bool_]) -> Rows | None:
        """The batches with records of the slice. Corrupt ones are included: the damage may be in the fields that would
        select them.
        """
        batches, found, hidden = piece.batches, self._slice, self._hidden
        rows = wanted_rows(piece, found.end_offset, lambda: () if hidden is None else hidden.within(piece))
        if is_good.all() and rows is None and len(batches) and batches["last_offset"][0] >= self._begin:
            return None
        is_wanted = np.ones(len(batches), np.bool_)
        if rows is not None:
            is_wanted[:] = False
            is_wanted[rows] = True
        is_wanted |= ~is_good
        is_wanted &= ~(is_good & (batches["last_offset"] < self._begin))
        reaching = np.flatnonzero(is_good & (batches["last_offset"] >= found.end_offset - 1))
        if len(reaching):
            is_wanted[reaching[0] + 1 :] = False
        return np.flatnonzero(is_wanted)

    def _skip(self, part: FilePart, fault: CorruptRecord) -> int:
        """Report that no batch starts here, and find the next one. Returns its position, or that of the end."""
        assert fault.position is not None
        following = resume(part.file, fault.position, part.end_position, _indexed_positions(part, fault.position))
        end = part.end_position if following is None else following
        last = self._last_before(part, end)
        self.next_offset = max(self.next_offset, self._report(fault, fault.position, end, self.next_offset, last))
        return end

    def _last_before(self, part: FilePart, position: int, claimed: int = -1, first: int = 0) -> int:
        """The last offset that can be before this position: below the next batch, if there is a good one.

        Otherwise it is the last offset in the header of the batch before, if plausible, or the last of the slice.
        """
        for piece in read_pieces(part.file, start=position, end=part.end_position, piece_bytes=1):
            if len(piece.batches) and piece.batches["crc_ok"][0]:
                return _first_offset(piece.batches[0]) - 1
            break
        end_offset = self._slice.end_offset
        return claimed if first <= claimed < end_offset else end_offset - 1

    def _report(self, error: CorruptRecord, begin: int, end: int, first_offset: int, last_offset: int) -> int:
        """Report that these offsets may be missing, if they belong to the slice. Returns the one after them."""
        found = self._slice
        first, last = max(first_offset, found.start_offset), min(last_offset, found.end_offset - 1)
        if first > last:
            return last + 1
        if self._on_corrupt is None:
            raise CorruptRecord(
                f"{error.reason}; offsets {first} to {last} of {found.topic}-{found.partition} cannot be read",
                fault=error.fault,
                file=error.file,
                position=error.position,
                expected=error.expected,
                found=error.found,
            )
        self._on_corrupt(
            CorruptBytes(
                topic=found.topic,
                partition=found.partition,
                path=error.file or found.path,
                position=begin,
                end_position=end,
                first_offset=first,
                last_offset=last,
                reason=_reason(error),
            )
        )
        return last + 1


def _mark_overlapping(batches: NDArray[Any], reached: int) -> tuple[int, frozenset[int]]:
    """Mark batches as corrupt whose offsets do not rise from `reached` on. Returns how far the others go, and these."""
    rows = np.flatnonzero(batches["crc_ok"])
    if not len(rows):
        return reached, frozenset()
    first = np.where(batches["magic"] == 2, batches["base_offset"], batches["last_offset"])[rows]
    last = batches["last_offset"][rows]
    falls = first <= np.append(np.int64(reached), last[:-1])
    if falls.any():
        falls[:-1] |= first[1:] <= last[:-1]
        batches["crc_ok"][rows[falls]] = 0
    kept = last[~falls]
    return int(kept[-1]) if len(kept) else reached, frozenset(rows[falls].tolist())


def _overlap(batch: Any, file: str) -> CorruptRecord:
    return CorruptRecord(
        "the offsets of a batch overlap those of the batch before or after it",
        fault=Fault.FIELD_VALUE,
        file=file,
        position=int(batch["position"]),
        expected="offsets that rise from batch to batch",
        found=f"{batch['base_offset']} to {batch['last_offset']}",
    )


def _source(part: FilePart) -> AbstractContextManager[ByteSource]:
    file = part.file
    if isinstance(file, RemoteFile) and not file.is_at_hand(part.position, part.end_position):
        return ReadAhead(file, part.position, part.end_position)
    return nullcontext(file)


def _pieces(part: FilePart, source: ByteSource, position: int) -> Iterator[Piece]:
    pieces = read_pieces(source, start=position, end=part.end_position)
    while True:
        try:
            piece = next(pieces, None)
        except (CorruptRecord, StorageError):
            # The file became shorter, or is gone.
            if part.is_same():
                raise
            raise NotAsExpected from None
        if piece is None:
            return
        yield piece


def _reason(error: CorruptRecord) -> str:
    return (
        error.reason if error.expected is None else f"{error.reason} (expected {error.expected}, found {error.found})"
    )


def _first_offset(batch: Any) -> int:
    """Of a legacy message, the last one: the first one is known only after decompression."""
    return int(batch["base_offset"] if batch["magic"] == 2 else batch["last_offset"])


def _indexed_positions(part: FilePart, position: int) -> Iterator[int]:
    name = SegmentFile(part.base_offset, FileKind.OFFSET_INDEX).name
    index = OffsetIndex(part.files, os.path.join(os.path.dirname(part.path), name), part.base_offset, read_only=True)
    try:
        while (entry := index.upper_bound_by_position(position + 1)) is not None:
            yield entry.position
            position = entry.position
    except (StorageError, CorruptRecord):
        return  # The index is missing or invalid: then no batch is found after the damage.
