"""Kernels and reference are twins: of any bytes they make the same batches, the same records and the same errors.

Whole logs of all formats and codecs are made, then damaged: behind the checksum, in front of it, and inside what was
compressed, so that every check is reached. The compared errors are whole: fault, position, reason, expected, found.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.columnar.key_reading import read_keys
from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.columnar.refusals import batch_of
from duralog.columnar.schema import RECORD_SCHEMA
from duralog.errors import CorruptRecord, Fault
from duralog.format import batches, message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.checksum import crc32, crc32c
from duralog.format.compression import Codec, compress
from duralog.format.layout import BATCH_V2, ENTRY_PREFIX, MESSAGE_V0
from duralog.format.record import Record, TimestampType
from duralog.kernels.direct import PADDING

MAX_DECOMPRESSED_BYTES = 1 << 20
FUZZED_LOGS = 1500

Refusal = tuple[Fault, int | None, str, str, str]


@dataclass
class View:
    """Everything that a reader learns from the bytes of a log."""

    batches: list[Batch]
    records: dict[int, list[Record]]
    """By the batch's number. A batch without records is not in it."""
    refusals: dict[int, Refusal]
    stopped_by: Refusal | None
    tail_bytes: int


def refusal(error: CorruptRecord) -> Refusal:
    return error.fault, error.position, error.reason, str(error.expected), str(error.found)


def reference_view(data: bytes) -> View:
    view = View([], {}, {}, None, 0)
    try:
        view.batches.extend(batches.scan(data))
    except CorruptRecord as error:
        # The exception ends the call, not the loop: what was scanned before it is asked for again.
        view.batches = list(until_error(batches.scan(data)))
        view.stopped_by = refusal(error)
    end = view.batches[-1].position + view.batches[-1].size_bytes if view.batches else 0
    view.tail_bytes = len(data) - end
    for number, batch in enumerate(view.batches):
        try:
            records = batches.decode_records(data, batch, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
        except CorruptRecord as error:
            view.refusals[number] = refusal(error)
        else:
            if records:
                view.records[number] = records
    return view


def until_error(scanned: Iterator[Batch]) -> Iterator[Batch]:
    try:
        yield from scanned
    except CorruptRecord:
        return


def kernel_view(data: bytes, *, piece_bytes: int) -> View:
    """Checksums are computed for the batches, and not looked at for the records: the reference decodes those too."""
    view = View([], {}, {}, None, 0)
    for piece in read_pieces(MemorySource(data), piece_bytes=piece_bytes):
        first = len(view.batches)
        view.batches += [batch_of(row, int(row["position"])) for row in piece.batches]
        if piece.fault is not None:
            view.stopped_by = refusal(piece.fault)
        view.tail_bytes = piece.tail_bytes
        piece.batches["crc_ok"] = -1

        def report(error: CorruptRecord, row: int, first: int = first) -> None:
            assert error.file == "memory"
            view.refusals[first + row] = refusal(error)

        for decoded in piece.decode(max_decompressed_bytes=MAX_DECOMPRESSED_BYTES, on_corrupt=report):
            table = decoded.to_arrow()
            table.validate(full=True)
            for row, record in zip(decoded.batch_row.tolist(), as_records(table), strict=True):
                view.records.setdefault(first + row, []).append(record)
        assert_same_in_one_go(piece, view, first)
        padding = np.full(PADDING, 0xFF, np.uint8)
        assert_same_in_one_go(replace(piece, padded=np.concatenate([piece.data, padding])), view, first)
        assert_same_keys(piece, view, first, first_offset=5)
    return view


def assert_same_in_one_go(piece: Piece, view: View, first: int) -> None:
    """Decoded straight into Arrow's buffers, a piece has the same records and refusals, in the same order."""
    refusals: dict[int, Refusal] = {}

    def report(error: CorruptRecord, row: int) -> None:
        refusals[first + row] = refusal(error)

    records: list[Record] = []
    for table in piece.to_arrow(max_decompressed_bytes=MAX_DECOMPRESSED_BYTES, on_corrupt=report):
        table.validate(full=True)
        records += as_records(table)
    due = [record for number, some in view.records.items() if number >= first for record in some]
    refused = {number: found for number, found in view.refusals.items() if number >= first}
    assert records == due
    assert refusals == refused
    # Columns that nobody wants are checked as well, and those of other offsets.
    refusals.clear()
    middle = due[len(due) // 2].offset if due else 0
    found: list[tuple[int, bytes | None]] = []
    for table in piece.to_arrow(
        columns=["offset", "value"],
        offsets=(middle, 2**63 - 1),
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        on_corrupt=report,
    ):
        table.validate(full=True)
        found += zip(table.column("offset").to_pylist(), table.column("value").to_pylist(), strict=True)
    assert found == [(record.offset, record.value) for record in due if middle <= record.offset < 2**63 - 1]
    assert refusals == refused


def assert_same_keys(piece: Piece, view: View, first: int, *, first_offset: int) -> None:
    """Read for its keys only, a piece has the same offsets, keys and refusals."""
    refusals: dict[int, Refusal] = {}

    def report(error: CorruptRecord, row: int) -> None:
        refusals[first + row] = refusal(error)

    keys: list[tuple[int, int, bytes]] = []
    keyless = 0
    max_bytes = MAX_DECOMPRESSED_BYTES
    for keyed in read_keys(piece, first_offset=first_offset, max_decompressed_bytes=max_bytes, on_corrupt=report):
        for number, (offset, digest) in enumerate(zip(keyed.offsets.tolist(), keyed.digests, strict=True)):
            keys.append((first + keyed.row_of(number), offset, digest.tobytes()))
        keyless += keyed.keyless
    due = [
        (number, record)
        for number, some in view.records.items()
        for record in some
        if number >= first and record.offset >= first_offset
    ]
    expected = [(number, r.offset, hashlib.md5(r.key).digest()) for number, r in due if r.key is not None]
    assert keys == expected
    assert keyless == len(due) - len(expected)
    assert refusals == {number: found for number, found in view.refusals.items() if number >= first}


def as_records(table: pa.RecordBatch) -> Iterator[Record]:
    assert table.schema == RECORD_SCHEMA
    timestamps = table.column("timestamp").cast(pa.int64()).to_pylist()
    columns = (table.column(name).to_pylist() for name in ("offset", "timestamp_type", "key", "value", "headers"))
    for timestamp, offset, timestamp_type, key, value, headers in zip(timestamps, *columns, strict=True):
        yield Record(
            offset=offset,
            timestamp_ms=-1 if timestamp is None else timestamp,
            timestamp_type=TimestampType(timestamp_type),
            key=key,
            value=value,
            headers=tuple((header["key"], header["value"]) for header in headers),
        )


def assert_twins(data: bytes, *, piece_bytes: int = 1 << 20) -> View:
    expected = reference_view(data)
    assert kernel_view(data, piece_bytes=piece_bytes) == expected
    return expected


# Logs

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.one_of(st.integers(1_700_000_000_000, 1_700_000_010_000), st.just(-1), st.integers(0, 2**63 - 1))
FIELDS = st.one_of(
    st.none(), st.binary(max_size=20), st.integers(0, 300).map(lambda size: bytes(range(256))[:size] * 2)
)
HEADERS = st.lists(st.tuples(st.text(max_size=6), FIELDS), max_size=3)
CODECS = st.sampled_from(list(Codec))
TIMESTAMP_TYPES = st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])


@st.composite
def v2_batches(draw: st.DrawFn) -> bytes:
    records = draw(st.lists(st.builds(Record, key=FIELDS, value=FIELDS, timestamp_ms=TIMESTAMPS, headers=HEADERS)))
    base_offset = draw(st.integers(0, 2**40))
    spare = draw(st.integers(0, 3))
    return record_batch.encode(
        records,
        base_offset=base_offset,
        last_offset=base_offset + len(records) + spare,
        codec=draw(CODECS),
        timestamp_type=draw(TIMESTAMP_TYPES),
        append_time_ms=draw(st.integers(0, 2**62)),
        leader_epoch=draw(st.integers(-1, 9)),
        producer_id=draw(st.integers(-1, 2**63 - 1)),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.integers(-1, 2**31 - 1)),
        is_transactional=draw(st.booleans()),
        is_control=draw(st.booleans()),
        delete_horizon_ms=draw(st.one_of(st.none(), st.integers(0, 2**62))),
    )


@st.composite
def message_sets(draw: st.DrawFn) -> bytes:
    records = st.lists(st.builds(Record, key=FIELDS, value=FIELDS, timestamp_ms=TIMESTAMPS), min_size=1, max_size=5)
    return message_set.encode(
        draw(records),
        magic=draw(st.sampled_from([0, 1])),
        base_offset=draw(st.integers(0, 2**40)),
        codec=draw(CODECS.filter(lambda codec: codec <= Codec.LZ4)),
        timestamp_type=draw(TIMESTAMP_TYPES),
        append_time_ms=draw(st.integers(0, 2**62)),
    )


LOGS = st.lists(st.one_of(v2_batches(), v2_batches(), message_sets()), min_size=1, max_size=4).map(b"".join)
PIECE_BYTES = st.sampled_from([1, 17, 64, 500, 4 << 20])


@given(LOGS, PIECE_BYTES)
def test_sound_logs(log: bytes, piece_bytes: int) -> None:
    view = assert_twins(log, piece_bytes=piece_bytes)
    assert all(batch.crc_ok for batch in view.batches)
    assert not view.refusals
    assert view.tail_bytes == 0


@given(LOGS, st.data(), PIECE_BYTES)
def test_cut_logs(log: bytes, data: st.DataObject, piece_bytes: int) -> None:
    assert_twins(log[: data.draw(st.integers(0, len(log)))], piece_bytes=piece_bytes)


@given(LOGS, st.randoms(use_true_random=False), PIECE_BYTES)
def test_damaged_logs(log: bytes, chance: random.Random, piece_bytes: int) -> None:
    assert_twins(damaged(log, chance), piece_bytes=piece_bytes)


# Numbers of one, two and three bytes: the kernels read the short ones in another way.

SHORT_AND_LONG = (0, 63, 64, 8191, 8192)


@pytest.mark.parametrize("size", SHORT_AND_LONG)
@pytest.mark.parametrize("other_size", [None, 0, 64])
def test_numbers_of_all_widths(size: int, other_size: int | None) -> None:
    other = None if other_size is None else bytes(other_size)
    records = [
        Record(key=key, value=value, timestamp_ms=1_700_000_000_000 + delta, headers=headers)
        for delta in (0, 63, -64, 64, -65, 8191, 8192, -8193)
        for key, value in ((bytes(size), other), (other, bytes(size)))
        for headers in ((), (("h", b"x"),))
    ]
    view = assert_twins(record_batch.encode(records * 3, base_offset=7))
    assert not view.refusals
    assert [record.value for record in view.records[0]] == [record.value for record in records * 3]


@pytest.mark.parametrize("headers", [(), (("h", None),)])
@pytest.mark.parametrize(("key", "value"), [(None, None), (b"k", bytes(70)), (bytes(70), b"v")])
def test_every_number_damaged(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    """One byte of a record at a time. The next records end the batch, so most numbers still have bytes to reach for."""
    damage = Record(key=key, value=value, timestamp_ms=1_700_000_000_000, headers=headers)
    later = Record(value=bytes(9), timestamp_ms=1_700_000_000_100)
    first = len(record_batch.encode([damage])) - BATCH_V2.size
    whole = record_batch.encode([damage, later, later])
    refused = 0
    for at in (*range(min(first, 14)), *range(max(first - 8, 14), first)):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0x82, 0xFF):
            content = bytearray(whole[BATCH_V2.size :])
            content[at] = byte
            refused += bool(assert_twins(sealed_batch(whole[: BATCH_V2.size], bytes(content), Codec.NONE)).refusals)
    assert refused > 20


# Damage

NUMBERS = [
    *(struct.pack(">i", value) for value in (0, 1, -1, -2, 13, 14, 22, 49, 50, 2**31 - 1, -(2**31), 2**20)),
    *(struct.pack(">q", value) for value in (0, -1, 2**63 - 1, -(2**63), 2**31)),
    *(bytes.fromhex(varint) for varint in ("00", "01", "02", "7f", "8001", "ff7f", "feffffff0f", "ffffffff0f")),
    *(bytes.fromhex(varint) for varint in ("ffffffff7f", "808080808000", "ffffffffffffffffff01", "80" * 11, "ff" * 9)),
]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """One to three small changes: a bit, a number that hurts, a piece gone, a piece twice, a piece of another place."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(6)
        if kind <= 1 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            number = chance.choice(NUMBERS)
            changed[at : at + len(number)] = number
        elif kind == 3:
            del changed[at : at + chance.choice((1, 2, 7, 30))]
        elif kind == 4:
            changed[at:at] = changed[at : at + chance.choice((1, 5, 40))]
        else:
            other = chance.randrange(len(changed) + 1)
            changed[at : at + 20] = changed[other : other + 20]
    return bytes(changed)


def sealed_batch(header: bytes, content: bytes, codec: Codec) -> bytes:
    """A v2 batch of this content, as it is after compression. Length and checksum are right whatever else is not."""
    batch = bytearray(header + content)
    batch[8:12] = struct.pack(">i", len(batch) - ENTRY_PREFIX.size)
    at = BATCH_V2.at
    batch[at.magic] = record_batch.MAGIC
    (attributes,) = struct.unpack_from(">h", batch, at.attributes)
    struct.pack_into(">h", batch, at.attributes, attributes & ~7 | codec)
    struct.pack_into(">I", batch, at.crc, crc32c(memoryview(batch)[at.attributes :]))
    return bytes(batch)


def sealed_messages(content: bytes) -> bytes:
    """The messages with right checksums, as far as they can be followed."""
    messages = bytearray(content)
    position = 0
    while len(messages) - position >= 17:
        (length,) = struct.unpack_from(">i", messages, position + 8)
        end = position + ENTRY_PREFIX.size + length
        if length < 5 or end > len(messages):
            break
        struct.pack_into(">I", messages, position + MESSAGE_V0.at.crc, crc32(memoryview(messages)[position + 16 : end]))
        position = end
    return bytes(messages)


def random_records(chance: random.Random) -> list[Record]:
    def field() -> bytes | None:
        size = chance.choice((-1, 0, 1, 2, 9, 31, 32, 33, 63, 64, 65, 130))
        return None if size < 0 else chance.randbytes(size)

    def headers() -> list[tuple[str, bytes | None]]:
        return [(chance.choice(("", "k", "schlüssel")), field()) for _ in range(chance.choice((0, 0, 1, 3)))]

    return [
        Record(
            key=field(),
            value=field(),
            timestamp_ms=chance.choice((-1, 0, 1_700_000_000_000, 2**63 - 1)),
            headers=headers(),
        )
        for _ in range(chance.randrange(5))
    ]


def damaged_batch(chance: random.Random) -> bytes:
    """A v2 batch, compressed or not, with damage in its records or its header, and a right checksum."""
    records = random_records(chance)
    append_time_ms = chance.choice((None, 5))
    whole = record_batch.encode(
        records,
        last_offset=9,
        timestamp_type=TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME,
        append_time_ms=append_time_ms,
    )
    header, content = whole[: BATCH_V2.size], whole[BATCH_V2.size :]
    if chance.random() < 0.3:
        fields = bytearray(header)
        at = chance.randrange(BATCH_V2.at.attributes, BATCH_V2.size)
        number = chance.choice(NUMBERS)[: BATCH_V2.size - at]
        fields[at : at + len(number)] = number
        header = bytes(fields)
    if chance.random() < 0.8:
        content = damaged(content, chance)
    codec = chance.choice(list(Codec))
    packed = compress(codec, content)
    if codec is not Codec.NONE and chance.random() < 0.1:
        packed = damaged(packed, chance)
    return sealed_batch(header, packed, codec)


def damaged_messages(chance: random.Random) -> bytes:
    """Messages of v0 or v1, plain or wrapped, with damage in them, and right checksums."""
    magic = chance.randrange(2)
    records = [Record(key=r.key, value=r.value, timestamp_ms=max(r.timestamp_ms, 0)) for r in random_records(chance)]
    content = message_set.encode(records or [Record()], magic=magic, base_offset=chance.choice((0, 7)))
    content = damaged(content, chance)
    if chance.random() < 0.9:
        content = sealed_messages(content)
    codec = chance.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    if codec is Codec.NONE:
        return content
    wrapper = bytearray(message_set.encode([Record(value=b"")], magic=magic, base_offset=chance.choice((0, 1, 50))))
    wrapper[MESSAGE_V0.at.attributes] = codec | (8 * chance.randrange(2) if magic else 0)
    value = chance.choice((content, content, content, b""))
    packed = compress(codec, value, magic=magic)
    if chance.random() < 0.1:
        packed = damaged(packed, chance)
    if chance.random() < 0.05:
        wrapper[-4:] = struct.pack(">i", -1)
    else:
        wrapper[-4:] = struct.pack(">i", chance.choice((len(packed), len(packed), len(packed), -1, 3))) + packed
    wrapper[8:12] = struct.pack(">i", len(wrapper) - ENTRY_PREFIX.size)
    return sealed_messages(bytes(wrapper))


@pytest.mark.parametrize("damaged_part", [damaged_batch, damaged_messages])
def test_damage_behind_right_checksums(damaged_part: Callable[[random.Random], bytes], randomised: int) -> None:
    """Every fault that the format knows is met on the way, by both."""
    met: set[Fault] = set()
    for seed in range(FUZZED_LOGS * randomised):
        chance = random.Random(seed)
        log = b"".join(damaged_part(chance) for _ in range(chance.randint(1, 3)))
        view = assert_twins(log, piece_bytes=chance.choice((1, 100, 1 << 20)))
        met.update(fault for fault, *_ in view.refusals.values())
    if damaged_part is damaged_batch:
        expected = {
            *(Fault.RECORD_COUNT, Fault.VARINT, Fault.RECORD_LENGTH, Fault.FIELD_LENGTH, Fault.HEADER_COUNT),
            *(Fault.HEADER_KEY, Fault.RECORD_NOT_CONSUMED, Fault.TRAILING_BYTES, Fault.DECOMPRESSION),
        }
    else:
        expected = {
            *(Fault.DECOMPRESSION, Fault.RECORD_COUNT, Fault.RECORD_LENGTH, Fault.FIELD_LENGTH, Fault.BATCH_LENGTH),
            *(Fault.RECORD_NOT_CONSUMED, Fault.NESTED_COMPRESSION, Fault.INNER_MAGIC, Fault.INNER_OFFSET),
            *(Fault.FIELD_VALUE, Fault.UNKNOWN_MAGIC, Fault.UNKNOWN_CODEC, Fault.CRC_MISMATCH),
        }
    assert expected <= met
