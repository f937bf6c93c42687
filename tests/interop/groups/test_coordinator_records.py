"""Records that stop Kafka's coordinators: which they are, and that Kafka loads a directory that duralog has repaired.

Each case has a partition of its own, with a group or a transactional id before the record and one behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from duralog.broker.broker import Broker
from duralog.config import BrokerConfig
from duralog.format import record_batch
from duralog.format.batches import scan
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS
from duralog.format.record import Record
from duralog.storage.checks.verification import Verification
from duralog.storage.repair.repair import Repair
from duralog.storage.store import Store
from oracle.conformance.coordinators import wait_for_coordinators
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from tests.support.broker.coordinator_cases import (
    CASES,
    GROUP_CASES,
    TRANSACTION_CASES,
    Case,
    KeyAndValue,
    Verdict,
    name_in,
    offset_key,
    offset_value,
    transaction,
)
from tests.support.broker.raw_client import RawClient

pytestmark = pytest.mark.interop

OFFSET_FETCH, DESCRIBE_TRANSACTIONS = 9, 65
CONFIGS = {
    "offsets.topic.num.partitions": len(GROUP_CASES),
    "transaction.state.log.num.partitions": len(TRANSACTION_CASES),
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "offsets.topic.replication.factor": 1,
    "log.cleaner.enable": "false",
}
_SECONDS = 60
_PAUSE_SECONDS = 0.2


def place(case: Case) -> tuple[int, int]:
    """The partition of a case, and how many its topic has."""
    cases = GROUP_CASES if case.topic == CONSUMER_OFFSETS else TRANSACTION_CASES
    return cases.index(case), len(cases)


def write(path: Path) -> None:
    now_ms = int(time.time() * 1000)
    with Store(str(path)) as store:
        for case in CASES:
            number, count = place(case)
            before, name, behind = (name_in(number, count, prefix) for prefix in ("before", "case", "behind"))
            right: list[KeyAndValue]
            if case.topic == CONSUMER_OFFSETS:
                right = [(offset_key(each), offset_value()) for each in (before, behind)]
            else:
                right = [transaction(each, transaction_last_update_timestamp_ms=now_ms) for each in (before, behind)]
            log = store.partition(case.topic, number)
            for key, value in (right[0], case.make(name), right[1]):
                log.append([Record(key=key, value=value, timestamp_ms=now_ms)])


def spoil_metadata(path: Path) -> None:
    """With a record that ends inside of a topic's name: Kafka does not start on it."""
    *_, log = sorted((path / "__cluster_metadata-0").glob("*.log"))
    *_, last = scan(log.read_bytes())
    strange = [Record(value=b"\1\2\0\5ab", timestamp_ms=1), Record(value=b"", timestamp_ms=1)]
    with log.open("ab") as file:
        file.write(record_batch.encode(strange, base_offset=last.last_offset + 1, leader_epoch=last.leader_epoch))


def is_known(client: RawClient, topic: str, name: str) -> bool:
    if topic == CONSUMER_OFFSETS:
        asked = {"groups": [{"group_id": name, "topics": None}], "require_stable": False}
        return bool(client.ask(OFFSET_FETCH, 9, asked).groups[0].topics)
    found = client.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [name]}).transaction_states[0]
    return bool(found.error_code == 0)


def check_loaded(server: KafkaServer, expected: Callable[[Case], bool]) -> None:
    """Whether Kafka knows what is behind each record."""
    server.topics()
    deadline = time.monotonic() + _SECONDS
    with RawClient(*server.address) as client:

        def found(case: Case) -> bool:
            return is_known(client, case.topic, name_in(*place(case), "behind"))

        missing = [case for case in CASES if expected(case)]
        while missing and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
            missing = [case for case in missing if not found(case)]
        assert not missing
        assert [case.name for case in CASES if found(case) and not expected(case)] == []


def test_kafka_loads_what_is_repaired(kafka: KafkaProcess, tmp_path: Path) -> None:
    path = tmp_path / "data"
    format_directory(kafka, path)
    with Broker(str(path), config=BrokerConfig.of(CONFIGS)) as broker:
        broker.start()
        wait_for_coordinators(("127.0.0.1", broker.address.port))
    write(path)
    with KafkaServer(kafka, path, configs=CONFIGS) as server:
        check_loaded(server, lambda case: case.kafka_goes_on)

    spoil_metadata(path)
    assert [each.failure for each in Repair(str(path), topics=["__cluster_metadata"]).run()] == [None]
    repaired = list(Repair(str(path)).run())
    assert [str(each.partition) for each in repaired if each.left or each.failure] == []
    wrong = {f"{case.topic}-{place(case)[0]}" for case in CASES if case.verdict is Verdict.UNLOADABLE}
    assert {str(each.partition) for each in repaired if each.errors} == wrong
    verification = Verification(str(path))
    assert [error for report in verification.run() for error in report.errors] == []

    # Kafka stops at records of versions that it does not know. A later Kafka may need them, and they stay.
    with KafkaServer(kafka, path, configs=CONFIGS) as server:
        check_loaded(server, lambda case: case.kafka_goes_on or case.verdict is Verdict.UNLOADABLE)
