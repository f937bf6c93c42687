"""One SVG per job: medians as bars, lowest and highest as whiskers. RESULTS_JSON FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
# The same results give the same files.
mpl.rcParams["svg.hashsalt"] = "duralog"

from matplotlib import pyplot as plt  # noqa: E402

from bench.job import Job  # noqa: E402
from bench.jobs import JOBS  # noqa: E402
from bench.measured import Measured  # noqa: E402

_OURS = "#1f6f8b"
_PEERS = "#b9b4a7"


def plot(job: Job, measured: Measured, path: Path) -> None:
    shown = [one for one in job.contenders if measured.median(one.name) is not None][::-1]
    stored = [measured.stored[one.name] for one in shown]
    figure, axes = plt.subplots(figsize=(7, 0.7 + 0.45 * len(shown)), layout="constrained")
    medians = [one["median"] for one in stored]
    whiskers = [[one["median"] - one["low"] for one in stored], [one["high"] - one["median"] for one in stored]]
    colours = [_PEERS if one.is_peer else _OURS for one in shown]
    bars = axes.barh([one.name for one in shown], medians, xerr=whiskers, color=colours, ecolor="#333333", capsize=3)
    axes.bar_label(bars, labels=[f"{median:.3g}" for median in medians], padding=6)
    better = "more is better" if job.unit.is_rate else "less is better"
    axes.set_xlabel(f"{job.unit.name} ({better})")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(results: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    drawn = set()
    for result in json.loads(results.read_text(encoding="utf-8"))["jobs"]:
        job = JOBS.get(result["name"])
        if job is not None and any("median" in one for one in result["contenders"]):
            plot(job, Measured(job, result), folder / f"{job.name}.svg")
            drawn.add(f"{job.name}.svg")
    for old in folder.glob("*.svg"):
        if old.name not in drawn:
            old.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
