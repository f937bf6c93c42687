"""JSON Schema, Protobuf and Kafka's plain serializers: what other libraries make of the same values."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from duralog.errors import InvalidRecord, SchemaError
from duralog.schemas import DecoderPlan, Format, Framing, PayloadDecoder, RegisteredSchema, SchemaCatalogue, SchemaType
from duralog.schemas.compatibility.json_schema import JsonSchema
from duralog.schemas.encoding.json_schema import check_json
from duralog.schemas.encoding.payload_encoder import EncoderPlan, PayloadEncoder

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 1.0, 2.5, -3, "", "a", "abc", [], [1], [1, 1], [1, "a"], ["a", 2, 3]),
    *({}, {"a": 1}, {"a": "x"}, {"a": 1, "b": 2}, {"a": None}, {"x1": 1}, {"x1": "y"}, {"a": {"a": {"a": 1}}}),
]
SCHEMAS: list[Any] = [
    True,
    False,
    {},
    {"type": "integer"},
    {"type": ["string", "null"]},
    {"enum": [1, "a", [1]]},
    {"const": True},
    {"minimum": 1, "exclusiveMaximum": 2.5},
    {"multipleOf": 0.5},
    {"minLength": 1, "maxLength": 2, "pattern": "^a"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "uniqueItems": True},
    {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
    {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "number"}}},
    {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "integer"}},
    {"minProperties": 1, "maxProperties": 1},
    {"allOf": [{"type": "integer"}, {"maximum": 0}]},
    {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
    {"not": {"type": "object"}},
    {"if": {"type": "string"}, "then": {"minLength": 3}, "else": {"type": "array"}},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"a": {"$ref": "#/$defs/tree"}}}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_json_is_valid_where_jsonschema_says_so(schema: Any) -> None:
    expected = jsonschema.Draft202012Validator(schema)
    parsed = JsonSchema(json.dumps(schema))
    for value in VALUES:
        try:
            check_json(parsed, value)
            is_valid = True
        except InvalidRecord:
            is_valid = False
        assert is_valid == expected.is_valid(value), value


@pytest.mark.parametrize(
    ("text", "step", "is_multiple"),
    [
        *(("19.99", "0.01", True), ("0.3", "0.1", True), ("1e-7", "1e-8", True), ("0", "0.7", True)),
        *(("19.995", "0.01", False), ("9" * 400, "0.5", True), ("1e-9999", "0.5", False)),
        *(("123456789.123456789123", "0.000000000001", True), ("123456789.1234567891235", "0.000000000001", False)),
    ],
)
def test_multiples_are_those_of_the_digits(text: str, step: str, *, is_multiple: bool) -> None:
    schema = RegisteredSchema(type=SchemaType.JSON, text=f'{{"multipleOf": {step}}}')
    encoder = PayloadEncoder(EncoderPlan(format=Format.JSON, schema=schema))
    if is_multiple:
        encoder.encode_text(text.encode())
    else:
        with pytest.raises(InvalidRecord, match="expected a multiple of"):
            encoder.encode_text(text.encode())


@pytest.mark.parametrize(
    "schema",
    [
        *({"allOf": 5}, {"anyOf": {}}, {"oneOf": None}, {"enum": True}),
        *({"properties": 3}, {"patternProperties": ["a"]}),
    ],
    ids=json.dumps,
)
def test_keywords_of_another_type_are_an_error_of_the_schema(schema: Any) -> None:
    with pytest.raises(SchemaError, match=r"the JSON Schema's \w+ is not "):
        check_json(JsonSchema(json.dumps(schema)), {"a": 1})


@pytest.mark.parametrize(
    "schema",
    [{"required": [[]]}, {"pattern": "a{99999999999}"}, {"properties": None}, {"multipleOf": "x"}],
    ids=json.dumps,
)
def test_what_a_keyword_cannot_mean_is_ignored(schema: Any) -> None:
    for value in ({"a": 1}, "a", 3):
        check_json(JsonSchema(json.dumps(schema)), value)


def test_wrong_json_is_named() -> None:
    text = json.dumps(
        {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": {"required": ["price"]}}},
            "required": ["id"],
        }
    )
    schema = RegisteredSchema(type=SchemaType.JSON, text=text, id=7)
    encoder = PayloadEncoder(EncoderPlan(format=Format.JSON, framing=Framing.CONFLUENT, schema=schema))
    assert encoder.encode_text(b'{ "id": 1 }') == b'\0\0\0\0\x07{"id":1}'
    with pytest.raises(InvalidRecord, match='value: field id: expected integer, found "x"'):
        encoder.encode({"id": "x"})
    with pytest.raises(InvalidRecord, match=r"field lines\[1\]\.price: it is missing, and required"):
        encoder.encode({"id": 1, "lines": [{"price": 1}, {}]})
    with pytest.raises(InvalidRecord, match="value: not JSON: Expecting"):
        encoder.encode_text(b"{")
    with pytest.raises(SchemaError, match="without end"):
        check_json(JsonSchema('{"allOf": [{"$ref": "#"}]}'), 1)


PROTO = """
syntax = "proto3";
package shop;
message Other { int32 x = 1; }
message Order {
  int64 id = 1;
  map<string, int32> counts = 2;
  bytes raw = 3;
  Line first_line = 4;
  repeated Kind kinds = 5;
  message Line { double price = 1; message Deep { uint64 n = 1; } }
  enum Kind { NEW = 0; OLD = 1; }
}
"""


@pytest.mark.parametrize(
    ("message", "value", "indexes"),
    [
        (None, {"x": 5}, b"\0"),
        (
            "shop.Order",
            {
                "id": 2**60,
                "counts": {"a": 1},
                "raw": "AAH/",
                "first_line": {"price": 1.5},
                "kinds": ["OLD", "NEW"],
            },
            b"\x02\x02",
        ),
        ("shop.Order.Line.Deep", {"n": str(2**64 - 1)}, b"\x06\x02\x00\x00"),
    ],
)
def test_protobuf(message: str | None, value: Any, indexes: bytes) -> None:
    pytest.importorskip("grpc_tools")
    schema = RegisteredSchema(type=SchemaType.PROTOBUF, text=PROTO, id=9)
    plan = EncoderPlan(format=Format.PROTOBUF, framing=Framing.CONFLUENT, schema=schema, message=message)
    payload = PayloadEncoder(plan).encode(value)
    assert payload.startswith(b"\0\0\0\0\x09" + indexes)
    decoder = PayloadDecoder(
        DecoderPlan(
            format=Format.PROTOBUF,
            framing=Framing.CONFLUENT,
            reader=schema,
            catalogue=SchemaCatalogue((), [schema]),
            message=message,
        )
    )
    decoded = decoder.decode(pa.array([payload], pa.binary()))
    assert decoded.reasons.to_pylist() == [None]
    found = decoded.values[0].as_py()
    if message == "shop.Order":
        assert (found["id"], found["raw"], found["kinds"]) == (2**60, b"\0\1\xff", ["OLD", "NEW"])
        assert found["first_line"]["price"] == 1.5
    with pytest.raises(InvalidRecord, match="nothing"):
        PayloadEncoder(plan).encode({"nothing": 1})
    with pytest.raises(InvalidRecord, match="expected an object"):
        PayloadEncoder(plan).encode([1])


@pytest.mark.parametrize(
    ("format_", "text", "payload"),
    [
        ("string", b"{a", b"{a"),
        ("long", b"-2", b"\xff" * 7 + b"\xfe"),
        ("integer", b"7", b"\0\0\0\7"),
        ("short", b"7", b"\0\7"),
        ("double", b"1.5", b"\x3f\xf8" + b"\0" * 6),
        ("float", b"1.5", b"\x3f\xc0\0\0"),
        ("boolean", b"true", b"\1"),
        ("uuid", b"12345678-1234-1234-1234-123456789ABC", b"12345678-1234-1234-1234-123456789abc"),
        ("bytes", b"AAH/", b"\0\1\xff"),
        ("json", b'{ "a": 1 }', b'{"a":1}'),
    ],
)
def test_plain_formats(format_: str, text: bytes, payload: bytes) -> None:
    encoder = PayloadEncoder(EncoderPlan(format=Format(format_)))
    assert encoder.encode_text(text) == payload
    if format_ != "string":
        with pytest.raises(InvalidRecord, match="value: "):
            encoder.encode_text(b"?")


def test_what_cannot_be_encoded_is_said_at_once() -> None:
    with pytest.raises(SchemaError, match="needs a schema that has an id"):
        PayloadEncoder(EncoderPlan(format=Format.JSON, framing=Framing.CONFLUENT))
    with pytest.raises(SchemaError, match="not written in the framing glue"):
        PayloadEncoder(EncoderPlan(format=Format.JSON, framing=Framing.GLUE))
    with pytest.raises(SchemaError, match="not written without a schema"):
        PayloadEncoder(EncoderPlan(format=Format.AVRO))
    avro = RegisteredSchema(type=SchemaType.AVRO, text='"int"')
    with pytest.raises(SchemaError, match="format json cannot use it"):
        PayloadEncoder(EncoderPlan(format=Format.JSON, schema=avro))


@pytest.mark.parametrize("text", [b'{"a": NaN}', b"[-Infinity]", b"1e999"])
def test_what_json_does_not_have_is_not_written(text: bytes) -> None:
    with pytest.raises(InvalidRecord, match="are not JSON"):
        PayloadEncoder(EncoderPlan(format=Format.JSON)).encode_text(text)
