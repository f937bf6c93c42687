"""The decoder of any format: framings, groups of writers, plain values, and what cannot be planned."""

from __future__ import annotations

import json
import pickle
import struct
import zlib
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.columnar.schema import HEADER_TYPE
from duralog.errors import SchemaError
from duralog.schemas import (
    DecoderPlan,
    Format,
    Framing,
    PayloadDecoder,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaType,
    SubjectVersion,
    detect_format,
    infer_connect_type,
    read_schema_file,
)
from duralog.schemas.payloads import binary_column
from tests.support.schemas.presence import present

HEADERS = pa.list_(pa.field("item", HEADER_TYPE))
GUID = UUID("8a3a5ad7-6f9e-4a4c-9d1c-1b1b1b1b1b1b")
RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
WIDER = {"type": "record", "name": "R", "fields": [*RECORD["fields"], {"name": "b", "type": "string", "default": "-"}]}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "z", "type": "string"}]}


def avro(described: object, id_: int | None, guid: UUID | None = None) -> RegisteredSchema:
    return RegisteredSchema(type=SchemaType.AVRO, text=json.dumps(described), id=id_, guid=guid)


ONE, TWO, THREE = avro(RECORD, 1, GUID), avro(WIDER, 2), avro(OTHER, 3)
CATALOGUE = SchemaCatalogue(
    [SubjectVersion("t-value", 1, ONE), SubjectVersion("t-value", 2, TWO), SubjectVersion("other", 1, THREE)],
    [avro({"type": "broken"}, 4), RegisteredSchema(type=SchemaType.JSON, text="{}", id=5)],
)
PLAN = DecoderPlan(format=Format.AVRO, framing=Framing.CONFLUENT, reader=TWO, catalogue=CATALOGUE)


def framed(id_: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, id_) + payload


class TestGroups:
    rows = (
        (framed(1, b"\x02"), {"a": 1, "b": "-"}, None),
        (framed(2, b"\x04\x02x"), {"a": 2, "b": "x"}, None),
        (None, None, None),
        (framed(99, b"\x02"), None, "unknown schema id 99"),
        (framed(5, b"\x02"), None, "unknown schema id 5"),
        (framed(1, b""), None, "damaged Avro at byte 0: the value ends inside a field"),
        (framed(1, b"\x02\x00"), None, "damaged Avro at byte 1: bytes are left over after the last field"),
        (framed(2, b"\x02\x63"), None, "damaged Avro at byte 1: "),
        (b"\x00\x00", None, "the payload is shorter than the prefix with the schema id"),
        (b"", None, "the payload is shorter than the prefix with the schema id"),
        (b'{"a": 1}', None, "the payload does not start with the magic byte of its framing"),
        (framed(3, b"\x02x"), None, "schema 3: "),
        (framed(4, b"\x02x"), None, "schema 4: "),
    )

    @given(st.lists(st.sampled_from(rows), max_size=20), st.integers(0, 3))
    def test_rows_in_any_order(self, rows, skipped):
        decoder = DECODERS[0]
        column = pa.array([*[b"x"] * skipped, *(row[0] for row in rows)], pa.binary())[skipped:]
        decoded = decoder.decode(column)
        assert decoded.values.type == decoder.arrow_type
        assert decoded.values.to_pylist() == [row[1] for row in rows]
        for found, row in zip(decoded.reasons.to_pylist(), rows, strict=True):
            assert found == row[2] if row[2] is None else found.startswith(row[2])

    def test_each_row_with_an_id_of_its_own(self):
        column = pa.array([framed(number, b"\x02") for number in range(100, 5_100)])
        decoded = DECODERS[0].decode(column)
        assert decoded.values.null_count == 5_000
        assert decoded.reasons[4_999].as_py() == "unknown schema id 5099"

    def test_a_copy_in_another_process_decodes_alike(self):
        copy = pickle.loads(pickle.dumps(DECODERS[0]))
        column = pa.array([row[0] for row in self.rows], pa.binary())
        assert copy.decode(column).values.equals(DECODERS[0].decode(column).values)
        assert copy.decode(column).reasons.equals(DECODERS[0].decode(column).reasons)
        # What the format does not need stays behind.
        assert copy.plan.catalogue.ids() == [1, 2, 3, 4]

    def test_chunks_and_empty_columns(self):
        chunked = pa.chunked_array([[framed(1, b"\x02")], [framed(2, b"\x04\x02x")]], pa.binary())
        assert DECODERS[0].decode(chunked).values.field("a").to_pylist() == [1, 2]
        assert len(DECODERS[0].decode(pa.array([], pa.binary())).values) == 0
        assert DECODERS[0].decode(pa.nulls(3, pa.binary())).reasons.null_count == 3


DECODERS = [PayloadDecoder(PLAN)]


class TestFramings:
    def test_headers_before_prefixes(self):
        headers = pa.array(
            [
                [{"key": "__value_schema_id", "value": b"\x01" + GUID.bytes}],
                [{"key": "__key_schema_id", "value": b"\x01" + GUID.bytes}],
                [{"key": "__value_schema_id", "value": b"\x00\x00\x00\x00\x02"}],
                [{"key": "__value_schema_id", "value": b"\x01short"}],
                [{"key": "__value_schema_id", "value": b"\x01" + bytes(16)}],
            ],
            HEADERS,
        )
        decoded = DECODERS[0].decode(pa.array([b"\x02", framed(1, b"\x04"), b"\x06\x02x", b"\x02", b"\x02"]), headers)
        assert decoded.values.field("a").to_pylist()[:3] == [1, 2, 3]
        assert decoded.reasons.to_pylist() == [
            None,
            None,
            None,
            "the header with the schema id is damaged",
            "unknown schema GUID 00000000-0000-0000-0000-000000000000",
        ]

    def test_apicurio_and_glue(self):
        apicurio = PayloadDecoder(
            DecoderPlan(format=Format.AVRO, framing=Framing.APICURIO, reader=ONE, catalogue=CATALOGUE)
        )
        assert apicurio.decode(pa.array([struct.pack(">bq", 0, 2) + b"\x04\x02x"])).values.to_pylist() == [{"a": 2}]
        glue = PayloadDecoder(DecoderPlan(format=Format.AVRO, framing=Framing.GLUE, reader=ONE, catalogue=CATALOGUE))
        rows = [
            b"\x03\x00" + GUID.bytes + b"\x02",
            b"\x03\x05" + GUID.bytes + zlib.compress(b"\x04"),
            b"\x03\x05" + GUID.bytes + b"x",
        ]
        decoded = glue.decode(pa.array(rows))
        assert decoded.values.to_pylist() == [{"a": 1}, {"a": 2}, None]
        assert decoded.reasons[2].as_py() == "the compressed payload is damaged or too large"

    def test_none_with_a_schema_of_a_file(self, tmp_path):
        (tmp_path / "r.avsc").write_text(json.dumps(RECORD))
        decoder = PayloadDecoder(DecoderPlan(format=Format.AVRO, reader=read_schema_file(tmp_path / "r.avsc")))
        assert decoder.decode(pa.array([b"\x02", b"\x04"])).values.to_pylist() == [{"a": 1}, {"a": 2}]

    def test_contexts(self):
        inside = RegisteredSchema(type=SchemaType.AVRO, text='"string"', id=1, context=".c")
        catalogue = CATALOGUE.merged(SchemaCatalogue((), [inside]))
        plan = DecoderPlan(format=Format.AVRO, framing=Framing.CONFLUENT, reader=inside, catalogue=catalogue)
        assert PayloadDecoder(plan).decode(pa.array([framed(1, b"\x02x")])).values.to_pylist() == ["x"]


class TestPlain:
    @pytest.mark.parametrize(
        ("format_", "rows", "values"),
        [
            (Format.SHORT, [b"\xff\xfe", b"x"], [-2, None]),
            (Format.INTEGER, [struct.pack(">i", -(2**31)), b""], [-(2**31), None]),
            (Format.LONG, [struct.pack(">q", 2**63 - 1), b"123456789"], [2**63 - 1, None]),
            (Format.FLOAT, [struct.pack(">f", 0.5), b"xxxxx"], [0.5, None]),
            (Format.DOUBLE, [struct.pack(">d", -1e300), b"xxxx"], [-1e300, None]),
            (Format.BOOLEAN, [b"\x01", b"\x02"], [True, None]),
            (Format.STRING, ["é".encode(), b"\xff"], ["é", None]),
            (Format.UUID, [str(GUID).encode(), b"x"], [str(GUID), None]),
            (Format.UUID, [str(GUID).encode(), b"\xff"], [str(GUID), None]),
        ],
    )
    def test_kafkas_serializers(self, format_, rows, values):
        decoder = pickle.loads(pickle.dumps(PayloadDecoder(DecoderPlan(format=format_))))
        decoded = decoder.decode(pa.array([None, *rows, None, rows[0]], pa.binary())[1:])
        assert decoded.values.to_pylist() == [*values, None, values[0]]
        assert decoded.values.type == decoder.arrow_type
        assert decoded.reasons.is_null().to_pylist() == [True, False, True, True]

    def test_bytes(self):
        assert PayloadDecoder(DecoderPlan(format=Format.BYTES)).decode(pa.array([b"x", None])).values.to_pylist() == [
            b"x",
            None,
        ]


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"format": Format.AVRO}, "format avro needs a schema: a subject, an id, a file or text"),
        (
            {"format": Format.AVRO, "reader": CATALOGUE.by_id(5)},
            "schema id 5 is of type JSON: format avro cannot use it",
        ),
        (
            {"format": Format.LONG, "framing": Framing.CONFLUENT},
            "format long has no schema id: its framing must be none",
        ),
        ({"format": Format.LONG, "columns": ("a",)}, "format long has no columns to choose from"),
        ({"format": Format.AVRO, "reader": CATALOGUE.by_id(4)}, "broken"),
        ({"format": Format.AVRO, "reader": ONE, "columns": ("x",)}, "x"),
    ],
)
def test_plans_that_cannot_work(plan, problem):
    with pytest.raises(SchemaError, match=problem):
        PayloadDecoder(DecoderPlan(**plan))


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.txt", b"", r"a schema's file ends in \.avsc"),
        ("none.avsc", None, "No such file"),
        ("a.avsc", b"\xff", "it is not UTF-8"),
        ("a.json", b" " * ((8 << 20) + 1), "it has more than 8,388,608 bytes"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, data, problem):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(SchemaError, match=problem):
        read_schema_file(tmp_path / name)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=10))
def test_columns_of_positions(spans):
    data = np.frombuffer(bytes(range(30)), np.uint8)
    starts = np.array([start for start, _ in spans], np.int64)
    ends = starts + np.array([length for _, length in spans], np.int64)
    assert binary_column(data, starts, ends).to_pylist() == [
        bytes(data[a:b]) for a, b in zip(starts, ends, strict=True)
    ]


class TestDetection:
    @pytest.mark.parametrize(
        ("rows", "format_", "finding"),
        [
            (
                [framed(1, b"\x02"), None, framed(2, b"\x02\x02x")],
                Format.AVRO,
                "avro: all 2 of the sample have Confluent's schema ids (1, 2); columns of subject 't-value' version 2",
            ),
            ([framed(3, b"\x02x")], Format.AVRO, "columns of subject 'other' version 1"),
            ([struct.pack(">bq", 0, 1) + b"\x02"], Format.AVRO, "Apicurio's eight-byte ids (1)"),
            ([b"\x03\x00" + GUID.bytes + b"\x02"], Format.AVRO, f"AWS Glue's header ({GUID})"),
            (
                [b'{"a": 1}', b"[]"],
                Format.JSON,
                "json: all 2 of the sample are JSON; the columns' types were inferred from the sample",
            ),
            ([b'{"op": "c", "after": {}, "source": {}}'], Format.DEBEZIUM, "debezium: all 1"),
            ([b"hello", b"world!"], Format.STRING, "string: all 2 of the sample are text"),
            ([b"v", b"1"], Format.STRING, "string: all 2 of the sample are text"),
        ],
    )
    def test_what_is_certain(self, rows, format_, finding):
        found = detect_format(pa.array(rows, pa.binary()), CATALOGUE)
        assert present(found.plan).format is format_
        assert finding in found.finding
        decoded = PayloadDecoder(present(found.plan)).decode(pa.array(rows, pa.binary()))
        assert decoded.reasons.null_count == len(rows)

    @pytest.mark.parametrize(
        ("rows", "finding"),
        [
            ([None], "the sample has no values: name the format"),
            (
                [framed(9, b"\x02")],
                "they fit Confluent's schema ids (9), which the catalogue does not have all of; if one schema wrote "
                "them all, give value.schema=any:FILE. Name it",
            ),
            ([framed(1, b"\x02"), framed(1, b"\x02\x00")], "but 1 of 2 do not decode: damaged Avro at byte 1"),
            ([framed(1, b"\x02"), framed(3, b"\x02x")], "but 1 of 2 do not decode: schema"),
            ([framed(1, b"\x02"), framed(5, b"{}")], "ids of several types: AVRO, JSON"),
            ([framed(1, b"\x02"), b"{}"], "is not certain: 1 of 2 are JSON objects or arrays. Name it"),
            ([b"12345678", b"abcdefgh"], "all have 8 bytes, as longs, doubles or text would. Name it"),
            ([b"\x00\x01", b"\xff\xff"], "all have 2 bytes, as shorts would"),
            ([b"\x00", b"\x01"], "all have 1 byte, as booleans would"),
            ([b"\x80abc", b"\x01"], "the format of the values is not certain. Name it"),
            ([b"{}", b"{"], "is not certain: 1 of 2 are JSON objects or arrays. Name it"),
        ],
    )
    def test_what_is_not_is_never_guessed(self, rows, finding):
        found = detect_format(pa.array(rows, pa.binary()), CATALOGUE)
        assert finding in found.finding
        assert found.plan is None

    @pytest.mark.parametrize(
        ("known", "rows", "finding"),
        [
            (
                Format.AVRO,
                [b"garbage", framed(1, b"\x02"), framed(9, b"\x02"), framed(5, b"{}"), framed(1, b"")],
                "avro: 1 of 5 of the sample have Confluent's schema ids (1); columns of subject 't-value' version 2; "
                "the others do not decode: ",
            ),
            (
                Format.JSON,
                [b'{"a": 1}', b"{"],
                "json: 1 of 2 of the sample are JSON; the columns'",
            ),
            (Format.JSON, [b"5"], "json: all 1 of the sample are JSON"),
            (Format.DEBEZIUM, [b'{"op": "c", "after": {}, "source": {}}', b"x"], "debezium: 1 of 2 of the sample are "),
        ],
    )
    def test_a_format_that_is_named_needs_no_certainty(self, known, rows, finding):
        found = detect_format(pa.array(rows, pa.binary()), CATALOGUE, known=known)
        assert found.finding.startswith(finding)
        assert present(found.plan).format is known
        assert PayloadDecoder(present(found.plan)).decode(pa.array(rows)).values.null_count < len(rows)

    def test_json_with_a_schema_of_the_users(self):
        reader = RegisteredSchema(type=SchemaType.JSON, text='{"properties": {"a": {"type": "integer"}}}')
        found = detect_format(pa.array([b'{"a": 1}']), CATALOGUE, known=Format.JSON, reader=reader)
        assert found.finding == "json: all 1 of the sample are JSON; columns of the given schema"

    def test_events_in_avro(self):
        fields = [{"name": name, "type": ["null", "string"]} for name in ("before", "after", "op")]
        event = avro({"type": "record", "name": "Envelope", "fields": fields}, 9)
        rows = pa.array([framed(9, b"\x00\x02\x02x\x02\x02c"), b"x"])
        found = detect_format(rows, SchemaCatalogue((), [event]), known=Format.DEBEZIUM)
        assert present(found.plan).format is Format.AVRO
        plain = detect_format(pa.array([framed(1, b"\x02")]), CATALOGUE, known=Format.DEBEZIUM)
        assert plain.plan is None

    @pytest.mark.parametrize(
        ("known", "finding"),
        [
            (Format.AVRO, "no value of the sample is avro with a schema that is known"),
            (Format.PROTOBUF, "no value of the sample is protobuf with a schema that is known"),
            (Format.JSON, "no payload of the sample is JSON: damaged JSON at byte 0"),
        ],
    )
    def test_a_format_that_is_named_and_not_there(self, known, finding):
        found = detect_format(pa.array([b"x"]), CATALOGUE, known=known)
        assert found.plan is None
        assert finding in found.finding


EVERYTHING = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "union", "type": ["null", "string", "long"]},
        {"name": "array", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
JSON_SCHEMA = {"properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "number"}}, "c": {}}}
CONNECT_TYPES = ("map", "int8", "double", "bytes", "string", "struct", "")
CONNECT_SAMPLE = pa.array([b'{"schema": {"type": "map", "keys": {"type": "int8"}, "values": {}}, "payload": []}'])
FUZZED = {
    "avro": PayloadDecoder(DecoderPlan(format=Format.AVRO, reader=avro(EVERYTHING, None))),
    "confluent": DECODERS[0],
    "json": PayloadDecoder(
        DecoderPlan(format=Format.JSON, reader=RegisteredSchema(type=SchemaType.JSON, text=json.dumps(JSON_SCHEMA)))
    ),
    "connect": PayloadDecoder(DecoderPlan(format=Format.CONNECT, json_type=infer_connect_type(CONNECT_SAMPLE))),
    **{name: PayloadDecoder(DecoderPlan(format=Format(name))) for name in ("string", "uuid", "long", "boolean")},
}


@pytest.mark.parametrize("name", sorted(FUZZED))
@given(
    st.lists(
        st.none()
        | st.binary(max_size=30)
        | st.builds(framed, st.integers(0, 5), st.binary(max_size=20))
        | st.text('{}[]":,abc01.-e\\u', max_size=20).map(str.encode)
        | st.sampled_from(CONNECT_TYPES).flatmap(
            lambda type_: st.text('{}[]":,a01.-', max_size=9).map(
                lambda text: f'{{"schema":{{"type":"{type_}","keys":{{"type":"int8"}}}},"payload":{text}}}'.encode()
            )
        ),
        max_size=6,
    )
)
def test_no_bytes_make_a_decoder_fail(name, rows):
    decoder = FUZZED[name]
    decoded = decoder.decode(pa.array(rows, pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.values.type == decoder.arrow_type
    assert len(decoded.values) == len(decoded.reasons) == len(rows)
    for row, payload in enumerate(rows):
        if decoded.reasons[row].is_valid:
            assert not decoded.values[row].is_valid
        if payload is None:
            assert not decoded.reasons[row].is_valid
            assert not decoded.values[row].is_valid
        # Alone, a payload is what it is among others.
        assert decoder.decode(pa.array([payload], pa.binary())).reasons[0] == decoded.reasons[row]
