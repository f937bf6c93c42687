"""The benchmark harness itself: what it measures, how it takes failures, and what it calls reached."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.job import MILLION_RECORDS, SECONDS, Contender, Job, Run, Setting, Target
from bench.measure import Measurement, RunFailedError, measure
from bench.report import render
from bench.results import job_result
from bench.run import Outcome, run_job, without_folders


def python(program: str, **settings: object) -> Run:
    return Run(command=[sys.executable, "-c", program], **settings)  # type: ignore[arg-type]


def test_a_whole_process_is_timed_from_outside(tmp_path: Path) -> None:
    measured = measure(python("print('x' * 1000)", amount=7), tmp_path)
    assert measured.amount == 7
    assert measured.seconds > 0
    assert measured.peak_bytes > 1_000_000


def test_passes_are_taken_by_their_median_without_the_warm_up(tmp_path: Path) -> None:
    lines = [{"seconds": seconds, "cpu_seconds": 2 * seconds, "amount": 10} for seconds in (900, 1, 5, 2)]
    measured = measure(python(f"print({chr(10).join(map(json.dumps, lines))!r})", warm_up=1), tmp_path)
    assert (measured.amount, measured.seconds, measured.cpu_seconds) == (10, 2, 4)


def test_a_failure_tells_the_last_line_of_stderr(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="the reason"):
        measure(python("raise SystemExit('much\\nthe reason')", amount=1), tmp_path)


def test_a_process_that_prints_no_pass_has_failed(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="no measured pass"):
        measure(python("pass"), tmp_path)


def test_a_process_that_hangs_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="stopped after"):
        measure(python("import time; time.sleep(600)", amount=1), tmp_path, timeout_seconds=0.2)


def broken(_: Setting) -> Run:
    raise FileNotFoundError("/home/somebody/jars/kafka.jar is not there")


def test_a_contender_that_fails_leaves_the_others_alone() -> None:
    works = Contender("works", lambda _: python("pass", amount=1))
    job = Job(name="try", title="Try", unit=SECONDS, about="", contenders=(Contender("broken", broken), works))
    first, second = run_job(job, rounds=2, records=1, passes=1)
    assert first.failure == "FileNotFoundError: kafka.jar is not there"
    assert len(second.measurements) == 2
    assert second.failure is None


def test_no_folders_in_reasons() -> None:
    assert without_folders("from 'x' (/opt/py/lib/abc.py): 3/4 of a/b") == "from 'x' (abc.py): 3/4 of a/b"


def outcome(name: str, *seconds: float) -> Outcome:
    measurements = [Measurement(amount=1e6, seconds=one, cpu_seconds=one, peak_bytes=5_000_000) for one in seconds]
    return Outcome(Contender(name, broken), measurements)


def test_verdicts_and_ratios() -> None:
    job = Job(
        name="decode",
        title="Decode",
        unit=MILLION_RECORDS,
        about="About.",
        contenders=(),
        compare_with="peer",
        targets=(
            Target("ours", 10.0),
            Target("ours", 11.0),
            Target("ours", 5.0, than="peer"),
            Target("ours", 2.0, than="gone"),
        ),
    )
    gone = Outcome(Contender("gone", broken), failure="not | here")
    result = job_result(job, [outcome("ours", 0.05, 0.1, 0.2), outcome("peer", 0.5), gone], {})
    ours, peer, failed = result["contenders"]
    assert (ours["median"], ours["low"], ours["high"], ours["speed_ratio"]) == (10.0, 5.0, 20.0, 5.0)
    assert peer["speed_ratio"] == 1
    assert failed == {"name": "gone", "failure": "not | here"}
    # A peer that could not be measured was not beaten.
    assert [target["met"] for target in result["targets"]] == [True, False, True, False]
    assert result["targets"][3]["reached"] == "not measured"

    limits = job_result(job, [outcome("memory copy", 0.1)], {})
    run = {"when": "now", "quick": True, "records": 5, "rounds": 1, "machine": {"CPU": "some"}, "limits": limits}
    text = render([{**result, "run": run}], plots=None)
    assert text.count("**missed**") == 2
    assert "| gone | failed | not \\| here |" in text
    assert "memory copy 10" in text


def test_fewer_seconds_are_better() -> None:
    job = Job(
        name="s", title="S", unit=SECONDS, about="", contenders=(), targets=(Target("ours", 0.3), Target("ours", 0.1))
    )
    result = job_result(job, [outcome("ours", 0.2)], {})
    assert [target["met"] for target in result["targets"]] == [True, False]
