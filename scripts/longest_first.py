"""The order of test files: those that took longest come first, so that all test processes end together.

Some folders share what takes long to start: a Spark session, a JVM with Kafka, consoles. The files of such a folder go
to one process, before others, and that process takes another such folder when it is done. Other processes help only
when they have nothing else left.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

SECONDS = Path(__file__).parents[1] / "tests" / "seconds.tsv"
"""How long the tests of each file take together."""
SHARING = ("tests/spark/", "tests/interop/", "tests/console/")
"""Folders whose fixtures of the whole session take long to start."""


class Order:
    """Which file a process runs next. Files without a time come first: a new one may take long."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds
        self._owners: dict[str, Any] = {}
        """The process of each of the folders that share."""

    def next_file(self, files: Iterable[str], process: Any, processes: Collection[Any]) -> str:
        """Of the files that are left, for one of the processes that run."""

        def rank(file: str) -> tuple[int, float]:
            return self._preference(file, process, processes), self._seconds.get(file, math.inf)

        chosen = max(files, key=rank)
        folder = _sharing(chosen)
        if folder is not None and self._owners.get(folder) not in processes:
            self._owners[folder] = process
        return chosen

    def _preference(self, file: str, process: Any, processes: Collection[Any]) -> int:
        folder = _sharing(file)
        if folder is None:
            return 1
        owner = self._owners.get(folder)
        if owner is process:
            return 3
        return 0 if owner in processes else 2


def _sharing(file: str) -> str | None:
    return next((folder for folder in SHARING if file.startswith(folder)), None)


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Gives each process a file, and the next one when it is almost done."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._order = Order(_recorded())

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(self._order.next_file(self.workqueue, node, self.nodes), last=False)
        super()._assign_work_unit(node)


def _recorded() -> dict[str, float]:
    rows = (line.split("\t") for line in SECONDS.read_text(encoding="utf-8").splitlines())
    return {file: float(seconds) for seconds, file in rows}


def record(seconds: Mapping[str, float]) -> None:
    """Write the times of a whole run."""
    longest_first = sorted(seconds.items(), key=lambda row: -row[1])
    rows = [f"{round(taken)}\t{file}\n" for file, taken in longest_first]
    SECONDS.write_text("".join(rows), encoding="utf-8")
