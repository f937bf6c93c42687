"""Directories whose transaction indexes are gone: queries with `read_committed` see what was committed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duralog
from tests.support.storage.transaction_history import CONFIG, lose_indexes, remove, write_history

pytestmark = pytest.mark.spark

OPTIONS = {"subscribe": "t", "kafka.isolation.level": "read_committed", "maxSplitBytes": "20000"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    path = tmp_path_factory.mktemp("logs")
    with duralog.open(path, CONFIG) as store:
        store.create_topic("t", 1)
        values = write_history(store.partition("t", 0), seed=1, steps=300)
    lose_indexes(path / "t-0", remove)
    return path, values


def test_a_batch_query(spark: SparkSession, directory: tuple[Path, list[bytes]]) -> None:
    path, values = directory
    frame = spark.read.format("duralog").options(**OPTIONS).load(str(path))
    assert [bytes(row.value) for row in frame.orderBy("offset").select("value").collect()] == values


@pytest.mark.since_spark("4.2")
def test_a_streaming_query(spark: SparkSession, directory: tuple[Path, list[bytes]], tmp_path: Path) -> None:
    path, values = directory
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
    stream = spark.readStream.format("duralog").options(**OPTIONS, **limits).load(str(path))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    assert query.awaitTermination(120)
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").select("value").collect()
    assert [bytes(row.value) for row in found] == values


def test_a_snapshot_of_producers_that_goes_while_the_log_is_opened(tmp_path: Path) -> None:
    """A store that writes meanwhile replaces it when it is closed."""
    with duralog.open(tmp_path) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        log.append(
            [duralog.Record(value=b"1")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    with duralog.open(tmp_path, read_only=True) as store:
        view = store.partition("t", 0).view
        for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
            snapshot.unlink()
        assert view.last_stable_offset == 0
