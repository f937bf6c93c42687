"""The transaction coordinator: what handlers call, and the states of all transactional producers.

`states` is what the log says, with one exception: the partitions of a prepared transaction that have their marker are
removed one by one. A state is put there after it is written, in the same turn of the loop, so that no request meets one
that is half in effect.

When the broker starts, `load` reads the states. Prepared transactions are completed; open ones stay open, until their
producer continues or they time out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.producer_ids import ProducerIds
from duralog.broker.topics.topics import Topics, TopicView
from duralog.broker.transactions import decisions
from duralog.broker.transactions.decisions import Decision, Producer
from duralog.broker.transactions.markers import CompleteOffsets, Markers, StateChanges
from duralog.broker.transactions.state import Transaction
from duralog.broker.transactions.timeouts import Timeouts
from duralog.broker.transactions.transaction_log import TransactionLog
from duralog.broker.wire.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from duralog.format.topic_partition import TopicPartition
from duralog.storage.append.producer_entry import EPOCH_BUMPING

_FEATURE = "transaction.version"
_ADDING_PRODUCE = 12
_ABORTABLE_PRODUCE = 11
_ADDING_OFFSET_COMMIT = 5
_ABORTABLE_OFFSET_COMMIT = 4
"""The first versions of Produce and of TxnOffsetCommit that add their partition to the transaction, and that know an
error after which a transaction can be aborted."""

_UNREACHABLE = frozenset({COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})


class ProducerIdentity(NamedTuple):
    """The result for a producer: an error, or its new id and epoch."""

    error_code: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionCoordinator:
    def __init__(
        self,
        runtime: Runtime,
        topics: Topics,
        partitions: Partitions,
        producer_ids: ProducerIds,
        complete_offsets: CompleteOffsets,
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        self._producer_ids = producer_ids
        self.log = TransactionLog(runtime, topics, partitions)
        self.states: dict[str, Transaction] = {}
        """By transactional id."""
        self.ongoing: dict[str, Transaction] = {}
        """The open ones of `states`."""
        changes = StateChanges(self._put, self._write, complete_offsets)
        self._markers = Markers(runtime, partitions, self.log, changes)
        self._timeouts = Timeouts(runtime, self.log, self.states, self.ongoing, self.abort_in_place)

    def load(self) -> None:
        for transactional_id, transaction in self.log.load().items():
            self._put(transactional_id, transaction)
            if transaction.is_prepared:
                self._markers.end(transactional_id, transaction, is_recovered=True)
        self._topics.on_deleted(self._forget_all_of)
        self._timeouts.start()

    def _forget_all_of(self, topic: TopicView) -> None:
        """The topic of the states was deleted: the next one starts empty."""
        if topic.name == TRANSACTION_STATE:
            self.states.clear()
            self.ongoing.clear()
            self._markers.forget_states()
            self.log.unreadable.clear()
            self.log.skipped.clear()

    @property
    def server_version(self) -> int:
        """The transaction version of this cluster."""
        return self._runtime.store.features.get(_FEATURE, 0)

    # Requests of producers

    def init_producer(self, transactional_id: str, timeout_ms: int, expected: Producer | None) -> ProducerIdentity:
        """A producer starts: it gets an epoch that no other instance of it has."""
        if not transactional_id:
            return ProducerIdentity(INVALID_REQUEST)
        if not 0 < timeout_ms <= self._runtime.config.transaction_max_timeout_ms:
            return ProducerIdentity(INVALID_TRANSACTION_TIMEOUT)
        if self.log.partition_for(transactional_id) is None:
            return ProducerIdentity(NOT_COORDINATOR)
        error, new = self._settle(
            transactional_id,
            decisions.init_producer(
                self.states.get(transactional_id),
                expected,
                timeout_ms=timeout_ms,
                server_version=self.server_version,
                new_id=self._producer_ids.take,
                now_ms=self._runtime.clock(),
            ),
        )
        if new is None:
            return ProducerIdentity(error)
        if new.is_prepared:
            return ProducerIdentity(CONCURRENT_TRANSACTIONS)
        return ProducerIdentity(NONE, new.producer_id, new.producer_epoch)

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition], *, client_version: int
    ) -> int:
        """Add partitions to the transaction; it begins with the first ones."""
        if not transactional_id:
            return INVALID_REQUEST
        if self.log.partition_for(transactional_id) is None:
            return NOT_COORDINATOR
        decision = decisions.add_partitions(
            self.states.get(transactional_id),
            producer,
            partitions,
            client_version=client_version,
            now_ms=self._runtime.clock(),
        )
        return self._settle(transactional_id, decision)[0]

    def verify_partition(self, transactional_id: str, producer: Producer, partition: TopicPartition) -> int:
        """Whether the transaction has this partition."""
        if not transactional_id:
            return INVALID_REQUEST
        if self.log.partition_for(transactional_id) is None:
            return NOT_COORDINATOR
        return decisions.verify_partition(self.states.get(transactional_id), producer, partition)

    def end_transaction(
        self, transactional_id: str, producer: Producer, *, commit: bool, client_version: int
    ) -> ProducerIdentity:
        if not transactional_id:
            return ProducerIdentity(INVALID_REQUEST)
        if self.log.partition_for(transactional_id) is None:
            return ProducerIdentity(NOT_COORDINATOR)
        known = self.states.get(transactional_id)
        error, new = self._settle(
            transactional_id,
            decisions.end(
                known,
                producer,
                commit=commit,
                client_version=client_version,
                new_id=self._producer_ids.take,
                now_ms=self._runtime.clock(),
            ),
        )
        if error != NONE or client_version < EPOCH_BUMPING or known is None:
            return ProducerIdentity(error)
        if new is None:
            return ProducerIdentity(NONE, known.producer_id, known.producer_epoch)
        ended = new.completed(new.updated_ms)
        return ProducerIdentity(NONE, ended.producer_id, ended.producer_epoch)

    def abort_in_place(self, transactional_id: str) -> int:
        """Abort the open transaction of a producer that took too long."""
        known = self.ongoing[transactional_id]
        decision = decisions.abort_in_place(
            known,
            server_version=self.server_version,
            new_id=self._producer_ids.take,
            now_ms=self._runtime.clock(),
        )
        return self._settle(transactional_id, decision)[0]

    # Checks of appends

    def check_produce(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        partitions: Sequence[tuple[str, int]],
        version: int,
    ) -> dict[tuple[str, int], int]:
        """The partitions to which a Produce request's transactional batches must not be appended, and the error codes.

        The append must follow in the same turn of the loop, or be in the partition's queue by then: nothing can end the
        transaction in between, and its markers are queued after the appends.
        """
        known = self.ongoing.get(transactional_id or "")
        if (
            known is not None
            and known.producer_id == producer_id
            and known.producer_epoch == epoch
            and known.partitions.issuperset(partitions)
        ):
            return {}
        refused: dict[tuple[str, int], int] = {}
        for partition, error in self._enlist(
            transactional_id,
            Producer(producer_id, epoch),
            [TopicPartition(*partition) for partition in partitions],
            adds=version >= _ADDING_PRODUCE,
            knows_abortable=version >= _ABORTABLE_PRODUCE,
        ):
            # Clients that do not know these errors retry on NOT_ENOUGH_REPLICAS.
            if error in _UNREACHABLE or (error == CONCURRENT_TRANSACTIONS and version < _ADDING_PRODUCE):
                refused[partition] = NOT_ENOUGH_REPLICAS
            elif error != NONE:
                refused[partition] = error
        return refused

    def check_offset_commit(
        self, transactional_id: str, producer_id: int, epoch: int, offsets_partition: int, version: int
    ) -> int:
        """Whether offsets may be committed within the transaction, to this partition of `__consumer_offsets`."""
        [(_, error)] = self._enlist(
            transactional_id,
            Producer(producer_id, epoch),
            [TopicPartition(CONSUMER_OFFSETS, offsets_partition)],
            adds=version >= _ADDING_OFFSET_COMMIT,
            knows_abortable=version >= _ABORTABLE_OFFSET_COMMIT,
        )
        return error

    def _enlist(
        self,
        transactional_id: str | None,
        producer: Producer,
        partitions: list[TopicPartition],
        *,
        adds: bool,
        knows_abortable: bool,
    ) -> list[tuple[TopicPartition, int]]:
        """Add partitions to a transaction, or check that they were added, depending on the client's version."""
        if transactional_id is None:
            return [(partition, NONE) for partition in partitions]
        if adds:
            error = self.add_partitions(transactional_id, producer, partitions, client_version=EPOCH_BUMPING)
            found = [(partition, error) for partition in partitions]
        elif self._runtime.config.transaction_partition_verification_enable:
            found = [
                (partition, self.verify_partition(transactional_id, producer, partition)) for partition in partitions
            ]
        else:
            found = [(partition, NONE) for partition in partitions]
        client_codes = {PRODUCER_FENCED: INVALID_PRODUCER_EPOCH}
        if not knows_abortable:
            client_codes[TRANSACTION_ABORTABLE] = INVALID_TXN_STATE
        return [(partition, client_codes.get(error, error)) for partition, error in found]

    # Changes of states

    def _settle(self, transactional_id: str, decision: Decision) -> tuple[int, Transaction | None]:
        """Write a decision and apply it. Returns the error code, and the new state if there is one."""
        if not isinstance(decision, Transaction):
            return decision, None
        error = self._write(transactional_id, decision)
        if error != NONE:
            return error, None
        self._put(transactional_id, decision)
        if decision.is_prepared:
            self._markers.end(transactional_id, decision)
        return NONE, decision

    def _write(self, transactional_id: str, transaction: Transaction) -> int:
        return self.log.write(transactional_id, transaction, self.server_version)

    def _put(self, transactional_id: str, transaction: Transaction) -> None:
        self.states[transactional_id] = transaction
        if transaction.status is TransactionStatus.ONGOING:
            self.ongoing[transactional_id] = transaction
        else:
            self.ongoing.pop(transactional_id, None)
