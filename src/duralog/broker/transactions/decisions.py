"""Which request is allowed in which state of a transaction, in Kafka's order of checks.

A decision is an error code, which changes nothing (`NONE` if there is nothing to do), or the state to write. While a
transaction is prepared, it must not be changed: the client gets CONCURRENT_TRANSACTIONS and retries. Version 2 checks
that first, since the id of the producer may just be changing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from duralog.broker.transactions.state import LAST_EPOCH, Transaction, is_exhausted
from duralog.broker.wire.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    UNKNOWN_SERVER_ERROR,
)
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from duralog.format.topic_partition import TopicPartition
from duralog.storage.append.producer_entry import EPOCH_BUMPING

Decision = int | Transaction
NewId = Callable[[], int | None]
"""Returns an unused producer id; None while there is none."""


class Producer(NamedTuple):
    """The identity that the client claims."""

    producer_id: int
    epoch: int


def init_producer(
    known: Transaction | None,
    expected: Producer | None,
    *,
    timeout_ms: int,
    server_version: int,
    new_id: NewId,
    now_ms: int,
) -> Decision:
    """A producer starts. One that continues after an error sends its id and epoch: `expected`.

    An open transaction is aborted first: then the state is a prepared one, and the producer has to retry.
    """
    if known is None:
        producer_id = new_id()
        if producer_id is None:
            return COORDINATOR_LOAD_IN_PROGRESS
        known = Transaction(producer_id=producer_id, timeout_ms=timeout_ms, updated_ms=now_ms)
    if known.is_prepared:
        return CONCURRENT_TRANSACTIONS
    if expected is not None and not _may_be(expected, known):
        return PRODUCER_FENCED
    if known.status is TransactionStatus.ONGOING:
        return abort_in_place(known, server_version=server_version, new_id=new_id, now_ms=now_ms)
    if not is_exhausted(known.producer_epoch):
        expected_epoch = None if expected is None else expected.epoch
        started = known.with_next_epoch(expected_epoch, timeout_ms=timeout_ms, now_ms=now_ms)
        return PRODUCER_FENCED if started is None else started
    if expected is not None and expected.epoch != known.producer_epoch:
        return UNKNOWN_SERVER_ERROR
    producer_id = new_id()
    if producer_id is None:
        return COORDINATOR_LOAD_IN_PROGRESS
    return known.with_new_id(producer_id, keep_last_epoch=expected is not None, timeout_ms=timeout_ms, now_ms=now_ms)


def _may_be(expected: Producer, known: Transaction) -> bool:
    """Whether this could be the current producer: its epoch is checked when it gets the next one."""
    return (
        known.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == known.producer_id
        or (expected.producer_id == known.previous_producer_id and is_exhausted(expected.epoch))
    )


def add_partitions(
    known: Transaction | None,
    producer: Producer,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> Decision:
    if known is None:
        return INVALID_PRODUCER_ID_MAPPING
    if known.is_prepared:
        return CONCURRENT_TRANSACTIONS
    if known.producer_id != producer.producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer.epoch:
        return PRODUCER_FENCED
    if known.status is TransactionStatus.ONGOING and known.partitions.issuperset(partitions):
        return NONE
    return known.with_partitions(partitions, client_version=client_version, now_ms=now_ms)


def verify_partition(known: Transaction | None, producer: Producer, partition: TopicPartition) -> int:
    """Whether the producer has added this partition to its transaction."""
    if known is None or known.producer_id != producer.producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer.epoch:
        return PRODUCER_FENCED
    if known.is_prepared:
        return CONCURRENT_TRANSACTIONS
    return NONE if partition in known.partitions else TRANSACTION_ABORTABLE


def end(
    known: Transaction | None,
    producer: Producer,
    *,
    commit: bool,
    client_version: int,
    new_id: NewId,
    now_ms: int,
) -> Decision:
    """The producer ends its transaction. `NONE`: it did so before, and the answer was lost."""
    if known is None:
        return INVALID_PRODUCER_ID_MAPPING
    if client_version < EPOCH_BUMPING:
        return _end_in_epoch(known, producer, commit=commit, now_ms=now_ms)
    return _end_with_epoch(known, producer, commit=commit, client_version=client_version, new_id=new_id, now_ms=now_ms)


def _end_in_epoch(known: Transaction, producer: Producer, *, commit: bool, now_ms: int) -> Decision:
    """Before version 2: the producer keeps its epoch, so that a retry looks like a new request."""
    if known.producer_id != producer.producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer.epoch:
        return PRODUCER_FENCED
    if known.is_prepared:
        return CONCURRENT_TRANSACTIONS
    if known.status is TransactionStatus.ONGOING:
        return known.prepared(commit=commit, client_version=0, now_ms=now_ms)
    ended_so = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
    return NONE if known.status is ended_so else INVALID_TXN_STATE


def _end_with_epoch(
    known: Transaction, producer: Producer, *, commit: bool, client_version: int, new_id: NewId, now_ms: int
) -> Decision:
    """From version 2 on: the epoch distinguishes a retry from the next request.

    An abort is always allowed if no transaction is open: the producer may not know whether its last request arrived.
    """
    if known.is_prepared:
        return CONCURRENT_TRANSACTIONS
    is_complete = known.status in (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
    has_new_id = (
        known.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_EPOCH - 1
        and known.producer_epoch == 0
    )
    is_repeated = is_complete and (known.producer_epoch == producer.epoch + 1 or has_new_id)
    if known.producer_id != producer.producer_id and not has_new_id:
        return INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer.epoch and not is_repeated:
        return PRODUCER_FENCED
    if is_repeated:
        was_commit = known.status is TransactionStatus.COMPLETE_COMMIT
        return NONE if commit is was_commit else INVALID_TXN_STATE
    if commit and known.status is not TransactionStatus.ONGOING:
        return INVALID_TXN_STATE
    return _prepared_with_epoch(known, commit=commit, client_version=client_version, new_id=new_id, now_ms=now_ms)


def abort_in_place(known: Transaction, *, server_version: int, new_id: NewId, now_ms: int) -> Decision:
    """Abort the open transaction of a producer, whose epoch is fenced from then on."""
    if server_version >= EPOCH_BUMPING:
        return _prepared_with_epoch(known, commit=False, client_version=server_version, new_id=new_id, now_ms=now_ms)
    return known.fenced().prepared(commit=False, client_version=0, now_ms=now_ms)


def _prepared_with_epoch(
    known: Transaction, *, commit: bool, client_version: int, new_id: NewId, now_ms: int
) -> Decision:
    next_producer_id = NO_PRODUCER_ID
    if is_exhausted(known.producer_epoch):
        taken = new_id()
        if taken is None:
            return COORDINATOR_LOAD_IN_PROGRESS
        next_producer_id = taken
    return known.prepared(
        commit=commit, client_version=client_version, next_producer_id=next_producer_id, now_ms=now_ms
    )
