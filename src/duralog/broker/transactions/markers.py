"""Ends transactions: a marker in each partition, then the state that says that the transaction is complete.

A prepared transaction always ends as it was decided: its state is in the log with all of its partitions, and a start
after a crash continues where this one stopped. A partition that shows that it has the marker gets no second one then.

If appends are queued for a partition, some of them may belong to the transaction: the marker is queued after them, or
they would stay open for ever.

A turn of the loop writes a bounded number of markers, so that the end of a transaction with thousands of partitions
does not delay other clients. A partition that cannot be written to is retried, and its transaction stays prepared until
then; a deleted one needs no marker.

If the topic of the states is deleted meanwhile, the markers are still written, so that readers do not wait for ever.
But there is no state to complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from duralog.broker.net.log_lines import error_text, logger
from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS
from duralog.broker.topics.partitions import Partitions
from duralog.broker.transactions.state import Transaction
from duralog.broker.transactions.transaction_log import TransactionLog
from duralog.broker.wire.error_codes import NONE
from duralog.errors import CoordinatorFenced, ProducerFenced, UnknownTopic
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.producer_snapshot import ProducerEntry
from duralog.format.topic_partition import TopicPartition

MARKERS_PER_TURN = 64
RETRY_MS = 1_000

_NOT_OPEN = -1
_FIRST_EPOCH = 0


CompleteOffsets = Callable[[int, int, bool], None]
"""A producer's marker is in this partition of `__consumer_offsets`, and whether it commits."""


class StateChanges(NamedTuple):
    """Applies the end of a transaction: its state, and the offsets that wait for it."""

    put: Callable[[str, Transaction], None]
    """Gets each new state, after it was written if it has to be."""
    write: Callable[[str, Transaction], int]
    complete_offsets: CompleteOffsets


class _Ending:
    """One transaction between prepared and complete."""

    __slots__ = ("failed", "is_forgotten", "is_recovered", "left", "queued", "transaction", "transactional_id")

    def __init__(self, transactional_id: str, transaction: Transaction, *, is_recovered: bool) -> None:
        self.transactional_id = transactional_id
        self.transaction = transaction
        self.left = sorted(transaction.partitions, reverse=True)
        """The partitions whose marker is to be written; the next one is the last."""
        self.queued: set[TopicPartition] = set()
        """Those whose marker is queued after appends."""
        self.failed: list[TopicPartition] = []
        self.is_recovered = is_recovered
        self.is_forgotten = False
        """Whether the log with its state was deleted."""

    def begin_again(self) -> None:
        """Retry the partitions that have failed."""
        self.left, self.failed = sorted(self.failed, reverse=True), []

    def __str__(self) -> str:
        return f"the {'commit' if self.is_commit else 'abort'} of {self.transactional_id}"

    @property
    def is_commit(self) -> bool:
        return self.transaction.status is TransactionStatus.PREPARE_COMMIT

    @property
    def is_through(self) -> bool:
        """Whether every partition has its marker, or has failed."""
        return not self.left and not self.queued

    @property
    def state(self) -> Transaction:
        """The transaction with those partitions alone that have no marker yet."""
        return replace(self.transaction, partitions=frozenset((*self.left, *self.queued, *self.failed)))


class Markers:
    """Ends transactions."""

    def __init__(self, runtime: Runtime, partitions: Partitions, log: TransactionLog, changes: StateChanges) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._log = log
        self._put, self._write, self._complete_offsets = changes
        self._endings: deque[_Ending] = deque()
        """Those whose markers are being written, one after the other."""
        self._under_way: set[_Ending] = set()
        """All that are not complete yet."""

    def end(self, transactional_id: str, transaction: Transaction, *, is_recovered: bool = False) -> None:
        """Complete a prepared transaction. A small one is complete when this returns, unless others are before it.

        `is_recovered`: an earlier run of the broker may have written some of the markers.
        """
        ending = _Ending(transactional_id, transaction, is_recovered=is_recovered)
        self._under_way.add(ending)
        self._begin(ending)

    def forget_states(self) -> None:
        """The topic of the states was deleted."""
        for ending in self._under_way:
            ending.is_forgotten = True

    def _begin(self, ending: _Ending) -> None:
        self._endings.append(ending)
        if len(self._endings) == 1:
            if ending.is_recovered:
                self._runtime.timers.after(0, self._run)
            else:
                self._run()

    def _run(self) -> None:
        room = MARKERS_PER_TURN
        while self._endings and room > 0:
            ending = self._endings[0]
            while ending.left and room > 0:
                self._end_in_turn(ending, ending.left.pop())
                room -= 1
            if not ending.left:
                self._endings.popleft()
            if ending.is_through:
                self._finish(ending)
                room -= 1
            else:
                self._show(ending)
        if self._endings:
            self._runtime.timers.after(0, self._run)

    def _end_in_turn(self, ending: _Ending, partition: TopicPartition) -> None:
        found = self._partitions.get(*partition)
        if found is None or not found.append_queue:
            self._end_in(ending, partition)
            return

        def is_its_turn() -> None:
            self._end_in(ending, partition)
            ending.queued.discard(partition)
            if ending.is_through:
                self._finish(ending)

        ending.queued.add(partition)
        found.after_appends(is_its_turn)

    def _end_in(self, ending: _Ending, partition: TopicPartition) -> None:
        try:
            self._write_marker(ending, partition)
            if partition.topic == CONSUMER_OFFSETS:
                producer_id = ending.transaction.producer_id
                self._complete_offsets(producer_id, partition.partition, ending.is_commit)
        except (UnknownTopic, ProducerFenced) as error:
            # Nothing of this transaction is open there: the partition is gone, or has seen a later epoch.
            logger.info("%s ends without %s: %s", ending, partition, error)
        except Exception as error:  # Whatever the error, the decision stands.
            reason = f"{ending} cannot end in {partition} yet: {error_text(error)}"
            self._runtime.log_lines.warn("marker not written", reason)
            ending.failed.append(partition)

    def _write_marker(self, ending: _Ending, partition: TopicPartition) -> None:
        transaction = ending.transaction
        if ending.is_recovered and self._has_marker(transaction, partition):
            return
        write = partial(
            self._partitions.end_transaction,
            *partition,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            commit=ending.is_commit,
            transaction_version=transaction.client_version,
        )
        try:
            epoch = _FIRST_EPOCH if ending.is_forgotten else self._log.coordinator_epoch(ending.transactional_id)
            write(coordinator_epoch=epoch)
        except CoordinatorFenced:
            # There is no other coordinator: the topic was deleted, and its leader epochs started again.
            entry = self._entry(transaction.producer_id, partition)
            if entry is None:
                raise
            write(coordinator_epoch=entry.coordinator_epoch)

    def _has_marker(self, transaction: Transaction, partition: TopicPartition) -> bool:
        """Whether the partition has seen the marker's epoch and has nothing open: one more would change nothing."""
        entry = self._entry(transaction.producer_id, partition)
        return (
            entry is not None
            and entry.producer_epoch >= transaction.producer_epoch
            and entry.transaction_first_offset == _NOT_OPEN
        )

    def _entry(self, producer_id: int, partition: TopicPartition) -> ProducerEntry | None:
        found = self._partitions.get(*partition)
        return None if found is None else found.log.producer(producer_id)

    def _finish(self, ending: _Ending) -> None:
        if not ending.failed and self._is_complete(ending):
            self._under_way.discard(ending)
            return
        self._show(ending)
        ending.begin_again()
        self._runtime.timers.after(RETRY_MS, lambda: self._begin(ending))

    def _is_complete(self, ending: _Ending) -> bool:
        """Complete the transaction, unless that cannot be written yet."""
        if ending.is_forgotten:
            return True
        completed = ending.transaction.completed(self._runtime.clock())
        if self._write(ending.transactional_id, completed) != NONE:
            return False
        self._put(ending.transactional_id, completed)
        return True

    def _show(self, ending: _Ending) -> None:
        if not ending.is_forgotten:
            self._put(ending.transactional_id, ending.state)
