"""`__transaction_state` as Kafka wrote it: read, written again byte for byte, and gone through by the same steps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import duralog
from duralog.broker.topics.internal_topics import TRANSACTION_STATE
from duralog.broker.transactions import decisions
from duralog.broker.transactions.decisions import Decision, Producer
from duralog.broker.transactions.state import Transaction
from duralog.broker.transactions.transaction_log import decode, encode
from duralog.broker.wire.error_codes import INVALID_TXN_STATE, NONE, NOT_COORDINATOR
from duralog.errors import CorruptRecord
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.java_hash import coordinator_partition
from duralog.format.record import Record
from tests.support.broker.desk_broker import DeskBroker
from tests.support.places import GOLDEN

pytestmark = pytest.mark.usefixtures("without_waiting_for_the_disk")

GOLDEN_STORE = GOLDEN / "store"
LATER_MS = 1_794_800_000_000


@pytest.fixture(scope="module")
def records() -> list[list[Record]]:
    """By partition."""
    with duralog.open(GOLDEN_STORE, read_only=True) as store:
        return [list(store.partition(TRANSACTION_STATE, number).read(0)) for number in (0, 1)]


def test_records_of_kafka_are_written_again_byte_for_byte(records: list[list[Record]]) -> None:
    for record in (record for partition in records for record in partition):
        entry = decode(record)
        assert entry is not None
        again = encode(*entry, server_version=2)
        assert (again.key, again.value) == (record.key, record.value)


def next_state(known: Transaction, wanted: Transaction) -> Decision:
    """The step that Kafka went, by the rules here."""
    producer, now_ms = Producer(known.producer_id, known.producer_epoch), wanted.updated_ms
    if wanted.status is TransactionStatus.ONGOING:
        return decisions.add_partitions(known, producer, wanted.partitions, client_version=2, now_ms=now_ms)
    if wanted.is_prepared:
        commit = wanted.status is TransactionStatus.PREPARE_COMMIT
        return decisions.end(known, producer, commit=commit, client_version=2, new_id=lambda: None, now_ms=now_ms)
    return known.completed(now_ms)


def first_state(wanted: Transaction) -> decisions.Decision:
    return decisions.init_producer(
        None,
        None,
        timeout_ms=60_000,
        server_version=2,
        new_id=lambda: wanted.producer_id,
        now_ms=wanted.updated_ms,
    )


def test_the_steps_from_state_to_state_are_those_of_kafka(records: list[list[Record]]) -> None:
    steps = 0
    for partition in records:
        known: dict[str, Transaction] = {}
        for record in partition:
            entry = decode(record)
            assert entry is not None
            transactional_id, wanted = entry
            before = known.get(transactional_id)
            if before is None:
                made = first_state(wanted)
            else:
                made = next_state(before, wanted)
            assert isinstance(made, Transaction)
            assert encode(transactional_id, made, 2).value == record.value
            known[transactional_id] = made
            steps += 1
    assert steps > 200


@pytest.fixture
def golden_broker(tmp_path: Path) -> Iterator[DeskBroker]:
    directory = tmp_path / "kafka"
    shutil.copytree(GOLDEN_STORE, directory)
    broker = DeskBroker(directory, now_ms=LATER_MS)
    yield broker
    broker.close()


def test_producers_of_kafka_go_on_here(golden_broker: DeskBroker) -> None:
    assert {id_: state.status for id_, state in golden_broker.transactions.states.items()} == {
        "t1": TransactionStatus.COMPLETE_COMMIT,
        "t2": TransactionStatus.COMPLETE_COMMIT,
    }
    known = golden_broker.transactions.states["t1"]
    again = golden_broker.ask(22, 5, transactional_id="t1", transaction_timeout_ms=60_000)
    assert (again.error_code, again.producer_id) == (NONE, known.producer_id)
    assert again.producer_epoch == known.producer_epoch + 1
    check = golden_broker.transactions.check_produce("t1", again.producer_id, again.producer_epoch, [("txn", 0)], 12)
    assert check == {}
    ended = golden_broker.ask(
        26,
        5,
        transactional_id="t1",
        producer_id=again.producer_id,
        producer_epoch=again.producer_epoch,
        committed=True,
    )
    assert (ended.error_code, ended.producer_epoch) == (NONE, again.producer_epoch + 1)


def test_ids_go_on_after_the_last_block_of_kafka(golden_broker: DeskBroker) -> None:
    given = golden_broker.ask(22, 5, transactional_id=None, transaction_timeout_ms=0)
    assert given.producer_id == 1_000


def test_a_record_of_before_version_1_has_no_tags() -> None:
    transaction = Transaction(
        producer_id=9, previous_producer_id=9, producer_epoch=1, timeout_ms=5, updated_ms=7, client_version=0
    )
    record = encode("id", transaction, server_version=0)
    assert record.value is not None
    assert record.value[:2] == b"\0\0"
    entry = decode(record)
    assert entry is not None
    assert entry[1].previous_producer_id == -1


def test_a_tombstone_and_what_a_later_kafka_wrote_have_no_state() -> None:
    assert decode(encode("id", None, server_version=2)) is None
    assert decode(Record(key=b"\0\5whatever", value=b"\0\0")) is None
    assert decode(Record(key=encode("id", None, 2).key, value=b"\0\x09abc")) is None


def test_a_status_that_does_not_exist_is_damage() -> None:
    transaction = Transaction(producer_id=9, timeout_ms=5, updated_ms=7)
    record = encode("id", transaction, server_version=0)
    assert record.value is not None
    # Version, producer id, epoch and timeout come before the status.
    damaged = record.value[:16] + b"\x55" + record.value[17:]
    with pytest.raises(CorruptRecord, match="status"):
        decode(Record(key=record.key, value=damaged))


def test_a_partition_that_cannot_be_read_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = DeskBroker(tmp_path, {"transaction.state.log.num.partitions": 1})
    broker.make_topics(orders=1)
    broker.partitions.append_records(TRANSACTION_STATE, 0, [encode("t", None, server_version=2)] * 2)
    end_offset = broker.store.partition(TRANSACTION_STATE, 0).end_offset
    broker.close()
    log = tmp_path / f"{TRANSACTION_STATE}-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"X")
    again = DeskBroker(tmp_path)
    assert again.ask(22, 5, transactional_id="t", transaction_timeout_ms=1).error_code == NOT_COORDINATOR
    assert again.store.partition(TRANSACTION_STATE, 0).end_offset == end_offset
    assert "cannot be loaded and its transactional ids are not served" in caplog.text
    again.topics.delete(TRANSACTION_STATE, lambda _: None)
    again.topics.ensure_internal(TRANSACTION_STATE, lambda _: None)
    assert again.ask(22, 5, transactional_id="t", transaction_timeout_ms=1).error_code == NONE
    again.close()


def test_a_repeated_end_is_known_after_a_restart(tmp_path: Path) -> None:
    """The log does not keep the last epoch: a repeated end is recognised by the current one."""
    broker = DeskBroker(tmp_path)
    broker.make_topics(orders=1)
    producer_id = broker.ask(22, 5, transactional_id="t", transaction_timeout_ms=1_000).producer_id
    assert broker.transactions.check_produce("t", producer_id, 0, [("orders", 0)], 12) == {}
    fields = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": 0}
    assert broker.ask(26, 5, **fields, committed=True).error_code == NONE
    broker.close()
    again = DeskBroker(tmp_path)
    answer = again.ask(26, 5, **fields, committed=True)
    assert (answer.error_code, answer.producer_epoch) == (NONE, 1)
    assert again.ask(26, 5, **fields, committed=False).error_code == INVALID_TXN_STATE
    again.close()


def test_a_state_in_a_partition_of_other_ids_is_not_the_last_one(tmp_path: Path) -> None:
    """As Kafka leaves it when its topic gets more partitions. Only what has not ended and is all there is counts."""
    moved, still_open, at_rest = "moved-0", "moved-3", "moved-6"
    broker = DeskBroker(tmp_path)
    broker.make_topics(orders=1)
    producer_id = broker.ask(22, 5, transactional_id=moved, transaction_timeout_ms=1_000).producer_id
    assert broker.transactions.check_produce(moved, producer_id, 0, [("orders", 0)], 12) == {}
    ongoing = broker.transactions.states[moved]
    fields = {"transactional_id": moved, "producer_id": producer_id, "producer_epoch": 0}
    assert broker.ask(26, 5, **fields, committed=True).error_code == NONE
    ended = broker.transactions.states[moved]
    assert {coordinator_partition(name, 3) for name in (moved, still_open, at_rest)} == {0}
    for number in (1, 2):
        strays = {moved: ongoing, still_open: ongoing, at_rest: ended}
        records = [encode(name, state, 2) for name, state in strays.items()]
        broker.partitions.append_records(TRANSACTION_STATE, number, records)
    broker.close()
    again = DeskBroker(tmp_path)
    assert {name: state.status for name, state in again.transactions.states.items()} == {
        moved: TransactionStatus.COMPLETE_COMMIT,
        still_open: TransactionStatus.ONGOING,
    }
    again.close()
