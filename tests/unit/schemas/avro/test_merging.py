"""A reader's schema with the fields of others: writers of either are read, and nothing that one has is left out."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from duralog.errors import SchemaError
from duralog.schemas import DecoderPlan, Format, Framing, PayloadDecoder, RegisteredSchema, SchemaCatalogue, SchemaType


def record(name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": type_} for field, type_ in fields],
        **more,
    }


def read(written: list[tuple[dict[str, Any], Any]], reader: dict[str, Any], **plan: Any) -> list[Any]:
    """Values by a reader that has the fields of all schemas they were written with."""
    schemas = [
        RegisteredSchema(type=SchemaType.AVRO, text=json.dumps(each), id=number)
        for number, each in enumerate([reader, *(schema for schema, _ in written)], 1)
    ]
    decoder = PayloadDecoder(
        DecoderPlan(
            format=Format.AVRO,
            framing=Framing.CONFLUENT,
            reader=schemas[0],
            more_fields_of=tuple(schemas[1:]),
            catalogue=SchemaCatalogue((), schemas),
            **plan,
        )
    )
    payloads = []
    for number, (schema, value) in enumerate(written, 2):
        made = io.BytesIO()
        fastavro.schemaless_writer(made, fastavro.parse_schema(schema), value)
        payloads.append(b"\0" + number.to_bytes(4) + made.getvalue())
    decoded = decoder.decode(pa.array(payloads))
    assert decoded.reasons.null_count == len(payloads), decoded.reasons
    found: list[Any] = decoded.values.to_pylist()
    return found


def test_fields_of_either() -> None:
    old = record("R", ("id", "int"), ("gone", "string"), ("inner", ["null", record("I", ("a", "int"), ("b", "int"))]))
    new = record("R", ("id", "long"), ("inner", ["null", record("I", ("a", "int"), ("c", ["null", "int"]))]))
    new["fields"][1]["type"][1]["fields"][1]["default"] = None
    written = [
        (old, {"id": 1, "gone": "x", "inner": {"a": 1, "b": 2}}),
        (new, {"id": 2, "inner": {"a": 3, "c": 4}}),
        (old, {"id": 3, "gone": "", "inner": None}),
    ]
    assert read(written, new) == [
        {"id": 1, "inner": {"a": 1, "c": None, "b": 2}, "gone": "x"},
        {"id": 2, "inner": {"a": 3, "c": 4, "b": None}, "gone": None},
        {"id": 3, "inner": None, "gone": ""},
    ]
    assert read(written, new, columns=("gone", "inner.b"))[0] == {"inner": {"b": 2}, "gone": "x"}


def test_in_lists_and_maps_and_by_aliases() -> None:
    item = record("I", ("a", "int"), ("b", ["int", "null"]))
    old = record(
        "R", ("list", {"type": "array", "items": item}), ("map", {"type": "map", "values": "I"}), ("was", "int")
    )
    new = record(
        "R",
        ("list", {"type": "array", "items": record("I", ("a", "int"))}),
        ("map", {"type": "map", "values": "I"}),
        ("is", "int"),
    )
    new["fields"][2]["aliases"] = ["was"]
    written = [(old, {"list": [{"a": 1, "b": 2}], "map": {"k": {"a": 3, "b": None}}, "was": 7})]
    assert read(written, new) == [{"list": [{"a": 1, "b": 2}], "map": [("k", {"a": 3, "b": None})], "is": 7}]


def test_a_record_that_contains_itself_is_refused_as_ever() -> None:
    endless = record("R", ("a", "int"), ("next", ["null", "R"]))
    with pytest.raises(SchemaError, match="contains itself"):
        read([(record("R", ("a", "int"), ("b", "int")), {"a": 1, "b": 2})], endless)
