"""Transactions that change hands: begun under duralog and ended under Kafka, and the other way round."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.transactions.markers import Markers
from duralog.broker.wire.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    NONE,
    NOT_COORDINATOR,
)
from duralog.format import record_batch
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.record import Record
from oracle.kafka_process import Json, KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from tests.support.broker.desk_broker import DeskBroker
from tests.support.broker.raw_client import RawClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

INIT_PRODUCER_ID, ADD_PARTITIONS, END = 22, 24, 26
TOPIC = "orders"
CONFIGS = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "offsets.topic.replication.factor": 1,
}
NOW_MS = int(time.time() * 1000)


def one(value: bytes) -> Json:
    return {"key": b"key".hex(), "value": value.hex()}


def seen(server: KafkaServer, partition: int) -> list[bytes]:
    found = server.consume(TOPIC, partition, isolation="read_committed")["records"]
    return [bytes.fromhex(record["value"]) for record in found]


def write(broker: DeskBroker, transactional_id: str, partition: int, value: bytes) -> dict[str, Any]:
    """A transaction with one record, which is left open. Returns who its producer is."""
    answer = broker.ask(22, 5, transactional_id=transactional_id, transaction_timeout_ms=600_000)
    assert answer.error_code == NONE
    check = broker.transactions.check_produce(
        transactional_id, answer.producer_id, answer.producer_epoch, [(TOPIC, partition)], 12
    )
    assert check == {}
    batch = record_batch.encode(
        [Record(key=b"key", value=value, timestamp_ms=broker.now_ms)],
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    broker.append(TOPIC, partition, bytearray(batch), transaction_version=2)
    return {
        "transactional_id": transactional_id,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


def raw(client: RawClient, api_key: int, version: int, **fields: object) -> Any:
    return client.ask(api_key, version, fields)


def once_ready(ask: Callable[..., Any], api_key: int, version: int, **fields: object) -> Any:
    """The answer when the coordinator has read its log and written what was decided before."""
    answers: list[Any] = []

    def is_ready() -> bool:
        answers.append(ask(api_key, version, **fields))
        return answers[-1].error_code not in (COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS)

    wait_until(is_ready)
    return answers[-1]


def replaced_before_version_2(ask: Callable[..., Any]) -> dict[str, Any]:
    """A producer whose successor, of an old client, has committed a transaction."""
    begin = {"transactional_id": "mixed", "transaction_timeout_ms": 600_000}
    replaced, successor = (once_ready(ask, INIT_PRODUCER_ID, 5, **begin) for _ in range(2))
    assert (successor.error_code, successor.producer_id) == (NONE, replaced.producer_id)
    assert (replaced.producer_epoch, successor.producer_epoch) == (0, 1)
    who = {"transactional_id": "mixed", "producer_id": successor.producer_id, "producer_epoch": 1}
    topics = [{"name": TOPIC, "partitions": [0]}]
    added = ask(
        ADD_PARTITIONS, 3, **{f"v3_and_below_{name}": value for name, value in who.items()}, v3_and_below_topics=topics
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == NONE
    assert once_ready(ask, END, 4, **who, committed=True).error_code == NONE
    return who | {"producer_epoch": 0}


def ends_of_both_versions(ask: Callable[..., Any], who: dict[str, Any]) -> list[Any]:
    """The answers when this producer commits and aborts, as a client of version 2 and as an older one."""
    return [once_ready(ask, END, version, **who, committed=commit) for version in (5, 4) for commit in (True, False)]


def test_kafka_ends_what_duralog_began(kafka: KafkaProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = DeskBroker(tmp_path, now_ms=NOW_MS)
    broker.make_topics(**{TOPIC: 3})
    done = write(broker, "done", 0, b"done")
    assert broker.ask(26, 5, **done, committed=True).error_code == NONE
    write(broker, "open", 1, b"open")
    decided = write(broker, "decided", 2, b"decided")
    with monkeypatch.context() as dying:
        # The broker dies between the decision and its markers.
        dying.setattr(Markers, "_run", lambda _: None)
        assert broker.ask(26, 5, **decided, committed=True).error_code == NONE
    broker.close()

    with KafkaServer(kafka, tmp_path, configs=CONFIGS) as server:
        server.topics()
        # Another one of the same id: what was open is aborted.
        offsets = server.produce(TOPIC, 1, [one(b"next")], {"transactional.id": "open"}, transaction="commit")
        assert all(isinstance(offset, int) for offset in offsets)
        server.produce(TOPIC, 2, [one(b"next")], {"transactional.id": "decided"}, transaction="commit")
        server.produce(TOPIC, 0, [one(b"plain")], {"enable.idempotence": "true"})
        assert seen(server, 0) == [b"done", b"plain"]
        assert seen(server, 1) == [b"next"]
        assert seen(server, 2) == [b"decided", b"next"]
        producer_ids = {producer_id for partition in range(3) for producer_id in server.producers(TOPIC, partition)}
        assert producer_ids == {0, 1, 2, 1_000}, "three that duralog gave, and the first of Kafka's block"
        assert server.errors == []


def test_duralog_ends_what_kafka_began(kafka: KafkaProcess, tmp_path: Path) -> None:
    format_directory(kafka, tmp_path)
    with KafkaServer(kafka, tmp_path, configs=CONFIGS) as server:
        server.topics()
        server.create_topic(TOPIC, 2)
        server.produce(TOPIC, 0, [one(b"done")], {"transactional.id": "done"}, transaction="commit")
        server.produce(TOPIC, 1, [one(b"lost")], {"transactional.id": "open"}, transaction="open")
        with RawClient(*server.address) as client:
            ask = partial(raw, client)
            replaced = replaced_before_version_2(ask)
            kafkas = ends_of_both_versions(ask, replaced)
        server.kill()

    broker = DeskBroker(tmp_path, now_ms=NOW_MS)
    states = broker.transactions.states
    assert ends_of_both_versions(broker.ask, replaced) == kafkas
    # The end of a replaced producer looks like its successor's, sent again: only from version 2 on do epochs tell.
    first, *others = kafkas
    assert (first.error_code, first.producer_id, first.producer_epoch) == (NONE, replaced["producer_id"], 1)
    assert NONE not in {answer.error_code for answer in others}
    assert states["done"].status is TransactionStatus.COMPLETE_COMMIT
    assert states["open"].status is TransactionStatus.ONGOING
    assert states["open"].partitions == {(TOPIC, 1)}
    assert broker.store.partition(TOPIC, 1).last_stable_offset == 0
    fields = {"transactional_id": "open", "transaction_timeout_ms": 60_000}
    assert broker.ask(22, 5, **fields).error_code == CONCURRENT_TRANSACTIONS
    answer = broker.ask(22, 5, **fields)
    assert answer.error_code == NONE
    log = broker.store.partition(TOPIC, 1)
    assert log.last_stable_offset == log.end_offset
    assert list(log.read(0, isolation="read_committed")) == []
    assert [record.value for record in broker.store.partition(TOPIC, 0).read(0, isolation="read_committed")] == [
        b"done"
    ]
    new = broker.ask(22, 5, transactional_id=None, transaction_timeout_ms=0).producer_id
    assert new > max(state.producer_id for state in states.values())
    assert new % 1_000 == 0
    broker.close()
