"""Typed payloads in Spark: a struct by the reader's schema, in batches and streams; what does not decode is kept."""

from __future__ import annotations

import datetime
import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import duralog
from duralog.errors import CorruptPayload, CorruptRecord
from duralog.spark.source import corrupt_report
from duralog.spark.source.planned_read import plan_read
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import Columns, schema_of
from duralog.spark.source.task_reading import SliceTask, read_task
from duralog.spark.source.typed_read import plan_typed_read
from tests.support.typed_log import FIRST, avro, schema_record, write_typed_log

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed")
    write_typed_log(path)
    return path


def load(spark: SparkSession, path: Path, topic: str, **options: str) -> DataFrame:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return spark.read.format("duralog").options(subscribe=topic, **named).load(str(path))


def test_two_versions_are_one_type_for_every_query(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path, "orders", value_format="auto", key_format="string")
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,customer:struct<name:string>>"
    assert frame.schema["key"].dataType.simpleString() == "string"
    for _ in range(2):
        assert frame.where("value.customer.name = 'x'").count() == 5
        assert frame.selectExpr("sum(value.id)").collect()[0][0] == 20
        assert frame.where("value is null").count() == 1
    frame.createOrReplaceTempView("typed_orders")
    assert spark.sql("select max(value.id) from typed_orders where key = 'a'").collect()[0][0] == 4


def test_fields_that_are_not_asked_for_are_not_there(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path, "orders", value_format="avro", columns="offset,value.customer.name")
    assert frame.schema.simpleString() == "struct<offset:bigint,value:struct<customer:struct<name:string>>>"
    assert [row.value.customer.name for row in frame.where("offset between 5 and 6").collect()] == ["x", "x"]


def test_what_does_not_decode(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path, "bad", value_format="avro")
    first, second = frame.where("_corrupt is not null").orderBy("offset").collect()
    assert (first.value, bytes(first._corrupt.value)) == (None, b"\0\0\0\0\x09zz")
    assert (first._corrupt.reason, first._corrupt.firstOffset) == ("value: unknown schema id 9", first.offset)
    assert "damaged Avro" in second._corrupt.reason
    assert frame.count() == 1102
    with pytest.raises(PySparkException, match="bad-0 offset 1100: the value does not decode: unknown schema id 9"):
        load(spark, path, "bad", value_format="avro", mode="FAILFAST").collect()


def table_of(path: Path, **options: str) -> pa.Table:
    """What the tasks of a read return, without a session."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    parsed = ReadOptions.of({"path": str(path), **named}, streaming=False)
    typed = plan_typed_read(parsed)
    columns = Columns(schema_of(parsed, typed), parsed, typed)
    tasks = plan_read(parsed).tasks
    return pa.Table.from_batches([batch for task in tasks for batch in read_task(SliceTask(task), columns, parsed)])


def reported(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    return sorted(lines, key=lambda line: int(line["firstOffset"]))


def test_what_does_not_decode_is_reported_in_the_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As damaged batches are: no null is silent."""
    options = {"subscribe": "bad", "value_format": "avro"}
    folder = tmp_path / "reports"
    for _ in range(2):
        found = table_of(path, columns="value,offset", badRecordsPath=str(folder), **options)
        assert (found.num_rows, found["value"].null_count) == (1102, 2)
        first, second = reported(folder)
    place = {"topic": "bad", "partition": 0, "firstOffset": 1100, "lastOffset": 1100}
    assert first == {**place, "reason": "value: unknown schema id 9", "value": "AAAAAAl6eg=="}
    assert "damaged Avro" in second["reason"]
    # A read that decodes other fields leaves the report alone, and one that decodes nothing has none.
    table_of(path, columns="value.id", badRecordsPath=str(folder), **options)
    table_of(path, columns="offset", badRecordsPath=str(folder), **options)
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(corrupt_report, "_MOST_BYTES", 1)
    table_of(path, badRecordsPath=str(tmp_path / "few"), **options)
    first, rest = reported(tmp_path / "few")
    assert (rest["firstOffset"], rest["lastOffset"]) == (1101, 1101)
    assert rest["reason"].startswith("1 more payloads between these offsets do not decode; the first one: value: ")


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Without the plans that are logged as INFO if a test before set the level."""
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_fields_that_the_sample_does_not_have_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the log of the task, whatever the mode, and in the folder."""
    values = [{"id": number} | ({"coupon": 1, "by": {"x": 1}} if number > 1100 else {}) for number in range(1200)]
    with duralog.open(tmp_path / "data") as store:
        store.create_topic("plain", 1)
        store.partition("plain", 0).append([duralog.Record(value=json.dumps(each).encode()) for each in values])
    sentence = (
        "fields of JSON that the sampled records do not have are left out: value.by (99x), value.coupon (99x). To have"
        " them, give value.format json with a JSON Schema as value.schema, or read the bytes"
    )
    options = {"subscribe": "plain", "value_format": "json"}
    for more in ({}, {"mode": "PERMISSIVE"}, {"mode": "PERMISSIVE", "badRecordsPath": str(tmp_path / "reports")}):
        caplog.clear()
        found = table_of(tmp_path / "data", **options, **more)
        assert found["value"].to_pylist() == [{"id": number} for number in range(1200)]
        assert _warnings(caplog) == [f"plain-0 offsets 0 to 1199: {sentence}"]
    [line] = reported(tmp_path / "reports")
    assert line == {"topic": "plain", "partition": 0, "firstOffset": 0, "lastOffset": 1199, "reason": sentence}
    caplog.clear()
    schema = '{"properties": {"id": {"type": "integer"}}}'
    table_of(tmp_path / "data", value_schema=schema, value_framing="none", **options)
    assert not _warnings(caplog)


def test_payloads_that_are_null_without_a_report_are_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"subscribe": "bad", "value_format": "avro"}
    found = table_of(path, columns="offset,value.id", **options)
    assert found["value"].null_count == 2
    assert _warnings(caplog) == [
        "bad-0 offsets 0 to 1101: 2 keys or values do not decode and are null: value: unknown schema id 9. Read the"
        " column _corrupt to have their bytes and reasons, or give mode FAILFAST"
    ]
    caplog.clear()
    table_of(path, columns="value,_corrupt", **options)
    assert not _warnings(caplog)


def test_damage_of_the_log_is_an_error_unless_the_mode_says_otherwise(path: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(path, data)
    log = next((data / "orders-0").glob("*.log"))
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    log.write_bytes(damaged)
    options = {
        "subscribe": "orders",
        "value_format": "avro",
        "value_schema": "orders-value",
        "value_framing": "confluent",
    }
    for more in ({}, {"mode": "FAILFAST"}, {"badRecordsPath": str(tmp_path / "reports")}):
        with pytest.raises(CorruptRecord):
            table_of(data, **options, **more)
    found = table_of(data, mode="PERMISSIVE", **options)
    assert [row["position"] for row in found["_corrupt"].to_pylist() if row and row["position"] is not None]


@pytest.mark.parametrize("more", [{}, {"cluster": "true"}], ids=["directory", "cluster"])
def test_damage_where_the_sample_is_taken(path: Path, tmp_path: Path, more: dict[str, str]) -> None:
    """It must not keep the rest of the topic from being read."""
    damaged = tmp_path / "damaged"
    shutil.copytree(path, damaged)
    (log,) = (damaged / "orders-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    options = {"subscribe": "orders", "value_format": "auto", **more}
    found = table_of(damaged, mode="PERMISSIVE", **options).select(["offset", "value", "_corrupt"]).to_pylist()
    assert [row["offset"] for row in found] == [0, *range(5, 11)]
    assert (found[0]["value"], found[0]["_corrupt"]["lastOffset"]) == (None, 4)
    assert [row["value"]["id"] for row in found[1:6]] == list(range(5))
    with pytest.raises(CorruptRecord, match="offsets 0 to 4 of orders-0 cannot be read"):
        table_of(damaged, **options)


LAST_MS = (2**63 - 1) // 1000


def test_times_that_spark_cannot_hold_do_not_decode(tmp_path: Path) -> None:
    """Multiplied by 1,000, they would be other times."""
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    local = {"type": "long", "logicalType": "local-timestamp-millis"}
    fields = [{"name": "at", "type": ["null", moment]}, {"name": "all", "type": {"type": "array", "items": local}}]
    schema = json.dumps({"type": "record", "name": "Times", "fields": fields})
    values = [(5, [6]), (LAST_MS, [-LAST_MS]), (2**63 - 1, []), (None, [1, 2**63 - 1]), (None, []), (-(2**63), [])]
    as_numbers = json.loads(schema.replace("logicalType", "was"))
    with duralog.open(tmp_path) as store:
        store.create_topic("times", 1)
        payloads = [avro(as_numbers, {"at": at, "all": all_}, 0)[5:] for at, all_ in values]
        store.partition("times", 0).append([duralog.Record(value=payload) for payload in payloads])
    options = {"value_format": "avro", "value_framing": "none", "value_schema": schema}
    found = table_of(tmp_path, mode="PERMISSIVE", columns="value,_corrupt", **options)
    assert found["value"].is_valid().to_pylist() == [True, True, False, False, True, False]
    at = found["value"].combine_chunks().field("at")
    assert at.cast(pa.int64()).to_pylist()[:2] == [5_000, LAST_MS * 1000]
    reasons = [None if row is None else row["reason"] for row in found["_corrupt"].to_pylist()]
    assert [reason is not None for reason in reasons] == [False, False, True, True, False, True]
    assert re.search("^value: Spark cannot hold it: .* out of bounds timestamp: 9223372036854775807$", reasons[3] or "")
    with pytest.raises(CorruptPayload, match="times-0 offset 2: the value does not decode: Spark cannot hold it"):
        table_of(tmp_path, mode="FAILFAST", **options)


def test_durations_are_intervals(spark: SparkSession, tmp_path: Path) -> None:
    proto = (
        'syntax = "proto3"; import "google/protobuf/duration.proto"; message M { google.protobuf.Duration took = 1; }'
    )
    with duralog.open(tmp_path) as store:
        store.create_topic("took", 1)
        store.partition("took", 0).append([duralog.Record(value=b"\x0a\x06\x08\x03\x10\xa0\xf7\x36")])
    frame = load(spark, tmp_path, "took", value_format="protobuf", value_framing="none", value_schema=proto)
    assert frame.schema["value"].dataType.simpleString() == "struct<took:interval day to second>"
    assert frame.select("value.took").first() == (datetime.timedelta(seconds=3, microseconds=900),)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"value_format": "xml"}, "expected one of auto"),
        ({"value_format": "avro", "value_schema": "nothing"}, "no subject"),
        ({"schema_registry_token": "x", "value_format": "avro"}, "needs schema.registry.url"),
        ({"value_fromat": "avro"}, "did you mean value.format"),
        ({"columns": "value.id"}, "there is no column value.id"),
    ],
)
def test_wrong_options(spark: SparkSession, path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException) as refused:
        load(spark, path, "orders", **options)
    assert words in str(refused.value)


def test_empty_topics_and_that_of_the_schemas(spark: SparkSession, tmp_path: Path) -> None:
    """An empty topic has the type of the others, or of its registered schema; a stream may start there."""
    with duralog.open(tmp_path) as store:
        for topic in ("_schemas", "full", "empty"):
            store.create_topic(topic, 1)
        store.partition("_schemas", 0).append(
            [schema_record("full-value", 1, 3, FIRST), schema_record("empty-value", 1, 3, FIRST)]
        )
        store.partition("full", 0).append([duralog.Record(value=avro(FIRST, {"id": 7}, 3))])
        for chosen in ({"subscribe": "full,empty"}, {"subscribePattern": ".*"}, {}):
            frame = spark.read.format("duralog").options(**{"value.format": "auto"}, **chosen).load(str(tmp_path))
            assert [row.value.id for row in frame.collect()] == [7], chosen
        assert load(spark, tmp_path, "empty", value_format="auto").count() == 0
        frame = (
            spark.readStream.format("duralog")
            .options(subscribe="empty", startingOffsets="earliest", **{"value.format": "avro"})
            .load(str(tmp_path))
        )
        query = frame.writeStream.format("memory").queryName("from_nothing").start()
        try:
            query.processAllAvailable()
            store.partition("empty", 0).append([duralog.Record(value=avro(FIRST, {"id": 8}, 3))])
            query.processAllAvailable()
            assert spark.sql("select value.id from from_nothing").collect() == [(8,)]
        finally:
            query.stop()


def test_a_stream_while_the_schema_changes(spark: SparkSession, tmp_path: Path) -> None:
    newer = {**FIRST, "fields": [*FIRST["fields"], {"name": "note", "type": "string"}]}
    with duralog.open(tmp_path) as store:
        store.create_topic("_schemas", 1)
        store.create_topic("orders", 1)
        store.partition("_schemas", 0).append([schema_record("orders-value", 1, 3, FIRST)])
        log = store.partition("orders", 0)
        log.append([duralog.Record(value=avro(FIRST, {"id": n}, 3)) for n in range(3)])
        frame = (
            spark.readStream.format("duralog")
            .options(subscribe="orders", startingOffsets="earliest", **{"value.format": "avro"})
            .load(str(tmp_path))
        )
        assert frame.schema["value"].dataType.simpleString() == "struct<id:int>"
        query = frame.writeStream.format("memory").queryName("typed").start()
        try:
            query.processAllAvailable()
            assert spark.sql("select count(*), sum(value.id) from typed").collect()[0][:] == (3, 3)
            store.partition("_schemas", 0).append([schema_record("orders-value", 2, 4, newer)])
            log.append([duralog.Record(value=avro(newer, {"id": 4, "note": "x"}, 4)), duralog.Record(value=None)])
            query.processAllAvailable()
            assert spark.sql("select count(*), sum(value.id) from typed").collect()[0][:] == (5, 7)
        finally:
            query.stop()
