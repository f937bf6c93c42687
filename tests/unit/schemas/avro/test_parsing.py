"""Avro schemas from their JSON: names, references, logical types, and texts that are refused."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from duralog.errors import DuralogError, SchemaError
from duralog.schemas.avro import parse_schema
from duralog.schemas.avro.parsing import MAX_DEPTH, MAX_TEXT_CHARACTERS
from duralog.schemas.avro.schema import Array, Enum, Fixed, Map, Primitive, Record, Union


def parsed(schema: Any, **references: Any) -> Any:
    return parse_schema(json.dumps(schema), {name: json.dumps(text) for name, text in references.items()}).root


def record(*fields: Any, **more: Any) -> Any:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def test_a_name_alone_is_a_schema() -> None:
    assert parse_schema("string").root == parse_schema('"string"').root == Primitive("string")


def test_full_names() -> None:
    root = parsed(
        {
            "type": "record",
            "name": "Order",
            "namespace": "shop",
            "fields": [
                {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
                {"name": "same", "type": "Kind"},
                {"name": "full", "type": "shop.Kind"},
                {"name": "other", "type": {"type": "fixed", "name": "far.Away", "size": 2, "aliases": ["Old"]}},
                {"name": "there", "type": {"type": "array", "items": "far.Away"}},
            ],
        }
    )
    kinds = [one.type for one in root.fields[:3]]
    assert root.name == "shop.Order"
    assert kinds[0] is kinds[1] is kinds[2]
    assert isinstance(kinds[0], Enum)
    other = root.fields[3].type
    assert isinstance(other, Fixed)
    assert other.aliases == {"far.Old"}
    assert root.fields[4].type.items is other


def test_references_by_name_by_label_and_among_themselves() -> None:
    address = {"type": "record", "name": "a.Address", "fields": [{"name": "zip", "type": "a.Zip"}]}
    zip_code = {"type": "fixed", "name": "a.Zip", "size": 5}
    schema = record({"name": "home", "type": "a.Address"}, {"name": "work", "type": "a.Address"})
    for names in (("a.Address", "a.Zip"), ("address.avsc", "zip.avsc"), ("1", "a.Zip")):
        root = parsed(schema, **dict(zip(names, (address, zip_code), strict=True)))
        assert root.fields[0].type is root.fields[1].type
        assert isinstance(root.fields[0].type.fields[0].type, Fixed)


def test_a_recursive_type_contains_itself() -> None:
    root = parsed(record({"name": "next", "type": ["null", "R"], "default": None}))
    assert root.fields[0].type.branches[1] is root


@pytest.mark.parametrize(
    ("schema", "logical"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "decimal"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 77}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": "4"}, None),
        ({"type": "bytes", "logicalType": "decimal"}, None),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4}, "decimal"),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5}, None),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "duration"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "uuid"),
        ({"type": "fixed", "name": "F", "size": 15, "logicalType": "uuid"}, None),
        ({"type": "string", "logicalType": "date"}, None),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp-nanos"),
        ({"type": "long", "logicalType": "of my own"}, None),
        ({"type": "long", "logicalType": 7}, None),
    ],
)
def test_a_logical_type_that_does_not_fit_is_ignored(schema: Any, logical: str | None) -> None:
    found = parsed(schema).logical
    assert (None if found is None else found.name) == logical


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (7, "expected a type, found 7"),
        ({}, "no attribute 'type'"),
        ({"type": "array"}, "'items' is missing"),
        ("Nothing", "the type Nothing is not defined"),
        ("no name", '"no name" is not the name of a type'),
        ([], "no branches"),
        (["int", "int"], "two branches of the type int"),
        ([{"type": "array", "items": "int"}, {"type": "array", "items": "long"}], "two branches of the type array"),
        (["int", ["null", "string"]], "directly inside another union"),
        (record({"name": "a-b", "type": "int"}), "no valid name"),
        (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "two fields named a"),
        (record({"name": "a", "type": record()}), "field a: the type R is defined twice"),
        (record({"name": "a"}), "field a: the attribute 'type' is missing"),
        ({"type": "record", "name": "R"}, "'fields' is missing"),
        ({"type": "record", "name": "int", "fields": []}, '"int" is not a valid name'),
        ({"type": "record", "name": "R", "namespace": "a b", "fields": []}, "not a valid namespace"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "not distinct"),
        ({"type": "enum", "name": "E", "symbols": ["a b"]}, "valid names"),
        ({"type": "enum", "name": "E", "symbols": []}, "no symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "not a symbol"),
        ({"type": "fixed", "name": "F", "size": -1}, "the size of F is -1"),
        ({"type": "fixed", "name": "F", "size": True}, "the size of F is true"),
        ({"type": "fixed", "name": "F", "size": 1 << 40}, "the size of F is"),
    ],
)
def test_what_is_not_a_schema(schema: Any, text: str) -> None:
    with pytest.raises(SchemaError, match=text.replace("[", r"\[")) as refused:
        parsed(schema)
    assert isinstance(refused.value, DuralogError)


def test_not_json() -> None:
    with pytest.raises(SchemaError, match="the schema is not JSON"):
        parse_schema("{")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
def test_too_deep(depth: int) -> None:
    with pytest.raises(SchemaError, match="nested deeper than 64"):
        parse_schema('{"type":"array","items":' * depth + '"int"' + "}" * depth)


def test_too_long() -> None:
    with pytest.raises(SchemaError, match="characters, more than"):
        parse_schema('"int"' + " " * MAX_TEXT_CHARACTERS)


def test_aliases_in_a_long_namespace() -> None:
    """Each in full would be a kilobyte for its few characters."""
    aliases = [f"a{number}" for number in range(10_000)]
    one = {"type": "fixed", "name": "F", "size": 1, "namespace": "n" * 1000, "aliases": aliases}
    with pytest.raises(SchemaError, match="the type F has 10,000 aliases in a long namespace"):
        parse_schema(json.dumps(one))
    parse_schema(json.dumps({**one, "aliases": aliases[:1000]}))


def test_a_schema_is_pickled_as_its_texts() -> None:
    schema = parse_schema(
        json.dumps(record({"name": "m", "type": {"type": "map", "values": ["null", "Z"]}})),
        {"Z": json.dumps({"type": "fixed", "name": "Z", "size": 1})},
    )
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert isinstance(again.root, Record)
    values = again.root.fields[0].type
    assert isinstance(values, Map)
    assert isinstance(values.values, Union)
    assert not isinstance(values, Array)
