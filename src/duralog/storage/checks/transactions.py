"""The transaction index of a segment against the markers and transactional batches of its log.

Every entry must name an abort marker of its producer. Every aborted transaction whose data is in sight must have an
entry, and the entry must cover all of that data: otherwise `read_committed` readers see what was aborted.

Compaction removes aborted data but keeps the entries: an entry may therefore reach further back than the data. When
nothing is left of the data, it drops the entry, and gives the marker a delete horizon.
"""

from __future__ import annotations

from collections.abc import Iterable

from duralog.errors import CorruptRecord, Fault
from duralog.format.control_records import ControlType
from duralog.format.index_entries import AbortedTransaction, decode_transaction_index
from duralog.format.layout import TRANSACTION_INDEX_ENTRY
from duralog.storage.append.producer_batch import ProducerBatch
from duralog.storage.checks.findings import OnFinding


class TransactionIndexCheck:
    """Of one segment. `data` is None if there is no index, as there is none without aborted transactions."""

    def __init__(self, path: str, data: bytes | None, base_offset: int, report: OnFinding) -> None:
        self._path = path
        self._exists = data is not None
        self._report = report
        entries = decode_transaction_index(
            data or b"", base_offset, on_corrupt=lambda error: report(error.in_file(path))
        )
        self._entries = {entry.last_offset: (entry, number) for number, entry in enumerate(entries)}

    def add(self, batches: Iterable[ProducerBatch], aborted: Iterable[AbortedTransaction]) -> None:
        """Take in batches of the log, and those transactions among them that have data and end with an abort."""
        with_data = {transaction.last_offset: transaction for transaction in aborted}
        for batch in batches:
            if batch.marker is not None and batch.marker.type is ControlType.ABORT:
                self._check_abort(batch, with_data.get(batch.base_offset))

    def _check_abort(self, marker: ProducerBatch, transaction: AbortedTransaction | None) -> None:
        entry, number = self._entries.pop(marker.base_offset, (None, 0))
        if entry is not None:
            self._check_entry(entry, number, marker.producer_id, transaction)
        elif transaction is not None and not marker.has_delete_horizon:
            self._wrong(
                None,
                f"the transaction index lacks the aborted transaction whose marker is at offset {marker.base_offset}",
                expected=(
                    f"producer {marker.producer_id}, offsets {transaction.first_offset} to {transaction.last_offset}"
                ),
                found="no entry" if self._exists else "no transaction index",
            )

    def _check_entry(
        self, entry: AbortedTransaction, number: int, producer_id: int, transaction: AbortedTransaction | None
    ) -> None:
        if entry.producer_id != producer_id:
            self._wrong(
                number,
                f"the transaction index has another producer than the abort marker at offset {entry.last_offset}",
                expected=f"producer {producer_id}",
                found=f"producer {entry.producer_id}",
            )
        elif transaction is not None and entry.first_offset > transaction.first_offset:
            self._wrong(
                number,
                "the transaction index does not cover all of an aborted transaction",
                expected=f"first offset {transaction.first_offset} or before",
                found=entry.first_offset,
            )
        elif not entry.first_offset <= entry.last_offset or not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            self._wrong(
                number,
                "the offsets of an aborted transaction are inconsistent",
                expected=f"first offset and last stable offset up to {entry.last_offset}",
                found=f"{entry.first_offset} and {entry.last_stable_offset}",
            )

    def finish(self) -> None:
        """REQUIRES: the log was read to its end."""
        for entry, number in self._entries.values():
            self._wrong(
                number,
                "the transaction index has an offset where the log has no abort marker",
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
