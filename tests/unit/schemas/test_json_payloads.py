"""JSON payloads: types from JSON Schemas, from samples and from Kafka Connect; values that fit and that do not."""

from __future__ import annotations

import datetime
import json
import pickle
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import SchemaError
from duralog.schemas import (
    Decoded,
    DecoderPlan,
    Format,
    PayloadDecoder,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaReference,
    SchemaType,
    SubjectVersion,
    infer_debezium_type,
    infer_json_type,
)
from duralog.schemas.connect.connect_types import connect_type
from duralog.schemas.json_payloads import parse_all
from duralog.schemas.json_types import infer_type, json_schema_type
from duralog.schemas.payloads import MOST_LEFT_OUT, OTHERS_LEFT_OUT


def as_json(*values: object) -> pa.Array:
    return pa.array([json.dumps(value).encode() for value in values], pa.binary())


def schema(value: object, *references: SchemaReference) -> RegisteredSchema:
    return RegisteredSchema(type=SchemaType.JSON, text=json.dumps(value), references=references)


def decode(field: pa.Field, column: pa.Array) -> Decoded:
    decoded = PayloadDecoder(DecoderPlan(format=Format.JSON, json_type=field)).decode(column)
    decoded.values.validate(full=True)
    assert decoded.values.type == field.type
    return decoded


class TestSchemas:
    @pytest.mark.parametrize(
        ("described", "type_"),
        [
            ({"type": "string", "format": "date-time"}, pa.string()),
            ({"type": "integer"}, pa.int64()),
            ({"type": ["null", "number"]}, pa.float64()),
            ({"type": ["integer", "number", "null"]}, pa.float64()),
            ({"type": ["string", "integer"]}, pa.string()),
            ({"enum": ["a", None]}, pa.string()),
            ({"const": True}, pa.bool_()),
            ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, pa.bool_()),
            ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, pa.string()),
            ({"type": "array", "items": {"type": "integer"}}, pa.list_(pa.int64())),
            ({"type": "array"}, pa.list_(pa.string())),
            ({"type": "object", "additionalProperties": {"type": "integer"}}, pa.map_(pa.string(), pa.int64())),
            ({"type": "object"}, pa.string()),
            ({"properties": {"a": {"type": "null"}}}, pa.struct([("a", pa.null())])),
            ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "integer"}}}, pa.int64()),
            (
                {"type": "object", "properties": {"a": {}}, "allOf": [{"properties": {"b": {"type": "integer"}}}]},
                pa.struct([("a", pa.string()), ("b", pa.int64())]),
            ),
            (True, pa.string()),
        ],
    )
    def test_types(self, described, type_):
        assert json_schema_type(json.dumps(described), {}).type == type_

    def test_references_between_documents(self):
        money = {
            "$id": "money.json",
            "definitions": {"cents": {"type": "integer"}},
            "type": "object",
            "properties": {"cents": {"$ref": "#/definitions/cents"}},
        }
        catalogue = SchemaCatalogue(
            [SubjectVersion("money", 1, RegisteredSchema(type=SchemaType.JSON, text=json.dumps(money), id=1))]
        )
        reader = schema(
            {"properties": {"sum": {"$ref": "money.json"}, "tip": {"$ref": "money.json#/definitions/cents"}}},
            SchemaReference("money.json", "money", 1),
        )
        decoder = pickle.loads(
            pickle.dumps(PayloadDecoder(DecoderPlan(format=Format.JSON, reader=reader, catalogue=catalogue)))
        )
        assert decoder.arrow_type == pa.struct([("sum", pa.struct([("cents", pa.int64())])), ("tip", pa.int64())])
        row = {"sum": {"cents": 5}, "tip": 1}
        assert decoder.decode(as_json(row)).values.to_pylist() == [row]

    def test_one_that_contains_itself_keeps_the_json_there(self):
        tree = {"properties": {"value": {"type": "integer"}, "next": {"$ref": "#"}}}
        decoded = decode(
            json_schema_type(json.dumps(tree), {}), as_json({"value": 1, "next": {"value": 2, "next": None}})
        )
        assert decoded.values.to_pylist() == [{"value": 1, "next": '{"value":2,"next":null}'}]

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("{", "the JSON Schema is not JSON"),
            ("[" * 100_000, "the JSON Schema is not JSON"),
            ('{"$ref": "#/gone"}', "refers to '#/gone', which does not exist"),
            ('{"$ref": "other.json"}', "refers to 'other.json', which is not among its references"),
            ('{"$ref": "#"}', "has a .ref that leads to itself"),
            ('{"$ref": "#anchor"}', "anchors are not supported"),
            (
                r'{"properties": {"a": {"properties": {"\ud800": {}}}}}',
                r"a field whose name is not Unicode text: '.ud800'",
            ),
        ],
    )
    def test_those_that_cannot_be_used(self, text, problem):
        with pytest.raises(SchemaError, match=problem):
            json_schema_type(text, {})

    def test_a_small_one_with_millions_of_fields(self):
        definitions = {
            f"d{n}": {"properties": {str(m): {"$ref": f"#/definitions/d{n + 1}"} for m in range(10)}} for n in range(8)
        }
        bomb = {"$ref": "#/definitions/d0", "definitions": {**definitions, "d8": {"type": "integer"}}}
        with pytest.raises(SchemaError, match="more than 20,000 fields"):
            json_schema_type(json.dumps(bomb), {})

    def test_pruned_columns(self):
        reader = schema(
            {
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "array", "items": {"properties": {"c": {}, "d": {"type": "integer"}}}},
                }
            }
        )
        decoder = PayloadDecoder(DecoderPlan(format=Format.JSON, reader=reader, columns=("b.d",)))
        assert decoder.decode(as_json({"a": "not read", "b": [{"d": 1}]})).values.to_pylist() == [{"b": [{"d": 1}]}]


WORDS = st.sampled_from(
    [
        "string",
        "integer",
        "object",
        "array",
        "null",
        "#",
        "#/properties/a",
        "#/definitions/a",
        "x",
        "#x",
        "99",
        "struct",
        "map",
        "bytes",
        "int32",
        "org.apache.kafka.connect.data.Decimal",
        "io.debezium.time.Date",
    ]
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "$ref",
        "$id",
        "definitions",
        "a",
        "allOf",
        "oneOf",
        "anyOf",
        "enum",
        "const",
        "additionalProperties",
        "fields",
        "field",
        "name",
        "parameters",
        "scale",
        "keys",
        "values",
    ]
)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | WORDS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
        max_leaves=20,
    )
)
def test_no_schema_makes_anything_fail_but_with_a_schema_error(described):
    for make in (lambda: json_schema_type(json.dumps(described), {"x": "{}"}), lambda: connect_type(described)):
        with suppress(SchemaError):
            assert isinstance(make(), pa.Field)


class TestValues:
    field = pa.field(
        "value",
        pa.struct(
            [
                ("whole", pa.int64()),
                ("number", pa.float64()),
                ("text", pa.string()),
                ("flag", pa.bool_()),
                ("list", pa.list_(pa.int64())),
                ("map", pa.map_(pa.string(), pa.int64())),
                ("inner", pa.struct([("flag", pa.bool_())])),
            ]
        ),
    )

    @pytest.mark.parametrize(
        ("payload", "reason"),
        [
            (b'{"whole": true}', "whole is not int64: true"),
            (b'{"whole": 1.5}', "whole is not int64: 1.5"),
            (b'{"whole": 9223372036854775808}', "whole is not int64: 9223372036854775808"),
            (b'{"number": "1"}', 'number is not double: "1"'),
            (b'{"number": 1e999}', "number is not double: Infinity"),
            (b'{"number": 9007199254740993}', "number is not double: 9007199254740993"),
            (b'{"number": 1' + b"0" * 400 + b"}", "number is not double: 10000"),
            (b'{"text": 1}', "text is not string: 1"),
            (b'{"text": "\\ud83d"}', 'text is not string: "\\ud83d"'),
            (b'{"flag": 0}', "flag is not bool: 0"),
            (b'{"list": {}}', "list is not an array: {}"),
            (b'{"list": [1, "x"]}', 'list[] is not int64: "x"'),
            (b'{"map": []}', "map is not an object: []"),
            (b'{"map": {"k": "x"}}', 'map{} is not int64: "x"'),
            (b'{"inner": 5}', "inner is not an object: 5"),
            (b'{"inner": {"flag": "' + b"x" * 50 + b'"}}', 'inner.flag is not bool: "' + "x" * 36 + "..."),
            (b"5", "the payload is not an object: 5"),
            (b"", "damaged JSON at byte 0: Expecting value"),
            (b'{"text": "\xc3\xa9" ', "damaged JSON at byte 14: Expecting ',' delimiter"),
            (b"{}{}", "damaged JSON at byte 2: Extra data"),
            (b'{"a": NaN}', "damaged JSON: NaN is not JSON"),
            (b'{"a": "\xff"}', "damaged JSON at byte 7: not UTF-8"),
            (b"[" * 100_000, "damaged JSON: nested too deeply"),
            (b'{"a": ' + b"1" * 5000 + b"}", "damaged JSON: Exceeds the limit"),
        ],
        ids=range(24),
    )
    def test_a_bad_row_has_a_reason_and_its_neighbours_are_good(self, payload, reason):
        sound = b'{"whole": 1.0, "number": 2, "list": [1, null], "map": {"a": 1}, "inner": {}}'
        decoded = decode(self.field, pa.array([sound, payload, b"null", None, sound]))
        assert decoded.reasons[1].as_py().startswith(reason)
        assert decoded.reasons.to_pylist()[2:] == [None, None, None]
        row = {
            "whole": 1,
            "number": 2.0,
            "text": None,
            "flag": None,
            "list": [1, None],
            "map": [("a", 1)],
            "inner": {"flag": None},
        }
        assert decoded.values.to_pylist() == [row, None, None, None, row]

    @given(
        st.lists(
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers(-(2**70), 2**70)
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.text(max_size=5),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                max_leaves=8,
            ),
            max_size=5,
        )
    )
    def test_any_sample_fits_the_type_that_was_inferred_from_it(self, values):
        field = infer_type(values)
        decoded = decode(field, as_json(*values))
        assert decoded.reasons.null_count == len(values)
        assert decoded.values.to_pylist() == [expected(json.loads(json.dumps(each)), field) for each in values]

    def test_the_types_of_a_sample(self):
        column = as_json(
            {"a": 1, "b": [1], "c": {"x": None}},
            {"a": 2.5, "b": [], "c": {"x": "y", "z": 1}, "d": 1},
            {"d": "1", "e": {}},
        )
        column = pa.concat_arrays([column, pa.array([None, b"not json"])])
        found = infer_json_type(column).type
        assert found == pa.struct(
            [
                ("a", pa.float64()),
                ("b", pa.list_(pa.int64())),
                ("c", pa.struct([("x", pa.string()), ("z", pa.int64())])),
                ("d", pa.string()),
                ("e", pa.string()),
            ]
        )
        with pytest.raises(SchemaError, match="no payload of the sample is JSON: damaged JSON at byte 0"):
            infer_json_type(pa.array([b"x"]))
        with pytest.raises(SchemaError, match="no payload of the sample is JSON: there is none"):
            infer_json_type(pa.array([None], pa.binary()))

    @pytest.mark.parametrize(
        ("values", "type_"),
        [
            ([1, 2.5], pa.float64()),
            ([2**53, 2.5], pa.float64()),
            ([2**53 + 1, 1], pa.int64()),
            ([2**53 + 1, 2.5], pa.string()),
            ([2.5, 2**53 + 1], pa.string()),
            ([2**63 - 1, None], pa.int64()),
            ([2**64 - 1, 1], pa.string()),
            # As JavaScript writes 1e20 and 1.2345678901234567e19.
            ([10**20, 1], pa.float64()),
            ([12345678901234567000, 1], pa.float64()),
            ([10**400, 1], pa.string()),
        ],
    )
    def test_no_number_of_a_sample_is_rounded(self, values, type_):
        field = infer_type([{"n": each} for each in values])
        assert field.type.field("n").type == type_
        decoded = decode(field, as_json(*({"n": each} for each in values)))
        assert decoded.reasons.null_count == len(values)
        found = [row["n"] for row in decoded.values.to_pylist()]
        assert [each if each is None else Decimal(repr(json.loads(str(each)))) for each in found] == values

    def test_a_json_format_needs_a_type(self):
        with pytest.raises(SchemaError, match="needs a JSON Schema, or a type that was inferred"):
            PayloadDecoder(DecoderPlan(format=Format.JSON))


def expected(value: Any, field: pa.Field) -> Any:
    """What a parsed value is in a column of this field."""
    if value is None:
        return None
    if field.metadata:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if pa.types.is_struct(field.type):
        return {each.name: expected(value.get(each.name), each) for each in field.type}
    if pa.types.is_list(field.type):
        return [expected(each, field.type.value_field) for each in value]
    return float(value) if pa.types.is_floating(field.type) else value


EVENT = {
    "before": None,
    "after": {"id": 1, "name": "x", "price": "AIk="},
    "source": {"db": "shop", "ts_ms": 1},
    "op": "c",
    "ts_ms": 2,
}
DELETE = {**EVENT, "before": EVENT["after"], "after": None, "op": "d"}

TABLE = {
    "type": "struct",
    "optional": True,
    "fields": [
        {"field": "id", "type": "int32", "optional": False},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        },
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "created", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
        {"field": "raw", "type": "bytes"},
        {"field": "small", "type": "int8"},
        {"field": "ratio", "type": "float"},
        {"field": "tags", "type": "array", "items": {"type": "string"}},
        {"field": "more", "type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}},
    ],
}
ENVELOPE = {
    "type": "struct",
    "fields": [
        {**TABLE, "field": "before"},
        {**TABLE, "field": "after"},
        {"field": "source", "type": "struct", "fields": [{"field": "db", "type": "string"}]},
        {"field": "op", "type": "string"},
        {"field": "ts_ms", "type": "int64"},
    ],
    "name": "shop.orders.Envelope",
}


class TestDebezium:
    def test_events_alone_and_wrapped(self):
        # A sample of inserts alone tells the columns of a delete.
        field = infer_debezium_type(as_json(EVENT))
        decoder = pickle.loads(pickle.dumps(PayloadDecoder(DecoderPlan(format=Format.DEBEZIUM, json_type=field))))
        rows = as_json(EVENT, DELETE, {"schema": None, "payload": EVENT}, {"schema": {}, "payload": None}, [1])
        decoded = decoder.decode(pa.concat_arrays([rows, pa.array([None], pa.binary())]))
        assert decoded.values.to_pylist() == [EVENT, DELETE, EVENT, None, None, None]
        assert decoded.reasons.to_pylist() == [None, None, None, None, "the payload is not an object: [1]", None]

    def test_types_of_the_schema_next_to_the_payload(self):
        after = {
            "id": 7,
            "price": "AIk=",
            "day": 3,
            "at": 1_000_001,
            "created": 1_000,
            "raw": "aGk=",
            "small": -1,
            "ratio": 0.5,
            "tags": ["a", None],
            "more": {"k": 1},
        }
        wrapped = {"schema": ENVELOPE, "payload": {**EVENT, "source": {"db": "shop"}, "after": after}}
        field = infer_debezium_type(as_json({"schema": None, "payload": EVENT}, wrapped))
        decoder = PayloadDecoder(
            DecoderPlan(format=Format.DEBEZIUM, json_type=field, columns=("after", "op", "before.price"))
        )
        bad = {**wrapped, "payload": {**EVENT, "after": {**after, "small": 128}}}
        decoded = decoder.decode(as_json(wrapped, bad))
        assert decoded.values.to_pylist() == [
            {
                "before": None,
                "after": {
                    "id": 7,
                    "price": Decimal("1.37"),
                    "day": datetime.date(1970, 1, 4),
                    "at": datetime.datetime(1970, 1, 1, 0, 0, 1, 1),
                    "created": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
                    "raw": b"hi",
                    "small": -1,
                    "ratio": 0.5,
                    "tags": ["a", None],
                    "more": [("k", 1)],
                    # Only the event without a schema has it.
                    "name": None,
                },
                "op": "c",
            },
            None,
        ]
        assert decoded.reasons[1].as_py() == "after.small is not int8: 128"

    @pytest.mark.parametrize("price", ["x", True, 1.001, 1e300, 10**20, [], "A" * 100, "f" + "/" * 15])
    def test_decimals_that_are_none(self, price):
        field = infer_debezium_type(as_json({"schema": ENVELOPE, "payload": EVENT}))
        decoder = PayloadDecoder(DecoderPlan(format=Format.DEBEZIUM, json_type=field, columns=("after.price",)))
        decoded = decoder.decode(as_json({**EVENT, "after": {"price": price}}))
        assert decoded.reasons[0].as_py().startswith("after.price is not decimal128(10, 2): ")

    def test_decimals_as_numbers(self):
        """Connect's `decimal.format=NUMERIC`: every digit counts, and what is a double stays one."""

        def decimal(digits: str, scale: str) -> dict[str, Any]:
            parameters = {"scale": scale, "connect.decimal.precision": digits}
            return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}

        columns = [("exact", decimal("40", "4")), ("longest", decimal("77", "0")), ("ratio", {"type": "double"})]
        after = {"type": "struct", "fields": [{"field": name, **each} for name, each in columns]}
        envelope = {"type": "struct", "fields": [{"field": "op", "type": "string"}, {"field": "after", **after}]}
        texts = ["12345678901234567890.1234", "5", "-0.5", "1e3", "1e999999999", "1.00001", "NaN"]
        payloads = [
            f'{{"op":"c","source":{{}},"after":{{"exact":{text},"longest":"AQ==","ratio":0.1}}}}'.encode()
            for text in texts
        ]
        sample = as_json({"schema": envelope, "payload": {"op": "c", "source": {}, "after": None}})
        decoder = PayloadDecoder(DecoderPlan(format=Format.DEBEZIUM, json_type=infer_debezium_type(sample)))
        assert decoder.arrow_type.field("after").type.field("exact").type == pa.decimal256(40, 4)
        decoded = decoder.decode(pa.array(payloads))
        rows = [row and row["after"] for row in decoded.values.to_pylist()]
        exact = ["12345678901234567890.1234", "5", "-0.5", "1000"]
        assert rows == [
            *({"exact": Decimal(text), "longest": b"\x01", "ratio": 0.1} for text in exact),
            None,
            None,
            None,
        ]
        assert decoded.reasons.to_pylist()[4:] == [
            "after.exact is not decimal256(40, 4): Infinity",
            "after.exact is not decimal256(40, 4): 1.00001",
            "damaged JSON: NaN is not JSON",
        ]

    def test_samples_without_events(self):
        with pytest.raises(SchemaError, match="no payload of the sample is a Debezium event"):
            infer_debezium_type(as_json({"op": "c"}, {"after": {}, "before": {}}))
        with pytest.raises(SchemaError, match="needs a type that was inferred from a sample"):
            PayloadDecoder(DecoderPlan(format=Format.DEBEZIUM))
        deep: dict[str, Any] = {"type": "string"}
        for _ in range(150):
            deep = {"type": "array", "items": deep}
        with pytest.raises(SchemaError, match="nested too deeply"):
            infer_debezium_type(as_json({"schema": deep, "payload": EVENT}))


def test_parsing_keeps_the_order_of_rows():
    values, reasons = parse_all(pa.array([b"1", b"x", b'"2"'], pa.large_binary()))
    assert values == [1, None, "2"]
    assert list(reasons) == [1]


def test_more_rows_than_are_parsed_at_once():
    rows = [b"5" if number % 1000 == 7 else b' {"whole": %d} ' % number for number in range(5_000)]
    decoded = decode(TestValues.field, pa.array(rows))
    assert decoded.values.field("whole").to_pylist() == [
        None if number % 1000 == 7 else number for number in range(5_000)
    ]
    assert decoded.reasons.null_count == 4_995


def test_an_empty_column():
    assert decode(TestValues.field, pa.array([], pa.binary())).values.to_pylist() == []


def test_names_that_no_column_can_have() -> None:
    """JSON may hold half of a surrogate pair. Such a field is left out, and reported by its escape."""
    rows = [rb'{"a": 1, "\ud800": 2, "b": {"\udfffx": [1]}}', rb'{"a": 3, "b": null}']
    field = infer_json_type(pa.array(rows))
    decoded = PayloadDecoder(DecoderPlan(format=Format.JSON, json_type=field)).decode(pa.array(rows))
    # Of `b`, no column is left: its JSON is kept.
    assert decoded.values.to_pylist() == [{"a": 1, "b": r'{"\udfffx":[1]}'}, {"a": 3, "b": None}]
    assert decoded.left_out == {"\\ud800": 1}
    schema = {"type": "struct", "fields": [{"field": "\ud800", "type": "string"}]}
    with pytest.raises(SchemaError, match="the Connect schema has a field whose name is not Unicode text"):
        connect_type(schema)


def test_fields_that_the_type_does_not_have_are_counted() -> None:
    """Not those that nobody asked for, nor the names of a map. For so many names."""
    inner = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.int64())])
    whole = pa.field("value", pa.struct([pa.field("x", inner), pa.field("m", pa.map_(pa.string(), inner))]))
    payload = b'{"x": {"a": 1, "b": 2, "c": 3}, "m": {"k": {"a": 1, "d": 1}, "l": null}, "e": null}'
    column = pa.array([payload, payload, None, b"null", b"{", b'{"e": 1}'])
    plan = DecoderPlan(format=Format.JSON, json_type=whole)
    expected = {"e": 3, "x.c": 2, "m{}.d": 2}
    assert PayloadDecoder(plan).decode(column).left_out == expected
    pruned = PayloadDecoder(replace(plan, columns=("x.a",)))
    assert pruned.decode(column).left_out == {"e": 3, "x.c": 2}
    many = pa.array([json.dumps({f"f{number}": 1 for number in range(80)}).encode()] * 5_000)
    counts = PayloadDecoder(plan).decode(many).left_out
    assert len(counts) == MOST_LEFT_OUT + 1
    assert sum(counts.values()) == 80 * 5_000
    assert counts[OTHERS_LEFT_OUT] == 30 * 5_000
