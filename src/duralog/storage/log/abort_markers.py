"""The aborted transactions that are missing in the transaction indexes, found by the abort markers in the log.

A `.txnindex` has no checksum and no count, and a log without aborted transactions has none. So if the file is missing,
empty or cut, fewer transactions seem to be aborted, and `read_committed` readers would get aborted records. Kafka does
not notice. Here, a reader of transactional records also searches the markers that end these transactions: a transaction
is aborted if its marker says so, whether or not an index has it.

Reading headers costs time, so:
- Nothing is scanned for non-transactional records, and nothing twice: scanned offsets are remembered.
- A scan goes from the first record that is read to the marker that ends the last transaction among those records. For
  usual transactions, that is a few kilobytes more than is read anyway.
- What this process has appended is not scanned: it wrote the indexes as well.

What must always be true: below `MarkerScan.settled_offset`, every transaction with records since the scan's start has
ended, and those that were aborted are in an index or in `MarkerScan.unlisted`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord, DuralogError
from duralog.format.checksum import crc32c
from duralog.format.control_records import ControlType
from duralog.format.index_entries import AbortedTransaction
from duralog.format.layout import (
    BATCH_V2,
    CODEC_MASK,
    CONTROL_BIT,
    CONTROL_KEY,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
)
from duralog.kernels.columns import rows_of
from duralog.storage.append.producer_batch import decode_marker

_log = logging.getLogger(__name__)

_MOST_SCANS = 32
"""Readers of one log at different positions each have a scan of their own."""

_BEHIND_ALL = 2**63
_NOT_KNOWN = 0
"""As a last stable offset. A search for transactions ends at one that is high enough, so the lowest is safe."""
_SPECIAL_BITS = CONTROL_BIT | TRANSACTIONAL_BIT
_OTHER = -1
"""A control batch that ends no transaction, or cannot be read."""
_KEY_AT = BATCH_V2.size + 5
_TYPE_AT = _KEY_AT + CONTROL_KEY.at.type + 1
_USUAL_BYTES = {_KEY_AT - 4: 0, _KEY_AT - 3: 0, _KEY_AT - 2: 0, _KEY_AT - 1: 2 * CONTROL_KEY.size, _TYPE_AT - 1: 0}
"""In a marker as Kafka writes it, five single bytes follow the header: the length of the record, its attributes, a
timestamp delta of 0, an offset delta of 0 and the length of the key. Then comes the key: a version, and a type below
256."""


class MustScan(DuralogError):
    """The log has to be scanned first, and the caller did not allow it."""


class ScannedLog(Protocol):
    def scanned_from(self, offset: int, position: int) -> Iterator[Piece]:
        """The batches from the one that holds this offset to the end of the log. Checksums need not be verified.

        If batches before it were scanned, the last of them ends at `position` of its file.
        """

    def is_listed(self, transaction: AbortedTransaction) -> bool:
        """Whether a transaction index has the transaction of this producer that ends with this marker."""


class MarkerScan:
    """A scan of a log from one offset on. Not thread-safe."""

    __slots__ = ("_open", "next_offset", "next_position", "settled_offset", "start_offset", "unlisted")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.next_offset = start_offset
        """All batches below it were scanned."""
        self.settled_offset = start_offset
        """No transaction with records below it is open. Any thread may read this: `unlisted` is updated first."""
        self.next_position = 0
        """The end of the last scanned batch in its file."""
        self.unlisted: list[AbortedTransaction] = []
        """Aborted transactions that no index has, by marker. No first offset is below `start_offset`."""
        self._open: dict[int, int] = {}
        """By producer: the first offset of its open transaction."""

    def settle(self, offset: int) -> None:
        """Treat all transactions with records below this offset as ended."""
        self._open.clear()
        self.next_offset = self.settled_offset = max(self.next_offset, offset)

    def between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The transactions of `unlisted` with records from `start_offset` up to, not including, `end_offset`."""
        if not self.unlisted:
            return []
        first = bisect_left(self.unlisted, start_offset, key=lambda transaction: transaction.last_offset)
        return [transaction for transaction in self.unlisted[first:] if transaction.first_offset < end_offset]

    def take(self, piece: Piece, log: ScannedLog) -> None:
        """Scan the batches of the piece that were not scanned before."""
        rows = piece.batches
        if len(rows) and rows["last_offset"][0] < self.next_offset:
            rows = rows_of(rows, rows["last_offset"] >= self.next_offset)
        if not len(rows):
            return
        attributes = rows["attributes"]
        is_special = (attributes & _SPECIAL_BITS != 0) & (rows["producer_id"] >= 0) & (rows["crc_ok"] != 0)
        if is_special.any():
            self._take_transactional(piece, rows_of(rows, is_special), log)
        self.next_offset = int(rows["last_offset"][-1]) + 1
        self.next_position = int(rows["position"][-1]) + int(rows["size"][-1])
        self.settled_offset = min(self._open.values(), default=self.next_offset)

    def _take_transactional(self, piece: Piece, rows: NDArray[Any], log: ScannedLog) -> None:
        is_marker = rows["attributes"] & CONTROL_BIT != 0
        kind = np.full(len(rows), _OTHER, np.int16)
        kind[is_marker] = _kinds(piece, rows[is_marker])
        by_producer = np.argsort(rows["producer_id"], kind="stable")
        by_producer = by_producer[~is_marker[by_producer] | (kind[by_producer] != _OTHER)]
        if not len(by_producer):
            return
        producer = rows["producer_id"][by_producer]
        offset = rows["base_offset"][by_producer]
        is_marker, kind = is_marker[by_producer], kind[by_producer]

        is_first = np.ones(len(producer), np.bool_)
        is_first[1:] = producer[1:] != producer[:-1]
        begins = is_first.copy()
        begins[1:] |= is_marker[:-1]
        # For each row the row with which its transaction begins, within these rows.
        first = np.maximum.accumulate(np.where(begins, np.arange(len(producer)), 0))

        def begin_of(place: int) -> int:
            at = int(first[place])
            known = self._open.get(int(producer[at])) if is_first[at] else None
            return int(offset[at]) if known is None else known

        found = []
        # A marker with a delete horizon: compaction found no records of the transaction, so no index needs it.
        is_due = rows["attributes"][by_producer] & DELETE_HORIZON_BIT != 0
        for place in np.flatnonzero((kind == ControlType.ABORT) & ~is_due).tolist():
            producer_id, marker = int(producer[place]), int(offset[place])
            if first[place] == place and not (is_first[place] and producer_id in self._open):
                continue  # The transaction has no records here.
            transaction = AbortedTransaction(
                producer_id=producer_id,
                first_offset=begin_of(place),
                last_offset=marker,
                last_stable_offset=_NOT_KNOWN,
            )
            if not log.is_listed(transaction) and _is_sound(piece, rows[by_producer[place]]):
                found.append(transaction)
        self.unlisted += sorted(found, key=lambda transaction: transaction.last_offset)

        for place in np.append(np.flatnonzero(is_first)[1:], len(producer)) - 1:
            producer_id = int(producer[place])
            if is_marker[place]:
                self._open.pop(producer_id, None)
            else:
                self._open[producer_id] = begin_of(int(place))


class AbortMarkers:
    """The scans of one log. Thread-safe."""

    def __init__(self, trusted_from: int | None = None) -> None:
        """From `trusted_from` on, the transaction indexes are complete; None if that is not known."""
        self._trusted_from = _BEHIND_ALL if trusted_from is None else trusted_from
        self._scans: tuple[MarkerScan, ...] = ()
        """In the order of their last use. The tuple is replaced: a lookup that needs no scan takes no lock."""
        self._scanning = Lock()
        self._warned: set[str] = set()
        """The indexes that a warning was logged for."""

    def cut(self, offset: int) -> None:
        """The log was truncated here: this process appends what follows."""
        with self._scanning:
            self._scans = ()
            self._trusted_from = min(self._trusted_from, offset)

    def unlisted(
        self,
        start_offset: int,
        end_offset: int,
        log: ScannedLog,
        *,
        piece: Piece | None = None,
        ahead_bytes: int = 0,
        may_scan: bool = True,
    ) -> list[AbortedTransaction]:
        """The aborted transactions that no index has, with records from one offset up to, not including, the other.

        `piece` is the piece that begins with the batch of `start_offset`, if the caller has it: it is not read again. A
        scan goes `ahead_bytes` further than necessary. Without `may_scan`, `MustScan` is raised instead of a scan.
        """
        end_offset = min(end_offset, self._trusted_from)
        if start_offset >= end_offset:
            return []
        for scan in self._scans:
            if scan.start_offset <= start_offset and end_offset <= scan.settled_offset:
                return scan.between(start_offset, end_offset)
        if not may_scan:
            raise MustScan(f"offsets {start_offset} to {end_offset} were not scanned for abort markers yet")
        with self._scanning:
            scan = self._scan_of(start_offset)
            self._extend(scan, end_offset, log, piece, ahead_bytes)
            return scan.between(start_offset, end_offset)

    def warn(self, index: str, lacking: AbortedTransaction) -> None:
        """Warn that a transaction index lacks a transaction, once per index."""
        if index not in self._warned:
            self._warned.add(index)
            _log.warning(
                "%s: the aborted transaction of producer %d that ends at offset %d is missing; readers of committed"
                " records use the markers in the log. To rebuild the index, run duralog repair",
                index,
                lacking.producer_id,
                lacking.last_offset,
            )

    def _scan_of(self, start_offset: int) -> MarkerScan:
        """A scan that includes this offset or ends there, or a new one."""
        fitting = [scan for scan in self._scans if scan.start_offset <= start_offset <= scan.next_offset]
        found = max(fitting, key=lambda scan: scan.next_offset, default=None) or MarkerScan(start_offset)
        self._scans = (*(scan for scan in self._scans if scan is not found), found)[-_MOST_SCANS:]
        return found

    def _extend(
        self, scan: MarkerScan, end_offset: int, log: ScannedLog, piece: Piece | None, ahead_bytes: int
    ) -> None:
        if piece is not None:
            scan.take(piece, log)
        if scan.settled_offset >= end_offset:
            return
        for following in log.scanned_from(scan.next_offset, scan.next_position):
            scan.take(following, log)
            if scan.next_offset >= self._trusted_from:
                break  # Open transactions end where the indexes are complete.
            if scan.settled_offset >= end_offset:
                ahead_bytes -= len(following.data)
                if ahead_bytes < 0:
                    return
        scan.settle(end_offset)


def _kinds(piece: Piece, markers: NDArray[Any]) -> NDArray[np.int16]:
    """For each of these control batches: a `ControlType` that ends a transaction, or `_OTHER`."""
    kinds = np.full(len(markers), _OTHER, np.int16)
    begins, sizes = markers["position"] - piece.position, markers["size"]
    is_emptied = markers["record_count"] == 0
    # Emptied by compaction after all records of the transaction were gone.
    kinds[is_emptied] = ControlType.COMMIT
    is_usual = ~is_emptied & (sizes >= _KEY_AT + CONTROL_KEY.size) & (markers["attributes"] & CODEC_MASK == 0)
    for place, expected in _USUAL_BYTES.items():
        is_usual[is_usual] = piece.data[begins[is_usual] + place] == expected
    kinds[is_usual] = piece.data[begins[is_usual] + _TYPE_AT]
    for row in np.flatnonzero(~is_usual & ~is_emptied).tolist():
        with suppress(CorruptRecord):
            marker = decode_marker(piece.data[begins[row] : begins[row] + sizes[row]].data)
            if marker is not None:
                kinds[row] = marker.type
    kinds[(kinds != ControlType.ABORT) & (kinds != ControlType.COMMIT)] = _OTHER
    return kinds


def _is_sound(piece: Piece, row: Any) -> bool:
    """Whether the checksum is right. It may not have been verified yet."""
    if row["crc_ok"] == 1:
        return True
    begin = int(row["position"]) - piece.position
    checked = piece.data[begin + BATCH_V2.at.attributes : begin + int(row["size"])]
    return bool(crc32c(checked.data) == row["crc"])
