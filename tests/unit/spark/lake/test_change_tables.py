"""Change events of a real PostgreSQL database become its tables: at every point, in every encoding and format."""

from __future__ import annotations

import base64
import datetime
import importlib
import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.config.times import parse_time
from duralog.errors import CorruptPayload, DuralogError, InvalidConfig, SchemaError
from duralog.spark.jobs.export import ExportReport, export
from duralog.spark.jobs.snapshot import SnapshotTable, snapshot
from duralog.spark.jobs.snapshots import unavailable_values
from duralog.spark.jobs.snapshots.keyless_changes import RowsUnknown
from duralog.spark.jobs.snapshots.unavailable_values import UnavailableValues
from duralog.spark.lake.table_state import StateRefused
from tests.support.schemas.change_events import ENCODINGS, Point, points, topic_of
from tests.support.schemas.database_values import in_truth, of_truth
from tests.support.schemas.presence import present
from tests.support.spark.change_log import truth, write_events
from tests.support.spark.lake_directory import FORMATS, START_MS, Death, Killed, run_here, table_of
from tests.support.typed_log import avro, schema_record

UNTYPED = {"price", "huge", "any_scale", "made", "made_ms", "day", "at", "prices", "raw", "bits", "weight"}
"""Columns that are numbers or base64 in JSON without schemas."""
NO_STRINGS = {"span", "numbers", "tags", "is_new", "large", "ratio", "exact", "small"}
"""Columns that are text in a table whose first run has seen no value of them, in JSON without schemas."""


class Changes:
    """A log directory with change events, and tables of them."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.target = folder / "lake"

    def snapshot(self, table: str, **options: Any) -> SnapshotTable:
        target = options.pop("target", self.target)
        options.setdefault("unwrap", "debezium")
        report = snapshot(None, str(self.data), str(target), topics=[topic_of(table)], **options)  # type: ignore[arg-type]
        return report.tables[0]

    def history(self, table: str, **options: Any) -> ExportReport:
        target = options.pop("target", self.target)
        options.setdefault("unwrap", "debezium")
        return export(None, str(self.data), str(target), topics=[topic_of(table)], **options)  # type: ignore[arg-type]

    def events(self, topic: str, *events: tuple[Any, Any], partition: int = 0, partitions: int = 1) -> None:
        """JSON: a key and `{"op": ..., "after": ...}`; None for a tombstone."""
        with duralog.open(str(self.data), config={"log.cleaner.enable": "false"}) as store:
            if topic not in store.topics():
                store.create_topic(topic, partitions)
            store.partition(topic, partition).append(
                [duralog.Record(key=_json(key), value=_json(value), timestamp_ms=START_MS) for key, value in events]
            )


def _json(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, separators=(",", ":")).encode()


def change(op: str, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"ts_ms": 5}, "op": op, "ts_ms": 6}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Changes:
    modules = (importlib.import_module(f"duralog.spark.jobs.{name}") for name in ("snapshot", "export"))
    run_here(monkeypatch, *modules)
    return Changes(tmp_path)


def rows_of_table(table_format: str, table: SnapshotTable) -> list[dict[str, Any]]:
    """The database's columns."""
    rows = table_of(table_format, table.path).to_pylist()
    assert len(rows) == table.live_keys
    return [
        {
            name: value
            for name, value in row.items()
            if not name.startswith("kafka_") and name not in ("_corrupt", "partition")
        }
        for row in rows
    ]


def of_table(name: str, value: Any) -> Any:
    """A value of a table, in the form of `in_truth`."""
    if name == "at" and value is not None:
        # Microseconds in a table.
        return (datetime.datetime.min + datetime.timedelta(microseconds=value)).time()
    if name == "huge" and value is not None:
        # Text: more digits than a table's decimals have.
        return Decimal(value)
    if name in NO_STRINGS and isinstance(value, str):
        value = json.loads(value)
    return in_truth(name, value)


def assert_is_truth(rows: list[dict[str, Any]], table: str, encoding: str, point: Point) -> None:
    """All columns that the database has at this point, and the events still, or already."""
    expected = truth(point, table, encoding)
    names = set(rows[0]) & set(expected[0]) if rows and expected else set()
    if encoding == "json":
        names -= UNTYPED
    found = [{name: of_table(name, row[name]) for name in names} for row in rows]
    wanted = [{name: of_truth(name, row[name]) for name in names} for row in expected]
    assert Counter(map(repr, map(_sorted, found))) == Counter(map(repr, map(_sorted, wanted)))
    assert len(names) > 10 or table != "items"


def _sorted(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(row.items())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_row_is_the_databases_at_every_point(job: Changes, encoding: str) -> None:
    """From one run to the next, and in full; the first table has a column that is dropped and one that is added."""
    tables = ("items", "lines", "pages")
    written = 0
    for number, point in enumerate(points()):
        for table in tables:
            end = point.ends.get(topic_of(table), 0)
            first = points()[number - 1].ends.get(topic_of(table), 0) if number else 0
            write_events(job.data, encoding, [table], first=first, end=end)
            if not end:
                continue
            made = job.snapshot(table, format="delta")
            assert (made.bad_records, made.unavailable_rows) == (0, 0)
            assert_is_truth(rows_of_table("delta", made), table, encoding, point)
            written += 1
    assert written > 10


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("table", ["items", "lines", "pages"])
def test_as_of_every_point(job: Changes, table: str, table_format: str) -> None:
    """By offset and by time, forwards and backwards, from the same log."""
    write_events(job.data, "avro_confluent", [table])
    topic = topic_of(table)
    for point in [*points(), points()[1]]:
        end = point.ends.get(topic, 0)
        by_offset = job.snapshot(table, format=table_format, as_of_offsets={topic: {0: end}})
        assert_is_truth(rows_of_table(table_format, by_offset), table, "avro_confluent", point)
    by_time = job.snapshot(table, format=table_format, as_of_ms=START_MS + 1000 * points()[2].ends[topic])
    assert by_time.end_offsets == {0: points()[2].ends[topic]}
    assert_is_truth(rows_of_table(table_format, by_time), table, "avro_confluent", points()[2])
    again = job.snapshot(table, format=table_format, as_of_ms=START_MS + 1000 * points()[2].ends[topic])
    assert (again.is_incremental, again.records_read, again.files) == (True, 0, 0)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_run_may_die_at_every_file(
    job: Changes, table_format: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns change in between, too."""
    ends = [point.ends.get(topic_of("items"), 0) for point in points()]
    step, written, is_done = 0, 0, False
    while not is_done:
        step += 1
        new = ends[min(step, len(ends) - 1)]
        write_events(job.data, "json_with_schemas", ["items"], first=written, end=new)
        written = new
        with monkeypatch.context() as patched:
            death = Death(patched, step, after=after)
            try:
                job.snapshot("items", format=table_format)
                is_done = not death.is_dead
            except Killed:
                assert death.is_dead
    write_events(job.data, "json_with_schemas", ["items"], first=written)
    made = job.snapshot("items", format=table_format)
    assert_is_truth(rows_of_table(table_format, made), "items", "json_with_schemas", points()[-1])


def test_a_history_has_every_event(job: Changes) -> None:
    write_events(job.data, "json_with_schemas", ["lines"], end=5)
    job.history("lines", format="delta")
    write_events(job.data, "json_with_schemas", ["lines"], first=5)
    report = job.history("lines", format="delta")
    assert report.records == 8
    rows = table_of("delta", report.tables[0].path).to_pylist()
    rows.sort(key=lambda row: row["kafka_offset"])
    assert [row["__op"] for row in rows] == ["r", "r", "c", "d", None, "c", "d", None, "c", "d", None, "t", "c"]
    assert [(row["order"], row["number"], row["quantity"]) for row in rows[2:6]] == [
        ("B-1", 1, 5),
        # Of a deleted row, the key is known.
        ("A-1", 2, None),
        (None, None, None),
        ("A-1", 7, 20),
    ]
    assert {row["kafka_date"] for row in rows} == {datetime.date(2023, 11, 14)}
    assert all((row["__source_ts_ms"] is None) == (row["__op"] is None) for row in rows)


def test_deletes_without_tombstones_and_keys_that_come_back(job: Changes) -> None:
    topic = topic_of("t")
    job.events(topic, ({"id": 1}, change("c", {"id": 1, "a": "x"})), ({"id": 2}, change("c", {"id": 2, "a": "y"})))
    job.events(topic, ({"id": 1}, change("d", None, {"id": 1, "a": "x"})))
    made = job.snapshot("t")
    assert rows_of_table("parquet", made) == [{"id": 2, "a": "y"}]
    assert (made.live_keys, made.deleted_keys) == (1, 1)
    job.events(topic, ({"id": 1}, change("c", {"id": 1, "a": "z"})), ({"id": 2}, None), ({"id": 3}, b"null"))
    made = job.snapshot("t")
    assert (made.is_incremental, rows_of_table("parquet", made)) == (True, [{"id": 1, "a": "z"}])


def test_a_truncate_empties_what_was_before(job: Changes) -> None:
    topic = topic_of("t")
    job.events(topic, ({"id": 1}, change("c", {"id": 1})), ({"id": 2}, change("c", {"id": 2})))
    job.snapshot("t", format="delta")
    job.events(topic, (None, change("t")), ({"id": 3}, change("c", {"id": 3})))
    made = job.snapshot("t", format="delta")
    assert (made.is_incremental, rows_of_table("delta", made)) == (True, [{"id": 3}])
    assert made.keyless_records == 1
    job.events(topic, (None, change("t")))
    assert rows_of_table("delta", job.snapshot("t", format="delta")) == []
    before = job.snapshot("t", as_of_offsets={topic: {0: 2}}, target=job.target / "before")
    assert [row["id"] for row in rows_of_table("parquet", before)] == [1, 2]


def test_a_truncate_in_one_of_several_partitions_is_refused(job: Changes) -> None:
    topic = topic_of("t")
    job.events(topic, ({"id": 1}, change("c", {"id": 1})), partitions=2)
    job.events(topic, ({"id": 2}, change("c", {"id": 2})), (None, change("t")), partition=1)
    said = r"shop\.public\.t-1 offset 1: .*truncated, and the topic has several .* as of (\d{4}-\S+Z) or before"
    with pytest.raises(RowsUnknown, match=said) as refused:
        job.snapshot("t")
    found = present(re.search(said, str(refused.value)))
    made = job.snapshot("t", as_of_ms=parse_time(found[1], now_ms=0))
    assert made.live_keys <= 2
    made = job.snapshot("t", as_of_offsets={topic: {1: 1}})
    assert sorted(row["id"] for row in rows_of_table("parquet", made)) == [1, 2]


def test_a_truncate_of_one_of_several_tables_is_refused(job: Changes) -> None:
    """A router sends the changes of shards to one topic. Seen by one run, it is known to the next ones."""

    def of(shard: str, op: str, after: Any = None) -> dict[str, Any]:
        return {**change(op, after), "source": {"db": shard, "schema": None, "table": "t"}}

    topic = topic_of("t")
    job.events(topic, ({"id": 1, "at": "a"}, of("a", "c", {"id": 1})), ({"id": 1, "at": "b"}, of("b", "c", {"id": 1})))
    assert job.snapshot("t").live_keys == 2
    job.events(topic, (None, of("a", "t")), ({"id": 2, "at": "a"}, of("a", "c", {"id": 2})))
    with pytest.raises(
        RowsUnknown, match=r"t-0 offset 2: a table .* was truncated, and the topic has the events of several"
    ):
        job.snapshot("t")
    assert job.snapshot("t", as_of_offsets={topic: {0: 2}}).live_keys == 2


def test_rows_whose_events_are_gone(job: Changes) -> None:
    """The table is that of the log, and the report says so."""
    job.events(topic_of("t"), *(({"id": number}, change("c", {"id": number})) for number in range(3)))
    made = job.snapshot("t")
    assert (made.live_keys, len(made.findings)) == (3, 1)
    with duralog.open(str(job.data)) as store:
        store.partition(topic_of("t"), 0).delete_records(2)
    made = job.snapshot("t")
    assert (made.live_keys, made.expired_rows) == (1, 2)
    assert "t: partition 0 begins at offset 2: rows of the database that have not changed" in made.findings[-1]


def test_an_event_without_a_key_that_does_not_decode(job: Changes) -> None:
    """It may be a truncate."""
    job.events(topic_of("t"), ({"id": 1}, change("c", {"id": 1})), (None, b'{"op":"t"'), (None, None))
    with pytest.raises(RowsUnknown, match=r"t-0 offset 1: an event without a key does not decode.*damaged JSON"):
        job.snapshot("t", decode={"value.format": "debezium"})
    made = job.snapshot("t", as_of_offsets={topic_of("t"): {0: 1}})
    assert made.live_keys == 1


@pytest.mark.parametrize("table_format", FORMATS)
def test_rows_in_corrupt_are_counted_until_they_are_gone(job: Changes, table_format: str) -> None:
    """An incremental run does not decode them again."""
    topic, decode = topic_of("t"), {"value.format": "debezium"}
    bad = b'{"op": "c"'
    job.events(topic, *(({"id": number}, bad) for number in range(3)), ({"id": 3}, change("c", {"id": 3})))
    made = job.snapshot("t", format=table_format, decode=decode)
    assert (made.bad_records, made.corrupt_rows) == (3, 3)
    job.events(topic, ({"id": 0}, change("c", {"id": 0})), ({"id": 4}, bad))
    made = job.snapshot("t", format=table_format, decode=decode)
    assert (made.is_incremental, made.bad_records, made.corrupt_rows) == (True, 1, 3)
    job.events(topic, ({"id": 5}, change("c", {"id": 5})))
    for _ in range(2):
        # The second time, there is nothing to do.
        made = job.snapshot("t", format=table_format, decode=decode)
        assert (made.is_incremental, made.bad_records, made.corrupt_rows) == (True, 0, 3)
    made = job.snapshot("t", format=table_format, decode=decode, full=True)
    assert (made.bad_records, made.corrupt_rows) == (3, 3)
    rows = table_of(table_format, made.path).to_pylist()
    assert sum(row["_corrupt"] is not None for row in rows) == 3


def test_a_table_without_a_primary_key(job: Changes) -> None:
    write_events(job.data, "json", ["notes"])
    with pytest.raises(RowsUnknown, match=r"notes-0 offset 0: a change of a row without a key"):
        job.snapshot("notes")
    assert job.history("notes").records == 6


def test_keys_are_the_same_with_another_schema(job: Changes) -> None:
    """The column of the key became longer, and the schema beside the key another one."""
    topic = topic_of("t")

    def key(number: int, kind: str) -> dict[str, Any]:
        return {"schema": {"type": "struct", "fields": [{"type": kind, "field": "id"}]}, "payload": {"id": number}}

    job.events(topic, (key(1, "int32"), change("c", {"id": 1, "a": "old"})), (key(2, "int32"), change("c", {"id": 2})))
    assert job.snapshot("t").live_keys == 2
    job.events(topic, (key(1, "int64"), change("u", {"id": 1, "a": "new"})), (key(2, "int64"), change("d")))
    made = job.snapshot("t")
    assert (made.is_incremental, rows_of_table("parquet", made)) == (True, [{"id": 1, "a": "new"}])
    # Nothing new shows what the keys are.
    job.events(topic, (None, change("t")))
    made = job.snapshot("t")
    assert (made.is_incremental, made.live_keys) == (True, 0)


def test_values_that_the_database_left_out(job: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    """From an earlier event, from the snapshot before, or from nowhere; in as many passes as it takes."""
    monkeypatch.setattr(unavailable_values, "_MOST_WAITING", 2)
    topic, left_out = topic_of("t"), "__debezium_unavailable_value"
    job.events(
        topic,
        *(({"id": number}, change("c", {"id": number, "a": f"long {number}", "b": ["x"]})) for number in range(5)),
        *(({"id": number}, change("u", {"id": number, "a": left_out, "b": ["y"]})) for number in range(5)),
        ({"id": 9}, change("u", {"id": 9, "a": left_out, "b": [left_out]})),
    )
    made = job.snapshot("t", format="delta")
    rows = {row["id"]: (row["a"], row["b"]) for row in rows_of_table("delta", made)}
    assert rows == {**{number: (f"long {number}", ["y"]) for number in range(5)}, 9: (left_out, [left_out])}
    assert made.unavailable_rows == 1
    job.events(
        topic,
        *(({"id": number}, change("u", {"id": number, "a": left_out, "b": [left_out]})) for number in range(3)),
        ({"id": 3}, change("u", {"id": 3, "a": "new", "b": [left_out]})),
    )
    made = job.snapshot("t", format="delta")
    assert made.is_incremental
    rows = {row["id"]: (row["a"], row["b"]) for row in rows_of_table("delta", made)}
    assert [rows[number] for number in range(5)] == [
        ("long 0", ["y"]),
        ("long 1", ["y"]),
        ("long 2", ["y"]),
        ("new", ["y"]),
        ("long 4", ["y"]),
    ]
    full = job.snapshot("t", target=job.target / "full")
    assert {row["id"]: (row["a"], row["b"]) for row in rows_of_table("parquet", full)} == rows
    # Of large values, those of few rows at a time are in memory.
    passes: list[int] = []
    found = UnavailableValues._values_for

    def counted(values: UnavailableValues, rows: Any) -> Any:
        passes.append(rows.num_rows)
        return found(values, rows)

    monkeypatch.setattr(UnavailableValues, "_values_for", counted)
    monkeypatch.setattr(unavailable_values, "_MOST_WAITING", 8)
    small = job.snapshot("t", target=job.target / "small")
    assert (passes, small.unavailable_rows) == ([6], 1)
    monkeypatch.setattr(unavailable_values, "_MOST_BYTES", 12)
    passes.clear()
    again = job.snapshot("t", target=job.target / "again")
    assert passes[:2] == [6, 3]
    for made in (small, again):
        assert {row["id"]: (row["a"], row["b"]) for row in rows_of_table("parquet", made)} == rows


@pytest.mark.parametrize("is_compacted", [False, True])
def test_values_that_were_compacted_away(job: Changes, is_compacted: bool) -> None:
    """The row of the last snapshot has the value of an event before the one that is gone."""
    topic, left_out = topic_of("t"), "__debezium_unavailable_value"
    config = {"log.cleaner.enable": "false", "log.cleanup.policy": "compact"}
    with duralog.open(str(job.data), config=config) as store:
        store.create_topic(topic)
    job.events(topic, *(({"id": number}, change("c", {"id": number, "a": "old"})) for number in (1, 2)))
    assert job.snapshot("t").live_keys == 2
    job.events(topic, ({"id": 1}, change("u", {"id": 1, "a": left_out})))
    job.events(topic, ({"id": 2}, change("u", {"id": 2, "a": "new"})), ({"id": 3}, change("c", {"id": 3, "a": "x"})))
    job.events(topic, ({"id": 2}, change("u", {"id": 2, "a": left_out})))
    if is_compacted:
        with duralog.open(str(job.data), config=config) as store:
            store.partition(topic, 0).roll()
            store.compact(topic, 0)
    made = job.snapshot("t")
    rows = {row["id"]: row["a"] for row in rows_of_table("parquet", made)}
    assert made.is_incremental
    assert rows == {1: "old", 2: left_out if is_compacted else "new", 3: "x"}
    assert made.unavailable_rows == is_compacted


def test_binary_values_that_the_database_left_out(job: Changes) -> None:
    """In base64 and in hex. A bad event in between may have had another value."""
    topic, left_out = topic_of("t"), "__debezium_unavailable_value"
    known = {"id": 1, "text": "long", "in_base64": "bG9uZw==", "in_hex": "6c6f6e67", "kafka_note": "note"}
    unknown = {
        "id": 1,
        "text": left_out,
        "in_base64": base64.b64encode(left_out.encode()).decode(),
        "in_hex": left_out.encode().hex(),
        "kafka_note": left_out,
    }
    job.events(
        topic, ({"id": 1}, b'{"op": "c"'), ({"id": 1}, change("c", known)), ({"id": 1}, change("u", unknown, known))
    )
    made = job.snapshot("t", decode={"value.format": "debezium"})
    [row] = table_of("parquet", made.path).to_pylist()
    assert {name: row[name] for name in known} == known
    assert (made.unavailable_rows, made.bad_records) == (0, 0)
    job.events(topic, ({"id": 1}, b'{"op": "u"'), ({"id": 1}, change("u", unknown)))
    for target in (job.target, job.target / "full"):
        made = job.snapshot("t", decode={"value.format": "debezium"}, target=target)
        [row] = table_of("parquet", made.path).to_pylist()
        assert ({name: row[name] for name in known}, made.unavailable_rows) == (unknown, 1)
    job.events(topic, ({"id": 1}, b'{"op": "c"'))
    job.snapshot("t", decode={"value.format": "debezium"})
    job.events(topic, ({"id": 1}, change("u", unknown)))
    made = job.snapshot("t", decode={"value.format": "debezium"})
    [row] = table_of("parquet", made.path).to_pylist()
    assert ({name: row[name] for name in known}, made.unavailable_rows) == (unknown, 1)


def test_columns_of_the_database_that_are_named_as_ours(job: Changes) -> None:
    row = {
        "id": 1,
        "kafka_topic": "theirs",
        "kafka_value": "v",
        "kafka_headers": "h",
        "kafka_timestampType": 7,
        "kafka_date": "d",
        "__op": "o",
        "_corrupt": "c",
    }
    job.events(topic_of("t"), ({"id": 1}, change("c", row)))
    made = job.snapshot("t", decode={"value.format": "debezium", "mode": "FAILFAST"})
    [found] = table_of("parquet", made.path).to_pylist()
    assert {name: found[name] for name in row} == row
    assert (found["kafka_key"], found["kafka_offset"]) == (b'{"id":1}', 0)
    with pytest.raises(DuralogError, match="there are columns _corrupt and _corrupt"):
        job.snapshot("t", target=job.target / "other")


def test_columns_that_no_event_of_the_sample_has(job: Changes) -> None:
    """They are counted; what an event has besides rows is not."""
    events = [({"id": number}, change("c", {"id": number})) for number in range(2000)]
    late = change("u", {"id": 1000, "late": 5}, {"id": 1000, "late": 4})
    events[1000] = ({"id": 1000}, {**late, "transaction": {"id": 1}})
    job.events(topic_of("t"), *events, ({"id": 5}, change("d", None, {"id": 5})))
    made = job.snapshot("t")
    assert (made.left_out_fields, made.bad_records, made.live_keys) == ({"late": 1}, 0, 1999)
    assert job.history("t", target=job.target / "history").tables[0].left_out_fields == {"late": 1}


def _wrapped(op: str, after: dict[str, Any], **columns: Any) -> dict[str, Any]:
    """An event with its schema, as Kafka Connect writes it; `columns` are the types of the row's columns."""
    row = {"type": "struct", "fields": [{"field": name, **type_} for name, type_ in columns.items()]}
    source = {"type": "struct", "field": "source", "fields": [{"field": "ts_ms", "type": "int64"}]}
    others = [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "op", "type": "string"}]
    return {"schema": {"type": "struct", "fields": [*others, source]}, "payload": change(op, after)}


_INT, _LONG, _STRING = {"type": "int32"}, {"type": "int64"}, {"type": "string"}


def _money(scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": "10"}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


def test_columns_that_the_database_dropped(job: Changes) -> None:
    """The newest event does not have them; the rows that do keep their values."""
    job.events(
        topic_of("t"),
        ({"id": 1}, _wrapped("c", {"id": 1, "email": "a@x"}, id=_INT, email=_STRING)),
        ({"id": 2}, _wrapped("c", {"id": 2, "email": "b@x"}, id=_INT, email=_STRING)),
        ({"id": 3}, _wrapped("c", {"id": 3}, id=_INT)),
    )
    made = job.snapshot("t")
    rows = [{"id": 1, "email": "a@x"}, {"id": 2, "email": "b@x"}, {"id": 3, "email": None}]
    assert sorted(rows_of_table("parquet", made), key=lambda row: int(row["id"])) == rows
    assert made.left_out_fields == {}
    history = job.history("t", target=job.target / "history").tables[0]
    found = table_of("parquet", history.path).select(["id", "email"]).to_pylist()
    assert sorted(found, key=lambda row: int(row["id"])) == rows


def test_columns_that_the_database_dropped_in_avro(job: Changes) -> None:
    """The registry's newest schema does not have them; an export in two runs neither loses nor moves a value."""

    def envelope(*names: str) -> dict[str, Any]:
        fields = [{"name": name, "type": ["null", "string"], "default": None} for name in names]
        row = {"type": "record", "name": "Value", "namespace": "t", "fields": [{"name": "id", "type": "int"}, *fields]}
        source = {"type": "record", "name": "Source", "fields": [{"name": "ts_ms", "type": "long"}]}
        return {
            "type": "record",
            "name": "Envelope",
            "namespace": "t",
            "fields": [
                {"name": "before", "type": ["null", row], "default": None},
                {"name": "after", "type": ["null", "t.Value"], "default": None},
                {"name": "source", "type": source},
                {"name": "op", "type": "string"},
            ],
        }

    def event(schema: dict[str, Any], number: int, **row: Any) -> tuple[Any, bytes]:
        return {"id": row["id"]}, avro(schema, {"after": row, "source": {"ts_ms": 5}, "op": "c"}, number)

    topic = topic_of("t")
    both, other = envelope("email", "phone"), envelope("phone")
    with duralog.open(str(job.data)) as store:
        store.create_topic("_schemas")
        versions = [schema_record(f"{topic}-value", number, number, each) for number, each in ((1, both), (2, other))]
        store.partition("_schemas", 0).append(versions)
    first = [event(both, 1, id=1, email="a@x", phone="1"), event(both, 1, id=2, email="b@x", phone="2")]
    job.events(topic, *first, event(other, 2, id=3, phone="3"))
    made = job.snapshot("t")
    rows = [
        {"id": 1, "phone": "1", "email": "a@x"},
        {"id": 2, "phone": "2", "email": "b@x"},
        {"id": 3, "phone": "3", "email": None},
    ]
    assert sorted(rows_of_table("parquet", made), key=lambda row: int(row["id"])) == rows
    history = job.target / "history"
    job.history("t", target=history)
    # Events of the old schema come late: the newest schema alone would lose their column. A schema between the two
    # of the sample has another one.
    between = envelope("fax")
    with duralog.open(str(job.data)) as store:
        newest = [schema_record(f"{topic}-value", 3, 3, between), schema_record(f"{topic}-value", 4, 4, other)]
        store.partition("_schemas", 0).append(newest)
    job.events(topic, event(both, 1, id=4, email="d@x", phone="4"), event(other, 4, id=5, phone="5"))
    table = job.history("t", target=history).tables[0]
    assert table.column_changes == ("new column fax",)
    found = table_of("parquet", table.path).select(["id", "phone", "email"]).to_pylist()
    rows += [{"id": 4, "phone": "4", "email": "d@x"}, {"id": 5, "phone": "5", "email": None}]
    assert sorted(found, key=lambda row: int(row["id"])) == rows


def test_a_column_whose_type_changed_between_two_runs(job: Changes) -> None:
    """A run may see a narrower type than an earlier one; a decimal is read by the scale of its own event."""
    job.events(topic_of("t"), ({"id": 1}, _wrapped("c", {"id": 2**40}, id=_LONG)))
    job.snapshot("t")
    job.events(topic_of("t"), ({"id": 2}, _wrapped("c", {"id": 2}, id=_INT)))
    again = job.snapshot("t")
    assert (again.column_changes, again.bad_records) == ((), 0)
    assert sorted(row["id"] for row in rows_of_table("parquet", again)) == [2, 2**40]

    cents = base64.b64encode((150).to_bytes(2, "big")).decode()
    job.events(
        topic_of("u"),
        ({"id": 1}, _wrapped("c", {"id": 1, "price": cents}, id=_INT, price=_money(2))),
        ({"id": 2}, _wrapped("c", {"id": 2, "price": cents}, id=_INT, price=_money(4))),
    )
    made = job.snapshot("u")
    prices = {row["id"]: row["price"] for row in rows_of_table("parquet", made)}
    assert prices == {1: Decimal("1.5"), 2: Decimal("0.015")}


def test_bad_events_are_kept(job: Changes) -> None:
    topic = topic_of("t")
    job.events(
        topic,
        ({"id": 1}, change("c", {"id": 1})),
        ({"id": 2}, b'{"op": "c"'),
        ({"id": 3}, change("c")),
        ({"id": 4}, change("x", {"id": 4})),
        ({"id": 5}, change("c", {"id": "no number"})),
    )
    made = job.snapshot("t", decode={"value.format": "debezium"}, as_of_offsets={topic: {0: 4}})
    rows = {row["kafka_key"]: row for row in table_of("parquet", made.path).to_pylist()}
    assert made.bad_records == 3
    assert rows[b'{"id":2}']["_corrupt"]["value"] == b'{"op": "c"'
    assert "damaged JSON" in rows[b'{"id":2}']["_corrupt"]["reason"]
    assert "there is no `after`" in rows[b'{"id":3}']["_corrupt"]["reason"]
    assert (rows[b'{"id":4}']["id"], rows[b'{"id":4}']["_corrupt"]["reason"]) == (
        None,
        "value: not a change of a row: op is 'x'",
    )
    assert rows[b'{"id":1}']["_corrupt"] is None
    with pytest.raises(CorruptPayload, match=r"t-0 offset 1: the value does not decode"):
        job.snapshot("t", decode={"value.format": "debezium", "mode": "FAILFAST"}, target=job.target / "strict")
    job.events(topic, ({"id": 2}, None), ({"id": 4}, None), ({"id": 5}, None))
    with pytest.raises(CorruptPayload, match=r"t-0 offset 2: the value does not decode: not a change of a row"):
        job.snapshot("t", decode={"value.format": "debezium", "mode": "FAILFAST"}, target=job.target / "strict")


def test_what_is_refused(job: Changes) -> None:
    job.events("plain", ({"id": 1}, {"a": 1}))
    job.events("empty")
    job.events("kafka", ({"id": 1}, change("c", {"id": 1, "Kafka_Offset": 1})))
    job.events("deleted", ({"id": 1}, change("d")))
    refused = (
        ({"topics": ["plain"]}, SchemaError, "topic plain: .*no payload of the sample is a Debezium event"),
        ({"topics": ["empty"]}, SchemaError, "empty has no records"),
        ({"topics": ["kafka"]}, DuralogError, "columns Kafka_Offset and kafka_offset"),
        ({"topics": ["deleted"]}, SchemaError, "no event of the sample has a row in `after`"),
        ({"unwrap": "maxwell"}, InvalidConfig, "expected debezium"),
        ({"decode": {"key.format": "json", "value.format": "debezium"}}, InvalidConfig, "keys that are not"),
    )
    for options, error, words in refused:
        with pytest.raises(error, match=words):
            snapshot(None, str(job.data), str(job.target), **{"unwrap": "debezium", **options})  # type: ignore[arg-type]
    assert not list(job.target.rglob("*.parquet"))
    job.events(topic_of("t"), ({"id": 1}, change("c", {"id": 1})))
    for other in ("export", "snapshot"):
        run = job.history if other == "export" else job.snapshot
        run("t", target=job.target / other)
        with pytest.raises(StateRefused, match=r"the table has rows of change events"):
            run("t", target=job.target / other, unwrap=None, decode="json")
