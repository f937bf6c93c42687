"""Charts and pages: what is drawn is what was given, no text can be markup, nothing is fetched from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.cli.stats.chart_scales import (
    Scale,
    count_text,
    decades,
    round_ticks,
    size_ticks,
    time_labels,
    time_ticks,
)
from duralog.cli.stats.html_report import Section, Table, Tile, page
from duralog.cli.stats.svg_charts import AFTER, BEFORE, Lane, Part, Series, areas, lanes, legend, ranks

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HOSTILE = "<script>alert(\"1\")</script> & 'x'"


def drawn(svg: str) -> ElementTree.Element:
    """Well-formed, or this raises."""
    return ElementTree.fromstring(svg)


def tips(svg: str) -> list[str]:
    return [element.text or "" for element in drawn(svg).iter("title")]


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_round_ticks_hold_the_largest_value_and_are_few(largest: float) -> None:
    ticks = round_ticks(largest)
    assert ticks[0] == 0
    assert ticks[-1] >= largest * (1 - 1e-6)
    assert ticks[-2] < largest
    assert 2 <= len(ticks) <= 6


@given(st.integers(min_value=1, max_value=2**50))
def test_size_ticks_are_powers_of_two_apart(largest: int) -> None:
    ticks = size_ticks(largest)
    step = int(ticks[1])
    assert step & (step - 1) == 0
    assert ticks[-1] >= largest > ticks[-2]
    assert len(ticks) <= 7


@given(st.integers(0, 4 * 10**12), st.integers(1, 10 * 365 * DAY_MS))
def test_time_ticks_lie_between_the_times(first_ms: int, span_ms: int) -> None:
    ticks = time_ticks(first_ms, first_ms + span_ms)
    assert all(first_ms <= tick <= first_ms + span_ms for tick in ticks)
    assert len(ticks) <= 8
    assert len(time_labels(ticks)) == len(ticks)


def test_time_labels_name_days_or_hours() -> None:
    monday = 1_767_571_200_000
    assert time_labels(time_ticks(monday, monday + 2 * DAY_MS)) == ["5 Jan", "12:00", "6 Jan", "12:00", "7 Jan"]
    assert time_labels(time_ticks(monday, monday + 7 * DAY_MS))[:3] == ["5 Jan", "6 Jan", "7 Jan"]
    assert time_labels(time_ticks(monday + 1, monday + 2 * HOUR_MS))[:2] == ["00:30", "01:00"]
    assert time_labels([monday - 30 * DAY_MS, monday]) == ["Dec 2025", "Jan 2026"]


def test_texts_of_counts() -> None:
    assert [count_text(count) for count in (0, 7, 950, 999.9, 1_000, 12_345, 3_200_000, 4e9)] == [
        *("0", "7", "950", "1 k", "1 k", "12.3 k", "3.2 M", "4 G")
    ]


def test_scales() -> None:
    assert [Scale(0, 10, 100, 200)(value) for value in (0, 5, 10)] == [100, 150, 200]
    assert [Scale(1, 100, 0, 50, is_log=True)(value) for value in (0.1, 1, 10, 100)] == [0, 0, 25, 50]
    assert Scale(3, 3, 7, 9)(3) == 7
    assert decades(1, 1) == [1, 10]
    assert decades(3, 400) == [1, 10, 100, 1000]


def test_bars_are_as_wide_as_what_they_stand_for() -> None:
    rows = [
        Lane("one", [Part(300, BEFORE, "first"), Part(100, AFTER, "second")], "400"),
        Lane("", [Part(200, AFTER, "third")], "200"),
    ]
    svg = lanes(rows, name="sizes")
    rectangles = {title.text: rect for rect in drawn(svg).iter("rect") for title in rect.iter("title")}
    # With the gap of a point between neighbours.
    widths = {name: float(rect.get("width", "")) + 1 for name, rect in rectangles.items()}
    assert widths["first"] == pytest.approx(3 * widths["second"], rel=0.02)
    assert widths["third"] == pytest.approx(2 * widths["second"], rel=0.02)
    assert rectangles["first"].get("class") == BEFORE
    end = float(rectangles["first"].get("x", "")) + widths["first"]
    assert end == pytest.approx(float(rectangles["second"].get("x", "")), abs=0.1)
    assert {"one", "400", "200"} <= {element.text for element in drawn(svg).iter("text")}


def test_nothing_at_all_can_be_drawn() -> None:
    drawn(lanes([], name="none"))
    drawn(lanes([Lane("empty", [])], name="empty"))
    drawn(lanes([Lane("zero", [Part(0, AFTER, "0")])], name="zero", in_bytes=True))
    assert areas([], [], name="none") == ""
    assert areas([5], [Series("one", [1], AFTER)], name="none") == ""
    drawn(areas([0, 1], [Series("zeros", [0, 0], AFTER)], name="zeros"))
    assert ranks([], name="none", x_name="x", y_name="y") == ""
    drawn(ranks([1], name="one", x_name="x", y_name="y"))


def test_every_time_has_a_tip_with_all_series() -> None:
    svg = areas(
        [0, HOUR_MS, 2 * HOUR_MS], [Series("all", [5, 6, 7], BEFORE), Series("left", [1, 2, 3], AFTER)], name="x"
    )
    assert tips(svg) == [
        "1970-01-01T00:00:00.000Z\nall: 5\nleft: 1",
        "1970-01-01T01:00:00.000Z\nall: 6\nleft: 2",
        "1970-01-01T02:00:00.000Z\nall: 7\nleft: 3",
    ]


@given(st.integers(1, 100_000))
def test_of_many_ranks_a_few_are_drawn_the_first_and_the_last_among_them(count: int) -> None:
    svg = ranks(range(count, 0, -1), name="ranks", x_name="rank", y_name="times")
    told = tips(svg)
    assert told[0] == f"rank 1: {count:,} times"
    assert told[-1] == f"rank {count:,}: 1 times"
    assert len(told) == len(set(told)) <= 50


def test_text_is_never_markup() -> None:
    part = Part(1, AFTER, HOSTILE)
    charts = [
        lanes([Lane(HOSTILE, [part], HOSTILE)], name=HOSTILE),
        areas([0, 1], [Series(HOSTILE, [1, 2], AFTER)], name=HOSTILE),
        ranks([3, 1], name=HOSTILE, x_name=HOSTILE, y_name=HOSTILE),
    ]
    for chart in charts:
        assert "<script" not in chart
        assert drawn(chart).get("aria-label") == HOSTILE
    sections = [Section(HOSTILE, HOSTILE, charts[0], [(AFTER, HOSTILE)], Table([HOSTILE], [[HOSTILE]], [HOSTILE]))]
    whole = page(HOSTILE, HOSTILE, [Tile(HOSTILE, HOSTILE, HOSTILE)], sections, HOSTILE)
    assert "<script" not in whole
    assert whole.count("&lt;script&gt;") >= 10
    assert "<script" not in legend([(AFTER, HOSTILE)])


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_complete_and_self_contained() -> None:
    chart = lanes([Lane("a", [Part(1, AFTER, "tip")])], name="chart")
    table = Table(["name", "size"], [["x", "1"], ["y", "2"]], ["size"])
    whole = page("Title", "Subtitle", [Tile("n", "1")], [Section("S", "words", chart, [(AFTER, "left")], table)], "end")
    tags = Tags()
    tags.feed(whole)
    assert tags.open == []
    assert not re.search(r"https?:|//|@import|url\(", whole)
    assert not {"src", "href", "style"} & {name for name, _ in tags.attributes}
    assert whole.count('class="number"') == 3
    assert "prefers-color-scheme: dark" in whole
