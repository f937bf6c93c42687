"""The view of a log for readers: an immutable value that is replaced when the log changes.

Readers take the current value and need no lock: it never refers to bytes that are not written yet. It stays readable
when the log grows, rolls or loses segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from duralog.columnar.pieces import PIECE_BYTES, Piece, read_pieces
from duralog.errors import CorruptRecord, OffsetOutOfRange
from duralog.format.filenames import FileKind
from duralog.format.index_entries import AbortedTransaction
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.log.abort_markers import AbortMarkers
from duralog.storage.log.isolation import Isolation
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segments import Segments

_FIRST_SCANNED_BYTES = 64 << 10
_GROWTH = 2


class SegmentInfo(NamedTuple):
    """Properties of a segment at the time of the call."""

    base_offset: int
    size_bytes: int
    """Of the `.log` file's contents."""
    largest_timestamp_ms: int
    """Of all records; the modification time of the file if they have none."""
    path: str
    """Of the `.log` file."""
    is_active: bool


class LogView(NamedTuple):
    segments: Segments
    start_offset: int
    end_offset: int
    """One above the last record's."""
    end_position: int
    """The end of the active segment, which belongs to the end offset."""
    last_stable_offset: int
    abort_markers: AbortMarkers
    """Shared by all views of the log."""

    def limit(self, isolation: Isolation) -> int:
        """Up to where a reader may read."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.end_offset

    def check_offset(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not within the log, which goes from {self.start_offset} to {self.end_offset}"
            )

    def segments_from(self, offset: int) -> Iterator[tuple[Segment, int]]:
        """The segment that may hold the offset and those after it, each with its end in this view."""
        active = self.segments.active
        for segment in self.segments.from_floor(offset):
            yield segment, self.end_position if segment is active else segment.size_bytes

    def aborted_transactions(
        self, start_offset: int, end_offset: int, *, piece: Piece | None = None, may_scan: bool = True
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records from `start_offset` up to, not including, `end_offset`.

        A transaction counts if an index or a marker in the log says that it was aborted. `piece` is the piece that
        begins with `start_offset`, if the caller has it. Without `may_scan`, `MustScan` is raised if the log has to be
        scanned for markers.
        """
        unlisted = self.unlisted_aborted_transactions(start_offset, end_offset, piece=piece, may_scan=may_scan)
        found = self.indexed_aborted_transactions(start_offset, end_offset)
        return sorted([*found, *unlisted], key=lambda transaction: transaction.last_offset) if unlisted else found

    def indexed_aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions in the transaction indexes, which may be missing or incomplete."""
        found: list[AbortedTransaction] = []
        for segment in self.segments.from_floor(start_offset):
            of_segment = segment.transaction_index.overlapping(start_offset, end_offset)
            found += of_segment.transactions
            if of_segment.is_complete:
                break
        return found

    def unlisted_aborted_transactions(
        self, start_offset: int, end_offset: int, *, piece: Piece | None = None, may_scan: bool = True
    ) -> list[AbortedTransaction]:
        """The aborted transactions that are only known by their markers in the log."""
        found = self.abort_markers.unlisted(start_offset, end_offset, self, piece=piece, may_scan=may_scan)
        for transaction in found:
            segment = self.segments.floor(transaction.last_offset)
            if segment is not None:
                self.abort_markers.warn(segment.path(FileKind.TRANSACTION_INDEX), transaction)
        return found

    def scan_markers(self, start_offset: int, end_offset: int, *, ahead_bytes: int) -> None:
        """Scan what `aborted_transactions` needs, and `ahead_bytes` more for the next call."""
        self.abort_markers.unlisted(start_offset, end_offset, self, ahead_bytes=ahead_bytes)

    def is_listed(self, transaction: AbortedTransaction) -> bool:
        """Whether a transaction index has this producer's transaction that ends with this marker."""
        segment = self.segments.floor(transaction.last_offset)
        return segment is not None and segment.transaction_index.has(transaction.producer_id, transaction.last_offset)

    def scanned_from(self, offset: int, _position: int = 0) -> Iterator[Piece]:
        """The batches from the one that holds the offset, in growing pieces, without verifying checksums.

        The rest of a damaged segment is skipped.
        """
        piece_bytes = _FIRST_SCANNED_BYTES
        for segment, end in self.segments_from(offset):
            try:
                first = segment.find_batch(offset, end)
            except CorruptRecord:
                continue
            position = end if first is None else first.position
            while position < end:
                scanned = read_pieces(segment.file, start=position, end=end, check_crc=False, piece_bytes=piece_bytes)
                piece = next(scanned, None)
                if piece is None or not len(piece.batches):
                    break
                yield piece
                position = int(piece.batches["position"][-1]) + int(piece.batches["size"][-1])
                piece_bytes = min(_GROWTH * piece_bytes, PIECE_BYTES)

    def infos(self) -> tuple[SegmentInfo, ...]:
        active = self.segments.active
        return tuple(
            SegmentInfo(
                segment.base_offset,
                self.end_position if segment is active else segment.size_bytes,
                segment.largest_timestamp_ms,
                segment.path(FileKind.LOG),
                segment is active,
            )
            for segment in self.segments
        )


class _UnsettledView(LogView):
    """The view of a read-only log. Its last stable offset is computed when it is used.

    That reads all batches since the newest producer snapshot, which may be the whole active segment.
    """

    read_producers: Callable[[], ProducerState]

    @property
    def last_stable_offset(self) -> int:
        return self.read_producers().last_stable_offset(self.end_offset, self.start_offset)


def unsettled_view(
    segments: Segments,
    start_offset: int,
    end_offset: int,
    abort_markers: AbortMarkers,
    read_producers: Callable[[], ProducerState],
) -> LogView:
    view = _UnsettledView(segments, start_offset, end_offset, segments.active.size_bytes, end_offset, abort_markers)
    view.read_producers = read_producers
    return view
