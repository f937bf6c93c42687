"""Which part of a log can be compacted, what keeps the rest, and when a compaction starts by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from duralog.config import TopicConfig
from duralog.errors import CorruptRecord
from duralog.storage.compaction.cleanable import CleaningLimit, DirtyRange, dirty_range

NOW_MS = 1_800_000_000_000
OLD_MS = NOW_MS - 1_000_000


@dataclass
class Segment:
    base_offset: int
    size_bytes: int = 100
    largest_timestamp_ms: int = OLD_MS
    first_timestamp_ms: int | None = OLD_MS


def look(*segments: Segment, **options: Any) -> DirtyRange:
    """A log of segments with ten offsets each, if nothing else is said."""
    configs = {name.replace("_", "."): options.pop(name) for name in list(options) if name in _CONFIGS}
    end_offset = options.pop("end_offset", segments[-1].base_offset + 5)
    defaults = {
        "start_offset": segments[0].base_offset,
        "end_offset": end_offset,
        "last_stable_offset": end_offset,
        "checkpoint": None,
        "config": TopicConfig().with_overrides({"cleanup.policy": "compact", **configs}),
        "now_ms": NOW_MS,
    }
    return dirty_range(segments, **{**defaults, **options})


_CONFIGS = ("min_compaction_lag_ms", "max_compaction_lag_ms", "min_cleanable_dirty_ratio")


def three(**options: Any) -> DirtyRange:
    return look(Segment(0), Segment(10), Segment(20), **options)


# Where the new part begins


def test_a_log_that_was_never_compacted_is_new_from_its_start() -> None:
    found = three()
    assert (found.first_dirty_offset, found.correction) == (0, None)
    assert (found.clean_bytes, found.cleanable_bytes, found.dirty_ratio) == (0, 200, 1.0)


@pytest.mark.parametrize("checkpoint", [0, 7, 25])
def test_the_new_part_begins_at_the_checkpoint(checkpoint: int) -> None:
    found = three(checkpoint=checkpoint)
    assert (found.first_dirty_offset, found.correction) == (checkpoint, None)


def test_a_checkpoint_below_the_start_is_corrected_to_the_start() -> None:
    found = look(Segment(10), Segment(20), start_offset=12, checkpoint=11)
    assert found.first_dirty_offset == 12
    assert found.correction == "it was compacted up to offset 11, but starts at 12"


def test_a_checkpoint_above_the_end_makes_all_of_the_log_new() -> None:
    found = three(checkpoint=26)
    assert found.first_dirty_offset == 0
    assert found.correction == "it was compacted up to offset 26, but ends at 25: all of it counts as new"


# Where the part that can be compacted ends


def test_the_active_segment_is_left_alone() -> None:
    found = three().first_uncleanable
    assert (found.offset, found.limit, found.cleanable_from_ms) == (20, CleaningLimit.ACTIVE_SEGMENT, None)
    assert found.reason() == "the active segment starts at offset 20"


def test_a_log_of_one_segment_has_nothing_to_compact() -> None:
    found = look(Segment(0))
    assert (found.first_uncleanable.offset, found.cleanable_bytes, found.dirty_ratio) == (0, 0, 0.0)
    assert not found.is_eligible
    assert found.why_not() == "nothing can be compacted from offset 0 on: the active segment starts at offset 0"


@pytest.mark.parametrize(("stable", "offset"), [(19, 10), (10, 10), (9, 0), (0, 0)])
def test_the_segment_with_the_last_stable_offset_is_left_alone_as_a_whole(stable: int, offset: int) -> None:
    found = three(last_stable_offset=stable).first_uncleanable
    assert (found.offset, found.limit) == (offset, CleaningLimit.OPEN_TRANSACTION)
    assert found.reason() == f"a transaction is open since offset {stable}"


def test_a_transaction_that_is_open_in_the_active_segment_changes_nothing() -> None:
    assert three(last_stable_offset=20).first_uncleanable.limit is CleaningLimit.ACTIVE_SEGMENT


def test_a_segment_with_a_record_that_is_too_young_is_left_alone_and_those_behind_it() -> None:
    segments = Segment(0), Segment(10, largest_timestamp_ms=NOW_MS - 400), Segment(20), Segment(30)
    found = look(*segments, min_compaction_lag_ms=1000).first_uncleanable
    assert (found.offset, found.limit, found.cleanable_from_ms) == (10, CleaningLimit.COMPACTION_LAG, NOW_MS + 600)
    assert "the segment at offset 10 is 400 ms old, min.compaction.lag.ms is 1000" in found.reason()


def test_a_segment_can_be_compacted_at_the_reported_time() -> None:
    segments = Segment(0), Segment(10, largest_timestamp_ms=NOW_MS - 400), Segment(20)
    at_ms = look(*segments, min_compaction_lag_ms=1000).first_uncleanable.cleanable_from_ms
    assert at_ms is not None
    assert look(*segments, min_compaction_lag_ms=1000, now_ms=at_ms - 1).first_uncleanable.offset == 10
    assert look(*segments, min_compaction_lag_ms=1000, now_ms=at_ms).first_uncleanable.offset == 20


def test_the_age_of_what_was_compacted_before_does_not_count() -> None:
    segments = Segment(0, largest_timestamp_ms=NOW_MS), Segment(10), Segment(20)
    assert look(*segments, checkpoint=10, min_compaction_lag_ms=1000).first_uncleanable.offset == 20
    assert look(*segments, checkpoint=9, min_compaction_lag_ms=1000).first_uncleanable.offset == 0


def test_the_lowest_of_the_limits_counts() -> None:
    segments = Segment(0), Segment(10, largest_timestamp_ms=NOW_MS), Segment(20)
    assert look(*segments, min_compaction_lag_ms=1, last_stable_offset=12).first_uncleanable.limit is (
        CleaningLimit.COMPACTION_LAG
    )
    assert look(*segments, min_compaction_lag_ms=1, last_stable_offset=9).first_uncleanable.limit is (
        CleaningLimit.OPEN_TRANSACTION
    )


def test_the_end_is_never_looked_for_below_the_segment_with_the_first_dirty_offset() -> None:
    found = three(checkpoint=15, last_stable_offset=3)
    assert (found.first_dirty_offset, found.first_uncleanable.offset) == (15, 10)
    assert found.cleanable_bytes == 0


# How dirty it is


def test_a_segment_that_is_half_new_counts_on_both_sides() -> None:
    found = look(Segment(0, 1000), Segment(10, 300), Segment(20, 200), Segment(30), checkpoint=15)
    assert (found.clean_bytes, found.cleanable_bytes) == (1300, 500)
    assert found.dirty_ratio == pytest.approx(500 / 1800)


def test_a_log_that_is_clean_up_to_its_active_segment_has_nothing_to_compact() -> None:
    found = three(checkpoint=20)
    assert (found.clean_bytes, found.cleanable_bytes, found.dirty_ratio) == (200, 0, 0.0)


def test_a_checkpoint_inside_the_active_segment_leaves_nothing_to_compact() -> None:
    found = three(checkpoint=22)
    assert (found.clean_bytes, found.cleanable_bytes) == (300, 0)


def test_segments_without_bytes_have_no_ratio() -> None:
    assert look(Segment(0, 0), Segment(10, 0), Segment(20, 0)).dirty_ratio == 0.0


def test_compaction_starts_above_the_ratio_and_not_at_it() -> None:
    assert not three(checkpoint=10, min_cleanable_dirty_ratio=0.5).is_eligible
    assert three(checkpoint=10, min_cleanable_dirty_ratio=0.49).is_eligible
    assert three(checkpoint=10, min_cleanable_dirty_ratio=0.5).why_not() == (
        "50.0% of the log is new, compaction starts above min.cleanable.dirty.ratio (50.0%)"
    )
    assert three(checkpoint=10, min_cleanable_dirty_ratio=0.49).why_not() is None


def test_a_ratio_of_zero_does_not_start_a_compaction_of_nothing() -> None:
    assert not three(checkpoint=20, min_cleanable_dirty_ratio=0).is_eligible


# Overdue


def test_a_record_that_has_waited_too_long_starts_a_compaction_whatever_the_ratio() -> None:
    late = three(checkpoint=10, min_cleanable_dirty_ratio=1, max_compaction_lag_ms=999_999)
    assert (late.overdue_ms, late.is_eligible) == (1, True)
    in_time = three(checkpoint=10, min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1_000_000)
    assert (in_time.overdue_ms, in_time.is_eligible) == (0, False)


def test_what_is_overdue_but_cannot_be_compacted_starts_nothing() -> None:
    found = three(last_stable_offset=3, max_compaction_lag_ms=1)
    assert (found.overdue_ms > 0, found.is_eligible) == (True, False)


def test_only_the_first_timestamps_of_new_segments_that_are_closed_count() -> None:
    early = OLD_MS - 5000
    segments = (
        Segment(0, first_timestamp_ms=early),
        Segment(10, first_timestamp_ms=OLD_MS),
        Segment(20, first_timestamp_ms=-1),
        Segment(30, first_timestamp_ms=0),
        Segment(40, first_timestamp_ms=None),
        Segment(50, first_timestamp_ms=early),
    )
    assert look(*segments, checkpoint=10, max_compaction_lag_ms=1).overdue_ms == NOW_MS - 1 - OLD_MS
    assert look(*segments, checkpoint=9, max_compaction_lag_ms=1).overdue_ms == NOW_MS - 1 - early


class Unreadable(Segment):
    """Its first batch is damaged."""

    @property
    def first_timestamp_ms(self) -> int | None:
        raise CorruptRecord("no batch")

    @first_timestamp_ms.setter
    def first_timestamp_ms(self, value: int | None) -> None: ...


def test_without_a_limit_no_first_batch_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_segment: Segment) -> int:
        raise AssertionError

    monkeypatch.setattr(Unreadable, "first_timestamp_ms", property(read, lambda *_: None))
    assert look(Unreadable(0), Unreadable(10)).overdue_ms == 0


def test_an_unreadable_first_batch_gives_no_time() -> None:
    segments = Segment(0, first_timestamp_ms=OLD_MS + 5), Unreadable(10), Segment(20), Segment(30)
    assert look(*segments, max_compaction_lag_ms=1).overdue_ms == NOW_MS - 1 - OLD_MS
