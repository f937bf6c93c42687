"""The order of segments: a value that is replaced, not changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segment_files import SegmentFiles
from duralog.storage.segment.segments import Segments


def segment(base_offset: int, size_bytes: int = 10) -> Segment:
    """Nothing of it is on disk, and nothing here asks for that."""
    return Segment(SegmentFiles(LocalFileSystem(), "/nowhere", base_offset), size_bytes=size_bytes, created_ms=0)


@pytest.fixture
def segments() -> Segments:
    return Segments([segment(200), segment(0), segment(100, size_bytes=5)])


def bases(segments: object) -> list[int]:
    return [one.base_offset for one in segments]  # type: ignore[attr-defined]


def test_they_are_in_order(segments: Segments) -> None:
    assert bases(segments) == [0, 100, 200]
    assert segments.first.base_offset == 0
    assert segments.active.base_offset == 200
    assert bases(segments.inactive) == [0, 100]
    assert len(segments) == 3
    assert segments[1].base_offset == 100
    assert bases(segments[1:]) == [100, 200]
    assert segments.size_bytes == 25
    assert repr(segments) == "Segments([0, 100, 200])"


@pytest.mark.parametrize(
    ("offset", "floor", "higher", "from_floor"),
    [
        (-1, None, 0, [0, 100, 200]),
        (0, 0, 100, [0, 100, 200]),
        (99, 0, 100, [0, 100, 200]),
        (100, 100, 200, [100, 200]),
        (199, 100, 200, [100, 200]),
        (200, 200, None, [200]),
        (10**18, 200, None, [200]),
    ],
)
def test_finding_by_offset(
    segments: Segments, offset: int, floor: int | None, higher: int | None, from_floor: list[int]
) -> None:
    found = segments.floor(offset)
    assert (None if found is None else found.base_offset) == floor
    found = segments.higher(offset)
    assert (None if found is None else found.base_offset) == higher
    assert bases(segments.from_floor(offset)) == from_floor


def test_the_one_after_another_that_may_be_gone(segments: Segments) -> None:
    first, second, third = segments
    assert segments.after(first) is second
    assert segments.after(third) is None
    assert segments.removed([second]).after(second) is third


def test_changes_give_a_new_value(segments: Segments) -> None:
    first, second, third = segments
    more = segments.added(segment(150))
    assert bases(more) == [0, 100, 150, 200]
    assert bases(segments.removed([first, third])) == [100]
    assert bases(segments.replaced([first, second], [segment(0)])) == [0, 200]
    assert bases(segments) == [0, 100, 200]


def test_a_base_offset_occurs_once(segments: Segments) -> None:
    with pytest.raises(ValueError, match="same base offset"):
        segments.added(segment(100))


def test_ten_thousand_segments_open_no_file(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    many = Segments(Segment(SegmentFiles(fs, str(tmp_path), 10 * n), size_bytes=1, created_ms=0) for n in range(10_000))
    assert many.floor(54_329) is many[5432]
    assert list(tmp_path.iterdir()) == []
