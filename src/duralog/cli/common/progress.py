"""A line of progress on standard error: only on a terminal, and only for work that takes longer than a second.

It tells what is being worked on, how much is done of how much, how fast, and how long it will still take. Where nobody
knows how much there is, it tells how much was done, how fast, and for how long.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType

from duralog.cli.common.tables import plural, size_text
from duralog.cli.common.terminal import can_redraw, cells, shortened, shows_colours, width_of

_PATIENCE_SECONDS = 1.0
_INTERVAL_SECONDS = 0.1
_SAMPLES = 50
"""The rate is that of the last so many looks: five seconds."""
_SMALLEST_BAR = 8
_LARGEST_BAR = 40
_ACCENT, _DIM, _PLAIN = "\x1b[36m", "\x1b[2m", "\x1b[0m"
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """One line of a terminal that is drawn over: nothing for the first second, and then ten times a second at most."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted and can_redraw(sys.stderr)
        self._next_look = time.monotonic() + _PATIENCE_SECONDS
        self._is_shown = False

    def is_due(self, now: float) -> bool:
        if not self.wanted or now < self._next_look:
            return False
        self._next_look = now + _INTERVAL_SECONDS
        return True

    def draw(self, label: str, share: float | None, figures: str, detail: str = "") -> None:
        """`share` is how much is done, 0 to 1; without it there is no bar. Where room is short, `detail` goes first."""
        width = (width_of(sys.stderr) or 80) - 1
        if detail and cells(f"{label}  {figures}  {detail}") <= width:
            figures = f"{figures}  {detail}"
        figures = shortened(figures, width)
        label = shortened(label, max(width - cells(figures) - 2, 0))
        room = width - cells(label) - cells(figures) - 4
        bar = "" if share is None or room < _SMALLEST_BAR else _bar(share, min(room, _LARGEST_BAR))
        text = "  ".join(part for part in (label, bar, figures) if part)
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()
        self._is_shown = True

    def hide(self) -> None:
        """Take the line away, so that others can be written to the same terminal. It comes back by itself."""
        if self._is_shown:
            self._is_shown = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


class Rate:
    """How fast it goes, by the looks at it of the last seconds."""

    def __init__(self, started: float, done: float = 0) -> None:
        self._looks: deque[tuple[float, float]] = deque([(started, done)], maxlen=_SAMPLES)

    def at(self, now: float, done: float) -> float:
        """Things a second."""
        self._looks.append((now, done))
        first, before = self._looks[0]
        return (done - before) / (now - first) if now > first else 0.0


class Progress:
    """Counts bytes, or things of another unit."""

    def __init__(
        self, total: int | None, *, wanted: bool = True, is_in_bytes: bool = True, unit: str | None = None
    ) -> None:
        """`total` may be None if it is not known, or not yet. With `unit`, or not `is_in_bytes`, things are counted."""
        self._total = total
        self._unit = unit if unit is not None or is_in_bytes else ""
        self._done = 0
        self._label = ""
        self._started = time.monotonic()
        self._rate = Rate(self._started)
        self._line = ProgressLine(wanted=wanted)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def hide(self) -> None:
        self._line.hide()

    def expect(self, total: int) -> None:
        """There is so much to do, or less if less was wanted."""
        self._total = total if self._total is None else min(self._total, total)

    def begin(self, label: str) -> None:
        """What is being read now."""
        self._label = label

    def advance(self, done: int) -> None:
        self._done += done
        if not self._line.wanted:
            return
        now = time.monotonic()
        if self._line.is_due(now):
            done = self._done if self._total is None else min(self._done, self._total)
            share = done / self._total if self._total else None
            figures = figures_text(
                done, self._total, self._rate.at(now, done), seconds=now - self._started, unit=self._unit
            )
            self._line.draw(self._label, share, figures)


def figures_text(done: int, total: int | None, rate: float, *, seconds: float, unit: str | None = None) -> str:
    """`312 MiB of 1.2 GiB  210 MiB/s  0:04 left`; without a total, for how long. A unit of None is bytes."""
    if unit is None:
        told = [size_text(done) if total is None else f"{size_text(done)} of {size_text(total)}"]
        told.append(f"{size_text(int(rate))}/s")
    else:
        most = done if total is None else total
        counted = plural(most, unit) if unit else f"{most:,}"
        told = [
            counted if total is None else f"{done:,} of {counted}",
            f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s",
        ]
    if total is None:
        told.append(clock_text(seconds))
    elif rate > 0:
        told.append(f"{clock_text((total - done) / rate)} left")
    return "  ".join(told)


def clock_text(seconds: float) -> str:
    """`0:04`, `12:30`, `3:00:15`."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def _bar(share: float, places: int) -> str:
    full = round(min(max(share, 0.0), 1.0) * places)
    piece = "━" if (sys.stderr.encoding or "").lower().startswith("utf") else "#"
    if not shows_colours(sys.stderr):
        return piece * full + " " * (places - full)
    return f"{_ACCENT}{piece * full}{_DIM}{piece * (places - full)}{_PLAIN}"
