"""What the charts of stats are drawn from: times, sizes and keys in counts that add up, whatever was in the log."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.statistics import key_popularity
from duralog.statistics.key_popularity import KeyTally, Popularity, RankedCounts
from duralog.statistics.record_shapes import RecordShape, TimeCounts, size_range

INT64 = st.integers(-(2**63), 2**63 - 1)
MONDAY_MS = 1_767_571_200_000
HOUR_MS = 3_600_000


def counted(times_ms: list[int]) -> TimeCounts:
    found = TimeCounts()
    found.add_times(np.array(times_ms, np.int64))
    return found


@given(st.lists(st.one_of(INT64, st.integers(MONDAY_MS, MONDAY_MS + 10**9)), max_size=60))
def test_every_record_is_in_a_bucket_or_counted_as_far_away(times_ms: list[int]) -> None:
    buckets = counted(times_ms).buckets()
    if not times_ms:
        assert buckets is None
        return
    assert buckets is not None
    assert sum(buckets.counts) + buckets.before + buckets.after == len(times_ms)
    assert 1 <= len(buckets.counts) <= 120
    assert buckets.counts[0]
    assert buckets.counts[-1]
    assert buckets.before + buckets.after <= 0.02 * len(times_ms)


@given(st.lists(st.lists(st.integers(0, 10**13), max_size=40), min_size=1, max_size=5))
def test_parts_add_up_to_the_whole(parts: list[list[int]]) -> None:
    total = TimeCounts()
    for part in parts:
        total.add(counted(part))
    whole = counted([time_ms for part in parts for time_ms in part])
    assert total.records == whole.records
    assert total.buckets() == whole.buckets()


def test_many_buckets_become_fewer_and_wider() -> None:
    times_ms = [MONDAY_MS + number * 1_000 for number in range(100_000)]
    found = TimeCounts()
    for first in range(0, len(times_ms), 1_000):
        found.add_times(np.array(times_ms[first : first + 1_000], np.int64))
    assert len(found.numbers) <= 2048
    assert found.records == len(times_ms)
    buckets = found.buckets()
    assert buckets is not None
    assert buckets.width_ms == 15 * 60_000
    assert buckets.counts[:3] == [900, 900, 900]


def test_a_record_from_another_age_does_not_flatten_the_others() -> None:
    times_ms = [0, *(MONDAY_MS + number * HOUR_MS // 1000 for number in range(5_000)), 9 * 10**15]
    buckets = counted(times_ms).buckets()
    assert buckets is not None
    assert (buckets.before, buckets.after) == (1, 1)
    assert buckets.width_ms <= HOUR_MS
    assert sum(buckets.counts) == 5_000


def test_sizes_have_a_bucket_for_each_power_of_two() -> None:
    shape = RecordShape()
    sizes = [0, 1, 2, 3, 4, 7, 8, 1023, 1024, 2**31 - 1, 2**32 - 2]
    shape.add_records(np.array(sizes, np.int64), np.empty(0, np.int64))
    for bucket, count in enumerate(shape.sizes.tolist()):
        low, high = size_range(bucket)
        assert count == sum(low <= size <= high for size in sizes), bucket
    assert shape.sizes.sum() == len(sizes)


def digests(names: list[int]) -> np.ndarray:
    return np.array([(name, 0) for name in names], np.uint64).reshape(-1, 2)


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=50), max_size=6), st.integers(0, 8), st.sampled_from([1, 7, 1 << 20])
)
def test_keys_are_counted_whatever_their_order(chunks: list[list[int]], frequent: int, waiting: int) -> None:
    tally = KeyTally()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_popularity, "_FEWEST_WAITING", waiting)
        offset = 0
        for chunk in chunks:
            tally.add(digests(chunk), np.arange(offset, offset + len(chunk), dtype=np.int64))
            offset += len(chunk)
    keys = [key for chunk in chunks for key in chunk]
    expected = Counter(keys)
    last_offset = {key: place for place, key in enumerate(keys)}
    found = tally.popularity(3, frequent)
    assert found.keys_by_records == Counter(expected.values())
    assert [key.records for key in found.frequent] == sorted(expected.values(), reverse=True)[:frequent]
    ranked = sorted(expected, key=lambda key: (-expected[key], last_offset[key]))
    assert [keys[key.offset] for key in found.frequent] == ranked[:frequent]
    for key in found.frequent:
        assert key.partition == 3
        assert last_offset[keys[key.offset]] == key.offset
        assert expected[keys[key.offset]] == key.records
    assert list(found.by_rank()) == sorted(expected.values(), reverse=True)


def test_ranks_of_many_keys_take_little_memory() -> None:
    ranked = RankedCounts({1: 10**9, 5: 10, 1000: 1})
    assert len(ranked) == 10**9 + 11
    assert [ranked[0], ranked[1], ranked[10], ranked[11], ranked[10**9 + 10]] == [1000, 5, 5, 1, 1]
    assert ranked[:3] == [1000, 5, 5]
    assert [ranked.records_of_first(count) for count in (0, 1, 3, 11, 13)] == [0, 1000, 1010, 1050, 1052]
    with pytest.raises(IndexError):
        ranked[10**9 + 11]
    assert len(RankedCounts({})) == 0


def test_partitions_are_put_together() -> None:
    total = Popularity()
    for partition, names in enumerate(([1, 1, 1, 2], [1, 1, 3])):
        tally = KeyTally()
        tally.add(digests(names), np.arange(len(names), dtype=np.int64))
        total.add(tally.popularity(partition, 2), 2)
    assert total.keys_by_records == {3: 1, 1: 2, 2: 1}
    assert [(key.records, key.partition) for key in total.frequent] == [(3, 0), (2, 1)]
