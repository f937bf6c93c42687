"""The benchmark harness: what it measures, how it treats failures, its verdicts, and the report it renders."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import bench
from bench.details import PLOTS
from bench.job import MILLION_RECORDS, SECONDS, Contender, Job, Run, Setting, Target
from bench.jobs import JOBS, LIMITS
from bench.measure import Measurement, RunFailedError, measure
from bench.measured import Json, Measured
from bench.report import pages
from bench.results import Results, job_result
from bench.run import Outcome, run_job, without_folders

FOLDER = Path(str(bench.__file__)).parent


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


def test_a_failure_has_the_last_line_of_stderr(tmp_path: Path) -> None:
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


def a_run(**facts: object) -> Json:
    limits = job_result(LIMITS, [outcome("memory copy", 0.1)], {})
    machine = {"CPU": "some", "numba": "1"}
    return {"when": "2026-11-15 10:38 UTC", "quick": False, "records": 5, "limits": limits, "machine": machine} | facts


def overview(*measured: Measured) -> str:
    jobs = {one.job.name: one.job for one in measured}
    results: dict[str, Json] = {
        one.job.name: {"name": one.job.name, "contenders": list(one.stored.values()), "run": one.run}
        for one in measured
    }
    return pages(jobs, results, plotted=())["RESULTS.md"]


def row_of(job: str, text: str) -> list[str]:
    line = next(line for line in text.splitlines() if f'<a id="{job}"></a>' in line)
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def decode_job() -> tuple[Job, list[Outcome]]:
    contenders = (
        Contender("duralog", broken),
        Contender("peer", broken, is_peer=True),
        Contender("peer, another way", broken, is_peer=True),
        Contender("gone", broken, is_peer=True),
    )
    job = Job(
        name="decode",
        title="Decode",
        unit=MILLION_RECORDS,
        about="About.",
        contenders=contenders,
        compare_with="peer",
        targets=(
            Target("duralog", 10.0),
            Target("duralog", 11.0),
            Target("duralog", 5.0, than="peer"),
            Target("duralog", 2.0, than="gone"),
        ),
    )
    gone = Outcome(Contender("gone", broken), failure="not | here")
    outcomes = [outcome("duralog", 0.05, 0.1, 0.2), outcome("peer", 0.5), outcome("peer, another way", 0.25), gone]
    return job, outcomes


def test_verdicts_and_ratios() -> None:
    job, outcomes = decode_job()
    result = job_result(job, outcomes, a_run())
    ours, peer, _, failed = result["contenders"]
    assert (ours["median"], ours["low"], ours["high"], ours["speed_ratio"]) == (10.0, 5.0, 20.0, 5.0)
    assert peer["speed_ratio"] == 1
    assert failed == {"name": "gone", "failure": "not | here"}
    # A peer that could not be measured was not beaten.
    verdicts = Measured(job, result).verdicts
    assert [verdict.is_met for verdict in verdicts] == [True, False, True, False]
    assert verdicts[3].reached is None


def test_fewer_seconds_are_better() -> None:
    contenders = (Contender("duralog", broken), Contender("peer", broken, is_peer=True))
    targets = (Target("duralog", 0.3), Target("duralog", 0.1), Target("duralog", 3.0, than="peer"))
    job = Job(name="s", title="S", unit=SECONDS, about="", contenders=contenders, targets=targets)
    measured = Measured(job, job_result(job, [outcome("duralog", 0.2), outcome("peer", 0.8)], a_run()))
    assert [verdict.is_met for verdict in measured.verdicts] == [True, False, True]
    assert row_of("s", overview(measured))[2:7] == [
        "0.2",
        "peer 0.8",
        "4x less than peer",
        "",
        "≤ 0.3: met; ≤ 0.1: **missed**; ≥ 3x less than peer: met",
    ]


def test_the_overview_has_a_row_per_job_and_the_missed_targets() -> None:
    job, outcomes = decode_job()
    text = overview(Measured(job, job_result(job, outcomes, a_run(quick=True))))
    assert row_of("decode", text) == [
        '<a id="decode"></a>[Decode](results/decode.md)',
        "M records/s",
        "10",
        "peer 2, gone failed",
        "5x peer",
        "",
        "≥ 10: met; ≥ 11: **missed**; ≥ 5x peer: met; ≥ 2x gone: **missed**",
        "2026-11-15 quick",
    ]
    assert "**2 of 4 targets are missed:**" in text
    assert "- [Decode](results/decode.md): not measured; target ≥ 2x gone" in text


def test_the_same_modes_are_compared_and_the_limit_is_shown() -> None:
    names = ("duralog, 1 thread", "duralog, 2 threads", "Kafka, 1 thread", "Kafka, 2 threads", "bare")
    contenders = tuple(Contender(name, broken, is_peer=name.startswith("Kafka")) for name in names)
    job = Job(name="scan", title="Scan", unit=MILLION_RECORDS, about="", contenders=contenders, limit="bare")
    outcomes = [outcome(name, seconds) for name, seconds in zip(names, (0.25, 0.125, 1, 0.5, 0.1), strict=True)]
    assert row_of("scan", overview(Measured(job, job_result(job, outcomes, a_run()))))[2:6] == [
        "4 (1 thread), 8 (2 threads)",
        "Kafka 1 (1 thread), 2 (2 threads)",
        "4x, 4x Kafka",
        "10 (bare)",
    ]


def test_a_limit_of_the_machine_is_one_of_the_same_run() -> None:
    contenders = (Contender("duralog", broken),)
    job = Job(name="c", title="C", unit=MILLION_RECORDS, about="", contenders=contenders, limit="memory copy")
    limit = Measured(job, job_result(job, [outcome("duralog", 1)], a_run())).limit
    assert limit is not None
    assert limit.value == job_result(LIMITS, [outcome("memory copy", 0.1)], {})["contenders"][0]["median"]
    assert limit.is_per_thread


def test_many_modes_are_shown_by_the_one_nearest_to_its_target() -> None:
    names = [f"page {number}" for number in range(1, 6)]
    contenders = tuple(Contender(name, broken) for name in names)
    targets = tuple(Target(name, 10.0) for name in names)
    job = Job(name="p", title="P", unit=SECONDS, about="", contenders=contenders, targets=targets)
    outcomes = [outcome(name, seconds) for name, seconds in zip(names, (1, 2, 5, 4, 3), strict=True)]
    row = row_of("p", overview(Measured(job, job_result(job, outcomes, a_run()))))
    assert row[2] == "5 (page 3), worst of 5"
    assert row[6] == "≤ 10 (each of 5): met"


def test_another_machine_or_version_is_a_footnote() -> None:
    contenders = (Contender("duralog", broken),)
    measured = []
    for name, version in (("a", "1"), ("b", "2"), ("c", "1")):
        job = Job(name=name, title=name, unit=SECONDS, about="", contenders=contenders)
        run = a_run(machine={"CPU": "some", "numba": version})
        measured.append(Measured(job, job_result(job, [outcome("duralog", 1)], run)))
    text = overview(*measured)
    assert text.count("CPU: some") == 1
    assert [row_of(name, text)[-1] for name in "abc"] == ["2026-11-15", "2026-11-15 [^1]", "2026-11-15"]
    assert "[^1]: On another machine or with other versions: numba: 2." in text


def test_a_page_has_every_round_and_the_reason_of_a_failure() -> None:
    job, outcomes = decode_job()
    page = pages({"decode": job}, {"decode": job_result(job, outcomes, a_run())}, plotted=["decode"])[
        "results/decode.md"
    ]
    assert "| duralog | **10** | 5 to 20 | 20, 10, 5 |" in page
    assert "| gone | failed | not \\| here |" in page
    assert "| ≥ 2x gone | not measured | **missed** |" in page
    assert "](../plots/decode.svg)" in page
    assert "memory copy 0.01" in page


def test_a_new_result_replaces_its_own_and_keeps_the_others(tmp_path: Path) -> None:
    contenders = (Contender("duralog", broken),)
    jobs = {name: Job(name=name, title=name, unit=SECONDS, about="", contenders=contenders) for name in ("a", "b")}
    for name, seconds in (("b", 1), ("a", 2), ("b", 3)):
        Results(tmp_path, jobs).put(job_result(jobs[name], [outcome("duralog", seconds)], a_run()))
    stored = json.loads((tmp_path / "results.json").read_text())["jobs"]
    assert [(one["name"], one["contenders"][0]["median"]) for one in stored] == [("a", 2), ("b", 3)]
    assert set(Results(tmp_path, {"b": jobs["b"]}).pages()) == {"RESULTS.md", "results/b.md"}


def test_the_report_is_fresh_and_short() -> None:
    texts = Results(FOLDER, JOBS).pages()
    stale = [
        path for path, text in texts.items() if not (FOLDER / path).is_file() or (FOLDER / path).read_text() != text
    ]
    assert stale == [], "run python -m bench --render"
    assert {f"results/{page.name}" for page in (FOLDER / "results").iterdir()} == texts.keys() - {"RESULTS.md"}
    assert len(texts["RESULTS.md"].splitlines()) < 100


NOT_MEASURED_YET = {"search"}
"""Jobs that came after the last run on an idle machine."""


def test_every_job_is_measured_and_plotted() -> None:
    stored = {result["name"] for result in json.loads((FOLDER / "results.json").read_text())["jobs"]}
    assert stored == {plot.stem for plot in (FOLDER / PLOTS).iterdir()}
    assert stored | NOT_MEASURED_YET == JOBS.keys()


def test_jobs_name_contenders_that_exist() -> None:
    of_machine = {one.name for one in LIMITS.contenders}
    for job in JOBS.values():
        names = {one.name for one in job.contenders}
        for target in job.targets:
            assert {target.contender, target.than or target.contender} <= names, job.name
        assert {job.compare_with, job.limit} <= names | of_machine | {None}, job.name
        if job.limit in of_machine:
            assert job.unit == LIMITS.unit, "a limit is shown as it was measured, in its own unit"
