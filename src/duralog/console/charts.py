"""Charts of the pages, drawn by ECharts as SVG: lines over time, and bars.

Colours can be read on light and dark. Texts of a chart are set as plain values; keys of its options are never data,
since a key that begins with a colon would be run as code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from duralog.console.theme import ACCENT, INK_ON_BOTH, LINE_ON_BOTH

Point = tuple[int, float | None]
"""A time in milliseconds, and a value."""

_SIZE_AXIS = """(value) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < 4) { value /= 1024; unit++; }
    return `${+value.toPrecision(3)} ${units[unit]}`;
}"""
_NUMBER_AXIS = """(value) => value === null ? "–" : Math.abs(value) >= 10000
    ? String(Math.round(value)).replace(/\\B(?=(\\d{3})+$)/g, "\\u202f") : String(+value.toPrecision(4))"""
_CLOCK = {"day": "{MM}-{dd}", "hour": "{HH}:{mm}", "minute": "{HH}:{mm}", "second": "{HH}:{mm}:{ss}"}
FORMATS = {"size": _SIZE_AXIS, "number": _NUMBER_AXIS}


class TimeChart:
    """Values over time as a line with a soft area below it. `show` replaces the points without a flicker."""

    def __init__(
        self, label: str, *, unit: str = "number", per_second: bool = False, colour: str = ACCENT, marker: str = "chart"
    ) -> None:
        self._label = label
        self._sent: list[list[float | None]] = []
        shown = FORMATS[unit] if not per_second else f"(value) => ({FORMATS[unit]})(value) + '/s'"
        self._options: dict[str, Any] = {
            "animation": False,
            "grid": {"left": 8, "right": 20, "top": 14, "bottom": 4, "containLabel": True},
            "textStyle": {"fontFamily": "inherit"},
            "tooltip": {
                "trigger": "axis",
                "confine": True,
                "className": "chart-tip",
                "axisPointer": {"lineStyle": {"color": INK_ON_BOTH}},
                ":valueFormatter": shown,
            },
            "xAxis": {
                "type": "time",
                "axisLabel": {"color": INK_ON_BOTH, "hideOverlap": True, "fontSize": 11, "formatter": _CLOCK},
                "axisLine": {"lineStyle": {"color": LINE_ON_BOTH}},
                "axisTick": {"show": False},
            },
            "yAxis": {
                "type": "value",
                "min": 0 if per_second or unit == "number" else None,
                "scale": unit == "size",
                "splitNumber": 3,
                "axisLabel": {"color": INK_ON_BOTH, "fontSize": 11, ":formatter": shown},
                "splitLine": {"lineStyle": {"color": LINE_ON_BOTH}},
            },
            "series": [
                {
                    "type": "line",
                    "name": label,
                    "showSymbol": False,
                    "connectNulls": False,
                    "lineStyle": {"width": 1.75, "color": colour},
                    "itemStyle": {"color": colour},
                    "areaStyle": {"color": colour, "opacity": 0.12},
                    "data": self._sent,
                }
            ],
        }
        self._chart = ui.echart(self._options, renderer="svg").classes("chart")
        self._chart.props["role"] = "img"
        self._chart.props["data-testid"] = marker
        self._chart.props["aria-label"] = label

    def show(self, points: Sequence[Point]) -> None:
        data: list[list[float | None]] = [[at_ms, value] for at_ms, value in points]
        if data != self._sent:
            self._sent = data
            self._chart.options["series"][0]["data"] = data
            self._chart.update()


class BarChart:
    """One bar for each name, in the order given; of many, the chart can be moved along."""

    def __init__(self, label: str, *, unit: str = "size", colour: str = ACCENT, marker: str = "bars") -> None:
        self._sent: tuple[list[str], list[float]] = ([], [])
        self._chart = ui.echart(
            {
                "animation": False,
                "grid": {"left": 8, "right": 20, "top": 14, "bottom": 4, "containLabel": True},
                "textStyle": {"fontFamily": "inherit"},
                "tooltip": {
                    "trigger": "axis",
                    "confine": True,
                    "className": "chart-tip",
                    "axisPointer": {"type": "shadow"},
                    ":valueFormatter": FORMATS[unit],
                },
                "xAxis": {
                    "type": "category",
                    "data": [],
                    "axisLabel": {"color": INK_ON_BOTH, "fontSize": 11, "hideOverlap": True},
                    "axisLine": {"lineStyle": {"color": LINE_ON_BOTH}},
                    "axisTick": {"show": False},
                },
                "yAxis": {
                    "type": "value",
                    "splitNumber": 3,
                    "axisLabel": {"color": INK_ON_BOTH, "fontSize": 11, ":formatter": FORMATS[unit]},
                    "splitLine": {"lineStyle": {"color": LINE_ON_BOTH}},
                },
                "series": [
                    {"type": "bar", "name": label, "data": [], "itemStyle": {"color": colour}, "barMaxWidth": 28}
                ],
            },
            renderer="svg",
        ).classes("chart")
        self._chart.props["role"] = "img"
        self._chart.props["data-testid"] = marker
        self._chart.props["aria-label"] = label

    def show(self, names: Sequence[str], values: Sequence[float]) -> None:
        if (shown := (list(names), list(values))) != self._sent:
            self._sent = shown
            self._chart.options["xAxis"]["data"], self._chart.options["series"][0]["data"] = shown
            self._chart.update()


def sparkline(values: Sequence[float | None]) -> str:
    """The path of a small line in a box of 80 by 20, for a cell's `spark`; empty for fewer than two values."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return ""
    top = max(value for _, value in known) or 1.0
    step = 80 / (len(values) - 1)
    return "M" + " L".join(f"{place * step:.1f},{19 - 18 * value / top:.1f}" for place, value in known)
