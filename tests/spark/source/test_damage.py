"""Damaged logs read by Spark: an error that names the place, or a report of what was left out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import duralog
from duralog import Record
from duralog.spark.source.planned_read import plan_read
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import Columns, schema_of
from duralog.spark.source.task_reading import SliceTask, read_task

pytestmark = pytest.mark.spark

BATCHES, ROWS = 12, 10
DAMAGED = (3, 7)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with two batches whose values were changed on the disk."""
    path = tmp_path_factory.mktemp("damage") / "logs"
    with duralog.open(path) as store:
        store.create_topic("t", partitions=1)
        log = store.partition("t", 0)
        positions = []
        for batch in range(BATCHES):
            positions.append(sum(segment.size_bytes for segment in log.segments))
            log.append(
                [Record(key=b"k", value=b"value %d" % batch, timestamp_ms=1_700_000_000_000) for _ in range(ROWS)]
            )
    file = path / "t-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    for batch in DAMAGED:
        data[positions[batch] + 100] ^= 0xFF
    file.write_bytes(data)
    return path


SOUND = [batch * ROWS + row for batch in range(BATCHES) if batch not in DAMAGED for row in range(ROWS)]
EXPECTED_DAMAGE = [(batch * ROWS, batch * ROWS + ROWS - 1) for batch in DAMAGED]


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("duralog").options(**options).load(str(path))


def test_damage_is_an_error_that_names_the_place(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(PySparkException) as error:
        read(spark, damaged).collect()
    told = str(error.value)
    assert f"{damaged}/t-0/{0:020}.log: position " in told
    assert "wrong checksum; offsets 30 to 39 of t-0 cannot be read" in told
    assert "Traceback" not in told
    assert told.index("wrong checksum") < 400, "it is at the beginning of what the user sees"


def test_records_before_the_damage_can_be_read(spark: SparkSession, damaged: Path) -> None:
    assert read(spark, damaged, endingOffsets='{"t":{"0":30}}').count() == 30


def test_damage_is_a_row_with_the_column_for_it(spark: SparkSession, damaged: Path) -> None:
    frame = read(spark, damaged, mode="permissive")
    assert frame.schema.names[-1] == "_corrupt"
    found = frame.collect()
    records = [row for row in found if row["_corrupt"] is None]
    told = [row for row in found if row["_corrupt"] is not None]
    assert sorted(row["offset"] for row in records) == SOUND
    assert all(row["value"].startswith(b"value") for row in records)
    assert [(row["_corrupt"]["firstOffset"], row["_corrupt"]["lastOffset"]) for row in told] == EXPECTED_DAMAGE
    for row, (first, _) in zip(told, EXPECTED_DAMAGE, strict=True):
        assert (row["topic"], row["partition"], row["offset"]) == ("t", 0, first)
        assert (row["key"], row["value"], row["timestamp"]) == (None, None, None)
        assert row["_corrupt"]["file"].endswith(f"t-0/{0:020}.log")
        assert 0 < row["_corrupt"]["position"] < row["_corrupt"]["endPosition"]
        assert "wrong checksum" in row["_corrupt"]["reason"]


def test_damage_is_a_row_of_the_offsets_that_were_asked_for(spark: SparkSession, damaged: Path) -> None:
    bounds = {"startingOffsets": '{"t":{"0":35}}', "endingOffsets": '{"t":{"0":46}}'}
    frame = read(spark, damaged, mode="PERMISSIVE", columns="offset,_corrupt", **bounds)
    found = {row["offset"]: row["_corrupt"] for row in frame.collect()}
    assert sorted(found) == [35, *range(40, 46)]
    assert found[35]["reason"] is not None


def test_damage_is_reported_in_a_folder(spark: SparkSession, damaged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    frame = read(spark, damaged, mode="PERMISSIVE", badRecordsPath=str(folder))
    assert "_corrupt" not in frame.columns
    for _ in range(2):
        # A second time, or by a task that is repeated, nothing is counted twice.
        assert sorted(row["offset"] for row in frame.select("offset").collect()) == SOUND
    report = spark.read.json(str(folder))
    assert sorted((row["firstOffset"], row["lastOffset"]) for row in report.collect()) == EXPECTED_DAMAGE
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    assert {(line["topic"], line["partition"]) for line in lines} == {("t", 0)}


def test_a_task_that_is_stopped_early_leaves_a_whole_report_alone(damaged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    options = ReadOptions.of(
        {"path": str(damaged), "mode": "PERMISSIVE", "badRecordsPath": str(folder), "columns": "offset"},
        streaming=False,
    )
    (slices,) = plan_read(options).tasks

    def lines_after(rows: int) -> int:
        reading = read_task(SliceTask(slices), Columns(schema_of(options), options), options)
        found = 0
        for batch in reading:
            found += batch.num_rows
            if found >= rows:
                break
        assert isinstance(reading, Generator)
        reading.close()
        (file,) = folder.iterdir()
        return len(file.read_text().splitlines())

    assert lines_after(31) == 1
    assert lines_after(len(SOUND) + 1) == 2
    assert lines_after(31) == 2


def test_reads_of_several_directories_share_a_folder(damaged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    another = shutil.copytree(damaged, tmp_path / "another")
    for directory in (damaged, another, damaged):
        options = ReadOptions.of(
            {"path": str(directory), "mode": "PERMISSIVE", "badRecordsPath": str(folder)}, streaming=False
        )
        (slices,) = plan_read(options).tasks
        assert list(read_task(SliceTask(slices), Columns(schema_of(options), options), options))
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    told = sorted((Path(line["file"]).parents[1], line["firstOffset"], line["lastOffset"]) for line in lines)
    assert told == sorted((path, *offsets) for path in (damaged, another) for offsets in EXPECTED_DAMAGE)


def test_no_damage_leaves_no_report(spark: SparkSession, damaged: Path, tmp_path: Path) -> None:
    options = {"mode": "PERMISSIVE", "badRecordsPath": str(tmp_path / "bad"), "endingOffsets": '{"t":{"0":30}}'}
    assert read(spark, damaged, **options).count() == 30
    assert not (tmp_path / "bad").exists()


def test_damage_that_could_not_be_reported_is_refused(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(AnalysisException, match="read the column _corrupt, too, or give badRecordsPath"):
        read(spark, damaged, mode="PERMISSIVE", columns="offset")
    with pytest.raises(AnalysisException, match="read the column _corrupt, too, or give badRecordsPath"):
        spark.read.format("duralog").schema("offset long").option("mode", "PERMISSIVE").load(str(damaged)).collect()
