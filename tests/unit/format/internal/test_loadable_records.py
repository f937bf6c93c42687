"""Which records of the coordinators' topics can be loaded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.broker.groups.offsets.records import CommittedOffset, OffsetKey, encode_offset_key, encode_offset_value
from duralog.errors import CorruptRecord, Fault
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from duralog.format.internal.loadable_records import decode_loadable, is_usual_commit, stops_kafka, unknown_reason
from duralog.format.internal.message_schema import MAX_ELEMENTS
from tests.support.broker.coordinator_cases import CASES, Case, Verdict, classic, group_record, offset_key, offset_value


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.topic} {case.name}")
def test_what_a_coordinator_makes_of_a_record(case: Case) -> None:
    key, value = case.make("g")
    if case.verdict is Verdict.UNLOADABLE:
        with pytest.raises(CorruptRecord):
            decode_loadable(case.topic, key, value)
        assert not is_usual_commit(key, value)
        return
    record = decode_loadable(case.topic, key, value)
    assert record.is_unknown == (case.verdict is Verdict.UNKNOWN)
    assert stops_kafka(case.topic, record) == (not case.kafka_goes_on)
    if record.is_unknown:
        assert not is_usual_commit(key, value)
        assert "not known" in unknown_reason(record)


def test_a_key_must_be_there() -> None:
    with pytest.raises(CorruptRecord, match="no key"):
        decode_loadable(CONSUMER_OFFSETS, None, b"\0\4")


def test_progress_of_share_groups_is_checked_too() -> None:
    with pytest.raises(CorruptRecord, match="ShareSnapshotKey"):
        decode_loadable(SHARE_GROUP_STATE, b"\0\0x", None)


def test_a_million_elements_are_too_many() -> None:
    """Each of them takes a byte there and a hundred in memory."""
    key = group_record(16, {"group_id": "g", "regular_expression": "a"}, None)[0]
    count = MAX_ELEMENTS + 2
    value = b"\0\0" + bytes((count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14)) + b"\1" * count
    with pytest.raises(CorruptRecord, match="the array topics has too many elements") as caught:
        decode_loadable(CONSUMER_OFFSETS, key, value)
    assert caught.value.fault is Fault.TOO_LARGE


NAMES = st.text(max_size=20)
KEYS = st.builds(OffsetKey, NAMES, NAMES, st.integers(-(2**31), 2**31 - 1))
INT64 = st.integers(-(2**63), 2**63 - 1)
COMMITS = st.builds(
    CommittedOffset,
    INT64,
    st.integers(-(2**31), 2**31 - 1),
    st.text(max_size=30),
    INT64,
    st.none(),
    st.none() | st.uuids(),
)


@given(KEYS, COMMITS | st.none())
def test_usual_commits_go_the_short_way(key: OffsetKey, commit: CommittedOffset | None) -> None:
    assert is_usual_commit(encode_offset_key(key), None if commit is None else encode_offset_value(commit))


@given(KEYS, COMMITS, st.data())
def test_the_short_way_lets_nothing_in_that_the_tables_refuse(
    key: OffsetKey, commit: CommittedOffset, data: st.DataObject
) -> None:
    changed = bytearray(encode_offset_key(key) + encode_offset_value(commit))
    cut = len(encode_offset_key(key))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(cut, len(changed)))
    encoded = bytes(changed[:cut]), bytes(changed[cut:end])
    if is_usual_commit(*encoded):
        assert not decode_loadable(CONSUMER_OFFSETS, *encoded).is_unknown


def test_long_names_go_the_long_way() -> None:
    long = "g" * 32_767
    assert is_usual_commit(offset_key(long), offset_value())
    assert not is_usual_commit(b"\0\1\x80\0" + bytes(0x8000) + b"\0\1t" + bytes(4), offset_value())
    assert not is_usual_commit(*classic("g"))
