"""Streaming writes: every row once, through restarts and micro-batches that are repeated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duralog

pytestmark = pytest.mark.spark


def add_input(folder: Path, name: str, first: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f'{{"key": "k{number % 7}", "value": "{number}"}}\n' for number in range(first, first + count)]
    (folder / f"{name}.json").write_text("".join(lines))


def run(spark: SparkSession, source: Path, store: Path, checkpoint: Path, **options: str) -> None:
    """Write what is new, one file in each micro-batch, and end."""
    query = (
        spark.readStream.schema("key string, value string")
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
        .writeStream.format("duralog")
        .options(topic="t", partitions="2", **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(store))
    )
    query.awaitTermination()


def numbers_in(store: Path) -> list[int]:
    with duralog.open(store, read_only=True) as opened:
        logs = [opened.partition("t", number) for number in opened.partitions("t")]
        return sorted(int(record.value or b"") for log in logs for record in log.read(0))


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died after the sink's commit and before it could write down that the batch is done."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def test_restarts_and_repeated_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    source, store, checkpoint = tmp_path / "in", tmp_path / "store", tmp_path / "checkpoint"
    add_input(source, "a", 0, 100)
    add_input(source, "b", 100, 50)
    run(spark, source, store, checkpoint)
    assert numbers_in(store) == [*range(150)]
    assert (checkpoint / "commits" / "1").exists()

    run(spark, source, store, checkpoint)
    assert numbers_in(store) == [*range(150)]

    forget_commit(checkpoint, 1)
    add_input(source, "c", 150, 10)
    run(spark, source, store, checkpoint)
    assert (checkpoint / "commits" / "2").exists()
    assert numbers_in(store) == [*range(160)]
    assert [file.name for file in store.glob("duralog-sink*")] == ["duralog-sink.committed"]


def test_a_new_checkpoint_is_a_new_query(spark: SparkSession, tmp_path: Path) -> None:
    """Its micro-batches count from 0 again: they must not be taken for those of the query before it."""
    source, store, checkpoint = tmp_path / "in", tmp_path / "store", tmp_path / "checkpoint"
    add_input(source, "a", 0, 20)
    run(spark, source, store, checkpoint)
    shutil.rmtree(checkpoint)
    run(spark, source, store, checkpoint)
    assert numbers_in(store) == sorted([*range(20)] * 2)


def test_a_query_that_cannot_write_leaves_nothing_and_continues_later(spark: SparkSession, tmp_path: Path) -> None:
    source, store, checkpoint = tmp_path / "in", tmp_path / "store", tmp_path / "checkpoint"
    add_input(source, "a", 0, 20)
    with pytest.raises(Exception, match="there is no option colour"):
        run(spark, source, store, checkpoint, colour="red")
    run(spark, source, store, checkpoint)
    assert numbers_in(store) == [*range(20)]
