"""A progress bar on standard error: only on a terminal, and only for work that takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

_PATIENCE_SECONDS = 1.0
_INTERVAL_SECONDS = 0.1


class Progress:
    """Counts bytes read, or what else is done. Costs nothing until a second has passed; then rich draws the bar."""

    def __init__(self, total: int, *, wanted: bool = True, is_in_bytes: bool = True) -> None:
        self._total = total
        self._is_in_bytes = is_in_bytes
        self._done = 0
        self._label = ""
        self._wanted = wanted and sys.stderr.isatty()
        self._started = time.monotonic()
        self._next_look = self._started + _PATIENCE_SECONDS
        self._bar: Any = None
        self._task: Any = None
        self._is_shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def hide(self) -> None:
        """Take the bar away, so that lines can be written to the same terminal. It comes back by itself."""
        if self._is_shown:
            self._is_shown = False
            self._bar.stop()

    def begin(self, label: str) -> None:
        """What is being read now."""
        self._label = label

    def advance(self, read_bytes: int) -> None:
        self._done += read_bytes
        if not self._wanted:
            return
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _INTERVAL_SECONDS
            self._draw()

    def _draw(self) -> None:
        if self._bar is None:
            self._bar, self._task = self._make_bar()
        if not self._is_shown:
            self._is_shown = True
            self._bar.start()
        self._bar.update(self._task, completed=min(self._done, self._total), description=self._label)

    def _make_bar(self) -> tuple[Any, Any]:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bar

        bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            *((DownloadColumn(), TransferSpeedColumn()) if self._is_in_bytes else (MofNCompleteColumn(),)),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        task = bar.add_task(self._label, total=self._total, completed=0)
        return bar, task
