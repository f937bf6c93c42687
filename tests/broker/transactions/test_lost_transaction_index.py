"""A broker on a directory whose transaction indexes are gone: consumers of committed records get no aborted ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import duralog
from duralog.broker.broker import Broker
from duralog.broker.fetch import reading as fetch_reading
from duralog.config import BrokerConfig
from duralog.errors import StorageError
from duralog.storage.log import reading
from tests.broker.conftest import QUICK
from tests.support.broker.raw_client import RawClient
from tests.support.storage.transaction_history import CONFIG, lose_indexes, remove, write_history

FETCH = 1
PATIENCE = 600
"""Polls of a tenth of a second that bring nothing, until the test gives up."""


@pytest.fixture
def directory(tmp_path: Path) -> tuple[Path, list[bytes], int]:
    """With indexes removed; what was committed; where the log ends."""
    with duralog.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        values = write_history(log, seed=5, steps=300)
        end_offset = log.end_offset
    lose_indexes(tmp_path / "t-0", remove)
    return tmp_path, values, end_offset


@pytest.fixture
def served(directory: tuple[Path, list[bytes], int]) -> Iterator[Broker]:
    with Broker(str(directory[0]), config=BrokerConfig.of({**CONFIG, **QUICK})) as broker:
        yield broker.start()


def consume(broker: Broker, end_offset: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.address.port}",
            "group.id": "g",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "max.partition.fetch.bytes": 2000,
            "log_level": 2,
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        values: list[bytes] = []
        for _ in range(PATIENCE):
            for message in consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    values.append(message.value() or b"")
                elif (message.offset() or 0) >= end_offset:
                    return values
        raise AssertionError("the end never comes")
    finally:
        consumer.close()


def test_a_consumer_sees_what_was_committed(
    directory: tuple[Path, list[bytes], int], served: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned_by: set[str] = set()
    scan_slice = reading.scan_slice

    def note_thread(*arguments: Any, **options: Any) -> None:
        scanned_by.add(threading.current_thread().name)
        scan_slice(*arguments, **options)

    monkeypatch.setattr(fetch_reading, "scan_slice", note_thread)
    _, values, end_offset = directory
    assert consume(served, end_offset) == values
    assert scanned_by
    assert all(name.startswith("duralog-worker") for name in scanned_by)
    scanned_by.clear()
    assert consume(served, end_offset) == values
    assert not scanned_by


def fetch(client: RawClient, *, isolation_level: int) -> Any:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    fields = {
        "replica_id": -1,
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": isolation_level,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    answer = client.ask(FETCH, 11, fields)
    return answer.responses[0].partitions[0]


def test_a_log_that_cannot_be_scanned_is_an_error_of_its_partition(
    served: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is broken")

    monkeypatch.setattr(fetch_reading, "scan_slice", fail)
    client = RawClient("127.0.0.1", served.address.port)
    try:
        committed, all_of_it = (fetch(client, isolation_level=level) for level in (1, 0))
    finally:
        client.close()
    assert committed.error_code == 56
    assert all_of_it.error_code == 0
    assert all_of_it.records
