from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.internal.message_schema import (
    ArrayOf,
    Field,
    Message,
    Struct,
    decode_message,
    describe,
    encode_message,
)
from duralog.format.uuids import ZERO_UUID

MESSAGE = Message(
    "Example",
    (
        Field("name", "string"),
        Field("note", "string", nullable=True),
        Field("added", "int32", since=1, default=-1),
        Field("removed", "int16", until=1, default=7),
        Field("blob", "bytes"),
        Field("parts", ArrayOf(Struct((Field("id", "int32"), Field("tags", ArrayOf("string")))))),
        Field("place", Struct((Field("port", "uint16"),)), since=2, nullable=True, default=None),
        Field("late", "int64", since=2, tag=1, default=5),
        Field("inner", Struct((Field("on", "boolean"),)), since=2, tag=0, nullable=True, default=None),
    ),
    last_version=2,
    flexible_since=2,
)
COMMON = {"name": "ab", "note": None, "blob": b"\x01\x02", "parts": [{"id": 3, "tags": ["x", ""]}]}
V0 = {**COMMON, "removed": 9}
V2 = {**COMMON, "added": 4, "place": None, "late": 5, "inner": None}

V0_BYTES = bytes.fromhex("0002 6162 ffff 0009 00000002 0102 00000001 00000003 00000002 0001 78 0000")
V2_BYTES = bytes.fromhex("03 6162 00 00000004 03 0102 02 00000003 03 02 78 01 00 ff 00")


def test_a_version_that_is_not_flexible():
    assert encode_message(MESSAGE, 0, V0) == V0_BYTES
    assert decode_message(MESSAGE, 0, V0_BYTES) == V0


def test_a_flexible_version():
    assert encode_message(MESSAGE, 2, V2) == V2_BYTES
    assert decode_message(MESSAGE, 2, V2_BYTES) == V2


def test_nullable_structs_and_tagged_fields():
    fields = {**V2, "place": {"port": 65535}, "late": 6, "inner": {"on": True}}
    # A struct that is there is announced by a byte 1, in a tagged field by a varint 1.
    expected = V2_BYTES[:-2] + bytes.fromhex("01 ffff 00 02 00 03 01 01 00 01 08 0000000000000006")
    assert encode_message(MESSAGE, 2, fields) == expected
    assert decode_message(MESSAGE, 2, expected) == fields


def test_a_message_may_start_behind_a_prefix():
    assert decode_message(MESSAGE, 0, b"\xff\xff" + V0_BYTES, 2) == V0


def test_unknown_tags_are_kept_and_written_again_in_order():
    encoded = V2_BYTES[:-1] + bytes.fromhex("03 01 08 0000000000000006 02 01 aa 09 00")
    decoded = decode_message(MESSAGE, 2, encoded)
    assert decoded == {**V2, "late": 6, "unknown_tags": {2: b"\xaa", 9: b""}}
    assert encode_message(MESSAGE, 2, decoded) == encoded


def test_fields_with_a_default_may_be_left_out():
    assert encode_message(MESSAGE, 0, COMMON) == encode_message(MESSAGE, 0, {**COMMON, "removed": 7})
    assert decode_message(MESSAGE, 2, encode_message(MESSAGE, 2, COMMON))["added"] == -1


def test_a_default_is_not_shared():
    message = Message("Lists", (Field("ids", ArrayOf("int32"), tag=0, default=[]),))
    decode_message(message, 0, b"\0")["ids"].append(1)
    assert decode_message(message, 0, b"\0") == {"ids": []}


@pytest.mark.parametrize(
    ("version", "fields", "message"),
    [
        (0, {"name": "ab"}, "v0 needs the field note"),
        (0, {**V0, "added": 1}, "v0 has no field added"),
        (2, {**V2, "removed": 1}, "v2 has no field removed"),
        (0, {**V0, "unknown_tags": {}}, "v0 has no field unknown_tags"),
        (3, V2, "versions 0 to 2, not 3"),
        (0, {**V0, "name": None}, "name may not be null"),
        (0, {**V0, "name": 5}, "name cannot hold 5"),
        (0, {**V0, "name": "x" * 32768}, "32767 bytes"),
        (0, {**V0, "blob": "text"}, "blob cannot hold 'text'"),
        (0, {**V0, "blob": 5}, "blob cannot hold 5"),
        (0, {**V0, "removed": 32768}, "removed cannot hold 32768"),
        (0, {**V0, "removed": "1"}, "removed cannot hold '1'"),
        (0, {**V0, "parts": [{"id": 1}]}, "needs the field tags"),
        (0, {**V0, "parts": [None]}, "parts may not be null"),
        (0, {**V0, "parts": [5]}, "not a mapping"),
        (0, {**V0, "parts": [{"id": 1, "tags": [None]}]}, "tags may not be null"),
    ],
)
def test_what_cannot_be_encoded_is_refused(version, fields, message):
    with pytest.raises(InvalidRecord, match=message):
        encode_message(MESSAGE, version, fields)


@pytest.mark.parametrize(
    ("version", "encoded", "fault", "position"),
    [
        (0, "", Fault.FIELD_LENGTH, 0),
        (0, "ffff", Fault.FIELD_LENGTH, 0),
        (0, "0003 6162", Fault.FIELD_LENGTH, 0),
        (0, "0000 0000 0009 ffffffff", Fault.FIELD_LENGTH, 6),
        (0, "0000 0000 0009 00000000 7fffffff", Fault.RECORD_COUNT, 10),
        (0, "0000 0000 0009 00000000 ffffffff", Fault.RECORD_COUNT, 10),
        (0, V0_BYTES.hex() + "00", Fault.TRAILING_BYTES, len(V0_BYTES)),
        (2, "00", Fault.FIELD_LENGTH, 0),
        (2, "ffffffffff01", Fault.VARINT, 0),
        (2, "ffffffff0f", Fault.FIELD_LENGTH, 0),
        (2, V2_BYTES[:-1].hex() + "ffffffff0f", Fault.VARINT, len(V2_BYTES) + 4),
        (2, V2_BYTES[:-1].hex() + "01 05 02 00", Fault.FIELD_LENGTH, len(V2_BYTES) + 2),
        (2, V2_BYTES[:-1].hex() + "01 01 09 000000000000000000", Fault.FIELD_LENGTH, len(V2_BYTES) + 1),
        (2, V2_BYTES[:-1].hex() + "01 01 07 00000000000000 00", Fault.FIELD_LENGTH, len(V2_BYTES) + 1),
    ],
)
def test_damage_is_refused_at_its_position(version, encoded, fault, position):
    with pytest.raises(CorruptRecord) as caught:
        decode_message(MESSAGE, version, bytes.fromhex(encoded))
    assert (caught.value.fault, caught.value.position) == (fault, position)


@given(st.integers(0, 2), st.binary(max_size=80))
def test_random_bytes_are_decoded_or_refused(version, data):
    try:
        decoded = decode_message(MESSAGE, version, data)
    except CorruptRecord as error:
        refused_at = error.position
    else:
        refused_at = 0
        assert decode_message(MESSAGE, version, encode_message(MESSAGE, version, decoded)) == decoded
    assert refused_at is not None
    assert 0 <= refused_at <= len(data)


def test_text_that_is_no_utf8_is_read_as_kafka_reads_it():
    message = Message("Text", (Field("text", "string"),))
    assert decode_message(message, 0, b"\x03\xff\x61\x00") == {"text": "�a"}


def test_numbers_ids_and_truth_values():
    message = Message("Scalars", (Field("f", "float64"), Field("u", "uuid"), Field("b", "boolean"), Field("i", "int8")))
    encoded = encode_message(message, 0, {"f": -1.5, "u": ZERO_UUID, "b": True, "i": -1})
    assert encoded == bytes.fromhex("bff8000000000000") + bytes(16) + b"\x01\xff\x00"
    assert decode_message(message, 0, encoded) == {"f": -1.5, "u": ZERO_UUID, "b": True, "i": -1}


def test_a_version_can_be_described():
    assert describe(MESSAGE, 0) == (
        "name string, note nullable_string, removed int16, blob bytes, parts array<{id int32, tags array<string>}>"
    )
    assert describe(MESSAGE, 2) == (
        "name compact_string, note compact_nullable_string, added int32, blob compact_bytes, "
        "parts compact_array<{id int32, tags compact_array<compact_string>, TAGS[]}>, place {port uint16, TAGS[]}, "
        "TAGS[0:inner {on boolean, TAGS[]}, 1:late int64]"
    )
