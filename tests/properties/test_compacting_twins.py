"""A piece compacted by the kernels, and by plain Python: the same bytes, rows, counts and refusals, of any bytes.

The plain twin knows records as the reference decodes them, judges them one by one against a dictionary, and writes
batches field by field. Logs are of all formats and codecs, with odd timestamps, lengths in longer forms than needed,
attributes that mean nothing, and damage behind right and wrong checksums.
"""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from duralog.columnar.compacting import BatchVerdict, CompactedPiece, SurvivalRules, compact_piece
from duralog.columnar.key_reading import read_keys
from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.errors import CorruptRecord, Fault
from duralog.format import batches, message_set
from duralog.format.batch import Batch
from duralog.format.checksum import crc32, crc32c
from duralog.format.compression import Codec, compress, decompress
from duralog.format.layout import BATCH_V2, ENTRY_PREFIX, MESSAGE_V0
from duralog.format.record import Record, TimestampType
from duralog.format.varint import (
    as_int64,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
)
from duralog.kernels.key_digests import digests_of
from duralog.kernels.offset_map import OffsetMap

LOGS = 700
MAX_DECOMPRESSED_BYTES = 1 << 20
ROUND_MS = 1_700_000_000_000
LAST_BYTE_OF_COUNT = BATCH_V2.at.record_count + 3

Field = bytes | None
Refusal = tuple[Fault, int | None, str, str, str]


# The twin


@dataclass
class PlainRecord:
    """A record of any format, with everything that a copy must keep."""

    offset: int
    timestamp_ms: int
    key: Field
    value: Field
    headers: list[tuple[bytes, Field]]


@dataclass
class PlainRules:
    mapped: dict[bytes, int]
    latest_offset: int
    new_horizon_ms: int
    keep_legacy_tombstones: bool
    keep_tombstones: bool


@dataclass
class PlainResult:
    parts: list[bytes] = field(default_factory=list)
    refusals: dict[int, Refusal] = field(default_factory=dict)
    records_read: int = 0
    records_kept: int = 0
    superseded: int = 0
    expired_tombstones: int = 0
    keyless: int = 0
    kept_tombstones: int = 0
    rebuilt_batches: int = 0


def plainly_compacted(log: bytes, verdicts: list[BatchVerdict], rules: PlainRules) -> PlainResult:
    result = PlainResult()
    for row, (batch, verdict) in enumerate(zip(batches.scan(log), verdicts, strict=True)):
        source = log[batch.position : batch.position + batch.size_bytes]
        try:
            part = plainly_compacted_batch(log, batch, verdict, rules, result)
        except CorruptRecord as error:
            result.refusals[row] = refusal(error)
            part = source
        if part is not None:
            result.parts.append(part)
            result.rebuilt_batches += part is not source and part != source
    return result


def plainly_compacted_batch(
    log: bytes, batch: Batch, verdict: BatchVerdict, rules: PlainRules, result: PlainResult
) -> bytes | None:
    source = log[batch.position : batch.position + batch.size_bytes]
    if verdict is BatchVerdict.AS_IS:
        if batch.crc_ok:
            result.records_read += max(batch.record_count, 0)
            result.records_kept += max(batch.record_count, 0)
        return source
    if not batch.crc_ok:
        raise wrong_checksum(source, batch)
    if verdict in (BatchVerdict.DROP, BatchVerdict.EMPTY):
        result.records_read += max(batch.record_count, 0)
        return written_batch(batch, [], None) if verdict is BatchVerdict.EMPTY and batch.magic == 2 else None

    decoded = batches.decode_records(log, batch, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    if batch.magic == 2:
        records = raw_records(log, batch)
    else:
        records = [PlainRecord(r.offset, r.timestamp_ms, r.key, r.value, []) for r in decoded]
        check_offsets(batch, records)
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in records] == [
        (r.offset, r.timestamp_ms, r.key, r.value) for r in decoded
    ]
    keeps_all = verdict in (BatchVerdict.CONTROL, BatchVerdict.CONTROL_EMPTIED)
    kept = [record for record in records if keeps_all or stays(record, batch, rules, result)]
    tombstones = sum(record.value is None for record in kept)
    result.records_read += len(records)
    result.records_kept += len(kept)
    result.kept_tombstones += tombstones

    if not kept:
        if keeps_all:
            return source
        is_header_kept = verdict is BatchVerdict.FILTER_KEEP_EMPTY and batch.magic == 2
        return written_batch(batch, [], None) if is_header_kept else None
    horizon_ms = batch.delete_horizon_ms
    gets_horizon = horizon_ms is None and (tombstones > 0 or verdict is BatchVerdict.CONTROL_EMPTIED)
    if len(kept) == len(records) and not gets_horizon and batch.magic == 2:
        return source
    return written_batch(batch, kept, rules.new_horizon_ms if gets_horizon else horizon_ms)


def stays(record: PlainRecord, batch: Batch, rules: PlainRules, result: PlainResult) -> bool:
    if record.offset > rules.latest_offset:
        return True
    if record.key is None:
        result.keyless += 1
        return False
    if record.offset < rules.mapped.get(record.key, -1):
        result.superseded += 1
        return False
    if batch.magic < 2:
        keeps_tombstones = rules.keep_legacy_tombstones or rules.keep_tombstones
    else:
        expired_ms = -(2**63) if rules.keep_tombstones else ROUND_MS
        keeps_tombstones = batch.delete_horizon_ms is None or batch.delete_horizon_ms > expired_ms
    if record.value is None and not keeps_tombstones:
        result.expired_tombstones += 1
        return False
    return True


def written_batch(batch: Batch, records: list[PlainRecord], horizon_ms: int | None) -> bytes:
    """A v2 batch of these records, with the header of the one that they were in."""
    attributes = batch.attributes & (0x38 if batch.magic == 2 else 0x08 if batch.magic == 1 else 0)
    base_offset, last_offset = batch.base_offset, batch.last_offset
    base_timestamp_ms, max_timestamp_ms = -1, batch.max_timestamp_ms
    content = b""
    if records:
        attributes |= batch.codec_id
        if batch.magic < 2:
            base_offset, last_offset = records[0].offset, records[-1].offset
        base_timestamp_ms = records[0].timestamp_ms
        if horizon_ms is not None and horizon_ms >= 0:
            base_timestamp_ms = horizon_ms
            attributes |= 0x40
        if batch.timestamp_type is not TimestampType.LOG_APPEND_TIME:
            max_timestamp_ms = max(-1, *(record.timestamp_ms for record in records))
        plain = b"".join(written_record(record, base_offset, base_timestamp_ms) for record in records)
        content = compress(Codec(batch.codec_id), plain)
    header = BATCH_V2.pack(
        *(base_offset, BATCH_V2.size - ENTRY_PREFIX.size + len(content), batch.leader_epoch, 2, 0, attributes),
        *(as_int32(last_offset - base_offset), base_timestamp_ms, max_timestamp_ms),
        *(batch.producer_id, batch.producer_epoch, batch.base_sequence, len(records)),
    )
    return sealed_batch(header + content)


def written_record(record: PlainRecord, base_offset: int, base_timestamp_ms: int) -> bytes:
    body = b"\0" + encode_varlong(as_int64(record.timestamp_ms - base_timestamp_ms))
    body += encode_varint(as_int64(record.offset - base_offset))
    body += written_field(record.key) + written_field(record.value) + encode_varint(len(record.headers))
    body += b"".join(written_field(key) + written_field(value) for key, value in record.headers)
    return encode_varint(len(body)) + body


def written_field(data: Field) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def raw_records(log: bytes, batch: Batch) -> list[PlainRecord]:
    """The records of a sound v2 batch, header keys as bytes: they need not be text."""
    content = log[batch.position + BATCH_V2.size : batch.position + batch.size_bytes]
    data = bytes(decompress(Codec(batch.codec_id), content, max_bytes=MAX_DECOMPRESSED_BYTES))
    end, position = len(data), 0
    records = []

    def raw_field() -> Field:
        nonlocal position
        length, position = decode_varint(data, position, end)
        if length < 0:
            return None
        position += length
        return data[position - length : position]

    for _ in range(batch.record_count):
        _, position = decode_varint(data, position, end)
        timestamp_delta, position = decode_varlong(data, position + 1, end)
        offset_delta, position = decode_varint(data, position, end)
        key, value = raw_field(), raw_field()
        header_count, position = decode_varint(data, position, end)
        timestamp_ms = as_int64(batch.base_timestamp_ms + timestamp_delta)
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamp_ms = batch.max_timestamp_ms
        headers = [(raw_field() or b"", raw_field()) for _ in range(header_count)]
        records.append(PlainRecord(as_int64(batch.base_offset + offset_delta), timestamp_ms, key, value, headers))
    return records


def check_offsets(batch: Batch, records: list[PlainRecord]) -> None:
    first = records[0].offset
    deltas = [-1, *(as_int64(record.offset - first) for record in records), 2**31]
    if not all(before < after for before, after in pairwise(deltas)):
        raise CorruptRecord(
            "the offsets inside a compressed message cannot be those of one batch",
            fault=Fault.INNER_OFFSET,
            position=batch.position,
            expected="increasing ones, less than 2^31 apart",
            found="others",
        )


def wrong_checksum(source: bytes, batch: Batch) -> CorruptRecord:
    computed = crc32c(source[BATCH_V2.at.attributes :]) if batch.magic == 2 else crc32(source[MESSAGE_V0.at.magic :])
    return CorruptRecord(
        "wrong checksum",
        fault=Fault.CRC_MISMATCH,
        position=batch.position,
        expected=f"{computed:#010x}",
        found=f"{batch.crc:#010x}",
    )


def as_int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def refusal(error: CorruptRecord) -> Refusal:
    return error.fault, error.position, error.reason, str(error.expected), str(error.found)


# Comparing


def assert_twins(
    piece: Piece, log: bytes, verdicts: list[BatchVerdict], offset_map: OffsetMap, plain: PlainRules, retention_ms: int
) -> PlainResult:
    expected = plainly_compacted(log, verdicts, plain)
    refusals: dict[int, Refusal] = {}

    def report(error: CorruptRecord, row: int) -> None:
        assert error.file == "memory"
        refusals[row] = refusal(error)

    rules = SurvivalRules(
        offset_map=offset_map,
        round_ms=ROUND_MS,
        delete_retention_ms=retention_ms,
        keep_legacy_tombstones=plain.keep_legacy_tombstones,
        keep_tombstones=plain.keep_tombstones,
    )
    assert plain.new_horizon_ms == rules.new_horizon_ms
    found = compact_piece(
        piece,
        np.array(verdicts, np.int8),
        rules,
        on_corrupt=report,
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
    )
    assert b"".join(found.buffers) == b"".join(expected.parts)
    assert refusals == expected.refusals
    for name in ("records_read", "records_kept", "superseded", "expired_tombstones", "keyless", "kept_tombstones"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.rebuilt_batches >= expected.rebuilt_batches
    assert_rows_of_a_scan(found)
    return expected


def assert_rows_of_a_scan(found: CompactedPiece) -> None:
    data = b"".join(found.buffers)
    assert found.size_bytes == len(data)
    scanned = [piece.batches for piece in read_pieces(MemorySource(data), piece_bytes=1 << 30)]
    assert found.batches.tolist() == [row for rows in scanned for row in rows.tolist()]


# Logs

KEYS = [None, b"", b"a", b"b", b"c" * 40, b"d" * 70, b"e", b"f"]
TIMESTAMPS = (-1, 0, 1, ROUND_MS - 5, ROUND_MS, ROUND_MS + 1, 2**62, -(2**62), 2**63 - 1, -(2**63), -2, 63, 64)


def random_batch(chance: random.Random, base_offset: int) -> tuple[bytes, int]:
    """A sound v2 batch in a form that Kafka can read, if not one that it would write; and the offset after it."""
    count = chance.choice((0, 1, 1, 2, 3, 5, 9))
    content = b""
    delta = chance.choice((0, 0, 0, 2))
    for _ in range(count):
        content += odd_record(chance, delta)
        delta += chance.choice((1, 1, 1, 2, 70))
    codec = chance.choice((Codec.NONE, Codec.NONE, Codec.NONE, *Codec))
    attributes = codec | chance.choice((0, 0, 8)) | chance.choice((0, 16, 32, 48)) | chance.choice((0, 0, 64))
    attributes |= chance.choice((0, 0, 0, 0x80, 0x4000, -0x8000))
    packed = compress(codec, content)
    last_delta = max(delta - 1, 0) + chance.choice((0, 0, 3))
    header = BATCH_V2.pack(
        *(base_offset, BATCH_V2.size - ENTRY_PREFIX.size + len(packed), chance.choice((-1, 7)), 2, 0, attributes),
        *(last_delta, chance.choice(TIMESTAMPS), chance.choice(TIMESTAMPS)),
        *(chance.choice((-1, 5)), chance.choice((-1, 3)), chance.choice((-1, 0, 2**31 - 1)), count),
    )
    return sealed_batch(header + packed), base_offset + last_delta + 1


def odd_record(chance: random.Random, offset_delta: int) -> bytes:
    def number(value: int) -> bytes:
        """In its shortest form or, at times, in a longer one."""
        form = encode_varint(value)
        if chance.random() < 0.05 and len(form) < 5:
            zeros = chance.randint(1, 5 - len(form))
            form = form[:-1] + bytes([form[-1] | 0x80]) + b"\x80" * (zeros - 1) + b"\x00"
            if zeros + len(encode_varint(value)) == 5 and chance.random() < 0.5:
                form = form[:-1] + bytes([chance.choice((0x10, 0x70))])  # bits that nobody reads
        return form

    def content(data: Field) -> bytes:
        if data is None:
            return number(chance.choice((-1, -1, -1, -2, -300)))
        return number(len(data)) + data

    timestamp_delta = chance.choice((0, 0, 1, -1, 64, 10_000, as_int64(chance.choice(TIMESTAMPS) - ROUND_MS)))
    headers = b""
    header_count = chance.choice((0, 0, 0, 0, 1, 3))
    for _ in range(header_count):
        headers += content(chance.choice((b"", b"h", b"\xff\xfe", b"name" * 20)))
        headers += content(chance.choice((None, b"", b"value", b"v" * 100)))
    value = None if chance.random() < 0.25 else chance.randbytes(chance.choice((0, 1, 31, 32, 60, 70, 140)))
    body = bytes([chance.choice((0, 0, 0, 255))]) + encode_varlong(timestamp_delta) + number(offset_delta)
    body += content(chance.choice(KEYS)) + content(value) + number(header_count) + headers
    return number(len(body)) + body


def random_messages(chance: random.Random, base_offset: int) -> tuple[bytes, int]:
    """Sound messages of format v0 or v1, plain or in one compressed message."""
    magic = chance.randrange(2)
    records = []
    offset = base_offset
    for _ in range(chance.choice((1, 2, 4))):
        value = None if chance.random() < 0.25 else chance.randbytes(chance.choice((0, 1, 40, 90)))
        timestamp_ms = chance.choice([t for t in TIMESTAMPS if t >= -1])
        records.append(Record(key=chance.choice(KEYS), value=value, timestamp_ms=timestamp_ms, offset=offset))
        offset += chance.choice((1, 1, 3))
    data = message_set.encode(
        records,
        magic=magic,
        base_offset=base_offset,
        codec=chance.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)),
        timestamp_type=chance.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)),
        append_time_ms=ROUND_MS - 9,
    )
    if chance.random() < 0.1:
        data = resealed(data[:17] + bytes([data[17] | chance.choice((0x40, 0x80, 0x10))]) + data[18:])
    return data, records[-1].offset + 1


def random_log(chance: random.Random) -> bytes:
    parts = []
    offset = chance.choice((0, 3, 2**40))
    for _ in range(chance.randint(1, 5)):
        make = random_messages if chance.random() < 0.3 else random_batch
        part, offset = make(chance, offset)
        parts.append(part)
        offset += chance.choice((0, 0, 5))
    return b"".join(parts)


def sealed_batch(batch: bytes) -> bytes:
    checksum = struct.pack(">I", crc32c(batch[BATCH_V2.at.attributes :]))
    return batch[: BATCH_V2.at.crc] + checksum + batch[BATCH_V2.at.attributes :]


def resealed(log: bytes) -> bytes:
    """All batches and messages with right checksums."""
    data = bytearray(log)
    try:
        scanned = list(batches.scan(log))
    except CorruptRecord:
        return log
    for batch in scanned:
        end = batch.position + batch.size_bytes
        if batch.magic == 2:
            data[batch.position : end] = sealed_batch(bytes(data[batch.position : end]))
        else:
            at = batch.position + MESSAGE_V0.at.crc
            struct.pack_into(">I", data, at, crc32(memoryview(data)[batch.position + MESSAGE_V0.at.magic : end]))
    return bytes(data)


def damaged(log: bytes, chance: random.Random) -> bytes:
    data = bytearray(log)
    for _ in range(chance.randint(1, 3)):
        at = chance.choice((chance.randrange(len(data)), chance.randrange(len(data)), LAST_BYTE_OF_COUNT % len(data)))
        if chance.random() < 0.5:
            data[at] ^= 1 << chance.randrange(8)
        else:
            data[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    return bytes(data) if chance.random() < 0.3 else resealed(bytes(data))


def whole_piece(log: bytes) -> tuple[Piece, bytes]:
    """A piece of all batches up to where the framing breaks, and their bytes."""
    piece = next(read_pieces(MemorySource(log), piece_bytes=1 << 30))
    end = int(np.sum(piece.batches["size"], dtype=np.int64))
    return piece, log[:end]


def has_sound_offsets(log: bytes) -> bool:
    """Whether offsets rise from batch to batch, and all records lie within their batch: what marks presume."""
    before = -1
    for batch in batches.scan(log):
        first = batch.base_offset if batch.magic == 2 else batch.last_offset
        if not before < first <= batch.last_offset:
            return False
        before = batch.last_offset
        with suppress(CorruptRecord):
            records = batches.decode_records(log, batch) if batch.magic == 2 else []
            if not all(first <= record.offset <= batch.last_offset for record in records):
                return False
    return True


def random_verdicts(piece: Piece, chance: random.Random) -> list[BatchVerdict]:
    usual = [BatchVerdict.FILTER] * 4 + [BatchVerdict.FILTER_KEEP_EMPTY]
    return [chance.choice((*usual, *BatchVerdict)) for _ in range(len(piece.batches))]


def random_retention_ms(chance: random.Random) -> tuple[int, int]:
    retention_ms = chance.choice((0, 5, 86_400_000, 2**63 - 1))
    return retention_ms, as_int64(ROUND_MS + retention_ms)


def digests(keys: list[bytes]) -> np.ndarray:
    data = np.frombuffer(b"".join(keys), np.uint8)
    lengths = np.array([len(key) for key in keys], np.int32)
    return digests_of(data, np.cumsum(lengths, dtype=np.int64) - lengths, lengths)


# Tests


@pytest.mark.parametrize("is_damaged", [False, True])
def test_any_map(is_damaged: bool, randomised: int) -> None:
    """The map says anything at all of any key."""
    met: set[Fault] = set()
    counted = PlainResult()
    for seed in range(LOGS * randomised):
        chance = random.Random(seed)
        log = random_log(chance)
        if is_damaged:
            log = damaged(log, chance)
        piece, log = whole_piece(log)
        if not len(piece.batches):
            continue
        offsets = [int(offset) for offset in piece.batches["last_offset"]]
        keys = [key for key in KEYS if key is not None and chance.random() < 0.8]
        mapped = {key: max(0, chance.choice(offsets) + chance.choice((-2, -1, 0, 0, 1))) for key in keys}
        offset_map = OffsetMap(1 << 12)
        if keys:
            offset_map.put(digests(keys), np.array(list(mapped.values()), np.int64))
        offset_map.latest_offset = -1
        offset_map.reach(chance.choice(offsets) + chance.choice((-2, 0, 0, 9, 9)))
        retention_ms, new_horizon_ms = random_retention_ms(chance)
        plain = PlainRules(
            mapped, offset_map.latest_offset, new_horizon_ms, chance.random() < 0.5, chance.random() < 0.2
        )
        verdicts = random_verdicts(piece, chance)
        result = assert_twins(piece, log, verdicts, offset_map, plain, retention_ms)
        met.update(fault for fault, *_ in result.refusals.values())
        for name in ("superseded", "expired_tombstones", "keyless", "kept_tombstones", "rebuilt_batches"):
            setattr(counted, name, getattr(counted, name) + getattr(result, name))
    assert min(counted.superseded, counted.expired_tombstones, counted.keyless, counted.kept_tombstones) > 20
    assert counted.rebuilt_batches > 100
    if is_damaged:
        expected = {Fault.CRC_MISMATCH, Fault.RECORD_COUNT, Fault.VARINT, Fault.RECORD_LENGTH, Fault.FIELD_LENGTH}
        assert expected | {Fault.RECORD_NOT_CONSUMED, Fault.TRAILING_BYTES, Fault.DECOMPRESSION} <= met
    else:
        assert not met


@pytest.mark.parametrize("is_damaged", [False, True])
def test_marks_of_the_first_pass(is_damaged: bool, randomised: int) -> None:
    """The first pass has gone over a part of the log: its marks agree with its map."""
    marked = 0
    for seed in range(LOGS * randomised):
        chance = random.Random(seed)
        log = random_log(chance)
        if is_damaged:
            log = damaged(log, chance)
        piece, log = whole_piece(log)
        if not len(piece.batches):
            continue
        last_offsets = [int(offset) for offset in piece.batches["last_offset"]]
        first_dirty = max(0, chance.choice((0, 0, *last_offsets)))
        end = max(last_offsets) + 1
        offset_map = OffsetMap(1 << 12)
        offset_map.watch(first_dirty, end)
        mapped: dict[bytes, int] = {}
        capacity = chance.choice((2, 100, 100))
        for keyed in read_keys(piece, first_offset=first_dirty, on_corrupt=lambda *_: None):
            taken = min(len(keyed), capacity)
            offset_map.put(keyed.digests[:taken], keyed.offsets[:taken])
            capacity -= taken
        for batch in batches.scan(log):
            try:
                records = batches.decode_records(log, batch) if batch.crc_ok else []
            except CorruptRecord:
                continue
            for record in records:
                if record.key is not None and first_dirty <= record.offset <= offset_map.latest_offset:
                    mapped[record.key] = record.offset
        if capacity:
            offset_map.reach(end - 1)
        if offset_map.superseded is None or not has_sound_offsets(log):
            continue
        retention_ms, new_horizon_ms = random_retention_ms(chance)
        plain = PlainRules(
            mapped, offset_map.latest_offset, new_horizon_ms, chance.random() < 0.5, chance.random() < 0.2
        )
        marked += assert_twins(piece, log, random_verdicts(piece, chance), offset_map, plain, retention_ms).superseded
    assert marked > 100
