"""Records in the coordinators' topics that no coordinator can load: refused where clients write them, skipped at start.

Clients speak to a real broker, which is stopped and started. What they may not write comes by way of the store.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.metrics import BrokerCollector, MeasuredParts
from duralog.broker.topics.coordinator_log import read_log
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.broker.wire.error_codes import (
    INVALID_RECORD,
    INVALID_TOPIC_EXCEPTION,
    NOT_COORDINATOR,
    RECORD_LIST_TOO_LARGE,
)
from duralog.config import BrokerConfig
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.record import Record
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.store import Store
from tests.support.broker.coordinator_cases import (
    CASES,
    GROUP_CASES,
    TRANSACTION_CASES,
    Case,
    KeyAndValue,
    Verdict,
    classic,
    consumer_epoch,
    group_record,
    member,
    name_in,
    offset_key,
    offset_value,
    transaction,
)
from tests.support.broker.raw_client import RawClient

PRODUCE, COMMIT, FETCH, FIND, DESCRIBE, LIST, CREATE, INIT, DESCRIBE_TRANSACTIONS = 0, 8, 9, 10, 15, 16, 19, 22, 65
ADMIN = "__admin_client"
PARTITIONS = 3
CONFIGS = {
    "offsets.topic.num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.enable": False,
}
KINDS = {CONSUMER_OFFSETS: 0, TRANSACTION_STATE: 1}


@contextmanager
def started(path: Path) -> Iterator[tuple[Broker, RawClient]]:
    broker = Broker(str(path), config=BrokerConfig.of(CONFIGS)).open().start()
    try:
        with RawClient("127.0.0.1", broker.address.port) as client:
            yield broker, client
    finally:
        broker.stop()


def metric(broker: Broker, name: str) -> dict[tuple[str, ...], float]:
    """The samples by the values of their labels."""
    parts = MeasuredParts(
        broker.runtime, broker.server, broker.fetches, broker.groups, broker.transactions, is_stopping=lambda: False
    )
    (found,) = [family for family in BrokerCollector(parts).collect() if family.name == name]
    return {tuple(sample.labels.values()): sample.value for sample in found.samples}


def skipped(broker: Broker) -> dict[tuple[str, ...], float]:
    return metric(broker, "duralog_skipped_coordinator_records")


def find_coordinators(client: RawClient) -> None:
    """So that the topics are there."""
    for kind in KINDS.values():
        answer = client.ask(FIND, 4, {"key_type": kind, "coordinator_keys": ["any"]})
        assert answer.coordinators[0].error_code == 0


def commit(client: RawClient, group: str, offset: int, partition: int = 0) -> int:
    partitions = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
    ]
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": partitions}],
    }
    code: int = client.ask(COMMIT, 9, fields).topics[0].partitions[0].error_code
    return code


def committed(client: RawClient, group: str) -> dict[tuple[str, int], int] | int:
    """The offsets of a group, or why there are none."""
    answer = client.ask(FETCH, 9, {"groups": [{"group_id": group, "topics": None}], "require_stable": False}).groups[0]
    if answer.error_code:
        code: int = answer.error_code
        return code
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


def init(client: RawClient, transactional_id: str) -> int:
    code: int = client.ask(INIT, 5, {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}).error_code
    return code


def state(client: RawClient, transactional_id: str) -> tuple[int, str]:
    found = client.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]}).transaction_states[0]
    return found.error_code, found.transaction_state


def batch(*records: KeyAndValue, **options: Any) -> bytes:
    return record_batch.encode(
        [Record(key=key, value=value, timestamp_ms=1_794_000_000_000) for key, value in records], **options
    )


def produce(client: RawClient, topic: str, number: int, content: bytes, *, client_id: str = ADMIN) -> Any:
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": [{"index": number, "records": content}]}],
    }
    return client.ask(PRODUCE, 9, fields, client_id=client_id).responses[0].partition_responses[0]


GROUPS = [name_in(number, PARTITIONS, "kept") for number in range(PARTITIONS)]
"""One in each partition."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    with started(tmp_path_factory.mktemp("serving") / "data") as (_, client):
        find_coordinators(client)
        yield client


# Produce


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.topic} {case.name}")
def test_clients_write_what_coordinators_can_load(client: RawClient, case: Case) -> None:
    answer = produce(client, case.topic, 0, batch(case.make("g")))
    assert answer.error_code == (0 if case.is_accepted else INVALID_RECORD)
    if not case.is_accepted:
        ((place, text),) = [(error.batch_index, error.batch_index_error_message) for error in answer.record_errors]
        assert place == 0
        assert text.startswith("No coordinator can load the record: ")
        assert "One or more records have been rejected" in answer.error_message


def test_only_tools_of_kafka_write_to_internal_topics(client: RawClient) -> None:
    right = batch((offset_key("g"), offset_value()))
    assert produce(client, CONSUMER_OFFSETS, 0, right, client_id="any").error_code == INVALID_TOPIC_EXCEPTION
    assert produce(client, CONSUMER_OFFSETS, 0, right).error_code == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_is_refused_whole_and_each_wrong_record_named(client: RawClient, codec: Codec) -> None:
    before = produce(client, CONSUMER_OFFSETS, 0, batch((offset_key("g"), offset_value()))).base_offset
    right = offset_key("g"), offset_value()
    refused = produce(client, CONSUMER_OFFSETS, 0, batch(right, (b"\0\1x", b""), right, (b"", b""), codec=codec))
    assert refused.error_code == INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    assert produce(client, CONSUMER_OFFSETS, 0, batch(right)).base_offset == before + 1


def test_only_the_first_wrong_records_are_named(client: RawClient) -> None:
    refused = produce(client, CONSUMER_OFFSETS, 0, batch(*[(b"\0", b"")] * 5_000))
    assert (refused.error_code, len(refused.record_errors)) == (INVALID_RECORD, 100)


def test_what_unpacks_to_far_more_than_a_coordinator_writes_is_refused(client: RawClient) -> None:
    large = offset_key("g"), offset_value() + bytes(1 << 20)
    refused = produce(client, CONSUMER_OFFSETS, 0, batch(large, codec=Codec.GZIP))
    assert refused.error_code == INVALID_RECORD
    assert "larger than max.message.bytes" in refused.error_message
    huge = offset_key("g"), bytes(5 << 20)
    assert produce(client, CONSUMER_OFFSETS, 0, batch(huge, codec=Codec.GZIP)).error_code == RECORD_LIST_TOO_LARGE


def test_a_batch_that_is_none_is_refused_as_anywhere(client: RawClient) -> None:
    cut = bytearray(batch((offset_key("g"), offset_value()))[:40])
    struct.pack_into(">i", cut, 8, 28)
    assert produce(client, CONSUMER_OFFSETS, 0, bytes(cut)).error_code == 2
    flipped = bytearray(batch((offset_key("g"), offset_value())))
    flipped[-1] ^= 1
    assert produce(client, CONSUMER_OFFSETS, 0, bytes(flipped)).error_code == 2


# Loading


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory with a group and a transactional id in each partition, not open in any process."""
    with started(tmp_path / "data") as (_, client):
        find_coordinators(client)
        topic = {"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        client.ask(CREATE, 5, {"topics": [topic], "timeout": 20_000, "validate_only": False})
        for number, group in enumerate(GROUPS):
            assert commit(client, group, number) == 0
            assert init(client, group) == 0
    return tmp_path / "data"


def append(path: Path, topic: str, number: int, *records: KeyAndValue) -> int:
    """As a tool that writes to the files would."""
    with Store(str(path)) as store:
        content = [Record(key=key, value=value, timestamp_ms=1_794_000_000_000) for key, value in records]
        return store.partition(topic, number).append(content).base_offset


def check_all_served(client: RawClient) -> None:
    for number, group in enumerate(GROUPS):
        assert committed(client, group) == {("t", 0): number}
        assert commit(client, group, number) == 0
        assert init(client, group) == 0


def test_one_record_does_not_stop_a_coordinator(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with started(path) as (broker, client):
        for topic in KINDS:
            for number in range(PARTITIONS):
                assert produce(client, topic, number, batch((b"\0\0x", b"\0\0"))).error_code == INVALID_RECORD
    offset = append(path, CONSUMER_OFFSETS, 1, (b"\0\0x", b"\0\0"))
    append(path, TRANSACTION_STATE, 1, (b"\0\0x", b"\0\0"))
    with started(path) as (broker, client):
        check_all_served(client)
        assert len(client.ask(LIST, 5, {"states_filter": [], "types_filter": []}).groups) == PARTITIONS
        counted = skipped(broker)
    assert f"{CONSUMER_OFFSETS}-1: the record at offset {offset} is skipped: " in caplog.text
    assert f"{TRANSACTION_STATE}-1: the record at offset" in caplog.text
    assert counted == {
        (CONSUMER_OFFSETS, "unloadable"): 1,
        (CONSUMER_OFFSETS, "unknown"): 0,
        (TRANSACTION_STATE, "unloadable"): 1,
        (TRANSACTION_STATE, "unknown"): 0,
    }


def test_all_records_that_can_be_wrong_at_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of those of each kind, the lines are few, and the metrics count them all."""
    for number in range(PARTITIONS):
        name = name_in(number, PARTITIONS, "case")
        for cases in (GROUP_CASES, TRANSACTION_CASES):
            wrong = [case.make(name) for case in cases if case.verdict is not Verdict.LOADED]
            append(path, cases[0].topic, number, *wrong)
    with started(path) as (broker, client):
        check_all_served(client)
        counted = skipped(broker)
    lines = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert len(lines) == 2 * PARTITIONS * 4
    assert sum("more records skipped; duralog verify counts them" in line for line in lines) == 2 * PARTITIONS
    for topic, cases in ((CONSUMER_OFFSETS, GROUP_CASES), (TRANSACTION_STATE, TRANSACTION_CASES)):
        for kind, verdict in (("unloadable", Verdict.UNLOADABLE), ("unknown", Verdict.UNKNOWN)):
            assert counted[topic, kind] == PARTITIONS * sum(case.verdict is verdict for case in cases)


@pytest.mark.parametrize("cases", [GROUP_CASES, TRANSACTION_CASES], ids=[CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_strange_records_that_can_be_loaded_have_no_effect(path: Path, cases: tuple[Case, ...]) -> None:
    for place, case in enumerate(cases):
        if case.verdict is Verdict.LOADED:
            number = place % PARTITIONS
            append(path, case.topic, number, case.make(name_in(number, PARTITIONS, f"case{place}-")))
    for _ in range(2):
        with started(path) as (_, client):
            check_all_served(client)
            for place, _ in enumerate(cases):
                name = name_in(place % PARTITIONS, PARTITIONS, f"case{place}-")
                assert commit(client, name, 5, partition=1) in (0, 24, 25, 69)
                assert client.ask(DESCRIBE, 5, {"groups": [name], "include_authorized_operations": False})
                assert init(client, name) in (0, 51)
                assert state(client, name)[0] == 0


def test_what_was_committed_before_a_wrong_record_of_the_same_key_counts(path: Path) -> None:
    """It was never in force: a coordinator wrote the previous one, which clients have seen."""
    append(path, CONSUMER_OFFSETS, 0, (offset_key(GROUPS[0], "t", 0), b"\0\4cut"))
    append(path, CONSUMER_OFFSETS, 0, (offset_key(GROUPS[0], "t", 0), b"\0\5" + offset_value(99)[2:]))
    append(path, TRANSACTION_STATE, 0, (transaction(GROUPS[0])[0], b"\0\1cut"))
    append(path, TRANSACTION_STATE, 0, (transaction(GROUPS[0])[0], b"\0\2later"))
    with started(path) as (_, client):
        assert committed(client, GROUPS[0]) == {("t", 0): 0}
        assert state(client, GROUPS[0]) == (0, "Empty")


def test_misfit_records_are_counted_and_a_few_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = name_in(0, PARTITIONS, "classic")
    share = group_record(11, {"group_id": name}, {"epoch": 3, "metadata_hash": 0})
    append(path, CONSUMER_OFFSETS, 0, classic(name, member()), consumer_epoch(name), share)
    with started(path) as (broker, client):
        check_all_served(client)
        found = client.ask(LIST, 5, {"states_filter": [], "types_filter": []}).groups
        assert {group.group_id: group.group_type for group in found}[name] == "classic"
        assert skipped(broker)[CONSUMER_OFFSETS, "unloadable"] == 2
    assert f"group {name} is a classic group, which has no ConsumerGroupMetadata records" in caplog.text
    assert f"group {name} is a classic group, which has no ShareGroupMetadata records" in caplog.text


def test_control_batches_that_end_no_transaction(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of an unknown type, and one whose key is too short to have a type."""
    with Store(str(path)) as store:
        for topic in KINDS:
            log = store.partition(topic, 0)
            for key in (b"\0\0\0\x63", b"\0"):
                control = batch(
                    (key, b"\0\0"),
                    base_offset=log.end_offset,
                    is_control=True,
                    is_transactional=True,
                    producer_id=7,
                    producer_epoch=0,
                )
                log.append_batches(bytearray(control), origin=AppendOrigin.AS_IS)
            assert len(list(read_log(log))) == 1
    with started(path) as (_, client):
        check_all_served(client)
    assert caplog.text.count("is skipped: ") == 2


@pytest.mark.parametrize("topic", KINDS)
def test_a_damaged_batch_stops_its_partition_and_no_other(
    path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What it held is not known: with the offsets from before it, consumers would go back."""
    log = path / f"{topic}-1" / "00000000000000000000.log"
    append(path, topic, 1, (offset_key("more"), offset_value()) if topic == CONSUMER_OFFSETS else transaction("more"))
    damaged = bytearray(log.read_bytes())
    damaged[61 + 5] ^= 1
    log.write_bytes(damaged)
    with started(path) as (broker, client):
        for number, group in enumerate(GROUPS):
            is_hurt = number == 1
            if topic == CONSUMER_OFFSETS:
                assert committed(client, group) == (NOT_COORDINATOR if is_hurt else {("t", 0): number})
                assert commit(client, group, 9) == (NOT_COORDINATOR if is_hurt else 0)
            else:
                assert init(client, group) == (NOT_COORDINATOR if is_hurt else 0)
        unloaded = metric(broker, "duralog_unloaded_coordinator_partitions")
    assert unloaded == {(CONSUMER_OFFSETS,): 0, (TRANSACTION_STATE,): 0, (topic,): 1}
    (line,) = [record.getMessage() for record in caplog.records if "cannot be loaded" in record.getMessage()]
    assert "wrong checksum" in line
    assert f"duralog repair --dry-run DIR --topic {topic} --partition 1" in line
    assert os.path.getsize(log) == len(damaged)
