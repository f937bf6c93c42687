"""Runs jobs: every contender in turn, round after round, each run in a process of its own."""

from __future__ import annotations

import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.job import Contender, Job, Setting
from bench.measure import Measurement, RunFailedError, measure

WORK = Path(__file__).parent / "work"


@dataclass(slots=True)
class Outcome:
    """The rounds of one contender. After a failure it is not run again."""

    contender: Contender
    measurements: list[Measurement] = field(default_factory=list)
    failure: str | None = None

    def median_value(self, job: Job) -> float:
        return statistics.median(self.values(job))

    def values(self, job: Job) -> list[float]:
        return [job.unit.value(one.amount, one.seconds, one.peak_bytes) for one in self.measurements]


def run_job(job: Job, *, rounds: int, records: int, passes: int) -> list[Outcome]:
    outcomes = [Outcome(contender) for contender in job.contenders]
    if job.is_slow:
        rounds = (rounds + 1) // 2
    for number in range(min(rounds, job.rounds or rounds)):
        for outcome in _in_turn(outcomes, number):
            if outcome.failure is None:
                _run_once(job, outcome, number, records, passes)
    return outcomes


def _in_turn(outcomes: Sequence[Outcome], number: int) -> Sequence[Outcome]:
    """Every other round is reversed, so that no contender always runs after the same one."""
    return outcomes if number % 2 == 0 else outcomes[::-1]


def _run_once(job: Job, outcome: Outcome, number: int, records: int, passes: int) -> None:
    WORK.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{job.name}-", dir=WORK))
    try:
        setting = Setting(records=records, passes=passes, scratch=scratch)
        measured = measure(outcome.contender.prepare(setting), scratch)
    except Exception as refusal:
        # Any error is this contender's row in the report. The others still run.
        kind = "" if isinstance(refusal, RunFailedError) else f"{type(refusal).__name__}: "
        outcome.failure = without_folders(f"{kind}{refusal}")
        print(f"{job.name}: {outcome.contender.name}: failed: {refusal}", file=sys.stderr)
        return
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    outcome.measurements.append(measured)
    value = job.unit.value(measured.amount, measured.seconds, measured.peak_bytes)
    print(f"{job.name}: round {number + 1}: {outcome.contender.name}: {value:.3g} {job.unit.name}", file=sys.stderr)


def without_folders(text: str) -> str:
    """The text with file names only: folders of one machine do not belong in a report."""
    return re.sub(r"(?<![\w/])/(?:[^\s/:'\"]+/)+", "", text)
