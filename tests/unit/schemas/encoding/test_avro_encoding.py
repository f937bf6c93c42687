"""JSON values as Avro: what fastavro reads of them, what a decoder shows of them, and what is refused."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from duralog.columnar.plain_json import plain_json
from duralog.columnar.python_values import python_values
from duralog.errors import InvalidRecord
from duralog.schemas import DecoderPlan, Format, PayloadDecoder, RegisteredSchema, SchemaType
from duralog.schemas.encoding.payload_encoder import EncoderPlan, PayloadEncoder
from tests.support.random_avro import RandomAvro

UTC = datetime.UTC


def encoder(schema: Any) -> PayloadEncoder:
    return PayloadEncoder(
        EncoderPlan(format=Format.AVRO, schema=RegisteredSchema(type=SchemaType.AVRO, text=json.dumps(schema)))
    )


def read(schema: Any, payload: bytes) -> Any:
    stream = io.BytesIO(payload)
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert stream.read() == b""
    return found


def of(type_: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": type_}]}


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


FIXED = {"type": "fixed", "name": "F", "size": 2}
LONG_NUMBER = "12345678901234567890123456789012345678.9"
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("type_", "given", "expected"),
    [
        ("long", -(2**63), -(2**63)),
        ("float", 1.5, 1.5),
        ("double", "-Infinity", float("-inf")),
        ("bytes", "AAH/", b"\0\1\xff"),
        (FIXED, "AAE=", b"\0\1"),
        ("string", "größe", "größe"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
        (logical("bytes", "decimal", precision=9, scale=2), 12.34, Decimal("12.34")),
        (
            logical("bytes", "decimal", precision=30, scale=2),
            "-1234567890123456789.01",
            Decimal("-1234567890123456789.01"),
        ),
        (logical("bytes", "decimal", precision=9, scale=2), -128, Decimal(-128)),
        ({**logical("fixed", "decimal", precision=4, scale=2), "name": "D", "size": 2}, "-0.01", Decimal("-0.01")),
        (logical("int", "date"), "1969-12-31", datetime.date(1969, 12, 31)),
        (logical("int", "date"), 1, datetime.date(1970, 1, 2)),
        (logical("int", "time-millis"), "03:04:05.678", datetime.time(3, 4, 5, 678000)),
        (logical("long", "time-micros"), "03:04:05.000001", datetime.time(3, 4, 5, 1)),
        (logical("long", "timestamp-millis"), "2026-01-02T03:04:05.678Z", MOMENT),
        (logical("long", "timestamp-micros"), "2026-01-02T04:04:05.678+01:00", MOMENT),
        (logical("long", "timestamp-micros"), 1767323045678000, MOMENT),
        (logical("string", "uuid"), "12345678-1234-1234-1234-123456789abc", None),
        (["null", "string"], None, None),
        (["null", "string"], "x", "x"),
        (["null", "string"], {"string": "x"}, "x"),
        (["bytes", "string"], "AAAA", "AAAA"),
        (["bytes", "string"], {"bytes": "AAAA"}, b"\0\0\0"),
        (["bytes", "string"], {"member0": "AAAA", "member1": None}, b"\0\0\0"),
        ([{"type": "map", "values": ["null", "int"]}, "int"], {"member0": None, "member1": 5}, 5),
        ([{"type": "map", "values": ["null", "int"]}, "int"], {"member1": 5}, {"member1": 5}),
        (["float", "double", "null"], 0.1, 0.1),
        (["int", "double"], 2.5, 2.5),
        (["double", "long"], 2**53 + 1, 2**53 + 1),
        (["float", "int"], 2**24 + 1, 2**24 + 1),
    ],
)
def test_fastavro_reads_it(type_: Any, given: Any, expected: Any) -> None:
    found = read(of(type_), encoder(of(type_)).encode({"f": given}))["f"]
    assert str(found) == given if expected is None and given is not None else found == expected


def test_decimals_keep_their_digits() -> None:
    schema = of(logical("bytes", "decimal", precision=30, scale=4))
    made = encoder(schema)
    for number in ("12345678901234567890.1234", "0.1", "-1e3", "1234567890123456.789", f"-{'9' * 26}.9999"):
        assert read(schema, made.encode_text(f'{{"f": {number}}}'.encode()))["f"] == Decimal(number)
    with pytest.raises(InvalidRecord, match="decimal"):
        made.encode_text(b'{"f": 0.10000000000000000001}')


def test_fields_that_are_left_out() -> None:
    schema = of("int")
    schema["fields"] += [
        {"name": "note", "type": ["null", "string"]},
        {"name": "rest", "type": {"type": "array", "items": "long"}, "default": [3]},
    ]
    assert read(schema, encoder(schema).encode({"f": 1})) == {"f": 1, "note": None, "rest": [3]}
    with pytest.raises(InvalidRecord, match="value: field f: it is missing, and has no default: expected int"):
        encoder(schema).encode({"note": "x"})
    with pytest.raises(InvalidRecord, match="R has no field 'g'; it has f, note, rest"):
        encoder(schema).encode({"f": 1, "g": 2})


NESTED = of(["null", {"type": "array", "items": {"type": "map", "values": of("int") | {"name": "S"}}}])


@pytest.mark.parametrize(
    ("type_", "given", "message"),
    [
        ("int", 2**31, "field f: expected int, found 2147483648"),
        ("int", 1.0, "expected int, found 1.0"),
        ("long", True, "expected long, found true"),
        ("boolean", 1, "expected boolean, found 1"),
        ("float", 1e300, "expected float"),
        ("float", 2**24 + 1, "expected float"),
        ("double", 2**53 + 1, "expected double, found 9007199254740993"),
        ("bytes", "not base64!", "expected bytes"),
        ("string", "\ud800", "expected string"),
        ("null", 0, "expected null"),
        (FIXED, "AA==", "expected fixed F"),
        (logical("bytes", "decimal", precision=3, scale=2), "1.234", r"expected bytes \(decimal\), found"),
        (logical("bytes", "decimal", precision=3, scale=2), "12.34", r"expected bytes \(decimal\), found"),
        (logical("bytes", "decimal", precision=3, scale=2), "NaN", "decimal"),
        (logical("long", "timestamp-millis"), "2026-01-02T03:04:05.6789Z", "timestamp-millis"),
        (logical("long", "local-timestamp-millis"), "2026-01-02T03:04:05Z", "local-timestamp-millis"),
        (logical("int", "time-millis"), "24:00", "time-millis"),
        (logical("string", "uuid"), "1234", "uuid"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", 'expected enum E, found "B"'),
        ({"type": "array", "items": "int"}, {"a": 1}, "expected array"),
        (["null", "int"], "x", 'field f: expected int, found "x"'),
        (["null", "int", "boolean"], "x", "expected union of null, int, boolean"),
        (["int", "string"], None, "expected union of int, string, found null"),
    ],
)
def test_what_does_not_fit_is_named(type_: Any, given: Any, message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        encoder(of(type_)).encode({"f": given})


def test_nested_places_are_named() -> None:
    with pytest.raises(InvalidRecord, match=r'^value: field f\[1\]\{a\}\.f: expected int, found "x"$'):
        encoder(NESTED).encode({"f": [{}, {"a": {"f": "x"}}]})
    with pytest.raises(InvalidRecord, match=r'^value: expected record R, found "x"'):
        encoder(NESTED).encode("x")


def test_a_type_that_contains_itself_has_an_end() -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    value: dict[str, Any] = {}
    for _ in range(50):
        value = {"next": value}
    assert len(encoder(schema).encode(value)) == 51
    for _ in range(200):
        value = {"next": value}
    with pytest.raises(InvalidRecord, match="nested deeper"):
        encoder(schema).encode(value)


def test_what_a_decoder_shows_encodes_to_the_same() -> None:
    """Random schemas: a payload is decoded, shown as JSON, encoded and decoded again."""
    made = RandomAvro(Random(11), logical=True)
    tried = 0
    for _ in range(80):
        schema = made.record()
        registered = RegisteredSchema(type=SchemaType.AVRO, text=json.dumps(schema))
        decoder = PayloadDecoder(DecoderPlan(format=Format.AVRO, reader=registered))
        written = PayloadEncoder(EncoderPlan(format=Format.AVRO, schema=registered))
        payloads = pa.array([made.value(schema) for _ in range(3)], pa.binary())
        first = decoder.decode(payloads)
        for value, reason in zip(python_values(first.values), first.reasons.to_pylist(), strict=True):
            if reason is not None:
                continue
            shown = plain_json(value)
            again = json.loads(json.dumps(shown))
            try:
                payload = written.encode(again)
            except InvalidRecord as error:
                assert "(uuid)" in str(error), (schema, shown)  # noqa: PT017
                continue  # The random text is not one.
            second = decoder.decode(pa.array([payload], pa.binary()))
            assert second.reasons[0].as_py() is None
            assert plain_json(python_values(second.values)[0]) == shown, (schema, shown)
            tried += 1
    assert tried > 100
