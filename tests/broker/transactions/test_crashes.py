"""A kill at any moment of transactions: what the directory holds after each single write is opened as after a crash.

Whatever was decided is brought to its end, once, in every partition; whatever was not is aborted when its time is over;
and the producer that comes back gets an epoch that the one before did not have.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.broker.transactions.transaction_log import decode
from duralog.broker.wire.error_codes import NONE
from duralog.format import batches, record_batch
from duralog.format.control_records import ControlType, EndTransactionMarker
from duralog.format.control_records import decode as decode_control
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.record import Record
from tests.support.broker.desk_broker import DeskBroker

pytestmark = pytest.mark.usefixtures("without_waiting_for_the_disk")

ID = "writer"
SMALL = {"log.index.size.max.bytes": 4_096}
PARTITIONS = [("orders", 0), ("orders", 1)]
DATA_VERSION = 12


@dataclass
class Moment:
    """The directory after a write."""

    directory: Path
    what: str


@dataclass
class Watched:
    """Copies the directory after each append that the broker makes."""

    broker: DeskBroker
    directory: Path
    copies: Path
    moments: list[Moment] = field(default_factory=list)

    def watch(self, owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def watched(topic: str, number: int, *args: Any, **fields: Any) -> Any:
            result = real(topic, number, *args, **fields)
            self.take(f"{name} {topic}-{number}")
            return result

        monkeypatch.setattr(owner, name, watched)

    def take(self, what: str) -> None:
        copy = self.copies / str(len(self.moments))
        shutil.copytree(self.directory, copy)
        self.moments.append(Moment(copy, what))


def produce(broker: DeskBroker, partition: tuple[str, int], producer_id: int, epoch: int, version: int) -> None:
    batch = record_batch.encode(
        [Record(key=b"k", value=b"v", timestamp_ms=broker.now_ms)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )
    broker.append(*partition, bytearray(batch), transaction_version=version)


def run_transaction(broker: DeskBroker, *, commit: bool, version: int) -> None:
    """Data in two partitions and offsets of a group."""
    producer = broker.ask(22, 5, transactional_id=ID, transaction_timeout_ms=60_000)
    who = {"transactional_id": ID, "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    if version < 2:
        broker.ask(
            24,
            3,
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[{"name": "orders", "partitions": [0, 1]}],
        )
        broker.ask(25, 4, **who, group_id="readers")
    produce_version = DATA_VERSION if version == 2 else DATA_VERSION - 1
    for partition in PARTITIONS:
        refused = broker.transactions.check_produce(
            ID, producer.producer_id, producer.producer_epoch, [partition], produce_version
        )
        assert refused == {}
        produce(broker, partition, producer.producer_id, producer.producer_epoch, version)
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    topics = [{"name": "orders", "partitions": [offset]}]
    broker.ask(28, 5 if version == 2 else 4, **who, group_id="readers", topics=topics)
    assert broker.ask(26, 5 if version == 2 else 4, **who, committed=commit).error_code == NONE
    assert broker.transactions.states[ID].status in (
        TransactionStatus.COMPLETE_COMMIT,
        TransactionStatus.COMPLETE_ABORT,
    )


def markers_of(broker: DeskBroker, topic: str, number: int) -> Counter[ControlType]:
    log = broker.store.partition(topic, number)
    path = Path(log.folder) / "00000000000000000000.log"
    data = path.read_bytes()
    found: Counter[ControlType] = Counter()
    for batch in batches.scan(data):
        if batch.is_control:
            [record] = batches.decode_records(data, batch)
            marker = decode_control(record.key, record.value)
            assert isinstance(marker, EndTransactionMarker)
            found[marker.type] += 1
    return found


def last_written(broker: DeskBroker) -> TransactionStatus | None:
    topic = broker.topics.by_name(TRANSACTION_STATE)
    status = None
    for number in () if topic is None else topic.partitions:
        for record in broker.store.partition(TRANSACTION_STATE, number).read(0):
            entry = decode(record)
            status = None if entry is None else entry[1].status
    return status


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_kill_after_any_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, commit: bool, version: int) -> None:
    directory, copies = tmp_path / "data", tmp_path / "copies"
    broker = DeskBroker(directory, SMALL)
    broker.make_topics(orders=2)
    watched = Watched(broker, directory, copies)
    with monkeypatch.context() as watching:
        watched.watch(broker, "append", watching)
        for name in ("append_records", "end_transaction"):
            watched.watch(broker.partitions, name, watching)
        run_transaction(broker, commit=commit, version=version)
    broker.close()
    assert len(watched.moments) >= 9
    decided = [check_after_crash(moment, commit=commit) for moment in watched.moments]
    # Before the decision is written, time decides; from then on it stands.
    assert decided == sorted(decided)
    assert {*decided} == {False, True}


def check_after_crash(moment: Moment, *, commit: bool) -> bool:
    """Whether the transaction was decided before the crash. Everything else is asserted."""
    broker = DeskBroker(moment.directory, SMALL)
    group_partition = (CONSUMER_OFFSETS, broker.groups.log.partition_for("readers"))
    before = last_written(broker)
    is_decided = before is not None and before not in (TransactionStatus.EMPTY, TransactionStatus.ONGOING)
    broker.run_timers()
    if is_decided:
        after = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
        assert broker.transactions.states[ID].status is after, moment.what
    else:
        broker.run_timers(70_000)
        broker.run_timers(10_000)
        status = broker.transactions.states[ID].status if ID in broker.transactions.states else None
        assert status in (None, TransactionStatus.EMPTY, TransactionStatus.COMPLETE_ABORT), moment.what
    is_visible = is_decided and commit
    for topic, number in (*PARTITIONS, group_partition):
        log = broker.store.partition(topic, number)
        assert log.last_stable_offset == log.end_offset, moment.what
        visible = list(log.read(0, isolation="read_committed"))
        assert len(visible) == (1 if is_visible else 0), moment.what
        wanted = ControlType.COMMIT if is_visible else ControlType.ABORT
        markers = markers_of(broker, topic, number)
        assert set(markers) <= {wanted}, moment.what
        assert sum(markers.values()) <= 1, moment.what
        if log.end_offset:
            assert sum(markers.values()) == 1, moment.what
    check_the_next_producer(broker)
    broker.close()
    return is_decided


def check_the_next_producer(broker: DeskBroker) -> None:
    """It gets an epoch that is new in every partition, and can write and commit."""
    producer = broker.ask(22, 5, transactional_id=ID, transaction_timeout_ms=60_000)
    assert producer.error_code == NONE
    for partition in PARTITIONS:
        known = [
            entry.producer_epoch
            for entry in broker.store.partition(*partition).producers()
            if entry.producer_id == producer.producer_id
        ]
        assert all(epoch < producer.producer_epoch for epoch in known)
        check = broker.transactions.check_produce(
            ID, producer.producer_id, producer.producer_epoch, [partition], DATA_VERSION
        )
        assert check == {}
        produce(broker, partition, producer.producer_id, producer.producer_epoch, 2)
    before = [len(list(broker.store.partition(*p).read(0, isolation="read_committed"))) for p in PARTITIONS]
    ended = broker.ask(
        26,
        5,
        transactional_id=ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    assert ended.error_code == NONE
    after = [len(list(broker.store.partition(*p).read(0, isolation="read_committed"))) for p in PARTITIONS]
    assert after == [count + 1 for count in before]
