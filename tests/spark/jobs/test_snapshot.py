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
from tests.support.cluster.made import copy_directory, flip, logs
from tests.support.schemas.change_events import topic_of
from tests.support.spark.change_log import write_events
from tests.support.spark.lake_directory import START_MS, rows_of, table_of

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
        for figure in (
            *("live_keys", "deleted_keys", "records_read", "keyless_records", "is_incremental", "end_offsets"),
            *("expired_rows", "corrupt_rows"),
        ):
            assert getattr(shuffled, figure) == getattr(whole, figure), figure
        return made

    first, _ = both()
    assert (first.is_incremental, first.records_read) == (False, 3000)
    append(data, 3000, 3400)
    second, shuffled = both()
    assert (second.is_incremental, second.records_read) == (True, 400)
    assert shuffled.removed_files > 0
    with duralog.open(str(data)) as store:
        for number in (0, 1):
            log = store.partition("users", number)
            log.delete_records(log.end_offset - 20)
    append(data, 3400, 3500)
    third, _ = both()
    assert third.expired_rows > 0


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


def test_change_events_shuffled_or_not(spark: SparkSession, tmp_path: Path) -> None:
    """Truncates, deletes and values that were left out, when the keys do not fit into one task."""
    topic = topic_of("lines")
    write_events(tmp_path / "data", "avro_confluent", ["lines", "pages"])
    made_up = "made.up"
    with duralog.open(str(tmp_path / "data")) as store:
        store.create_topic(made_up, 1, {"retention.ms": "-1", "index.interval.bytes": "512"})
        for first in range(0, 600, 50):
            store.partition(made_up, 0).append([change_record(number) for number in range(first, first + 50)])
    for name, map_bytes in (("whole", 1 << 20), ("shuffled", TINY_MAP)):
        report = snapshot(
            spark,
            str(tmp_path / "data"),
            str(tmp_path / name),
            topics=[topic, topic_of("pages"), made_up],
            format="delta",
            unwrap="debezium",
            map_bytes=map_bytes,
            max_slice_bytes=8000,
            as_of_offsets={topic_of("pages"): {0: 3}},
        )
        tables = {table.topic: table for table in report.tables}
        assert tables[made_up].shuffled_partitions == ((0,) if name == "shuffled" else ())
        assert (tables[made_up].live_keys, tables[made_up].unavailable_rows) == (160, 0)
        found = {row["id"]: row for row in table_of("delta", tables[made_up].path).to_pylist()}
        assert {number: row["text"] for number, row in found.items()} == {
            number: f"text {number + 200}" for number in range(200) if number % 5
        }
        assert [row["order"] for row in table_of("delta", tables[topic].path).to_pylist()] == ["C-1"]
        bodies = {row["id"]: row["body"] for row in table_of("delta", tables[topic_of("pages")].path).to_pylist()}
        assert bodies == {1: "x" * 3000, 2: "y"}


def change_record(number: int) -> duralog.Record:
    """Three rounds over 200 rows, the first of which is truncated away: in the third, every fifth is deleted."""
    if number == 199:
        return duralog.Record(value=event("t"), timestamp_ms=START_MS)
    row = number % 200
    key = b'{"id":%d}' % row
    if number >= 400 and row % 5 == 0:
        return duralog.Record(key=key, value=event("d"), timestamp_ms=START_MS)
    left_out = number >= 400
    text = "__debezium_unavailable_value" if left_out else f"text {number}"
    return duralog.Record(key=key, value=event("u", {"id": row, "text": text}), timestamp_ms=START_MS)


def event(op: str, after: Any = None) -> bytes:
    return json.dumps({"before": None, "after": after, "source": {"ts_ms": 1}, "op": op}).encode()


@pytest.mark.usefixtures("spark")
def test_the_command_with_columns(tmp_path: Path) -> None:
    write_events(tmp_path / "data", "json_with_schemas", ["lines"])
    arguments = [str(tmp_path / "data"), str(tmp_path / "lake"), "--topic", topic_of("lines")]
    found = run(*arguments, "--unwrap", "debezium", "--mode", "failfast")
    assert found.exit_code == 0, found.output
    assert f"# {topic_of('lines')}: values are debezium: all" in found.stdout
    assert run(*arguments, "--unwrap", "other").exit_code != 0
    assert run(*arguments, "--mode", "failfast").exit_code == 2
    assert run(*arguments, "--unwrap", "debezium", "--mode", "dropmalformed").exit_code == 2


def test_the_directories_of_a_cluster(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    """In one task and shuffled, from damaged copies, and by the command."""
    nodes = [copy_directory(data, tmp_path / f"broker-{node}", node) for node in (1, 2)]
    for place, node in enumerate(nodes):
        flip(logs(node, "users")[0], 5000 * (place + 1))
    expected = snapshot(spark, str(data), str(tmp_path / "expected"))
    paths = [str(node) for node in nodes]
    for name, map_bytes in (("whole", 1 << 20), ("shuffled", TINY_MAP)):
        report = snapshot(spark, paths, str(tmp_path / name), map_bytes=map_bytes, max_slice_bytes=4096)
        (table,) = report.tables
        assert table.shuffled_partitions == ((0, 1) if name == "shuffled" else ())
        assert rows("parquet", table) == rows("parquet", expected.tables[0])
        assert table.healed
    (row,) = report.frame(spark).collect()
    assert tuple(row.healed) == table.healed
    found = run(*paths, str(tmp_path / "whole"))
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[1].split()[-2:] == ["incremental", str(tmp_path / "whole/users/snapshot-000001")]
