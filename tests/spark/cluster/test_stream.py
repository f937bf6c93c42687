"""A stream on the directories of a cluster: copies grow, lag, are lost and diverge while a query runs.

Most of it asks the driver's side as Spark asks it, without a session.
"""

from __future__ import annotations

import json
import pickle
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import duralog
from duralog import OffsetOutOfRange, Record
from duralog.errors import StorageError
from duralog.format.filenames import HIGH_WATERMARK_CHECKPOINT
from duralog.spark.source import stream
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import schema_of
from duralog.spark.source.stream import DuralogStreamReader
from duralog.spark.source.unlimited_stream import UnlimitedStreamReader
from duralog.spark.spark_versions import ReadAllAvailable
from tests.support.cluster.made import TOPIC, flip, logs, three_nodes, write_high_watermark

pytestmark = pytest.mark.spark

ALL = ReadAllAvailable()


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three equal directories, 60 records each. Without metadata, the first one of the longest is chosen."""
    monkeypatch.setattr(stream, "time", SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic))
    return three_nodes(tmp_path)


class Query:
    """What Spark does with a stream: it asks for an end, and reads up to it."""

    def __init__(self, nodes: list[Path], **more: str) -> None:
        self._options = {
            "paths": json.dumps([str(node) for node in nodes]),
            "startingOffsets": "earliest",
            "includeCopies": "true",
            **more,
        }
        self.reader = self._new_reader()
        self.stands = self.reader.initialOffset()
        self.copies: set[str] = set()

    def _new_reader(self) -> DuralogStreamReader:
        options = ReadOptions.of(self._options, streaming=True)
        return DuralogStreamReader(schema_of(options), options)

    def batch(self) -> list[int]:
        """The offsets of the next micro-batch."""
        end = self.reader.latestOffset(self.stands, ALL)
        found = self.read(self.stands, end)
        self.stands = end
        return found

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        rows = [
            row
            for task in pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
            for batch in self.reader.read(task)
            for row in batch.to_pylist()
        ]
        self.copies = {Path(row["_copy"]).name for row in rows}
        return [row["offset"] for row in rows]

    def start_again(self) -> None:
        """As after a crash: only the offsets are known."""
        self.reader = self._new_reader()


def append(node: Path, count: int, *, epoch: int = 3, value: bytes = b"more") -> None:
    """A replica gets more records; its high watermark stays where it was."""
    kept = (node / HIGH_WATERMARK_CHECKPOINT).read_bytes()
    with duralog.open(node) as store:
        log = store.partition(TOPIC, 0)
        log.become_leader(epoch)
        for _ in range(count):
            log.append([Record(value=value)])
    (node / ".kafka_cleanshutdown").unlink()
    (node / HIGH_WATERMARK_CHECKPOINT).write_bytes(kept)


def test_only_what_is_below_the_high_watermark_arrives_and_each_offset_once(nodes: list[Path]) -> None:
    query = Query(nodes)
    assert query.batch() == list(range(60))
    assert query.batch() == []
    for node in nodes:
        append(node, 10)
    assert query.batch() == []
    write_high_watermark(nodes[1], 64)
    first = query.stands
    assert query.batch() == [60, 61, 62, 63]
    # Another node's checkpoint is newer, and an older one appears again, as in a copy of yesterday.
    write_high_watermark(nodes[2], 67)
    assert query.batch() == [64, 65, 66]
    for node in nodes:
        write_high_watermark(node, 61)
    assert query.batch() == []
    query.start_again()
    assert query.batch() == []
    assert query.read(first, query.stands) == list(range(60, 67))
    write_high_watermark(nodes[0], 70)
    assert query.batch() == [67, 68, 69]


def test_the_high_watermark_is_older_than_the_checkpoint_of_a_query_on_an_older_spark(nodes: list[Path]) -> None:
    """It does not say where it stands before the end is written down: no record is lost, and none comes twice."""

    class OlderQuery(Query):
        def _new_reader(self) -> DuralogStreamReader:
            options = ReadOptions.of(self._options, streaming=True)
            return UnlimitedStreamReader(schema_of(options), options)

        def batch(self) -> list[int]:
            end = self.reader.latestOffset()  # type: ignore[call-arg]
            found = self.read(self.stands, end)
            self.stands = end
            return found

    query = OlderQuery(nodes)
    assert query.batch() == list(range(60))
    # A query that uses the stream twice asks twice.
    assert query.read({TOPIC: {"0": 0}}, query.stands) == list(range(60))
    for node in nodes:
        write_high_watermark(node, 40)
    assert query.batch() == []
    query.start_again()
    before = query.stands
    assert query.batch() == []
    # The same batch again, as after a crash.
    assert query.read(before, query.stands) == []
    for node in nodes:
        write_high_watermark(node, 50)
    assert query.batch() == []
    for node in nodes:
        append(node, 10)
        write_high_watermark(node, 65)
    stood = query.stands
    assert query.batch() == [60, 61, 62, 63, 64]
    assert query.read(stood, query.stands) == [60, 61, 62, 63, 64]
    assert query.batch() == []


def test_a_copy_that_falls_behind_or_goes_is_replaced(nodes: list[Path]) -> None:
    query = Query(nodes)
    query.batch()
    assert query.copies == {"broker-1"}
    # Only the followers get more: the copy that counted ends earlier now.
    for node in nodes[1:]:
        append(node, 5)
        write_high_watermark(node, 65)
    assert query.batch() == list(range(60, 65))
    assert query.copies == {"broker-2"}
    shutil.rmtree(nodes[1] / f"{TOPIC}-0")
    append(nodes[2], 5)
    write_high_watermark(nodes[2], 70)
    assert query.batch() == list(range(65, 70))
    assert query.copies == {"broker-3"}
    # All that have the offsets are gone: the query waits for them.
    shutil.move(nodes[2] / f"{TOPIC}-0", nodes[2] / "away")
    with pytest.raises((OffsetOutOfRange, StorageError), match=TOPIC):
        query.batch()
    shutil.move(nodes[2] / "away", nodes[2] / f"{TOPIC}-0")
    assert query.batch() == []


def test_damage_in_what_arrives_is_read_from_another_copy(nodes: list[Path]) -> None:
    query = Query(nodes)
    query.batch()
    path = logs(nodes[0])[-1]
    size = path.stat().st_size
    for node in nodes:
        append(node, 6)
        write_high_watermark(node, 66)
    # Some byte of the third new batch.
    flip(path, size + (path.stat().st_size - size) * 5 // 12)
    assert query.batch() == list(range(60, 66))
    assert query.copies == {"broker-1", "broker-2"}


def test_an_unclean_election_below_the_query_is_data_loss(nodes: list[Path]) -> None:
    strict, patient = Query(nodes), Query(nodes, failOnDataLoss="false")
    assert strict.batch() == patient.batch() == list(range(60))
    with duralog.open(nodes[2]) as store:
        store.partition(TOPIC, 0).truncate_to(48)
    append(nodes[2], 32, epoch=9, value=b"of another leader")
    write_high_watermark(nodes[2], 80)
    with pytest.raises(OffsetOutOfRange, match="other records from offset 48 on; the query has read up to offset 60"):
        strict.batch()
    assert patient.batch() == list(range(60, 80))
    assert patient.copies == {"broker-3"}


def test_a_query_of_spark_gets_every_record_once(spark: SparkSession, nodes: list[Path], tmp_path: Path) -> None:
    def run() -> list[int]:
        source = spark.readStream.format("duralog").option("startingOffsets", "earliest").load(f"{tmp_path}/broker-*")
        query = (
            source.select("offset", "value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        return sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect())

    flip(logs(nodes[0])[1], 300)
    assert run() == list(range(60))
    for node in nodes[1:]:
        append(node, 7)
        write_high_watermark(node, 65)
    assert run() == list(range(65))
