"""Decoded records as lines of text: JSON for programs, and a form for people.

Both kernels fill an output array with whole lines and stop before the first one that does not fit; the caller continues
from there with more room. They never write past the end of the array.

A byte string of a record can be anything. In JSON, UTF-8 becomes a string and all else base64 under another name, so
nothing is lost and a reader can tell. For people, bytes that are not printable are escaped.

REQUIRES: the columns were decoded from these bytes, so that all positions and lengths are within them.
"""

from __future__ import annotations

from duralog.format.layout import LOG_APPEND_TIME_BIT, NO_SEQUENCE, NO_TIMESTAMP
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, kernel
from duralog.kernels.scan import BATCH_ROWS
from duralog.kernels.text import (
    ESCAPED,
    FULL,
    JSON,
    MAX_DECIMAL_BYTES,
    NOT_TEXT,
    OVERRUN,
    put_base64,
    put_decimal,
    put_padded,
    put_text,
    put_time,
)
from duralog.kernels.words import BYTES, OUT_BYTES
from duralog.kernels.writing import address_of, copy_bytes, load_byte, put

MAX_OFFSET_WIDTH = MAX_DECIMAL_BYTES

_MARGIN = 512 + OVERRUN
"""More than the fixed text between any two places where the room is checked: a line's head is about 200 bytes."""

_SEQUENCES = 2**31

_INT64S = types.Array(types.int64, 1, "C", readonly=True)
_INT32S = types.Array(types.int32, 1, "C", readonly=True)
_COLUMNS = (_INT64S, _INT64S, _INT64S, _INT32S, _INT64S, _INT32S, _INT64S, _INT32S)
_DONE = types.UniTuple(types.int64, 2)


@device
def _read_varint(source):
    """An integer that was checked when it was decoded, and the address after it."""
    folded = types.uint64(0)
    shift = types.uint64(0)
    byte = load_byte(source)
    source += 1
    while byte >= 0x80:
        folded |= types.uint64(byte & 0x7F) << shift
        shift += types.uint64(7)
        byte = load_byte(source)
        source += 1
    folded |= types.uint64(byte) << shift
    narrow = types.uint32(folded)
    return types.int64(types.int32(narrow >> types.uint32(1)) ^ -types.int32(narrow & types.uint32(1))), source


@device
def _sequence(base_sequence, offset_delta):
    """A record's sequence number, which starts again at 0 after 2^31 - 1."""
    sequence = base_sequence + offset_delta
    if sequence >= _SEQUENCES:
        sequence -= _SEQUENCES
    return sequence


@device
def _put_json_value(source, length, source_end, target, limit):
    """The end of a field's name, and its value. The start of the name, from its quote on, stands before `target`."""
    if target > limit:
        return types.int64(FULL)
    if length < 0:
        return put(target, '":null')
    text = put(target, '":"')
    text = put_text(source, source + length, source_end, text, limit, JSON)
    if text == NOT_TEXT:
        text = put_base64(source, length, put(target, '_base64":"'), limit)
    if text != FULL:
        text = put(text, '"')
    return text


@device
def _put_json_headers(source, count, source_end, target, limit):
    for header in range(count):
        if header > 0:
            target = put(target, ",")
        length, source = _read_varint(source)
        target = _put_json_value(source, length, source_end, put(target, '{"key'), limit)
        if target == FULL:
            return target
        length, source = _read_varint(source + length)
        target = _put_json_value(source, length, source_end, put(target, ',"value'), limit)
        if target == FULL:
            return target
        target = put(target, "}")
        source += max(length, 0)
    return target


@kernel(_DONE(BYTES, *_COLUMNS, _INT32S, BATCH_ROWS, BYTES, types.int64, OUT_BYTES, types.int64))
def render_json(
    data,
    offset,
    timestamp,
    key_position,
    key_length,
    value_position,
    value_length,
    headers_position,
    header_count,
    batch_row,
    batches,
    prefix,
    row,
    out,
    position,
):
    """A JSON object a line, for the rows from `row` on, to out[position:].

    The result is the row to go on with, and the position after the last whole line. `prefix` is put first into
    every object: fields of the caller's, each with a comma after it.
    """
    source, source_end = address_of(data), address_of(data) + len(data)
    prefix_source, prefix_end = address_of(prefix), address_of(prefix) + len(prefix)
    begin = address_of(out)
    limit = begin + len(out) - _MARGIN
    done = begin + position
    while row < len(offset):
        if done + len(prefix) > limit:
            break
        batch = batches[batch_row[row]]
        target = put(done, "{")
        target = copy_bytes(prefix_source, len(prefix), prefix_end, target)
        target = put_decimal(put(target, '"offset":'), offset[row])
        target = put(target, ',"timestamp":')
        if timestamp[row] == NO_TIMESTAMP:
            target = put(target, "null")
        else:
            target = put_decimal(target, timestamp[row])
        if batch.magic == 0:
            target = put(target, ',"timestamp_type":"NoTimestampType"')
        elif batch.attributes & LOG_APPEND_TIME_BIT:
            target = put(target, ',"timestamp_type":"LogAppendTime"')
        else:
            target = put(target, ',"timestamp_type":"CreateTime"')
        if batch.base_sequence > NO_SEQUENCE:
            sequence = _sequence(types.int64(batch.base_sequence), offset[row] - batch.base_offset)
            target = put_decimal(put(target, ',"sequence":'), sequence)
        target = put(target, ',"key')
        target = _put_json_value(source + key_position[row], types.int64(key_length[row]), source_end, target, limit)
        if target == FULL:
            break
        target = put(target, ',"value')
        target = _put_json_value(
            source + value_position[row], types.int64(value_length[row]), source_end, target, limit
        )
        if target == FULL:
            break
        target = put(target, ',"headers":[')
        if header_count[row] > 0:
            target = _put_json_headers(
                source + headers_position[row], types.int64(header_count[row]), source_end, target, limit
            )
            if target == FULL:
                break
        done = put(target, "]}\n")
        row += 1
    return row, done - begin


@device
def _put_quoted(source, length, source_end, target, limit, max_bytes):
    """A byte string in quotes, or null. Of one longer than `max_bytes`: the beginning, and how many bytes are left."""
    if target > limit:
        return types.int64(FULL)
    if length < 0:
        return put(target, "null")
    shown = length
    if length > max_bytes:
        shown = max_bytes
        # Up to three bytes back to where a character starts; bytes that are not text are cut anywhere.
        while shown > 0 and max_bytes - shown < 3 and load_byte(source + shown) & 0xC0 == 0x80:
            shown -= 1
    target = put_text(source, source + shown, source_end, put(target, '"'), limit, ESCAPED)
    if target != FULL:
        target = put(target, '"')
        if shown < length:
            target = put(put_decimal(put(target, "…(+"), length - shown), " bytes)")
    return target


@device
def _put_headers(source, count, source_end, target, limit, max_bytes):
    for _ in range(count):
        length, source = _read_varint(source)
        target = _put_quoted(source, length, source_end, put(target, " "), limit, max_bytes)
        if target == FULL:
            return target
        length, source = _read_varint(source + length)
        target = _put_quoted(source, length, source_end, put(target, "="), limit, max_bytes)
        if target == FULL:
            return target
        source += max(length, 0)
    return target


@kernel(
    _DONE(BYTES, *_COLUMNS, _INT32S, BATCH_ROWS, BYTES, types.int64, types.int64, types.int64, OUT_BYTES, types.int64)
)
def render_text(
    data,
    offset,
    timestamp,
    key_position,
    key_length,
    value_position,
    value_length,
    headers_position,
    header_count,
    batch_row,
    batches,
    prefix,
    offset_width,
    max_bytes,
    row,
    out,
    position,
):
    """A line for people for each of the rows from `row` on, to out[position:]; the result is that of `render_json`.

    `prefix` starts every line; offsets are padded to `offset_width`, at most MAX_OFFSET_WIDTH; of each key and value
    no more than `max_bytes` are shown.
    """
    source, source_end = address_of(data), address_of(data) + len(data)
    prefix_source, prefix_end = address_of(prefix), address_of(prefix) + len(prefix)
    begin = address_of(out)
    limit = begin + len(out) - _MARGIN
    done = begin + position
    while row < len(offset):
        if done + len(prefix) > limit:
            break
        batch = batches[batch_row[row]]
        target = copy_bytes(prefix_source, len(prefix), prefix_end, done)
        target = put_padded(put(target, "offset "), offset[row], offset_width)
        target = put(target, "  ")
        if timestamp[row] == NO_TIMESTAMP:
            target = put(target, "no timestamp            ")
        else:
            target = put_time(target, timestamp[row])
        if batch.base_sequence > NO_SEQUENCE:
            sequence = _sequence(types.int64(batch.base_sequence), offset[row] - batch.base_offset)
            target = put_decimal(put(target, "  sequence "), sequence)
        target = put(target, "  key ")
        key = source + key_position[row]
        target = _put_quoted(key, types.int64(key_length[row]), source_end, target, limit, max_bytes)
        if target == FULL:
            break
        target = put(target, "  value ")
        value = source + value_position[row]
        target = _put_quoted(value, types.int64(value_length[row]), source_end, target, limit, max_bytes)
        if target == FULL:
            break
        if header_count[row] > 0:
            target = put(target, "  headers")
            headers = source + headers_position[row]
            target = _put_headers(headers, types.int64(header_count[row]), source_end, target, limit, max_bytes)
            if target == FULL:
                break
        done = put(target, "\n")
        row += 1
    return row, done - begin
