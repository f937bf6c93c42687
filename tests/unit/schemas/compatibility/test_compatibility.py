"""Avro and Protobuf schemas compared, one rule at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from duralog.errors import SchemaError
from duralog.schemas.compatibility import parse, problems, work
from duralog.schemas.compatibility.identity import same_schema
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType


def avro(schema: Any) -> Any:
    return parse(RegisteredSchema(type=SchemaType.AVRO, text=json.dumps(schema)), {})


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


A = field("a", "int")


@pytest.mark.parametrize(
    ("reader", "writer", "is_readable"),
    [
        ("long", "int", True),
        ("double", "long", True),
        ("int", "long", False),
        ("bytes", "string", True),
        ("string", "bytes", True),
        ("string", "int", False),
        (["null", "int"], "int", True),
        ("int", ["null", "int"], False),
        (["null", "long"], ["null", "int"], True),
        (["null", "int"], ["null", "string"], False),
        (record(A), record(A, field("b", "string")), True),
        (record(A, field("b", "string")), record(A), False),
        (record(A, field("b", "string", default="")), record(A), True),
        (record(field("renamed", "int", aliases=["a"])), record(A), True),
        (record(A, name="S"), record(A), False),
        (record(A, name="S", aliases=["R"]), record(A), True),
        (record(A, name="other.R"), record(A, name="one.R"), True),
        (enum("A", "B"), enum("A"), True),
        (enum("A"), enum("A", "B"), False),
        (enum("A", default="A"), enum("A", "B"), True),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 4}, True),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, False),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, False),
        (
            record(field("next", ["null", "R"]), field("v", "long")),
            record(field("next", ["null", "R"]), field("v", "int")),
            True,
        ),
        (
            record(field("next", ["null", "R"]), field("v", "int")),
            record(field("next", ["null", "R"]), field("v", "long")),
            False,
        ),
    ],
)
def test_avro(reader: Any, writer: Any, is_readable: bool) -> None:
    found = problems(avro(reader), avro(writer))
    assert (found == []) is is_readable, found


ORDER = """
{"type": "record", "name": "Order", "namespace": "shop", "doc": "d", "aliases": ["Old"], "fields": [
  {"name": "id", "type": "int"},
  {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
  {"name": "next", "type": ["null", "Order"], "default": null},
  {"name": "day", "type": {"type": "int", "logicalType": "date"}}]}
"""
AS_JAVA_WRITES_IT = """
{"type":"record","name":"Order","namespace":"shop","doc":"d","fields":[{"name":"id","type":"int"},
{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["A"]}},{"name":"next","type":["null","Order"],"default":null},
{"name":"day","type":{"type":"int","logicalType":"date"}}],"aliases":["shop.Old"]}
"""
ODD = """
{"fields": [
  {"type": {"type": "int"}, "name": "id", "order": "ascending"},
  {"name": "kind", "type": {"name": "shop.Kind", "type": "enum", "symbols": ["A"]}},
  {"name": "next", "default": null, "type": ["null", {"type": "shop.Order"}], "aliases": []},
  {"name": "day", "type": {"logicalType": "date", "type": "int"}}],
 "aliases": ["Old"], "name": "shop.Order", "type": "record", "doc": "d"}
"""


@pytest.mark.parametrize(
    ("type_", "one", "other", "is_same"),
    [
        ("AVRO", ORDER, AS_JAVA_WRITES_IT, True),
        ("AVRO", ORDER, ODD, True),
        ("AVRO", ORDER, ORDER.replace('"doc": "d"', '"doc": "e"'), False),
        ("AVRO", ORDER, ORDER.replace('"shop"', '"stock"'), False),
        ("AVRO", ORDER, ORDER.replace('"logicalType": "date"', '"logicalType": "time-millis"'), False),
        ("AVRO", ORDER, ORDER.replace('["A"]', '["A", "B"]'), False),
        ("AVRO", ORDER, ORDER.replace('"default": null', '"order": "ignore", "default": null'), False),
        ("AVRO", '["null", "int"]', '["int", "null"]', False),
        ("AVRO", "int", ' {"type":"int"} ', True),
        ("AVRO", "{", "{ ", True),
        ("AVRO", "{", "[", False),
        ("JSON", '{"a": 1, "b": 2}', '{"a":1,"b":2}', True),
        ("JSON", '{"a": 1, "b": 2}', '{"b":2,"a":1}', None),
        ("PROTOBUF", "message A { int32 x = 1; }", "// one\nmessage A {\n  int32 x=1; /* x\n */\n}\n", True),
        ("PROTOBUF", 'option a = "x // y";', 'option a = "x // z";', False),
        ("PROTOBUF", "message A { int32 x = 1; }", "message A { int32 x = 11; }", False),
        ("PROTOBUF", "message A { int32 x = 1; }", "message A { int32x = 1; }", False),
    ],
)
def test_the_same_schema(type_: str, one: str, other: str, is_same: bool | None) -> None:
    """Java's client sends what it parsed, Python's the text of the file. None: only if it is normalized."""
    schemas = [RegisteredSchema(type=SchemaType(type_), text=text) for text in (one, other)]
    assert same_schema(*schemas) is (is_same is True)
    assert same_schema(*schemas, normalize=True) is (is_same is not False)
    if type_ == "AVRO" and is_same and one not in ("int", "{"):
        assert problems(parse(schemas[0], {}), parse(schemas[1], {})) == []


@pytest.mark.parametrize("begun", ["/* ", "\\'", '"\\', "'a", "'\\a", "//", "/*\n", "a.", '"\\\n'])
@pytest.mark.parametrize("end", ["", "\\"])
def test_a_text_that_closes_nothing_is_read_once(begun: str, end: str) -> None:
    """Megabytes that would take hours if each beginning were followed to the end of the text."""
    text = begun * 100_000 + end
    one, other = (RegisteredSchema(type=SchemaType.PROTOBUF, text=f"{name} {text}") for name in "ab")
    assert not same_schema(one, other)


def test_what_is_not_closed_ends_with_its_line_or_text() -> None:
    def same(one: str, other: str) -> bool:
        return same_schema(*(RegisteredSchema(type=SchemaType.PROTOBUF, text=text) for text in (one, other)))

    assert same("a 'b\nc  d", "a 'b\nc d")
    assert not same("a 'b  c", "a 'b c")
    assert not same("a", "a /* b")
    assert not same("a", "a /*/")
    assert same("a", "a /**/")
    assert same(r"option a = 'it\'s' ;", r"option a='it\'s';")
    assert not same(r"option a = 'it\'s // one';", r"option a = 'it\'s // two';")


def test_a_long_namespace_does_not_multiply() -> None:
    """Each name would have it: gigabytes of one megabyte."""
    types = [{"type": "fixed", "name": f"F{number}", "size": 1} for number in range(10_000)]
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    space = ".".join(["a" * 100] * 5_000)
    text = json.dumps({"type": "record", "name": "R", "namespace": space, "fields": fields})
    one, other = (RegisteredSchema(type=SchemaType.AVRO, text=each) for each in (text, text.replace("F9999", "F")))
    assert same_schema(one, one)
    assert not same_schema(one, other)


def proto(body: str, head: str = 'syntax = "proto3"; package p;') -> Any:
    return parse(RegisteredSchema(type=SchemaType.PROTOBUF, text=f"{head}\n{body}"), {})


BASE = "message M { int32 a = 1; string b = 2; oneof o { string x = 3; string y = 4; } }"


def test_protobuf() -> None:
    pytest.importorskip("grpc_tools")
    writer = proto(BASE)
    for body, is_readable in {
        BASE: True,
        BASE.replace("int32 a", "int64 a"): True,
        BASE.replace("int32 a", "int32 renamed"): True,
        BASE.replace("int32 a = 1; ", ""): True,
        BASE.replace("int32 a = 1;", "int32 a = 1; int32 c = 9;"): True,
        BASE + " message N { }": True,
        BASE.replace("string b", "bytes b"): True,
        BASE.replace("string b", "repeated string b"): True,
        BASE.replace("int32 a", "repeated int32 a"): False,
        BASE.replace("int32 a", "sint32 a"): False,
        BASE.replace("int32 a", "string a"): False,
        BASE.replace(" string y = 4;", ""): False,
        BASE.replace("message M", "message Other"): False,
        "message M { oneof o { string x = 3; string y = 4; int32 a = 1; string b = 2; } }": False,
    }.items():
        found = problems(proto(body), writer)
        assert (found == []) is is_readable, (body, found)
    assert problems(proto(BASE, 'syntax = "proto3"; package q;'), writer)
    with pytest.raises(SchemaError):
        proto("message {")


def test_types_do_not_mix() -> None:
    of_json = parse(RegisteredSchema(type=SchemaType.JSON, text="{}"), {})
    assert problems(of_json, avro("int")) == ["the type of the schema changed from AVRO to JSON"]


def test_problems_of_a_shared_type_do_not_multiply() -> None:
    """Each record uses the next one twice: 2**60 paths lead to the one field that differs."""

    def nested(leaf: str) -> Any:
        made = record(field("x", leaf), name="R60")
        for number in reversed(range(60)):
            made = record(field("a", made), field("b", f"R{number + 1}"), name=f"R{number}")
        return avro(made)

    assert 0 < len(problems(nested("int"), nested("string"))) <= 50


def test_a_comparison_of_many_branches_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def union(prefix: str) -> Any:
        return avro([{"type": "fixed", "name": f"{prefix}{number}", "size": 4} for number in range(400)])

    assert len(problems(union("a"), union("b"))) == 50
    monkeypatch.setattr(work, "MAX_STEPS", 10_000)
    with pytest.raises(SchemaError, match="10,000 steps to compare"):
        problems(union("a"), union("b"))


def test_large_schemas_are_not_kept() -> None:
    from duralog.schemas import compatibility

    compatibility._kept.cache_clear()
    for number in range(3):
        avro(record(A, name=f"R{number}", doc="x" * 100_000))
    assert compatibility._kept.cache_info().currsize == 0
    avro(record(A))
    assert compatibility._kept.cache_info().currsize == 1
