"""Whole logs as lines: the exact shape for each format version, and what a caller can ask for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.columnar.render import LineBuffer, render_json, render_text
from duralog.format import message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.record import Record, TimestampType
from duralog.kernels.columns import BATCH_DTYPE, RecordColumns

RECORDS = [
    Record(key=b"k1", value=b"v1", timestamp_ms=1_700_000_000_000, headers=[("h", b"x"), ("g", None)], offset=5),
    Record(key=None, value=b"null", timestamp_ms=-1, offset=6),
    Record(key="ключ".encode(), value=b"\x00\xff\n", timestamp_ms=1_700_000_000_001, offset=17),
]


def rendered(data, render, *arguments, **options):
    chunks = [
        bytes(render(decoded, *arguments, **options))
        for piece in read_pieces(MemorySource(data))
        for decoded in piece.decode()
    ]
    return b"".join(chunks).decode()


JSON_LINES = (
    '{"offset":5,"timestamp":1700000000000,"timestamp_type":"CreateTime","key":"k1","value":"v1",'
    '"headers":[{"key":"h","value":"x"},{"key":"g","value":null}]}\n'
    '{"offset":6,"timestamp":null,"timestamp_type":"CreateTime","key":null,"value":"null","headers":[]}\n'
    '{"offset":17,"timestamp":1700000000001,"timestamp_type":"CreateTime","key":"ключ","value_base64":"AP8K","headers":[]}\n'
)
TEXT_LINES = (
    '| offset 5  2023-11-14T22:13:20.000Z  key "k1"  value "v1"  headers "h"="x" "g"=null\n'
    '| offset 6  no timestamp              key null  value "null"\n'
    '| offset 17  2023-11-14T22:13:20.001Z  key "ключ"  value "\\x00\\xff\\n"\n'
)


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_v2(codec):
    data = record_batch.encode(RECORDS, base_offset=5, codec=codec)
    assert rendered(data, render_json) == JSON_LINES
    assert rendered(data, render_text) == TEXT_LINES


@pytest.mark.parametrize(
    ("base_sequence", "sequences"),
    [(0, [0, 1, 12]), (2**31 - 2, [2**31 - 2, 2**31 - 1, 10]), (2**31 - 1, [2**31 - 1, 0, 11])],
)
def test_sequence_numbers_wrap(base_sequence, sequences):
    data = record_batch.encode(RECORDS, base_offset=5, producer_id=1, producer_epoch=0, base_sequence=base_sequence)
    lines = rendered(data, render_json).splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == sequences
    assert f'"timestamp_type":"CreateTime","sequence":{base_sequence},"key":"k1"' in lines[0]
    assert f"20.000Z  sequence {base_sequence}  key " in rendered(data, render_text)


def test_log_append_time():
    data = record_batch.encode(
        RECORDS[:1], base_offset=5, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=1_600_000_000_000
    )
    assert '"timestamp":1600000000000,"timestamp_type":"LogAppendTime",' in rendered(data, render_json)
    assert "2020-09-13T12:26:40.000Z" in rendered(data, render_text)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_v0_and_v1(codec):
    records = [Record(key=b"k", value=b"v", timestamp_ms=9), Record(key=None, value=None, timestamp_ms=10)]
    old = message_set.encode(
        [Record(key=record.key, value=record.value) for record in records], magic=0, base_offset=3, codec=codec
    )
    assert rendered(old, render_json) == (
        '{"offset":3,"timestamp":null,"timestamp_type":"NoTimestampType","key":"k","value":"v","headers":[]}\n'
        '{"offset":4,"timestamp":null,"timestamp_type":"NoTimestampType","key":null,"value":null,"headers":[]}\n'
    )
    newer = message_set.encode(records, magic=1, base_offset=3, codec=codec)
    assert rendered(newer, render_json) == (
        '{"offset":3,"timestamp":9,"timestamp_type":"CreateTime","key":"k","value":"v","headers":[]}\n'
        '{"offset":4,"timestamp":10,"timestamp_type":"CreateTime","key":null,"value":null,"headers":[]}\n'
    )


def test_prefixes():
    data = record_batch.encode(RECORDS, base_offset=5)
    lines = rendered(data, render_json, b'"topic":"t","partition":0,').splitlines()
    assert lines == [line.replace("{", '{"topic":"t","partition":0,', 1) for line in JSON_LINES.splitlines()]
    assert rendered(data, render_text, b"") == TEXT_LINES.replace("| ", "")


def test_offsets_are_aligned():
    data = record_batch.encode(RECORDS, base_offset=5)
    starts = [line[:13] for line in rendered(data, render_text, offset_width=4).splitlines()]
    assert starts == ["| offset    5", "| offset    6", "| offset   17"]


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (0, '""…(+12 bytes)'),
        (1, '"a"…(+11 bytes)'),
        (2, '"a"…(+11 bytes)'),
        (3, '"aй"…(+9 bytes)'),
        (6, '"aй€"…(+6 bytes)'),
        (7, '"aй€"…(+6 bytes)'),
        (9, '"aй€"…(+6 bytes)'),
        (10, '"aй€😀"…(+2 bytes)'),
        (11, '"aй€😀b"…(+1 bytes)'),
        (12, '"aй€😀bc"'),
        (None, '"aй€😀bc"'),
    ],
)
def test_long_values_are_cut_between_characters(most, shown):
    value = "aй€😀bc".encode()
    data = record_batch.encode([Record(value=value)])
    assert rendered(data, render_text, max_field_bytes=most).endswith(f"  value {shown}\n")


def test_bytes_that_are_no_text_are_cut_near_the_mark():
    data = record_batch.encode([Record(value=b"\x80" * 10)])
    assert rendered(data, render_text, max_field_bytes=5).endswith('value "\\x80\\x80"…(+8 bytes)\n')


def test_a_value_of_just_the_length_is_whole():
    """Whatever follows it: here the count of headers, which starts like the middle of a character."""
    data = record_batch.encode([Record(value=b"12345", headers=[("h", None)] * 64)])
    assert b"12345\x80\x01" in data
    assert 'value "12345"  headers' in rendered(data, render_text, max_field_bytes=5)


def test_long_headers_are_cut_too():
    data = record_batch.encode([Record(headers=[("long", b"12345678")])])
    assert rendered(data, render_text, max_field_bytes=3).endswith('headers "lon"…(+1 bytes)="123"…(+5 bytes)\n')


@pytest.mark.parametrize("render", [render_json, render_text])
def test_no_records_give_no_lines(render):
    nothing = DecodedRecords(
        np.empty(0, np.uint8), RecordColumns.empty(0), np.empty(0, np.int32), np.empty(0, BATCH_DTYPE)
    )
    assert bytes(render(nothing)) == b""


@pytest.mark.parametrize("render", [render_json, render_text])
def test_lines_that_grow_far_beyond_their_records(render):
    """Six bytes for each, and headers that no estimate knows of: the buffer has to grow, more than once."""
    headers = [("h", None)] * 20_000
    records = [Record(value=b"\x01" * 30_000), Record(value=b"", headers=headers), Record(value=b"end")]
    data = record_batch.encode(records)
    lines = rendered(data, render).splitlines()
    assert len(lines) == 3
    if render is render_json:
        parsed = [json.loads(line) for line in lines]
        assert parsed[0]["value"] == "\x01" * 30_000
        assert parsed[1]["headers"] == [{"key": "h", "value": None}] * 20_000
        assert parsed[2]["value"] == "end"
    else:
        assert lines[0].endswith('value "' + "\\x01" * 30_000 + '"')
        assert lines[1].endswith("headers" + ' "h"=null' * 20_000)
        assert lines[2].endswith('value "end"')


def test_a_buffer_keeps_its_memory():
    buffer = LineBuffer()
    (decoded,) = (
        chunk
        for piece in read_pieces(MemorySource(record_batch.encode(RECORDS, base_offset=5)))
        for chunk in piece.decode()
    )
    first = render_json(decoded, buffer=buffer)
    kept = bytes(first)
    second = render_text(decoded, buffer=buffer)
    assert kept == JSON_LINES.encode()
    assert bytes(second) == TEXT_LINES.encode()
    assert bytes(first)[: len(second)] == bytes(second)
    with pytest.raises(TypeError, match="cannot modify read-only memory"):
        second[0] = 0


@pytest.mark.parametrize("options", [{"offset_width": -1}, {"offset_width": 21}, {"max_field_bytes": -1}])
def test_impossible_options_are_refused(options):
    (decoded,) = (
        chunk
        for piece in read_pieces(MemorySource(record_batch.encode(RECORDS, base_offset=5)))
        for chunk in piece.decode()
    )
    with pytest.raises(ValueError, match="must"):
        render_text(decoded, **options)
