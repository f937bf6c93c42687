"""The producers of a partition according to its log, to compare with snapshots and transaction indexes.

A replay starts from a snapshot, or from the first offset of the log, and reads batch after batch. As long as no batch
is missing, the result must be the next snapshot, except for producers that had expired when it was taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord, Fault
from duralog.format.index_entries import AbortedTransaction
from duralog.format.producer_snapshot import ProducerEntry
from duralog.storage.append.producer_batch import ProducerBatch, producer_batches, reader_of
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.checks.findings import OnFinding

_LONG_AGO_MS = -(2**62)
"""Seen from there, no producer has expired."""

_ALL = 2**63 - 1
"""Kafka remembers any number of them."""

_COMPARED = ("producer_epoch", "last_sequence", "last_offset", "offset_delta", "transaction_first_offset")


class Replayed(NamedTuple):
    batches: list[ProducerBatch]
    """Those that matter to the state: all markers are among them."""
    aborted: list[AbortedTransaction]
    """Those that are known for sure."""


class ProducerReplay:
    """REQUIRES: batches are added in order, from `start_offset` on."""

    def __init__(self, start_offset: int, snapshot: bytes | None) -> None:
        """Raises `CorruptRecord` for a damaged snapshot."""
        if snapshot is None:
            self._state = ProducerState(end_offset=start_offset, most_producers=_ALL)
        else:
            self._state = ProducerState.from_snapshot(snapshot, start_offset, now_ms=_LONG_AGO_MS, most_producers=_ALL)
        self._is_whole = snapshot is not None or start_offset == 0
        """Everything that leads to the state has been seen."""
        self._is_damaged = False
        """Batches could not be read: a marker may be among them."""

    def miss(self) -> None:
        """Something of the log could not be read: transactions may have ended in it."""
        self._is_damaged = True

    def add(self, piece: Piece) -> Replayed:
        rows = piece.batches
        if not (rows["crc_ok"] != 0).all():
            self.miss()
            rows = rows[rows["crc_ok"] != 0]
        replayed = self._replay(piece, rows)
        if piece.fault is not None:
            # What follows in this segment is not read.
            self.miss()
        return replayed

    def _replay(self, piece: Piece, rows: NDArray[Any]) -> Replayed:
        if not len(rows):
            return Replayed([], [])
        self._is_whole = self._is_whole and self._continues(rows)
        batches = list(producer_batches(rows, reader_of(piece), only_lasting=True))
        aborted = self._state.update(batches, int(rows["last_offset"][-1]) + 1)
        return Replayed(batches, [] if self._is_damaged else aborted)

    def _continues(self, rows: NDArray[Any]) -> bool:
        """Whether no offset is missing, as it is where compaction removed a batch."""
        before = np.concatenate(([self._state.end_offset - 1], rows["last_offset"][:-1]))
        return bool((rows["base_offset"] == before + 1).all())

    def compare(self, path: str, offset: int, entries: tuple[ProducerEntry, ...], report: OnFinding) -> None:
        """Hold a snapshot that was taken at this offset against the log."""
        if not self._is_whole or self._state.end_offset != offset:
            return
        known = {entry.producer_id: entry for entry in self._state.entries()}
        for entry in entries:
            found = known.pop(entry.producer_id, None)
            if found is None:
                _report(path, report, f"producer {entry.producer_id}, which is not in the log", None, entry)
            elif any(getattr(entry, name) != getattr(found, name) for name in _COMPARED):
                _report(path, report, f"another state of producer {entry.producer_id} than the log", found, entry)
        for left in known.values():
            # Producers expire, but not in the middle of a transaction.
            if left.transaction_first_offset >= 0:
                _report(path, report, f"nothing of producer {left.producer_id}, whose transaction is open", left, None)


def _report(
    path: str, report: OnFinding, what: str, expected: ProducerEntry | None, found: ProducerEntry | None
) -> None:
    report(
        CorruptRecord(
            f"the producer snapshot has {what}",
            fault=Fault.FIELD_VALUE,
            file=path,
            expected=_in_words(expected),
            found=_in_words(found),
        )
    )


def _in_words(entry: ProducerEntry | None) -> str:
    if entry is None:
        return "none"
    words = f"epoch {entry.producer_epoch}, sequence {entry.last_sequence} at offset {entry.last_offset}"
    if entry.transaction_first_offset >= 0:
        words += f", a transaction open from offset {entry.transaction_first_offset} on"
    return words
