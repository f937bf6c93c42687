"""The aborted transactions of one segment: those whose abort marker is in it. Kafka's `TransactionIndex`.

The file is created with the first aborted transaction: no file means that there is none. Entries are few and are kept
in memory once they were read.

What must always be true: the markers' offsets rise from entry to entry. An entry is written after its marker, so a
crash between the two loses it; recovery finds the marker and writes the entry again. Half an entry at the end, which a
crash may leave, is ignored, as Kafka does, and cut off by the next append. Any other entry that breaks a rule raises
`CorruptRecord`, and recovering the segment rewrites the file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from threading import RLock
from typing import NamedTuple

from duralog.errors import CorruptRecord, Fault, InvalidRecord, StorageError
from duralog.format.index_entries import AbortedTransaction, decode_transaction_index, encode_transaction_index
from duralog.format.layout import TRANSACTION_INDEX_ENTRY
from duralog.storage.disk.file_system import File, FileSystem


class AbortedInRange(NamedTuple):
    """The aborted transactions of one segment that overlap a range of offsets."""

    transactions: list[AbortedTransaction]
    is_complete: bool
    """Later segments have no more: when the last entry was written, the range was stable already."""


class TransactionIndex:
    """One thread writes at a time; readers take no lock. `opening` guards opening and replacing the file."""

    def __init__(
        self, fs: FileSystem, path: str, base_offset: int, *, read_only: bool = False, opening: RLock | None = None
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.read_only = read_only
        self._fs = fs
        self._opening = opening or RLock()
        # Removing entries replaces the list. Appending changes it in place, which is safe for concurrent readers.
        self._entries: list[AbortedTransaction] | None = None
        self._file: File | None = None
        self._is_unsynced = False

    @property
    def entries(self) -> Sequence[AbortedTransaction]:
        return self._opened()

    def prepare(self) -> None:
        """Open the file for `append`, and create it if it does not exist."""
        self._check_writable()
        entries = self._opened()
        if self._file is None:
            self._file = self._open_for_append(len(entries))

    def append(self, transaction: AbortedTransaction) -> None:
        """Add the transaction whose marker was written last."""
        self.prepare()
        entries = self._opened()
        last = entries[-1].last_offset if entries else self.base_offset - 1
        if transaction.last_offset <= last:
            raise InvalidRecord(f"{self.path}: marker {transaction.last_offset} after marker {last}: they must rise")
        assert self._file is not None
        self._file.append(encode_transaction_index((transaction,)))
        self._is_unsynced = True
        entries.append(transaction)

    def add(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add the transactions of the next batches during recovery; only in memory if the segment is read-only."""
        for transaction in transactions:
            if self.read_only:
                self._opened().append(transaction)
            else:
                self.append(transaction)

    def overlapping(self, start_offset: int, end_offset: int) -> AbortedInRange:
        """The transactions with records from `start_offset` up to, not including, `end_offset`."""
        found: list[AbortedTransaction] = []
        for transaction in self._opened():
            if transaction.last_offset >= start_offset and transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return AbortedInRange(found, is_complete=True)
        return AbortedInRange(found, is_complete=False)

    def has(self, producer_id: int, last_offset: int) -> bool:
        """Whether there is an entry for the marker at this offset."""
        entries = self._opened()
        place = bisect_left(entries, last_offset, key=lambda entry: entry.last_offset)
        if place == len(entries):
            return False
        return (entries[place].producer_id, entries[place].last_offset) == (producer_id, last_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at this offset or above."""
        self._check_writable()
        entries = self._opened()
        kept = [transaction for transaction in entries if transaction.last_offset < offset]
        if len(kept) < len(entries):
            self.rewrite(kept)

    def reset(self) -> None:
        """Drop all entries, and the file."""
        self.rewrite(())

    def rewrite(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Replace all entries; only in memory if the segment is read-only."""
        with self._opening:
            entries = list(transactions)
            if not self.read_only:
                self._file = None
                if entries:
                    self._fs.write(self.path, encode_transaction_index(entries), sync=False)
                else:
                    self._fs.remove(self.path)
                self._is_unsynced = bool(entries)
            self._entries = entries

    def check(self) -> None:
        """Raise `CorruptRecord` if the file holds anything but entries of this segment."""
        with self._opening:
            if self._entries is None:
                self._entries = self._read()

    def flush(self, *, again: bool = False) -> None:
        """Return when the entries are durable; with `again`, also those that another process wrote."""
        if not self._is_unsynced and not (again and self._fs.exists(self.path)):
            return
        try:
            # Cleared first: a concurrent append sets it again.
            self._is_unsynced = False
            with self._opening:
                file = self._file or self._fs.open(self.path, writable=True)
            file.sync()
        except BaseException:
            self._is_unsynced = True
            raise

    def close(self) -> None:
        self.read_only = True
        self._file = None

    def _opened(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self.check()
        assert self._entries is not None
        return self._entries

    def _read(self) -> list[AbortedTransaction]:
        if not self._fs.exists(self.path):
            return []

        def refuse(error: CorruptRecord) -> None:
            if error.fault is not Fault.TRAILING_BYTES:
                raise error.in_file(self.path)

        data = self._fs.read_all(self.path)
        return list(decode_transaction_index(data, self.base_offset, on_corrupt=refuse))

    def _open_for_append(self, entry_count: int) -> File:
        with self._opening:
            file = self._fs.open(self.path, writable=True, create=True)
            size = entry_count * TRANSACTION_INDEX_ENTRY.size
            if file.size != size:
                file.truncate(size)
            return file

    def _check_writable(self) -> None:
        if self.read_only:
            raise StorageError(f"{self.path}: cannot write: the segment was opened for reading")
