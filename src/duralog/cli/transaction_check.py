"""The transaction index of a segment against the markers and transactional batches of its log.

Every entry must name an abort marker of its producer. Every aborted transaction whose data is in sight must have an
entry, and the entry must cover all of that data: otherwise `read_committed` readers see what was aborted.

Compaction removes aborted data but keeps the entries: an entry may therefore reach further back than the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump_batches import Report, headers
from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord, Fault
from duralog.format.control_records import ControlType, decode_type_id
from duralog.format.index_entries import AbortedTransaction, decode_transaction_index
from duralog.format.layout import CONTROL_BIT, CONTROL_KEY, TRANSACTION_INDEX_ENTRY, TRANSACTIONAL_BIT

OpenTransactions = dict[int, int]
"""Producer id to the first offset of its transaction."""


class TransactionIndexCheck:
    """`open_transactions` are those at the segment's start; they are kept up to date while batches are added."""

    def __init__(
        self, path: str, data: bytes | None, base_offset: int, open_transactions: OpenTransactions, report: Report
    ) -> None:
        self._path = path
        self._exists = data is not None
        self._report = report
        self.open_transactions = open_transactions
        entries = decode_transaction_index(
            data or b"", base_offset, on_corrupt=lambda error: report(error.in_file(path))
        )
        self._entries = {entry.last_offset: (entry, number) for number, entry in enumerate(entries)}

    def add(self, piece: Piece) -> None:
        batches = piece.batches
        is_transactional = (batches["magic"] >= 2) & (batches["attributes"] & TRANSACTIONAL_BIT != 0)
        rows = np.flatnonzero(is_transactional & (batches["crc_ok"] != 0))
        if not len(rows):
            return
        markers = _marker_types(piece, rows)
        for row, batch in zip(rows.tolist(), headers(batches[rows]), strict=True):
            if not batch.has(CONTROL_BIT):
                self.open_transactions.setdefault(batch.producer_id, batch.base_offset)
                continue
            first_offset = self.open_transactions.pop(batch.producer_id, None)
            if markers.get(row) == ControlType.ABORT:
                self._check_abort(batch.producer_id, first_offset, batch.last_offset, batch.position)

    def _check_abort(self, producer_id: int, first_offset: int | None, offset: int, position: int) -> None:
        entry, number = self._entries.pop(offset, (None, 0))
        if entry is None:
            if first_offset is not None:
                missing = "no transaction index" if not self._exists else "no entry"
                self._wrong(
                    None,
                    f"the transaction index lacks an aborted transaction, its marker is at {position} in the log",
                    expected=f"producer {producer_id}, offsets {first_offset} to {offset}",
                    found=missing,
                )
            return
        self._check_entry(entry, number, producer_id, first_offset)

    def _check_entry(self, entry: AbortedTransaction, number: int, producer_id: int, first_offset: int | None) -> None:
        if entry.producer_id != producer_id:
            self._wrong(
                number,
                f"the transaction index names another producer than the abort marker at offset {entry.last_offset}",
                expected=f"producer {producer_id}",
                found=f"producer {entry.producer_id}",
            )
        elif first_offset is not None and entry.first_offset > first_offset:
            self._wrong(
                number,
                "the transaction index does not cover all of an aborted transaction",
                expected=f"first offset {first_offset} or before",
                found=entry.first_offset,
            )
        elif not entry.first_offset <= entry.last_offset or not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            self._wrong(
                number,
                "the offsets of an aborted transaction do not fit together",
                expected=f"first offset and last stable offset up to {entry.last_offset}",
                found=f"{entry.first_offset} and {entry.last_stable_offset}",
            )

    def finish(self) -> None:
        """REQUIRES: the log was read to its end."""
        for entry, number in self._entries.values():
            self._wrong(
                number,
                "the transaction index names an offset where the log has no abort marker",
                expected="an abort marker",
                found=f"offset {entry.last_offset}, producer {entry.producer_id}",
            )

    def _wrong(self, number: int | None, reason: str, *, expected: object, found: object) -> None:
        position = None if number is None else number * TRANSACTION_INDEX_ENTRY.size
        self._report(
            CorruptRecord(
                reason, fault=Fault.FIELD_VALUE, file=self._path, position=position, expected=expected, found=found
            )
        )


def _marker_types(piece: Piece, rows: NDArray[np.intp]) -> dict[int, int]:
    """The control type of each control batch among these rows; what cannot be decoded is left out."""
    controls = rows[piece.batches["attributes"][rows] & CONTROL_BIT != 0]
    types: dict[int, int] = {}

    def ignore(error: CorruptRecord, row: int) -> None:
        """The log's own check tells of it."""

    for decoded in piece.decode(controls, on_corrupt=ignore):
        columns: Any = decoded.columns
        for row, start, length in zip(decoded.batch_row, columns.key_position, columns.key_length, strict=True):
            if length >= CONTROL_KEY.size:
                types[int(row)] = decode_type_id(bytes(decoded.data[start : start + CONTROL_KEY.size]))
    return types
