"""Tables with decoded keys and values: their columns, how these change as the topic's do, and what is refused."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import duralog
from duralog.errors import CorruptPayload, InvalidConfig, SchemaError
from duralog.spark.jobs.export import ExportedTable, export
from duralog.spark.jobs.snapshot import SnapshotTable, snapshot
from duralog.spark.lake.evolution import SchemaConflict, conformed, evolved, evolved_json, table_type
from duralog.spark.lake.table_state import StateRefused
from tests.support.schemas.presence import present
from tests.support.spark.lake_directory import FORMATS, START_MS, Death, Killed, rows_of, run_here
from tests.support.typed_log import avro, schema_record


def record(*fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": type_, "default": default} for name, type_, default in fields],
    }


def address(*fields: Any) -> Any:
    return ["null", {**record(*fields), "name": "Address"}]


FIRST = record(("id", "int", 0), ("ratio", "float", 0.0), ("address", address(("street", "string", "")), None))
ADDED = record(
    ("id", "int", 0),
    ("ratio", "float", 0.0),
    ("address", address(("street", "string", ""), ("zip", ["null", "int"], None)), None),
    ("note", ["null", "string"], None),
)
WIDER = record(("id", "long", 0), ("ratio", "double", 0.0), ("address", address(("street", "string", "")), None))
OTHER = record(("id", "string", ""), ("ratio", "float", 0.0))


class Orders:
    """A log directory with a topic `orders`, its schemas, and tables of it."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.target = folder / "lake"
        self.schemas = 0
        with duralog.open(str(self.data)) as store:
            store.create_topic("_schemas", 1)
            store.create_topic("orders", 1, {"retention.ms": "-1"})

    def write(self, schema: Any, *values: dict[str, Any], subject: str = "orders-value") -> None:
        """Values of a new version of the schema, with keys that are their ids."""
        self.schemas += 1
        with duralog.open(str(self.data)) as store:
            store.partition("_schemas", 0).append([schema_record(subject, self.schemas, self.schemas, schema)])
        self.append(*((str(value["id"]).encode(), avro(schema, value, self.schemas)) for value in values))

    def append(self, *records: tuple[bytes | None, bytes | None]) -> None:
        with duralog.open(str(self.data)) as store:
            store.partition("orders", 0).append(
                [duralog.Record(key=key, value=value, timestamp_ms=START_MS) for key, value in records]
            )

    def export(self, table_format: str, **options: Any) -> ExportedTable:
        given = {"decode": "avro", "topics": ["orders"], "format": table_format, **options}
        return export(None, str(self.data), str(self.target), **given).tables[0]  # type: ignore[arg-type]

    def snapshot(self, table_format: str, **options: Any) -> SnapshotTable:
        given = {"decode": "avro", "topics": ["orders"], "format": table_format, **options}
        return snapshot(None, str(self.data), str(self.target), **given).tables[0]  # type: ignore[arg-type]

    def values(self, table_format: str, table: ExportedTable | SnapshotTable) -> list[Any]:
        if table_format == "parquet":
            # As a reader that takes all columns of all files.
            files = sorted(Path(table.path).rglob("*.parquet"))
            tables = [pq.ParquetFile(file).read() for file in files]
            rows = pa.concat_tables(tables, promote_options="permissive").to_pylist()
            return [row["value"] for row in sorted(rows, key=lambda row: row["offset"])]
        return [row["value"] for row in rows_of(table_format, table.path)]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Orders:
    modules = (importlib.import_module(f"duralog.spark.jobs.{name}") for name in ("snapshot", "export"))
    run_here(monkeypatch, *modules)
    return Orders(tmp_path)


def order(number: int, street: str | None = None, **more: Any) -> dict[str, Any]:
    inside = (
        None if street is None else {"street": street, **{name: more.pop(name) for name in ("zip",) if name in more}}
    )
    return {"id": number, "ratio": 0.5, "address": inside, **more}


@pytest.mark.parametrize("table_format", FORMATS)
def test_new_columns_are_added(job: Orders, table_format: str) -> None:
    job.write(FIRST, order(1, "a"), order(2))
    assert job.export(table_format).column_changes == ()
    job.write(ADDED, order(3, "b", zip=7, note="n"))
    found = job.export(table_format)
    assert found.column_changes == ("new column value.address.zip", "new column value.note")
    assert job.values(table_format, found) == [
        order(1, "a", zip=None, note=None),
        order(2, note=None),
        order(3, "b", zip=7, note="n"),
    ]
    again = job.export(table_format)
    assert (again.records, again.column_changes) == (0, ())
    job.append((b"1", avro(FIRST, order(4), 1)))
    assert job.export(table_format).column_changes == ()


@pytest.mark.parametrize("table_format", FORMATS)
def test_wider_types(job: Orders, table_format: str) -> None:
    job.write(FIRST, order(1, "a"), order(2))
    job.export(table_format)
    before = _files(job.target)
    job.write(WIDER, order(2**40, "b"))
    if table_format == "iceberg":
        found = job.export(table_format)
        assert found.column_changes == (
            "wider column value.id from int32 to int64",
            "wider column value.ratio from float to double",
        )
        assert [value["id"] for value in job.values(table_format, found)] == [1, 2, 2**40]
        return
    with pytest.raises(SchemaConflict, match=r"lake/orders: column value\.id from int32 to int64: .*stays as it was"):
        job.export(table_format)
    assert _files(job.target) == before


def _files(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if not path.name.endswith((".lock", ".part")))


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_snapshot_becomes_wider_and_keeps_what_users_set(job: Orders, table_format: str) -> None:
    """It writes all rows again, so its columns can be wider in every format."""
    job.write(FIRST, order(1, "a"))
    job.snapshot(table_format)
    if table_format == "delta":
        from deltalake import DeltaTable

        DeltaTable(job.target / "orders").alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    job.write(WIDER, order(2**40))
    found = job.snapshot(table_format)
    assert "value.id from int32 to int64" in present(found.why_full)
    assert [value["id"] for value in job.values(table_format, found)] == [1, 2**40]
    if table_format == "delta":
        metadata = DeltaTable(job.target / "orders").metadata()
        assert (metadata.name, metadata.configuration) == (
            "orders",
            {"delta.logRetentionDuration": "interval 9 days"},
        )
    job.write(ADDED, order(3, "c", zip=1, note="x"))
    found = job.snapshot(table_format)
    assert not found.is_incremental
    assert job.values(table_format, found)[-1] == order(3, "c", zip=1, note="x")
    job.append((b"3", None))
    assert (job.snapshot(table_format).is_incremental, job.snapshot(table_format).live_keys) == (True, 2)


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("name", ["export", "snapshot"])
def test_what_cannot_change_is_refused(job: Orders, table_format: str, name: str) -> None:
    run = getattr(job, name)
    job.write(FIRST, order(1))
    made = run(table_format)
    rows, files = job.values(table_format, made), _files(job.target)
    job.write(OTHER, {"id": "x", "ratio": 0.5})
    with pytest.raises(SchemaConflict, match=r"lake/orders: column value\.id is int32 in the table and string in the"):
        run(table_format)
    with pytest.raises(SchemaConflict, match=r"column value is struct<.* in the table and binary in the topic"):
        run(table_format, decode=None)
    assert (job.values(table_format, made), _files(job.target)) == (rows, files)
    # A schema in which the type is that of the table.
    job.append((b"2", avro(FIRST, order(2), 1)))
    found = run(table_format, decode={"value.format": "avro", "value.schema": "orders-value:1"})
    assert [value and value["id"] for value in job.values(table_format, found)] == [1, None, 2]
    assert found.bad_records == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_run_may_die_at_every_file(
    job: Orders, table_format: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run has a new column, and dies one file later than the one before."""
    fields: list[Any] = [("id", "int", 0)]
    step, is_done = 0, False
    while not is_done:
        step += 1
        fields.append((f"c{step}", ["null", "int"], None))
        job.write(record(*fields), {"id": step, f"c{step}": step})
        with monkeypatch.context() as patched:
            death = Death(patched, step, after=after)
            try:
                job.export(table_format)
                is_done = not death.is_dead
            except Killed:
                assert death.is_dead
    found = job.export(table_format)
    values = job.values(table_format, found)
    assert [(value["id"], value[f"c{number}"]) for number, value in enumerate(values, 1)] == [
        (number, number) for number in range(1, step + 1)
    ]


@pytest.mark.parametrize("table_format", FORMATS)
def test_what_does_not_decode_is_kept(job: Orders, table_format: str) -> None:
    job.write(FIRST, order(1))
    job.append((b"2", b"\0\0\0\0\x09zz"), (None, b"\0\0\0\0\x01\x02"), (b"3", None))
    found = job.export(table_format)
    assert (found.records, found.bad_records) == (4, 2)
    rows = rows_of(table_format, found.path)
    assert [row["value"] and row["value"]["id"] for row in rows] == [1, None, None, None]
    assert [row["_corrupt"] and row["_corrupt"]["value"] for row in rows] == [
        None,
        b"\0\0\0\0\x09zz",
        b"\0\0\0\0\x01\x02",
        None,
    ]
    assert rows[1]["_corrupt"]["reason"] == "value: unknown schema id 9"
    with pytest.raises(CorruptPayload, match="orders-0 offset 1: the value does not decode"):
        job.export(
            table_format, decode={"value.format": "avro", "mode": "failfast"}, topics=["orders"], **_elsewhere(job)
        )


def _elsewhere(job: Orders) -> dict[str, Any]:
    job.target = job.target / "elsewhere"
    return {}


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_snapshot_with_decoded_keys(job: Orders, table_format: str) -> None:
    """The next run finds a key by its bytes, which are beside it."""
    job.write(FIRST, order(1), order(2))
    decode = {"value.format": "avro", "key.format": "string"}
    job.snapshot(table_format, decode=decode)
    job.append((b"1", None), (b"2", avro(FIRST, order(20), 1)), (b"\xff", avro(FIRST, order(3), 1)))
    found = job.snapshot(table_format, decode=decode)
    assert (found.is_incremental, found.bad_records) == (True, 1)
    rows = rows_of(table_format, found.path)
    assert [(row["key"], row["kafka_key"], row["value"]["id"]) for row in rows] == [("2", b"2", 20), (None, b"\xff", 3)]
    assert rows[1]["_corrupt"]["key"] == b"\xff"


def test_json_keeps_the_types_of_earlier_runs(job: Orders) -> None:
    def write(*values: Any) -> None:
        job.append(*((b"k", json.dumps(value).encode()) for value in values))

    write({"a": 1, "b": 0.5, "c": None, "d": {"e": 1}})
    job.export("delta", decode="json")
    # No value of `a`, no fraction in `b`, the first values of `c`, and two new fields.
    write({"a": None, "b": 1, "c": "x", "d": {"e": 2, "f": "y"}}, {"b": 2, "c": 7, "g": [1]})
    found = job.export("delta", decode="json")
    assert found.column_changes == ("new column value.d.f", "new column value.g")
    assert job.values("delta", found) == [
        {"a": 1, "b": 0.5, "c": None, "d": {"e": 1, "f": None}, "g": None},
        {"a": None, "b": 1.0, "c": "x", "d": {"e": 2, "f": "y"}, "g": None},
        {"a": None, "b": 2.0, "c": "7", "d": None, "g": [1]},
    ]
    write({"a": "text"})
    with pytest.raises(SchemaConflict, match=r"value\.a is int64 in the table and string in the topic"):
        job.export("delta", decode="json")


def test_the_sample_has_the_last_records(job: Orders) -> None:
    """A field that only the last of many records have."""
    job.append(*((b"k", b'{"a":1}') for _ in range(3000)))
    job.append(*((b"k", b'{"a":1,"late":2}') for _ in range(5)))
    found = job.export("parquet", decode="json")
    assert [value["late"] for value in job.values("parquet", found)[-6:]] == [None, 2, 2, 2, 2, 2]
    assert found.left_out_fields == {}


def test_the_sample_of_many_partitions_has_the_newest_record(job: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.schemas.decode_options._SAMPLED_ROWS", 10)
    monkeypatch.setattr("duralog.spark.lake.row_planning._FIRST_RECORDS", 4)
    monkeypatch.setattr("duralog.spark.lake.row_planning._LAST_RECORDS", 6)
    with duralog.open(str(job.data)) as store:
        store.create_topic("many", 12)
        for number in range(12):
            values = [b'{"a":1}', b'{"a":2}', b'{"a":3}' if number else b'{"a":3,"late":4}']
            log = store.partition("many", number)
            for age, value in enumerate(values):
                time_ms = START_MS + 1000 * age + (number == 0)
                log.append([duralog.Record(value=value, timestamp_ms=time_ms)])
    found = job.export("parquet", topics=["many"], decode="json")
    assert found.left_out_fields == {}
    assert {"a": 3, "late": 4} in job.values("parquet", found)


def test_fields_that_no_record_of_the_sample_has(job: Orders) -> None:
    """They are counted: the table has no column for them."""
    written = [{"id": n, "inner": {"a": 1}, "items": [{"b": 1}]} for n in range(2000)]
    written[1000] |= {"coupon": 5, "inner": {"a": 2, "late": 3}, "items": [{"b": 2}, {"c": 1}, {"c": 2}]}
    written[1001] |= {"coupon": None}
    job.append(*((str(value["id"]).encode(), json.dumps(value).encode()) for value in written))
    expected = {"value.coupon": 2, "value.inner.late": 1, "value.items[].c": 2}
    found = job.export("parquet", decode="json")
    assert found.left_out_fields == expected
    assert job.values("parquet", found)[1000] == {
        "id": 1000,
        "inner": {"a": 2},
        "items": [{"b": 2}, *[{"b": None}] * 2],
    }
    schema = {"properties": {"id": {"type": "integer"}, "coupon": {"type": "integer"}}}
    decode = {"value.format": "json", "value.framing": "none", "value.schema": json.dumps(schema)}
    job.target = job.target / "snapshots"
    made = job.snapshot("delta", decode="json")
    assert made.left_out_fields == expected
    again = job.snapshot("delta", decode=decode, full=True)
    assert again.column_changes == ("new column value.coupon",)
    assert job.values("delta", again)[1000]["coupon"] == 5


def test_topics_without_records(job: Orders) -> None:
    with pytest.raises(SchemaError, match="topic orders has no records"):
        job.export("parquet")
    with pytest.raises(SchemaError, match="no topic has records"):
        job.snapshot("parquet", topics=None)
    with duralog.open(str(job.data)) as store:
        store.create_topic("full", 1)
        store.partition("full", 0).append([duralog.Record(value=b'{"a":1}')])
    assert job.export("parquet", topics=None, decode="json").topic == "full"


def test_a_state_with_damaged_columns(job: Orders) -> None:
    job.write(FIRST, order(1))
    job.export("parquet")
    path = job.target / "orders" / "_duralog_export.json"
    state = json.loads(path.read_bytes())
    for text in ("?", "aGVsbG8=", 7):
        state["details"]["schema"] = text
        path.write_text(json.dumps(state))
        with pytest.raises(StateRefused, match="its columns cannot be read"):
            job.export("parquet")


def test_types_of_tables() -> None:
    nested = pa.struct([pa.field("t", pa.time64("us"), nullable=False), pa.field("n", pa.null())])
    assert table_type(pa.list_(nested), "x") == pa.list_(pa.struct([("t", pa.int64()), ("n", pa.string())]))
    with pytest.raises(SchemaConflict, match=r"column x\.y is a record without fields"):
        table_type(pa.struct([("y", pa.struct([]))]), "x")
    with pytest.raises(SchemaConflict, match="there are columns a and A"):
        table_type(pa.struct([("a", pa.int8()), ("A", pa.int8())]), "x")


def test_columns_of_a_table_in_its_order() -> None:
    maps = pa.array([[("a", {"x": 1})], None, [], [("b", None)]], pa.map_(pa.string(), pa.struct([("x", pa.int32())])))
    wanted = pa.map_(pa.string(), pa.struct([("y", pa.string()), ("x", pa.int64())]))
    found = conformed(maps.slice(1), wanted)
    found.validate(full=True)
    assert found.to_pylist() == [None, [], [("b", None)]]
    assert conformed(maps, wanted).to_pylist()[0] == [("a", {"y": None, "x": 1})]
    lists = pa.array([[1], None, [2, None]], pa.list_(pa.int16())).slice(1)
    assert conformed(lists, pa.list_(pa.int32())).to_pylist() == [None, [2, None]]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int8(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(7, 2), pa.decimal128(7, 2)),
        (pa.decimal128(5, 2), pa.decimal128(7, 3), None),
        (pa.int32(), pa.float64(), None),
        (pa.string(), pa.binary(), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.int32(), pa.int32()), None),
    ],
)
def test_which_types_fit(old: pa.DataType, new: pa.DataType, found: pa.DataType | None) -> None:
    schemas = pa.schema([("a", old)]), pa.schema([("a", new)])
    if found is None:
        with pytest.raises(SchemaConflict, match="x: column a"):
            evolved(*schemas, "x")
    else:
        assert evolved(*schemas, "x").schema == pa.schema([("a", found)])
    field = pa.field("value", pa.struct([("a", old)]))
    assert evolved_json(field, field) == field


@pytest.mark.parametrize("table_format", FORMATS)
def test_chosen_columns(job: Orders, table_format: str) -> None:
    """The same in every run, in any order; of those, new ones are added as always."""
    job.write(FIRST, order(1, "a"), order(2))
    columns = ["value.address", "value.id"]
    assert job.values(table_format, job.export(table_format, columns=columns)) == [
        {"id": 1, "address": {"street": "a"}},
        {"id": 2, "address": None},
    ]
    job.write(ADDED, order(3, "b", zip=7, note="n"))
    found = job.export(table_format, columns=columns[::-1])
    assert found.column_changes == ("new column value.address.zip",)
    assert job.values(table_format, found)[2] == {"id": 3, "address": {"street": "b", "zip": 7}}
    job.append((b"1", b"no avro"))
    bad = job.export(table_format, columns=columns)
    assert (bad.records, bad.bad_records) == (1, 1)
    for other, has in ((None, "all fields"), (["value.id"], "value.id")):
        with pytest.raises(
            StateRefused, match=rf"has value\.address, value\.id of keys and values, and this run would write {has}:"
        ):
            job.export(table_format, columns=other)


def test_chosen_columns_of_snapshots_and_json(job: Orders) -> None:
    """Of JSON, fields that were not asked for are not said to be left out."""
    job.append((b"a", b'{"id":1,"x":{"y":2,"z":3}}'), (b"b", b'{"id":2,"w":5}'))
    options: dict[str, Any] = {"decode": {"value.format": "json"}, "columns": ["value.x.y"]}
    found = job.snapshot("parquet", **options)
    assert [row["value"] for row in rows_of("parquet", found.path)] == [{"x": {"y": 2}}, {"x": None}]
    assert found.left_out_fields == {}
    job.append((b"c", None))
    assert job.snapshot("parquet", **options).live_keys == 2
    with pytest.raises(StateRefused, match=r"the table has value\.x\.y of keys and values"):
        job.snapshot("parquet", decode={"value.format": "json"})


@pytest.mark.parametrize("columns", [["value"], ["offset"], ["value.id", "timestamp"]])
def test_columns_that_cannot_be_chosen(job: Orders, columns: list[str]) -> None:
    job.write(FIRST, order(1))
    with pytest.raises(InvalidConfig, match="expected fields of decoded keys and values"):
        job.export("parquet", columns=columns)
    with pytest.raises(InvalidConfig, match="expected fields of decoded keys and values"):
        job.export("parquet", columns=["value.id"], decode=None)
    with pytest.raises(InvalidConfig, match="in a table of records"):
        job.export("parquet", columns=["value.id"], unwrap="debezium")
    with pytest.raises(SchemaError, match=r"key\.x is a field of a decoded key"):
        job.export("parquet", columns=["key.x"])
    with pytest.raises(SchemaError, match="nope"):
        job.export("parquet", columns=["value.nope"])
