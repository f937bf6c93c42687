"""Decoded records as Spark wants them: names, types, times that do not fit."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql.types import StructType

import duralog
from duralog import Record
from duralog.columnar.schema import RECORD_SCHEMA
from duralog.errors import CorruptRecord
from duralog.spark import session
from duralog.spark.connector_columns import connector_schema, microseconds
from duralog.spark.option_text import InvalidOption
from duralog.spark.plain_errors import plain_errors
from duralog.spark.session import local_session
from duralog.spark.source.planned_read import plan_read
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import Columns, schema_of
from duralog.spark.source.task_reading import SliceTask, read_task
from duralog.spark.spark_versions import arrow_schema

TIME = pa.timestamp("ms", tz="UTC")
RECORDS = pa.RecordBatch.from_pylist(
    [
        {
            "topic": "t",
            "partition": 3,
            "offset": 7,
            "timestamp": 1_700_000_000_123,
            "timestamp_type": 1,
            "key": None,
            "value": b"v",
            "headers": [{"key": "h", "value": None}],
        }
    ],
    schema=RECORD_SCHEMA,
)


def options(**given: str) -> ReadOptions:
    return ReadOptions.of({"path": "logs", **given}, streaming=False)


def test_a_batch_has_exactly_the_schema_that_spark_expects() -> None:
    """It compares the schemas, names of list items included."""
    chosen = options(includeHeaders="true", mode="PERMISSIVE")
    schema = schema_of(chosen)
    columns = Columns(schema, chosen)
    assert columns.of_records == RECORD_SCHEMA.names
    expected = arrow_schema(schema)
    for batch in (columns.batch(RECORDS), columns.rows([{"topic": "t", "offset": 3}])):
        assert expected.equals(batch.schema)
    row = columns.batch(RECORDS).to_pylist()[0]
    assert row["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert (row["timestampType"], row["headers"], row["_corrupt"]) == (1, [{"key": "h", "value": None}], None)


def test_every_subset_of_the_columns(tmp_path: Path) -> None:
    """Each column is the same, whichever others are read with it, from records that are decoded in any of the ways."""
    with duralog.open(tmp_path / "logs") as store:
        store.create_topic("t", partitions=1)
        log = store.partition("t", 0)
        for number, codec in enumerate(("none", "lz4", "zstd", "none")):
            log.append([_record(number * 50 + row) for row in range(50)], codec=codec)

    tasks = [SliceTask(slices) for slices in plan_read(options(path=str(tmp_path / "logs"))).tasks]

    def read(*names: str) -> pa.Table:
        chosen = options(columns=",".join(names))
        columns = Columns(schema_of(chosen), chosen)
        return pa.Table.from_batches([batch for task in tasks for batch in read_task(task, columns, chosen)])

    names = [*connector_schema(headers=True).names]
    everything = read(*names)
    assert everything.num_rows == 200
    assert everything["value"].to_pylist() == [_record(number).value for number in range(200)]
    subsets = [subset for count in range(1, len(names)) for subset in combinations(names, count)]
    assert len(subsets) == 2 ** len(names) - 2
    for subset in subsets:
        assert read(*subset).equals(everything.select(subset)), subset


def _record(number: int) -> Record:
    return Record(
        key=None if number % 5 == 0 else b"k%d" % number,
        value=None if number % 7 == 0 else b"v" * (number % 11),
        timestamp_ms=1_700_000_000_000 + number,
        headers=[("h", b"%d" % number)] * (number % 3),
    )


def test_a_slice_of_a_batch_keeps_its_rows() -> None:
    many = pa.Table.from_batches([RECORDS] * 3).combine_chunks().to_batches()[0]
    many = many.set_column(3, RECORD_SCHEMA.field(3), pa.array([1, None, 3], TIME))
    chosen = options(columns="timestamp,offset")
    found = Columns(schema_of(chosen), chosen).batch(many.slice(1, 2))
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [None, 3000]


def test_times_that_do_not_fit_are_null() -> None:
    times = pa.array([0, None, 2**63 - 1, -(2**63) + 1, 9_223_372_036_854_775, -1], TIME)
    assert microseconds(times).cast(pa.int64()).to_pylist() == [0, None, None, None, 9_223_372_036_854_775_000, -1000]


def test_the_connector_s_schema_is_the_same_without_spark() -> None:
    chosen = options(includeHeaders="true")
    of_spark = arrow_schema(schema_of(chosen))
    assert of_spark.names == connector_schema(headers=True).names
    assert [str(kind).replace("element", "item") for kind in of_spark.types] == [
        str(kind) for kind in connector_schema(headers=True).types
    ]


def test_nothing_but_damage_is_asked_for() -> None:
    chosen = options(mode="PERMISSIVE", columns="_corrupt")
    assert Columns(schema_of(chosen), chosen).of_records == ["offset"]


def test_columns_that_cannot_be() -> None:
    with pytest.raises(InvalidOption, match="option columns names a column twice: offset, OFFSET"):
        schema_of(options(columns="offset, OFFSET"))
    with pytest.raises(InvalidOption, match="there is no column x; there are key, value"):
        schema_of(options(columns="offset,x"))
    with pytest.raises(InvalidOption, match="a schema without columns cannot be read"):
        Columns(StructType([]), options())
    with pytest.raises(InvalidOption, match="the schema names a column twice: offset, Offset"):
        Columns(StructType().add("offset", "long").add("Offset", "long"), options())
    with pytest.raises(InvalidOption, match="option columns and the schema differ"):
        Columns(StructType().add("offset", "long"), options(columns="key"))


def test_an_expected_error_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    with pytest.raises(ZeroDivisionError), plain_errors():
        _ = 1 / 0
    assert not os.environ["SPARK_HIDE_TRACEBACK"], "a bug keeps its traceback"
    with pytest.raises(CorruptRecord), plain_errors():
        raise CorruptRecord("damage")
    assert os.environ["SPARK_HIDE_TRACEBACK"]


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "2"),
        ("local[7]", "7"),
        ("local[3,4]", "3"),
        ("local[*]", str(max(os.cpu_count() or 1, 2))),
        ("local-cluster[3, 2, 1024]", "6"),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_settings_by_master(monkeypatch: pytest.MonkeyPatch, master: str, expected: str | None) -> None:
    """Only a machine that is on its own listens to itself alone."""
    settings: dict[str, str] = {}

    class Builder:
        def __getattr__(self, name: str) -> object:
            return lambda *_: self

        def config(self, name: str, value: str) -> Builder:
            settings[name] = value
            return self

        def getOrCreate(self) -> SimpleNamespace:  # noqa: N802
            context = SimpleNamespace(setLogLevel=lambda _: None, master=master, pythonExec="")
            return SimpleNamespace(sparkContext=context, dataSource=SimpleNamespace(register=lambda _: None))

    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(Builder=Builder))
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with_installed_pyspark: list[object] = []
    monkeypatch.setattr(session, "use_installed_pyspark", with_installed_pyspark.append)
    local_session(master, config={"spark.ui.enabled": "true"})
    assert settings.get("spark.sql.shuffle.partitions") == expected
    assert settings.get("spark.driver.host") == os.environ.get("SPARK_LOCAL_IP") == (expected and "127.0.0.1")
    assert settings["spark.ui.enabled"] == "true"
    assert bool(with_installed_pyspark) == (expected is not None)
