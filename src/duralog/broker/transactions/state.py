"""The state of a transactional producer: its id and epoch, and its transaction.

`Transaction` is a value. A change makes a new one, which is written to the log and then replaces the old one: memory
always agrees with the log.

Producers with transaction version 2 get a new epoch at the end of each transaction, so that a late request cannot get
into the next one. When the epochs are used up, the producer gets a new id instead: from the preparation on, the next id
is kept with the old one, which the markers still carry.

The last epoch, 32767, is never given to a producer: it fences one with the last but one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from duralog.format.topic_partition import TopicPartition
from duralog.storage.append.producer_entry import EPOCH_BUMPING

LAST_EPOCH = 2**15 - 1
NO_TIME = -1
NO_TIMEOUT_MS = 2**31 - 1
"""Of a transaction with an external decision (two-phase commit): it never times out."""

STATUS_NAMES = {
    TransactionStatus.EMPTY: "Empty",
    TransactionStatus.ONGOING: "Ongoing",
    TransactionStatus.PREPARE_COMMIT: "PrepareCommit",
    TransactionStatus.PREPARE_ABORT: "PrepareAbort",
    TransactionStatus.COMPLETE_COMMIT: "CompleteCommit",
    TransactionStatus.COMPLETE_ABORT: "CompleteAbort",
    TransactionStatus.DEAD: "Dead",
    TransactionStatus.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""The names that clients see. The last two are never seen: the id is removed, or aborted, in the same step."""

PREPARED = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
"""The end is decided, and markers are still to be written: all requests have to wait for that."""


def is_exhausted(epoch: int) -> bool:
    """Whether no producer can get a later epoch of the same id."""
    return epoch >= LAST_EPOCH - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The id before the last change of state: the same one, unless the epochs had ended."""
    next_producer_id: int = NO_PRODUCER_ID
    """While prepared: the id that the producer has from the end of the transaction on, if it gets a new one."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    """-1 for a producer that is just being created."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before, if the producer itself asked for the next one: it may ask again. The log does not keep it."""
    timeout_ms: int
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """All that the transaction may have records in; while prepared, those of them whose marker is not known written."""
    started_ms: int = NO_TIME
    updated_ms: int
    client_version: int = 0
    """The transaction version by which the client, or the coordinator in its place, made the last change."""

    @property
    def is_prepared(self) -> bool:
        return self.status in PREPARED

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= EPOCH_BUMPING

    def is_overdue(self, now_ms: int) -> bool:
        return (
            self.status is TransactionStatus.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.started_ms + self.timeout_ms < now_ms
        )

    # Changes

    def with_next_epoch(self, expected_epoch: int | None, *, timeout_ms: int, now_ms: int) -> Transaction | None:
        """For a producer that starts, or starts again knowing `expected_epoch`; None if another one has taken over."""
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch == NO_PRODUCER_EPOCH or expected_epoch == self.producer_epoch:
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                # A retry: the answer was lost.
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                return None
        return self._empty(self.producer_id, epoch, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms)

    def with_new_id(self, producer_id: int, *, keep_last_epoch: bool, timeout_ms: int, now_ms: int) -> Transaction:
        last_epoch = self.producer_epoch if keep_last_epoch else NO_PRODUCER_EPOCH
        return self._empty(producer_id, 0, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms)

    def _empty(self, producer_id: int, epoch: int, last_epoch: int, *, timeout_ms: int, now_ms: int) -> Transaction:
        return replace(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            status=TransactionStatus.EMPTY,
            partitions=frozenset(),
            started_ms=NO_TIME,
            updated_ms=now_ms,
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], *, client_version: int, now_ms: int) -> Transaction:
        is_first = self.status is not TransactionStatus.ONGOING
        return replace(
            self,
            previous_producer_id=self.producer_id,
            status=TransactionStatus.ONGOING,
            partitions=self.partitions.union(partitions),
            started_ms=now_ms if is_first else self.started_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self) -> Transaction:
        """With an epoch that its producer does not have, to be aborted by the rules of before version 2."""
        epoch = min(self.producer_epoch + 1, LAST_EPOCH)
        return replace(self, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)

    def prepared(
        self, *, commit: bool, client_version: int, next_producer_id: int = NO_PRODUCER_ID, now_ms: int
    ) -> Transaction:
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMPING:
            epoch, last_epoch = min(epoch + 1, LAST_EPOCH), epoch
        return replace(
            self,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            status=TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT,
            # A producer of version 2 may abort what it never began.
            started_ms=self.started_ms if self.status is TransactionStatus.ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        has_new_id = self.bumps_epoch and self.next_producer_id != NO_PRODUCER_ID
        is_commit = self.status is TransactionStatus.PREPARE_COMMIT
        return replace(
            self,
            producer_id=self.next_producer_id if has_new_id else self.producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=0 if has_new_id else self.producer_epoch,
            status=TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
        )
