"""A segment as compaction reads it: its batches in order, up to the first one after which nothing can be found.

A batch with a wrong checksum does not end the reading: its length leads to the next batch. But an impossible length or
format version ends it, and so does an offset that does not fit between its neighbours: the offset of a batch is not
covered by its checksum, and a wrong one would make old values of a key look like the newest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from duralog.columnar.pieces import PIECE_BYTES, Piece, read_pieces
from duralog.errors import CorruptRecord, Fault
from duralog.kernels.indexing import count_in_order
from duralog.kernels.scan import scan_batches
from duralog.storage.segment.index_builder import half_a_batch
from duralog.storage.segment.segment import Segment

_INT32_MAX = 2**31 - 1


class SegmentBroken(Exception):
    """A segment cannot be rewritten: it cannot be read to its end, or the result does not fit one segment."""

    def __init__(self, source: SegmentSource, reason: CorruptRecord | str) -> None:
        super().__init__(str(reason))
        self.source = source


class SegmentSource:
    """A segment that is being rewritten, as it was when that began."""

    def __init__(self, segment: Segment, *, next_base_offset: int) -> None:
        self.segment = segment
        self.base_offset = segment.base_offset
        self.next_base_offset = next_base_offset
        """The base offset of the next segment, or the end of what may be compacted."""
        self.size_bytes = segment.size_bytes
        self.modified_ms = segment.modified_ms
        self.bad_checksums: set[int] | None = None
        """The positions of batches with a wrong checksum; None if the checksums were not verified."""

    def pieces(self, start: int = 0, *, piece_bytes: int = PIECE_BYTES, check_crc: bool = True) -> Iterator[Piece]:
        """The batches from a position where one starts. Raises `SegmentBroken` after the last readable one."""
        last_offset = self.base_offset - 1
        limit = min(self.next_base_offset - 1, self.base_offset + _INT32_MAX)
        for piece in read_pieces(
            self.segment.file, start=start, end=self.size_bytes, check_crc=check_crc, piece_bytes=piece_bytes
        ):
            in_order = count_in_order(piece.batches, last_offset, limit)
            if in_order < len(piece.batches):
                if in_order:
                    yield dataclasses.replace(piece, batches=piece.batches[:in_order])
                raise SegmentBroken(self, _out_of_order(piece, in_order))
            if len(piece.batches):
                last_offset = int(piece.batches["last_offset"][-1])
                yield piece
            if piece.fault is not None:
                raise SegmentBroken(self, piece.fault)
            if piece.tail_bytes:
                raise SegmentBroken(self, half_a_batch(piece, self.size_bytes - piece.tail_bytes))

    def checked_pieces(self, *, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        """All batches, with their checksums verified: by an earlier pass, or now."""
        bad_checksums = self.bad_checksums
        for piece in self.pieces(piece_bytes=piece_bytes, check_crc=bad_checksums is None):
            if bad_checksums:
                piece.batches["crc_ok"][np.isin(piece.batches["position"], list(bad_checksums))] = 0
            yield piece


def check_crc(piece: Piece) -> None:
    """Verify the checksums of a piece that was read without, and note them in its batches. Releases the GIL."""
    scan_batches(piece.data, piece.position, True, piece.batches)


def batch_bytes(piece: Piece) -> int:
    """The size of all batches of the piece. REQUIRES: there is at least one."""
    last = piece.batches[-1]
    return int(last["position"]) + int(last["size"]) - piece.position


def _out_of_order(piece: Piece, row: int) -> CorruptRecord:
    batch = piece.batches[row]
    return CorruptRecord(
        "a batch's offsets do not lie between those of the batches and segments around it",
        fault=Fault.FIELD_VALUE,
        file=piece.name,
        position=int(batch["position"]),
        expected="offsets that rise from batch to batch and stay below the next segment's",
        found=f"{batch['base_offset']} to {batch['last_offset']}",
    )
