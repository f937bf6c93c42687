"""Two schemas, compared: fields by name, lines of their texts, verdicts; and texts that are not schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from duralog.console.drawing.schema_comparison import compare
from duralog.console.drawing.schema_difference import MOST_LINES, field_changes, laid_out, lines_of
from duralog.console.drawing.schema_fields import MOST_FIELDS, fields_of
from duralog.console.facts.schemas import SubjectsView, topic_of
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType, SubjectVersion


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "namespace": "n", "fields": list(fields)})


def test_fields_of_avro() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "next", "type": ["null", "Inner"]}]}
    text = avro(
        {"name": "a", "type": "int", "default": 3},
        {"name": "list", "type": {"type": "array", "items": inner}},
        {"name": "again", "type": "Inner"},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    )
    assert fields_of(SchemaType.AVRO, text) == {
        "a": "int, default 3",
        "list": "array of record Inner",
        "list[].next": "null or Inner",
        "list[].next.next": "null or Inner",
        "again": "Inner",
        "again.next": "null or Inner",
        "kind": "enum E (X, Y)",
        "money": "bytes (decimal of 9 digits, scale 2)",
    }


def test_fields_of_json_schema() -> None:
    text = json.dumps(
        {
            "$defs": {"P": {"properties": {"x": {"type": "number"}, "p": {"$ref": "#/$defs/P"}}}},
            "type": "object",
            "required": ["at"],
            "properties": {
                "at": {"$ref": "#/$defs/P"},
                "tags": {"type": "array", "items": {"properties": {"n": True}}},
            },
        }
    )
    found = fields_of(SchemaType.JSON, text)
    assert found["at"] == "P, required"
    assert found["at.p.x"] == "number"
    assert found["tags[].n"] == "anything"
    assert len(found) < 100


@pytest.mark.parametrize("text", ["", "no json", '"string"', "[" * 9_000, '{"type": {"type": {"type": 7}}}', "null"])
@pytest.mark.parametrize("type_", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF])
def test_texts_that_are_not_schemas(text: str, type_: SchemaType) -> None:
    assert fields_of(type_, text) == {}
    assert laid_out(type_, text).split() == text.split() or text.startswith("{")


def test_sizes_are_bounded() -> None:
    many = avro(*({"name": f"f{number}", "type": "int"} for number in range(2 * MOST_FIELDS)))
    assert len(fields_of(SchemaType.AVRO, many)) == MOST_FIELDS
    lines = lines_of("same\n" * 9_000, "same\n" * 9_000)
    assert lines[0].left == (MOST_LINES, "")


def test_lines_have_numbers_and_little_that_is_equal() -> None:
    before = "\n".join(f"line {number}" for number in range(20))
    after = before.replace("line 10", "line ten").replace("line 19", "line 19\nline 20")
    kinds = [line.kind for line in lines_of(before, after)]
    assert kinds == ["skipped", *["same"] * 3, "changed", *["same"] * 3, "skipped", *["same"] * 3, "added"]
    changed = next(line for line in lines_of(before, after) if line.kind == "changed")
    assert (changed.left, changed.right) == ((11, "line 10"), (11, "line ten"))


def test_changes_of_fields() -> None:
    found = field_changes({"a": "int", "b": "int", "c": "int"}, {"b": "long", "c": "int", "d": "int"})
    assert [(str(each.change), each.path) for each in found] == [("changed", "b"), ("added", "d"), ("removed", "a")]


def version(number: int, text: str) -> SubjectVersion:
    return SubjectVersion("s", number, RegisteredSchema(type=SchemaType.AVRO, text=text, id=number))


@pytest.mark.parametrize(
    ("level", "is_met"),
    [("BACKWARD", True), ("FORWARD", False), ("FULL_TRANSITIVE", False), ("NONE", True), ("?", None)],
)
def test_the_verdict_of_a_level(level: str, is_met: bool | None) -> None:
    """The newer one reads ints as longs; the older one cannot read longs."""
    versions = [version(1, avro({"name": "a", "type": "int"})), version(2, avro({"name": "a", "type": "long"}))]
    view = SubjectsView(origin="", catalogue=SchemaCatalogue(versions), levels={"s": level})
    for pair in (versions, versions[::-1]):
        compared = compare(view, *pair)
        assert compared.is_level_met is is_met
        assert [bool(each.problems) for each in compared.verdicts] == [False, True]


def test_a_schema_that_does_not_parse_is_compared_by_lines() -> None:
    versions = [version(1, avro({"name": "a", "type": "nothing"})), version(2, avro({"name": "a", "type": "int"}))]
    compared = compare(SubjectsView(origin="", catalogue=SchemaCatalogue(versions)), *versions)
    assert compared.trouble is not None
    assert [each.problems for each in compared.verdicts] == [None, None]
    assert [each.path for each in compared.fields] == ["a"]


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("orders-value", "orders"),
        ("orders-eu-key", "orders-eu"),
        ("orders-com.shop.Order", "orders"),
        (":.prod:orders-value", "orders"),
        ("com.shop.Order", None),
        ("-value", None),
        ("orders", None),
    ],
)
def test_the_topic_of_a_subject(subject: str, topic: str | None) -> None:
    assert topic_of(subject, frozenset({"orders", "orders-eu"})) == topic
