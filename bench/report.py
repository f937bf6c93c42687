"""`RESULTS.md`: the targets first, then every job with its table, its plot and the limits of its run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

_OPENING = """# Benchmarks

Made by `make bench`; do not edit. How to read it, and how the figures are taken, is in [README.md](README.md).
"""


def render(jobs: Sequence[Json], *, plots: str | None) -> str:
    parts = [_OPENING, _targets(jobs)]
    runs: list[Json] = []
    for job in jobs:
        if job["run"] not in runs:
            runs.append(job["run"])
    parts += [_run(run, [job["title"] for job in jobs if job["run"] == run], len(runs)) for run in runs]
    parts += [_job(job, plots) for job in jobs]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def _targets(jobs: Sequence[Json]) -> str:
    rows = [
        [
            f"[{job['title']}](#{job['name']})",
            target["asked"],
            target["reached"],
            "reached" if target["met"] else "**missed**",
        ]
        for job in jobs
        for target in job["targets"]
    ]
    if any(job["run"]["quick"] for job in jobs):
        caution = "\nSome of it is from a quick run: less data and fewer rounds, so more noise.\n"
    else:
        caution = ""
    return "## Targets\n\n" + _table(["job", "target", "median reached", "verdict"], rows) + caution


def _run(run: Json, titles: Sequence[str], count: int) -> str:
    kind = "quick run" if run["quick"] else "full run"
    title = f"## The {kind} of {run['when']}\n\n"
    if count > 1:
        title += f"Of: {'; '.join(titles)}.\n\n"
    size = f"Segments of {run['records']:,} records of 100 bytes; up to {run['rounds']} rounds.\n\n"
    machine = _table(["what", "which"], [[name, value] for name, value in run["machine"].items()])
    limits = run["limits"]
    return f"{title}{size}{machine}\n{_contenders(limits)}\n{limits['about']}\n"


def _job(job: Json, plots: str | None) -> str:
    picture = f"\n![{job['title']}]({plots}/{job['name']}.svg)\n" if plots else ""
    limits = ", ".join(
        f"{limit['name']} {limit['median']:.3g}" for limit in job["run"]["limits"]["contenders"] if "median" in limit
    )
    beside = f"\nThe machine in the same run, GB/s on one thread: {limits}.\n" if limits else ""
    return f'<a id="{job["name"]}"></a>\n\n## {job["title"]}\n\n{job["about"]}\n\n{_contenders(job)}{beside}{picture}'


def _contenders(job: Json) -> str:
    head = ["", f"{job['unit']}, median", "lowest to highest", "CPU s", "wall s", "peak memory"]
    compare_with = job["compare_with"]
    if compare_with:
        head.append(f"times as fast as {compare_with}")
    return _table(head, [_contender(one, bool(compare_with)) for one in job["contenders"]])


def _contender(one: Json, compared: bool) -> list[str]:
    if "failure" in one:
        reason = str(one["failure"]).replace("|", "\\|").replace("\n", " ")
        return [one["name"], "failed", reason, "", "", "", *([""] if compared else [])]
    row = [
        one["name"],
        f"**{one['median']:.3g}**",
        f"{one['low']:.3g} to {one['high']:.3g}",
        f"{one['cpu_seconds']:.3g}",
        f"{one['seconds']:.3g}",
        f"{one['peak_bytes'] / 1e6:.0f} MB",
    ]
    if compared:
        row.append("" if one["speed_ratio"] is None else f"{one['speed_ratio']:.3g}")
    return row
