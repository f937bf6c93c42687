"""Charts of the pages, drawn by ECharts as SVG: lines over time, and bars.

Colours are legible on light and dark. Texts of a chart are set as plain values; keys of its options are never data,
since a key that begins with a colon would be executed as code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nicegui import ui

from duralog.console.ui.theme import ACCENT, INK_ON_BOTH, LINE_ON_BOTH

Point = tuple[int, float | None]
"""A time in milliseconds, and a value."""

_SIZE = """(value) => {
    if (value === null || value === undefined) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < 4) { value /= 1024; unit++; }
    return `${+value.toFixed(Math.abs(value) < 10 ? 2 : 1)} ${units[unit]}`;
}"""
_NUMBER = """(value) => value === null || value === undefined ? "–" : Math.abs(value) >= 1000
    ? String(Math.round(value)).replace(/\\B(?=(\\d{3})+$)/g, ",") : String(+value.toPrecision(4))"""
_SIZE_OF_STEPS = """(value) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0, step = STEP;
    while (Math.abs(value) >= 1024 && unit < 4) { value /= 1024; step /= 1024; unit++; }
    return `${value.toFixed(step < 1 ? Math.ceil(-Math.log10(step)) + 1 : 0)} ${units[unit]}`;
}"""
_FORMATS = {"size": _SIZE, "number": _NUMBER}
_CLOCK = """(ms) => new Date(ms).toTimeString().slice(0, 5)"""
_CLOCK_OF_SECONDS = """(ms) => new Date(ms).toTimeString().slice(0, 8)"""
_DAY_AND_CLOCK = """(ms) => {
    const at = new Date(ms);
    return `${at.getDate()} ${at.toLocaleString("en", { month: "short" })} ${at.toTimeString().slice(0, 5)}`;
}"""
_SECONDS_BELOW_MS = 600_000
"""Below this span, the axis shows seconds."""
_DAYS_FROM_MS = 86_400_000
"""From this span on, it shows the day."""
_AT_LEAST_MS = 120_000
"""The axis is at least this long, also when there is less to show."""
_STEPS = 3
_FLAT = 0.8
"""Sizes that never fall below this share of the largest are shown from there on, others from zero."""


class TimeChart:
    """Values over time as a line with a soft area below it. `show` replaces the points without a flicker."""

    def __init__(
        self, label: str, *, unit: str = "number", per_second: bool = False, colour: str = ACCENT, marker: str = "chart"
    ) -> None:
        self._sent: list[list[float | None]] = []
        self._has_sizes = unit == "size"
        options = _options(label, f"(value) => ({_FORMATS[unit]})(value) + '/s'" if per_second else _FORMATS[unit])
        options["xAxis"] |= {"type": "time", ":min": f"(range) => Math.min(range.min, range.max - {_AT_LEAST_MS})"}
        options["xAxis"]["axisLabel"] |= {":formatter": _CLOCK_OF_SECONDS, "hideOverlap": True}
        options["tooltip"]["axisPointer"] = {"lineStyle": {"color": INK_ON_BOTH}}
        options["series"][0] |= {
            "type": "line",
            "showSymbol": False,
            "lineStyle": {"width": 1.75, "color": colour},
            "itemStyle": {"color": colour},
            "areaStyle": {"color": colour, "opacity": 0.12},
        }
        self._chart = _drawn(options, label, marker)

    def show(self, points: Sequence[Point]) -> None:
        data: list[list[float | None]] = [[at_ms, value] for at_ms, value in points]
        if data == self._sent:
            return
        self._sent = data
        self._chart.options["series"][0]["data"] = data
        if points:
            self._chart.options["xAxis"]["axisLabel"][":formatter"] = clock_of(points[-1][0] - points[0][0])
        if self._has_sizes:
            known = [value for _, value in points if value is not None]
            _set_size_axis(self._chart.options["yAxis"], min(known, default=0), max(known, default=0))
        self._chart.update()


class BarChart:
    """One bar of bytes for each name, in the order given."""

    def __init__(self, label: str, *, colour: str = ACCENT, marker: str = "bars") -> None:
        self._sent: tuple[list[str], list[float]] = ([], [])
        options = _options(label, _SIZE)
        options["xAxis"] |= {"type": "category", "data": []}
        options["tooltip"]["axisPointer"] = {"type": "shadow", "shadowStyle": {"color": LINE_ON_BOTH}}
        options["series"][0] |= {"type": "bar", "itemStyle": {"color": colour}, "barMaxWidth": 40}
        self._chart = _drawn(options, label, marker)

    def show(self, names: Sequence[str], values: Sequence[float]) -> None:
        if (shown := (list(names), list(values))) != self._sent:
            self._sent = shown
            self._chart.options["xAxis"]["data"], self._chart.options["series"][0]["data"] = shown
            _set_size_axis(self._chart.options["yAxis"], 0, max(values, default=0))
            self._chart.update()


def clock_of(span_ms: int) -> str:
    """The format of times on an axis of this length."""
    if span_ms < _SECONDS_BELOW_MS:
        return _CLOCK_OF_SECONDS
    return _CLOCK if span_ms < _DAYS_FROM_MS else _DAY_AND_CLOCK


def size_axis(low: float, high: float) -> dict[str, float]:
    """The range and step of an axis of bytes: powers of two."""
    low = 0 if low < _FLAT * high or low == high else low
    step = 2.0 ** math.ceil(math.log2(max((high - low) / _STEPS, 1)))
    start = math.floor(low / step) * step
    return {"min": start, "max": max(math.ceil(high / step) * step, start + step), "interval": step}


def size_label(step: float) -> str:
    """How an axis of bytes with these steps labels them: with as many decimals as two steps need to differ."""
    return _SIZE_OF_STEPS.replace("STEP", repr(step))


def _set_size_axis(axis: dict[str, Any], low: float, high: float) -> None:
    axis |= size_axis(low, high)
    axis["axisLabel"][":formatter"] = size_label(axis["interval"])


def sparkline(values: Sequence[float | None]) -> str:
    """The path of a small line in a box of 80 by 20, for a cell's `spark`; empty for fewer than two values."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return ""
    top = max(value for _, value in known) or 1.0
    step = 80 / (len(values) - 1)
    return "M" + " L".join(f"{place * step:.1f},{19 - 18 * value / top:.1f}" for place, value in known)


def _options(label: str, shown: str) -> dict[str, Any]:
    return {
        "animation": False,
        "grid": {"left": 10, "right": 30, "top": 14, "bottom": 6, "containLabel": True},
        "textStyle": {"fontFamily": "system-ui, sans-serif"},
        "tooltip": {"trigger": "axis", "confine": True, "className": "chart-tip", ":valueFormatter": shown},
        "xAxis": {
            "axisLabel": {"color": INK_ON_BOTH, "fontSize": 11},
            "axisLine": {"lineStyle": {"color": LINE_ON_BOTH}},
            "axisTick": {"show": False},
            "splitNumber": 4,
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": 1,
            "splitNumber": _STEPS,
            "axisLabel": {"color": INK_ON_BOTH, "fontSize": 11, ":formatter": shown},
            "splitLine": {"lineStyle": {"color": LINE_ON_BOTH}},
        },
        "series": [{"name": label, "data": []}],
    }


def _drawn(options: dict[str, Any], label: str, marker: str) -> ui.echart:
    chart = ui.echart(options, renderer="svg").classes("chart")
    for name, value in (("role", "img"), ("aria-label", label), ("data-testid", marker)):
        chart.props[name] = value
    return chart
