"""What came out, as plain values: kept in `results.json`, rendered to `RESULTS.md` and plots.

A result carries the facts of its own run (machine, versions, limits), so that running one job again replaces that job's
result and leaves the others as they were.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.job import Job, Target
from bench.report import render
from bench.run import Outcome

Json = dict[str, Any]


def job_result(job: Job, outcomes: Sequence[Outcome], run: Mapping[str, Any]) -> Json:
    medians = {one.contender.name: one.median_value(job) for one in outcomes if one.measurements and not one.failure}
    return {
        "name": job.name,
        "title": job.title,
        "unit": job.unit.name,
        "is_rate": job.unit.is_rate,
        "about": job.about,
        "compare_with": job.compare_with,
        "contenders": [_contender(job, outcome, medians) for outcome in outcomes],
        "targets": [_target(job, target, medians) for target in job.targets],
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


def _target(job: Job, target: Target, medians: Mapping[str, float]) -> Json:
    value = medians.get(target.contender)
    if target.than is not None:
        other = medians.get(target.than)
        asked = f"{target.contender}: {target.bound:g} times as fast as {target.than}"
        reached = None if value is None or other is None else job.unit.speed_ratio(value, other)
        met = reached is not None and reached >= target.bound
        shown = "not measured" if reached is None else f"{reached:.1f} times"
    else:
        asked = f"{target.contender}: at {'least' if job.unit.is_rate else 'most'} {target.bound:g} {job.unit.name}"
        met = value is not None and (value >= target.bound if job.unit.is_rate else value <= target.bound)
        shown = "not measured" if value is None else f"{value:.3g} {job.unit.name}"
    return {"asked": asked, "reached": shown, "met": met}


class Results:
    """All results in a folder, the older ones of other jobs included."""

    def __init__(self, folder: Path) -> None:
        self.report = folder / "RESULTS.md"
        self._file = folder / "results.json"
        self._plots = folder / "plots"
        self._by_job: dict[str, Json] = {}
        if self._file.exists():
            self._by_job = {job["name"]: job for job in json.loads(self._file.read_text())["jobs"]}

    def put(self, result: Json) -> None:
        self._by_job[result["name"]] = result

    def write(self, order: Sequence[str]) -> None:
        """Write everything, the jobs in this order. A job that no longer exists is dropped."""
        jobs = [self._by_job[name] for name in order if name in self._by_job]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"jobs": jobs}, indent=1) + "\n")
        # In a process of its own: matplotlib would be counted to the peak memory of everything measured after it.
        plotted = subprocess.run([sys.executable, "-m", "bench.plots", self._file, self._plots], check=False)
        self.report.write_text(render(jobs, plots=self._plots.name if plotted.returncode == 0 else None))
