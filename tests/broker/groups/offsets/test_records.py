"""Records of committed offsets: the short way and the way of the tables give the same, whatever the bytes are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.broker.groups.offsets.records import (
    CommittedOffset,
    OffsetKey,
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from duralog.errors import CorruptRecord
from duralog.format.internal.coordinator_records import (
    CoordinatorRecord,
    decode_coordinator_record,
    encode_coordinator_record,
)
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.uuids import ZERO_UUID, uuid_bytes, uuid_text

names = st.text(max_size=40)
int64s = st.integers(-(2**63), 2**63 - 1)
keys = st.builds(OffsetKey, names, names, st.integers(-(2**31), 2**31 - 1))
values = st.builds(
    CommittedOffset,
    int64s,
    st.integers(-(2**31), 2**31 - 1),
    st.text(max_size=300),
    int64s,
    st.none(),
    st.none() | st.uuids().filter(lambda found: found.int != 0),
    st.integers(0, 2**40),
)


def by_tables(key: bytes, value: bytes | None) -> CoordinatorRecord:
    return decode_coordinator_record(CONSUMER_OFFSETS_TYPES, key, value)


@given(keys, values)
def test_both_ways_write_and_read_the_same(key: OffsetKey, value: CommittedOffset) -> None:
    key_bytes, value_bytes = encode_offset_key(key), encode_offset_value(value)
    record = by_tables(key_bytes, value_bytes)
    assert record.key == {"group": key.group_id, "topic": key.topic, "partition": key.partition}
    assert (record.type_name, record.version) == ("OffsetCommit", 4)
    assert isinstance(record.value, dict)
    assert record.value["topic_id"] == (ZERO_UUID if value.topic_id is None else uuid_text(value.topic_id.bytes))
    assert encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record) == (key_bytes, value_bytes)
    assert decode_offset_key(key_bytes) == key
    assert decode_offset_value(key_bytes, value_bytes, value.record_offset) == value


@given(keys, values, int64s.filter(lambda time: time != -1))
def test_a_retention_time_makes_version_1(key: OffsetKey, value: CommittedOffset, expire_ms: int) -> None:
    key_bytes = encode_offset_key(key)
    value_bytes = encode_offset_value(value._replace(expire_timestamp_ms=expire_ms))
    record = by_tables(key_bytes, value_bytes)
    assert record.version == 1
    assert encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record) == (key_bytes, value_bytes)
    expected = value._replace(expire_timestamp_ms=expire_ms, leader_epoch=-1, topic_id=None)
    assert decode_offset_value(key_bytes, value_bytes, value.record_offset) == expected


@given(keys, values, st.data())
def test_damaged_bytes_are_read_as_the_tables_read_them(
    key: OffsetKey, value: CommittedOffset, data: st.DataObject
) -> None:
    key_bytes = encode_offset_key(key)
    damaged = bytearray(encode_offset_value(value))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(2, len(damaged)))]
    try:
        record = by_tables(key_bytes, bytes(damaged))
    except CorruptRecord as expected:
        with pytest.raises(CorruptRecord, match=re.escape(str(expected))):
            decode_offset_value(key_bytes, bytes(damaged), 0)
        return
    decoded = decode_offset_value(key_bytes, bytes(damaged), 0)
    if isinstance(record.value, bytes):
        assert decoded is None
        return
    assert decoded is not None
    assert record.value is not None
    assert (decoded.offset, decoded.metadata) == (record.value["offset"], record.value["metadata"])
    topic_id = record.value.get("topic_id", ZERO_UUID)
    assert decoded.topic_id == (None if topic_id == ZERO_UUID else UUID(bytes=uuid_bytes(topic_id)))


@given(st.binary(max_size=60))
def test_keys_that_are_none(data: bytes) -> None:
    key_bytes = b"\0\1" + data
    try:
        record = by_tables(key_bytes, None)
    except CorruptRecord:
        with pytest.raises(CorruptRecord):
            decode_offset_key(key_bytes)
        return
    assert isinstance(record.key, Mapping)
    assert decode_offset_key(key_bytes) == OffsetKey(*record.key.values())
