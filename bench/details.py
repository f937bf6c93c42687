"""`results/<job>.md`: everything measured for one job, with its plot and the limits of its run."""

from __future__ import annotations

from collections.abc import Sequence

from bench.job import Contender, Job
from bench.measured import Measured, limits
from bench.wording import mode, number, reached, table, target, verdict_word, with_mode

FOLDER = "results"
PLOTS = "plots"


def path(job: Job) -> str:
    return f"{FOLDER}/{job.name}.md"


def link(job: Job) -> str:
    return f"[{job.title}]({path(job)})"


def page(one: Measured, differences: Sequence[str], *, has_plot: bool) -> str:
    """`differences`: where the machine or the versions are not those of the overview."""
    parts = [f"# {one.job.title}\n", f"{one.job.about}\n", _contenders(one)]
    if one.job.targets:
        parts.append(_targets(one))
    if has_plot:
        parts.append(f"![{one.job.title}](../{PLOTS}/{one.job.name}.svg)\n")
    return "\n".join([*parts, _run(one, differences)])


def _contenders(one: Measured) -> str:
    head = ["", f"{one.job.unit.name}, median", "lowest to highest", "every round", "CPU s", "wall s", "peak memory"]
    if one.job.compare_with:
        better = "x" if one.job.unit.is_rate else "x less than"
        head.append(f"{better} {one.job.compare_with}")
    return table(head, [_contender(one, each, len(head)) for each in one.job.contenders])


def _contender(one: Measured, contender: Contender, columns: int) -> list[str]:
    name = contender.name
    median = one.median(name)
    if median is None:
        reason = one.failure(name).replace("|", "\\|").replace("\n", " ")
        return [name, "failed" if name in one.stored else "", reason, *[""] * (columns - 3)]
    stored = one.stored[name]
    row = [
        name,
        f"**{number(median)}**",
        f"{number(stored['low'])} to {number(stored['high'])}",
        ", ".join(map(number, stored["values"])),
        number(stored["cpu_seconds"]),
        number(stored["seconds"]),
        f"{number(stored['peak_bytes'] / 1e6)} MB",
    ]
    if one.job.compare_with:
        ratio = one.ratio(name, one.job.compare_with)
        row.append("" if ratio is None else number(ratio))
    return row


def _targets(one: Measured) -> str:
    rows = [
        [
            with_mode(target(verdict.target, is_rate=one.job.unit.is_rate), mode(verdict.target.contender)),
            reached(verdict, one),
            verdict_word(verdict.is_met),
        ]
        for verdict in one.verdicts
    ]
    return table(["target", "reached", "verdict"], rows)


def _run(one: Measured, differences: Sequence[str]) -> str:
    run = one.run
    kind = "Quick run" if run["quick"] else "Full run"
    lines = [
        f"{kind} of {run['when']}, segments of {run['records']:,} records. "
        "[Machine and versions](../RESULTS.md#machine), [how the figures are taken](../README.md)."
    ]
    if differences:
        lines.append(f"Different in this run: {'; '.join(differences)}.")
    of_machine = ", ".join(f"{name} {number(value)}" for name, value in limits(run).items())
    if of_machine:
        lines.append(f"Limits of the machine in the same run, GB/s on one thread: {of_machine}.")
    return "\n".join(lines) + "\n"
