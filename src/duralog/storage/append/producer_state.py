"""The state of a partition's producers: epochs, sequence numbers, open transactions. Kafka's `ProducerStateManager`.

It prevents that a retried batch is stored twice, that a fenced producer writes on, and that readers of committed data
see an open transaction. It does no I/O: batches come in, verdicts and index entries go out, and a snapshot is bytes.

An append calls `check` before the batch is written and `update` after it, so that a failed write changes nothing. A log
that is loaded goes through `replay`, which checks nothing: what is in a log was accepted once, and loading must not
fail. So a non-transactional batch inside an open transaction, at which Kafka's loading fails, counts as data that
leaves the transaction open.

What must always be true: all batches below `end_offset` are included; every open transaction belongs to a known
producer; the open transactions are in the order of their first offsets; the producers are in the order of their last
writes.

An entry is replaced, never changed. So a copy of the mapping (`frozen`) is cheap, and another thread can write, list or
search it while appends continue. Everything else requires the lock of the log.

Any client can make up producer ids, and each is remembered for a day. So a partition keeps at most `MOST_PRODUCERS`.
Beyond that, the producers that have been idle for longest are evicted as if they had expired, but not those with an
open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from numpy.typing import NDArray

from duralog.errors import InvalidTransactionState
from duralog.format.control_records import ControlType, EndTransactionMarker
from duralog.format.index_entries import AbortedTransaction
from duralog.format.producer_snapshot import ProducerEntry, decode_producer_snapshot, encode_producer_fields
from duralog.format.varint import Bytes
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.producer_batch import (
    EMPTIED_MARKER,
    REMEMBERED_BATCHES,
    ProducerBatch,
    ReadBytes,
    producer_batches,
)
from duralog.storage.append.producer_entry import (
    EPOCH_BUMPING,
    NONE,
    ProducerStateEntry,
    WrittenBatch,
    as_producer,
    as_written,
    check_marker,
    check_sequence,
    fenced,
    find_repeated,
    is_expired,
    out_of_order,
    snapshot_entry,
    snapshot_fields,
)

DEFAULT_EXPIRATION_MS = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`."""

MOST_PRODUCERS = 200_000
"""Per partition. Two new producers per second reach fewer in a day. At a hundred per second, the evicted ones have been
idle for half an hour, and no client retries a batch for that long."""
_FORGOTTEN_SHARE = 20
"""One part in this many is evicted at once. One by one, each search for the first would take longer."""


class FrozenProducers(NamedTuple):
    """The producers at one offset. They do not change: any thread may use them."""

    end_offset: int
    producers: dict[int, ProducerStateEntry]

    def snapshot(self) -> bytes:
        """The `.snapshot` file of `end_offset`."""
        return encode_producer_fields([snapshot_fields(*known) for known in self.producers.items()])

    def entries(self) -> list[ProducerEntry]:
        """What a snapshot keeps: only the last batch of each producer."""
        return [snapshot_entry(producer_id, known) for producer_id, known in self.producers.items()]

    def expired(self, now_ms: int, expiration_ms: int) -> dict[int, ProducerStateEntry]:
        """The producers that have been idle for too long, by the timestamps of their records."""
        return {
            producer_id: known
            for producer_id, known in self.producers.items()
            if is_expired(known, now_ms, expiration_ms)
        }


class ProducerState:
    def __init__(
        self,
        *,
        end_offset: int = 0,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        most_producers: int = MOST_PRODUCERS,
    ) -> None:
        self.end_offset = end_offset
        """All batches below it are included."""
        self.expiration_ms = expiration_ms
        self.evicted = 0
        """The number of producers that were evicted because there were too many."""
        self.most_producers = most_producers
        self._producers: dict[int, ProducerStateEntry] = {}
        """In the order of their last writes."""
        self._open: dict[int, int] = {}
        """Open transactions: first offset to producer id, the smallest offset first."""
        self._completed: dict[int, int] = {}
        """Ended transactions: first offset to the marker's offset, while that is not below the high watermark."""

    def __len__(self) -> int:
        return len(self._producers)

    # Appending

    def check(
        self, batch: ProducerBatch, *, origin: AppendOrigin = AppendOrigin.CLIENT, transaction_version: int = 0
    ) -> WrittenBatch | None:
        """Raise if the batch must not be written. Returns None, or the batch in the log of which it is a duplicate.

        `transaction_version` is that of the transaction, for markers and for its first batch.
        """
        producer = self._producers.get(batch.producer_id)
        if batch.marker is not None:
            if producer is not None:
                check_marker(producer, batch, batch.marker, transaction_version)
            return None
        if producer is None:
            if origin is AppendOrigin.CLIENT and transaction_version >= EPOCH_BUMPING and batch.base_sequence != 0:
                raise out_of_order(batch, "0, since the producer is unknown")
            return None
        if origin is AppendOrigin.CLIENT:
            repeated = find_repeated(producer, batch)
            if repeated is not None:
                return repeated
        if batch.producer_epoch < producer.epoch:
            raise fenced(batch, f"at least {producer.epoch}")
        if origin is AppendOrigin.CLIENT:
            check_sequence(producer, batch, transaction_version)
        if producer.transaction_first_offset != NONE and not batch.is_transactional:
            raise InvalidTransactionState(
                f"producer {batch.producer_id} has a transaction open since offset {producer.transaction_first_offset}:"
                " it cannot write outside of it"
            )
        return None

    def aborts(self, batch: ProducerBatch) -> bool:
        """Whether this batch is a marker that aborts a transaction that has data here."""
        if batch.marker is None or batch.marker.type is not ControlType.ABORT:
            return False
        known = self._producers.get(batch.producer_id)
        return known is not None and known.transaction_first_offset != NONE

    def update(self, batches: Iterable[ProducerBatch], end_offset: int) -> list[AbortedTransaction]:
        """Add batches that were written, up to `end_offset`. Returns the new entries of the transaction index."""
        aborted = []
        for batch in batches:
            if batch.marker is None:
                self._take_data(batch)
            elif (entry := self._take_marker(batch, batch.marker)) is not None:
                aborted.append(entry)
        self.end_offset = max(self.end_offset, end_offset)
        if len(self._producers) - len(self._open) > self.most_producers:
            self._evict_surplus()
        return aborted

    def replay(self, rows: NDArray[Any], read: ReadBytes) -> list[AbortedTransaction]:
        """Add the next batches of the log (`BATCH_DTYPE`).

        `read(position, size)` returns bytes by position, and is called for markers only.
        """
        if not len(rows):
            return []
        return self.update(producer_batches(rows, read, only_lasting=True), int(rows["last_offset"][-1]) + 1)

    def _take_data(self, batch: ProducerBatch) -> None:
        producer_id, epoch, base_sequence, base_offset, last_offset, timestamp_ms, is_transactional, _, _ = batch
        known = self._producers.pop(producer_id, None)
        written = as_written((base_sequence, batch.last_sequence, base_offset, last_offset, timestamp_ms))
        if known is None:
            batches: tuple[WrittenBatch, ...] = (written,)
            coordinator_epoch = first_offset = NONE
        else:
            before = known.batches if known.epoch == epoch else ()
            batches = (*before[1 - REMEMBERED_BATCHES :], written)
            coordinator_epoch, first_offset = known.coordinator_epoch, known.transaction_first_offset
        if is_transactional and first_offset == NONE:
            first_offset = base_offset
            self._open[base_offset] = producer_id
        self._producers[producer_id] = as_producer((epoch, batches, timestamp_ms, coordinator_epoch, first_offset))

    def _take_marker(self, batch: ProducerBatch, marker: EndTransactionMarker) -> AbortedTransaction | None:
        """The entry for the transaction index, if the marker aborts a transaction that has data here."""
        known = self._producers.pop(batch.producer_id, None) or ProducerStateEntry(batch.producer_epoch)
        is_emptied = marker is EMPTIED_MARKER
        self._producers[batch.producer_id] = ProducerStateEntry(
            batch.producer_epoch,
            known.batches if known.epoch == batch.producer_epoch else (),
            batch.max_timestamp_ms,
            known.coordinator_epoch if is_emptied else marker.coordinator_epoch,
        )
        first_offset = known.transaction_first_offset
        if first_offset == NONE:
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
        """The first offset of the oldest transaction that is open, or whose end readers cannot see yet."""
        return min((*self._completed, *islice(self._open, 1)), default=None)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Readers see everything below this offset: transactions that ended below it are stable."""
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
        """Records below were deleted. An open transaction stays open although its first records are gone."""
        self.advance_high_watermark(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def forget(self, producers: dict[int, ProducerStateEntry]) -> int:
        """Remove these producers, except those that have written since. Returns the number."""
        gone = [producer_id for producer_id, known in producers.items() if self._producers.get(producer_id) is known]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def _evict_surplus(self) -> None:
        """Evict producers that have been idle for longest, if there are too many. Open transactions do not count."""
        surplus = len(self._producers) - len(self._open) - self.most_producers
        if surplus > 0:
            idle = (item for item in self._producers.items() if item[1].transaction_first_offset == NONE)
            self.evicted += self.forget(dict(islice(idle, surplus + self.most_producers // _FORGOTTEN_SHARE)))

    def clear(self, end_offset: int) -> None:
        """Remove all producers, and start at this offset."""
        self.end_offset = end_offset
        self._producers.clear()
        self._open.clear()
        self._completed.clear()

    def frozen(self) -> FrozenProducers:
        """The producers as they are now."""
        return FrozenProducers(self.end_offset, self._producers.copy())

    def entries(self) -> list[ProducerEntry]:
        """What a snapshot keeps: only the last batch of each producer."""
        return self.frozen().entries()

    def snapshot(self) -> bytes:
        """The `.snapshot` file of `end_offset`."""
        return self.frozen().snapshot()

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """What a snapshot keeps of one producer; None if nothing is known of it."""
        known = self._producers.get(producer_id)
        return None if known is None else snapshot_entry(producer_id, known)

    @classmethod
    def from_snapshot(
        cls,
        data: Bytes,
        end_offset: int,
        *,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        most_producers: int = MOST_PRODUCERS,
    ) -> ProducerState:
        """The state that a snapshot file holds, without the producers that have expired. `CorruptRecord` if damaged."""
        state = cls(end_offset=end_offset, expiration_ms=expiration_ms, most_producers=most_producers)
        open_offsets: list[tuple[int, int]] = []
        # A producer that has only ended a transaction has no offset in the file: it counts as recent.
        entries = decode_producer_snapshot(data)
        for entry in sorted(entries, key=lambda one: one.last_offset if one.last_offset >= 0 else end_offset):
            batches: tuple[WrittenBatch, ...] = ()
            if entry.last_offset >= 0:
                first_offset = entry.last_offset - entry.offset_delta
                batches = (
                    WrittenBatch(
                        entry.first_sequence, entry.last_sequence, first_offset, entry.last_offset, entry.timestamp_ms
                    ),
                )
            open_from = max(entry.transaction_first_offset, NONE)
            producer = ProducerStateEntry(
                entry.producer_epoch, batches, entry.timestamp_ms, entry.coordinator_epoch, open_from
            )
            if is_expired(producer, now_ms, expiration_ms):
                continue
            state._producers[entry.producer_id] = producer
            if open_from != NONE:
                open_offsets.append((open_from, entry.producer_id))
        state._open = dict(sorted(open_offsets))
        state._evict_surplus()
        return state
