"""Adds up what a log holds: records, for the report, and bytes, which prove that a copy has the same records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from duralog.columnar.byte_digest import ByteDigest
from duralog.columnar.pieces import Piece
from duralog.columnar.record_digest import RecordDigest
from duralog.columnar.runs import Rows
from duralog.errors import CorruptRecord
from duralog.format.layout import CONTROL_BIT
from duralog.operations.restore.report import LogContents
from duralog.scanning.executor import Advance
from duralog.storage.log.view import LogView


class ContentsSum:
    def __init__(self, start_offset: int) -> None:
        """Records below `start_offset` may share a batch with others. They are not part of the log."""
        self._start_offset = start_offset
        self._digest = RecordDigest()
        self._first: int | None = None
        self._last: int | None = None
        self._batches = 0
        self._bytes = 0
        self._undecodable = 0

    def add(self, piece: Piece, rows: Rows) -> None:
        """Some batches of a piece."""
        batches = piece.batches[rows]
        self._batches += len(rows)
        self._bytes += int(batches["size"].sum())
        for decoded in piece.decode(rows[(batches["attributes"] & CONTROL_BIT) == 0], on_corrupt=self._note):
            offsets = decoded.columns.offset
            if len(offsets) and offsets[0] < self._start_offset:
                decoded = decoded.take(offsets >= self._start_offset)
                offsets = decoded.columns.offset
            if not len(offsets):
                continue
            self._digest.add(decoded)
            self._last = int(offsets[-1])
            self._first = int(offsets[0]) if self._first is None else self._first

    def _note(self, _error: CorruptRecord, _row: int) -> None:
        self._undecodable += 1

    def total(self) -> LogContents:
        return LogContents(
            records=self._digest.records,
            first_offset=self._first,
            last_offset=self._last,
            digest=str(self._digest),
            batches=self._batches,
            size_bytes=self._bytes,
            undecodable=self._undecodable,
        )


@dataclass(frozen=True, slots=True)
class LogBytes:
    """What two copies of a log have in common: where it starts, and its batches, byte for byte."""

    start_offset: int
    batches: int
    size_bytes: int
    digest: str
    """`duralog.columnar.byte_digest`."""


class BytesSum:
    def __init__(self) -> None:
        self._digest = ByteDigest()
        self._batches = 0
        self._bytes = 0

    def add(self, piece: Piece, rows: Rows) -> None:
        """Some batches of a piece."""
        self._digest.add(piece, rows)
        self._batches += len(rows)
        self._bytes += int(piece.batches["size"][rows].sum())

    def total(self, start_offset: int) -> LogBytes:
        return LogBytes(start_offset, self._batches, self._bytes, self._digest.hexdigest())


def bytes_of(view: LogView, end_offset: int, advance: Advance) -> LogBytes:
    """What a log holds below an offset. Raises `CorruptRecord` for damage."""
    found = BytesSum()
    for segment, end in view.segments_from(view.start_offset):
        first = segment.find_batch(view.start_offset, end) if segment.base_offset < view.start_offset else None
        for piece in segment.batches_from(0 if first is None else first.position, end=end):
            if piece.fault is not None:
                raise piece.fault
            found.add(piece, np.flatnonzero(piece.batches["last_offset"] < end_offset))
            advance(len(piece.data))
        segment.let_go()
    return found.total(view.start_offset)
