"""The streaming reader: whole batches from pieces of any size, bounded chunks, corrupt batches in their place."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from duralog.columnar import arrow_runs, pieces, runs
from duralog.columnar import decoded as chunks
from duralog.columnar.pieces import DecodedRecords, MemorySource, Piece, read_pieces
from duralog.columnar.schema import RECORD_SCHEMA
from duralog.errors import CorruptRecord, Fault
from duralog.format import message_set, record_batch
from duralog.format.compression import Codec, compress
from duralog.format.layout import BATCH_V2, MAGIC_POSITION, MESSAGE_V0
from duralog.format.record import Record, TimestampType


def batch(first: int, count: int = 3, *, codec: Codec = Codec.NONE, value: bytes = b"value", **options) -> bytes:
    records = [Record(key=b"%d" % offset, value=value, timestamp_ms=offset) for offset in range(first, first + count)]
    return record_batch.encode(records, base_offset=first, codec=codec, **options)


def broken(sound: bytes) -> bytes:
    """With a wrong checksum."""
    at = BATCH_V2.at.crc if sound[MAGIC_POSITION] == record_batch.MAGIC else MESSAGE_V0.at.crc
    return sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]


def offsets(decoded: Sequence[DecodedRecords]) -> list[int]:
    return [offset for records in decoded for offset in records.columns.offset.tolist()]


def read_all(data: bytes, **options) -> list[int]:
    return [offset for piece in read_pieces(MemorySource(data), **options) for offset in offsets(list(piece.decode()))]


class CountingSource(MemorySource):
    """Remembers what was read, and refuses to read outside."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, "counted")
        self.reads: list[tuple[int, int]] = []

    def read(self, position: int, size: int) -> memoryview:
        assert 0 <= position <= position + size <= self.size
        self.reads.append((position, size))
        return super().read(position, size)


LOG = b"".join((batch(0), batch(3, codec=Codec.LZ4), message_set.encode([Record(value=b"m")], magic=1, base_offset=6)))


@pytest.mark.parametrize("piece_bytes", [1, 17, 61, 100, 1000, 1 << 20])
def test_pieces_of_any_size_hold_whole_batches(piece_bytes: int) -> None:
    source = CountingSource(LOG)
    position = 0
    for piece in read_pieces(source, piece_bytes=piece_bytes):
        assert piece.position == position
        assert len(piece.batches) > 0
        assert piece.batches["position"][0] == position
        assert piece.fault is None
        assert piece.tail_bytes == 0
        last = piece.batches[-1]
        position = int(last["position"] + last["size"])
        assert position <= piece.position + len(piece.data)
    assert position == len(LOG)
    assert read_all(LOG, piece_bytes=piece_bytes) == list(range(7))


def test_the_range_asked_for() -> None:
    first, second = batch(0), batch(3)
    assert read_all(first + second + batch(6), start=len(first), end=len(first) + len(second)) == [3, 4, 5]
    assert read_all(first, start=len(first)) == []
    assert read_all(first, end=10**9) == [0, 1, 2]
    assert list(read_pieces(MemorySource(b""))) == []


@pytest.mark.parametrize("piece_bytes", [20, 1 << 20])
@pytest.mark.parametrize("kept", [1, 11, 12, 16, 17, 60, 61, 80])
def test_half_a_batch_at_the_end(kept: int, piece_bytes: int) -> None:
    data = batch(0) + batch(3)[:kept]
    *_, last = read_pieces(MemorySource(data), piece_bytes=piece_bytes)
    assert last.fault is None
    assert last.tail_bytes == kept
    assert read_all(data, piece_bytes=piece_bytes) == [0, 1, 2]


@pytest.mark.parametrize("piece_bytes", [20, 1 << 20])
def test_a_batch_that_cannot_be_ends_the_reading(piece_bytes: int) -> None:
    sound = batch(0)
    data = sound + struct.pack(">qi", 3, 5) + bytes(500)
    *_, last = read_pieces(MemorySource(data, "some.log"), piece_bytes=piece_bytes)
    assert last.fault is not None
    assert (last.fault.fault, last.fault.file, last.fault.position) == (Fault.BATCH_LENGTH, "some.log", len(sound))
    assert (
        str(last.fault)
        == f"some.log: position {len(sound)}: a batch's length is too small (expected at least 14, found 5)"
    )
    assert last.tail_bytes == 512
    assert read_all(data, piece_bytes=piece_bytes) == [0, 1, 2]


def test_a_claimed_size_is_not_read_beyond_the_source() -> None:
    claim = struct.pack(">qiiB", 0, 2**31 - 1, 0, 2)
    source = CountingSource(batch(0) + claim + bytes(100_000))
    *_, last = read_pieces(source, piece_bytes=1000)
    assert last.tail_bytes == 100_000 + len(claim)
    assert max(size for _, size in source.reads) == 1000


def test_a_batch_larger_than_a_piece_is_read_once_more() -> None:
    large = batch(0, value=bytes(50_000))
    source = CountingSource(large + batch(3))
    pieces = list(read_pieces(source, piece_bytes=1000))
    assert [len(piece.batches) for piece in pieces] == [1, 1]
    assert source.reads[:2] == [(0, 1000), (0, len(large))]


def test_any_buffer_can_be_read() -> None:
    for data in (
        LOG,
        bytearray(LOG),
        memoryview(LOG),
        np.frombuffer(LOG, np.uint16 if len(LOG) % 2 == 0 else np.uint8),
    ):
        (piece,) = read_pieces(MemorySource(data))
        assert offsets(list(piece.decode())) == list(range(7))
    mapped = mmap.mmap(-1, len(LOG))
    mapped[:] = LOG
    (piece,) = read_pieces(MemorySource(mapped))
    assert offsets(list(piece.decode())) == list(range(7))


def test_unchecked_checksums() -> None:
    (piece,) = read_pieces(MemorySource(broken(batch(0))), check_crc=False)
    assert piece.batches["crc_ok"].tolist() == [-1]
    assert offsets(list(piece.decode())) == [0, 1, 2]


# Decoding


def one_piece(data: bytes) -> Piece:
    (piece,) = read_pieces(MemorySource(data, "some.log"))
    return piece


def test_chosen_rows() -> None:
    piece = one_piece(batch(0) + batch(3) + batch(6, codec=Codec.ZSTD) + batch(9))
    decoded = list(piece.decode(np.array([0, 2, 3])))
    assert offsets(decoded) == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    assert [row for records in decoded for row in records.batch_row.tolist()] == [0] * 3 + [2] * 3 + [3] * 3
    assert list(piece.decode(np.array([], np.intp))) == []


def unknown_codec() -> bytes:
    data = bytearray(batch(0))
    data[BATCH_V2.at.attributes + 1] = 5
    return bytes(data)


def not_lz4() -> bytes:
    data = bytearray(batch(0))
    data[BATCH_V2.at.attributes + 1] = Codec.LZ4
    return bytes(data)


def trailing() -> bytes:
    data = bytearray(batch(0)) + b"\0"
    struct.pack_into(">i", data, 8, len(data) - 12)
    return bytes(data)


def too_many() -> bytes:
    data = bytearray(batch(0))
    struct.pack_into(">i", data, BATCH_V2.at.record_count, 1000)
    return bytes(data)


def cut_inside() -> bytes:
    sound = batch(0)
    data = bytearray(sound[: BATCH_V2.size] + compress(Codec.GZIP, sound[BATCH_V2.size : -1]))
    data[BATCH_V2.at.attributes + 1] = Codec.GZIP
    struct.pack_into(">i", data, 8, len(data) - 12)
    return bytes(data)


CORRUPT = {
    Fault.UNKNOWN_CODEC: unknown_codec(),
    Fault.DECOMPRESSION: not_lz4(),
    Fault.TRAILING_BYTES: trailing(),
    Fault.RECORD_COUNT: too_many(),
    Fault.RECORD_LENGTH: cut_inside(),
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("fault", CORRUPT)
def test_a_corrupt_batch_in_the_middle(fault: Fault, codec: Codec) -> None:
    before, after = batch(10, codec=codec), batch(20, codec=codec)
    (piece,) = read_pieces(MemorySource(before + CORRUPT[fault] + after, "some.log"), check_crc=False)
    decoding = piece.decode()
    assert offsets([next(decoding)]) == [10, 11, 12]
    with pytest.raises(CorruptRecord) as caught:
        next(decoding)
    assert caught.value.fault is fault
    assert caught.value.file == "some.log"
    at_record = fault is Fault.TRAILING_BYTES
    assert caught.value.position == len(before) + (len(CORRUPT[fault]) - 1 if at_record else 0)

    reported: list[tuple[str, int]] = []
    skipped = list(piece.decode(on_corrupt=lambda error, row: reported.append((str(error), row))))
    assert offsets(skipped) == [10, 11, 12, 20, 21, 22]
    assert reported == [(str(caught.value), 1)]


def test_a_wrong_checksum_is_refused() -> None:
    piece = one_piece(batch(0) + broken(batch(3)) + broken(message_set.encode([Record()], magic=0)) + batch(6))
    reported: list[tuple[CorruptRecord, int]] = []
    decoded = list(piece.decode(on_corrupt=lambda *report: reported.append(report)))
    assert offsets(decoded) == [0, 1, 2, 6, 7, 8]
    assert [row for _, row in reported] == [1, 2]
    errors = [error for error, _ in reported]
    assert [error.fault for error in errors] == [Fault.CRC_MISMATCH] * 2
    assert errors[0].position == len(batch(0))
    stored = piece.batches["crc"][1]
    assert errors[0].found == f"{stored:#010x}"
    assert errors[0].expected != errors[0].found


def test_the_place_in_decompressed_records_is_reported() -> None:
    (piece,) = read_pieces(MemorySource(CORRUPT[Fault.RECORD_LENGTH]), check_crc=False)
    with pytest.raises(CorruptRecord, match=r"does not fit its batch at byte 26 of the decompressed records"):
        list(piece.decode())


def test_a_ceiling_for_decompressed_batches() -> None:
    piece = one_piece(batch(0, codec=Codec.ZSTD) + batch(3, codec=Codec.ZSTD, value=bytes(10_000)))
    with pytest.raises(CorruptRecord) as caught:
        list(piece.decode(max_decompressed_bytes=1000))
    assert caught.value.fault is Fault.TOO_LARGE
    assert offsets(list(piece.decode(max_decompressed_bytes=100_000))) == list(range(6))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_chunks_are_bounded_in_records(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CHUNK_RECORDS", 7)
    data = b"".join(
        (batch(0, 3, codec=codec), batch(3, 3, codec=codec), batch(6, 20, codec=codec), batch(26, codec=codec))
    )
    decoded = list(one_piece(data).decode())
    assert [len(records) for records in decoded] == [6, 7, 7, 6, 3]
    assert offsets(decoded) == list(range(29))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_chunks_are_bounded_in_bytes(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CHUNK_BYTES", 1000)
    data = batch(0, 6, codec=codec, value=bytes(400)) + batch(6, 2, codec=codec, value=bytes(5000))
    decoded = list(one_piece(data).decode())
    assert [len(records) for records in decoded] == [2, 2, 2, 1, 1]
    assert offsets(decoded) == list(range(8))


def test_a_large_batch_is_checked_before_any_of_it_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CHUNK_RECORDS", 2)
    data = bytearray(batch(0, 9))
    data[-1] = 2  # the last record's count of headers
    (piece,) = read_pieces(MemorySource(data), check_crc=False)
    reported: list[tuple[CorruptRecord, int]] = []
    assert list(piece.decode(on_corrupt=lambda *report: reported.append(report))) == []
    assert [(error.fault, row) for error, row in reported] == [(Fault.HEADER_COUNT, 0)]


def test_legacy_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CHUNK_RECORDS", 2)
    records = [Record(value=b"m")] * 5
    data = message_set.encode(records, magic=1, base_offset=5) + message_set.encode(
        records, magic=1, base_offset=10, codec=Codec.SNAPPY
    )
    decoded = list(one_piece(data).decode())
    assert [len(records) for records in decoded] == [2, 2, 1, 2, 2, 1]
    assert offsets(decoded) == list(range(5, 15))


@pytest.mark.parametrize(
    # The kernel for LZ4 goes on as long as the scratch buffer is not full: there is room for one block more.
    ("codec", "records_in_chunks", "most_bytes"),
    [(Codec.GZIP, [6, 6, 3], 300), (Codec.LZ4, [9, 6], 64 * 1024)],
)
def test_scratch_is_bounded(
    codec: Codec, records_in_chunks: list[int], most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_SCRATCH_BYTES", 300)
    data = b"".join(batch(3 * n, codec=codec, value=bytes(30)) for n in range(4)) + batch(
        12, codec=codec, value=bytes(1000)
    )
    decoded = list(one_piece(data).decode())
    assert [len(records) for records in decoded] == records_in_chunks
    assert max(len(records.data) for records in decoded[:-1]) <= most_bytes
    assert offsets(decoded) == list(range(15))


def test_empty_batches_have_no_records() -> None:
    data = record_batch.encode([], base_offset=5, last_offset=7) + batch(8)
    assert read_all(data) == [8, 9, 10]
    assert read_all(record_batch.encode([], last_offset=0, codec=Codec.GZIP)) == []


# Arrow


def table_of(data: bytes, **options) -> pa.Table:
    decoded = [records.to_arrow(**options) for piece in read_pieces(MemorySource(data)) for records in piece.decode()]
    table = pa.Table.from_batches(decoded)
    table.validate(full=True)
    return table


def test_the_whole_schema() -> None:
    records = [
        Record(key=b"k", value=None, timestamp_ms=1_700_000_000_001, headers=[("h", b"x"), ("h", None)]),
        Record(key=None, value=b"", timestamp_ms=-1),
    ]
    table = table_of(record_batch.encode(records, base_offset=7), topic="orders", partition=3)
    assert table.schema == RECORD_SCHEMA
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_001, None]
    assert table.drop_columns(["timestamp"]).to_pylist() == [
        {
            "topic": "orders",
            "partition": 3,
            "offset": 7,
            "timestamp_type": 0,
            "key": b"k",
            "value": None,
            "headers": [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
        },
        {
            "topic": "orders",
            "partition": 3,
            "offset": 8,
            "timestamp_type": 0,
            "key": None,
            "value": b"",
            "headers": [],
        },
    ]


def test_topic_and_partition_are_null_when_unknown() -> None:
    table = table_of(batch(0))
    assert table.schema == RECORD_SCHEMA
    assert table.column("topic").to_pylist() == table.column("partition").to_pylist() == [None] * 3


def test_timestamp_types_of_mixed_batches() -> None:
    data = b"".join(
        (
            batch(0, 1),
            batch(1, 1, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=99),
            message_set.encode([Record()], magic=0, base_offset=2),
        )
    )
    table = table_of(data)
    assert table.column("timestamp_type").to_pylist() == [0, 1, -1]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [0, 99, None]


def test_chosen_columns_come_in_the_order_of_the_schema() -> None:
    table = table_of(batch(0), columns=["value", "offset"])
    assert table.column_names == ["offset", "value"]
    assert table_of(batch(0), columns=[]).column_names == []
    with pytest.raises(ValueError, match="no such column: colour"):
        table_of(batch(0), columns=["colour"])


def in_one_go(piece: Piece, **options) -> list[pa.RecordBatch]:
    arrow = list(piece.to_arrow(**options))
    for part in arrow:
        part.validate(full=True)
    return arrow


@pytest.mark.parametrize(
    "columns",
    [
        *(None, [], ["offset"], ["key"], ["value", "timestamp"], ["headers"], ["value", "key"]),
        ["headers", "key", "value", "timestamp_type"],
    ],
)
def test_straight_to_arrow_is_the_same(columns: list[str] | None) -> None:
    mixed = [
        batch(0),
        batch(3, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=99),
        record_batch.encode([Record(headers=[("h", b"x"), ("i", None)]), Record(value=b"")], base_offset=6),
        record_batch.encode([], base_offset=8, last_offset=8),
        batch(9, codec=Codec.ZSTD),
        batch(12, codec=Codec.LZ4, value=bytes(100)),
        message_set.encode([Record(value=b"m")] * 3, magic=1, base_offset=15, codec=Codec.GZIP),
        batch(18, value=b"v" * 40),
    ]
    piece = one_piece(b"".join(mixed))
    for rows in (None, np.array([2, 3, 4]), np.array([7, 1, 0])):
        options: dict[str, Any] = {"topic": "orders", "partition": 3, "columns": columns}
        decoded = [records.to_arrow(**options) for records in piece.decode(rows)]
        arrow = in_one_go(piece, rows=rows, **options)
        assert pa.Table.from_batches(arrow) == pa.Table.from_batches(decoded)


def test_straight_to_arrow_with_a_corrupt_batch_in_the_middle() -> None:
    data = batch(10) + CORRUPT[Fault.TRAILING_BYTES] + batch(20) + batch(30)
    (piece,) = read_pieces(MemorySource(data, "some.log"), check_crc=False)
    decoding = piece.to_arrow()
    assert next(decoding).column("offset").to_pylist() == [10, 11, 12]
    with pytest.raises(CorruptRecord) as caught:
        next(decoding)
    reported: list[tuple[str, int]] = []
    arrow = in_one_go(piece, on_corrupt=lambda error, row: reported.append((str(error), row)))
    assert [part.column("offset").to_pylist() for part in arrow] == [[10, 11, 12], [20, 21, 22], [30, 31, 32]]
    assert reported == [(str(caught.value), 1)]


def test_straight_to_arrow_of_some_offsets() -> None:
    message = message_set.encode([Record(value=b"m")], magic=1, base_offset=6)
    piece = one_piece(batch(0) + batch(3, codec=Codec.ZSTD) + message + batch(7))
    whole = table_of(piece.data.tobytes())
    for start in range(11):
        for end in range(start, 12):
            for columns in (None, ["key"], ["offset"]):
                parts = in_one_go(piece, columns=columns, offsets=(start, end))
                assert all(part.num_rows for part in parts)
                due = whole.slice(start, end - start).select(columns or whole.column_names)
                assert pa.Table.from_batches(parts, due.schema) == due


def test_straight_to_arrow_of_offsets_that_do_not_rise() -> None:
    """Of a batch that no broker would take: its offset deltas are 0, 2, 1."""
    data = bytearray(batch(10, value=b"v"))
    size = (len(data) - BATCH_V2.size) // 3
    for number, delta in enumerate((0, 2, 1)):
        at = BATCH_V2.size + number * size + 3
        assert data[at] == 2 * number
        data[at] = 2 * delta
    (piece,) = read_pieces(MemorySource(bytes(data)), check_crc=False)
    (part,) = in_one_go(piece, columns=["offset", "key"], offsets=(10, 12))
    assert part.to_pydict() == {"offset": [10, 11], "key": [b"10", b"12"]}
    (part,) = in_one_go(piece, columns=["offset", "key"], offsets=(11, 13))
    assert part.to_pydict() == {"offset": [12, 11], "key": [b"11", b"12"]}


def test_straight_to_arrow_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join((batch(0), batch(3), batch(6, 20), batch(26), batch(29)))
    with monkeypatch.context() as bounded:
        bounded.setattr(runs, "CHUNK_RECORDS", 7)
        arrow = in_one_go(one_piece(data))
        assert [part.num_rows for part in arrow] == [6, 7, 7, 6, 3, 3]
    monkeypatch.setattr(runs, "CHUNK_BYTES", 100)
    monkeypatch.setattr(arrow_runs, "CHUNK_BYTES", 100)
    arrow = in_one_go(one_piece(data))
    assert [offset for part in arrow for offset in part.column("offset").to_pylist()] == list(range(32))
    assert max(part.column("value").nbytes for part in arrow) < 100


class FilledSource(CountingSource):
    """Reads into the memory that it is given, as files do."""

    def read_into(self, position: int, target: memoryview) -> None:
        target[:] = self.read(position, len(target))


def test_the_last_batch_of_a_padded_piece_is_not_apart() -> None:
    """A vector copy may run past it; without padding, it is decoded in another way and comes on its own."""
    data = b"".join(batch(3 * n, value=bytes(1000)) for n in range(40))
    assert len(data) > pieces.PADDED_BYTES
    for source, rows in ((MemorySource(data), [117, 3]), (FilledSource(data), [120])):
        (piece,) = read_pieces(source)
        assert piece.data.tobytes() == data
        arrow = in_one_go(piece)
        assert [part.num_rows for part in arrow] == rows
        assert pa.Table.from_batches(arrow) == table_of(data)
    # Too little to be worth it, and a piece that must be read again in full.
    assert [piece.padded is None for piece in read_pieces(FilledSource(batch(0)))] == [True]
    large = batch(0, 1, value=bytes(pieces.PADDED_BYTES))
    (piece,) = read_pieces(FilledSource(large), piece_bytes=100)
    assert [part.column("value").to_pylist() for part in in_one_go(piece)] == [[bytes(pieces.PADDED_BYTES)]]


def test_straight_to_arrow_holds_no_more_memory_than_its_fields() -> None:
    """Room is made for a batch that is all key or all value; what was not used is given back."""
    (arrow, _) = in_one_go(one_piece(batch(0, 1000, value=bytes(1000)) + batch(1000)))
    assert [arrow.column(name).buffers()[2].size for name in ("key", "value")] == [2890, 1_000_000]


def test_header_keys_that_are_no_text_are_replaced() -> None:
    data = bytearray(record_batch.encode([Record(headers=[("äb", b""), ("xyz", b"")])]))
    at = data.index(b"xyz")
    data[at : at + 3] = b"\xffy\xc3"
    decoded = [list(piece.decode()) for piece in read_pieces(MemorySource(bytes(data)), check_crc=False)]
    ((records,),) = decoded
    arrow = records.to_arrow(columns=["headers"])
    arrow.validate(full=True)
    assert [header["key"] for header in arrow.column("headers").to_pylist()[0]] == ["äb", "\ufffdy\ufffd"]


def test_more_bytes_than_an_arrow_array_holds() -> None:
    ((records,),) = [list(piece.decode()) for piece in read_pieces(MemorySource(batch(0)))]
    records.columns.value_length[:] = 2**30
    with pytest.raises(ValueError, match="too many for one Arrow array"):
        records.to_arrow()


def test_arrow_outlives_the_piece() -> None:
    """The buffers are the batch's own: nothing of the piece is needed any more, or freed under it."""
    tables = []
    for piece in read_pieces(MemorySource(b"".join(batch(3 * n) for n in range(50))), piece_bytes=300):
        tables += [records.to_arrow() for records in piece.decode()]
    np.empty(1 << 20, np.uint8).fill(0xAA)
    assert pa.Table.from_batches(tables).column("key").to_pylist() == [b"%d" % offset for offset in range(150)]


def test_the_default_chunk_is_what_the_readers_promise() -> None:
    assert (chunks.CHUNK_RECORDS, chunks.CHUNK_BYTES) == (65_536, 16 << 20)
