"""Kafka and duralog take turns on one directory that Kafka made, each stopped cleanly before the other starts.

Kafka, duralog, Kafka, duralog: each writes records of all codecs, transactions, batches of an idempotent producer, and
moves the start of a log. Each time the next one must answer every question as the last one did. One broker is started
for each of Kafka's turns, by the fixture `turns`; the tests look at what was seen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog import OutOfOrderSequence, ProducerFenced, Record
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.storage.log.writer import AppendResult
from oracle.dump_check import dump_complaints, partition_folders
from oracle.kafka_process import Json, KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from oracle.partition_view import PartitionView, as_consumed, seen_by_duralog, seen_by_kafka
from oracle.raw_produce import Produced

pytestmark = pytest.mark.interop

START_MS = int(time.time() * 1000) - 3_600_000
"""Of the records. Not long ago: producers are forgotten by the time of their records."""
TIMES = [START_MS + ms for ms in (-1, 0, 1, 999, 1000, 50_500, 100_000, 173_000, 220_001, 10**9)]
"""Before, on, between and after those of the records."""

BROKER = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
TOPICS = {
    "codecs": {},
    "transactions": {},
    "sequences": {},
    "trimmed": {},
    "rolled": {"segment.bytes": "1048576", "index.interval.bytes": "40000"},
}
CODECS = [codec.label for codec in Codec]
PRODUCER_ID = 7_000_001
INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER = 47, 45


def sample(first: int, count: int) -> list[Record]:
    """Records with numbers in them; every key, value and header that the format allows, and times out of order."""
    return [
        Record(
            key=(None, b"", b"key-%d" % number)[number % 3],
            value=(b"value %d" % number) * (1 + number % 7) if number % 11 else None,
            timestamp_ms=START_MS + 1000 * number - 3000 * (number % 4),
            headers=[("number", b"%d" % number), ("ä", None), ("ä", b"")][: number % 4],
        )
        for number in range(first, first + count)
    ]


def numbered(first: int, count: int) -> list[Record]:
    return [
        Record(value=b"%d" % number, timestamp_ms=START_MS + 1000 * number) for number in range(first, first + count)
    ]


def large(first: int, count: int) -> list[Record]:
    return [
        Record(value=b"%d-" % number * 9000, timestamp_ms=START_MS + 1000 * number)
        for number in range(first, first + count)
    ]


def batch(first: int, count: int, sequence: int, epoch: int = 0) -> bytes:
    """As an idempotent producer sends it."""
    return record_batch.encode(
        numbered(first, count), producer_id=PRODUCER_ID, producer_epoch=epoch, base_sequence=sequence
    )


def described(records: list[Record]) -> list[Json]:
    """For `KafkaServer.produce`."""
    return as_consumed(records)


def hexed(records: list[Record]) -> list[str | None]:
    return [None if record.value is None else record.value.hex() for record in records]


def values(first: int, count: int) -> list[str | None]:
    return hexed(numbered(first, count))


Views = dict[str, PartitionView]


@dataclass
class Turns:
    """What was seen, in the order of the fields."""

    directory: Path
    kafka_wrote: Views = field(default_factory=dict)
    duralog_found: Views = field(default_factory=dict)
    duralog_answers: list[AppendResult | type[Exception]] = field(default_factory=list)
    duralog_wrote: Views = field(default_factory=dict)
    dump_after_duralog: list[str] = field(default_factory=list)
    kafka_found: Views = field(default_factory=dict)
    kafka_answers: list[Produced] = field(default_factory=list)
    kafka_wrote_again: Views = field(default_factory=dict)
    kafka_topics: Json = field(default_factory=dict)
    kafka_errors: list[str] = field(default_factory=list)
    duralog_found_again: Views = field(default_factory=dict)
    duralog_topics: Json = field(default_factory=dict)
    transaction_decided: PartitionView | None = None


def views_of_kafka(server: KafkaServer) -> Views:
    return {topic: seen_by_kafka(server, topic, times=TIMES) for topic in TOPICS}


def views_of_duralog(store: duralog.Store) -> Views:
    return {topic: seen_by_duralog(store.partition(topic, 0), times=TIMES) for topic in TOPICS}


def kafka_first(server: KafkaServer, turns: Turns) -> None:
    for topic, configs in TOPICS.items():
        server.create_topic(topic, 1, configs)
    for turn, codec in enumerate(CODECS):
        server.produce("codecs", 0, described(sample(20 * turn, 20)), {"compression.type": codec})
    server.produce("transactions", 0, described(numbered(0, 3)))
    for first, end in ((10, "commit"), (20, "abort"), (30, "commit")):
        server.produce("transactions", 0, described(numbered(first, 2)), {"transactional.id": "t"}, transaction=end)
    for number in range(2):
        assert server.produce_batch("sequences", 0, batch(5 * number, 5, sequence=5 * number)).error_code == 0
    server.produce("trimmed", 0, described(numbered(0, 100)), {"batch.size": "200"})
    assert server.delete_records("trimmed", 0, 30) == 30
    server.produce("rolled", 0, described(large(0, 100)))
    turns.kafka_wrote = views_of_kafka(server)


def duralog_first(store: duralog.Store, turns: Turns) -> None:
    turns.duralog_found = views_of_duralog(store)
    codecs = store.partition("codecs", 0)
    for turn, codec in enumerate(CODECS, start=5):
        codecs.append(sample(20 * turn, 20), codec=codec)

    transactions = store.partition("transactions", 0)
    for producer_id, (first, commit) in enumerate(((40, True), (50, False)), start=900_001):
        transaction: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 3, "is_transactional": True}
        transactions.append(numbered(first, 2), base_sequence=0, **transaction)
        transactions.append(numbered(first + 2, 2), base_sequence=2, **transaction)
        transactions.end_transaction(producer_id, 3, commit=commit, coordinator_epoch=1)
    open_one: dict[str, Any] = {"producer_id": 900_003, "producer_epoch": 0, "is_transactional": True}
    transactions.append(numbered(60, 2), base_sequence=0, **open_one)

    sequences = store.partition("sequences", 0)
    for data in (
        batch(5, 5, sequence=5),
        batch(0, 5, sequence=0),
        batch(10, 5, sequence=10),
        batch(20, 5, sequence=0, epoch=1),
        batch(30, 5, sequence=15),
        batch(30, 5, sequence=7, epoch=1),
    ):
        try:
            turns.duralog_answers.append(sequences.append_batches(bytearray(data)))
        except duralog.DuralogError as error:
            turns.duralog_answers.append(type(error))

    trimmed = store.partition("trimmed", 0)
    trimmed.append(numbered(100, 50))
    assert trimmed.delete_records(60) == 60
    for record in large(100, 100):
        store.partition("rolled", 0).append([record])
    store.create_topic("duralogs", 1, {"max.message.bytes": 700_000})
    store.partition("duralogs", 0).append(numbered(0, 10))
    turns.duralog_wrote = views_of_duralog(store)


def kafka_second(server: KafkaServer, turns: Turns) -> None:
    turns.kafka_topics = server.topics()
    turns.kafka_found = views_of_kafka(server)
    for turn, codec in enumerate(CODECS, start=10):
        server.produce("codecs", 0, described(sample(20 * turn, 20)), {"compression.type": codec})
    server.produce("transactions", 0, described(numbered(70, 2)))
    turns.kafka_answers = [
        server.produce_batch("sequences", 0, data)
        for data in (
            batch(20, 5, sequence=0, epoch=1),
            batch(10, 5, sequence=10),
            batch(30, 5, sequence=7, epoch=1),
            batch(30, 5, sequence=5, epoch=1),
        )
    ]
    assert server.delete_records("trimmed", 0, 80) == 80
    server.produce("rolled", 0, described(large(200, 20)))
    turns.kafka_wrote_again = views_of_kafka(server)
    refused = "Error processing append operation"
    turns.kafka_errors = [line for line in server.errors if not ("sequences-0" in line and refused in line)]


@pytest.fixture(scope="module")
def turns(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Turns:
    directory = tmp_path_factory.mktemp("turns") / "store"
    turns = Turns(directory)
    format_directory(kafka, directory)
    with KafkaServer(kafka, directory, configs=BROKER) as server:
        kafka_first(server, turns)
    with duralog.open(directory) as store:
        duralog_first(store, turns)
    turns.dump_after_duralog = dump_complaints(kafka, directory)
    with KafkaServer(kafka, directory, configs=BROKER) as server:
        kafka_second(server, turns)
    with duralog.open(directory, read_only=True) as store:
        turns.duralog_found_again = views_of_duralog(store)
        turns.duralog_topics = {
            name: {
                "id": store.topic_id(name),
                "partitions": len(store.partitions(name)),
                "configs": store.topic_overrides(name),
            }
            for name in store.topics()
        }
    with duralog.open(directory) as store:
        log = store.partition("transactions", 0)
        log.end_transaction(900_003, 0, commit=True)
        turns.transaction_decided = seen_by_duralog(log)
    return turns


@pytest.mark.parametrize("topic", TOPICS)
class TestNothingChangesWithTheHands:
    def test_from_kafka_to_duralog(self, turns: Turns, topic: str) -> None:
        assert turns.duralog_found[topic] == turns.kafka_wrote[topic]

    def test_from_duralog_to_kafka(self, turns: Turns, topic: str) -> None:
        assert turns.kafka_found[topic] == turns.duralog_wrote[topic]

    def test_from_kafka_to_duralog_again(self, turns: Turns, topic: str) -> None:
        assert turns.duralog_found_again[topic] == turns.kafka_wrote_again[topic]


def test_every_record_of_every_codec(turns: Turns) -> None:
    """Guards the tests above, which two empty logs would pass."""
    view = turns.kafka_wrote_again["codecs"]
    expected = as_consumed(sample(0, 300))
    assert [{**one, "offset": offset, "timestamp_type": "CreateTime"} for offset, one in enumerate(expected)] == list(
        view.records
    )
    assert view.committed == view.records


def test_transactions(turns: Turns) -> None:
    view = turns.kafka_wrote_again["transactions"]
    decided = values(0, 3) + values(10, 2) + values(30, 2) + values(40, 4)
    assert view.committed_values == decided
    everything = values(0, 3) + values(10, 2) + values(20, 2) + values(30, 2) + values(40, 4) + values(50, 4)
    assert view.values == everything + values(60, 2) + values(70, 2)
    # Five transactions were decided, each by a marker.
    assert view.last_stable_offset == len(everything) + 5
    assert view.producers[900_001] == {
        "epoch": 3,
        "last_sequence": 3,
        "last_timestamp": view.producers[900_001]["last_timestamp"],
        "coordinator_epoch": 1,
        "transaction_start": -1,
    }
    assert view.producers[900_003]["transaction_start"] == view.last_stable_offset
    assert turns.transaction_decided is not None
    assert turns.transaction_decided.committed_values == decided + values(60, 2) + values(70, 2)


def test_an_idempotent_producer_is_known_to_the_other_side(turns: Turns) -> None:
    duplicate, *answers = turns.duralog_answers
    assert isinstance(duplicate, AppendResult)
    assert duplicate.duplicate
    assert (duplicate.base_offset, duplicate.last_offset) == (5, 9)
    # What stood before the last batch was forgotten with the stop, as Kafka forgets it.
    assert answers == [
        OutOfOrderSequence,
        AppendResult(10, 14, -1),
        AppendResult(15, 19, -1),
        ProducerFenced,
        OutOfOrderSequence,
    ]
    duplicate_of_duralogs, fenced, out_of_order, appended = turns.kafka_answers
    assert (duplicate_of_duralogs.error_code, duplicate_of_duralogs.base_offset) == (0, 15)
    assert fenced.error_code == INVALID_PRODUCER_EPOCH
    assert out_of_order.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (appended.error_code, appended.base_offset) == (0, 20)
    assert turns.kafka_wrote_again["sequences"].values == values(0, 15) + values(20, 5) + values(30, 5)


def test_start_offsets(turns: Turns) -> None:
    starts = [
        views["trimmed"].start_offset for views in (turns.duralog_found, turns.kafka_found, turns.duralog_found_again)
    ]
    assert starts == [30, 60, 80]
    assert turns.duralog_found_again["trimmed"].values == values(80, 70)


def test_offsets_by_time(turns: Turns) -> None:
    answers = {answer["asked"]: answer["offset"] for answer in turns.kafka_found["rolled"].times}
    assert [answers[time_ms] for time_ms in TIMES] == [0, 0, 1, 1, 1, 51, 100, 173, -1, -1]
    assert answers["max_timestamp"] == 199
    epochs = {answer["leader_epoch"] for answer in turns.kafka_wrote_again["rolled"].times}
    # Kafka wrote as a new leader after its second start.
    assert len(epochs - {None, -1}) > 1


def test_segments_were_rolled_by_both(turns: Turns) -> None:
    folder = turns.directory / "rolled-0"
    bases = [int(path.stem) for path in sorted(folder.glob("*.log"))]
    assert len([base for base in bases if base < 100]) > 2
    assert len([base for base in bases if 100 < base < 200]) > 2


def test_topics_and_their_configs(turns: Turns) -> None:
    own = turns.kafka_topics
    assert {name: own[name]["configs"] for name in (*TOPICS, "duralogs")} == TOPICS | {
        "duralogs": {"max.message.bytes": "700000"}
    }
    assert turns.duralog_topics.keys() == own.keys() | {"__transaction_state"}
    assert {name: turns.duralog_topics[name] for name in own} == own


def test_kafka_had_nothing_to_complain_of(turns: Turns) -> None:
    assert turns.kafka_errors == []
    assert turns.dump_after_duralog == []
    assert len(partition_folders(turns.directory)) >= len(TOPICS) + 3
