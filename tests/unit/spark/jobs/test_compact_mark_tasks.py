"""How the marks of a shuffled compaction are shared out among tasks: by the memory that they take."""

from __future__ import annotations

from duralog.spark.jobs.compaction.rows import SegmentToRead
from duralog.spark.jobs.compaction.shuffled import _mark_tasks


def segments(count: int, *, span: int, size_bytes: int) -> list[SegmentToRead]:
    return [
        SegmentToRead(
            number=number,
            base_offset=number * span,
            next_base_offset=(number + 1) * span,
            size_bytes=size_bytes,
            new_from=0,
            aborted=(),
        )
        for number in range(count)
    ]


def test_bits_count_however_small_the_segment_is() -> None:
    """A megabyte of them each, though there are just a thousand bytes of records."""
    assert _mark_tasks(segments(8, span=8 << 20, size_bytes=1000), 4 << 20) == (0, 0, 0, 0, 1, 1, 1, 1)


def test_offsets_that_lie_far_apart_count_as_their_records() -> None:
    assert _mark_tasks(segments(4, span=1 << 30, size_bytes=2 << 20), 4 << 20) == (0, 0, 1, 1)


def test_what_fits_nowhere_has_a_task_for_itself() -> None:
    assert _mark_tasks(segments(3, span=8 << 20, size_bytes=64 << 20), 100) == (0, 1, 2)
