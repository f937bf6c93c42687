"""JSON of Kafka Connect's converter: one column for all schemas of a sample, each payload read by its own schema."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from duralog.schemas import (
    DecoderPlan,
    Format,
    PayloadDecoder,
    SchemaCatalogue,
    detect_format,
    infer_connect_type,
    infer_debezium_type,
)
from tests.support.schemas.presence import present

DAY = 20_000


def struct(*fields: tuple[str, object]) -> dict[str, Any]:
    described = [{"field": name, **(type_ if isinstance(type_, dict) else {"type": type_})} for name, type_ in fields]
    return {"type": "struct", "fields": described}


def decimal(scale: int, precision: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


def time(unit: str) -> dict[str, Any]:
    return {"type": "int64", "name": f"io.debezium.time.{unit}Timestamp"}


def wrapped(schema: object, payload: object) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(4, "big", signed=True)).decode()


def decoded(rows: list[bytes], columns: tuple[str, ...] | None = None) -> tuple[list[Any], list[str | None]]:
    sample = pa.array(rows)
    plan = DecoderPlan(format=Format.CONNECT, json_type=infer_connect_type(sample), columns=columns)
    found = PayloadDecoder(plan).decode(sample)
    return found.values.to_pylist(), found.reasons.to_pylist()


def test_the_column_has_the_fields_of_all_schemas() -> None:
    with_email = struct(("id", "int32"), ("email", "string"))
    rows = [
        wrapped(with_email, {"id": 1, "email": "a@x"}),
        wrapped(struct(("id", "int32"), ("phone", "string")), {"id": 2, "phone": "5"}),
        wrapped(struct(("id", "int32")), {"id": 3}),
        wrapped(with_email, None),
        json.dumps({"id": 4, "bare": True}).encode(),
    ]
    values, reasons = decoded(rows)
    assert values == [
        {"id": 1, "email": "a@x", "phone": None, "bare": None},
        {"id": 2, "email": None, "phone": "5", "bare": None},
        {"id": 3, "email": None, "phone": None, "bare": None},
        None,
        {"id": 4, "email": None, "phone": None, "bare": True},
    ]
    assert reasons == [None] * 5
    assert decoded(rows, ("email",))[0][:3] == [{"email": "a@x"}, {"email": None}, {"email": None}]


@pytest.mark.parametrize(
    ("older", "newer", "values"),
    [
        # The scale is in the schema alone: the same bytes are another number with another one.
        ((decimal(2, 10), unscaled(150)), (decimal(4, 10), unscaled(15_001)), [Decimal("1.5"), Decimal("1.5001")]),
        ((decimal(2, 10), unscaled(150)), ("int32", 7), [Decimal("1.5"), Decimal(7)]),
        ((decimal(2, 10), unscaled(150)), ("string", "x"), ["1.50", "x"]),
        (
            (time(""), 1_000),
            (time("Micro"), 1_000_001),
            [datetime.datetime(1970, 1, 1, 0, 0, 1), datetime.datetime(1970, 1, 1, 0, 0, 1, 1)],
        ),
        (
            ({"type": "int32", "name": "io.debezium.time.Date"}, DAY),
            (time(""), 86_400_000 * DAY + 1),
            [datetime.datetime(2024, 10, 4), datetime.datetime(2024, 10, 4, 0, 0, 0, 1_000)],
        ),
        (("int32", 5), ("int64", 2**40), [5, 2**40]),
        (("int64", 2**40), ("int32", 5), [2**40, 5]),
        (("double", 1.5), ("int32", 5), [1.5, 5.0]),
        (("float", 0.5), ("double", 0.1), [0.5, 0.1]),
        (("int64", 5), ("string", "x"), ["5", "x"]),
        (("string", "x"), ("boolean", True), ["x", "true"]),
    ],
)
def test_each_payload_is_read_by_its_own_schema(
    older: tuple[object, object], newer: tuple[object, object], values: list[object]
) -> None:
    rows = [wrapped(struct(("a", schema)), {"a": value}) for schema, value in (older, newer)]
    for order in ([0, 1], [1, 0]):
        found, reasons = decoded([rows[at] for at in order])
        assert reasons == [None, None]
        assert [each["a"] for each in found] == [values[at] for at in order]


def test_nested_types_become_wider() -> None:
    def nested(type_: object) -> dict[str, Any]:
        inner = struct(("n", type_))
        as_map = {"type": "map", "keys": {"type": "string"}, "values": inner}
        return struct(("list", {"type": "array", "items": inner}), ("map", as_map))

    value = {"list": [{"n": 1}, None], "map": {"k": {"n": 2}}}
    found, reasons = decoded([wrapped(nested("int32"), value), wrapped(nested("int64"), value)])
    expected = {"list": [{"n": 1}, None], "map": [("k", {"n": 2})]}
    assert found == [expected, expected]
    assert reasons == [None, None]


def test_what_the_column_cannot_hold_is_bad() -> None:
    rows = [
        wrapped(struct(("id", "int32"), ("at", "int64")), {"id": 1, "at": 5}),
        wrapped(struct(("id", "int32"), ("at", "int64")), {"id": 2, "at": None}),
        wrapped(struct(("id", "int32"), ("at", time("Micro"))), {"id": 3, "at": 5}),
        wrapped(struct(("id", "int64")), {"id": 2**40}),
    ]
    plan = DecoderPlan(format=Format.CONNECT, json_type=infer_connect_type(pa.array(rows[:3])))
    found = PayloadDecoder(plan).decode(pa.array(rows))
    assert [None if each is None else each["id"] for each in found.values.to_pylist()] == [None, 2, 3, None]
    first, *others, last = found.reasons.to_pylist()
    assert first == "at is not timestamp[us], and its own schema says int64: 5"
    assert others == [None, None]
    assert last.startswith("id is not int32: Integer value 1099511627776 not in range")


def test_the_field_that_does_not_fit_is_named() -> None:
    def nested(type_: str) -> dict[str, Any]:
        return struct(("a", struct(("list", {"type": "array", "items": struct(("n", type_))}))))

    narrow, wide = wrapped(nested("int8"), {"a": {"list": [{"n": 1}]}}), {"a": {"list": [None, {"n": 1}, {"n": 300}]}}
    plan = DecoderPlan(format=Format.CONNECT, json_type=infer_connect_type(pa.array([narrow])))
    rows = [wrapped(nested("int16"), each) for each in (wide, {"a": None}, {"a": {"list": [{"n": 2}]}})]
    found = PayloadDecoder(plan).decode(pa.array(rows))
    assert found.values.to_pylist() == [None, {"a": None}, {"a": {"list": [{"n": 2}]}}]
    assert found.reasons[0].as_py().startswith("a.list[].n is not int8: Integer value 300 not in range")
    assert found.reasons.null_count == 2


def test_schemas_that_no_column_can_have_make_their_payloads_bad() -> None:
    good = wrapped(struct(("id", "int32")), {"id": 1})
    plan = DecoderPlan(format=Format.CONNECT, json_type=infer_connect_type(pa.array([good])))
    bad = wrapped(struct(("\ud800", "int32")), {"id": 2})
    found = PayloadDecoder(plan).decode(pa.array([bad, good]))
    assert found.values.to_pylist() == [None, {"id": 1}]
    assert "not Unicode text" in found.reasons[0].as_py()


def test_auto_finds_it() -> None:
    rows = [wrapped({"type": "int32"}, 5), wrapped({"type": "int64"}, 2**40), wrapped(None, None)]
    found = detect_format(pa.array(rows), SchemaCatalogue())
    assert found.finding == "connect: all 3 of the sample are JSON of Kafka Connect; columns of their schemas"
    plan = present(found.plan)
    assert (plan.format, PayloadDecoder(plan).decode(pa.array(rows)).values.to_pylist()) == (
        Format.CONNECT,
        [5, 2**40, None],
    )
    # Fields of these names alone are somebody's own.
    own = detect_format(pa.array([json.dumps({"schema": "public", "payload": 1}).encode()]), SchemaCatalogue())
    assert present(own.plan).format is Format.JSON
    # What the user says holds.
    said = detect_format(pa.array(rows), SchemaCatalogue(), known=Format.JSON)
    assert present(said.plan).format is Format.JSON


def test_columns_that_are_gone_before_the_last_event() -> None:
    def event(*fields: str) -> bytes:
        row = struct(*((name, "string") for name in fields))
        schema = struct(("before", row), ("after", row), ("op", "string"), ("source", struct(("ts_ms", "int64"))))
        payload = {"before": None, "after": dict.fromkeys(fields, "x"), "op": "c", "source": {"ts_ms": 1}}
        return wrapped(schema, payload)

    sample = pa.array([event("id", "email"), event("id", "email"), event("id")])
    found = infer_debezium_type(sample).type
    assert [each.name for each in found.field("after").type] == ["id", "email"]
    assert [each.name for each in found.field("before").type] == ["id", "email"]
    decoder = PayloadDecoder(DecoderPlan(format=Format.DEBEZIUM, json_type=infer_debezium_type(sample)))
    assert decoder.decode(sample).values.field("after").to_pylist() == [
        {"id": "x", "email": "x"},
        {"id": "x", "email": "x"},
        {"id": "x", "email": None},
    ]


def test_maps_with_other_keys_and_numbers_that_are_none() -> None:
    schema = struct(
        ("m", {"type": "map", "keys": {"type": "int32"}, "values": {"type": "float"}}),
        ("d", "double"),
    )
    rows = [
        wrapped(schema, {"m": [[1, 0.5], [2, "NaN"]], "d": "-Infinity"}),
        wrapped(schema, {"m": [], "d": 0.1}),
        wrapped(schema, {"m": None, "d": None}),
        wrapped(schema, {"m": [[1]], "d": 1.0}),
        wrapped(schema, {"m": [["x", 1.0], [2, 1.0]], "d": 1.0}),
        wrapped(schema, {"m": {"1": 2}, "d": 1.0}),
        wrapped(schema, {"m": [], "d": "1.0"}),
    ]
    values, reasons = decoded(rows)
    assert str(values[0]) == "{'m': [(1, 0.5), (2, nan)], 'd': -inf}"
    assert values[1:3] == [{"m": [], "d": 0.1}, {"m": None, "d": None}]
    assert values[3:] == [None] * 4
    assert reasons[:3] == [None] * 3
    assert reasons[3:] == [
        "m is not an array of keys and values: [[1]]",
        'm{} is not int32: "x"',
        'm is not an array of keys and values: {"1":2}',
        'd is not double: "1.0"',
    ]


def test_structs_without_fields() -> None:
    empty = struct(("e", struct()))
    assert decoded([wrapped(empty, {"e": {}}), wrapped(empty, {"e": None}), wrapped(empty, None)]) == (
        [{"e": {}}, {"e": None}, None],
        [None, None, None],
    )
