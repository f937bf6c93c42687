"""Arrow tables to batches: every kind of column, every way a table can be cut, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from duralog.columnar.schema import HEADER_TYPE
from duralog.errors import InvalidRecord
from duralog.format import batches as reference
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.record import Record, TimestampType
from duralog.kernels.columns import BATCH_DTYPE
from tests.support.columnar.encoded_table import encode_batches

GOLDEN = bytes.fromhex(
    "00000000000000050000004900000000029b8bbd7400000000000100000000000003e800000000000003e9"
    "ffffffffffffffffffffffffffff000000021c000000046b31047631020268027810000202046b320100"
)
"""Written by Kafka 4.3.1: base offset 5; k1 -> v1 at 1000 with the header h = x; k2 -> null at 1001."""

HEADERS = pa.list_(HEADER_TYPE)


def golden_table():
    return pa.table(
        {
            "key": pa.array([b"k1", b"k2"]),
            "value": pa.array([b"v1", None], pa.binary()),
            "timestamp": pa.array([1000, 1001], pa.timestamp("ms", "UTC")),
            "headers": pa.array([[{"key": "h", "value": b"x"}], None], HEADERS),
        }
    )


def decode(encoded):
    data = encoded.data.tobytes()
    return [record for batch in reference.scan(data) for record in reference.decode_records(data, batch)]


def values(encoded):
    return [record.value for record in decode(encoded)]


def table_of(rows=300):
    """Nulls, empty strings and headers in no even rhythm."""
    return pa.table(
        {
            "key": pa.array([None if row % 7 == 3 else b"k%d" % row for row in range(rows)], pa.binary()),
            "value": pa.array([None if row % 11 == 5 else b"v" * (row % 90) for row in range(rows)], pa.binary()),
            "timestamp": pa.array([None if row % 5 == 4 else 10**12 + row * row for row in range(rows)], pa.int64()),
            "headers": pa.array(
                [
                    None
                    if row % 3 == 0
                    else [{"key": f"h{n}", "value": b"x" * n if n % 2 else None} for n in range(row % 4)]
                    for row in range(rows)
                ],
                HEADERS,
            ),
        }
    )


def test_the_bytes_are_kafkas():
    encoded = encode_batches(golden_table(), base_offset=5, leader_epoch=0)
    assert encoded.data.tobytes() == GOLDEN
    assert len(encoded) == 1
    assert encoded.record_count == 2


def test_the_rows_agree_with_a_scan():
    encoded = encode_batches(
        table_of(), base_offset=77, batch_bytes=2000, producer_id=9, producer_epoch=3, base_sequence=4
    )
    found = list(reference.scan(encoded.data.tobytes()))
    assert len(found) > 5
    assert encoded.batches.dtype == BATCH_DTYPE
    for row, batch in zip(encoded.batches, found, strict=True):
        assert {name: int(row[name]) for name in BATCH_DTYPE.names or ()} == {
            "position": batch.position,
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "base_timestamp": batch.base_timestamp_ms,
            "max_timestamp": batch.max_timestamp_ms,
            "producer_id": batch.producer_id,
            "size": batch.size_bytes,
            "leader_epoch": batch.leader_epoch,
            "base_sequence": batch.base_sequence,
            "record_count": batch.record_count,
            "crc": batch.crc,
            "attributes": batch.attributes,
            "producer_epoch": batch.producer_epoch,
            "magic": 2,
            "crc_ok": 1,
        }
        assert batch.crc_ok


@pytest.mark.parametrize("codec", Codec)
def test_codecs(codec):
    encoded = encode_batches(table_of(), codec=codec, batch_bytes=3000)
    plain = encode_batches(table_of(), batch_bytes=3000)
    assert {batch.codec_id for batch in reference.scan(encoded.data.tobytes())} == {codec}
    assert decode(encoded) == decode(plain)
    assert encoded.batches["record_count"].tolist() == plain.batches["record_count"].tolist()
    scanned = [(batch.position, batch.size_bytes) for batch in reference.scan(encoded.data.tobytes())]
    assert list(zip(encoded.batches["position"], encoded.batches["size"], strict=True)) == scanned
    assert sum(size for _, size in scanned) == len(encoded.data)


def test_a_level_reaches_the_codec():
    best, fastest = (encode_batches(table_of(), codec=Codec.GZIP, level=level) for level in (9, 1))
    assert best.data.tobytes() != fastest.data.tobytes()
    assert decode(best) == decode(fastest)


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_binary()),
    ],
    ids=str,
)
def test_every_kind_of_bytes(kind):
    content = pa.array(["", "a", None, "a much longer one than that, for a view", "a"]).cast(kind)
    encoded = encode_batches(pa.table({"key": content, "value": content}))
    expected = [b"", b"a", None, b"a much longer one than that, for a view", b"a"]
    assert values(encoded) == [record.key for record in decode(encoded)] == expected


def test_bytes_of_a_fixed_size():
    content = pa.array([b"abc", None, b"xyz"], pa.binary(3))
    assert values(encode_batches(pa.table({"value": content}))) == [b"abc", None, b"xyz"]


def test_columns_of_type_null():
    nothing = pa.nulls(2)
    encoded = encode_batches(pa.table({"key": nothing, "value": nothing, "timestamp": nothing, "headers": nothing}))
    assert [(record.key, record.value, record.timestamp_ms, record.headers) for record in decode(encoded)] == [
        (None, None, -1, ())
    ] * 2


def test_only_the_value_is_needed_and_other_columns_are_left_alone():
    encoded = encode_batches(pa.table({"value": [b"v"], "topic": ["t"], "partition": [3]}))
    assert decode(encoded) == [Record(value=b"v", offset=0)]


def test_cuts_and_chunks_make_no_difference():
    table = table_of()
    offsets = pa.array(np.arange(300) * 3 + 1)
    table = table.append_column("offset", offsets)
    expected = encode_batches(table, batch_bytes=1000)
    for cuts in ([1, 2, 3, 150], [0, 299], [8, 16, 100], list(range(300))):
        bounds = [0, *cuts, 300]
        pieces = [table.slice(a, b - a) for a, b in pairwise(bounds)]
        chunked = pa.concat_tables(pieces)
        encoded = encode_batches(chunked, batch_bytes=1000)
        assert encoded.data.tobytes() == expected.data.tobytes()
        assert encoded.batches.tolist() == expected.batches.tolist()


@pytest.mark.parametrize("first", [0, 1, 7, 8, 9, 63, 200])
def test_a_slice_is_what_was_cut_out(first):
    table = table_of()
    batch = table.to_batches()[0].slice(first, 50)
    fresh = pa.Table.from_pylist(batch.to_pylist(), table.schema)
    expected = encode_batches(fresh)
    assert encode_batches(batch).data.tobytes() == expected.data.tobytes()
    assert encode_batches(pa.Table.from_batches([batch])).data.tobytes() == expected.data.tobytes()


def test_what_a_null_list_hides_is_not_written():
    """A null list may cover headers that other rows do not use, even ones that may not be written."""
    hidden = pa.StructArray.from_arrays(
        [pa.array(["a", None, "c"]), pa.array([b"1", b"2", b"3"])], fields=list(HEADER_TYPE)
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), hidden, mask=pa.array([False, True, False]))
    encoded = encode_batches(pa.table({"value": [b"x"] * 3, "headers": lists}))
    assert [record.headers for record in decode(encoded)] == [(("a", b"1"),), (), (("c", b"3"),)]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_headers_of_any_width_and_field_order(kind):
    struct = pa.struct([("value", pa.large_string()), ("key", pa.dictionary(pa.int8(), pa.string())), ("n", pa.int8())])
    headers = pa.array([[{"key": "a", "value": "1", "n": 1}, {"key": "a", "value": None, "n": 2}], []], kind(struct))
    encoded = encode_batches(pa.table({"value": [b"x", b"y"], "headers": headers}))
    assert [record.headers for record in decode(encoded)] == [(("a", b"1"), ("a", None)), ()]


@pytest.mark.parametrize("table", [table_of(0), pa.table({"value": pa.chunked_array([], pa.binary())})])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_no_rows_make_no_batches(table, codec):
    encoded = encode_batches(table, codec=codec)
    assert (len(encoded), len(encoded.data), encoded.record_count) == (0, 0, 0)
    assert encoded.batches.dtype == BATCH_DTYPE


@pytest.mark.parametrize(("unit", "per_ms"), [("ms", 1), ("us", 1000), ("ns", 1_000_000)])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit_are_milliseconds_rounded_down(unit, per_ms, zone):
    times = pa.array([0, 5 * per_ms, 6 * per_ms - 1, -per_ms, 6 * per_ms], pa.timestamp(unit, zone))
    encoded = encode_batches(pa.table({"value": [b""] * 5, "timestamp": times}))
    expected = [0, 5, 5, -1, 6]
    assert [record.timestamp_ms for record in decode(encoded)] == expected


def test_timestamps_in_seconds():
    when = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    encoded = encode_batches(pa.table({"value": [b""], "timestamp": pa.array([when], pa.timestamp("s", "UTC"))}))
    assert decode(encoded)[0].timestamp_ms == 1_700_000_000_000


def test_missing_timestamps():
    table = pa.table({"value": [b""] * 3, "timestamp": pa.array([7, None, -1], pa.int64())})
    assert [record.timestamp_ms for record in decode(encode_batches(table))] == [7, -1, -1]
    encoded = encode_batches(table, default_timestamp_ms=99)
    assert [record.timestamp_ms for record in decode(encoded)] == [7, 99, -1]
    assert encoded.batches["max_timestamp"].tolist() == [99]
    without = encode_batches(pa.table({"value": [b""]}), default_timestamp_ms=5)
    assert decode(without)[0].timestamp_ms == 5


def test_log_append_time():
    encoded = encode_batches(
        golden_table(), timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=500, is_transactional=True
    )
    expected = record_batch.encode(
        [
            Record(key=b"k1", value=b"v1", timestamp_ms=1000, headers=[("h", b"x")]),
            Record(key=b"k2", timestamp_ms=1001),
        ],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time_ms=500,
        is_transactional=True,
    )
    assert encoded.data.tobytes() == expected
    assert encoded.batches["max_timestamp"].tolist() == [500]


def test_sequences_follow_each_other_and_wrap():
    table = pa.table({"value": [b""] * 5, "offset": pa.array([0, 10, 11, 12, 30])})
    encoded = encode_batches(table, max_records_per_batch=2, producer_id=1, producer_epoch=0, base_sequence=2**31 - 13)
    assert encoded.batches["base_sequence"].tolist() == [2**31 - 13, 2**31 - 2, 0]
    found = list(reference.scan(encoded.data.tobytes()))
    assert [batch.last_sequence for batch in found] == [2**31 - 3, 2**31 - 1, 0]


def test_offsets_of_ones_own():
    offsets = [3, 4, 3 + 2**31 - 1, 4 + 2**31 - 1, 2**40, 2**63 - 1]
    encoded = encode_batches(pa.table({"value": [b""] * 6, "offset": offsets}), base_offset=1000)
    assert [record.offset for record in decode(encoded)] == offsets
    assert encoded.batches["record_count"].tolist() == [3, 1, 1, 1]
    assert encoded.batches["last_offset"].tolist() == offsets[2:]


def test_a_record_larger_than_a_batch_gets_its_own_batch():
    table = pa.table({"value": [b"a", b"b" * 1000, b"c"]})
    assert encode_batches(table, batch_bytes=100).batches["record_count"].tolist() == [1, 1, 1]
    for codec in (Codec.NONE, Codec.LZ4):
        assert values(encode_batches(table, batch_bytes=100, codec=codec)) == [b"a", b"b" * 1000, b"c"]


def list_of(struct, content):
    return pa.array(content, pa.list_(struct))


REFUSED = [
    ({"key": [b"k"]}, "column value: expected binary or string, found only the columns ['key']"),
    ({"value": [1]}, "column value: expected binary or string, found int64"),
    ({"value": [b""], "key": [1.5]}, "column key: expected binary or string, found double"),
    ({"value": [b""], "timestamp": ["1"]}, "column timestamp: expected timestamp or int64 milliseconds, found string"),
    ({"value": [b""] * 2, "timestamp": [0, -2]}, "column timestamp, row 1: expected 1970 or later, found -2 ms"),
    (
        {"value": [b""] * 2, "timestamp": pa.array([0, -1_000_001], pa.timestamp("ns"))},
        "column timestamp, row 1: expected 1970 or later, found -2 ms",
    ),
    ({"value": [b""], "offset": pa.array([1], pa.int32())}, "column offset: expected int64, found int32"),
    ({"value": [b""] * 2, "offset": [1, None]}, "column offset, row 1: expected an offset, found null"),
    ({"value": [b""], "offset": [-1]}, "column offset, row 0: expected 0 or more, found -1"),
    ({"value": [b""] * 3, "offset": [1, 2, 2]}, "column offset, row 2: expected more than 2, found 2"),
    ({"value": [b""] * 3, "offset": [5, 4, 6]}, "column offset, row 1: expected more than 5, found 4"),
    (
        {"value": [b""], "headers": [["h"]]},
        "column headers: expected list<struct<key: string, value: binary>>, found list<item: string>",
    ),
    (
        {"value": [b""], "headers": list_of(pa.struct([("key", pa.string())]), [[]])},
        "column headers: expected list<struct<key: string, value: binary>>, found list<item: struct<key: string>>",
    ),
    (
        {"value": [b""], "headers": list_of(pa.struct([("key", pa.int8()), ("value", pa.binary())]), [[]])},
        "column headers: expected list<struct<key: string, value: binary>>, "
        "found list<item: struct<key: int8, value: binary>>",
    ),
    (
        {
            "value": [b""] * 4,
            "headers": list_of(HEADER_TYPE, [None, [{"key": "a"}, {"key": "b"}], [], [{"key": "c"}, {"key": None}]]),
        },
        "column headers, row 3: expected a header key, found null",
    ),
    (
        {"value": [b""] * 2, "headers": list_of(HEADER_TYPE, [[{"key": "a"}, None], []])},
        "column headers, row 0: expected a header, found null",
    ),
]


@pytest.mark.parametrize(("columns", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused_columns(columns, message):
    with pytest.raises(InvalidRecord) as refused:
        encode_batches(pa.table(columns))
    assert str(refused.value) == message


def test_two_columns_of_a_name_are_refused():
    table = pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], ["value", "value"])
    with pytest.raises(InvalidRecord, match="column value: expected one column of this name, found 2"):
        encode_batches(table)


def test_seconds_that_are_no_milliseconds_are_refused():
    times = pa.array([2**62], pa.timestamp("s"))
    with pytest.raises(InvalidRecord, match="column timestamp: expected seconds that fit int64 milliseconds"):
        encode_batches(pa.table({"value": [b""], "timestamp": times}))


@pytest.mark.parametrize("damage", [[0, 5, 3], [0, 2, 100], [-1, 0, 1], [4, 2, 3], [0, -(2**63), 6]])
@pytest.mark.parametrize("name", ["key", "value"])
def test_damaged_arrow_arrays_are_refused(damage, name):
    positions = np.array([0, 3, 6], np.int64)
    damaged = pa.Array.from_buffers(pa.large_binary(), 2, [None, pa.py_buffer(positions), pa.py_buffer(b"abcdef")])
    table = pa.table({"value": [b"", b""]} | {name: damaged})
    positions[:] = damage
    with pytest.raises(InvalidRecord, match=f"column {name}: expected ascending positions up to 6"):
        encode_batches(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_offset": -1}, "1 offsets from -1 on are not within"),
        ({"base_offset": 2**63}, "are not within"),
        ({"default_timestamp_ms": -2}, "the default timestamp -2 is not within"),
        ({"default_timestamp_ms": 2**63}, "is not within"),
        ({"leader_epoch": 2**31}, "a field of the batch header is out of range"),
        ({"producer_epoch": 40000}, "a field of the batch header is out of range"),
        ({"producer_id": 2**63}, "a field of the batch header is out of range"),
        ({"base_sequence": 2**31}, "a field of the batch header is out of range"),
        ({"timestamp_type": TimestampType.LOG_APPEND_TIME}, "log append time needs append_time_ms"),
        ({"timestamp_type": TimestampType.NONE}, "without a timestamp type"),
    ],
)
def test_refused_header_fields(options, message):
    with pytest.raises(InvalidRecord, match=message):
        encode_batches(pa.table({"value": [b""]}), **options)


def test_the_last_offset_of_all():
    assert encode_batches(pa.table({"value": [b""]}), base_offset=2**63 - 1).batches["last_offset"].tolist() == [
        2**63 - 1
    ]
    with pytest.raises(InvalidRecord, match="2 offsets from"):
        encode_batches(pa.table({"value": [b"", b""]}), base_offset=2**63 - 1)


@pytest.mark.parametrize("options", [{"batch_bytes": 0}, {"batch_bytes": 2**31}, {"max_records_per_batch": 0}])
def test_impossible_batches_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        encode_batches(pa.table({"value": [b""]}), **options)
