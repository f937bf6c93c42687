"""The order of test files: those that took longest come first, so that all test processes end together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

SECONDS = Path(__file__).parents[1] / "tests" / "seconds.tsv"
"""How long the tests of a file take together, for the files that take long."""
LEAST_SECONDS = 2


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Gives each process a file, and the next one when it is almost done. Files without a time come last."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._seconds = _recorded()

    def _assign_work_unit(self, node: Any) -> None:
        longest = max(self.workqueue, key=lambda file: self._seconds.get(file, 0))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


def _recorded() -> dict[str, float]:
    rows = (line.split("\t") for line in SECONDS.read_text(encoding="utf-8").splitlines())
    return {file: float(seconds) for seconds, file in rows}


def record(seconds: Mapping[str, float]) -> None:
    """Write the times of a whole run."""
    longest_first = sorted(seconds.items(), key=lambda row: -row[1])
    rows = [f"{round(taken)}\t{file}\n" for file, taken in longest_first if taken >= LEAST_SECONDS]
    SECONDS.write_text("".join(rows), encoding="utf-8")
