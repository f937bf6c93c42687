"""Producers and their transactions by the requests that they send: answers, records, markers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.broker.topics.topics import TopicView
from duralog.broker.transactions.markers import MARKERS_PER_TURN, RETRY_MS
from duralog.broker.transactions.state import LAST_EPOCH
from duralog.broker.transactions.transaction_log import decode
from duralog.broker.wire.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_REGULAR_EXPRESSION,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTION_ABORTABLE,
    TRANSACTIONAL_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from duralog.errors import StorageError
from duralog.format import record_batch
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.record import Record
from tests.support.broker.desk_broker import START_MS, DeskBroker

pytestmark = pytest.mark.usefixtures("without_waiting_for_the_disk")

INIT, ADD, ADD_OFFSETS, END, MARKERS, COMMIT_OFFSETS, DESCRIBE, LIST = 22, 24, 25, 26, 27, 28, 65, 66
ID = "orders-writer"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DeskBroker]:
    broker = DeskBroker(tmp_path)
    broker.make_topics(orders=4)
    yield broker
    broker.close()


def init(broker: DeskBroker, version: int = 5, transactional_id: str | None = ID, **fields: Any) -> Any:
    asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    return broker.ask(INIT, version, **{**asked, **fields})


def add(broker: DeskBroker, producer_id: int, epoch: int, *partitions: int, version: int = 3, **changes: Any) -> Any:
    fields = {
        "v3_and_below_transactional_id": ID,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": [{"name": "orders", "partitions": list(partitions)}],
    }
    answer = broker.ask(ADD, version, **{**fields, **changes})
    return {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


def end(broker: DeskBroker, producer_id: int, epoch: int, *, commit: bool, version: int = 5) -> Any:
    return broker.ask(
        END, version, transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, committed=commit
    )


def transactional_batch(broker: DeskBroker, producer_id: int, epoch: int, sequence: int = 0) -> bytes:
    return record_batch.encode(
        [Record(key=b"k", value=b"v", timestamp_ms=broker.now_ms)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def produce(broker: DeskBroker, partition: int, producer_id: int, epoch: int, sequence: int = 0) -> None:
    batch = transactional_batch(broker, producer_id, epoch, sequence)
    broker.append("orders", partition, bytearray(batch), transaction_version=2)


def written(broker: DeskBroker) -> list[tuple[str, Any]]:
    """All states in the log, in the order in which they were written to their partition."""
    topic = broker.topics.by_name(TRANSACTION_STATE)
    assert topic is not None
    entries = [
        decode(record) for number in topic.partitions for record in broker.store.partition(topic.name, number).read(0)
    ]
    return [entry for entry in entries if entry is not None]


def statuses(broker: DeskBroker) -> list[TransactionStatus]:
    return [transaction.status for _, transaction in written(broker)]


# Who a producer is


def test_a_producer_without_a_transactional_id_is_always_new(broker: DeskBroker) -> None:
    for version in range(6):
        answer = init(broker, version, transactional_id=None)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, version, 0)


def test_ids_are_given_once_over_restarts(tmp_path: Path) -> None:
    given = []
    for _ in range(3):
        broker = DeskBroker(tmp_path)
        given += [init(broker, transactional_id=None).producer_id for _ in range(2)]
        broker.close()
    assert given == [0, 1, 1000, 1001, 2000, 2001]


def test_the_next_block_of_ids_is_there_when_one_ends(broker: DeskBroker) -> None:
    assert [init(broker, transactional_id=None).producer_id for _ in range(2_500)] == list(range(2_500))


def test_the_first_producers_wait_for_a_block_and_all_get_an_id(broker: DeskBroker) -> None:
    broker.runs_in_background_at_once = False
    waiting = [broker.begin(INIT, 5, transactional_id=None, transaction_timeout_ms=1) for _ in range(3)]
    assert not any(later.is_answered for later in waiting)
    broker.run_background()
    assert [broker.answered(INIT, 5, later).producer_id for later in waiting] == [0, 1, 2]


def test_without_a_block_producers_are_asked_to_retry(broker: DeskBroker, monkeypatch: Any) -> None:
    def refuse() -> range:
        raise StorageError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(broker.store, "take_producer_ids", refuse)
        assert init(broker, transactional_id=None).error_code == COORDINATOR_LOAD_IN_PROGRESS
    assert init(broker, transactional_id=None).producer_id == 0


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_half_a_producer_is_no_request(broker: DeskBroker, producer_id: int, epoch: int) -> None:
    assert init(broker, producer_id=producer_id, producer_epoch=epoch).error_code == INVALID_REQUEST


def test_an_empty_transactional_id_is_no_request(broker: DeskBroker) -> None:
    assert init(broker, transactional_id="").error_code == INVALID_REQUEST


@pytest.mark.parametrize(("timeout_ms", "error"), [(0, 50), (-1, 50), (900_001, 50), (900_000, 0)])
def test_a_timeout_must_be_one_that_the_broker_allows(broker: DeskBroker, timeout_ms: int, error: int) -> None:
    assert error in (NONE, INVALID_TRANSACTION_TIMEOUT)
    assert init(broker, transaction_timeout_ms=timeout_ms).error_code == error


def test_without_its_topic_there_is_no_coordinator(tmp_path: Path) -> None:
    broker = DeskBroker(tmp_path)
    assert init(broker).error_code == NOT_COORDINATOR
    assert end(broker, 0, 0, commit=True).error_code == NOT_COORDINATOR
    broker.close()


@pytest.mark.parametrize(("version", "error"), [(3, INVALID_PRODUCER_EPOCH), (4, PRODUCER_FENCED)])
def test_old_clients_get_their_own_error_for_fencing(broker: DeskBroker, version: int, error: int) -> None:
    init(broker)
    assert init(broker, version, producer_id=0, producer_epoch=9).error_code == error


def test_a_new_instance_aborts_what_the_last_one_left_open(broker: DeskBroker) -> None:
    first = init(broker)
    assert add(broker, first.producer_id, first.producer_epoch, 0) == {("orders", 0): NONE}
    produce(broker, 0, first.producer_id, first.producer_epoch)
    assert init(broker).error_code == CONCURRENT_TRANSACTIONS
    second = init(broker)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 2)
    assert end(broker, first.producer_id, first.producer_epoch, commit=True, version=4).error_code == PRODUCER_FENCED
    assert list(broker.store.partition("orders", 0).read(0, isolation="read_committed")) == []


# Before version 2


def test_a_transaction_of_before_version_2(broker: DeskBroker) -> None:
    producer = init(broker, 4)
    assert add(broker, producer.producer_id, 0, 0, 2) == {("orders", 0): NONE, ("orders", 2): NONE}
    for partition in (0, 2):
        produce(broker, partition, producer.producer_id, 0)
        assert broker.store.partition("orders", partition).last_stable_offset == 0
    ended = end(broker, producer.producer_id, 0, commit=True, version=4)
    assert ended.error_code == NONE
    for partition in (0, 2):
        assert broker.store.partition("orders", partition).last_stable_offset == 2
    assert end(broker, producer.producer_id, 0, commit=True, version=4).error_code == NONE
    assert end(broker, producer.producer_id, 0, commit=False, version=4).error_code == INVALID_TXN_STATE
    assert statuses(broker) == [
        TransactionStatus.EMPTY,
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_COMMIT,
        TransactionStatus.COMPLETE_COMMIT,
    ]
    assert add(broker, producer.producer_id, 0, 1) == {("orders", 1): NONE}


@pytest.mark.parametrize(("version", "error"), [(1, INVALID_PRODUCER_EPOCH), (2, PRODUCER_FENCED)])
def test_fencing_by_version(broker: DeskBroker, version: int, error: int) -> None:
    producer_id = init(broker).producer_id
    assert add(broker, producer_id, 3, 0, version=version) == {("orders", 0): error}
    assert end(broker, producer_id, 3, commit=True, version=version).error_code == error
    answer = broker.ask(
        ADD_OFFSETS, version, transactional_id=ID, producer_id=producer_id, producer_epoch=3, group_id="g"
    )
    assert answer.error_code == error


def test_one_partition_that_does_not_exist_keeps_the_others_out(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    assert add(broker, producer_id, 0, 0, 9) == {
        ("orders", 0): OPERATION_NOT_ATTEMPTED,
        ("orders", 9): UNKNOWN_TOPIC_OR_PARTITION,
    }
    internal = [{"name": CONSUMER_OFFSETS, "partitions": [0]}]
    assert add(broker, producer_id, 0, v3_and_below_topics=internal) == {
        (CONSUMER_OFFSETS, 0): TOPIC_AUTHORIZATION_FAILED
    }
    assert statuses(broker) == [TransactionStatus.EMPTY]


def test_brokers_ask_for_several_producers_at_once(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    topics = [{"name": "orders", "partitions": [1]}]
    one = {"transactional_id": ID, "producer_id": producer_id, "producer_epoch": 0, "topics": topics}

    def ask(*transactions: Any) -> list[int]:
        answer = broker.ask(ADD, 5, transactions=list(transactions))
        return [
            result.topic_results[0].results_by_partition[0].partition_error_code
            for result in answer.results_by_transaction
        ]

    unknown = {**one, "transactional_id": "nobody"}
    assert ask({**one, "verify_only": True}, unknown) == [TRANSACTION_ABORTABLE, INVALID_PRODUCER_ID_MAPPING]
    assert ask({**one, "verify_only": False}) == [NONE]
    assert ask({**one, "verify_only": True}) == [NONE]
    assert broker.transactions.states[ID].client_version == 2


# Version 2


def test_a_transaction_of_version_2_gives_the_producer_its_next_epoch(broker: DeskBroker) -> None:
    producer = init(broker)
    for round_ in range(3):
        assert broker.transactions.check_produce(ID, producer.producer_id, round_, [("orders", 1)], 12) == {}
        produce(broker, 1, producer.producer_id, round_)
        ended = end(broker, producer.producer_id, round_, commit=True)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (NONE, producer.producer_id, round_ + 1)
        again = end(broker, producer.producer_id, round_, commit=True)
        assert (again.error_code, again.producer_epoch) == (NONE, round_ + 1)
    log = broker.store.partition("orders", 1)
    assert [record.offset for record in log.read(0, isolation="read_committed")] == [0, 2, 4]
    assert log.last_stable_offset == 6


def test_the_last_epoch_ends_with_a_new_id(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    known = broker.transactions.states[ID]
    broker.transactions._put(ID, replace(known, producer_epoch=LAST_EPOCH - 1))
    assert broker.transactions.check_produce(ID, producer_id, LAST_EPOCH - 1, [("orders", 0)], 12) == {}
    produce(broker, 0, producer_id, LAST_EPOCH - 1)
    for _ in range(2):
        ended = end(broker, producer_id, LAST_EPOCH - 1, commit=True)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (NONE, producer_id + 1, 0)
    [entry] = broker.store.partition("orders", 0).producers()
    assert (entry.producer_id, entry.producer_epoch) == (producer_id, LAST_EPOCH)
    assert broker.transactions.check_produce(ID, producer_id + 1, 0, [("orders", 0)], 12) == {}


@pytest.mark.parametrize(
    ("version", "error"),
    [(10, INVALID_TXN_STATE), (11, TRANSACTION_ABORTABLE), (12, NONE)],
)
def test_a_batch_for_a_partition_that_was_not_added(broker: DeskBroker, version: int, error: int) -> None:
    producer_id = init(broker).producer_id
    refused = broker.transactions.check_produce(ID, producer_id, 0, [("orders", 3)], version)
    assert refused == ({} if error == NONE else {("orders", 3): error})


def test_verification_can_be_switched_off(tmp_path: Path) -> None:
    broker = DeskBroker(tmp_path, {"transaction.partition.verification.enable": False})
    broker.make_topics(orders=1)
    producer_id = init(broker).producer_id
    assert broker.transactions.check_produce(ID, producer_id, 0, [("orders", 0)], 11) == {}
    broker.close()


@pytest.mark.parametrize(
    ("producer_id", "epoch", "version", "error"),
    [
        (0, 1, 11, INVALID_PRODUCER_EPOCH),
        (0, 1, 12, INVALID_PRODUCER_EPOCH),
        (5, 0, 11, INVALID_PRODUCER_ID_MAPPING),
        (5, 0, 12, INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_batches_of_another_producer_are_refused(
    broker: DeskBroker, producer_id: int, epoch: int, version: int, error: int
) -> None:
    init(broker)
    refused = broker.transactions.check_produce(ID, producer_id, epoch, [("orders", 0)], version)
    assert refused == {("orders", 0): error}


def test_batches_wait_for_a_coordinator_that_is_not_there(tmp_path: Path) -> None:
    broker = DeskBroker(tmp_path)
    for version in (11, 12):
        assert broker.transactions.check_produce(ID, 0, 0, [("t", 0)], version) == {("t", 0): NOT_ENOUGH_REPLICAS}
    broker.close()


# Offsets in transactions


def commit_offsets(broker: DeskBroker, producer_id: int, epoch: int, version: int, **changes: Any) -> list[int]:
    partitions = [{"partition_index": 0, "committed_offset": 42, "committed_metadata": None}]
    fields = {
        "transactional_id": ID,
        "group_id": "readers",
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "topics": [{"name": "orders", "partitions": partitions}],
    }
    answer = broker.ask(COMMIT_OFFSETS, version, **{**fields, **changes})
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def test_offsets_are_part_of_the_transaction(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    number = broker.groups.log.partition_for("readers")
    assert commit_offsets(broker, producer_id, 0, 3) == [INVALID_TXN_STATE]
    assert commit_offsets(broker, producer_id, 0, 4) == [TRANSACTION_ABORTABLE]
    added = broker.ask(
        ADD_OFFSETS, 4, transactional_id=ID, producer_id=producer_id, producer_epoch=0, group_id="readers"
    )
    assert added.error_code == NONE
    assert commit_offsets(broker, producer_id, 0, 3) == [NONE]
    assert broker.store.partition(CONSUMER_OFFSETS, number).last_stable_offset == 0
    assert end(broker, producer_id, 0, commit=True, version=4).error_code == NONE
    assert broker.groups.completed == [(producer_id, number, True)]
    assert broker.store.partition(CONSUMER_OFFSETS, number).last_stable_offset == 2


def test_with_version_2_the_offsets_need_not_be_announced(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    assert commit_offsets(broker, producer_id, 0, 5) == [NONE]
    assert end(broker, producer_id, 0, commit=False).error_code == NONE
    assert broker.groups.completed == [(producer_id, broker.groups.log.partition_for("readers"), False)]


def test_offsets_of_topics_that_do_not_exist_are_refused_alone(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    partition = {"partition_index": 0, "committed_offset": 42, "committed_metadata": None}
    topics = [
        {"name": "orders", "partitions": [partition, {**partition, "partition_index": 9}]},
        {"name": "nothing", "partitions": [partition]},
    ]
    assert commit_offsets(broker, producer_id, 0, 5, topics=topics[1:]) == [UNKNOWN_TOPIC_OR_PARTITION]
    assert statuses(broker) == [TransactionStatus.EMPTY]
    assert sorted(commit_offsets(broker, producer_id, 0, 5, topics=topics)) == [0, 3, 3]


def test_fenced_offset_commits_get_the_error_of_an_old_epoch(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    assert commit_offsets(broker, producer_id, 4, 5) == [INVALID_PRODUCER_EPOCH]
    assert commit_offsets(broker, producer_id, 0, 5, group_id="") == [24]


class NotSearched(tuple[int, ...]):
    """Searching a topic's partitions for each of a million numbers would block all clients."""

    def __contains__(self, _: object) -> bool:
        raise AssertionError("searched from the beginning")


def test_partitions_are_looked_up_however_many_a_client_names(
    broker: DeskBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer_id = init(broker).producer_id
    monkeypatch.setattr(TopicView, "partitions", property(lambda view: NotSearched(view.topic.partitions)))
    assert add(broker, producer_id, 0, 1, 9) == {
        ("orders", 1): OPERATION_NOT_ATTEMPTED,
        ("orders", 9): UNKNOWN_TOPIC_OR_PARTITION,
    }
    partitions = [{"partition_index": number, "committed_offset": 5, "committed_metadata": None} for number in (1, 9)]
    answer = broker.ask(
        COMMIT_OFFSETS,
        5,
        transactional_id=ID,
        group_id="g",
        producer_id=producer_id,
        producer_epoch=0,
        topics=[{"name": "orders", "partitions": partitions}],
    )
    assert [(each.partition_index, each.error_code) for each in answer.topics[0].partitions] == [
        (9, UNKNOWN_TOPIC_OR_PARTITION),
        (1, NONE),
    ]


# Markers


def test_many_markers_are_written_some_at_a_time(tmp_path: Path) -> None:
    count = 2 * MARKERS_PER_TURN + 5
    broker = DeskBroker(tmp_path)
    broker.make_topics(orders=count)
    producer_id = init(broker).producer_id
    partitions = [("orders", number) for number in range(count)]
    assert broker.transactions.check_produce(ID, producer_id, 0, partitions, 12) == {}
    ended = end(broker, producer_id, 0, commit=True)
    assert (ended.error_code, ended.producer_epoch) == (NONE, 1)

    [described] = broker.ask(DESCRIBE, 0, transactional_ids=[ID]).transaction_states
    assert described.transaction_state == "PrepareCommit"
    assert len(described.topics[0].partitions) == count - MARKERS_PER_TURN
    for version, error in ((11, NOT_ENOUGH_REPLICAS), (12, CONCURRENT_TRANSACTIONS)):
        refused = broker.transactions.check_produce(ID, producer_id, 1, partitions[:1], version)
        assert refused == {("orders", 0): error}
    assert add(broker, producer_id, 1, 0) == {("orders", 0): CONCURRENT_TRANSACTIONS}
    assert end(broker, producer_id, 1, commit=False).error_code == CONCURRENT_TRANSACTIONS
    assert init(broker).error_code == CONCURRENT_TRANSACTIONS

    broker.run_timers()
    assert broker.transactions.states[ID].status is TransactionStatus.COMPLETE_COMMIT
    assert {broker.store.partition("orders", number).end_offset for number in range(count)} == {1}
    broker.close()


def test_a_partition_that_was_deleted_needs_no_marker(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    broker.topics.create("gone", 1, {}, lambda *_: None)
    partitions = [("gone", 0), ("orders", 0)]
    assert broker.transactions.check_produce(ID, producer_id, 0, partitions, 12) == {}
    broker.topics.delete("gone", lambda *_: None)
    assert end(broker, producer_id, 0, commit=True).error_code == NONE
    assert broker.transactions.states[ID].status is TransactionStatus.COMPLETE_COMMIT


def test_a_marker_comes_after_the_records_that_wait_in_line(broker: DeskBroker) -> None:
    """Of a client before version 2, whose epoch would let them in after it: they would be open for ever."""
    producer_id = init(broker).producer_id
    assert add(broker, producer_id, 0, 0, 1) == {("orders", 0): NONE, ("orders", 1): NONE}
    partition = broker.partitions.get("orders", 0)
    assert partition is not None
    told: list[int] = []

    def append_beside(batch: bytes) -> None:
        sent, log = bytearray(batch), partition.log
        partition.append_queued(
            broker.runtime.background,
            lambda: log.append_batches(sent),
            lambda result, _: told.append(-1 if result is None else result.base_offset),
            memory_bytes=len(sent),
        )

    plain = record_batch.encode([Record(key=b"k", value=b"v", timestamp_ms=broker.now_ms)])
    broker.runs_in_background_at_once = False
    append_beside(plain)
    append_beside(transactional_batch(broker, producer_id, 0))
    assert end(broker, producer_id, 0, commit=False, version=4).error_code == NONE
    append_beside(plain)
    assert broker.transactions.states[ID].status is TransactionStatus.PREPARE_ABORT
    assert broker.transactions.states[ID].partitions == {("orders", 0)}
    broker.run_background()
    assert told == [0, 1, 3]
    assert broker.transactions.states[ID].status is TransactionStatus.COMPLETE_ABORT
    assert partition.log.view.last_stable_offset == partition.log.end_offset == 4
    assert not partition.append_queue


def test_a_state_that_was_deleted_does_not_come_back_with_the_last_marker(
    broker: DeskBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer_id = init(broker).producer_id
    assert broker.transactions.check_produce(ID, producer_id, 0, [("orders", 0), ("orders", 1)], 12) == {}
    produce(broker, 1, producer_id, 0)

    def fail(*_: object, **__: object) -> Any:
        raise StorageError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(broker.partitions, "end_transaction", fail)
        assert end(broker, producer_id, 0, commit=True).error_code == NONE
        broker.topics.delete(TRANSACTION_STATE, lambda *_: None)
        broker.run_timers(RETRY_MS)
        assert broker.transactions.states == {}
        broker.topics.ensure_internal(TRANSACTION_STATE, lambda *_: None)
        new_id = init(broker).producer_id
        assert new_id != producer_id
    broker.run_timers(RETRY_MS)
    assert broker.transactions.states[ID].producer_id == new_id
    assert [transaction.producer_id for _, transaction in written(broker)] == [new_id]
    assert broker.store.partition("orders", 1).last_stable_offset == 2, "nobody waits for it for ever"


def test_a_partition_that_cannot_be_written_to_is_tried_again(
    broker: DeskBroker, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    producer_id = init(broker).producer_id
    assert broker.transactions.check_produce(ID, producer_id, 0, [("orders", 0), ("orders", 1)], 12) == {}
    real = broker.partitions.end_transaction

    def fail(topic: str, number: int, **fields: Any) -> Any:
        if number == 1:
            raise StorageError("the disk is full")
        return real(topic, number, **fields)

    with monkeypatch.context() as full:
        full.setattr(broker.partitions, "end_transaction", fail)
        assert end(broker, producer_id, 0, commit=True).error_code == NONE
        for _ in range(5):
            broker.run_timers(RETRY_MS)
        assert broker.transactions.states[ID].status is TransactionStatus.PREPARE_COMMIT
        assert broker.transactions.states[ID].partitions == {("orders", 1)}
    assert caplog.text.count("cannot end in") == 1, "a full disk is not filled with lines about it"
    broker.run_timers(RETRY_MS)
    assert broker.transactions.states[ID].status is TransactionStatus.COMPLETE_COMMIT
    assert [broker.store.partition("orders", number).end_offset for number in (0, 1)] == [1, 1]


def test_a_state_that_cannot_be_written_changes_nothing(broker: DeskBroker, monkeypatch: Any) -> None:
    producer_id = init(broker).producer_id
    before = broker.transactions.states[ID]

    def fail(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(broker.partitions, "append_records", fail)
        assert add(broker, producer_id, 0, 0) == {("orders", 0): NOT_COORDINATOR}
        assert init(broker).error_code == NOT_COORDINATOR
    assert broker.transactions.states[ID] == before
    assert add(broker, producer_id, 0, 0) == {("orders", 0): NONE}


def test_an_administrator_ends_a_hanging_transaction(broker: DeskBroker) -> None:
    produce(broker, 0, 500, 3)
    topics = [{"name": "orders", "partition_indexes": [0, 9]}]
    marker = {
        "producer_id": 500,
        "producer_epoch": 3,
        "transaction_result": False,
        "topics": topics,
        "coordinator_epoch": 0,
    }

    def ask(version: int, **changes: Any) -> list[int]:
        [answer] = broker.ask(MARKERS, version, markers=[{**marker, **changes}]).markers
        assert answer.producer_id == 500
        return [partition.error_code for partition in answer.topics[0].partitions]

    assert ask(1, producer_epoch=2) == [INVALID_PRODUCER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION]
    assert ask(2) == [NONE, UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.store.partition("orders", 0).last_stable_offset == 2


def test_very_many_markers_of_one_request_do_not_come_in_one_turn(broker: DeskBroker) -> None:
    topics = [{"name": "orders", "partition_indexes": [0]}] * (2 * MARKERS_PER_TURN)
    marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "topics": topics}
    later = broker.begin(MARKERS, 1, markers=[{**marker, "coordinator_epoch": 0}])
    assert broker.store.partition("orders", 0).end_offset == MARKERS_PER_TURN
    assert not later.is_answered
    broker.run_timers()
    [answer] = broker.answered(MARKERS, 1, later).markers
    assert [partition.error_code for partition in answer.topics[0].partitions] == [NONE]


# Time


def test_a_transaction_that_takes_too_long_is_aborted(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    assert broker.transactions.check_produce(ID, producer_id, 0, [("orders", 0)], 12) == {}
    produce(broker, 0, producer_id, 0)
    broker.run_timers(60_000)
    assert broker.transactions.states[ID].status is TransactionStatus.ONGOING
    broker.run_timers(10_000)
    assert broker.transactions.states[ID].status is TransactionStatus.COMPLETE_ABORT
    assert broker.store.partition("orders", 0).last_stable_offset == 2
    assert end(broker, producer_id, 0, commit=True).error_code == INVALID_TXN_STATE
    assert broker.transactions.check_produce(ID, producer_id, 0, [("orders", 0)], 12) == {
        ("orders", 0): INVALID_PRODUCER_EPOCH
    }


def test_an_unused_id_is_forgotten(broker: DeskBroker, tmp_path: Path) -> None:
    producer_id = init(broker).producer_id
    day = 86_400_000
    init(broker, transactional_id="other")
    assert add(broker, producer_id, 0, 0) == {("orders", 0): NONE}
    broker.transactions._put(ID, replace(broker.transactions.states[ID], timeout_ms=2**31 - 1))
    broker.run_timers(8 * day)
    assert list(broker.transactions.states) == [ID]
    broker.close()
    again = DeskBroker(tmp_path, now_ms=broker.now_ms)
    assert list(again.transactions.states) == [ID]
    again.close()


# What administrators see


def test_transactions_are_described(broker: DeskBroker) -> None:
    producer_id = init(broker).producer_id
    broker.now_ms += 5
    assert add(broker, producer_id, 0, 2, 1) == {("orders", 1): NONE, ("orders", 2): NONE}
    known, unknown, empty = broker.ask(DESCRIBE, 0, transactional_ids=[ID, "nobody", ""]).transaction_states
    assert (known.error_code, known.transaction_state, known.transaction_timeout) == (NONE, "Ongoing", 60_000)
    assert (known.producer_id, known.producer_epoch, known.transaction_start_time) == (producer_id, 0, START_MS + 5)
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [("orders", (1, 2))]
    assert unknown.error_code == TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == INVALID_REQUEST
    end(broker, producer_id, 0, commit=True)
    init(broker)
    [described] = broker.ask(DESCRIBE, 0, transactional_ids=[ID]).transaction_states
    assert (described.transaction_state, described.transaction_start_time) == ("Empty", -1)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["one", "three", "two"]),
        ({"state_filters": ["Ongoing"]}, ["one"]),
        ({"state_filters": ["Empty", "nonsense"]}, ["three", "two"]),
        ({"state_filters": ["nonsense"]}, []),
        ({"producer_id_filters": [1]}, ["two"]),
        ({"duration_filter": 999, "state_filters": ["Ongoing"]}, ["one"]),
        ({"duration_filter": 1_000, "state_filters": ["Ongoing"]}, []),
        ({"transactional_id_pattern": "t.*"}, ["three", "two"]),
        ({"transactional_id_pattern": "t"}, []),
        ({"transactional_id_pattern": ""}, ["one", "three", "two"]),
    ],
)
def test_transactions_are_listed(broker: DeskBroker, filters: dict[str, Any], expected: list[str]) -> None:
    for transactional_id in ("one", "two", "three"):
        init(broker, transactional_id=transactional_id)
    assert broker.transactions.check_produce("one", 0, 0, [("orders", 0)], 12) == {}
    broker.now_ms += 1_000
    answer = broker.ask(LIST, 2, **filters)
    assert answer.error_code == NONE
    assert sorted(state.transactional_id for state in answer.transaction_states) == expected
    assert answer.unknown_state_filters == (("nonsense",) if "nonsense" in filters.get("state_filters", ()) else ())


@pytest.mark.parametrize("pattern", ["(", r"\pL" * 10_000])
def test_an_invalid_or_slow_pattern_is_reported(broker: DeskBroker, pattern: str) -> None:
    """The last one would keep the loop busy for seconds."""
    assert broker.ask(LIST, 2, transactional_id_pattern=pattern).error_code == INVALID_REGULAR_EXPRESSION
