"""What is seen of a compaction while it runs: one line on standard error, on a terminal only, after a second."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from duralog.storage.compaction_report import CompactionProgress

_PATIENCE_SECONDS = 1.0
_INTERVAL_SECONDS = 0.1


class CompactionView:
    """Which partition, phase and round; how far and how fast; how full the map is and how many records stay."""

    def __init__(self, partitions: int, *, is_rehearsal: bool = False, wanted: bool = True) -> None:
        """A rehearsal only reads."""
        self._partitions = partitions
        self._is_rehearsal = is_rehearsal
        self._wanted = wanted and sys.stderr.isatty()
        self._next_look = time.monotonic() + _PATIENCE_SECONDS
        self._number = 0
        self._name = ""
        self._phase: tuple[object, ...] = ()
        self._phase_start: CompactionProgress | None = None
        self._drawn_phase: tuple[object, ...] = ()
        self._bar: Any = None
        self._task: Any = None
        self._is_shown = False

    def __enter__(self) -> CompactionView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def begin(self, name: str) -> None:
        """The next partition."""
        self._number += 1
        self._name = name

    def show(self, progress: CompactionProgress) -> None:
        if not self._wanted:
            return
        phase = (self._number, progress.phase, progress.round)
        if self._phase_start is None or phase != self._phase:
            self._phase, self._phase_start = phase, progress
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _INTERVAL_SECONDS
            self._draw(progress, self._phase_start)

    def hide(self) -> None:
        """Take the line away, so that others can be written to the same terminal. It comes back by itself."""
        if self._is_shown:
            self._is_shown = False
            self._bar.stop()

    def _draw(self, progress: CompactionProgress, start: CompactionProgress) -> None:
        if self._bar is None:
            self._bar = _make_bar()
            self._task = self._bar.add_task("", total=None, detail="")
        if self._phase != self._drawn_phase:
            # Speed and time left are those of the phase: reading keys is faster than rewriting.
            self._drawn_phase = self._phase
            self._bar.reset(self._task, total=max(progress.bytes_total, 1))
        self._bar.update(
            self._task,
            completed=progress.bytes_done,
            description=self._title(progress),
            detail=_detail(progress, start),
        )
        if not self._is_shown:
            self._is_shown = True
            self._bar.start()
        self._bar.refresh()

    def _title(self, progress: CompactionProgress) -> str:
        number = f"{self._number}/{self._partitions} " if self._partitions > 1 else ""
        rounds = f", round {progress.round}" if progress.round > 1 else ""
        phase = "reading" if self._is_rehearsal else progress.phase
        return f"{number}{self._name} {phase}{rounds}"


def _detail(progress: CompactionProgress, start: CompactionProgress) -> str:
    """Records are counted over all rounds; of interest are those of this one."""
    read = progress.records_read - start.records_read
    kept = f", kept {progress.records_kept - start.records_kept:,} of {read:,}" if read else ""
    return f"map {progress.map_fill:.1%} full{kept}"


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
