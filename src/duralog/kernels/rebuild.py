"""Compaction of batches: which records survive, and the batches that hold the rest, in one walk.

A v2 batch that loses nothing and needs no delete horizon is left alone. Any other one is written again, as Kafka's
writer would write its survivors: variable-length integers in their shortest form, no attributes, timestamps counted
from the first survivor's or from the delete horizon. The contents of a record do not change.

Messages of formats v0 and v1 always become v2 batches, as in Kafka. They come here with their records in that format
already, see `duralog.kernels.transcribe`; the magic in their row is still the old one.

Most batches are walked once. When the first record goes after others stayed, or a tombstone turns up that asks for a
delete horizon, the walk starts over, to write what it passed, or with the other base: twice at most.

The bytes are untrusted. Records are checked as in `duralog.kernels.decode`, in the same order, and the output has room
for the longest form that any survivor can take.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from duralog.errors import Fault
from duralog.format.layout import BATCH_V2, DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT, NO_TIMESTAMP
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, inlined, kernel
from duralog.kernels.decode import MIN_RECORD_BYTES, read_record, read_varint
from duralog.kernels.scan import BATCH_ROWS
from duralog.kernels.words import BYTES, OUT_BYTES
from duralog.kernels.writing import address_of, copy_bytes, put_varint, store_byte, varint_size

MAX_GROWTH = 10
"""How many bytes a record can grow by: nine for its timestamp delta, one for its length."""

KNOWN_ATTRIBUTES = 0x7F
"""The bits that have a meaning. Kafka's writer sets no other."""


class BatchVerdict(IntEnum):
    """What to do with a batch."""

    DROP = 0
    """All of it goes."""
    AS_IS = 1
    """Its bytes are copied as they are."""
    FILTER = 2
    """Its records are judged one by one. If none survives, it goes."""
    FILTER_KEEP_EMPTY = 3
    """The same, but its header stays if no record does."""
    EMPTY = 4
    """Its records go, its header stays."""
    CONTROL = 5
    """Its records stay."""
    CONTROL_EMPTIED = 6
    """Its records stay. It ends a transaction that has no records left, and gets a delete horizon if it has none."""


class BatchFate(IntEnum):
    """What became of it."""

    DROPPED = 0
    UNTOUCHED = 1
    REBUILT = 2
    EMPTIED = 3


class Tally(IntEnum):
    """What is counted on the way."""

    READ = 0
    KEPT = 1
    SUPERSEDED = 2
    EXPIRED = 3
    KEYLESS = 4
    KEPT_TOMBSTONES = 5


_DROPPED, _UNTOUCHED, _REBUILT, _EMPTIED = (int(fate) for fate in BatchFate)
_READ, _KEPT, _SUPERSEDED, _EXPIRED, _KEYLESS, _KEPT_TOMBSTONES = (int(tally) for tally in Tally)
_, _AS_IS, _FILTER, _FILTER_KEEP_EMPTY, _EMPTY, _CONTROL, _CONTROL_EMPTIED = (int(verdict) for verdict in BatchVerdict)

_NONE = int(Fault.NONE)
_RECORD_COUNT = int(Fault.RECORD_COUNT)
_TRAILING_BYTES = int(Fault.TRAILING_BYTES)

_HEADER_BYTES = BATCH_V2.size
_MAX_BATCH_BYTES = 2**31 - 2**25
"""What a length field can tell, less what a codec may add. A larger batch stays as it is."""
_LONGEST_VARINT = 5
_NULL = -1

_INT8S = types.Array(types.int8, 1, "C")
_INT64S = types.Array(types.int64, 1, "C")
_NUMBERS = types.Array(types.intp, 1, "C")


@device
def _headers_size(data, position, end, count):
    """The bytes of a record's headers in their shortest form, their count included."""
    size = np.int64(varint_size(count))
    for _ in range(2 * count):
        length, position = read_varint(data, position, end)
        size += varint_size(max(length, _NULL)) + max(length, 0)
        position += max(length, 0)
    return size


@device
def _put_headers(data, position, end, count, target):
    """Write them. REQUIRES: they were checked."""
    source = address_of(data)
    target = put_varint(target, count)
    for _ in range(2 * count):
        length, position = read_varint(data, position, end)
        target = put_varint(target, max(length, _NULL))
        if length > 0:
            target = copy_bytes(source + position, length, source + len(data), target)
            position += length
    return target


@inlined
def _put_record(data, record, timestamp_delta, offset_delta, target):
    """Write a record that was read, with these deltas. The result is the address after it."""
    _, end, _, _, key, key_length, value, told_length, headers, header_count = record
    source = address_of(data)
    source_end = source + len(data)
    key_length = max(key_length, _NULL)
    value_length = max(told_length, _NULL)
    key_end = key + max(key_length, 0)
    value_end = value + max(value_length, 0)
    value_length_size = np.int64(varint_size(value_length))
    # As nearly always: from the key to the end, the record is already as it would be written. (The longest form of an
    # integer may have bits that are not read.)
    is_plain = (
        header_count == 0
        and headers == value_end + 1
        and value_length == told_length
        and value == key_end + value_length_size
        and value_length_size < _LONGEST_VARINT
    )
    rest = end - key
    if not is_plain:
        rest = key_end - key + value_length_size + value_end - value + _headers_size(data, headers, end, header_count)
    body_size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(key_length) + rest
    target = put_varint(target, body_size)
    store_byte(target, 0)
    target = put_varint(target + 1, timestamp_delta)
    target = put_varint(target, offset_delta)
    target = put_varint(target, key_length)
    if is_plain:
        return copy_bytes(source + key, rest, source_end, target)
    target = copy_bytes(source + key, key_end - key, source_end, target)
    target = put_varint(target, value_length)
    target = copy_bytes(source + value, value_end - value, source_end, target)
    return _put_headers(data, headers, end, header_count, target)


@device
def _is_superseded(batch, marks, first_mark, end_mark):
    """Whether a batch has a record for each of its offsets, and all of them marked."""
    count = np.int64(batch.record_count)
    is_all = batch.magic == 2 and count > 0 and first_mark <= batch.base_offset <= batch.last_offset < end_mark
    is_all = is_all and batch.last_offset - batch.base_offset == count - 1
    mark = np.uint64(batch.base_offset - first_mark)
    end = mark + np.uint64(count)
    while is_all and mark < end:
        byte = marks[mark >> np.uint64(3)]
        if mark & np.uint64(7) == 0 and end - mark >= 8:
            is_all = byte == 0xFF
            mark += np.uint64(8)
        else:
            is_all = (byte >> np.uint8(mark & np.uint64(7))) & np.uint8(1) != 0
            mark += np.uint64(1)
    return is_all


@kernel(types.intp(BATCH_ROWS, _INT8S, BYTES, types.int64, types.int64, _INT8S, _INT64S, _NUMBERS))
def settle_batches(batches, verdicts, marks, first_mark, end_mark, fates, tallies, numbers):
    """Decide about the batches whose records need not be read, and count their records.

    The result is how many others there are. Their numbers are put into `numbers`, those of damaged batches with them.
    REQUIRES: a bit of `marks` for each offset from `first_mark` to before `end_mark`.
    """
    left = np.intp(0)
    for number in range(len(batches)):
        batch = batches[number]
        verdict = verdicts[number]
        is_filtered = verdict in (_FILTER, _FILTER_KEEP_EMPTY)
        is_read = batch.crc_ok == 0 or verdict >= _CONTROL
        is_read = is_read or (is_filtered and not _is_superseded(batch, marks, first_mark, end_mark))
        if is_read and verdict != _AS_IS:
            numbers[left] = number
            left += 1
            continue
        fate = _DROPPED
        if verdict == _AS_IS:
            fate = _UNTOUCHED
        elif verdict in (_EMPTY, _FILTER_KEEP_EMPTY) and batch.magic == 2:
            fate = _EMPTIED
        fates[number] = fate
        if batch.crc_ok != 0:
            count = max(np.int64(batch.record_count), np.int64(0))
            tallies[_READ] += count
            if fate == _UNTOUCHED:
                tallies[_KEPT] += count
            if is_filtered:
                tallies[_SUPERSEDED] += count
    return left


@kernel(
    types.UniTuple(types.int64, 5)(
        *(BYTES, _INT64S, _INT64S, BATCH_ROWS, _INT8S),
        *(_INT64S, types.boolean, BYTES, types.int64, types.int64),
        *(types.int64, types.int64, types.int64, types.boolean),
        *(types.int64, types.int64, types.int64, _INT8S, _INT64S, OUT_BYTES),
    )
)
def rebuild_batches(
    data,
    begins,
    ends,
    batches,
    verdicts,
    mapped,
    is_mapped,
    marks,
    first_mark,
    end_mark,
    latest_offset,
    round_ms,
    new_horizon_ms,
    keep_old_tombstones,
    number,
    next_mapped,
    filled,
    fates,
    tallies,
    out,
):
    """Judge batches from `number` on, and write those that change one after the other to `out`, from `filled` on.

    Returns (fault, number, next_mapped, filled, position): where to go on. With a fault, `number` and `position` are
    those of the fault, and nothing of that batch was counted or written.

    A batch that is rebuilt has its row completed, `position` counting in `out`, and room left for its header, which
    `seal_batches` writes. For an emptied one only the fate is set.

    Whether a later record has a record's key comes from `mapped`, the offset that the map has for each record with a
    key, one after the other; or from the marks, a bit for each offset from `first_mark` to before `end_mark`. An offset
    outside of them counts as latest. A horizon below 0 is none, as in Kafka. Formats v0 and v1 have none:
    with `keep_old_tombstones` theirs stay.

    REQUIRES: 0 <= begins[i] <= ends[i] <= len(data); the verdicts are those that need records; with `is_mapped`, an
    offset in `mapped` for each key of a sound batch; room in `out` for all headers, all records, MAX_GROWTH for each of
    them, and SLACK.
    """
    begin = address_of(out)
    target = begin + filled
    mark_count = np.uint64(max(end_mark - first_mark, 0))
    while number < len(batches):
        batch = batches[number]
        verdict = verdicts[number]
        keeps_all = verdict >= _CONTROL
        count = np.int64(batch.record_count)
        end = ends[number]
        start = target
        first_mapped = next_mapped
        if count < 0 or count * MIN_RECORD_BYTES > end - begins[number]:
            return _RECORD_COUNT, number, first_mapped, start - begin, begins[number]

        is_old = batch.magic < 2
        base_offset = batch.base_offset
        new_base_offset = last_offset = base_offset
        base_timestamp = batch.base_timestamp
        delta_mask = np.int64(-1)
        has_horizon = batch.attributes & DELETE_HORIZON_BIT != 0
        keeps_tombstones = keep_old_tombstones if is_old else not has_horizon or round_ms < base_timestamp
        horizon_ms = base_timestamp if has_horizon else np.int64(-1)
        if batch.attributes & LOG_APPEND_TIME_BIT:
            base_timestamp = batch.max_timestamp
            delta_mask = np.int64(0)
        is_writing = is_old
        if verdict == _CONTROL_EMPTIED and not has_horizon:
            has_horizon = True
            horizon_ms = new_horizon_ms
            is_writing = True

        position = begins[number]
        new_base = horizon_ms
        record = kept = superseded = expired = keyless = tombstones = np.int64(0)
        max_timestamp = np.int64(NO_TIMESTAMP)
        target = start + _HEADER_BYTES
        while record < count:
            found = read_record(data, position, end)
            fault, record_end, timestamp_delta, offset_delta, _, key_length, _, value_length, _, _ = found
            if fault != _NONE:
                return fault, number, first_mapped, start - begin, position
            position = record_end
            record += 1
            offset = base_offset + offset_delta
            is_latest = True
            if is_mapped:
                if key_length >= 0:
                    # Of a batch that turns out to be damaged further on, there are no offsets.
                    if next_mapped < len(mapped):
                        is_latest = offset >= mapped[np.uintp(next_mapped)]
                    next_mapped += 1
            else:
                mark = np.uint64(offset - first_mark)
                if mark < mark_count:
                    is_latest = (marks[mark >> np.uint64(3)] >> np.uint8(mark & np.uint64(7))) & np.uint8(1) == 0

            starts_over = False
            stays = True
            if not keeps_all and offset <= latest_offset:
                if key_length < 0:
                    keyless += 1
                    stays = False
                elif not is_latest:
                    superseded += 1
                    stays = False
                elif value_length < 0 and not keeps_tombstones:
                    expired += 1
                    stays = False
            if not stays:
                starts_over = kept > 0 and not is_writing
                is_writing = True
            elif value_length < 0 and not has_horizon:
                has_horizon = True
                horizon_ms = new_horizon_ms
                new_base = horizon_ms
                starts_over = kept > 0
                is_writing = True
            if starts_over:
                position = begins[number]
                next_mapped = first_mapped
                record = kept = superseded = expired = keyless = tombstones = np.int64(0)
                max_timestamp = np.int64(NO_TIMESTAMP)
                target = start + _HEADER_BYTES
                continue

            if stays:
                timestamp = base_timestamp + (timestamp_delta & delta_mask)
                max_timestamp = max(max_timestamp, timestamp)
                if is_writing:
                    if kept == 0:
                        if horizon_ms < 0:
                            new_base = timestamp
                        if is_old:
                            new_base_offset = offset
                    target = _put_record(data, found, timestamp - new_base, offset - new_base_offset, target)
                last_offset = offset
                kept += 1
                tombstones += value_length < 0

        if position != end:
            return _TRAILING_BYTES, number, first_mapped, start - begin, position
        fate = _UNTOUCHED
        if kept == 0 and not keeps_all:
            fate = _EMPTIED if verdict == _FILTER_KEEP_EMPTY and not is_old else _DROPPED
        elif kept > 0 and is_writing:
            if target - start <= _MAX_BATCH_BYTES:
                fate = _REBUILT
            else:
                kept = count
                superseded = expired = keyless = tombstones = np.int64(0)
        if fate == _REBUILT:
            if is_old:
                batch.magic = 2
                batch.base_offset = new_base_offset
                batch.last_offset = last_offset
            batch.position = start - begin
            batch.size = target - start
            batch.record_count = kept
            batch.base_timestamp = new_base
            batch.attributes &= KNOWN_ATTRIBUTES & ~DELETE_HORIZON_BIT
            if horizon_ms >= 0:
                batch.attributes |= DELETE_HORIZON_BIT
            if not batch.attributes & LOG_APPEND_TIME_BIT:
                batch.max_timestamp = max_timestamp
        else:
            target = start
        fates[number] = fate
        tallies[_READ] += count
        tallies[_KEPT] += kept
        tallies[_SUPERSEDED] += superseded
        tallies[_EXPIRED] += expired
        tallies[_KEYLESS] += keyless
        tallies[_KEPT_TOMBSTONES] += tombstones
        number += 1
    return _NONE, number, next_mapped, target - begin, np.int64(0)
