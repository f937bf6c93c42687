"""Kafka and duralog take turns at compacting one directory.

duralog writes and compacts; a broker starts on that, serves it, gets new records, and its own cleaner goes on from
duralog's checkpoint; then duralog opens the directory and goes on from Kafka's. Whatever was removed when, a reader
from the start gets the last value of every key, and none that was deleted. One broker is started, by the fixture
`turns`.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog import Record
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from oracle.dump_check import dump_complaints
from oracle.kafka_process import Json, KafkaProcess
from oracle.kafka_server import KafkaServer
from oracle.partition_view import PartitionView, as_consumed, seen_by_duralog, seen_by_kafka
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

NOW_MS = int(time.time() * 1000)
PATIENCE_SECONDS = 60
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": COMPACTED,
    "packed": COMPACTED | {"compression.type": "zstd"},
    "transactions": COMPACTED,
    "forgetful": COMPACTED | {"delete.retention.ms": "0"},
    "both": COMPACTED | {"cleanup.policy": "compact,delete", "retention.ms": "-1"},
}
BROKER = {
    "log.cleaner.backoff.ms": 50,
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
}
State = dict[str, str]
"""The last value of each key, both in hex."""


def records(first: int, count: int) -> list[Record]:
    """Each key many times; every seventh key ends deleted."""
    made = []
    for number in range(first, first + count):
        key = number * 7919 % 150
        is_deleted = key % 7 == 0 and number >= first + count - 150
        value = None if is_deleted else random.Random(number).randbytes(1000)
        made.append(Record(key=b"key-%03d" % key, value=value, timestamp_ms=NOW_MS - 60_000 + number))
    return made


def state(consumed: Iterable[Json]) -> State:
    """What a reader knows who takes all records in their order."""
    known: State = {}
    for record in consumed:
        if record["value"] is None:
            known.pop(record["key"], None)
        else:
            known[record["key"]] = record["value"]
    return known


@dataclass
class Turns:
    """What was seen, in the order of the fields."""

    directory: Path
    written: dict[str, State] = field(default_factory=dict)
    compacted: dict[str, PartitionView] = field(default_factory=dict)
    checkpoint: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    served: dict[str, PartitionView] = field(default_factory=dict)
    written_on: dict[str, State] = field(default_factory=dict)
    cleaned_on: dict[str, PartitionView] = field(default_factory=dict)
    kafkas_checkpoint: dict[str, int] = field(default_factory=dict)
    kafkas_errors: list[str] = field(default_factory=list)
    found: dict[str, PartitionView] = field(default_factory=dict)
    found_dirty_from: dict[str, int] = field(default_factory=dict)
    compacted_again: dict[str, PartitionView] = field(default_factory=dict)
    complaints_again: list[str] = field(default_factory=list)


NATURAL = (
    r"Non-consecutive offsets in | is followed by \d+$",
    # A batch that was emptied still has its largest timestamp, and perhaps an entry in the time index, but no records.
    r"Found timestamp mismatch in |Index timestamp: \d+, log timestamp: -1$",
)
"""What Kafka's dump tool says of logs that Kafka compacted, too."""


def complaints(kafka: KafkaProcess, directory: Path) -> list[str]:
    return [line for line in dump_complaints(kafka, directory) if not re.search("|".join(NATURAL), line)]


def views_of_duralog(store: duralog.Store) -> dict[str, PartitionView]:
    return {topic: seen_by_duralog(store.partition(topic, 0)) for topic in TOPICS}


def views_of_kafka(server: KafkaServer) -> dict[str, PartitionView]:
    return {topic: seen_by_kafka(server, topic) for topic in TOPICS}


def states(views: Mapping[str, PartitionView]) -> dict[str, State]:
    return {topic: state(view.committed) for topic, view in views.items()}


def checkpoint(directory: Path) -> dict[str, int]:
    entries = decode_offset_checkpoint((directory / CLEANER_OFFSET_CHECKPOINT).read_bytes())
    return {entry.topic: entry.offset for entry in entries if entry.topic in TOPICS}


def write(store: duralog.Store, first: int) -> None:
    for topic in TOPICS:
        log = store.partition(topic, 0)
        everything = records(first, 3000)
        for start in range(0, 3000, 20):
            some = everything[start : start + 20]
            if topic == "transactions":
                number = start // 20
                producer: dict[str, Any] = {"producer_id": 5000 + number % 2, "producer_epoch": 0}
                log.append(some, base_sequence=start // 40 * 20, is_transactional=True, **producer)
                log.end_transaction(**producer, commit=number % 5 != 0)
            else:
                log.append(some, codec="lz4" if start % 3 else None)
        log.roll()


def duralog_first(store: duralog.Store, turns: Turns) -> None:
    for topic, configs in TOPICS.items():
        store.create_topic(topic, 1, configs)
    write(store, 0)
    turns.written = states(views_of_duralog(store))
    for topic in TOPICS:
        report = store.compact(topic, 0)
        assert report.records_after < report.records_before / 3
    turns.compacted = views_of_duralog(store)


def kafka_goes_on(server: KafkaServer, turns: Turns) -> None:
    turns.served = views_of_kafka(server)
    for topic in TOPICS:
        more = as_consumed(records(10_000, 2000))
        for number, start in enumerate(range(0, 2000, 500)):
            some = more[start : start + 500]
            if topic == "transactions":
                end = "abort" if number == 2 else "commit"
                server.produce(topic, 0, some, {"transactional.id": "t"}, transaction=end)
            else:
                server.produce(topic, 0, some)
    turns.written_on = states(views_of_kafka(server))
    # The last segment that was closed is clean when all before the active one is.
    active = {topic: _active_base(turns.directory / f"{topic}-0") for topic in TOPICS}
    wait_until(lambda: checkpoint(turns.directory) == active, PATIENCE_SECONDS)
    turns.cleaned_on = views_of_kafka(server)
    turns.kafkas_errors = server.errors


def _active_base(folder: Path) -> int:
    return max(int(path.stem) for path in folder.glob("*.log"))


def duralog_goes_on(store: duralog.Store, turns: Turns) -> None:
    turns.found = views_of_duralog(store)
    turns.found_dirty_from = {
        found.topic: found.dirty.first_dirty_offset
        for found in store.cleaner.states()
        if found.topic in TOPICS and found.dirty is not None
    }
    for topic in TOPICS:
        store.partition(topic, 0).roll()
        assert store.compact(topic, 0).records_after < 400
    turns.compacted_again = views_of_duralog(store)


@pytest.fixture(scope="module")
def turns(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Turns:
    turns = Turns(tmp_path_factory.mktemp("turns") / "store")
    unasked_nothing = {"log.cleaner.enable": False, "log.segment.delete.delay.ms": 0}
    with duralog.open(turns.directory, unasked_nothing) as store:
        duralog_first(store, turns)
    turns.checkpoint = checkpoint(turns.directory)
    turns.complaints = complaints(kafka, turns.directory)
    with KafkaServer(kafka, turns.directory, configs=BROKER) as server:
        kafka_goes_on(server, turns)
    turns.kafkas_checkpoint = checkpoint(turns.directory)
    with duralog.open(turns.directory, unasked_nothing) as store:
        duralog_goes_on(store, turns)
    turns.complaints_again = complaints(kafka, turns.directory)
    return turns


@pytest.mark.parametrize("topic", TOPICS)
class TestEveryTurn:
    def test_duralog_keeps_the_state(self, turns: Turns, topic: str) -> None:
        assert state(turns.compacted[topic].committed) == turns.written[topic]
        assert 120 < len(turns.written[topic]) < 150
        assert turns.checkpoint[topic] == turns.compacted[topic].end_offset

    def test_kafka_serves_what_duralog_compacted(self, turns: Turns, topic: str) -> None:
        assert turns.served[topic] == turns.compacted[topic]

    def test_kafka_continues_the_compaction(self, turns: Turns, topic: str) -> None:
        assert state(turns.cleaned_on[topic].committed) == turns.written_on[topic]
        assert turns.written_on[topic] != turns.written[topic]
        assert turns.kafkas_checkpoint[topic] > turns.checkpoint[topic]
        assert turns.cleaned_on[topic].end_offset >= turns.checkpoint[topic] + 2000
        clean = [one for one in turns.cleaned_on[topic].records if one["offset"] < turns.kafkas_checkpoint[topic]]
        assert len({one["key"] for one in clean}) == len(clean)

    def test_duralog_continues_from_there(self, turns: Turns, topic: str) -> None:
        assert turns.found[topic] == turns.cleaned_on[topic]
        assert turns.found_dirty_from[topic] == turns.kafkas_checkpoint[topic]
        again = turns.compacted_again[topic]
        assert state(again.committed) == turns.written_on[topic]
        assert again.end_offset == turns.found[topic].end_offset
        assert len({one["key"] for one in again.records}) == len(again.records)


def test_deleted_keys_are_remembered_for_as_long_as_asked(turns: Turns) -> None:
    tombstones = {
        topic: [record["offset"] for record in view.records if record["value"] is None]
        for topic, view in turns.compacted_again.items()
    }
    assert {topic: len(offsets) for topic, offsets in tombstones.items() if topic != "forgetful"} == dict.fromkeys(
        ("plain", "packed", "transactions", "both"), 22
    )
    # Those that a compaction before the last one met are gone.
    assert [offset for offset in tombstones["forgetful"] if offset < turns.kafkas_checkpoint["forgetful"]] == []


def test_nobody_had_anything_to_complain_of(turns: Turns) -> None:
    assert turns.complaints == []
    assert turns.kafkas_errors == []
    assert turns.complaints_again == []
