"""Avro values as Arrow: types, logical types, resolution, columns, bad rows, hostile counts, growth."""

from __future__ import annotations

import datetime
import io
import json
import pickle
import struct
import threading
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from duralog.errors import SchemaError
from duralog.kernels.avro.program import MAX_EMPTY_ITEMS, AvroFault
from duralog.schemas.avro import AvroDecoder, buffers, compile_decoder, error_text, parse_schema
from tests.support.random_avro import varint


def record(*fields: Any, name: str = "R") -> Any:
    """Of fields as (name, type[, default])."""
    keys = ("name", "type", "default")
    return {"type": "record", "name": name, "fields": [dict(zip(keys, one, strict=False)) for one in fields]}


def decoder(writer: Any, reader: Any = None, columns: list[str] | None = None) -> AvroDecoder:
    return compile_decoder(
        parse_schema(json.dumps(writer)), None if reader is None else parse_schema(json.dumps(reader)), columns
    )


def decode(made: AvroDecoder, *rows: bytes) -> tuple[pa.Array, list[int]]:
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    starts = ends - np.array([len(row) for row in rows], np.int64)
    values, codes = made.decode(b"".join(rows), starts, ends)
    values.validate(full=True)
    assert values.type == made.arrow_type
    return values, codes.tolist()


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_types() -> None:
    schema = record(
        ("a", "null"),
        ("b", "boolean"),
        ("c", "bytes"),
        ("d", {"type": "enum", "name": "E", "symbols": ["X", "Y"]}),
        ("e", {"type": "fixed", "name": "F", "size": 3}),
        ("f", {"type": "map", "values": {"type": "array", "items": ["null", "float"]}}),
        ("g", ["int", "null", "string"]),
        ("h", ["long", "int"]),
        ("i", ["float", "null", "double"]),
        ("j", ["string"]),
        ("k", ["null", record(("x", "int"), name="Inner")]),
    )
    made = decoder(schema)
    assert made.arrow_type == pa.struct(
        [
            ("a", pa.null()),
            ("b", pa.bool_()),
            ("c", pa.binary()),
            ("d", pa.string()),
            ("e", pa.binary(3)),
            ("f", pa.map_(pa.string(), pa.list_(pa.float32()))),
            ("g", pa.struct([("member0", pa.int32()), ("member1", pa.string())])),
            ("h", pa.int64()),
            ("i", pa.float64()),
            ("j", pa.string()),
            ("k", pa.struct([("x", pa.int32())])),
        ]
    )
    value: dict[str, Any] = {"a": None, "b": True, "c": b"\xff", "d": "Y", "e": b"abc", "f": {"k": [None, 1.5], "": []}}
    more: list[dict[str, Any]] = [
        {"g": 7, "h": 5, "i": 0.5, "j": "é", "k": {"x": -1}},
        {"g": None, "h": 2**40, "i": None, "j": "", "k": None},
        {"g": "seven", "h": -1, "i": 2.0, "j": "j", "k": {"x": 3}},
    ]
    values, codes = decode(made, *(written(schema, {**value, **one}) for one in more))
    assert codes == [0, 0, 0]
    got = values.to_pylist()
    assert [one["g"] for one in got] == [{"member0": 7, "member1": None}, None, {"member0": None, "member1": "seven"}]
    assert [{**one, "f": dict(one["f"]), "g": more[row]["g"]} for row, one in enumerate(got)] == [
        {**value, **one} for one in more
    ]


UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 11, 16, 20, 15, 30, 123000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schema", "arrow", "value"),
    [
        ({"type": "int", "logicalType": "date"}, pa.date32(), MOMENT.date()),
        ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms"), datetime.time(20, 15, 30, 123000)),
        ({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), datetime.time(20, 15, 30, 123456)),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC"), MOMENT),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), MOMENT),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms"), MOMENT.replace(tzinfo=None)),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            pa.decimal128(5, 2),
            Decimal("-123.45"),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1},
            pa.decimal256(50, 1),
            Decimal("-" + "9" * 40 + ".5"),
        ),
        (
            {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 18},
            pa.decimal128(18, 0),
            Decimal("-999999999999999999"),
        ),
    ],
)
def test_logical_types_as_fastavro_writes_them(schema: Any, arrow: Any, value: Any) -> None:
    made = decoder(schema)
    assert made.arrow_type == arrow
    values, codes = decode(made, written(schema, value))
    assert codes == [0]
    assert values.to_pylist() == [value]


def test_uuids_and_durations() -> None:
    one = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")
    schema = record(
        ("text", {"type": "string", "logicalType": "uuid"}),
        ("fixed", ["null", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}]),
        ("span", {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}),
        ("nanos", {"type": "long", "logicalType": "timestamp-nanos"}),
    )
    row = varint(36) + str(one).encode() + varint(1) + one.bytes + struct.pack("<III", 1, 2, 2**32 - 1) + varint(5)
    values, codes = decode(decoder(schema), row, row[:37] + varint(0) + row[54:])
    assert codes == [0, 0]
    assert values.type.field("nanos").type == pa.timestamp("ns", "UTC")
    assert values.field("text").to_pylist() == [str(one)] * 2
    assert values.field("fixed").to_pylist() == [str(one), None]
    assert values.field("span").to_pylist() == [{"months": 1, "days": 2, "milliseconds": 2**32 - 1}] * 2


@pytest.mark.parametrize(
    ("schema", "row", "fault", "position"),
    [
        ("int", b"", AvroFault.CUT, 0),
        ("int", b"\x80", AvroFault.CUT, 0),
        ("int", b"\x80\x80\x80\x80\x80\x00", AvroFault.VARINT, 0),
        ("int", b"\xff\xff\xff\xff\x1f", AvroFault.VARINT, 0),
        ("long", b"\x80" * 9 + b"\x02", AvroFault.VARINT, 0),
        ("long", b"\x80" * 10 + b"\x00", AvroFault.VARINT, 0),
        ("double", b"1234567", AvroFault.CUT, 0),
        ("boolean", b"\x02", AvroFault.BOOLEAN, 0),
        ("string", b"\x01", AvroFault.NEGATIVE_LENGTH, 0),
        ("string", b"\x04a", AvroFault.CUT, 0),
        ("string", b"\x04\xc3(", AvroFault.UTF8, 0),
        ("string", b"\x06\xed\xa0\x80", AvroFault.UTF8, 0),
        ("bytes", varint(2**62) + b"abc", AvroFault.CUT, 0),
        ("int", b"\x02\x02", AvroFault.LEFT_OVER, 1),
        (["null", "int"], b"\x04\x02", AvroFault.UNION_INDEX, 0),
        (["null", "int"], b"\x01\x02", AvroFault.UNION_INDEX, 0),
        (["int", "string", "bytes"], b"\x06", AvroFault.UNION_INDEX, 0),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", AvroFault.ENUM_INDEX, 0),
        ({"type": "array", "items": "int"}, b"\x08\x02\x02\x00", AvroFault.TOO_MANY_ITEMS, 0),
        ({"type": "array", "items": "int"}, varint(2**62), AvroFault.TOO_MANY_ITEMS, 0),
        ({"type": "array", "items": "int"}, varint(-(2**63)) + b"\x00", AvroFault.TOO_MANY_ITEMS, 0),
        ({"type": "array", "items": "int"}, b"\x01\x03\x02\x00", AvroFault.NEGATIVE_LENGTH, 1),
        ({"type": "array", "items": "int"}, b"\x01\x7e\x02\x00", AvroFault.CUT, 1),
        ({"type": "array", "items": "null"}, varint(2**62) + b"\x00", AvroFault.TOO_MANY_ITEMS, 0),
        ({"type": "array", "items": "null"}, varint(MAX_EMPTY_ITEMS) + b"\x02\x00", AvroFault.TOO_MANY_ITEMS, 2),
        ({"type": "map", "values": "null"}, b"\x02\x02\xff\x00", AvroFault.UTF8, 1),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x00", AvroFault.DECIMAL, 0),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64", AvroFault.DECIMAL, 0),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, varint(40) + b"\x01" * 40, AvroFault.DECIMAL, 0),
        ({"type": "int", "logicalType": "time-millis"}, varint(86_400_000), AvroFault.OUT_OF_RANGE, 0),
    ],
)
def test_bad_rows(schema: Any, row: bytes, fault: AvroFault, position: int) -> None:
    """Between good rows, with and without bytes after it in memory, and inside a record."""
    made = decoder(record(("first", "string"), ("one", schema)))
    bad = b"\x02x" + row
    for rows in ([bad], [bad, b"\x02y" + b"\x00" * 40], [b"", bad]):
        values, codes = decode(made, *rows)
        at = rows.index(bad)
        assert codes[at] == fault
        assert values[at].as_py() is None
        assert values.field("first")[at].as_py() is None
    _, faults = made.decode_with_positions(bad, np.array([0]), np.array([len(bad)]))
    assert faults[0] >> 8 == position + 2
    assert made.explain(bad) == f"field one, byte {position + 2} of {len(bad)}: {error_text(fault)}" or (
        fault == AvroFault.LEFT_OVER and made.explain(bad) == f"byte 3 of 4: {error_text(fault)}"
    )


def test_every_fault_has_a_text() -> None:
    texts = [error_text(fault) for fault in AvroFault]
    assert len(set(texts)) == len(AvroFault)


def test_a_bad_row_leaves_no_trace() -> None:
    made = decoder(record(("words", {"type": "array", "items": "string"}), ("end", "int")))
    good, bad = b"\x04\x02a\x02b\x00\x02", b"\x06\x02c\x02d\x02\xff\x00\x02"
    values, codes = decode(made, bad, good, bad, good, bad)
    assert codes == [8, 0, 8, 0, 8]
    assert values.to_pylist() == [None, {"words": ["a", "b"], "end": 1}, None, {"words": ["a", "b"], "end": 1}, None]
    assert values.field("words").values.to_pylist() == ["a", "b"] * 2


def test_rows_without_a_value_and_rows_outside_the_data() -> None:
    values, codes = decoder("string").decode(b"\x02a", np.array([-1, 0, 0, 2, 5]), np.array([-1, 2, 9, 1, 6], np.int64))
    assert values.to_pylist() == [None, "a", None, None, None]
    assert codes.tolist() == [0, 0, 1, 1, 1]


def test_no_rows() -> None:
    schema = record(
        ("a", {"type": "map", "values": "int"}),
        ("b", {"type": "enum", "name": "E", "symbols": ["A"]}),
        ("c", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}),
        ("d", ["null", {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}]),
        ("e", ["null", "string", "boolean"]),
    )
    values, codes = decoder(schema).decode(b"", np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert (len(values), len(codes)) == (0, 0)
    with pytest.raises(ValueError, match="1 starts and 0 ends"):
        decoder(schema).decode(b"", np.zeros(1, np.int64), np.zeros(0, np.int64))


def test_buffers_grow() -> None:
    """One row is short, a later one has almost all of the items and bytes."""
    made = decoder({"type": "map", "values": {"type": "array", "items": ["null", "string", "long"]}})
    item = varint(1) + varint(300) + b"w" * 300
    long_row = varint(1) + b"\x02k" + varint(5000) + (item + varint(0)) * 2500 + b"\x00\x00"
    values, codes = decode(made, b"\x00", long_row, b"\x00", long_row)
    assert codes == [0] * 4
    assert [len(one) for one in values.to_pylist()] == [0, 1, 0, 1]
    assert values.items.flatten().field(0).to_pylist() == ["w" * 300, None] * 5000


def test_more_than_arrow_can_count_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MAX_ROWS", 100)
    long_text = varint(70) + b"x" * 70
    with pytest.raises(buffers.TooLargeResult, match=r"the bytes of a column .* decode fewer rows"):
        decode(decoder(record(("a", "string", ""), ("b", "string"))), *[long_text * 2] * 3)
    with pytest.raises(buffers.TooLargeResult, match="the items of an array"):
        decode(decoder({"type": "array", "items": "int"}), varint(101) + b"\x02" * 101 + b"\x00")
    with pytest.raises(buffers.TooLargeResult, match="the bytes of a column"):
        decode(decoder({"type": "fixed", "name": "F", "size": 51}), bytes(51), bytes(51))
    with pytest.raises(buffers.TooLargeResult, match="the rows"):
        decode(decoder("null"), *[b""] * 101)
    symbols = {"type": "enum", "name": "E", "symbols": ["A" * 60, "B"]}
    assert decode(decoder(symbols), b"\x02", b"\x02")[1] == [0, 0]
    with pytest.raises(buffers.TooLargeResult, match="symbols"):
        decode(decoder(symbols), b"\x00", b"\x00")


def test_defaults_aliases_and_order() -> None:
    old = record(("gone", {"type": "array", "items": "string"}), ("id", "int"), ("name", "bytes"))
    new = record(
        ("added", {"type": "map", "values": ["null", "int"]}, {"a": 1, "b": None}),
        ("title", "string"),
        ("id", ["null", "double"]),
        ("level", {"type": "enum", "name": "L", "symbols": ["LOW", "HIGH"]}, "HIGH"),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001\u0000"),
        ("inner", record(("x", "long"), ("y", ["null", "int"], None), name="I"), {"x": 9}),
    )
    new["fields"][1]["aliases"] = ["name"]
    row = written(old, {"gone": ["a", "b"], "id": 7, "name": b"n"})
    values, codes = decode(decoder(old, new), row, row)
    assert codes == [0, 0]
    assert (
        values.to_pylist()
        == [
            {
                "added": [("a", 1), ("b", None)],
                "title": "n",
                "id": 7.0,
                "level": "HIGH",
                "price": Decimal("2.56"),
                "inner": {"x": 9, "y": None},
            }
        ]
        * 2
    )


def test_two_branches_of_a_writer_become_one_record() -> None:
    one, other = record(("x", "int"), name="A"), record(("x", "long"), ("y", "string"), name="B")
    new = record(("x", "double"), ("y", "string", "none"), name="C")
    values, codes = decode(decoder([one, other, "string"], new), b"\x00\x02", b"\x02\x04\x02t", b"\x04\x02t")
    assert values.to_pylist() == [{"x": 1.0, "y": "none"}, {"x": 2.0, "y": "t"}, None]
    assert codes == [0, 0, AvroFault.UNKNOWN_BRANCH]


@pytest.mark.parametrize(
    "named",
    [
        {"type": "record", "fields": [{"name": "a", "type": "boolean"}]},
        {"type": "enum", "symbols": ["A", "B"]},
        {"type": "fixed", "size": 1},
    ],
)
def test_branches_that_differ_only_in_their_namespace(named: Any) -> None:
    first, second = ({**named, "name": f"{space}.X"} for space in ("old", "new"))
    for writer, row in ([first, second], b"\x02\x00"), (second, b"\x00"):
        values, codes = decode(decoder(writer, [first, second]), row)
        assert codes == [0]
        assert values.field("member0").null_count == 1
        assert values.field("member1").null_count == 0
    # An alias comes after the name itself.
    values, _ = decode(decoder(second, [{**first, "aliases": ["new.X"]}, second]), b"\x00")
    assert values.field("member1").null_count == 0
    values, _ = decode(decoder(second, [{**first, "name": "Y"}, {**first, "aliases": ["new.X"]}]), b"\x00")
    assert values.field("member1").null_count == 0


def test_enums_of_another_version() -> None:
    def enum(*symbols: str, **more: str) -> Any:
        return {"type": "enum", "name": "E", "symbols": list(symbols), **more}

    rows = b"\x00", b"\x02", b"\x04"
    values, codes = decode(decoder(enum("A", "B", "C"), enum("C", "A")), *rows)
    assert (values.to_pylist(), codes) == (["A", None, "C"], [0, AvroFault.UNKNOWN_SYMBOL, 0])
    values, codes = decode(decoder(enum("A", "B", "C"), enum("C", "A", default="C")), *rows)
    assert (values.to_pylist(), codes) == (["A", "C", "C"], [0, 0, 0])


def test_times_of_a_coarser_unit_are_multiplied() -> None:
    def time(name: str, kind: str = "long") -> Any:
        return {"type": kind, "logicalType": name}

    row = varint(1_234)
    assert decode(decoder(time("timestamp-millis"), time("timestamp-micros")), row)[0].cast(pa.int64()).to_pylist() == [
        1_234_000
    ]
    values, codes = decode(
        decoder(time("time-millis", "int"), time("time-micros")), row, varint(-1), varint(86_400_000)
    )
    assert values.cast(pa.int64()).to_pylist() == [1_234_000, None, None]
    assert codes == [0, AvroFault.OUT_OF_RANGE, AvroFault.OUT_OF_RANGE]
    _, codes = decode(decoder(time("local-timestamp-millis"), time("local-timestamp-nanos")), varint(2**60))
    assert codes == [AvroFault.OUT_OF_RANGE]
    for writer, reader in (
        (time("timestamp-micros"), time("timestamp-millis")),
        (time("timestamp-micros"), time("local-timestamp-micros")),
        (time("date", "int"), time("timestamp-millis")),
    ):
        with pytest.raises(SchemaError, match="which cannot be read as"):
            decoder(writer, reader)


@pytest.mark.parametrize(
    ("writer", "reader", "text"),
    [
        ("string", "int", "the schema: written as string, which cannot be read as int"),
        (record(("a", "int")), record(("a", "int"), ("b", "int")), "field b: the writer's schema has no such field"),
        (record(("a", "int")), record(("a", "int"), ("b", "int", "x")), "field b: the default 'x' is not a value"),
        (
            record(("a", "int")),
            record(("b", {"type": "int", "logicalType": "time-millis"}, 86_400_000)),
            r"field b: the default 86400000 is not a value of its type, int \(time-millis\)",
        ),
        (["null", record(("a", "int"))], ["null", record(("b", "int"))], "field b: the writer's schema has no such"),
        (record(("a", "long")), record(("a", ["null", "int"])), "field a: written as long"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "fixed F"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "G", "size": 2}, "fixed F.*fixed G"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            r"bytes \(decimal\)",
        ),
    ],
)
def test_schemas_that_cannot_be_resolved(writer: Any, reader: Any, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        decoder(writer, reader)


def test_recursive_types_are_refused() -> None:
    tree = record(("value", "int"), ("children", {"type": "array", "items": "R"}))
    with pytest.raises(SchemaError, match="field children: the type R contains itself"):
        decoder(tree)
    with pytest.raises(SchemaError, match="field children: the type R contains itself"):
        decoder(tree, columns=["value"])


def test_a_small_schema_of_very_many_columns_is_refused() -> None:
    inner: Any = record(("x", "int"), name="T0")
    for level in range(1, 20):
        inner = record(("a", inner), ("b", f"T{level - 1}"), name=f"T{level}")
    with pytest.raises(SchemaError, match="more than 50,000 columns"):
        decoder(inner)
    with pytest.raises(SchemaError, match="more than 50,000 types"):
        decoder(record(("wide", inner), ("y", "int")), columns=["y"])


COLUMNS = record(
    ("id", "long"),
    ("items", {"type": "array", "items": ["null", record(("sku", "string"), ("price", "double"), name="Item")]}),
    ("by", {"type": "map", "values": record(("n", "int"), ("m", "int"), name="N")}),
    ("either", ["null", "string", record(("p", "int"), ("q", "int"), name="Q")]),
)


def test_unions_of_very_many_branches_are_refused() -> None:
    enums = [{"type": "enum", "name": f"E{number}", "symbols": ["A"]} for number in range(2_000)]
    with pytest.raises(SchemaError, match="pairs of branches"):
        decoder(enums)


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_schema_that_makes_very_much_of_few_bytes(monkeypatch: pytest.MonkeyPatch, is_fixed: bool) -> None:
    monkeypatch.setattr(buffers, "ALWAYS_BYTES", 1 << 20)
    if is_fixed:
        large: Any = [(f"f{number}", {"type": "fixed", "name": f"F{number}", "size": 50_000}) for number in range(5)]
    else:
        large = [(f"f{number}", "string", "x" * 50_000) for number in range(5)]
    made = decoder(record(("a", "int"), *large) if is_fixed else record(("a", "int")), record(("a", "int"), *large))
    with pytest.raises(buffers.TooMuchMemory, match="decode fewer of its fields"):
        decode(made, *[b"\x02"] * 10)
    narrow = decoder(record(("a", "int"), *large) if is_fixed else record(("a", "int")), None, ["a"])
    assert len(decode(narrow, *[b"\x02"] * 10)[0]) == 10


def test_columns_are_dotted_paths() -> None:
    value = {
        "id": 1,
        "items": [{"sku": "a", "price": 0.5}, None],
        "by": {"k": {"n": 1, "m": 2}},
        "either": {"p": 3, "q": 4},
    }
    row = written(COLUMNS, value)
    made = decoder(COLUMNS, columns=["either.member1.q", "items.price", "by.m", "by"])
    values, codes = decode(made, row)
    assert codes == [0]
    assert values.to_pylist() == [
        {"items": [{"price": 0.5}, None], "by": [("k", {"n": 1, "m": 2})], "either": {"member1": {"q": 4}}}
    ]
    assert decode(decoder(COLUMNS, columns=[]), row, row[:-1])[1] == [0, AvroFault.CUT]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("nothing", "R has no field 'nothing', only id, items, by, either"),
        ("items.nothing", "field items: Item has no field 'nothing', only sku, price"),
        ("id.x", "field id: it has no field 'x', it is not a record"),
        ("either.x", "field either: the union has no field 'x', only member0, member1"),
    ],
)
def test_columns_that_do_not_exist(column: str, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        decoder(COLUMNS, columns=[column])


def test_few_columns_of_a_wide_record_with_unusual_rows() -> None:
    """Rows are walked four at a time; long strings, bad rows and the last rows go field by field."""
    kinds = ["long", "string", ["null", "long"], ["string", "null"], "double", "int", ["null", "boolean"], "bytes"]
    schema = record(*((f"f{number}", kinds[number % 8]) for number in range(24)))
    rows = []
    for number in range(203):
        value = {}
        for field in range(24):
            text = "x" * (200 if (number + field) % 17 == 0 else number % 9)
            plain = [number << field, text, None if number % 3 else 5, text if number % 5 else None]
            value[f"f{field}"] = [*plain, 0.5, number, None if number % 7 else True, text.encode()][field % 8]
        row = written(schema, value)
        rows.append(row[: number % len(row)] if number % 13 == 5 else row + b"\x00" * (number % 29 == 3))
    whole, codes = decode(decoder(schema), *rows)
    assert {0, 1, 6} == set(codes)
    for some in (["f0"], ["f23"], ["f7", "f8", "f12"], ["f3", "f1", "f2"]):
        part, part_codes = decode(decoder(schema, columns=some), *rows)
        assert part_codes == codes
        for name in some:
            assert part.field(name).equals(whole.field(name))


def test_pickled() -> None:
    row = written(COLUMNS, {"id": 1, "items": [], "by": {}, "either": None})
    made = decoder(COLUMNS, record(("id", "double"), ("items", {"type": "array", "items": "null"}, [])), ["id"])
    assert decode(pickle.loads(pickle.dumps(made)), row)[0].to_pylist() == [{"id": 1.0}]


def test_threads_share_a_decoder() -> None:
    made = decoder(record(("a", {"type": "array", "items": "string"})))
    results: list[Any] = []

    def work(count: int) -> None:
        row = varint(count) + b"\x02a" * count + b"\x00"
        results.extend((count, value) for _ in range(20) for value in decode(made, row, row)[0].to_pylist())

    threads = [threading.Thread(target=work, args=(count,)) for count in (1, 50, 3000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 120
    assert all(value == {"a": ["a"] * count} for count, value in results)


def test_a_buffer_of_any_kind() -> None:
    made = decoder("long")
    ends = np.array([1], np.int64)
    for data in (
        b"\x02",
        bytearray(b"\x02"),
        memoryview(b"\x02"),
        np.frombuffer(b"\x02", np.uint8),
        pa.py_buffer(b"\x02"),
    ):
        assert made.decode(data, np.array([0]), ends)[0].to_pylist() == [1]
