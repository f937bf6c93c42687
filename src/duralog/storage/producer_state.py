"""What a partition knows of its producers: epochs, sequence numbers and open transactions.

It keeps a retried batch from being stored twice, a replaced producer from writing on, and readers of committed data
from seeing what is still open. It is pure: batches come in, verdicts and index entries go out; a snapshot is bytes.

An append asks `check` before the batch is written and tells `update` after, so that a write that fails leaves no trace.
A log that is read again goes through `replay`, which checks nothing: what is in a log was accepted once, and a
state must come out of it whatever it is. So a batch without a transaction inside an open one, which Kafka's own
loading stops at, is taken as data that leaves the transaction open.

What must always be true: `end_offset` is the offset up to which all batches were taken in; every open transaction
belongs to a known producer; the open transactions are in the order of their first offsets.

Not safe for several threads: the log's lock is held around every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from duralog.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
)
from duralog.format.control_records import ControlType, EndTransactionMarker
from duralog.format.index_entries import AbortedTransaction
from duralog.format.layout import NO_SEQUENCE
from duralog.format.producer_snapshot import ProducerEntry, decode_producer_snapshot, encode_producer_snapshot
from duralog.format.varint import Bytes
from duralog.storage.append_origin import AppendOrigin
from duralog.storage.producer_batch import (
    EMPTIED_MARKER,
    REMEMBERED_BATCHES,
    ProducerBatch,
    ReadBytes,
    producer_batches,
)

DEFAULT_EXPIRATION_MS = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`."""

EPOCH_BUMPING = 2
"""The first transaction version that gives a producer a new epoch after each transaction."""

_NONE = -1
_SEQUENCES = 2**31
_LAST_EPOCH = 2**15 - 1


class WrittenBatch(NamedTuple):
    """A batch that is in the log already. A producer that sends it again is told these offsets."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class _Producer:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "timestamp_ms", "transaction_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED_BATCHES)
        """Of this epoch, the oldest first."""
        self.timestamp_ms = _NONE
        self.coordinator_epoch = _NONE
        self.transaction_first_offset = _NONE

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    def __init__(self, *, end_offset: int = 0, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> None:
        self.end_offset = end_offset
        """All batches below it were taken in."""
        self.expiration_ms = expiration_ms
        self._producers: dict[int, _Producer] = {}
        self._open: dict[int, int] = {}
        """First offset to producer id, the smallest offset first."""
        self._completed: dict[int, int] = {}
        """First offset to the offset of the marker, as long as that is not below the high watermark."""

    def __len__(self) -> int:
        return len(self._producers)

    # Appending

    def check(
        self, batch: ProducerBatch, *, origin: AppendOrigin = AppendOrigin.CLIENT, transaction_version: int = 0
    ) -> WrittenBatch | None:
        """Whether the batch may be written: None if so, or the batch in the log that it repeats.

        `transaction_version` is that of the producer's transaction, for markers and for the first batch of one.
        """
        producer = self._producers.get(batch.producer_id)
        if batch.marker is not None:
            if producer is not None:
                _check_marker(producer, batch, batch.marker, transaction_version)
            return None
        if producer is None:
            if origin is AppendOrigin.CLIENT and transaction_version >= EPOCH_BUMPING and batch.base_sequence != 0:
                raise _out_of_order(batch, "0, since nothing is known of the producer")
            return None
        if origin is AppendOrigin.CLIENT:
            repeated = _find_repeated(producer, batch)
            if repeated is not None:
                return repeated
        if batch.producer_epoch < producer.epoch:
            raise _fenced(batch, f"at least {producer.epoch}")
        if origin is AppendOrigin.CLIENT:
            _check_sequence(producer, batch, transaction_version)
        if producer.transaction_first_offset != _NONE and not batch.is_transactional:
            raise InvalidTransactionState(
                f"producer {batch.producer_id} has a transaction open since offset {producer.transaction_first_offset}:"
                " it cannot write outside of it"
            )
        return None

    def update(self, batches: Iterable[ProducerBatch], end_offset: int) -> list[AbortedTransaction]:
        """Take in batches that were written, up to `end_offset`. Returns what belongs into the transaction index."""
        aborted = []
        for batch in batches:
            if batch.marker is None:
                self._take_data(batch)
            elif (entry := self._take_marker(batch, batch.marker)) is not None:
                aborted.append(entry)
        self.end_offset = max(self.end_offset, end_offset)
        return aborted

    def replay(self, rows: NDArray[Any], read: ReadBytes) -> list[AbortedTransaction]:
        """Take in batches that were read from the log (`BATCH_DTYPE`), which follow those before in order.

        `read(position, size)` gives the bytes that the rows' positions count in; it is asked for markers only.
        """
        if not len(rows):
            return []
        return self.update(producer_batches(rows, read, only_lasting=True), int(rows["last_offset"][-1]) + 1)

    def _take_data(self, batch: ProducerBatch) -> None:
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = _Producer(batch.producer_epoch)
        producer.take_epoch(batch.producer_epoch)
        producer.timestamp_ms = batch.max_timestamp_ms
        producer.batches.append(
            WrittenBatch(
                batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset, batch.max_timestamp_ms
            )
        )
        if batch.is_transactional and producer.transaction_first_offset == _NONE:
            producer.transaction_first_offset = batch.base_offset
            self._open[batch.base_offset] = batch.producer_id

    def _take_marker(self, batch: ProducerBatch, marker: EndTransactionMarker) -> AbortedTransaction | None:
        """The entry for the transaction index, if the marker aborts a transaction that has data here."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = _Producer(batch.producer_epoch)
        producer.take_epoch(batch.producer_epoch)
        producer.timestamp_ms = batch.max_timestamp_ms
        if marker is not EMPTIED_MARKER:
            producer.coordinator_epoch = marker.coordinator_epoch
        first_offset, producer.transaction_first_offset = producer.transaction_first_offset, _NONE
        if first_offset == _NONE:
            return None
        self._open.pop(first_offset, None)
        self._completed[first_offset] = batch.base_offset
        if marker.type is not ControlType.ABORT:
            return None
        return AbortedTransaction(
            producer_id=batch.producer_id,
            first_offset=first_offset,
            last_offset=batch.base_offset,
            last_stable_offset=next(iter(self._open), batch.base_offset + 1),
        )

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction starts that is open, or whose end readers cannot see yet."""
        return min((*self._completed, *self._open), default=None)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Readers see everything below this offset: transactions that end there are stable."""
        if self._completed:
            self._completed = {first: last for first, last in self._completed.items() if last >= high_watermark}

    def last_stable_offset(self, high_watermark: int, log_start_offset: int = 0) -> int:
        """Up to where readers of committed data may read."""
        if not self._open and not self._completed:
            return high_watermark
        self.advance_high_watermark(high_watermark)
        first = self.first_unstable_offset
        return high_watermark if first is None else min(max(first, log_start_offset), high_watermark)

    # Keeping and losing

    def advance_log_start(self, log_start_offset: int) -> None:
        """What lies below is deleted. An open transaction stays open although its first records are gone."""
        self.advance_high_watermark(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def expire(self, now_ms: int) -> int:
        """Forget the producers that have not written for too long, by the time of their records. Returns how many."""
        gone = [producer_id for producer_id, known in self._producers.items() if self._is_expired(known, now_ms)]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def _is_expired(self, producer: _Producer, now_ms: int) -> bool:
        return producer.transaction_first_offset == _NONE and now_ms - producer.timestamp_ms >= self.expiration_ms

    def clear(self, end_offset: int) -> None:
        """Start again at this offset, knowing nobody."""
        self.end_offset = end_offset
        self._producers.clear()
        self._open.clear()
        self._completed.clear()

    def entries(self) -> list[ProducerEntry]:
        """What a snapshot keeps: of each producer, the last batch only."""
        return [_entry(producer_id, known) for producer_id, known in self._producers.items()]

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """What a snapshot keeps of one producer; None if nothing is known of it."""
        known = self._producers.get(producer_id)
        return None if known is None else _entry(producer_id, known)

    def snapshot(self) -> bytes:
        """The `.snapshot` file of `end_offset`."""
        return encode_producer_snapshot(self.entries())

    @classmethod
    def from_snapshot(
        cls, data: Bytes, end_offset: int, *, now_ms: int, expiration_ms: int = DEFAULT_EXPIRATION_MS
    ) -> ProducerState:
        """The state that a snapshot file holds, without the producers that have expired. `CorruptRecord` if damaged."""
        state = cls(end_offset=end_offset, expiration_ms=expiration_ms)
        for entry in sorted(decode_producer_snapshot(data), key=lambda entry: entry.transaction_first_offset):
            producer = _Producer(entry.producer_epoch)
            producer.timestamp_ms = entry.timestamp_ms
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.transaction_first_offset = max(entry.transaction_first_offset, _NONE)
            if entry.last_offset >= 0:
                producer.batches.append(
                    WrittenBatch(
                        entry.first_sequence,
                        entry.last_sequence,
                        entry.last_offset - entry.offset_delta,
                        entry.last_offset,
                        entry.timestamp_ms,
                    )
                )
            if state._is_expired(producer, now_ms):
                continue
            state._producers[entry.producer_id] = producer
            if producer.transaction_first_offset != _NONE:
                state._open[producer.transaction_first_offset] = entry.producer_id
        return state


def _entry(producer_id: int, known: _Producer) -> ProducerEntry:
    return ProducerEntry(
        producer_id=producer_id,
        producer_epoch=known.epoch,
        last_sequence=known.last_sequence,
        last_offset=known.batches[-1].last_offset if known.batches else _NONE,
        offset_delta=known.batches[-1].last_offset - known.batches[-1].base_offset if known.batches else 0,
        timestamp_ms=known.timestamp_ms,
        coordinator_epoch=known.coordinator_epoch,
        transaction_first_offset=known.transaction_first_offset,
    )


def _find_repeated(producer: _Producer, batch: ProducerBatch) -> WrittenBatch | None:
    if batch.producer_epoch == producer.epoch:
        for written in producer.batches:
            if written.base_sequence == batch.base_sequence and written.last_sequence == batch.last_sequence:
                return written
    return None


def _check_sequence(producer: _Producer, batch: ProducerBatch, transaction_version: int) -> None:
    sequence = batch.base_sequence
    if batch.producer_epoch != producer.epoch:
        if sequence != 0:
            raise _out_of_order(batch, f"0, the first of epoch {batch.producer_epoch}")
    elif transaction_version >= EPOCH_BUMPING and not producer.batches and sequence != 0:
        raise _out_of_order(batch, "0, the first of the producer")
    elif sequence != (producer.last_sequence + 1) % _SEQUENCES:
        raise _out_of_order(batch, str((producer.last_sequence + 1) % _SEQUENCES))


def _check_marker(
    producer: _Producer, batch: ProducerBatch, marker: EndTransactionMarker, transaction_version: int
) -> None:
    epoch, known = batch.producer_epoch, producer.epoch
    if transaction_version >= EPOCH_BUMPING:
        # The marker of such a transaction has the next epoch already. A coordinator that lost the answer sends it
        # again, and after the last epoch there is no next one.
        is_retry = epoch == known and (producer.transaction_first_offset == _NONE or epoch == _LAST_EPOCH)
        if epoch <= known and not is_retry:
            raise _fenced(batch, f"over {known}")
    elif epoch < known:
        raise _fenced(batch, f"at least {known}")
    if marker.coordinator_epoch < producer.coordinator_epoch:
        raise CoordinatorFenced(
            f"the coordinator of producer {batch.producer_id} has epoch {producer.coordinator_epoch} by now:"
            f" a marker of epoch {marker.coordinator_epoch} comes too late"
        )


def _fenced(batch: ProducerBatch, expected: str) -> ProducerFenced:
    return ProducerFenced(
        f"producer {batch.producer_id} has been replaced: expected an epoch {expected}, found {batch.producer_epoch}"
    )


def _out_of_order(batch: ProducerBatch, expected: str) -> OutOfOrderSequence:
    return OutOfOrderSequence(
        f"a batch of producer {batch.producer_id} is missing or out of order:"
        f" expected sequence number {expected}, found {batch.base_sequence}"
    )
