"""A process is killed in the middle of its work, and the other side recovers the directory.

First Kafka's broker, whose directory duralog recovers; then a process of duralog that appends as fast as it can, whose
directory is recovered by Kafka, and a copy of it by duralog. Each time half a batch is left behind, too, as if the
machine had stopped while it was written.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import duralog
from duralog import Record
from duralog.format import record_batch
from duralog.format.filenames import CLEAN_SHUTDOWN
from duralog.storage.recovery.quarantine import QUARANTINE_FOLDER
from oracle.dump_check import dump_complaints
from oracle.kafka_process import Json, KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from oracle.partition_view import PartitionView, seen_by_duralog, seen_by_kafka

pytestmark = pytest.mark.interop

START_MS = int(time.time() * 1000) - 3_600_000
TIMES = [START_MS, START_MS + 333, START_MS + 2000, START_MS + 10**9]
BROKER = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
}
AFTER_A_CRASH = {
    # So long a broker waits until its former self counts as gone.
    "broker.session.timeout.ms": 2500,
    "broker.heartbeat.interval.ms": 500,
}
TOPICS = {"plain": {"segment.bytes": "1048576"}, "transactions": {}}
KAFKAS_RECORDS = 150
APPENDS_BEFORE_THE_KILL = 400

APPENDING = """
import json, sys
import duralog

directory, start_ms = sys.argv[1], int(sys.argv[2])
store = duralog.open(directory)
plain, transactions = store.partition("plain", 0), store.partition("transactions", 0)
producer = {"producer_id": 900_001, "producer_epoch": 0}
for number in range(1_000_000):
    record = duralog.Record(value=b"duralog %d " % number * 500, timestamp_ms=start_ms + 1000 + number)
    result = plain.append([record], codec=(None, "lz4", "zstd")[number % 3], base_sequence=number, **producer)
    print(json.dumps(["plain", number, result.base_offset]), flush=True)
    record = duralog.Record(value=b"duralog %d" % number, timestamp_ms=start_ms + 1000 + number)
    result = transactions.append([record], base_sequence=number, is_transactional=True, **producer)
    print(json.dumps(["transactions", number, result.base_offset]), flush=True)
    if number % 5 == 4:
        transactions.end_transaction(900_001, 0, commit=number % 10 == 9)
    if number % 50 == 49:
        plain.flush()
        transactions.flush()
"""


@dataclass
class Crashes:
    directory: Path
    before_the_first: dict[str, PartitionView] = field(default_factory=dict)
    recovered_by_duralog: dict[str, PartitionView] = field(default_factory=dict)
    quarantined: bytes = b""
    acknowledged: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Number and offset of the appends that the killed process got an answer to."""
    recovered_by_kafka: dict[str, PartitionView] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    copy_recovered_by_duralog: dict[str, PartitionView] = field(default_factory=dict)
    dump_of_the_copy: list[str] = field(default_factory=list)
    left_by_kafka: dict[str, PartitionView] = field(default_factory=dict)


def views_of_kafka(server: KafkaServer) -> dict[str, PartitionView]:
    return {topic: seen_by_kafka(server, topic, times=TIMES) for topic in TOPICS}


def views_of_duralog(store: duralog.Store) -> dict[str, PartitionView]:
    return {topic: seen_by_duralog(store.partition(topic, 0), times=TIMES) for topic in TOPICS}


def kafkas(first: int, count: int, size: int = 1) -> list[Json]:
    return [
        {"key": None, "value": (b"Kafka %d " % number * size).hex(), "timestamp": START_MS + number}
        for number in range(first, first + count)
    ]


def half_a_batch(next_offset: int) -> bytes:
    whole = record_batch.encode([Record(value=b"never finished" * 20, timestamp_ms=1)], base_offset=next_offset)
    return whole[: len(whole) // 2]


def tear(directory: Path, next_offset: int) -> None:
    """Half of a batch that follows the last one."""
    newest = max((directory / "plain-0").glob("*.log"))
    with newest.open("ab") as log:
        log.write(half_a_batch(next_offset))


def run_kafka_and_kill_it(kafka: KafkaProcess, crashes: Crashes) -> None:
    with KafkaServer(kafka, crashes.directory, configs=BROKER) as server:
        for topic, configs in TOPICS.items():
            server.create_topic(topic, 1, configs)
        server.produce("plain", 0, kafkas(0, KAFKAS_RECORDS, size=2000))
        # Not so long a time passes until Kafka would end it by itself, which is after a minute otherwise.
        transactional = {"transactional.id": "t", "transaction.timeout.ms": "900000"}
        for first, end in ((0, "commit"), (10, "abort"), (20, "open")):
            server.produce("transactions", 0, kafkas(first, 3), transactional, transaction=end)
            server.produce("transactions", 0, kafkas(first + 5, 2))
        crashes.before_the_first = views_of_kafka(server)
        server.kill()


def run_duralog_and_kill_it(crashes: Crashes) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", APPENDING, str(crashes.directory), str(START_MS)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            topic, number, offset = json.loads(line)
            crashes.acknowledged.setdefault(topic, []).append((number, offset))
            if number == APPENDS_BEFORE_THE_KILL:
                break
    finally:
        process.kill()
        # What it had answered by then counts, too.
        rest, _ = process.communicate()
    for line in rest.splitlines(keepends=True):
        if line.endswith("\n"):
            topic, number, offset = json.loads(line)
            crashes.acknowledged[topic].append((number, offset))


@pytest.fixture(scope="module")
def crashes(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Crashes:
    folder = tmp_path_factory.mktemp("crashes")
    crashes = Crashes(folder / "store")
    format_directory(kafka, crashes.directory)
    run_kafka_and_kill_it(kafka, crashes)
    tear(crashes.directory, crashes.before_the_first["plain"].end_offset)
    assert not (crashes.directory / CLEAN_SHUTDOWN).exists()
    with duralog.open(crashes.directory) as store:
        crashes.recovered_by_duralog = views_of_duralog(store)
    (quarantined,) = (crashes.directory / "plain-0" / QUARANTINE_FOLDER).glob("*.bytes")
    crashes.quarantined = quarantined.read_bytes()

    run_duralog_and_kill_it(crashes)
    assert not (crashes.directory / CLEAN_SHUTDOWN).exists()
    with duralog.open(crashes.directory, read_only=True) as store:
        tear(crashes.directory, store.partition("plain", 0).end_offset)
    copy = folder / "copy"
    shutil.copytree(crashes.directory, copy)
    with KafkaServer(kafka, crashes.directory, configs=BROKER | AFTER_A_CRASH) as server:
        crashes.recovered_by_kafka = views_of_kafka(server)
        assert isinstance(server.produce("plain", 0, kafkas(1000, 1))[0], int)
        crashes.left_by_kafka = views_of_kafka(server)
        crashes.errors = server.errors
    with duralog.open(copy) as store:
        crashes.copy_recovered_by_duralog = views_of_duralog(store)
    crashes.dump_of_the_copy = dump_complaints(kafka, copy)
    return crashes


@pytest.mark.parametrize("topic", TOPICS)
def test_duralog_recovers_what_a_killed_broker_left(crashes: Crashes, topic: str) -> None:
    assert crashes.recovered_by_duralog[topic] == crashes.before_the_first[topic]


def test_half_a_batch_goes_to_quarantine(crashes: Crashes) -> None:
    assert crashes.quarantined == half_a_batch(crashes.before_the_first["plain"].end_offset)


def test_an_open_transaction_stays_open(crashes: Crashes) -> None:
    view = crashes.recovered_by_duralog["transactions"]
    (producer,) = (one for one in view.producers.values() if one["transaction_start"] != -1)
    assert producer["transaction_start"] == view.last_stable_offset
    assert view.end_offset == view.last_stable_offset + 5
    assert len(view.committed) == 3 + 2 + 2


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_recovers_what_a_killed_duralog_left(crashes: Crashes, topic: str) -> None:
    found = {record["offset"]: record["value"] for record in crashes.recovered_by_kafka[topic].records}
    answered = crashes.acknowledged[topic]
    assert len(answered) >= APPENDS_BEFORE_THE_KILL
    for number, offset in answered:
        assert bytes.fromhex(found[offset]).startswith(b"duralog %d" % number)
    assert crashes.recovered_by_kafka[topic].records[: len(crashes.before_the_first[topic].records)] == list(
        crashes.before_the_first[topic].records
    )


@pytest.mark.parametrize("topic", TOPICS)
def test_both_recover_the_same(crashes: Crashes, topic: str) -> None:
    assert crashes.copy_recovered_by_duralog[topic] == crashes.recovered_by_kafka[topic]


@pytest.mark.parametrize("topic", TOPICS)
def test_duralog_reads_on_after_kafkas_recovery(crashes: Crashes, topic: str) -> None:
    with duralog.open(crashes.directory, read_only=True) as store:
        assert seen_by_duralog(store.partition(topic, 0), times=TIMES) == crashes.left_by_kafka[topic]


def test_several_segments_were_recovered(crashes: Crashes) -> None:
    assert len(list((crashes.directory / "plain-0").glob("*.log"))) > 3


def test_kafka_had_nothing_to_complain_of(crashes: Crashes) -> None:
    assert crashes.errors == []
    assert crashes.dump_of_the_copy == []
