"""Kafka reads what an upgrade made of old formats: the same records, from files and through a broker."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.format import message_set
from duralog.format.record import Record, TimestampType
from duralog.storage.repair.format_upgrade import LogUpgrade, upgrade_log
from oracle.dump_check import dump_complaints
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer
from oracle.partition_view import PartitionView, seen_by_kafka
from tests.support.places import GOLDEN
from tests.support.storage.legacy_logs import START_MS, LegacyWriter

pytestmark = pytest.mark.interop

LEGACY = GOLDEN / "legacy"
SEGMENT_BYTES = 1 << 20
"""The least that Kafka takes."""
SETTINGS = {"log.retention.ms": -1, "log.cleaner.enable": False, "log.segment.bytes": SEGMENT_BYTES}
GAP = re.compile(r"Non-consecutive offsets in |  -?\d+ is followed by \d+$")
"""The tool tells of the gaps that compaction leaves. The mixed logs have some, before and after."""
MIXED = {f"mixed-{seed}": seed for seed in range(4)}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Kafka wrote in old formats, and mixes of all formats; closed in order."""
    path = tmp_path_factory.mktemp("upgrade") / "data"
    shutil.copytree(LEGACY, path, ignore=shutil.ignore_patterns("*.gz"))
    for topic, seed in MIXED.items():
        folder = path / f"{topic}-0"
        folder.mkdir()
        writer = LegacyWriter(seed)
        for _ in range(3):
            base_offset = writer.next_offset
            (folder / f"{base_offset:020}.log").write_bytes(writer.batches(40))
    (path / "grown-0").mkdir()
    (path / "grown-0" / f"{0:020}.log").write_bytes(one_by_one(7500))
    duralog.open(str(path), config=SETTINGS).close()
    return path


def one_by_one(count: int) -> bytes:
    """Messages of which each becomes a batch, since no two have the same time: a bit less than a segment of them."""
    data = b"".join(
        message_set.encode(
            [Record(value=b"%05d" % number * 20, offset=number)],
            magic=1,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            append_time_ms=START_MS + number,
        )
        for number in range(count)
    )
    assert len(data) < SEGMENT_BYTES
    return data


def upgraded(directory: Path, copy: Path) -> dict[str, LogUpgrade]:
    shutil.copytree(directory, copy)
    with duralog.open(str(copy), config=SETTINGS) as store:
        return {topic: upgrade_log(store.partition(topic, 0)) for topic in store.topics()}


def read_by_kafka(kafka: KafkaProcess, folder: Path) -> list[dict[str, Any]]:
    records = []
    for log in sorted(folder.glob("*.log")):
        truth = kafka.read(log)
        assert "error" not in truth
        assert truth["end"] == log.stat().st_size
        for batch in truth["batches"]:
            assert "error" not in batch
            records += batch["records"]
    return records


def seen_by_broker(kafka: KafkaProcess, directory: Path) -> dict[str, PartitionView]:
    configs = {"log.retention.ms": -1, "log.cleaner.enable": "false", "log.segment.bytes": SEGMENT_BYTES}
    with KafkaServer(kafka, directory, configs=configs) as server:
        times = range(START_MS - 1, START_MS + 1001, 250)
        views = {topic: seen_by_kafka(server, topic, times=times) for topic in server.topics()}
        assert server.errors == []
    return views


def test_kafka_reads_the_same_from_the_files(kafka: KafkaProcess, directory: Path, tmp_path: Path) -> None:
    reports = upgraded(directory, tmp_path / "data")
    assert len(reports) == 12 + len(MIXED) + 1
    assert reports["grown"].bytes_after > SEGMENT_BYTES
    for topic, report in reports.items():
        assert report.segments
        assert not report.left
        before, after = (read_by_kafka(kafka, path / f"{topic}-0") for path in (directory, tmp_path / "data"))
        assert after == before
    complaints = [line for line in dump_complaints(kafka, tmp_path / "data") if not GAP.search(line)]
    assert complaints == []


def test_a_broker_serves_the_same(kafka: KafkaProcess, directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "before")
    upgraded(directory, tmp_path / "after")
    before = seen_by_broker(kafka, tmp_path / "before")
    after = seen_by_broker(kafka, tmp_path / "after")
    assert after.keys() == before.keys()
    for topic, view in before.items():
        assert after[topic] == as_v2(view)


def as_v2(view: PartitionView) -> PartitionView:
    """What format v0 cannot say: it has neither times nor a type of them. Asked for the largest, v2 answers with -1."""
    for record in (*view.records, *view.committed):
        if record["timestamp_type"] == "NoTimestampType":
            assert record["timestamp"] == -1
            record["timestamp_type"] = "CreateTime"
    if all(record["timestamp"] == -1 for record in view.records):
        for answer in view.times:
            if answer["asked"] == "max_timestamp":
                assert answer["offset"] == -1
                answer["offset"] = view.start_offset
    return view
