"""Prefixes and headers of whole columns, against a twin that reads one payload after the other."""

from __future__ import annotations

import struct
import zlib
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.columnar.schema import HEADER_TYPE
from duralog.errors import SchemaError
from duralog.schemas import wire_formats
from duralog.schemas.frames import FrameFault, MessagePlace
from duralog.schemas.message_places import MAX_INDEXES, MAX_REF_BYTES
from duralog.schemas.wire_formats import VALUE_HEADER, Framing, headers_named, split_frames
from tests.support.schemas.presence import present

HEADERS = pa.list_(pa.field("item", HEADER_TYPE))
GUID = UUID("8a3a5ad7-6f9e-4a4c-9d1c-1b1b1b1b1b1b")

# What the twin returns of a payload: fault, id, message type, the rest.
Twin = tuple[FrameFault, int | UUID | None, MessagePlace | None, bytes]


def twin(payload: bytes, framing: Framing, header: bytes | None, *, messages: bool) -> Twin:
    if framing is Framing.NONE:
        return FrameFault.NONE, None, None, payload
    if framing in (Framing.APICURIO, Framing.APICURIO3):
        found = with_id(payload, ">xq" if framing is Framing.APICURIO else ">xI")
        return with_name(found) if messages else found
    if framing is Framing.GLUE:
        found = glue(payload)
        return with_number(found) if messages else found
    if header is None:
        fault, id_, _, rest = with_id(payload, ">xI")
        return with_indexes(id_, rest, None) if messages and not fault else (fault, id_, None, rest)
    if header[:1] == b"\x01" and len(header) >= 17:
        id_, rest = UUID(bytes=header[1:17]), header[17:]
    elif header[:1] == b"\x00" and len(header) >= 5:
        id_, rest = struct.unpack(">xI", header[:5])[0], header[5:]
    else:
        return FrameFault.HEADER, None, None, b""
    return with_indexes(id_, rest, payload) if messages else (FrameFault.NONE, id_, None, payload)


def with_id(payload: bytes, form: str) -> Twin:
    size = struct.calcsize(form)
    if len(payload) < size:
        return FrameFault.SHORT, None, None, b""
    if payload[0] != 0:
        return FrameFault.MAGIC, None, None, b""
    return FrameFault.NONE, struct.unpack(form, payload[:size])[0], None, payload[size:]


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The number and where it ends; raises `IndexError`."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise IndexError


def with_name(found: Twin) -> Twin:
    fault, id_, _, data = found
    if fault:
        return found
    try:
        size, position = varint(data, 0)
        ref = data[position : position + size]
        length, start = varint(ref, 1)
        whole = 0 < size == len(ref) <= MAX_REF_BYTES and ref[0] == 10 and 0 < length == size - start
        # No varint is longer than it has to be.
        if whole and start == 2 + (length >= 128):
            return FrameFault.NONE, id_, ref[start:].decode(), data[position + size :]
    except (IndexError, UnicodeDecodeError):
        pass
    return FrameFault.REF, id_, None, b""


def with_number(found: Twin) -> Twin:
    fault, id_, _, data = found
    if fault:
        return found
    try:
        number, position = varint(data, 0)
    except IndexError:
        return FrameFault.INDEXES, id_, None, b""
    if number >= 2**31:
        return FrameFault.INDEXES, id_, None, b""
    return FrameFault.NONE, id_, number, data[position:]


def with_indexes(id_: int | UUID | None, data: bytes, payload: bytes | None) -> Twin:
    bad = (FrameFault.INDEXES, id_, None, b"")
    position = 0

    def number() -> int:
        nonlocal position
        value, position = varint(data, position)
        return (value >> 1) ^ -(value & 1)

    try:
        count = number()
        if not 0 <= count <= MAX_INDEXES:
            return bad
        path = tuple(number() for _ in range(count)) or (0,)
    except IndexError:
        return bad
    if min(path) < 0:
        return bad
    return FrameFault.NONE, id_, path, data[position:] if payload is None else payload


def glue(payload: bytes) -> Twin:
    if len(payload) < 18:
        return FrameFault.SHORT, None, None, b""
    if payload[0] != 3:
        return FrameFault.MAGIC, None, None, b""
    if payload[1] not in (0, 5):
        return FrameFault.COMPRESSION, None, None, b""
    id_, rest = UUID(bytes=payload[2:18]), payload[18:]
    if payload[1] == 5:
        inflater = zlib.decompressobj()
        try:
            found = inflater.decompress(rest)
        except zlib.error:
            return FrameFault.INFLATE, id_, None, b""
        if not inflater.eof or inflater.unused_data:
            return FrameFault.INFLATE, id_, None, b""
        rest = found
    return FrameFault.NONE, id_, None, rest


def split(payloads: pa.Array, framing: Framing, headers: pa.Array | None, *, messages: bool) -> list[Twin | None]:
    frames = split_frames(payloads, framing, headers, messages=messages)
    found: list[Twin | None] = []
    for row in range(len(frames)):
        if not frames.valid[row]:
            found.append(None)
            continue
        fault = FrameFault(frames.faults[row])
        id_ = None if frames.schemas[row] < 0 else frames.ids[frames.schemas[row]]
        place = None if fault or frames.messages[row] < 0 else frames.places[frames.messages[row]]
        rest = b"" if fault else frames.data[frames.starts[row] : frames.ends[row]].tobytes()
        found.append((fault, id_, place, rest))
    return found


ids = st.sampled_from([0, 1, 7, 2**31 - 1, 2**32 - 1])
paths = st.sampled_from(
    [
        b"\x00",
        b"\x02\x00",
        b"\x02\x02",
        b"\x04\x02\x04",
        b"\x80\x01",
        b"\x03",
        b"\x02\x01",
        b"\x22" + b"\x00" * 17,
        b"\xfe\xff\xff\xff\xff\x01",
    ]
)
tails = st.one_of(st.binary(max_size=6), st.sampled_from([b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"]))
confluent = st.builds(lambda id_, path, tail: struct.pack(">xI", id_) + path + tail, ids, paths, tails)
refs = st.builds(
    lambda name, size, tag, length: bytes([len(name) + size, tag, len(name) + length]) + name,
    st.sampled_from([b"Order", b"Other", b"\xff", b"", b"x" * 90]),
    st.sampled_from([2, 2, 2, 1, 3]),
    st.sampled_from([10, 10, 10, 18]),
    st.sampled_from([0, 0, 0, 1]),
)
long_refs = st.sampled_from(
    [
        b"\x83\x01\x0a\x80\x01" + b"y" * 128,
        b"\x82\x01\x0a\xff\x00" + b"y" * 127,
        b"\x80\x02\x0a\xfd\x01" + b"y" * 253,
        b"\x81\x02\x0a\xfe\x01" + b"y" * 254,
        b"\x82\x81\x00\x0a\x80" + b"y" * 127,
    ]
)
named = st.one_of(st.just(b""), refs, long_refs)
apicurio = st.builds(lambda id_, name, tail: struct.pack(">xq", id_) + name + tail, ids, named, tails)
apicurio3 = st.builds(lambda id_, name, tail: struct.pack(">xI", id_) + name + tail, ids, named, tails)
glues = st.builds(
    lambda version, compression, guid, tail, cut: (
        bytes([version, compression]) + guid + (zlib.compress(tail)[: 40 - cut] if compression == 5 else tail)
    ),
    st.sampled_from([3, 3, 3, 4]),
    st.sampled_from([0, 5, 5, 1]),
    st.sampled_from([GUID.bytes, bytes(16)]),
    tails,
    st.sampled_from([0, 0, 33]),
)
payloads = st.one_of(st.none(), confluent, apicurio, apicurio3, glues, st.binary(max_size=24))
guid_headers = st.builds(lambda path: b"\x01" + GUID.bytes + path, paths)
id_headers = st.builds(lambda id_, path: struct.pack(">xI", id_) + path, ids, paths)
header_lists = st.one_of(
    st.none(),
    st.lists(
        st.tuples(
            st.sampled_from([VALUE_HEADER, "other", "__key_schema_id"]),
            st.one_of(st.none(), guid_headers, id_headers, st.binary(max_size=20)),
        ),
        max_size=3,
    ),
)


@given(
    st.lists(st.tuples(payloads, header_lists), max_size=8),
    st.sampled_from(list(Framing)),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)
def test_whole_columns_are_split_as_single_payloads_are(rows, framing, messages, use_headers, skipped):
    column = pa.array([b"skipped"] * skipped + [payload for payload, _ in rows], pa.binary())[skipped:]
    lists = [None if each is None else [{"key": key, "value": value} for key, value in each] for _, each in rows]
    headers = pa.array([[{"key": VALUE_HEADER, "value": b""}]] * skipped + lists, HEADERS)[skipped:]
    expected = []
    for payload, each in rows:
        named = [value for key, value in each or () if key == VALUE_HEADER] if use_headers else []
        header = named[-1] if named else None
        expected.append(None if payload is None else twin(payload, framing, header, messages=messages))
    found = split(column, framing, headers if use_headers else None, messages=messages)
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None or not one[0]:
            assert one == other
        else:
            assert one[0] == other[0]


@pytest.mark.parametrize(
    "type_",
    [
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.binary()),
    ],
)
def test_every_kind_of_column(type_):
    plain = pa.array([b"\0\0\0\0\x07abc", None], pa.binary())
    column = plain.dictionary_encode() if pa.types.is_dictionary(type_) else plain.cast(type_)
    assert split(column, Framing.CONFLUENT, None, messages=False) == [(0, 7, None, b"abc"), None]
    assert split(pa.array([], type_), Framing.CONFLUENT, None, messages=True) == []


def test_the_last_header_of_a_name_counts():
    headers = pa.array([[("a", b"1"), ("b", b"2"), ("a", b"3")], [], None, [("b", b"4")]], HEADERS)
    assert headers_named(headers, "a").to_pylist() == [b"3", None, None, None]
    assert headers_named(headers[1:], "b").to_pylist() == [None, None, b"4"]
    assert headers_named(pa.chunked_array([headers, headers[3:]]), "b").to_pylist() == [b"2", None, None, b"4", b"4"]


def test_columns_that_are_too_large(monkeypatch):
    monkeypatch.setattr(wire_formats, "MAX_COLUMN_BYTES", 100)
    with pytest.raises(SchemaError, match="decode it in batches of less than 100 bytes"):
        split_frames(pa.chunked_array([[b"x" * 60], [b"x" * 60]]), Framing.NONE)


def test_bombs_in_glues_payloads(monkeypatch):
    monkeypatch.setattr(wire_formats, "MAX_INFLATED_BYTES", 1_000)
    monkeypatch.setattr(wire_formats, "MAX_INFLATED_COLUMN_BYTES", 1_500)
    rows = [bytes([3, 5]) + GUID.bytes + zlib.compress(bytes(size)) for size in (1_000, 1_001, 500, 1)]
    found = split(pa.array(rows), Framing.GLUE, None, messages=False)
    assert [present(each)[0] for each in found] == [
        FrameFault.NONE,
        FrameFault.INFLATE,
        FrameFault.NONE,
        FrameFault.INFLATE,
    ]
