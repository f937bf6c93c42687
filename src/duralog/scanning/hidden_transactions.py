"""The aborted transactions of a slice, which a `read_committed` reader does not see.

The plan has those of the transaction indexes, which may be missing or cut short. So the reader also searches for the
markers that end the transactions of a piece (`duralog.storage.log.abort_markers`), in the piece and after it. Each task
does so. If a transaction ends more than `NEAR_BYTES` after what the task reads, the tasks of a process share the search
(`far_markers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from duralog.columnar.pieces import PIECE_BYTES, ByteSource, Piece, read_pieces
from duralog.format.index_entries import AbortedTransaction
from duralog.format.varint import Bytes
from duralog.scanning.far_markers import far_markers
from duralog.scanning.remote_file import ReadAhead
from duralog.scanning.slices import Slice
from duralog.storage.disk.file_system import File
from duralog.storage.log.abort_markers import AbortMarkers

NEAR_BYTES = 64 << 20
"""How far each task searches for the end of a transaction itself. Beyond that, every one of the tasks that read a very
long transaction would read it to its end."""

_FIRST_SCANNED_BYTES = 64 << 10
_GROWTH = 2


class HiddenTransactions:
    """Of the pieces of one file that hold offsets of a slice. REQUIRES: the pieces are passed in order."""

    def __init__(
        self, found: Slice, file: File, source: ByteSource, end_position: int, indexed: Sequence[AbortedTransaction]
    ) -> None:
        """The pieces are read from `source`, up to `end_position` of `file`.

        `indexed` are the aborted transactions with records of the slice that an index has.
        """
        self._slice = found
        self._indexed = indexed
        self._markers = AbortMarkers()
        self._following = _Following(found, _Ahead(file, source, end_position), indexed)

    def within(self, piece: Piece) -> Sequence[AbortedTransaction]:
        """Those that may have records in the piece."""
        found = self._slice
        start = max(int(piece.batches["base_offset"][0]), found.start_offset)
        end = min(int(piece.batches["last_offset"][-1]) + 1, found.end_offset)
        unlisted = self._markers.unlisted(start, end, self._following, piece=piece)
        if unlisted:
            unlisted = self._following.without_elsewhere(unlisted, start, end)
        for transaction in unlisted:
            self._markers.warn(f"a transaction index of {found.topic}-{found.partition}", transaction)
        return [*self._indexed, *unlisted]


class _Ahead:
    """A file that uses the bytes that the reader has fetched, if they are in memory."""

    def __init__(self, file: File, source: ByteSource, end_position: int) -> None:
        self.name = file.name
        self.size = file.size
        self.end_position = end_position
        self._read = file.read
        self._peek = source.peek if isinstance(source, ReadAhead) else file.read

    def read(self, position: int, size: int) -> Bytes:
        return (self._peek if position + size <= self.end_position else self._read)(position, size)


class _Following:
    """The log after the pieces of a file, searched for the markers of their transactions."""

    def __init__(self, found: Slice, file: _Ahead, listed: Sequence[AbortedTransaction]) -> None:
        self._slice = found
        self._file = file
        self._listed = {(transaction.producer_id, transaction.last_offset) for transaction in listed}
        self._is_behind_file = False
        """The scan has left the file."""
        self._left_bytes = NEAR_BYTES

    def is_listed(self, transaction: AbortedTransaction) -> bool:
        return (transaction.producer_id, transaction.last_offset) in self._listed

    def without_elsewhere(
        self, found: Sequence[AbortedTransaction], start_offset: int, end_offset: int
    ) -> list[AbortedTransaction]:
        """Without those that, by an index, have no records between the offsets.

        If the marker of a transaction is damaged, its records seem to be part of the producer's next one.
        """
        with self._slice.location.open_store() as store:
            view = store.partition(self._slice.topic, self._slice.partition).view
            here = {
                (each.producer_id, each.last_offset)
                for each in view.indexed_aborted_transactions(start_offset, end_offset)
            }
            return [each for each in found if (each.producer_id, each.last_offset) in here or not view.is_listed(each)]

    def scanned_from(self, offset: int, position: int) -> Iterator[Piece]:
        """The rest of the file, and then of the log."""
        if not self._is_behind_file:
            for piece in self._scanned_in_file(position):
                yield piece
                offset = int(piece.batches["last_offset"][-1]) + 1
            self._is_behind_file = True
        with self._slice.location.open_store() as store:
            view = store.partition(self._slice.topic, self._slice.partition).view
            if self._left_bytes > 0:
                for piece in view.scanned_from(offset):
                    self._left_bytes -= len(piece.data)
                    yield piece
                    offset = int(piece.batches["last_offset"][-1]) + 1
                    if self._left_bytes <= 0:
                        break
                else:
                    return
            topic_id = store.topic_id(self._slice.topic)
            yield from far_markers(self._slice, topic_id, view, offset).pieces_from(offset, view)

    def _scanned_in_file(self, position: int) -> Iterator[Piece]:
        file, piece_bytes = self._file, _FIRST_SCANNED_BYTES
        while position < file.size and self._left_bytes > 0:
            piece = next(read_pieces(file, start=position, check_crc=False, piece_bytes=piece_bytes), None)
            if piece is None or not len(piece.batches):
                return
            if position >= file.end_position:
                self._left_bytes -= len(piece.data)
            yield piece
            position = int(piece.batches["position"][-1]) + int(piece.batches["size"][-1])
            piece_bytes = min(_GROWTH * piece_bytes, PIECE_BYTES)
