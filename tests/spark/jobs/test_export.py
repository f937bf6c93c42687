"""`job export` with Spark: its tasks, what Spark and others read of the tables, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import duralog
from duralog.command_line import app
from duralog.errors import UnknownTopic
from duralog.scanning.executor import TaskProgress
from duralog.spark.jobs import export
from tests.support.cluster.made import flip, logs, three_nodes, write_high_watermarks
from tests.support.places import GOLDEN
from tests.support.spark.lake_directory import FORMATS, fill_days, rows_of
from tests.support.typed_log import SECOND, write_typed_log

pytestmark = pytest.mark.spark


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["job", "export", *arguments])


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_table_is_what_the_source_reads(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    data, target = str(GOLDEN / "store"), tmp_path / "lake"
    options = {"kafka.isolation.level": "read_committed", "includeHeaders": "true"}
    frame = spark.read.format("duralog").options(**options).option("subscribe", "txn,codecs").load(data)
    told: list[TaskProgress] = []
    report = export(
        spark, data, str(target), topics=["txn", "codecs"], format=table_format, headers=True, on_progress=told.append
    )
    assert report.records == frame.count() > 0
    assert (told[-1].tasks_done, told[-1].weight_done) == (told[-1].tasks, told[-1].weight)
    for table in report.tables:
        rows = frame.where(frame.topic == table.topic).drop("timestamp").orderBy("partition", "offset").collect()
        expected = [row.asDict(recursive=True) for row in rows]
        found = rows_of(table_format, table.path)
        assert [{name: row[name] for name in expected[0]} for row in found] == expected


def test_spark_reads_the_parquet_with_dates(spark: SparkSession, tmp_path: Path) -> None:
    fill_days(tmp_path / "data")
    export(spark, str(tmp_path / "data"), str(tmp_path / "lake"), max_slice_bytes=300)
    frame = spark.read.parquet(str(tmp_path / "lake" / "events"))
    assert dict(frame.dtypes)["date"] == "date"
    assert frame.where("date = to_date(timestamp)").count() == frame.count() == 40
    assert frame.where("date = '2023-11-15'").count() == 16


def test_spark_reads_decoded_columns_of_two_runs(spark: SparkSession, tmp_path: Path) -> None:
    """The second one has a new column, and a record that does not decode."""
    data, lake = tmp_path / "data", str(tmp_path / "lake")
    write_typed_log(data)
    old = json.dumps({**SECOND, "fields": SECOND["fields"][:1]})
    decode = {"value.format": "avro", "key.format": "string", "value.framing": "confluent", "value.schema": old}
    first = export(spark, str(data), lake, topics=["orders"], decode=decode)
    with duralog.open(data) as store:
        store.partition("orders", 0).append([duralog.Record(key=b"b", value=b"no avro")])
    second = export(spark, str(data), lake, topics=["orders"], decode={**decode, "value.schema": "latest"})
    assert (first.records, second.records, second.tables[0].bad_records) == (11, 1, 1)
    assert second.tables[0].column_changes == ("new column value.customer",)
    frame = spark.read.option("mergeSchema", "true").parquet(f"{lake}/orders")
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,customer:struct<name:string>>"
    assert frame.selectExpr("sum(value.id)", "count(_corrupt.reason)", "max(key)").collect()[0][:] == (20, 1, "b")


def test_the_report_as_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    fill_days(tmp_path / "data")
    report = export(spark, str(tmp_path / "data"), str(tmp_path / "lake"))
    (row,) = report.frame(spark).collect()
    assert (row.topic, row.records, row.end_offsets) == ("events", 40, {0: 20, 1: 20})


def test_an_error_of_a_task_is_itself(spark: SparkSession, tmp_path: Path) -> None:
    fill_days(tmp_path / "data")
    with pytest.raises(UnknownTopic, match="there is no topic nope"):
        export(spark, str(tmp_path / "data"), str(tmp_path / "lake"), topics=["nope"])


@pytest.mark.usefixtures("spark")
def test_the_command(tmp_path: Path) -> None:
    fill_days(tmp_path / "data")
    arguments = [str(tmp_path / "data"), str(tmp_path / "lake"), "--format", "delta"]
    first = run(*arguments, "--json")
    assert first.exit_code == 0, first.output
    told: dict[str, Any] = json.loads(first.stdout)
    assert (told["records"], told["tables"][0]["end_offsets"]) == (40, {"0": 20, "1": 20})
    second = run(*arguments)
    assert second.exit_code == 0
    assert second.stdout.splitlines()[1].split()[:4] == ["events", "0", "0", "0"]
    wrong = run(*arguments[:2])
    assert wrong.exit_code == 1
    assert "expected a table of format parquet, found one of format delta" in wrong.stderr
    assert run(str(tmp_path / "data")).exit_code == 2


@pytest.mark.usefixtures("spark")
def test_the_command_on_the_directories_of_a_cluster(tmp_path: Path) -> None:
    nodes = three_nodes(tmp_path)
    flip(logs(nodes[0])[1], 300)
    paths, target = [str(node) for node in nodes], str(tmp_path / "lake")
    first = run(*paths, target, "--json")
    assert first.exit_code == 0, first.output
    told = json.loads(first.stdout)
    assert (told["records"], told["problems"]) == (60, [])
    (healed,) = told["tables"][0]["healed"]
    assert healed.startswith(f"orders-0: offsets 18 to 20 were read from {nodes[1]}")
    write_high_watermarks(nodes, 40)
    second = run(f"{tmp_path}/broker-*", target)
    assert second.exit_code == 0, second.output
    assert "# orders: partition 0 is in the table up to offset 60, and can be read up to 40 here" in second.stdout
    third = run(target, "--data", paths[0], "--data", paths[0], "--data", paths[1])
    assert (third.exit_code, "which was given before: it counts once" in third.stdout) == (0, True)
    alone = run(paths[0], target)
    assert (alone.exit_code, "exported from the directories of a cluster" in alone.stderr) == (1, True)
    assert "there is no topic nope" in run(*paths, target, "--topic", "nope").stderr
    assert [row["offset"] for row in rows_of("parquet", tmp_path / "lake" / "orders")] == list(range(60))


@pytest.mark.usefixtures("spark")
def test_the_command_with_chosen_columns(tmp_path: Path) -> None:
    write_typed_log(tmp_path / "data")
    arguments = [str(tmp_path / "data"), str(tmp_path / "lake"), "--topic", "orders", "--value-format", "avro"]
    found = run(*arguments, "--columns", "value.id, value.customer.name")
    assert found.exit_code == 0, found.output
    assert rows_of("parquet", tmp_path / "lake" / "orders")[7]["value"] == {"id": 2, "customer": {"name": "x"}}
    wrong = run(*arguments, "--columns", "value.id")
    assert (wrong.exit_code, "choose the same columns" in wrong.stderr) == (1, True)
