"""The encoding kernels against the plain encoder: the same bytes for the same records, batch by batch."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.columnar.schema import HEADER_TYPE
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record, TimestampType
from tests.support.columnar.encoded_table import encode_batches

SHORT_BYTES = st.none() | st.binary(max_size=12)
LONG_BYTES = st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=3), st.integers(0, 400))
FIELDS = SHORT_BYTES | LONG_BYTES
TIMES = st.integers(-1, 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_000_300)
HEADER_LISTS = st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3)
GAPS = st.just(1) | st.integers(1, 200) | st.integers(2**31 - 3, 2**31 + 3) | st.integers(1, 2**50)


@st.composite
def record_lists(draw):
    offset = draw(st.integers(0, 2**40)) - 1
    has_gaps = draw(st.booleans())
    records = []
    for _ in range(draw(st.integers(0, 30))):
        offset += draw(GAPS) if has_gaps else 1
        records.append(
            Record(
                key=draw(FIELDS),
                value=draw(FIELDS),
                timestamp_ms=draw(TIMES),
                headers=tuple(draw(HEADER_LISTS)),
                offset=offset,
            )
        )
    return records


def table_of(records, *, chunk_rows):
    table = pa.table(
        {
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp": pa.array([record.timestamp_ms for record in records], pa.int64()),
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in record.headers] for record in records],
                pa.list_(HEADER_TYPE),
            ),
        }
    )
    return pa.Table.from_batches(table.to_batches(max_chunksize=chunk_rows), table.schema)


def cut_into_batches(records, *, batch_bytes, batch_records):
    """What goes into one batch, found by trying: the longest run that is short enough."""
    run: list[Record] = []
    for record in records:
        if run:
            fits = len(run) < batch_records and record.offset - run[0].offset < 2**31
            if fits:
                whole = record_batch.encode([*run, record], base_offset=run[0].offset)
                fits = len(whole) - BATCH_V2.size <= batch_bytes
            if not fits:
                yield run
                run = []
        run.append(record)
    if run:
        yield run


def reference_bytes(records, *, batch_bytes, batch_records, base_sequence, **options):
    parts = []
    for run in cut_into_batches(records, batch_bytes=batch_bytes, batch_records=batch_records):
        parts.append(record_batch.encode(run, base_offset=run[0].offset, base_sequence=base_sequence, **options))
        if base_sequence != -1:
            base_sequence = (base_sequence + run[-1].offset - run[0].offset + 1) % 2**31
    return b"".join(parts)


@given(
    records=record_lists(),
    batch_bytes=st.integers(1, 3000),
    batch_records=st.integers(1, 20),
    codec=st.sampled_from(Codec),
    producer=st.sampled_from([(-1, -1, -1), (7, 3, 0), (2**63 - 1, 2**15 - 1, 2**31 - 2)]),
    leader_epoch=st.integers(-1, 2**31 - 1),
    is_transactional=st.booleans(),
    append_time_ms=st.none() | st.integers(0, 2**63 - 1),
    chunk_rows=st.integers(1, 40),
)
def test_the_bytes_of_the_plain_encoder(
    records, batch_bytes, batch_records, codec, producer, leader_epoch, is_transactional, append_time_ms, chunk_rows
):
    producer_id, producer_epoch, base_sequence = producer
    options = {
        "codec": codec,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "leader_epoch": leader_epoch,
        "is_transactional": is_transactional,
        "append_time_ms": append_time_ms,
        "timestamp_type": TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME,
    }
    encoded = encode_batches(
        table_of(records, chunk_rows=chunk_rows),
        batch_bytes=batch_bytes,
        max_records_per_batch=batch_records,
        **options,
    )
    expected = reference_bytes(records, batch_bytes=batch_bytes, batch_records=batch_records, **options)
    assert encoded.data.tobytes() == expected


@given(record_lists(), st.integers(1, 5000))
def test_what_was_encoded_is_scanned_and_decoded_again(records, batch_bytes):
    encoded = encode_batches(table_of(records, chunk_rows=1000), batch_bytes=batch_bytes)
    decoded = []
    rows = []
    for piece in read_pieces(MemorySource(encoded.data.tobytes())):
        assert piece.fault is None
        assert piece.tail_bytes == 0
        rows += piece.batches.tolist()
        decoded += [batch.to_arrow() for batch in piece.decode()]
    assert rows == encoded.batches.tolist()
    if decoded:
        again = encode_batches(pa.Table.from_batches(decoded), batch_bytes=batch_bytes)
        assert again.data.tobytes() == encoded.data.tobytes()
    else:
        assert not records
