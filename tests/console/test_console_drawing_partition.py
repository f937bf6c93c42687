"""The picture of a partition: to scale, complete, and with labels that can be read, whatever the log is like."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from datetime import UTC
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.console.drawing.mark_labels import Mark, Name, place
from duralog.console.drawing.partition_axis import AxisKind, axis_for, round_step, suggested_axis
from duralog.console.drawing.partition_blocks import THINNEST, Zone, blocks_of, zones_of
from duralog.console.drawing.partition_figures import time_range
from duralog.console.drawing.partition_picture import Picture, draw, marks_of
from duralog.console.facts.partitions import PartitionFacts, SegmentFacts

WIDTHS = (280, 360, 960, 1280)
NOW_MS = 1_700_000_000_000


def segment(base: int, end: int, size: int = 1_000, *, is_active: bool = False, **fields: object) -> SegmentFacts:
    return SegmentFacts(
        base_offset=base,
        next_offset=end,
        size_bytes=size,
        is_active=is_active,
        is_clean=bool(fields.get("is_clean", False)),
        first_timestamp_ms=NOW_MS + base,
        largest_timestamp_ms=NOW_MS + end,
        files=((f"{base:020d}.log", size),),
        index_entries=1,
        time_index_entries=1,
        index_density_bytes=float(size),
    )


def partition(
    segments: list[SegmentFacts],
    *,
    start: int | None = None,
    dirty: int | None = None,
    uncleanable: int | None = None,
    stable: int | None = None,
    end: int | None = None,
) -> PartitionFacts:
    last = segments[-1].next_offset if end is None else end
    return PartitionFacts(
        topic="t",
        partition=0,
        start_offset=segments[0].base_offset if start is None else start,
        end_offset=last,
        high_watermark=last,
        last_stable_offset=last if stable is None else stable,
        policy="compact",
        size_bytes=sum(one.size_bytes for one in segments),
        segments=tuple(segments),
        first_timestamp_ms=NOW_MS,
        latest_timestamp_ms=NOW_MS + 60_000,
        configs={},
        history=(),
        first_dirty_offset=dirty,
        first_uncleanable_offset=uncleanable,
    )


def in_a_row(*sizes: tuple[int, int], start: int = 0) -> list[SegmentFacts]:
    """Segments with these numbers of offsets and bytes, one after the other; the last one is active."""
    edges = list(itertools.accumulate((offsets for offsets, _ in sizes), initial=start))
    return [
        segment(base, end, size, is_active=number == len(sizes) - 1)
        for number, ((base, end), (_, size)) in enumerate(zip(itertools.pairwise(edges), sizes, strict=True))
    ]


def parsed(picture: Picture) -> ElementTree.Element:
    """Not well-formed SVG raises."""
    return ElementTree.fromstring(picture.svg)


def segments_drawn(picture: Picture) -> list[ElementTree.Element]:
    return [one for one in parsed(picture).iter() if one.get("data-testid") == "segment"]


def test_blocks_are_as_wide_as_their_offsets() -> None:
    facts = partition(in_a_row((500, 10), (250, 10), (250, 10)))
    picture = draw(facts, AxisKind.OFFSETS, 1002)
    assert [(block.left, block.right) for block in picture.blocks] == [(0, 500), (500, 750), (750, 1000)]


def test_blocks_are_as_wide_as_their_bytes_on_the_other_axis() -> None:
    facts = partition(in_a_row((900, 100), (50, 800), (50, 100)))
    picture = draw(facts, AxisKind.BYTES, 1002)
    assert [(block.left, block.right) for block in picture.blocks] == [(0, 100), (100, 900), (900, 1000)]
    assert {block.height for block in picture.blocks} == {1.0}


def test_blocks_are_as_high_as_their_bytes_for_each_offset() -> None:
    picture = draw(partition(in_a_row((400, 100), (400, 400), (200, 200))), AxisKind.OFFSETS, 1002)
    assert [block.height for block in picture.blocks] == [0.25, 1.0, 1.0]


def test_one_dense_sliver_does_not_flatten_the_rest() -> None:
    picture = draw(partition(in_a_row((500, 500), (5, 500_000), (495, 495))), AxisKind.OFFSETS, 1002)
    assert [block.height for block in picture.blocks] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", AxisKind)
def test_five_thousand_segments_are_few_blocks_with_every_segment_in_one(width: int, kind: AxisKind) -> None:
    facts = partition(in_a_row(*[(10, 1_000 + number % 7) for number in range(5_000)]))
    picture = draw(facts, kind, width)
    assert len(picture.blocks) <= width / THINNEST + 1
    assert [one for block in picture.blocks for one in block.segments] == list(facts.segments)
    assert len(picture.svg) < 200_000
    assert len(segments_drawn(picture)) == len(picture.blocks)


@given(
    st.lists(st.tuples(st.integers(1, 10**12), st.integers(0, 2**31)), min_size=1, max_size=60),
    st.integers(0, 2**62),
    st.sampled_from(WIDTHS),
    st.sampled_from(AxisKind),
)
def test_any_log_is_drawn_in_order_and_within_the_picture(
    sizes: list[tuple[int, int]], start: int, width: int, kind: AxisKind
) -> None:
    facts = partition(in_a_row(*sizes, start=start))
    picture = draw(facts, kind, width)
    parsed(picture)
    assert [one for block in picture.blocks for one in block.segments] == list(facts.segments)
    edges = [edge for block in picture.blocks for edge in (block.left, block.right)]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= width
    assert all(0 <= block.height <= 1 for block in picture.blocks)


def test_one_giant_among_tiny_ones() -> None:
    facts = partition(in_a_row(*[(1, 100)] * 200, (10**9, 1 << 30), *[(1, 100)] * 200))
    picture = draw(facts, AxisKind.OFFSETS, 1000)
    giant = max(picture.blocks, key=lambda block: block.right - block.left)
    assert len(giant.segments) == 1
    assert giant.right - giant.left > 980
    assert len(picture.blocks[-1].segments) == 1
    assert picture.blocks[-1].is_active
    assert picture.blocks[-1].right - picture.blocks[-1].left == pytest.approx(THINNEST)


def test_an_empty_log_is_one_block_over_all_the_room() -> None:
    picture = draw(partition([segment(7, 7, 0, is_active=True)]), AxisKind.OFFSETS, 502)
    assert [(block.left, block.right) for block in picture.blocks] == [(0, 500)]
    assert 'class="tick"' not in picture.svg
    assert "no records" in (parsed(picture).get("aria-label") or "")


@pytest.mark.parametrize("kind", AxisKind)
def test_a_log_with_bytes_and_no_batch_is_drawn(kind: AxisKind) -> None:
    """Its first batch is damaged: no offset is known."""
    picture = draw(partition([segment(7, 7, 500, is_active=True)]), kind, 960)
    (block,) = picture.blocks
    assert (block.left, block.right) == (0, picture.axis.width)
    parsed(picture)


def test_without_files_there_is_a_bar_of_offsets() -> None:
    known = partition(in_a_row((100, 10)))
    facts = PartitionFacts(
        topic="t",
        partition=0,
        start_offset=50,
        end_offset=150,
        high_watermark=150,
        last_stable_offset=120,
        policy="",
        size_bytes=None,
        segments=(),
        first_timestamp_ms=None,
        latest_timestamp_ms=None,
        configs=known.configs,
        history=(),
    )
    picture = draw(facts, AxisKind.BYTES, 1002)
    assert picture.axis.kind is AxisKind.OFFSETS
    assert picture.blocks == ()
    assert [
        (one.get("x"), one.get("width")) for one in parsed(picture).iter() if one.get("class") == "plain unknown"
    ] == [("0", "1000")]


def test_zones_meet_at_the_marks() -> None:
    facts = partition(in_a_row((400, 1), (400, 1), (200, 1)), start=100, dirty=400, uncleanable=800)
    assert zones_of(facts) == [
        (0, 100, Zone.GONE),
        (100, 400, Zone.CLEAN),
        (400, 800, Zone.DIRTY),
        (800, 1000, Zone.WAITING),
    ]


@given(st.integers(0, 100), st.integers(-50, 200), st.integers(-50, 200), st.integers(0, 100))
def test_zones_cover_the_log_once_also_with_marks_outside_of_it(start: int, dirty: int, limit: int, span: int) -> None:
    segments = [segment(0, start + span, is_active=True)]
    zones = zones_of(partition(segments, start=start, dirty=dirty, uncleanable=limit))
    assert [low for low, _, _ in zones[1:]] == [high for _, high, _ in zones[:-1]]
    if zones:
        assert (zones[0][0], zones[-1][1]) == (0, start + span)


def test_a_block_is_cut_where_a_zone_ends_in_it() -> None:
    facts = partition(in_a_row((1000, 1), (1, 1)), dirty=250, uncleanable=1000)
    first = segments_drawn(draw(facts, AxisKind.OFFSETS, 1003))[0]
    colours = [(one.get("class"), float(one.get("x") or 0)) for one in first if one.get("class") in set(Zone)]
    assert [colour for colour, _ in colours] == ["clean", "dirty"]
    assert colours[1][1] == pytest.approx(250, abs=1)


def test_marks_at_one_offset_share_a_label() -> None:
    facts = partition(in_a_row((1000, 1)), dirty=0, uncleanable=600, stable=600)
    marks = marks_of(facts, axis_for(facts, AxisKind.OFFSETS, 1000))
    assert [[name.marker for name in mark.names] for mark in marks] == [
        ["log-start", "first-dirty"],
        ["first-uncleanable", "last-stable"],
        ["high-watermark", "log-end"],
    ]
    markers = re.findall(r'data-testid="marker-([a-z-]+)"', draw(facts, AxisKind.OFFSETS, 1000).svg)
    assert sorted(markers) == sorted(name.marker for mark in marks for name in mark.names)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.sampled_from(WIDTHS))
def test_labels_never_lie_on_each_other(places: list[float], width: int) -> None:
    names = (Name("a", "high watermark", "HW"), Name("b", "last stable", "LSO"))
    marks = [Mark(at * width, names[: 1 + number % 2], "1 234 567 890") for number, at in enumerate(places)]
    placed = place(marks, width)
    assert sorted(one.mark.at for one in placed) == sorted(mark.at for mark in marks)
    for first, second in itertools.combinations(placed, 2):
        if first.lane == second.lane:
            assert first.right <= second.left or second.right <= first.left
    assert all(one.left >= 0 and one.right <= width + 0.01 for one in placed)


@pytest.mark.parametrize("dirty", range(0, 1000, 50))
def test_lines_of_labels_do_not_cross_the_labels_below(dirty: int) -> None:
    facts = partition(in_a_row((1000, 1)), start=0, dirty=dirty, uncleanable=max(dirty, 950))
    placed = place(marks_of(facts, axis_for(facts, AxisKind.OFFSETS, 960)), 960)
    for higher in placed:
        for lower in placed:
            if lower.lane < higher.lane:
                assert not lower.left < higher.mark.at < lower.right


def test_bytes_are_suggested_where_offsets_would_squeeze_them() -> None:
    thin = in_a_row((10**9, 100), (1_000, 10_000), (1_000, 10_000))
    assert suggested_axis(partition(thin)) is AxisKind.BYTES
    assert suggested_axis(partition(in_a_row((1_000, 100), (1_000, 100)))) is AxisKind.OFFSETS
    assert suggested_axis(partition(in_a_row((10**9, 1 << 30)))) is AxisKind.OFFSETS


@given(st.integers(0, 2**63), st.integers(2, 20), st.booleans())
def test_steps_of_an_axis_are_few_and_not_too_few(span: int, wanted: int, in_bytes: bool) -> None:
    step = round_step(span, wanted, in_bytes=in_bytes)
    assert span // step <= wanted
    assert step == 1 or span // step >= wanted // 3


@pytest.mark.parametrize("width", WIDTHS)
def test_ticks_can_be_read_next_to_each_other(width: int) -> None:
    facts = partition(in_a_row((10**12, 100), (10**11, 100), start=10**13))
    ticks = axis_for(facts, AxisKind.OFFSETS, width).ticks()
    assert all(right - left > len(text) * 6 for (left, _), (right, text) in itertools.pairwise(ticks))


def test_times_are_below_and_do_not_touch() -> None:
    facts = partition(in_a_row(*[(100, 10)] * 300))
    svg = draw(facts, AxisKind.OFFSETS, 960, zone=UTC).svg
    places = [float(x) for x in re.findall(r'class="time" x="([\d.]+)"', svg)]
    assert len(places) >= 5
    assert all(right - left > 50 for left, right in itertools.pairwise(places))
    assert svg.count("22:13:20") == 1


def test_the_chosen_block_is_marked_and_takes_the_focus() -> None:
    facts = partition(in_a_row((100, 1), (100, 1), (100, 1)))
    drawn = segments_drawn(draw(facts, AxisKind.OFFSETS, 900, chosen=100))
    assert ["chosen" in (one.get("class") or "") for one in drawn] == [False, True, False]
    assert drawn[1].get("tabindex") == "0"


def test_heights_and_edges_of_no_segments() -> None:
    assert blocks_of((), axis_for(partition(in_a_row((1, 1))), AxisKind.OFFSETS, 100)) == []


def test_days_are_shown_where_the_log_crosses_midnight() -> None:
    late = [segment(0, 100), segment(100, 10_000_000, is_active=True)]
    svg = draw(partition(late), AxisKind.OFFSETS, 960, zone=UTC).svg
    assert "14 Nov 22:13" in svg
    assert "15 Nov 01:00" in svg


def test_the_range_of_times_is_that_of_all_segments() -> None:
    facts = replace(partition(in_a_row((100, 1), (100, 1))), latest_timestamp_ms=NOW_MS)
    late = replace(facts.segments[0], largest_timestamp_ms=NOW_MS + 500)
    assert time_range(replace(facts, segments=(late, facts.segments[1]))) == (NOW_MS, NOW_MS + 500)
    nothing = replace(facts, segments=(), first_timestamp_ms=None, latest_timestamp_ms=None)
    assert time_range(nothing) is None
