"""Random records through all formats and codecs, random damage to what was written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from duralog.errors import CorruptRecord, Fault
from duralog.format import batches, message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2, MESSAGE_V0, MESSAGE_V1, MIN_BATCH_BYTES, NO_TIMESTAMP
from duralog.format.record import Record, TimestampType

INT16 = st.integers(-1, 2**15 - 1)
INT32 = st.integers(-1, 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
DATA = st.none() | st.binary(max_size=40) | st.builds(bytes, st.integers(0, 300))
HEADERS = st.lists(st.tuples(st.text(max_size=6), DATA), max_size=3).map(tuple)
LEGACY_CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
MAX_DECOMPRESSED_BYTES = 1 << 20

DAMAGE_FAULTS = set(Fault) - {Fault.NONE, Fault.PARTIAL_BATCH}


@st.composite
def record_lists(draw: st.DrawFn, *, with_headers: bool) -> tuple[list[Record], int]:
    """Records with rising offsets, some left to be assigned, and the offset to start from."""
    base_offset = draw(st.integers(0, 2**62))
    offset = base_offset
    records = []
    for _ in range(draw(st.integers(1, 6))):
        gap = draw(st.just(0) | st.integers(0, 2**27))
        offset += gap
        records.append(
            Record(
                key=draw(DATA),
                value=draw(DATA),
                timestamp_ms=draw(INT64),
                headers=draw(HEADERS) if with_headers else (),
                offset=offset if gap or draw(st.booleans()) else -1,
            )
        )
        offset += 1
    return records, base_offset


@st.composite
def v2_batches(draw: st.DrawFn) -> bytes:
    records, base_offset = draw(record_lists(with_headers=True))
    return record_batch.encode(records, base_offset=base_offset, codec=draw(st.sampled_from(Codec)))


@st.composite
def legacy_sets(draw: st.DrawFn) -> bytes:
    records, base_offset = draw(record_lists(with_headers=False))
    return message_set.encode(
        records, magic=draw(st.integers(0, 1)), base_offset=base_offset, codec=draw(LEGACY_CODECS)
    )


LOGS = st.lists(v2_batches() | legacy_sets(), min_size=1, max_size=3).map(b"".join)


def with_offsets(records: Sequence[Record], base_offset: int) -> list[Record]:
    placed = []
    offset = base_offset
    for record in records:
        offset = record.offset if record.offset >= 0 else offset
        placed.append(replace(record, offset=offset, headers=tuple(record.headers)))
        offset += 1
    return placed


def records_or_fault(data: bytes, batch: Batch) -> list[Record] | Fault:
    try:
        return batches.decode_records(data, batch, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    except CorruptRecord as error:
        refusal = error
    assert refusal.position is not None
    assert batch.position <= refusal.position <= batch.position + batch.size_bytes
    return refusal.fault


def read_all(data: bytes) -> list[tuple[Batch, list[Record] | Fault]]:
    """All batches up to the first that cannot be scanned, each with its records or the fault of these."""
    found: list[tuple[Batch, list[Record] | Fault]] = []
    with suppress(CorruptRecord):
        for batch in batches.scan(data):
            found.append((batch, records_or_fault(data, batch)))
    return found


@given(
    record_lists(with_headers=True),
    st.sampled_from(Codec),
    st.booleans(),
    st.booleans(),
    INT64,
    INT16,
    INT32,
    INT32,
    st.none() | st.integers(0, 2**62),
    st.none() | st.integers(0, 2**62),
    st.integers(0, 2**20),
)
def test_v2_comes_back(
    records_and_base: tuple[list[Record], int],
    codec: Codec,
    is_transactional: bool,
    is_control: bool,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    leader_epoch: int,
    append_time_ms: int | None,
    delete_horizon_ms: int | None,
    offsets_after: int,
) -> None:
    records, base_offset = records_and_base
    expected = with_offsets(records, base_offset)
    last_offset = expected[-1].offset + offsets_after
    timestamp_type = TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME
    data = record_batch.encode(
        records,
        base_offset=base_offset,
        codec=codec,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        timestamp_type=timestamp_type,
        append_time_ms=append_time_ms,
        is_transactional=is_transactional,
        is_control=is_control,
        delete_horizon_ms=delete_horizon_ms,
        last_offset=last_offset,
    )
    [batch] = batches.scan(data)
    assert batch.crc_ok
    assert batch.codec_id == codec
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (base_offset, last_offset, len(records))
    assert (batch.is_transactional, batch.is_control) == (is_transactional, is_control)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
        producer_id,
        producer_epoch,
        base_sequence,
    )
    assert (batch.leader_epoch, batch.delete_horizon_ms) == (leader_epoch, delete_horizon_ms)
    if append_time_ms is not None:
        expected = [
            replace(record, timestamp_ms=append_time_ms, timestamp_type=TimestampType.LOG_APPEND_TIME)
            for record in expected
        ]
    assert batch.max_timestamp_ms == max(record.timestamp_ms for record in expected)
    assert batches.decode_records(data, batch) == expected


@given(record_lists(with_headers=False), st.integers(0, 1), LEGACY_CODECS, st.none() | st.integers(0, 2**62))
def test_v0_and_v1_come_back(
    records_and_base: tuple[list[Record], int], magic: int, codec: Codec, append_time_ms: int | None
) -> None:
    records, base_offset = records_and_base
    timestamp_type = TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME
    data = message_set.encode(
        records,
        magic=magic,
        base_offset=base_offset,
        codec=codec,
        timestamp_type=timestamp_type,
        append_time_ms=append_time_ms,
    )
    expected = with_offsets(records, base_offset)
    if magic == 0:
        expected = [
            replace(record, timestamp_ms=NO_TIMESTAMP, timestamp_type=TimestampType.NONE) for record in expected
        ]
    elif append_time_ms is not None:
        expected = [
            replace(record, timestamp_ms=append_time_ms, timestamp_type=TimestampType.LOG_APPEND_TIME)
            for record in expected
        ]
    found = list(batches.scan(data))
    assert all(batch.crc_ok and batch.magic == magic for batch in found)
    assert len(found) == (1 if codec else len(records))
    assert found[-1].last_offset == expected[-1].offset
    assert [record for batch in found for record in batches.decode_records(data, batch)] == expected


@given(st.data())
def test_a_flipped_bit_is_seen_or_is_where_nothing_guards(data: st.DataObject) -> None:
    log = data.draw(LOGS)
    bit = data.draw(st.integers(0, len(log) * 8 - 1))
    damaged = bytearray(log)
    damaged[bit // 8] ^= 1 << (bit % 8)
    before = read_all(log)
    after = read_all(bytes(damaged))

    hit = next(batch for batch, _ in before if batch.position <= bit // 8 < batch.position + batch.size_bytes)
    place = bit // 8 - hit.position
    length_field = range(8, 12)
    leader_epoch = range(BATCH_V2.at.leader_epoch, BATCH_V2.at.magic)
    if place in length_field or place == BATCH_V2.at.magic:
        # The batch is read as another or not at all, and so is all that follows. What came before is untouched.
        untouched = [entry for entry in before if entry[0].position < hit.position]
        assert after[: len(untouched)] == untouched
        assert all(not batch.crc_ok for batch, _ in after if batch.position == hit.position)
        return
    assert [batch.position for batch, _ in after] == [batch.position for batch, _ in before]
    for (batch, content), (batch_before, content_before) in zip(after, before, strict=True):
        if batch.position != hit.position:
            assert (batch, content) == (batch_before, content_before)
        elif place < 8 or (hit.magic == 2 and place in leader_epoch):
            assert batch.crc_ok, "offsets and leader epochs are the broker's to change"
            if place >= 8:
                assert content == content_before
        else:
            assert not batch.crc_ok


@given(LOGS, st.data())
def test_any_damage_gives_records_or_a_fault(log: bytes, data: st.DataObject) -> None:
    damaged = bytearray(log)
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    for _, content in read_all(bytes(damaged)):
        assert isinstance(content, list) or content in DAMAGE_FAULTS


@given(st.binary(max_size=300), st.integers(0, 2), st.integers(0, 7), st.integers(-1, 300))
def test_any_bytes_after_a_sound_header_give_records_or_a_fault(
    body: bytes, magic: int, codec: int, count: int
) -> None:
    layout = (MESSAGE_V0, MESSAGE_V1, BATCH_V2)[magic]
    header = bytearray(layout.size)
    header[layout.at.length : layout.at.length + 4] = (layout.size - 12 + len(body)).to_bytes(4, "big")
    header[layout.at.magic] = magic
    header[layout.at.attributes + (magic == 2)] = codec
    if magic == 2:
        header[-4:] = count.to_bytes(4, "big", signed=True)
    for _, content in read_all(bytes(header) + body):
        assert isinstance(content, list) or content in DAMAGE_FAULTS


@given(LOGS)
def test_every_cut_ends_silently_after_the_whole_batches(log: bytes) -> None:
    whole = list(batches.scan(log))
    ends = [batch.position + batch.size_bytes for batch in whole]
    for cut in {*range(0, len(log), 7), *ends, *(end - 1 for end in ends), *(end + 17 for end in ends)}:
        found = list(batches.scan(log[:cut]))
        assert found == [batch for batch in whole if batch.position + batch.size_bytes <= cut]


@given(v2_batches() | legacy_sets(), st.data())
def test_records_cut_short_are_refused(log: bytes, data: st.DataObject) -> None:
    """The length field and the bytes agree, but the end of the records is missing."""
    batch = list(batches.scan(log))[-1]
    smallest = MIN_BATCH_BYTES[batch.magic]
    assume(batch.size_bytes > smallest)
    size = data.draw(st.integers(smallest, batch.size_bytes - 1))
    cut = bytearray(log[batch.position : batch.position + size])
    cut[8:12] = (size - 12).to_bytes(4, "big")
    [(found, content)] = read_all(bytes(cut))
    assert not found.crc_ok
    assert content in DAMAGE_FAULTS
