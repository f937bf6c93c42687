"""Which request may do what to a transaction: Kafka's order of checks, state by state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duralog.broker.transactions import decisions
from duralog.broker.transactions.decisions import Decision, Producer
from duralog.broker.transactions.state import LAST_EPOCH, Transaction
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
from duralog.format.topic_partition import TopicPartition

EMPTY, ONGOING = TransactionStatus.EMPTY, TransactionStatus.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
NEW_ID = 77


def state(status: TransactionStatus = EMPTY, epoch: int = 5, **changes: Any) -> Transaction:
    is_open = status in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    known = Transaction(
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=1_000,
        status=status,
        partitions=frozenset({A}) if is_open else frozenset(),
        started_ms=100 if status is not EMPTY else -1,
        updated_ms=200,
    )
    return replace(known, **changes)


def init(known: Transaction | None, expected: Producer | None = None, **changes: Any) -> Decision:
    asked: dict[str, Any] = {"timeout_ms": 2_000, "server_version": 2, "new_id": lambda: NEW_ID, "now_ms": 300}
    return decisions.init_producer(known, expected, **{**asked, **changes})


def end(known: Transaction | None, producer: Producer, *, commit: bool, version: int, **changes: Any) -> Decision:
    asked: dict[str, Any] = {"new_id": lambda: NEW_ID, "now_ms": 300}
    return decisions.end(known, producer, commit=commit, client_version=version, **{**asked, **changes})


# A producer starts


def test_a_new_producer_gets_a_new_id_and_the_first_epoch() -> None:
    assert init(None) == Transaction(
        producer_id=NEW_ID,
        previous_producer_id=NEW_ID,
        producer_epoch=0,
        timeout_ms=2_000,
        status=EMPTY,
        updated_ms=300,
    )


def test_an_expired_producer_is_a_new_one() -> None:
    new = init(None, Producer(3, 9))
    assert isinstance(new, Transaction)
    assert (new.producer_id, new.producer_epoch, new.last_producer_epoch) == (NEW_ID, 0, -1)


def test_without_ids_a_new_producer_has_to_wait() -> None:
    assert init(None, new_id=lambda: None) == COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("status", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_next_instance_gets_the_next_epoch(status: TransactionStatus) -> None:
    new = init(state(status))
    assert new == state(
        EMPTY, 6, previous_producer_id=7, timeout_ms=2_000, updated_ms=300, last_producer_epoch=-1, started_ms=-1
    )


@pytest.mark.parametrize("status", [PREPARE_COMMIT, PREPARE_ABORT])
@pytest.mark.parametrize("expected", [None, Producer(1, 1)])
def test_while_a_transaction_ends_all_requests_wait(status: TransactionStatus, expected: Producer | None) -> None:
    assert init(state(status), expected) == CONCURRENT_TRANSACTIONS


def test_a_continuing_producer_gets_the_next_epoch_and_may_ask_twice() -> None:
    first = init(state(), Producer(7, 5))
    assert isinstance(first, Transaction)
    assert (first.producer_epoch, first.last_producer_epoch) == (6, 5)
    again = init(first, Producer(7, 5))
    assert isinstance(again, Transaction)
    assert (again.producer_epoch, again.last_producer_epoch) == (6, 5)


@pytest.mark.parametrize("expected", [Producer(8, 5), Producer(7, 4), Producer(7, 6)])
def test_a_producer_that_was_replaced_is_fenced(expected: Producer) -> None:
    assert init(state(), expected) == PRODUCER_FENCED


def test_a_new_instance_cuts_off_the_retry_of_the_one_before() -> None:
    first = init(state(), Producer(7, 5))
    assert isinstance(first, Transaction)
    replaced = init(first)
    assert isinstance(replaced, Transaction)
    assert init(replaced, Producer(7, 5)) == PRODUCER_FENCED


def test_an_open_transaction_is_aborted_first_with_an_unused_epoch() -> None:
    aborted = init(state(ONGOING))
    assert aborted == state(
        PREPARE_ABORT, 6, last_producer_epoch=5, previous_producer_id=7, updated_ms=300, client_version=2
    )
    before_version_2 = init(state(ONGOING), server_version=1)
    assert before_version_2 == state(PREPARE_ABORT, 6, previous_producer_id=7, updated_ms=300)


@pytest.mark.parametrize(("expected", "last_epoch"), [(None, -1), (Producer(7, LAST_EPOCH - 1), LAST_EPOCH - 1)])
def test_after_the_last_epoch_comes_a_new_id(expected: Producer | None, last_epoch: int) -> None:
    new = init(state(epoch=LAST_EPOCH - 1), expected)
    assert isinstance(new, Transaction)
    assert (new.producer_id, new.producer_epoch, new.last_producer_epoch) == (NEW_ID, 0, last_epoch)
    assert new.previous_producer_id == 7
    if expected is not None:
        # It has not got the answer, and asks again as who it was.
        again = init(new, expected)
        assert isinstance(again, Transaction)
        assert (again.producer_id, again.producer_epoch) == (NEW_ID, 0)


def test_at_the_last_epoch_a_wrong_one_is_an_error_of_its_own() -> None:
    assert init(state(epoch=LAST_EPOCH - 1), Producer(7, 3)) == UNKNOWN_SERVER_ERROR


# Partitions


def add(known: Transaction | None, producer: Producer, *partitions: TopicPartition) -> Decision:
    return decisions.add_partitions(known, producer, partitions, client_version=2, now_ms=300)


@pytest.mark.parametrize("status", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_first_partition_begins_a_transaction(status: TransactionStatus) -> None:
    assert add(state(status), Producer(7, 5), A) == state(
        ONGOING, started_ms=300, updated_ms=300, client_version=2, previous_producer_id=7
    )


def test_more_partitions_do_not_begin_it_again() -> None:
    more = add(state(ONGOING), Producer(7, 5), A, B)
    assert isinstance(more, Transaction)
    assert (more.partitions, more.started_ms, more.updated_ms) == (frozenset({A, B}), 100, 300)


def test_partitions_that_are_there_need_no_record() -> None:
    assert add(state(ONGOING), Producer(7, 5), A) == NONE


@pytest.mark.parametrize(
    ("known", "producer", "error"),
    [
        (None, Producer(7, 5), INVALID_PRODUCER_ID_MAPPING),
        (state(PREPARE_COMMIT), Producer(8, 9), CONCURRENT_TRANSACTIONS),
        (state(ONGOING), Producer(8, 5), INVALID_PRODUCER_ID_MAPPING),
        (state(ONGOING), Producer(7, 4), PRODUCER_FENCED),
        (state(ONGOING), Producer(7, 6), PRODUCER_FENCED),
    ],
)
def test_partitions_of_another_producer_are_not_added(known: Transaction, producer: Producer, error: int) -> None:
    assert add(known, producer, A) == error


@pytest.mark.parametrize(
    ("known", "producer", "error"),
    [
        (None, Producer(7, 5), INVALID_PRODUCER_ID_MAPPING),
        (state(PREPARE_ABORT), Producer(8, 5), INVALID_PRODUCER_ID_MAPPING),
        (state(PREPARE_ABORT), Producer(7, 4), PRODUCER_FENCED),
        (state(PREPARE_ABORT), Producer(7, 5), CONCURRENT_TRANSACTIONS),
        (state(ONGOING), Producer(7, 5), NONE),
        (state(ONGOING, partitions=frozenset({B})), Producer(7, 5), TRANSACTION_ABORTABLE),
        (state(EMPTY), Producer(7, 5), TRANSACTION_ABORTABLE),
    ],
)
def test_a_partition_is_verified(known: Transaction | None, producer: Producer, error: int) -> None:
    assert decisions.verify_partition(known, producer, A) == error


# The end


@pytest.mark.parametrize("version", [0, 2])
def test_the_transaction_of_an_unknown_id_cannot_be_ended(version: int) -> None:
    assert end(None, Producer(7, 5), commit=True, version=version) == INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("status", "producer", "commit", "error"),
    [
        (ONGOING, Producer(8, 5), True, INVALID_PRODUCER_ID_MAPPING),
        (ONGOING, Producer(7, 4), True, PRODUCER_FENCED),
        (ONGOING, Producer(7, 6), True, PRODUCER_FENCED),
        (PREPARE_COMMIT, Producer(8, 5), True, INVALID_PRODUCER_ID_MAPPING),
        (PREPARE_COMMIT, Producer(7, 4), True, PRODUCER_FENCED),
        (PREPARE_COMMIT, Producer(7, 5), True, CONCURRENT_TRANSACTIONS),
        (PREPARE_ABORT, Producer(7, 5), False, CONCURRENT_TRANSACTIONS),
        (COMPLETE_COMMIT, Producer(7, 5), True, NONE),
        (COMPLETE_COMMIT, Producer(7, 5), False, INVALID_TXN_STATE),
        (COMPLETE_ABORT, Producer(7, 5), False, NONE),
        (COMPLETE_ABORT, Producer(7, 5), True, INVALID_TXN_STATE),
        (EMPTY, Producer(7, 5), True, INVALID_TXN_STATE),
        (EMPTY, Producer(7, 5), False, INVALID_TXN_STATE),
    ],
)
def test_before_version_2_an_end_is_checked_like_this(
    status: TransactionStatus, producer: Producer, commit: bool, error: int
) -> None:
    assert end(state(status), producer, commit=commit, version=0) == error


@pytest.mark.parametrize("commit", [True, False])
def test_before_version_2_the_epoch_stays(commit: bool) -> None:
    prepared = end(state(ONGOING), Producer(7, 5), commit=commit, version=0)
    assert prepared == state(
        PREPARE_COMMIT if commit else PREPARE_ABORT, previous_producer_id=7, updated_ms=300, client_version=0
    )


BUMPED = "bumped"


@pytest.mark.parametrize(
    ("status", "epoch", "commit", "expected"),
    [
        # Kafka's table: a repeated request has the epoch before, the next one has the current epoch.
        (EMPTY, 4, False, PRODUCER_FENCED),
        (EMPTY, 5, False, BUMPED),
        (EMPTY, 4, True, PRODUCER_FENCED),
        (EMPTY, 5, True, INVALID_TXN_STATE),
        (COMPLETE_ABORT, 4, False, NONE),
        (COMPLETE_ABORT, 5, False, BUMPED),
        (COMPLETE_ABORT, 4, True, INVALID_TXN_STATE),
        (COMPLETE_ABORT, 5, True, INVALID_TXN_STATE),
        (COMPLETE_COMMIT, 4, False, INVALID_TXN_STATE),
        (COMPLETE_COMMIT, 5, False, BUMPED),
        (COMPLETE_COMMIT, 4, True, NONE),
        (COMPLETE_COMMIT, 5, True, INVALID_TXN_STATE),
        (COMPLETE_COMMIT, 3, True, PRODUCER_FENCED),
        (COMPLETE_COMMIT, 6, True, PRODUCER_FENCED),
        (ONGOING, 5, True, BUMPED),
        (ONGOING, 5, False, BUMPED),
        (ONGOING, 4, True, PRODUCER_FENCED),
        (ONGOING, 6, True, PRODUCER_FENCED),
        (PREPARE_COMMIT, 4, True, CONCURRENT_TRANSACTIONS),
        (PREPARE_COMMIT, 1, True, CONCURRENT_TRANSACTIONS),
    ],
)
def test_with_version_2_an_end_is_checked_like_this(
    status: TransactionStatus, epoch: int, commit: bool, expected: Any
) -> None:
    decision = end(state(status), Producer(7, epoch), commit=commit, version=2)
    if expected is not BUMPED:
        assert decision == expected
        return
    assert isinstance(decision, Transaction)
    assert decision.status is (PREPARE_COMMIT if commit else PREPARE_ABORT)
    assert (decision.producer_id, decision.producer_epoch, decision.last_producer_epoch) == (7, 6, 5)
    assert decision.started_ms == (100 if status is ONGOING else 300)
    assert decision.client_version == 2


def test_with_version_2_the_wrong_producer_gets_an_error() -> None:
    assert end(state(ONGOING), Producer(8, 5), commit=True, version=2) == INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_in_the_last_epoch_ends_with_a_new_id(commit: bool) -> None:
    prepared = end(state(ONGOING, LAST_EPOCH - 1), Producer(7, LAST_EPOCH - 1), commit=commit, version=2)
    assert isinstance(prepared, Transaction)
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (7, LAST_EPOCH, NEW_ID)
    completed = prepared.completed(400)
    assert (completed.producer_id, completed.producer_epoch) == (NEW_ID, 0)
    assert (completed.previous_producer_id, completed.next_producer_id) == (7, -1)
    # Its producer has not got the answer, and asks again as who it was.
    assert end(completed, Producer(7, LAST_EPOCH - 1), commit=commit, version=2) == NONE
    assert end(completed, Producer(7, LAST_EPOCH - 1), commit=not commit, version=2) == INVALID_TXN_STATE
    assert end(completed, Producer(7, LAST_EPOCH - 2), commit=commit, version=2) == INVALID_PRODUCER_ID_MAPPING


def test_without_an_id_to_end_with_the_producer_has_to_wait() -> None:
    known, producer = state(ONGOING, LAST_EPOCH - 1), Producer(7, LAST_EPOCH - 1)
    assert end(known, producer, commit=True, version=2, new_id=lambda: None) == COORDINATOR_LOAD_IN_PROGRESS


def test_an_abort_in_place_of_a_producer_in_its_last_epoch_gets_a_new_id() -> None:
    aborted = decisions.abort_in_place(
        state(ONGOING, LAST_EPOCH - 1), server_version=2, new_id=lambda: NEW_ID, now_ms=300
    )
    assert isinstance(aborted, Transaction)
    assert (aborted.producer_epoch, aborted.next_producer_id) == (LAST_EPOCH, NEW_ID)
    before_version_2 = decisions.abort_in_place(
        state(ONGOING, LAST_EPOCH - 1), server_version=0, new_id=lambda: NEW_ID, now_ms=300
    )
    assert isinstance(before_version_2, Transaction)
    assert (before_version_2.producer_epoch, before_version_2.next_producer_id) == (LAST_EPOCH, -1)
    # The producer that comes next finds no epoch left, and gets an id.
    new = init(before_version_2.completed(400))
    assert isinstance(new, Transaction)
    assert (new.producer_id, new.producer_epoch) == (NEW_ID, 0)
