"""Protobuf payloads: written by confluent-kafka and by protobuf itself, of every type, and damaged."""

from __future__ import annotations

import base64
import pickle
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from duralog.errors import SchemaError
from duralog.schemas import (
    DecoderPlan,
    Format,
    Framing,
    PayloadDecoder,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaReference,
    SchemaType,
    SubjectVersion,
    detect_format,
    read_schema_file,
)
from duralog.schemas.column_types import projected, pruned_type
from duralog.schemas.protobuf_files import compile_protobuf, load_files
from tests.support.schemas.presence import present
from tests.support.schemas.registry_records import catalogue_of

pytest.importorskip("ptars", reason="it needs the compiled form of protobuf")
pytest.importorskip("grpc_tools")

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1;
  string note = 2;
  optional int32 count = 3;
  repeated string tags = 4;
  map<string, sint32> sizes = 5;
  Kind kind = 6;
  oneof paid { string card = 7; Customer by = 8; }
  google.protobuf.Timestamp at = 9;
  uint32 small = 10;
  fixed64 large = 11;
  bytes raw = 12;
  double price = 13;
  float weight = 14;
  repeated Customer others = 15;
  bool done = 16;
  repeated sint64 numbers = 17;
  google.protobuf.StringValue wrapped = 18;
  enum Kind { UNKNOWN = 0; NEW = 1; }
  message Customer { int32 id = 1; sfixed32 code = 2; }
}
message Node { Node next = 1; int32 number = 2; }
"""
GROUPS = """
syntax = "proto2";
message A { optional B in = 1; optional int32 x = 2; }
message B { repeated group Some = 1 { optional int32 z = 1; } optional int32 y = 2; }
"""


@pytest.fixture(scope="module")
def shop() -> Any:
    return load_files(compile_protobuf(SHOP, {}))


@pytest.fixture(scope="module")
def order(shop) -> Any:
    return GetMessageClass(shop.message_types_by_name["Order"])


@pytest.fixture(scope="module")
def decoder() -> PayloadDecoder:
    return PayloadDecoder(DecoderPlan(format=Format.PROTOBUF, reader=proto(SHOP)))


def proto(text: str, id_: int | None = None, *references: SchemaReference) -> RegisteredSchema:
    return RegisteredSchema(type=SchemaType.PROTOBUF, text=text, id=id_, references=references)


def random_order(order: Any, chance: random.Random) -> Any:
    message = order()
    if chance.random() < 0.7:
        message.id, message.note = chance.randrange(-(2**63), 2**63), chance.choice(["", "é", "x" * 300])
        message.small, message.large = chance.randrange(2**32), chance.randrange(2**64)
        message.price, message.weight = chance.uniform(-1e9, 1e9), chance.choice([0.5, -2.25])
        message.kind = chance.choice([0, 1, 7])
    if chance.random() < 0.5:
        message.count = chance.choice([0, -1])
        message.tags.extend(["a", ""] * chance.randrange(3))
        message.sizes.update({str(n): -n for n in range(chance.randrange(3))})
        message.numbers.extend(chance.randrange(-(2**63), 2**63) for _ in range(chance.randrange(4)))
        message.done = True
    if chance.random() < 0.5:
        message.by.id = chance.randrange(5)
        message.others.add(id=chance.randrange(5), code=-3)
        message.at.seconds, message.at.nanos = chance.randrange(-(2**35), 2**35), chance.randrange(10**6) * 1000
        message.wrapped.value = chance.choice(["", "w"])
    elif chance.random() < 0.5:
        message.card, message.raw = "c", b"\x00\xff"
    return message


def as_row(message: Any) -> dict[str, Any]:
    """The row that a message should be, by protobuf's own access to it."""
    kinds = {0: "UNKNOWN", 1: "NEW"}
    return {
        "id": message.id,
        "note": message.note,
        "count": message.count if message.HasField("count") else None,
        "tags": list(message.tags),
        "sizes": dict(sorted(message.sizes.items())),
        "kind": kinds.get(message.kind, str(message.kind)),
        "card": message.card if message.HasField("card") else None,
        "by": {"id": message.by.id, "code": message.by.code} if message.HasField("by") else None,
        "at": message.at.ToNanoseconds() // 1000 if message.HasField("at") else None,
        "small": message.small,
        "large": Decimal(message.large),
        "raw": message.raw,
        "price": message.price,
        "weight": message.weight,
        "others": [{"id": each.id, "code": each.code} for each in message.others],
        "done": message.done,
        "numbers": list(message.numbers),
        "wrapped": message.wrapped.value if message.HasField("wrapped") else None,
    }


def as_rows(values: pa.Array) -> list[Any]:
    values.validate(full=True)
    at = values.field("at").cast(pa.int64()).to_pylist()
    # A damaged time may be one that Python cannot show.
    rows = projected(
        values, pruned_type(values.type, [each.name for each in values.type if each.name != "at"])
    ).to_pylist()
    return [
        None if row is None else {**row, "at": when, "sizes": dict(sorted(row["sizes"]))}
        for row, when in zip(rows, at, strict=True)
    ]


def test_random_messages(order, decoder):
    chance = random.Random(5)
    messages = [random_order(order, chance) for _ in range(200)]
    column = pa.array([each.SerializeToString() for each in messages])
    decoded = decoder.decode(column)
    assert decoded.reasons.null_count == 200
    assert decoded.values.type == decoder.arrow_type
    assert as_rows(decoded.values) == [as_row(each) for each in messages]


def test_damaged_messages_are_null_and_their_neighbours_are_not(order, decoder):
    chance = random.Random(6)
    rows: list[bytes] = []
    good: list[dict[str, Any] | None] = []
    for _ in range(300):
        data = bytearray(random_order(order, chance).SerializeToString())
        if data and chance.random() < 0.5:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        rows.append(bytes(data))
        try:
            message = order.FromString(rows[-1])
            message.ClearField("at")
            good.append(as_row(message))
        except DecodeError:
            good.append(None)
    decoded = decoder.decode(pa.array(rows))
    reasons = decoded.reasons.to_pylist()
    found = as_rows(decoded.values)
    assert 10 < sum(reason is not None for reason in reasons) < 200
    for row, expected, reason in zip(found, good, reasons, strict=True):
        assert (row is None) == (reason is not None)
        if expected is None:
            assert reason.startswith("damaged Protobuf payload: ")
        elif row is not None:
            # NaN is not equal to itself, its text is. Not compared: times, oneofs with two members, and entries of maps
            # with unknown fields, which protobuf's parser for Python skips and those for Java and C++ do not.
            compared = expected.keys() - {"at", "card", "by", "sizes"}
            assert {key: repr(row[key]) for key in compared} == {key: repr(expected[key]) for key in compared}


@pytest.mark.parametrize(
    "payload",
    [b"\x00", b"\x08", b"\x12\x05ab", b"\x12\x02\xff\xfe", b'"' + b"\xff" * 9 + b"\x01", b"\xa3\x06" * 5000, b"\x0c"],
)
def test_hostile_payloads(decoder, payload, capfd):
    decoded = decoder.decode(pa.array([b"", payload, b""]))
    capfd.readouterr()
    assert decoded.values.is_null().to_pylist() == [False, True, False]
    assert decoded.reasons[1].as_py().startswith("damaged Protobuf payload: ")


def test_an_entry_of_a_map_without_a_value_has_the_default():
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    message A { map<string, B> m = 1; map<string, google.protobuf.Timestamp> t = 2; } message B { int32 x = 1; }"""
    made = PayloadDecoder(DecoderPlan(format=Format.PROTOBUF, reader=proto(text)))
    found = made.decode(pa.array([b"\x0a\x03\x0a\x01k", b"\x0a", b"\x12\x03\x0a\x01k", b""], pa.binary()))
    assert [reason is None for reason in found.reasons.to_pylist()] == [True, False, True, True]
    rows = found.values.to_pylist()
    assert [rows[0]["m"], rows[1], rows[3]["m"]] == [[("k", {"x": 0})], None, []]
    assert rows[2]["t"][0][1].year == 1970


def test_a_required_field_that_is_missing_is_null() -> None:
    """Beside what ptars does not take: protobuf writes no message without its required fields, unless forced to."""
    text = """syntax = "proto2"; message A { required int32 id = 1; map<string, B> items = 2; } message B {}"""
    decoder = PayloadDecoder(DecoderPlan(format=Format.PROTOBUF, reader=proto(text)))
    decoded = decoder.decode(pa.array([b"\x12\x03\x0a\x01k", b"\x08\x05"]))
    assert decoded.reasons.null_count == 2
    assert decoded.values.to_pylist() == [{"id": None, "items": [("k", {})]}, {"id": 5, "items": []}]


def test_messages_without_fields() -> None:
    decoder = PayloadDecoder(DecoderPlan(format=Format.PROTOBUF, reader=proto('syntax = "proto3"; message A {}')))
    decoded = decoder.decode(pa.array([b"", None, b"\x08", b"\x08\x01"]))
    assert decoded.values.to_pylist() == [{}, None, None, {}]
    assert decoded.reasons.is_valid().to_pylist() == [False, False, True, False]


def test_times_out_of_range(order, decoder):
    rows = [order(), order(), order(), order()]
    for row, seconds in zip(rows, (253_402_300_799, 253_402_300_800, -62_135_596_801, 2**60), strict=True):
        row.at.seconds = seconds
    decoded = decoder.decode(pa.array([each.SerializeToString() for each in rows]))
    reason = "damaged Protobuf payload: a timestamp is not between the years 1 and 9999"
    assert decoded.reasons.to_pylist() == [None, reason, reason, reason]
    assert decoded.values.is_valid().to_pylist() == [True, False, False, False]


def test_readers_of_another_version():
    older, newer = (
        'syntax = "proto3"; message A { int32 x = 1; }',
        'syntax = "proto3"; message A { int32 x = 1; string y = 2; }',
    )
    catalogue = SchemaCatalogue((), [proto(older, 1), proto(newer, 2)])
    rows = pa.array([b"\0\0\0\0\x01\0\x08\x05", b"\0\0\0\0\x02\0\x08\x06\x12\x01z"])
    for reader, expected in ((1, [{"x": 5}, {"x": 6}]), (2, [{"x": 5, "y": ""}, {"x": 6, "y": "z"}])):
        plan = DecoderPlan(
            format=Format.PROTOBUF, framing=Framing.CONFLUENT, reader=catalogue.by_id(reader), catalogue=catalogue
        )
        assert PayloadDecoder(plan).decode(rows).values.to_pylist() == expected


class TestConfluent:
    def test_prefixes_headers_and_nested_types(self, order):
        pytest.importorskip("authlib", reason="confluent-kafka's registry client needs it")
        from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext

        from duralog.columnar.schema import HEADER_TYPE

        client = SchemaRegistryClient.new_client({"url": "mock://"})
        chance = random.Random(7)
        messages = [random_order(order, chance) for _ in range(20)]
        context = SerializationContext("orders", MessageField.VALUE)
        write = ProtobufSerializer(order, client)
        read = ProtobufDeserializer(order, schema_registry_client=client)
        payloads = [write(each, context) for each in messages]
        assert [read(each, context) for each in payloads] == messages
        catalogue = catalogue_of(client)
        found = detect_format(pa.array(payloads), catalogue, topic="orders")
        assert present(found.plan).format is Format.PROTOBUF, found.finding
        decoder = pickle.loads(pickle.dumps(PayloadDecoder(present(found.plan))))
        decoded = decoder.decode(pa.array([*payloads, None]))
        assert as_rows(decoded.values) == [*(as_row(each) for each in messages), None]

        headers: Any = []
        in_headers = ProtobufSerializer(order, client, conf={"schema.id.serializer": header_schema_id_serializer})
        payload = in_headers(messages[0], SerializationContext("orders", MessageField.VALUE, headers))
        column = pa.array([headers, None], pa.list_(pa.field("item", HEADER_TYPE)))
        decoded = decoder.decode(pa.array([payload, payloads[1]]), column)
        assert as_rows(decoded.values) == [as_row(each) for each in messages[:2]]

        customer = order.Customer(id=9)
        nested = ProtobufSerializer(order.Customer, client)(customer, context)
        found = detect_format(pa.array([nested]), catalogue_of(client), topic="orders")
        assert present(found.plan).message == "shop.Order.Customer"
        assert PayloadDecoder(present(found.plan)).decode(pa.array([nested])).values.to_pylist() == [
            {"id": 9, "code": 0}
        ]
        assert decoder.decode(pa.array([nested])).reasons[0].as_py().endswith("is shop.Order.Customer, not shop.Order")

    def test_text_of_a_backup_and_references(self):
        base = 'syntax = "proto3"; package base; import "confluent/meta.proto"; message Money { int64 cents = 1; }'
        text = """syntax = "proto3"; import "base/money.proto"; import "google/type/date.proto";
            message Bill { base.Money sum = 1; google.type.Date day = 2; }"""
        bill = proto(text, 2, SchemaReference("base/money.proto", "money", 1))
        catalogue = SchemaCatalogue(
            [SubjectVersion("money", 1, proto(base, 1)), SubjectVersion("bills-value", 1, bill)]
        )
        plan = DecoderPlan(format=Format.PROTOBUF, framing=Framing.CONFLUENT, reader=bill, catalogue=catalogue)
        payload = b"\0\0\0\0\x02\0" + b"\x0a\x02\x08\x07"
        assert PayloadDecoder(plan).decode(pa.array([payload])).values.to_pylist() == [
            {"sum": {"cents": 7}, "day": None}
        ]

    def test_a_registrys_serialized_form(self, shop):
        file = descriptor_pb2.FileDescriptorProto()
        shop.CopyToProto(file)
        plan = DecoderPlan(format=Format.PROTOBUF, reader=proto(base64.b64encode(file.SerializeToString()).decode()))
        assert PayloadDecoder(plan).decode(pa.array([b"\x08\x05"])).values.field("id").to_pylist() == [5]

    def test_indexes_that_java_counts_without_the_entries_of_maps(self):
        reader = proto(SHOP, 1)
        plan = DecoderPlan(
            format=Format.PROTOBUF,
            framing=Framing.CONFLUENT,
            reader=reader,
            catalogue=SchemaCatalogue((), [reader]),
            message="shop.Order.Customer",
        )
        decoder = PayloadDecoder(plan)
        rows = [
            b"\0\0\0\0\x01" + path + b"\x08\x05"
            for path in (b"\x04\x00\x00", b"\x04\x00\x02", b"\x04\x00\x04", b"\x00")
        ]
        decoded = decoder.decode(pa.array(rows))
        assert decoded.values.is_valid().to_pylist() == [True, True, False, False]
        assert decoded.reasons.to_pylist()[2:] == [
            "schema 1: it has no message type at 0.2",
            "schema 1: the message type is shop.Order, not shop.Order.Customer",
        ]


class TestOtherFramings:
    """What serializers write is in `tests/golden/test_golden_protobuf_framings.py`."""

    @pytest.mark.parametrize(
        ("framing", "prefix", "reason"),
        [
            (
                Framing.GLUE,
                b"\x03\x00" + bytes(16) + b"\x01",
                f"schema {UUID(int=0)}: the message type is shop.Order, ",
            ),
            (
                Framing.GLUE,
                b"\x03\x00" + bytes(16) + b"\x07",
                f"schema {UUID(int=0)}: it has no message type with the ",
            ),
            (Framing.APICURIO, bytes(8) + b"\x01\x0a\x0a\x08Customer", "schema 1: it has no message type 'Customer' "),
            (
                Framing.APICURIO3,
                bytes(4) + b"\x01\x06\x0a\x04Node",
                "schema 1: the message type is shop.Node, not shop.",
            ),
            (Framing.APICURIO3, bytes(4) + b"\x01\x00", "the name of the Protobuf message type before the payload is "),
            (
                Framing.APICURIO3,
                bytes(4) + b"\x01\x09\x0a\x06Order\x08",
                "the name of the Protobuf message type before",
            ),
        ],
    )
    def test_types_that_are_not_the_readers(self, framing: Framing, prefix: bytes, reason: str) -> None:
        reader = replace(proto(SHOP, 1), guid=UUID(int=0))
        plan = DecoderPlan(
            format=Format.PROTOBUF,
            framing=framing,
            reader=reader,
            catalogue=SchemaCatalogue((), [reader]),
            message="shop.Order.Customer",
        )
        decoded = PayloadDecoder(plan).decode(pa.array([prefix + b"\x08\x05", None]))
        assert decoded.values.null_count == 2
        assert decoded.reasons[0].as_py().startswith(reason), decoded.reasons


class TestSchemas:
    def test_a_task_needs_no_compiler(self, monkeypatch):
        reader = proto(SHOP, 1)
        plan = DecoderPlan(
            format=Format.PROTOBUF, framing=Framing.CONFLUENT, reader=reader, catalogue=SchemaCatalogue((), [reader])
        )
        decoder = pickle.loads(pickle.dumps(PayloadDecoder(plan)))
        monkeypatch.setattr("duralog.schemas.protobuf_files._compiled_bytes", None)
        decoded = decoder.decode(pa.array([b"\0\0\0\0\x01\0\x08\x05"]))
        assert decoded.values.field("id").to_pylist() == [5]

    def test_pruned_columns(self, order):
        plan = DecoderPlan(format=Format.PROTOBUF, reader=proto(SHOP), columns=("others.id", "id", "by"))
        decoder = PayloadDecoder(plan)
        message = order(id=4)
        message.others.add(id=1, code=2)
        row = decoder.decode(pa.array([message.SerializeToString(), b"\x08"])).values.to_pylist()
        assert row == [{"id": 4, "by": None, "others": [{"id": 1}]}, None]
        with pytest.raises(SchemaError, match=r"there is no field by.name; there are id, code"):
            PayloadDecoder(DecoderPlan(format=Format.PROTOBUF, reader=proto(SHOP), columns=("by.name",)))

    def test_other_columns_than_groups(self):
        """ptars takes a group for missing."""
        plan = DecoderPlan(format=Format.PROTOBUF, reader=proto(GROUPS), columns=("in.y", "x"))
        payload = b"\x0a\x06\x0b\x08\x05\x0c\x10\x03\x10\x04"
        [row] = PayloadDecoder(plan).decode(pa.array([payload])).values.to_pylist()
        assert row == {"in": {"y": 3}, "x": 4}

    def test_a_message_in_itself_is_bytes(self):
        plan = DecoderPlan(format=Format.PROTOBUF, reader=proto(SHOP), message="shop.Node")
        decoded = PayloadDecoder(plan).decode(pa.array([b"\x0a\x02\x10\x05\x10\x04"]))
        assert decoded.values.to_pylist() == [{"next": b"\x10\x05", "number": 4}]

    @pytest.mark.parametrize(
        ("text", "message", "problem"),
        [
            ("message", None, r"cannot be compiled: schema.proto:1:"),
            ("", None, "it has none"),
            ('syntax = "proto3"; import "gone.proto"; message A {}', None, "gone.proto: File not found"),
            (SHOP, "shop.Nothing", "no message type 'shop.Nothing'; it has shop.Node, shop.Order"),
            ("message A {" * 500 + "}" * 500, None, "cannot be compiled"),
            ('edition = "2023"; message A { int32 x = 1; }', None, "written in an edition: only proto2 and proto3"),
            (GROUPS, None, r"field in\.some is a group"),
        ],
    )
    def test_schemas_that_cannot_be_used(self, text, message, problem):
        with pytest.raises(SchemaError, match=problem):
            PayloadDecoder(DecoderPlan(format=Format.PROTOBUF, reader=proto(text), message=message))

    @pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../b.proto", "a\0b.proto", "x" * 600])
    def test_imports_stay_in_their_folder(self, name):
        catalogue = SchemaCatalogue([SubjectVersion("x", 1, proto('syntax = "proto3";', 1))])
        reader = proto(f'syntax = "proto3"; import "{name}"; message A {{}}', 2, SchemaReference(name, "x", 1))
        with pytest.raises(SchemaError, match="is not the relative name of a file"):
            PayloadDecoder(DecoderPlan(format=Format.PROTOBUF, reader=reader, catalogue=catalogue))

    def test_a_small_file_with_millions_of_fields(self):
        messages = [f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; M{n + 1} c = 3; }}" for n in range(30)]
        text = 'syntax = "proto3"; ' + " ".join(messages) + " message M30 { int32 x = 1; }"
        with pytest.raises(SchemaError, match="message type M0 has more than 20,000 fields"):
            PayloadDecoder(DecoderPlan(format=Format.PROTOBUF, reader=proto(text)))

    def test_files(self, tmp_path):
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "money.proto").write_text('syntax = "proto3"; message Money { int64 cents = 1; }')
        (tmp_path / "bill.proto").write_text('syntax = "proto3"; import "money.proto"; message Bill { Money sum = 1; }')
        reader = read_schema_file(tmp_path / "bill.proto", [tmp_path / "more"])
        payload = pa.array([b"\x0a\x02\x08\x07"])
        plan = DecoderPlan(format=Format.PROTOBUF, reader=reader)
        assert PayloadDecoder(plan).decode(payload).values.to_pylist() == [{"sum": {"cents": 7}}]
        (tmp_path / "bill.desc").write_bytes(base64.b64decode(reader.text.partition(":")[2]))
        assert read_schema_file(tmp_path / "bill.desc") == reader
        with pytest.raises(SchemaError, match=r"bill.proto: the Protobuf schema cannot be compiled: .*money.proto"):
            read_schema_file(tmp_path / "bill.proto")
        (tmp_path / "bad.desc").write_bytes(b"\xff\xff")
        with pytest.raises(SchemaError, match=r"bad.desc: it is not a Protobuf descriptor set"):
            read_schema_file(tmp_path / "bad.desc")
