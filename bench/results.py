"""What was measured, as plain values: kept in `results.json`, rendered to `RESULTS.md`, a page per job, and plots.

A result has the facts of its own run (machine, versions, limits): running one job again replaces its result and keeps
the others.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.details import FOLDER, PLOTS
from bench.job import Job
from bench.measured import Json
from bench.report import pages
from bench.run import Outcome


def job_result(job: Job, outcomes: Sequence[Outcome], run: Mapping[str, Any]) -> Json:
    medians = {one.contender.name: one.median_value(job) for one in outcomes if one.measurements and not one.failure}
    return {
        "name": job.name,
        "contenders": [_contender(job, outcome, medians) for outcome in outcomes],
        "run": dict(run),
    }


def _contender(job: Job, outcome: Outcome, medians: Mapping[str, float]) -> Json:
    name = outcome.contender.name
    if name not in medians:
        return {"name": name, "failure": outcome.failure or "was not run"}
    values = outcome.values(job)
    other = medians.get(job.compare_with or "")
    return {
        "name": name,
        "values": [round(value, 6) for value in values],
        "median": round(medians[name], 6),
        "low": round(min(values), 6),
        "high": round(max(values), 6),
        "speed_ratio": None if other is None else round(job.unit.speed_ratio(medians[name], other), 3),
        "amount": statistics.median(one.amount for one in outcome.measurements),
        "seconds": round(statistics.median(one.seconds for one in outcome.measurements), 6),
        "cpu_seconds": round(statistics.median(one.cpu_seconds for one in outcome.measurements), 6),
        "peak_bytes": max(one.peak_bytes for one in outcome.measurements),
    }


class Results:
    """All results in a folder, older ones of other jobs included. A result whose job is not in `jobs` is dropped."""

    def __init__(self, folder: Path, jobs: Mapping[str, Job]) -> None:
        self.folder = folder
        self._jobs = jobs
        self._file = folder / "results.json"
        stored = json.loads(self._file.read_text(encoding="utf-8"))["jobs"] if self._file.exists() else []
        self._by_job: dict[str, Json] = {result["name"]: result for result in stored if result["name"] in jobs}

    def put(self, result: Json) -> None:
        """Keep it, in the file too."""
        self._by_job[result["name"]] = result
        self.folder.mkdir(parents=True, exist_ok=True)
        in_order = [self._by_job[name] for name in self._jobs if name in self._by_job]
        self._file.write_text(json.dumps({"jobs": in_order}, indent=1) + "\n", encoding="utf-8")

    def pages(self) -> dict[str, str]:
        """The text of every page of the report by its path in the folder."""
        return pages(self._jobs, self._by_job, plotted={path.stem for path in (self.folder / PLOTS).glob("*.svg")})

    def render(self) -> None:
        self._draw_plots()
        texts = self.pages()
        (self.folder / FOLDER).mkdir(exist_ok=True)
        for page in (self.folder / FOLDER).glob("*.md"):
            if f"{FOLDER}/{page.name}" not in texts:
                page.unlink()
        for path, text in texts.items():
            (self.folder / path).write_text(text, encoding="utf-8")

    def _draw_plots(self) -> None:
        if importlib.util.find_spec("matplotlib") is None:
            print("matplotlib is not installed: the plots are left as they are", file=sys.stderr)
            return
        # In a process of its own: matplotlib would be counted to the peak memory of everything measured after it.
        command = [sys.executable, "-m", "bench.plots", str(self._file), str(self.folder / PLOTS)]
        if subprocess.run(command, check=False).returncode != 0:
            print("the plots were not drawn: see the error above", file=sys.stderr)
