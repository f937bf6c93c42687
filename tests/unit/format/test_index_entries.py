from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.index_entries import (
    AbortedTransaction,
    IndexRule,
    OffsetIndexEntry,
    TimeIndexEntry,
    decode_offset_index,
    decode_time_index,
    decode_transaction_index,
    encode_offset_index,
    encode_time_index,
    encode_transaction_index,
    index_entries,
    used_bytes,
)
from duralog.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY

BASE = 1000
OFFSETS = [OffsetIndexEntry(1007, 4200), OffsetIndexEntry(1019, 8500), OffsetIndexEntry(BASE + 2**31 - 1, 2**31 - 1)]
TIMES = [TimeIndexEntry(0, 1000), TimeIndexEntry(1700000000000, 1007), TimeIndexEntry(1700000000001, 1007)]
ABORTED = [
    AbortedTransaction(producer_id=7, first_offset=1001, last_offset=1010, last_stable_offset=1001),
    AbortedTransaction(producer_id=8, first_offset=1000, last_offset=1011, last_stable_offset=1012),
]


def faults_of(decode, data):
    """The entries that were accepted, and where each refused one stands."""
    refused: list[Any] = []
    entries = list(decode(data, BASE, on_corrupt=refused.append))
    return entries, [(error.fault, error.position) for error in refused]


def test_entries_are_relative_to_the_base_offset():
    assert encode_offset_index(OFFSETS[:1], BASE).hex() == "0000000700001068"
    assert encode_time_index(TIMES[1:2], BASE).hex() == "0000018bcfe5680000000007"
    assert encode_transaction_index(ABORTED[:1]).hex() == (
        "0000000000000000000700000000000003e900000000000003f200000000000003e9"
    )


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_was_encoded_is_decoded(kind):
    assert list(decode_offset_index(kind(encode_offset_index(OFFSETS, BASE)), BASE)) == OFFSETS
    assert list(decode_time_index(kind(encode_time_index(TIMES, BASE)), BASE)) == TIMES
    assert list(decode_transaction_index(kind(encode_transaction_index(ABORTED)), BASE)) == ABORTED


def test_an_empty_index_has_no_entries():
    assert list(decode_offset_index(b"", BASE)) == []
    assert list(decode_time_index(b"", BASE)) == []
    assert list(decode_transaction_index(b"", BASE)) == []


def test_the_zeros_of_an_untrimmed_index_are_no_entries():
    untrimmed = encode_offset_index(OFFSETS, BASE).ljust(10485760, b"\0")
    assert used_bytes(untrimmed, OFFSET_INDEX_ENTRY) == 24
    assert list(decode_offset_index(untrimmed, BASE)) == OFFSETS
    untrimmed = encode_time_index(TIMES, BASE).ljust(10485756, b"\0")
    assert used_bytes(untrimmed, TIME_INDEX_ENTRY) == 36
    assert list(decode_time_index(untrimmed, BASE)) == TIMES


def test_an_untrimmed_index_may_have_no_entry_at_all():
    assert used_bytes(bytes(80), OFFSET_INDEX_ENTRY) == 0
    assert list(decode_offset_index(bytes(80), BASE)) == []
    assert list(decode_time_index(bytes(120), BASE)) == []


@pytest.mark.parametrize("size", [0, 8, 24, (64 << 10) - 8, 64 << 10, (64 << 10) + 8, 200_000])
def test_megabytes_of_zeros_behind_the_entries(size: int) -> None:
    data = bytes(max(size - 1, 0)) + b"\1" * min(size, 1)
    for behind in (16, 64 << 10, (64 << 10) + 8, 1 << 20):
        assert used_bytes(memoryview(data + bytes(behind)), OFFSET_INDEX_ENTRY) == size


def test_an_entry_that_ends_in_zeros_is_not_cut():
    entries = [OffsetIndexEntry(1256, 0x10000), OffsetIndexEntry(1512, 0x1000000)]
    data = encode_offset_index(entries, BASE)
    assert used_bytes(data + bytes(16), OFFSET_INDEX_ENTRY) == 16
    assert list(decode_offset_index(data + bytes(16), BASE)) == entries


def test_a_single_time_entry_of_zeros_is_an_entry():
    assert list(decode_time_index(bytes(12), BASE)) == [TimeIndexEntry(0, BASE)]


def test_zeros_in_the_middle_are_damage():
    data = encode_offset_index(OFFSETS[:1], BASE) + bytes(8) + encode_offset_index(OFFSETS[1:], BASE)
    assert faults_of(decode_offset_index, data) == (OFFSETS, [(Fault.FIELD_VALUE, 8)])


@pytest.mark.parametrize(
    ("second", "is_good"),
    [
        (OffsetIndexEntry(1008, 4201), True),
        (OffsetIndexEntry(1007, 4201), False),
        (OffsetIndexEntry(1006, 4201), False),
        (OffsetIndexEntry(1008, 4200), False),
        (OffsetIndexEntry(1008, 4199), False),
    ],
)
def test_an_offset_index_rises(second, is_good):
    first = OffsetIndexEntry(1007, 4200)
    data = encode_offset_index([first, second], BASE)
    expected = ([first, second], []) if is_good else ([first], [(Fault.FIELD_VALUE, 8)])
    assert faults_of(decode_offset_index, data) == expected


@pytest.mark.parametrize(
    ("second", "is_good"),
    [
        (TimeIndexEntry(51, 1007), True),
        (TimeIndexEntry(51, 1008), True),
        (TimeIndexEntry(50, 1008), False),
        (TimeIndexEntry(49, 1008), False),
        (TimeIndexEntry(51, 1006), False),
    ],
)
def test_a_time_index_rises(second, is_good):
    first = TimeIndexEntry(50, 1007)
    data = encode_time_index([first, second], BASE)
    expected = ([first, second], []) if is_good else ([first], [(Fault.FIELD_VALUE, 12)])
    assert faults_of(decode_time_index, data) == expected


def test_the_first_entries_have_limits_too():
    assert faults_of(decode_offset_index, OFFSET_INDEX_ENTRY.pack(-1, 5)) == ([], [(Fault.FIELD_VALUE, 0)])
    assert faults_of(decode_offset_index, OFFSET_INDEX_ENTRY.pack(5, -1)) == ([], [(Fault.FIELD_VALUE, 0)])
    assert faults_of(decode_time_index, TIME_INDEX_ENTRY.pack(-1, 5)) == ([], [(Fault.FIELD_VALUE, 0)])
    assert faults_of(decode_time_index, TIME_INDEX_ENTRY.pack(5, -1)) == ([], [(Fault.FIELD_VALUE, 0)])


def test_a_transaction_index_rises_from_the_base_offset():
    data = encode_transaction_index(ABORTED)
    assert faults_of(decode_transaction_index, data + data[34:]) == (ABORTED, [(Fault.FIELD_VALUE, 68)])
    before = AbortedTransaction(producer_id=7, first_offset=1, last_offset=BASE - 1, last_stable_offset=1)
    assert faults_of(decode_transaction_index, encode_transaction_index([before])) == ([], [(Fault.FIELD_VALUE, 0)])


def test_a_transaction_index_has_version_0():
    data = bytearray(encode_transaction_index(ABORTED))
    data[35] = 1
    assert faults_of(decode_transaction_index, data) == (ABORTED[:1], [(Fault.FIELD_VALUE, 34)])


@pytest.mark.parametrize(
    ("decode", "data", "whole"),
    [
        (decode_offset_index, encode_offset_index(OFFSETS, BASE), 24),
        (decode_time_index, encode_time_index(TIMES, BASE), 36),
        (decode_transaction_index, encode_transaction_index(ABORTED), 68),
    ],
)
@pytest.mark.parametrize("left_over", [b"\0", b"\xff\xff\xff"])
def test_an_index_ends_after_a_whole_entry(decode, data, whole, left_over):
    good = list(decode(data, BASE))
    assert faults_of(decode, data + left_over) == (good, [(Fault.TRAILING_BYTES, whole)])
    decoded = decode(data + left_over, BASE)
    assert [next(decoded) for _ in good] == good
    with pytest.raises(CorruptRecord, match="ends inside an entry"):
        next(decoded)


def test_without_a_listener_the_first_fault_is_raised_after_the_good_entries():
    decoded = decode_offset_index(encode_offset_index(OFFSETS[:1] * 2, BASE), BASE)
    assert next(decoded) == OFFSETS[0]
    with pytest.raises(CorruptRecord) as caught:
        next(decoded)
    assert str(caught.value) == (
        "position 8: an offset index rises, but this entry does not "
        "(expected offset over 1007, position over 4200, found offset 1007, position 4200)"
    )


@pytest.mark.parametrize("offset", [BASE - 1, BASE + 2**31])
def test_an_offset_too_far_from_the_base_is_not_encoded(offset):
    with pytest.raises(InvalidRecord, match=str(offset)):
        encode_offset_index([OffsetIndexEntry(offset, 0)], BASE)
    with pytest.raises(InvalidRecord, match=str(offset)):
        encode_time_index([TimeIndexEntry(0, offset)], BASE)


@dataclass
class SomeBatch:
    position: int
    size_bytes: int
    last_offset: int
    max_timestamp_ms: int


def batches(*sizes_and_times):
    position, offset = 0, BASE
    for size_bytes, timestamp_ms in sizes_and_times:
        yield SomeBatch(position, size_bytes, offset + 9, timestamp_ms)
        position += size_bytes
        offset += 10


def test_an_entry_comes_when_more_than_the_interval_lies_before_the_batch():
    entries = list(index_entries(batches((4096, 5), (1, 6), (10, 7), (10, 8))))
    assert entries == [OffsetIndexEntry(1029, 4097), TimeIndexEntry(7, 1029), TimeIndexEntry(8, 1039)]


def test_one_large_batch_gives_none_itself_and_one_to_the_next():
    assert list(index_entries(batches((100000, 5)))) == [TimeIndexEntry(5, 1009)]
    assert list(index_entries(batches((100000, 5), (100000, 4)))) == [
        OffsetIndexEntry(1019, 100000),
        TimeIndexEntry(5, 1009),
    ]


def test_the_time_index_names_the_first_batch_that_reaches_the_largest_timestamp():
    entries = list(index_entries(batches((60, 5), (60, 9), (60, 9), (60, 7), (60, 9)), interval_bytes=100))
    assert entries == [OffsetIndexEntry(1029, 120), TimeIndexEntry(9, 1019), OffsetIndexEntry(1049, 240)]


def test_batches_without_timestamps_leave_the_time_index_empty():
    entries = list(index_entries(batches((60, -1), (60, -1)), interval_bytes=10))
    assert entries == [OffsetIndexEntry(1019, 60)]
    assert list(index_entries(batches())) == []


def test_the_rule_can_be_fed_batch_by_batch():
    rule = IndexRule(interval_bytes=100)
    first, second, third = batches((101, 3), (5, 3), (200, 4))
    assert rule.add(first) == (None, None)
    assert rule.add(second) == (OffsetIndexEntry(1019, 101), TimeIndexEntry(3, 1009))
    assert rule.add(third) == (None, None)
    assert rule.finish() == TimeIndexEntry(4, 1029)
    assert rule.finish() is None


@pytest.mark.parametrize(
    ("decode", "encode", "entry_bytes"),
    [
        (decode_offset_index, lambda entries: encode_offset_index(entries, BASE), 8),
        (decode_time_index, lambda entries: encode_time_index(entries, BASE), 12),
        (decode_transaction_index, encode_transaction_index, 34),
    ],
)
@given(data=st.binary(max_size=400))
def test_random_bytes_give_entries_that_can_be_encoded(decode, encode, entry_bytes, data):
    refused: list[Any] = []
    entries = list(decode(data, BASE, on_corrupt=refused.append))
    assert list(decode(encode(entries), BASE)) == entries
    assert all(0 <= error.position <= len(data) for error in refused)
    assert len(entries) + len(refused) <= len(data) // entry_bytes + 1
