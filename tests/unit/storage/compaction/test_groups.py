"""Which segments become one: by the sizes of their logs and indexes, and by their range of offsets."""

from __future__ import annotations

from duralog.storage.compaction.rewriting import SegmentExtent, group_segments

LIMITS = {"segment_bytes": 1000, "index_bytes": 96}
INT32_MAX = 2**31 - 1


def extents(*sizes: tuple[int, int, int]) -> list[SegmentExtent]:
    return [
        SegmentExtent(
            base_offset=100 * place,
            last_offset=100 * place + 99,
            log_bytes=log,
            offset_index_bytes=offsets,
            time_index_bytes=times,
        )
        for place, (log, offsets, times) in enumerate(sizes)
    ]


def at(*offsets: tuple[int, int], log_bytes: int = 10) -> list[SegmentExtent]:
    return [
        SegmentExtent(
            base_offset=first, last_offset=last, log_bytes=log_bytes, offset_index_bytes=0, time_index_bytes=0
        )
        for first, last in offsets
    ]


def test_no_segments_no_groups() -> None:
    assert group_segments([], **LIMITS) == []


def test_logs_that_fit_together_exactly() -> None:
    assert group_segments(extents((400, 0, 0), (600, 0, 0), (1, 0, 0)), **LIMITS) == [2, 1]


def test_one_that_is_too_large_is_alone() -> None:
    assert group_segments(extents((1, 0, 0), (5000, 0, 0), (5000, 0, 0), (1, 0, 0), (1, 0, 0)), **LIMITS) == [
        1,
        1,
        1,
        2,
    ]


def test_empty_segments_join_any_group() -> None:
    assert group_segments(extents((0, 0, 0), (1000, 0, 0), (0, 0, 0), (0, 0, 0)), **LIMITS) == [4]


def test_each_index_has_to_fit() -> None:
    assert group_segments(extents((1, 48, 0), (1, 48, 0), (1, 8, 0)), **LIMITS) == [2, 1]
    assert group_segments(extents((1, 0, 48), (1, 0, 48), (1, 0, 12)), **LIMITS) == [2, 1]
    assert group_segments(extents((1, 48, 12), (1, 8, 84), (1, 8, 0)), **LIMITS) == [3]


def test_offsets_have_to_fit_32_bits_from_the_first_of_the_group() -> None:
    assert group_segments(at((0, 9), (10, INT32_MAX)), **LIMITS) == [2]
    assert group_segments(at((0, 9), (10, INT32_MAX + 1)), **LIMITS) == [1, 1]
    assert group_segments(at((7, 9), (10, INT32_MAX + 7), (INT32_MAX + 8, INT32_MAX + 9)), **LIMITS) == [2, 1]


def test_an_empty_segment_far_off_needs_no_room() -> None:
    far = at((0, 9)) + at((10, 1 << 40), log_bytes=0)
    assert group_segments(far, **LIMITS) == [2]
