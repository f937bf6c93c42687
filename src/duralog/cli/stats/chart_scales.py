"""Scales and ticks of axes. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

_STEPS = (1, 2, 2.5, 5, 10)
_TIME_STEPS_MS = (
    *(seconds * 1_000 for seconds in (1, 5, 15, 30)),
    *(minutes * 60_000 for minutes in (1, 5, 15, 30, 60, 180, 360, 720, 1440, 2880, 10080, 43200, 129600, 525600)),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to points on the page. `low` and `high` are the ends of the axis, in values."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.is_log:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, self.low))
        share = (at - low) / (high - low) if high > low else 0.0
        return round(self.start + share * (self.end - self.start), 2)


def round_ticks(largest: float, wanted: int = 4) -> list[float]:
    """From 0 to the largest value or a little above, in round steps."""
    if largest <= 0:
        return [0.0, 1.0]
    rough = largest / wanted
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(step * magnitude for step in _STEPS if step * magnitude >= rough * (1 - 1e-9))
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]


def size_ticks(largest: int, wanted: int = 5) -> list[float]:
    """The same in steps of powers of two, for bytes."""
    step = 2.0 ** max(0, math.ceil(math.log2(max(largest, 1) / wanted)))
    return [step * number for number in range(-(-largest // int(step)) + 1)]


def decades(low: float, high: float) -> list[float]:
    """1, 10, 100 and so on, around both values, which are above 0."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def time_ticks(first_ms: int, last_ms: int, wanted: int = 7) -> list[int]:
    """Whole seconds, minutes, hours or days between the two, in UTC."""
    span = max(last_ms - first_ms, 1)
    fitting = (step for step in _TIME_STEPS_MS if span / step <= wanted)
    step = next(fitting, _TIME_STEPS_MS[-1] * math.ceil(span / wanted / _TIME_STEPS_MS[-1]))
    return list(range(-(-first_ms // step) * step, last_ms + 1, step))


def time_labels(ticks_ms: Sequence[int]) -> list[str]:
    """Midnights by their day, other times by the clock, months if the years differ. Empty for years after 9999."""
    try:
        moments = [datetime.fromtimestamp(tick / 1000, UTC) for tick in ticks_ms]
    except (ValueError, OverflowError, OSError):
        return [""] * len(ticks_ms)
    if moments and moments[0].year != moments[-1].year:
        return [f"{moment:%b %Y}" for moment in moments]
    clock = "%H:%M:%S" if any(moment.second for moment in moments) else "%H:%M"
    return [
        f"{moment:{clock}}" if moment.hour or moment.minute or moment.second else f"{moment.day} {moment:%b}"
        for moment in moments
    ]


def count_text(count: float) -> str:
    """`950`, `12.5 k`, `3.2 M`: three digits at most."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size * 0.9995:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g}"
