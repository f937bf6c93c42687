"""Upright bars, charts for two widths, and chapters of a page."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.cli.stats.chart_scales import time_labels, time_ticks
from duralog.cli.stats.html_report import Chapter, Section, Table, Tile, page
from duralog.cli.stats.svg_charts import AFTER, GONE, Lane, Part, fitted, lanes
from duralog.cli.stats.svg_columns import Column, columns, time_marks

MONDAY_MS = 1_767_571_200_000
HOSTILE = "<script>alert(\"1\")</script> & 'x'"


def bars_of(svg: str, kind: str) -> list[ElementTree.Element]:
    return [rect for rect in ElementTree.fromstring(svg).iter("rect") if rect.get("class") == kind]


def labels_of(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("text") if text.get("class") == "tick middle"]


def test_bars_are_as_high_as_what_they_stand_for() -> None:
    svg = columns(
        [Column(100, "a"), Column(0, "b"), Column(50, "c"), Column(0.001, "d")], name="x", labels=[], kind=GONE
    )
    heights = [float(rect.get("height", "")) for rect in bars_of(svg, GONE)]
    assert len(heights) == 3  # Nothing has no bar.
    assert heights[0] == pytest.approx(2 * heights[1], rel=0.01)
    assert heights[2] == 1  # Little is seen all the same.
    touched = bars_of(svg, "touch")
    assert [rect.findtext("title") for rect in touched] == ["a", "b", "c", "d"]
    assert columns([], name="none", labels=[]) == ""


@given(st.integers(1, 400), st.sampled_from([340, 720]))
def test_labels_do_not_touch_and_stay_inside(count: int, width: int) -> None:
    bars = [Column(number, str(number)) for number in range(count)]
    svg = columns(bars, name="x", labels=[(place + 0.5, "128 KiB") for place in range(count)], width=width)
    places = sorted(
        float(text.get("x", ""))
        for text in ElementTree.fromstring(svg).iter("text")
        if text.get("class") == "tick middle"
    )
    assert all(after - before >= 50 for before, after in pairwise(places))
    assert all(place <= width - 26 for place in places)


def test_times_below_the_bars() -> None:
    assert time_marks(MONDAY_MS, 3_600_000, 48) == [
        *((0.0, "5 Jan"), (12.0, "12:00"), (24.0, "6 Jan"), (36.0, "12:00"), (48.0, "7 Jan"))
    ]
    assert time_labels(time_ticks(MONDAY_MS, MONDAY_MS + 20_000)) == [
        "5 Jan",
        "00:00:05",
        "00:00:10",
        "00:00:15",
        "00:00:20",
    ]
    # Where no calendar is, there are no words.
    assert {text for _, text in time_marks(2**61, 10**15, 20)} == {""}


def test_a_chart_is_drawn_for_a_desk_and_for_a_phone() -> None:
    name = "a-very-long-name-of-a-topic-number-1"
    both = fitted(lambda width: lanes([Lane(name, [Part(3, AFTER, "tip")], "3")], name="x", width=width))
    wide, narrow = re.findall(r"<svg.*?</svg>", both)
    assert 'viewBox="0 0 720' in wide
    assert 'viewBox="0 0 340' in narrow
    for svg, shown in ((wide, "a-very-long-n\u2026opic-number-1"), (narrow, "a-ver\u2026ber-1")):
        (label,) = [text for text in ElementTree.fromstring(svg).iter("text") if text.get("class") == "label end"]
        assert label.findtext("title") == name
        assert "".join(label.itertext()) == name + shown


def test_labels_of_an_axis_do_not_touch() -> None:
    svg = lanes([Lane("x", [Part(10 << 20, AFTER, "t")], "x" * 25)], name="x", in_bytes=True, width=340)
    assert labels_of(svg)[0] == "0 B"
    assert len(labels_of(svg)) < 4


def test_chapters() -> None:
    section = Section(HOSTILE, HOSTILE, "", (), Table([HOSTILE], [[HOSTILE]]), table_is_open=True)
    whole = page("t", "s", [], [section, Chapter(HOSTILE, HOSTILE, [section], [Tile(HOSTILE, "1")])])
    assert "<script" not in whole
    assert whole.count("<details open>") == 2
    assert re.findall(r"<(h\d)>", whole) == ["h1", "h2", "h2", "h3"]
    assert whole.count('class="tiles"') == 1
