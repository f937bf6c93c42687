"""What is seen of a compaction while it runs: one line on standard error, on a terminal only, after a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from duralog.cli.common.progress import ProgressLine, Rate, figures_text

if TYPE_CHECKING:
    from types import TracebackType

    from duralog.storage.compaction.report import CompactionProgress


class CompactionView:
    """Which partition, phase and round; how far and how fast; how full the map is and how many records stay."""

    def __init__(self, partitions: int, *, is_rehearsal: bool = False, wanted: bool = True) -> None:
        """A rehearsal only reads."""
        self._partitions = partitions
        self._is_rehearsal = is_rehearsal
        self._line = ProgressLine(wanted=wanted)
        self._number = 0
        self._name = ""
        self._phase: tuple[object, ...] = ()
        self._phase_start: CompactionProgress | None = None
        self._phase_began = time.monotonic()
        self._rate = Rate(self._phase_began)

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
        now = time.monotonic()
        phase = (self._number, progress.phase, progress.round)
        if self._phase_start is None or phase != self._phase:
            # Speed and time left are those of the phase: reading keys is faster than rewriting.
            self._phase, self._phase_start, self._phase_began = phase, progress, now
            self._rate = Rate(now, progress.bytes_done)
        if self._line.is_due(now):
            self._draw(progress, self._phase_start, now)

    def hide(self) -> None:
        self._line.hide()

    def _draw(self, progress: CompactionProgress, start: CompactionProgress, now: float) -> None:
        rate = self._rate.at(now, progress.bytes_done)
        figures = figures_text(progress.bytes_done, progress.bytes_total, rate, seconds=now - self._phase_began)
        share = progress.bytes_done / max(progress.bytes_total, 1)
        self._line.draw(self._title(progress), share, figures, _detail(progress, start))

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
