"""Filters of a query: which partitions, offsets and times they leave out."""

from __future__ import annotations

import datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import VariantVal

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.offset_ranges import OffsetRange
from duralog.spark.source.far_times import FarTime, accept_far_times, refuse_far_times
from duralog.spark.source.pushed_filters import PushedFilters

ALL = {TopicPartition(topic, partition): OffsetRange(10, 100) for topic in ("ab", "b") for partition in range(3)}
TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)
NOON = datetime.datetime(2024, 5, 1, 12, 0, 0, 1_500, tzinfo=datetime.UTC)
NOON_MS = 1_714_564_800_001
DAY = datetime.timedelta(days=1)


def narrowed(*filters: Filter) -> dict[str, tuple[int, int]]:
    left = PushedFilters.of(filters).narrow(ALL)
    return {str(partition): (found.start_offset, found.end_offset) for partition, found in left.items()}


@pytest.mark.parametrize(
    ("filter_", "left"),
    [
        (EqualTo(TOPIC, "b"), {"b-0", "b-1", "b-2"}),
        (EqualNullSafe(TOPIC, "b"), {"b-0", "b-1", "b-2"}),
        (Not(EqualTo(TOPIC, "b")), {"ab-0", "ab-1", "ab-2"}),
        (In(TOPIC, ("b", "c")), {"b-0", "b-1", "b-2"}),
        (StringStartsWith(TOPIC, "a"), {"ab-0", "ab-1", "ab-2"}),
        (StringEndsWith(TOPIC, "b"), set(map(str, ALL))),
        (StringContains(TOPIC, "a"), {"ab-0", "ab-1", "ab-2"}),
        (GreaterThan(TOPIC, "ab"), {"b-0", "b-1", "b-2"}),
        (EqualTo(PARTITION, 1), {"ab-1", "b-1"}),
        (EqualTo(("Partition",), 1), {"ab-1", "b-1"}),
        (In(PARTITION, (0, 2, 7)), {"ab-0", "ab-2", "b-0", "b-2"}),
        (Not(In(PARTITION, (0, 2))), {"ab-1", "b-1"}),
        (GreaterThan(PARTITION, 1), {"ab-2", "b-2"}),
        (GreaterThanOrEqual(PARTITION, 2), {"ab-2", "b-2"}),
        (LessThan(PARTITION, 1), {"ab-0", "b-0"}),
        (LessThanOrEqual(PARTITION, 0), {"ab-0", "b-0"}),
        (IsNotNull(PARTITION), set(map(str, ALL))),
    ],
)
def test_partitions_are_left_out(filter_: Filter, left: set[str]) -> None:
    assert set(narrowed(filter_)) == left


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([EqualTo(OFFSET, 50)], (50, 51)),
        ([GreaterThan(OFFSET, 50)], (51, 100)),
        ([GreaterThanOrEqual(OFFSET, 50)], (50, 100)),
        ([LessThan(OFFSET, 50)], (10, 50)),
        ([LessThanOrEqual(OFFSET, 50)], (10, 51)),
        ([IsNotNull(OFFSET), GreaterThan(OFFSET, 20), LessThan(OFFSET, 30), LessThan(OFFSET, 40)], (21, 30)),
        ([GreaterThan(OFFSET, -5), LessThan(OFFSET, 1 << 62)], (10, 100)),
    ],
)
def test_offsets_are_cut(filters: list[Filter], found: tuple[int, int]) -> None:
    assert set(narrowed(*filters).values()) == {found}


@pytest.mark.parametrize(
    "filter_", [EqualTo(OFFSET, 5), LessThan(OFFSET, 3), GreaterThan(OFFSET, 200), LessThan(OFFSET, -1)]
)
def test_offsets_that_are_not_there_give_empty_ranges(filter_: Filter) -> None:
    assert all(start == end and start >= 10 for start, end in narrowed(filter_).values())


@pytest.mark.parametrize(
    ("filter_", "not_before_ms", "before_ms"),
    [
        (GreaterThan(TIMESTAMP, NOON), NOON_MS, None),
        (GreaterThanOrEqual(TIMESTAMP, NOON), NOON_MS, None),
        (EqualTo(TIMESTAMP, NOON), NOON_MS, NOON_MS + 1),
        (In(TIMESTAMP, (NOON + DAY, None, NOON)), NOON_MS, NOON_MS + 86_400_001),
        (LessThan(TIMESTAMP, NOON), None, NOON_MS + 1),
        (LessThanOrEqual(TIMESTAMP, NOON), None, NOON_MS + 1),
        (Not(GreaterThan(TIMESTAMP, NOON)), None, None),
        (GreaterThan(TIMESTAMP, NOON.replace(tzinfo=None)), None, None),
        (In(TIMESTAMP, (NOON, "noon")), None, None),
        (GreaterThan(TIMESTAMP, datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)), -315_619_200_000, None),
        (LessThan(TIMESTAMP, FarTime(253_402_318_799_999_001)), None, 253_402_318_800_000),
        (GreaterThan(TIMESTAMP, FarTime(-62_135_630_339_000_000)), -62_135_630_339_000, None),
        (In(TIMESTAMP, (NOON, FarTime(2**63 - 1))), NOON_MS, 9_223_372_036_854_776),
    ],
)
def test_times_prune(filter_: Filter, not_before_ms: int | None, before_ms: int | None) -> None:
    pushed = PushedFilters.of([filter_])
    assert (pushed.bounds.not_before_ms, pushed.bounds.before_ms) == (not_before_ms, before_ms)
    assert pushed.narrow(ALL) == ALL


def test_of_several_times_the_narrowest_count() -> None:
    lower = [GreaterThan(TIMESTAMP, NOON), GreaterThan(TIMESTAMP, NOON - DAY)]
    pushed = PushedFilters.of([*lower, LessThan(TIMESTAMP, NOON + DAY), LessThan(TIMESTAMP, NOON + 2 * DAY)])
    assert (pushed.bounds.not_before_ms, pushed.bounds.before_ms) == (NOON_MS, NOON_MS + 86_400_001)


@pytest.mark.parametrize(
    "filter_",
    [
        EqualTo(("value",), b"x"),
        IsNotNull(("key",)),
        IsNotNull(TIMESTAMP),
        EqualTo(("headers", "key"), "x"),
        EqualTo(TOPIC, None),
        EqualNullSafe(PARTITION, None),
        In(PARTITION, (1, None)),
        Not(In(PARTITION, (1, None))),
        EqualTo(PARTITION, True),
        EqualTo(PARTITION, 1.0),
        Not(EqualTo(OFFSET, 3)),
        In(OFFSET, (3, "4")),
        EqualTo(OFFSET, None),
        IsNull(OFFSET),
        Not(Not(EqualTo(("value",), b"x"))),
        IsNull(TOPIC),
        Not(IsNotNull(PARTITION)),
    ],
)
def test_what_is_not_understood_cuts_nothing(filter_: Filter) -> None:
    pushed = PushedFilters.of([filter_])
    assert pushed.narrow(ALL) == ALL
    assert (pushed.bounds.not_before_ms, pushed.bounds.before_ms) == (None, None)


def test_a_list_of_offsets_bounds_the_read() -> None:
    wanted = In(OFFSET, (30, 20, None))
    assert set(PushedFilters.of([wanted]).narrow(ALL).values()) == {OffsetRange(20, 31)}


# Times that Python cannot hold


def test_pyspark_decodes_far_times_only_while_they_are_accepted() -> None:
    never = VariantVal(bytes([12 << 2]) + (253_402_318_799_999_000).to_bytes(8, "little", signed=True), b"")
    noon = VariantVal(bytes([12 << 2]) + (NOON_MS * 1000).to_bytes(8, "little", signed=True), b"")
    accept_far_times()
    try:
        assert type(never.toPython()) is FarTime
        assert never.toPython() == 253_402_318_799_999_000
        assert noon.toPython() == NOON.replace(microsecond=1_000)
    finally:
        refuse_far_times()
    with pytest.raises(OverflowError):
        never.toPython()
    assert noon.toPython() == NOON.replace(microsecond=1_000)
