"""`job snapshot` with Spark: in one task and shuffled, what comes out is the same; and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import duralog
from duralog.command_line import app
from duralog.spark.jobs import snapshot
from tests.support.spark.lake_directory import START_MS, rows_of

pytestmark = pytest.mark.spark

TINY_MAP = 2400
"""Room for 90 keys."""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["job", "snapshot", *arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with duralog.open(str(path), config={"log.cleaner.enable": "false"}) as store:
        store.create_topic("users", 2, {"cleanup.policy": "compact", "index.interval.bytes": "512"})
    append(path, 0, 3000)
    return path


def append(path: Path, first: int, end: int) -> None:
    """Keys come back all 500 records, every seventh record is a tombstone."""
    with duralog.open(str(path), config={"log.cleaner.enable": "false"}) as store:
        for begin in range(first, end, 100):
            records = [
                duralog.Record(
                    key=b"k%d" % (place % 500), value=None if place % 7 == 0 else b"v%d" % place, timestamp_ms=START_MS
                )
                for place in range(begin, begin + 100)
            ]
            store.partition("users", begin // 100 % 2).append(records)


def rows(table_format: str, table: Any) -> list[dict[str, Any]]:
    return rows_of(table_format, table.path)


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_shuffled_or_not_the_result_is_the_same(
    spark: SparkSession, data: Path, tmp_path: Path, table_format: str
) -> None:
    def both(**options: Any) -> list[Any]:
        made = []
        for name, map_bytes in (("whole", 1 << 20), ("shuffled", TINY_MAP)):
            target = str(tmp_path / name)
            report = snapshot(
                spark, str(data), target, format=table_format, map_bytes=map_bytes, max_slice_bytes=8000, **options
            )
            (table,) = report.tables
            made.append(table)
        whole, shuffled = made
        assert (whole.shuffled_partitions, shuffled.shuffled_partitions) == ((), (0, 1))
        assert rows(table_format, shuffled) == rows(table_format, whole) != []
        for figure in ("live_keys", "deleted_keys", "records_read", "keyless_records", "is_incremental", "end_offsets"):
            assert getattr(shuffled, figure) == getattr(whole, figure), figure
        return made

    first, _ = both()
    assert (first.is_incremental, first.records_read) == (False, 3000)
    append(data, 3000, 3400)
    second, shuffled = both()
    assert (second.is_incremental, second.records_read) == (True, 400)
    assert shuffled.removed_files > 0


def test_the_state_is_what_spark_makes_of_all_records(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    report = snapshot(spark, str(data), str(tmp_path / "lake"))
    found = spark.read.parquet(report.tables[0].path)
    frame = spark.read.format("duralog").option("subscribe", "users").load(str(data))
    frame.createOrReplaceTempView("records")
    latest = spark.sql(
        "select partition, key, max(offset) as offset, max_by(value, offset) as value from records"
        " group by partition, key having max_by(value is not null, offset)"
    )
    assert found.select(latest.columns).exceptAll(latest).count() == 0
    assert found.count() == latest.count() == report.live_keys


def test_iceberg_over_two_runs(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    for end in (3000, 3200):
        append(data, 3000, end)
        report = snapshot(spark, str(data), str(tmp_path / "lake"), format="iceberg")
    assert report.tables[0].is_incremental
    full = snapshot(spark, str(data), str(tmp_path / "full"))
    assert rows("iceberg", report.tables[0]) == rows("parquet", full.tables[0])
    (row,) = report.frame(spark).collect()
    assert (row.live_keys, row.is_incremental) == (report.live_keys, True)


@pytest.mark.usefixtures("spark")
def test_the_command(data: Path, tmp_path: Path) -> None:
    arguments = [str(data), str(tmp_path / "lake")]
    first = run(*arguments, "--json")
    assert first.exit_code == 0, first.output
    told: dict[str, Any] = json.loads(first.stdout)
    assert told["tables"][0]["why_full"] == "there is no snapshot yet"
    second = run(*arguments, "--topic", "users", "--as-of-offset", "0=10", "--as-of-offset", "1=0")
    assert second.exit_code == 0, second.output
    assert second.stdout.splitlines()[1].split()[:2] == ["users", "8"]
    assert "# users: a full snapshot: the last one is of a later point" in second.stdout
    assert run(*arguments, "--as-of-offset", "0=10").exit_code == 2
    assert run(*arguments, "--topic", "users", "--as-of-offset", "0=-1").exit_code == 2
    assert run(*arguments, "--as-of", "no time").exit_code == 2
    wrong = run(*arguments, "--topic", "nope")
    assert (wrong.exit_code, "there is no topic nope" in wrong.stderr) == (1, True)
