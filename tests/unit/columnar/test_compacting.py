"""What becomes of each kind of batch when a piece is compacted."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from duralog.columnar.compacting import BatchVerdict, CompactedPiece, SurvivalRules, compact_piece
from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.errors import CorruptRecord, Fault
from duralog.format import batches, message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.checksum import crc32, crc32c
from duralog.format.compression import Codec, compress
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record, TimestampType
from duralog.format.varint import Bytes, encode_varlong
from duralog.kernels.key_digests import Digests, digests_of
from duralog.kernels.offset_map import OffsetMap

NOW_MS = 1_700_000_000_000
RETENTION_MS = 86_400_000
FILTER, KEEP_EMPTY = BatchVerdict.FILTER, BatchVerdict.FILTER_KEEP_EMPTY


def record(
    offset: int, key: bytes | None = None, value: bytes | None = b"v", timestamp_ms: int | None = None
) -> Record:
    return Record(
        key=b"k%d" % offset if key is None else key,
        value=value,
        timestamp_ms=NOW_MS - 1000 + offset if timestamp_ms is None else timestamp_ms,
        offset=offset,
    )


def keyless(offset: int) -> Record:
    return Record(value=b"v", timestamp_ms=NOW_MS, offset=offset)


def piece_of(*parts: Bytes) -> Piece:
    data = b"".join(parts)
    (piece,) = read_pieces(MemorySource(data), piece_bytes=max(len(data), 1))
    return piece


def rules(
    superseded: Sequence[int] = (),
    *,
    latest_offset: int = 10**6,
    retention_ms: int = RETENTION_MS,
    keep_legacy_tombstones: bool = True,
) -> SurvivalRules:
    """The keys of these offsets, as `record` makes them, are in the map with a later one."""
    offset_map = OffsetMap(1 << 12)
    if len(superseded):
        offset_map.put(*mapped(superseded))
    offset_map.latest_offset = latest_offset
    return SurvivalRules(
        offset_map=offset_map,
        round_ms=NOW_MS,
        delete_retention_ms=retention_ms,
        keep_legacy_tombstones=keep_legacy_tombstones,
    )


def mapped(superseded: Sequence[int]) -> tuple[Digests, NDArray[np.int64]]:
    """The keys of these offsets, with later ones."""
    keys = [b"k%d" % offset for offset in superseded]
    lengths = np.array([len(key) for key in keys], np.int32)
    positions = np.cumsum(lengths, dtype=np.int64) - lengths
    return digests_of(np.frombuffer(b"".join(keys), np.uint8), positions, lengths), np.array(superseded) + 1


def compacted(
    piece: Piece, survival: SurvivalRules, verdicts: BatchVerdict | Sequence[BatchVerdict] = FILTER
) -> CompactedPiece:
    if isinstance(verdicts, BatchVerdict):
        verdicts = [verdicts] * len(piece.batches)
    result = compact_piece(piece, np.array(verdicts, np.int8), survival, on_corrupt=refused)
    assert b"".join(result.buffers) == b"" or piece_of(*result.buffers).batches.tolist() == result.batches.tolist()
    return result


def refused(error: CorruptRecord, row: int) -> None:
    raise AssertionError(f"batch {row}: {error}")


def only_batch(result: CompactedPiece) -> tuple[Batch, list[Record]]:
    data = b"".join(result.buffers)
    (batch,) = batches.scan(data)
    assert batch.crc_ok
    return batch, batches.decode_records(data, batch)


# Whole batches


def test_nothing_is_copied_when_nothing_changes() -> None:
    piece = piece_of(*(record_batch.encode([record(n), record(n + 1)], base_offset=n) for n in (0, 2, 4)))
    result = compacted(piece, rules())
    (buffer,) = result.buffers
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), piece.data)
    assert bytes(buffer) == piece.data.tobytes()
    assert result.batches.tolist() == piece.batches.tolist()
    assert (result.records_read, result.records_kept, result.rebuilt_batches) == (6, 6, 0)


def test_a_run_of_untouched_batches_is_one_slice() -> None:
    parts = [record_batch.encode([record(n)], base_offset=n) for n in range(5)]
    result = compacted(piece_of(*parts), rules([2]))
    assert [bytes(buffer) for buffer in result.buffers] == [parts[0] + parts[1], parts[3] + parts[4]]
    assert result.superseded == 1


def test_many_scattered_batches_come_as_one_buffer() -> None:
    parts = [record_batch.encode([record(n)], base_offset=n) for n in range(300)]
    result = compacted(piece_of(*parts), rules(range(0, 300, 2)))
    assert len(result.buffers) == 1
    assert b"".join(result.buffers) == b"".join(parts[1::2])
    assert result.size_bytes == sum(map(len, parts[1::2]))


def test_positions_count_from_the_first_buffer_wherever_the_piece_lies() -> None:
    log = b"".join(record_batch.encode([record(n)], base_offset=n) for n in range(4))
    size = len(log) // 4
    (piece,) = read_pieces(MemorySource(log), start=size)
    result = compacted(piece, rules([2]))
    assert result.batches["position"].tolist() == [0, size]
    assert b"".join(result.buffers) == log[size : 2 * size] + log[3 * size :]


def test_a_piece_that_loses_everything() -> None:
    result = compacted(piece_of(record_batch.encode([record(0)])), rules([0]))
    assert (list(result.buffers), len(result.batches), result.size_bytes) == ([], 0, 0)


def test_a_piece_without_batches() -> None:
    piece = next(iter(read_pieces(MemorySource(b"\0" * 5))))
    assert len(compacted(piece, rules()).batches) == 0


def test_verdicts_on_whole_batches() -> None:
    parts = [record_batch.encode([record(n), record(n + 1)], base_offset=n) for n in (0, 2, 4)]
    verdicts = [BatchVerdict.DROP, BatchVerdict.AS_IS, BatchVerdict.EMPTY]
    result = compacted(piece_of(*parts), rules(range(6)), verdicts)
    data = b"".join(result.buffers)
    assert data[: len(parts[1])] == parts[1]
    assert len(data) - len(parts[1]) == BATCH_V2.size
    assert (result.records_read, result.records_kept, result.superseded) == (6, 2, 0)


# Rebuilt batches


def test_a_rebuilt_batch_keeps_its_header() -> None:
    records = [record(n, timestamp_ms=NOW_MS - n) for n in (10, 11, 12, 15)]
    source = record_batch.encode(
        records,
        base_offset=9,
        last_offset=17,
        leader_epoch=3,
        producer_id=44,
        producer_epoch=5,
        base_sequence=66,
        is_transactional=True,
    )
    result = compacted(piece_of(source), rules([10, 12]))
    batch, kept = only_batch(result)
    assert b"".join(result.buffers) == record_batch.encode(
        [records[1], records[3]],
        base_offset=9,
        last_offset=17,
        leader_epoch=3,
        producer_id=44,
        producer_epoch=5,
        base_sequence=66,
        is_transactional=True,
    )
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (NOW_MS - 11, NOW_MS - 11)
    assert kept == [records[1], records[3]]
    assert (result.records_kept, result.superseded, result.rebuilt_batches) == (2, 2, 1)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_rebuilt_batch_keeps_its_codec(codec: Codec) -> None:
    records = [record(n, value=b"x" * 1000) for n in range(50)]
    result = compacted(piece_of(record_batch.encode(records, codec=codec)), rules(range(0, 50, 3)))
    kept = [r for r in records if r.offset % 3]
    assert b"".join(result.buffers) == record_batch.encode(kept, base_offset=0, last_offset=49, codec=codec)


def test_append_time_stays_that_of_the_batch() -> None:
    append_time = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "append_time_ms": NOW_MS + 7}
    source = record_batch.encode([record(0), record(1), record(2)], **append_time)  # type: ignore[arg-type]
    batch, kept = only_batch(compacted(piece_of(source), rules([0])))
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (NOW_MS + 7, NOW_MS + 7)
    assert [r.timestamp_ms for r in kept] == [NOW_MS + 7] * 2


def test_what_kafka_would_not_write_becomes_what_it_would() -> None:
    """Long forms of integers, lengths below -1, attributes of records and unknown ones of the batch."""
    dropped = record_batch.encode([record(0)])[BATCH_V2.size :]
    body = (
        bytes.fromhex("ff 80 00 82 80 00")  # attributes, timestamp delta 0, offset delta 1
        + bytes.fromhex("84 80 00 6b 31")  # key k1
        + bytes.fromhex("03")  # value: length -2
        + bytes.fromhex("82 00")  # one header
        + bytes.fromhex("82 80 80 80 70 ff")  # its key: one byte that is no text, the length with bits nobody reads
        + bytes.fromhex("05")  # its value: length -3
    )
    odd = struct.pack("B", len(body) << 1 | 0x80) + b"\0" + body
    header = BATCH_V2.pack(0, 49 + len(dropped + odd), -1, 2, 0, 0x4080, 1, NOW_MS, NOW_MS, -1, -1, -1, 2)
    source = sealed(header + dropped + odd)
    result = compacted(piece_of(source), rules([0], latest_offset=0))
    expected = b"\0" + encode_varlong(-RETENTION_MS) + bytes.fromhex("02 04 6b 31 01 02 02 ff 01")
    assert b"".join(result.buffers)[BATCH_V2.size :] == bytes([len(expected) << 1]) + expected
    assert result.batches["attributes"].tolist() == [0x40]


def test_a_record_larger_than_a_vector_and_one_at_the_end_of_the_bytes() -> None:
    records = [record(n, value=bytes(n)) for n in (0, 1, 31, 32, 33, 511, 512, 513, 70_000, 2)]
    records = [Record(key=r.key, value=r.value, timestamp_ms=NOW_MS, offset=n) for n, r in enumerate(records)]
    result = compacted(piece_of(record_batch.encode(records)), rules([0]))
    assert b"".join(result.buffers) == record_batch.encode(records[1:], base_offset=0)


def test_a_batch_of_more_records_than_a_chunk() -> None:
    records = [Record(key=b"%d" % n, value=b"", timestamp_ms=0, offset=n) for n in range(70_000)]
    keys = np.frombuffer(b"".join(r.key or b"" for r in records), np.uint8)
    lengths = np.array([len(r.key or b"") for r in records], np.int32)
    offset_map = OffsetMap(4 << 20)
    offset_map.put(digests_of(keys, np.cumsum(lengths, dtype=np.int64) - lengths, lengths), np.arange(70_000) | 1)
    survival = SurvivalRules(offset_map=offset_map, round_ms=0, delete_retention_ms=0, keep_legacy_tombstones=False)
    for codec in (Codec.NONE, Codec.LZ4):
        source = record_batch.encode(records, codec=codec)
        result = compacted(piece_of(source), survival)
        assert b"".join(result.buffers) == record_batch.encode(records[1::2], base_offset=0, codec=codec)
        assert result.superseded == 35_000


# Empty batches


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("verdict", [KEEP_EMPTY, BatchVerdict.EMPTY])
def test_a_header_without_records(codec: Codec, verdict: BatchVerdict) -> None:
    source = record_batch.encode(
        [record(7), record(8)],
        base_offset=7,
        last_offset=9,
        codec=codec,
        leader_epoch=1,
        producer_id=2,
        producer_epoch=3,
        base_sequence=4,
        is_transactional=True,
        delete_horizon_ms=NOW_MS + 1,
    )
    result = compacted(piece_of(source), rules([7, 8]), verdict)
    assert b"".join(result.buffers) == record_batch.encode(
        [],
        base_offset=7,
        last_offset=9,
        leader_epoch=1,
        producer_id=2,
        producer_epoch=3,
        base_sequence=4,
        is_transactional=True,
        max_timestamp_ms=NOW_MS - 1000 + 8,
    )
    assert (result.records_read, result.records_kept, result.rebuilt_batches) == (2, 0, 1)
    assert result.delete_horizons_ms.tolist() == []


def test_an_empty_header_stays_or_goes() -> None:
    empty = record_batch.encode([], base_offset=3, last_offset=5, producer_id=1, producer_epoch=0)
    assert b"".join(compacted(piece_of(empty), rules(), KEEP_EMPTY).buffers) == empty
    assert compacted(piece_of(empty), rules()).size_bytes == 0


# Tombstones and horizons


def test_a_tombstone_gets_a_delete_horizon() -> None:
    records = [record(0), record(1, value=None), record(2)]
    result = compacted(piece_of(record_batch.encode(records)), rules())
    assert b"".join(result.buffers) == record_batch.encode(records, delete_horizon_ms=NOW_MS + RETENTION_MS)
    assert result.delete_horizons_ms.tolist() == [NOW_MS + RETENTION_MS]
    assert (result.kept_tombstones, result.rebuilt_batches) == (1, 1)


def test_a_horizon_is_set_once() -> None:
    source = record_batch.encode([record(0, value=None)], delete_horizon_ms=NOW_MS + 1)
    result = compacted(piece_of(source), rules())
    assert b"".join(result.buffers) == source
    assert result.rebuilt_batches == 0


def test_a_rebuilt_batch_keeps_its_horizon() -> None:
    records = [record(0), record(1, value=None), record(2)]
    source = record_batch.encode(records, delete_horizon_ms=NOW_MS + 1)
    result = compacted(piece_of(source), rules([2]))
    assert b"".join(result.buffers) == record_batch.encode(records[:2], last_offset=2, delete_horizon_ms=NOW_MS + 1)


def test_a_tombstone_goes_when_its_horizon_has_come() -> None:
    records = [record(0, value=None), record(1)]
    source = record_batch.encode(records, delete_horizon_ms=NOW_MS)
    result = compacted(piece_of(source), rules())
    assert b"".join(result.buffers) == record_batch.encode(records[1:], base_offset=0, delete_horizon_ms=NOW_MS)
    assert (result.expired_tombstones, result.kept_tombstones) == (1, 0)


def test_a_superseded_tombstone_asks_for_no_horizon() -> None:
    source = record_batch.encode([record(0, value=None), record(1)])
    assert compacted(piece_of(source), rules([0])).delete_horizons_ms.tolist() == []


def test_a_horizon_beyond_all_numbers_is_none() -> None:
    source = record_batch.encode([record(0), record(1, value=None)])
    result = compacted(piece_of(source), rules(retention_ms=2**63 - 1))
    assert b"".join(result.buffers) == source
    assert result.delete_horizons_ms.tolist() == []


# Keys and the end of the map


def test_records_behind_the_map_stay() -> None:
    records = [record(0), record(1), keyless(2), record(3, value=None)]
    source = record_batch.encode(records, delete_horizon_ms=NOW_MS - 5)
    result = compacted(piece_of(source), rules([1, 3], latest_offset=0))
    assert b"".join(result.buffers) == source
    assert (result.keyless, result.superseded, result.expired_tombstones) == (0, 0, 0)


def test_keyless_records_go_and_are_counted() -> None:
    records = [record(0), keyless(1), keyless(2), record(3)]
    result = compacted(piece_of(record_batch.encode(records)), rules())
    _, kept = only_batch(result)
    assert kept == [records[0], records[3]]
    assert (result.keyless, result.superseded) == (2, 0)


def test_the_record_that_the_map_has_stays() -> None:
    survival = rules()
    key = np.frombuffer(b"k5", np.uint8)
    survival.offset_map.put(digests_of(key, np.zeros(1, np.int64), np.array([2], np.int32)), np.array([5]))
    survival.offset_map.latest_offset = 9
    parts = [record_batch.encode([record(n, key=b"k5")], base_offset=n) for n in (4, 5, 6)]
    assert b"".join(compacted(piece_of(*parts), survival).buffers) == parts[1] + parts[2]


def marked(superseded: Sequence[int], *, end: int) -> SurvivalRules:
    """The same by marks: the first pass has seen the offsets from 0 to before the end."""
    offset_map = OffsetMap(1 << 12)
    offset_map.watch(0, end)
    marks = offset_map.superseded
    assert marks is not None
    for offset in superseded:
        marks.bits[offset // 8] |= 1 << offset % 8
    offset_map.reach(end - 1)
    return SurvivalRules(
        offset_map=offset_map, round_ms=NOW_MS, delete_retention_ms=RETENTION_MS, keep_legacy_tombstones=True
    )


def test_marks_agree_with_the_map() -> None:
    log = [record_batch.encode([record(n + i) for i in range(5)], base_offset=n) for n in range(0, 50, 5)]
    gone = [3, 9, *range(10, 30), 41, 44, 45]
    by_map, by_marks = compacted(piece_of(*log), rules(gone)), compacted(piece_of(*log), marked(gone, end=50))
    assert b"".join(by_marks.buffers) == b"".join(by_map.buffers)
    assert (by_marks.superseded, by_marks.records_read, by_marks.records_kept) == (25, 50, 25)


@pytest.mark.parametrize("first", range(9))
@pytest.mark.parametrize("count", [1, 7, 8, 9, 17])
def test_a_batch_whose_offsets_are_all_marked_is_not_unpacked(first: int, count: int) -> None:
    source = record_batch.encode([record(first + i) for i in range(count)], base_offset=first, codec=Codec.LZ4)
    broken = sealed(source[:-9] + bytes(9))
    gone = range(first, first + count)
    assert compacted(piece_of(broken), marked(gone, end=40)).superseded == count
    header = compacted(piece_of(broken), marked(gone, end=40), KEEP_EMPTY)
    assert (header.size_bytes, header.superseded) == (BATCH_V2.size, count)
    for missing in gone:
        almost = marked([offset for offset in range(40) if offset != missing], end=40)
        assert compacted(piece_of(source), almost).records_kept == 1


# Control batches


def marker(**fields: object) -> bytes:
    record = Record(key=struct.pack(">hh", 0, 1), value=struct.pack(">hi", 0, 9), timestamp_ms=NOW_MS - 3, offset=5)
    return record_batch.encode(
        [record],
        base_offset=5,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        **fields,  # type: ignore[arg-type]
    )


def test_a_control_batch_stays() -> None:
    result = compacted(piece_of(marker()), rules(), BatchVerdict.CONTROL)
    assert b"".join(result.buffers) == marker()
    assert (result.records_read, result.records_kept) == (1, 1)


def test_the_end_of_an_emptied_transaction_gets_a_horizon_once() -> None:
    result = compacted(piece_of(marker()), rules(), BatchVerdict.CONTROL_EMPTIED)
    assert b"".join(result.buffers) == marker(delete_horizon_ms=NOW_MS + RETENTION_MS)
    later = compacted(piece_of(*result.buffers), rules(retention_ms=0), BatchVerdict.CONTROL_EMPTIED)
    assert b"".join(later.buffers) == b"".join(result.buffers)


# Formats v0 and v1


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_become_batches_of_one_record(magic: int) -> None:
    records = [record(3), record(4), record(7)]
    source = message_set.encode(records, magic=magic, base_offset=3)
    result = compacted(piece_of(source), rules([4]))
    timestamps = [-1, -1] if magic == 0 else [records[0].timestamp_ms, records[2].timestamp_ms]
    expected = [
        record_batch.encode([record(offset, timestamp_ms=timestamp)], base_offset=offset)
        for offset, timestamp in zip((3, 7), timestamps, strict=True)
    ]
    assert b"".join(result.buffers) == b"".join(expected)
    assert (result.records_read, result.records_kept, result.superseded, result.rebuilt_batches) == (3, 2, 1, 2)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_compressed_message_becomes_one_batch(magic: int, codec: Codec) -> None:
    """Unlike a v2 batch, it shrinks to the offsets of its survivors."""
    records = [record(n, timestamp_ms=NOW_MS - n if magic else -1) for n in (3, 4, 7, 9)]
    source = message_set.encode(records, magic=magic, base_offset=3, codec=codec)
    result = compacted(piece_of(source), rules([3, 9]))
    assert b"".join(result.buffers) == record_batch.encode(records[1:3], base_offset=4, codec=codec)


def test_a_message_that_loses_nothing_becomes_a_batch_all_the_same() -> None:
    records = [record(n) for n in (3, 4)]
    source = message_set.encode(records, magic=1, base_offset=3, codec=Codec.GZIP)
    result = compacted(piece_of(source), rules())
    assert b"".join(result.buffers) == record_batch.encode(records, base_offset=3, codec=Codec.GZIP)


def test_append_time_of_a_message_stays() -> None:
    append_time = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "append_time_ms": NOW_MS + 7}
    records = [record(n) for n in (3, 4)]
    source = message_set.encode(records, magic=1, base_offset=3, codec=Codec.GZIP, **append_time)  # type: ignore[arg-type]
    expected = record_batch.encode([record(4, timestamp_ms=NOW_MS + 7)], base_offset=4, codec=Codec.GZIP, **append_time)  # type: ignore[arg-type]
    assert b"".join(compacted(piece_of(source), rules([3])).buffers) == expected


@pytest.mark.parametrize("keeps", [True, False])
def test_tombstones_of_messages_go_by_the_age_of_the_file(keeps: bool) -> None:
    source = message_set.encode([record(3, value=None)], magic=1, base_offset=3)
    result = compacted(piece_of(source), rules(keep_legacy_tombstones=keeps))
    if keeps:
        assert b"".join(result.buffers) == record_batch.encode(
            [record(3, value=None)], base_offset=3, delete_horizon_ms=NOW_MS + RETENTION_MS
        )
    assert (result.kept_tombstones, result.expired_tombstones) == (int(keeps), int(not keeps))


def test_there_is_no_empty_message() -> None:
    source = message_set.encode([record(3)], magic=1, base_offset=3)
    assert compacted(piece_of(source), rules([3]), KEEP_EMPTY).size_bytes == 0
    assert compacted(piece_of(source), rules([3]), BatchVerdict.EMPTY).size_bytes == 0
    assert b"".join(compacted(piece_of(source), rules([3]), BatchVerdict.AS_IS).buffers) == source


def test_offsets_inside_a_message_that_no_batch_can_have() -> None:
    reported: list[Fault] = []
    inner = [message_set.encode([record(offset)], magic=0, base_offset=offset) for offset in (5, 2**31 + 5)]
    for messages in (inner, [inner[0], inner[0]], inner[::-1]):
        wrapper = message_set.encode([Record(value=b"?")], magic=0, base_offset=2**31 + 5)
        source = wrapped(wrapper, b"".join(messages))
        reported.clear()
        result = compact_piece(
            piece_of(source),
            np.array([FILTER], np.int8),
            rules(),
            on_corrupt=lambda error, _: reported.append(error.fault),
        )
        assert b"".join(result.buffers) == source
        assert reported == [Fault.INNER_OFFSET]


# Damage


@pytest.mark.parametrize("verdict", list(BatchVerdict))
def test_a_batch_with_a_wrong_checksum_is_copied_whatever_the_verdict(verdict: BatchVerdict) -> None:
    good = record_batch.encode([record(0)])
    bad = bytearray(record_batch.encode([record(1)], base_offset=1))
    bad[-1] ^= 1
    reported: list[tuple[Fault, int | None, int]] = []
    result = compact_piece(
        piece_of(good, bytes(bad), good),
        np.array([BatchVerdict.DROP, verdict, BatchVerdict.DROP], np.int8),
        rules([1]),
        on_corrupt=lambda error, row: reported.append((error.fault, error.position, row)),
    )
    assert b"".join(result.buffers) == bytes(bad)
    assert result.batches["crc_ok"].tolist() == [0]
    assert reported == ([] if verdict is BatchVerdict.AS_IS else [(Fault.CRC_MISMATCH, len(good), 1)])
    assert (result.records_read, result.records_kept) == (2, 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_batch_that_cannot_be_decoded_is_reported_in_the_usual_words_and_copied(codec: Codec) -> None:
    parts = [record_batch.encode([record(n), record(n + 1)], base_offset=n, codec=codec) for n in (0, 2, 4)]
    broken = bytearray(parts[1])
    struct.pack_into(">i", broken, BATCH_V2.at.record_count, 1)
    parts[1] = sealed(bytes(broken))
    piece = piece_of(*parts)
    expected: list[str] = []
    list(piece.decode(on_corrupt=lambda error, _: expected.append(str(error))))
    reported: list[str] = []
    result = compact_piece(
        piece,
        np.array([FILTER] * 3, np.int8),
        rules([0, 2, 4]),
        on_corrupt=lambda error, _: reported.append(str(error)),
    )
    assert reported == expected
    assert len(expected) == 1
    assert [row[-1] for row in result.batches[["size", "record_count"]].tolist()] == [1, 1, 1]
    assert parts[1] in b"".join(result.buffers)
    assert (result.records_read, result.records_kept) == (4, 2)


# Several threads


def test_pieces_are_compacted_by_several_threads_at_once() -> None:
    log = b"".join(
        record_batch.encode([record(n + i) for i in range(20)], base_offset=n, codec=codec)
        for n, codec in zip(range(0, 4000, 20), [Codec.NONE, Codec.LZ4] * 100, strict=True)
    )
    survival = rules(range(0, 100, 7))
    pieces = list(read_pieces(MemorySource(log), piece_bytes=8192))
    expected = [b"".join(compacted(piece, survival).buffers) for piece in pieces]
    found: dict[int, bytes] = {}

    def compact_some(first: int) -> None:
        for number in range(first, len(pieces), 2):
            found[number] = b"".join(compacted(pieces[number], survival).buffers)

    threads = [threading.Thread(target=compact_some, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(pieces))] == expected


def sealed(batch: bytes) -> bytes:
    checksum = struct.pack(">I", crc32c(batch[BATCH_V2.at.attributes :]))
    return batch[: BATCH_V2.at.crc] + checksum + batch[BATCH_V2.at.attributes :]


def wrapped(plain: bytes, messages: bytes) -> bytes:
    """A v0 message with its value of one byte replaced by these messages, compressed."""
    packed = compress(Codec.GZIP, messages, magic=0)
    message = bytearray(plain[:-5] + struct.pack(">i", len(packed)) + packed)
    message[17] = Codec.GZIP
    struct.pack_into(">i", message, 8, len(message) - 12)
    struct.pack_into(">I", message, 12, crc32(memoryview(message)[16:]))
    return bytes(message)
