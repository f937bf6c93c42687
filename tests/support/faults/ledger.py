"""What a log was asked to hold, and what must therefore be true of the log that is found after a crash.

The ledger learns of an append before it is tried, of its result when it returns, and of every flush when that returns.
A crash may come at any time between. Whatever the disk did then:

- Every record below the flushed offset is there, equal, and in its place.
- Every record that is there was appended at that offset. The log has no holes: what is lost is lost from the end.
- Readers of committed data see all records of transactions whose end was flushed, none of one that was aborted or
  that is open, and only what other readers see, too.
- A batch of a known producer that is sent again is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog


class Outcome(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False)
class Transaction:
    producer_id: int
    first_offset: int
    outcome: Outcome = Outcome.OPEN
    marker_offset: int | None = None
    """Where its end is written."""


@dataclass(frozen=True)
class Written:
    """A record at an offset, or a marker if it has none."""

    record: Record | None
    transaction: Transaction | None = None
    batch: SentBatch | None = None


@dataclass(frozen=True)
class SentBatch:
    """A batch of a producer with an id, as it would be sent again."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[Record, ...]
    base_offset: int
    is_transactional: bool

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.records) - 1

    @property
    def next_sequence(self) -> int:
        return self.base_sequence + len(self.records)


@dataclass
class Ledger:
    start_offset: int = 0
    """The highest that was ever asked for: what is below may be gone."""
    end_offset: int = 0
    flushed_offset: int = 0
    written: dict[int, Written] = field(default_factory=dict)
    """What the log holds now, by offset."""
    tried: dict[int, list[Written]] = field(default_factory=dict)
    """All that was ever handed to the log, by offset: an append that failed or was truncated may still be found."""
    open: dict[int, Transaction] = field(default_factory=dict)
    """By producer."""
    sent: dict[int, SentBatch] = field(default_factory=dict)
    """By producer, the last batch."""

    def try_records(
        self,
        records: Iterable[Record],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> list[Written]:
        """Before an append."""
        records = tuple(records)
        batch = transaction = None
        if producer_id >= 0:
            batch = SentBatch(producer_id, producer_epoch, base_sequence, records, self.end_offset, is_transactional)
        if is_transactional:
            transaction = self.open.get(producer_id) or Transaction(producer_id, self.end_offset)
        return self._try([Written(record, transaction, batch) for record in records])

    def try_marker(self, producer_id: int) -> list[Written]:
        """Before the end of a transaction."""
        return self._try([Written(None, self.open[producer_id])])

    def _try(self, entries: list[Written]) -> list[Written]:
        for number, entry in enumerate(entries):
            self.tried.setdefault(self.end_offset + number, []).append(entry)
        return entries

    def appended(self, entries: list[Written]) -> None:
        """After an append."""
        for entry in entries:
            self.written[self.end_offset] = entry
            self.end_offset += 1
        last = entries[-1]
        if last.batch is not None:
            self.sent[last.batch.producer_id] = last.batch
        if last.transaction is not None and last.transaction.outcome is Outcome.OPEN:
            self.open[last.transaction.producer_id] = last.transaction

    def ending(self, producer_id: int, outcome: Outcome) -> None:
        """Before the end of a transaction: from here on, it may be found ended."""
        transaction = self.open[producer_id]
        transaction.outcome = outcome
        transaction.marker_offset = self.end_offset

    def ended(self, producer_id: int) -> None:
        del self.open[producer_id]

    def flushed(self) -> None:
        """After a flush."""
        self.flushed_offset = self.end_offset

    def found(self, log: PartitionLog) -> None:
        """After a crash: the log is what it is."""
        self.written = {offset: entry for offset, entry in self.found_entries(log).items() if offset < log.end_offset}
        self.end_offset = log.end_offset
        self._look_again()

    def found_entries(self, log: PartitionLog) -> dict[int, Written]:
        """Which of the tried entries the log holds. Markers are not to be read: they count if they were written."""
        records = {record.offset: record for record in log.read(log.start_offset)}
        found: dict[int, Written] = {}
        for offset in range(log.start_offset, log.end_offset):
            for entry in reversed(self.tried.get(offset, [])):
                if _is_same(entry.record, records.get(offset)):
                    found[offset] = entry
                    break
        return found

    def _look_again(self) -> None:
        """Learn from the entries which transactions are open and what each producer sent last."""
        self.open, self.sent = {}, {}
        for offset, entry in sorted(self.written.items()):
            if entry.batch is not None and offset == entry.batch.last_offset:
                self.sent[entry.batch.producer_id] = entry.batch
            if entry.transaction is None:
                continue
            if entry.record is None:
                self.open.pop(entry.transaction.producer_id, None)
            else:
                self.open[entry.transaction.producer_id] = entry.transaction
        for transaction in self.open.values():
            transaction.outcome, transaction.marker_offset = Outcome.OPEN, None

    # What must be true.

    def check(self, log: PartitionLog) -> None:
        """The log as a crash may have left it."""
        assert log.start_offset <= self.start_offset
        assert self.flushed_offset <= log.end_offset <= max(self.tried, default=-1) + 1, (
            f"{self.flushed_offset} offsets were flushed, the log ends at {log.end_offset}"
        )
        records = list(log.read(log.start_offset))
        self._check_records(log, records)
        self._check_committed(log, records)
        self._check_times(log, records)

    def _check_records(self, log: PartitionLog, records: list[Record]) -> None:
        by_offset = {record.offset: record for record in records}
        assert [record.offset for record in records] == sorted(by_offset), "offsets do not rise"
        for offset, record in by_offset.items():
            entries = self.tried.get(offset, [])
            assert any(_is_same(entry.record, record) for entry in entries), f"never appended: {record}"
        for offset in range(max(self.start_offset, log.start_offset), log.end_offset):
            entries = self.tried[offset] if offset >= self.flushed_offset else [self.written[offset]]
            found = by_offset.get(offset)
            assert any(_is_same(entry.record, found) for entry in entries), (
                f"offset {offset}, {self.flushed_offset} were flushed and {log.end_offset} found: "
                f"{[entry.record for entry in entries]} became {found}"
            )

    def _check_committed(self, log: PartitionLog, records: list[Record]) -> None:
        seen = {record.offset: record for record in log.read(log.start_offset, isolation="read_committed")}
        everything = {record.offset: record for record in records}
        assert seen.items() <= everything.items()
        assert log.start_offset <= log.last_stable_offset <= log.end_offset
        unended: set[int] = set()
        for offset, record in everything.items():
            entries = [entry for entry in self.tried[offset] if _is_same(entry.record, record)]
            if not any(_is_committed(entry.transaction, log.end_offset) for entry in entries):
                assert offset not in seen, f"offset {offset} was never committed"
            if all(_is_committed(entry.transaction, self.flushed_offset) for entry in entries):
                assert offset in seen or offset >= log.last_stable_offset, f"offset {offset} was committed"
            unended |= {
                entry.transaction.first_offset
                for entry in entries
                if entry.transaction is not None and not _is_ended(entry.transaction, log.end_offset)
            }
        # Of a transaction that began below the start, the log may know or not.
        if not any(self._is_open_below(offset, log) for offset in range(log.start_offset)):
            assert log.last_stable_offset == min(unended, default=log.end_offset)

    def _is_open_below(self, offset: int, log: PartitionLog) -> bool:
        transactions = [entry.transaction for entry in self.tried.get(offset, []) if entry.transaction is not None]
        return any(not _is_ended(transaction, log.end_offset) for transaction in transactions)

    def _check_times(self, log: PartitionLog, records: list[Record]) -> None:
        times = sorted({record.timestamp_ms for record in records})
        for time in times[:: max(1, len(times) // 4)]:
            first = next(record for record in records if record.timestamp_ms >= time)
            found = log.offset_for_timestamp(time)
            assert found is not None
            assert (found.offset, found.timestamp_ms) == (first.offset, first.timestamp_ms)


def _is_same(expected: Record | None, found: Record | None) -> bool:
    if expected is None or found is None:
        return expected is found
    return (expected.key, expected.value, expected.timestamp_ms, list(expected.headers)) == (
        found.key,
        found.value,
        found.timestamp_ms,
        list(found.headers),
    )


def _is_ended(transaction: Transaction, end_offset: int) -> bool:
    return transaction.marker_offset is not None and transaction.marker_offset < end_offset


def _is_committed(transaction: Transaction | None, end_offset: int) -> bool:
    if transaction is None:
        return True
    return transaction.outcome is Outcome.COMMITTED and _is_ended(transaction, end_offset)
