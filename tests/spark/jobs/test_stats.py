"""`job stats` with Spark: keys that are shuffled are counted alike; the report as a frame, JSON and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import duralog
from duralog.command_line import app
from duralog.spark.jobs import stats
from tests.support.places import GOLDEN

pytestmark = pytest.mark.spark

TINY_MAP = 2400


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["job", "stats", *arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with duralog.open(str(tmp_path / "data"), config={"log.cleaner.enable": "false"}) as store:
        store.create_topic("t", 1, {"cleanup.policy": "compact", "index.interval.bytes": "512"})
        for first in range(0, 2000, 50):
            records = [
                duralog.Record(key=b"%d:%d" % (place % 3, place % 600), value=b"v", timestamp_ms=place)
                for place in range(first, first + 50)
            ]
            store.partition("t", 0).append(records, codec="lz4")
        store.partition("t", 0).roll()
    return tmp_path / "data"


def test_shuffled_or_not_the_figures_are_the_same(spark: SparkSession, data: Path) -> None:
    whole = stats(spark, str(data), prefix_separator=":", max_slice_bytes=4000)
    shuffled = stats(spark, str(data), prefix_separator=":", max_slice_bytes=4000, map_bytes=TINY_MAP)
    assert (shuffled.partitions, shuffled.topics) == (whole.partitions, whole.topics)
    assert shuffled.prefixes == whole.prefixes
    expected = {b"%d" % group: len({place % 600 for place in range(group, 2000, 3)}) for group in range(3)}
    assert {found.prefix: found.distinct_keys for found in whole.prefixes} == expected
    assert whole.topics[0].duplicate_records == 2000 - sum(expected.values()) > 0


@pytest.mark.parametrize("options", [{}, {"prefix_length": 2, "largest": 3}])
def test_threads_of_this_process_find_the_same(spark: SparkSession, options: dict[str, Any]) -> None:
    path = str(GOLDEN / "store")
    on_spark, here = stats(spark, path, **options), duralog.stats(path, **options)
    assert {**on_spark.to_dict(), "seconds": 0} == {**here.to_dict(), "seconds": 0}


def test_the_report_as_a_frame(spark: SparkSession) -> None:
    report = stats(spark, str(GOLDEN / "store"), prefix_length=1, largest=2)
    frame = report.frame(spark)
    source = spark.read.format("duralog").load(str(GOLDEN / "store"))
    expected = {
        (row.topic, row.partition): row["count"] for row in source.groupBy("topic", "partition").count().collect()
    }
    found = frame.where("partition is not null and not has_prefix and records > 0").collect()
    assert {(row.topic, row.partition): row.records for row in found} == expected
    by_prefix = frame.where("has_prefix").groupBy("topic", "partition").sum("records").collect()
    assert {(row.topic, row.partition): row["sum(records)"] for row in by_prefix} == expected
    assert all(len(row.largest_records) <= 2 for row in found)


@pytest.mark.usefixtures("spark")
def test_the_command(data: Path) -> None:
    as_json = run(str(data), "--json", "--prefix-length", "1")
    assert as_json.exit_code == 0, as_json.output
    told = json.loads(as_json.stdout)
    assert told["topics"][0]["records"] == 2000
    assert told["topics"][0]["compaction"]["records"] == told["topics"][0]["duplicate_records"]
    assert [found["prefix"] for found in told["prefixes"]] == ["0", "1", "2"]
    table = run(str(data), "--prefix-separator", ":", "--largest", "1")
    assert table.exit_code == 0, table.output
    lines = table.stdout.splitlines()
    for heading in ("Topics and partitions", "Codecs and batches", "Prefixes of keys", "Largest records"):
        assert heading in lines
    assert lines[2].split()[:3] == ["t", "0", "2,000"]
    log = min((data / "t-0").glob("*.log"))
    damaged = bytearray(log.read_bytes())
    damaged[500] ^= 1
    log.write_bytes(damaged)
    wrong = run(str(data), "--no-compaction")
    assert wrong.exit_code == 1
    assert wrong.stdout.startswith("! ")
    assert run(str(data), "--prefix-length", "0").exit_code == 2
