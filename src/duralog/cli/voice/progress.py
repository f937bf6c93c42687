"""A line of progress on standard error: only on a terminal, and only for work that takes longer than a second.

It shows what is being worked on, how much is done of how much, how fast, and the time left. If the total is not known,
it shows how much was done, how fast, and for how long.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Hashable
from types import TracebackType
from typing import Self

from duralog.cli.voice.tables import plural, size_text
from duralog.cli.voice.terminal import can_redraw, cells, shortened, shows_colours, width_of
from duralog.config.progress import Counted, Progress

_PATIENCE_SECONDS = 1.0
_INTERVAL_SECONDS = 0.1
_SAMPLES = 50
"""The rate is computed from the samples of the last five seconds."""
_SMALLEST_BAR = 8
_LARGEST_BAR = 40
_ACCENT, _DIM, _PLAIN = "\x1b[36m", "\x1b[2m", "\x1b[0m"
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """One line of a terminal that is drawn over: nothing for the first second, then ten times a second at most."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted and can_redraw(sys.stderr)
        self._next_draw = time.monotonic() + _PATIENCE_SECONDS
        self._is_shown = False

    def is_due(self, now: float) -> bool:
        if not self.wanted or now < self._next_draw:
            return False
        self._next_draw = now + _INTERVAL_SECONDS
        return True

    def draw(self, label: str, share: float | None, figures: str, detail: str = "") -> None:
        """`share` is how much is done, 0 to 1; without it there is no bar. `detail` is left out if it does not fit."""
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
        """Remove the line, so that others can be written to the same terminal. The next `draw` shows it again."""
        if self._is_shown:
            self._is_shown = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


class Rate:
    """The speed of the last seconds."""

    def __init__(self, started: float, done: float = 0) -> None:
        self._samples: deque[tuple[float, float]] = deque([(started, done)], maxlen=_SAMPLES)

    def at(self, now: float, done: float) -> float:
        """Things a second."""
        if done < self._samples[-1][1]:
            # The same step has begun again.
            self._samples.clear()
        self._samples.append((now, done))
        first, before = self._samples[0]
        return (done - before) / (now - first) if now > first else 0.0


class ProgressBar:
    """Shows any `duralog.config.progress.Progress`: how much is done, how fast, and the time left."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._line = ProgressLine(wanted=wanted)
        self._step: Hashable = None
        self._began = time.monotonic()
        self._rate = Rate(self._began)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def hide(self) -> None:
        self._line.hide()

    def show(self, progress: Progress) -> None:
        if not self._line.wanted:
            return
        now = time.monotonic()
        done, total = progress.done, progress.total
        if progress.step != self._step:
            self._step, self._began, self._rate = progress.step, now, Rate(now, done)
        if self._line.is_due(now):
            rate = self._rate.at(now, done)
            figures = figures_text(done, total, rate, seconds=now - self._began, unit=progress.unit)
            self._line.draw(progress.label, done / total if total else None, figures, progress.detail)


class CountingBar(ProgressBar):
    """Counts bytes, or things of another unit, and shows the count."""

    def __init__(self, total: int | None, *, wanted: bool = True, unit: str | None = None) -> None:
        """`total` may be None if it is not known, or not yet. Without `unit`, bytes are counted."""
        super().__init__(wanted=wanted)
        self._total = total
        self._unit = unit
        self._done = 0
        self._label = ""

    def expect(self, total: int) -> None:
        """Set the total, unless a smaller one was set before."""
        self._total = total if self._total is None else min(self._total, total)

    def begin(self, label: str) -> None:
        """What is being read now."""
        self._label = label

    def advance(self, done: int) -> None:
        self._done += done
        if self._line.wanted:
            done = self._done if self._total is None else min(self._done, self._total)
            self.show(Counted(label=self._label, done=done, total=self._total, unit=self._unit))


def figures_text(done: int, total: int | None, rate: float, *, seconds: float, unit: str | None = None) -> str:
    """`312 MiB of 1.2 GiB  210 MiB/s  0:04 left`; without a total, for how long. A unit of None is bytes."""
    if unit is None:
        parts = [size_text(done) if total is None else f"{size_text(done)} of {size_text(total)}"]
        parts.append(f"{size_text(int(rate))}/s")
    else:
        most = done if total is None else total
        counted = plural(most, unit) if unit else f"{most:,}"
        parts = [
            counted if total is None else f"{done:,} of {counted}",
            f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s",
        ]
    if total is None:
        parts.append(clock_text(seconds))
    elif rate > 0:
        parts.append(f"{clock_text((total - done) / rate)} left")
    return "  ".join(parts)


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
