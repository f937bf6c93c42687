"""One SVG for each job: medians as bars, lowest and highest as whiskers. RESULTS_JSON FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
# The same results give the same files.
mpl.rcParams["svg.hashsalt"] = "duralog"

from matplotlib import pyplot as plt  # noqa: E402

_OURS = "#1f6f8b"
_PEERS = "#b9b4a7"


def plot(job: dict[str, Any], path: Path) -> None:
    shown = [one for one in job["contenders"] if "median" in one][::-1]
    figure, axes = plt.subplots(figsize=(7, 0.7 + 0.45 * len(shown)), layout="constrained")
    medians = [one["median"] for one in shown]
    whiskers = [[one["median"] - one["low"] for one in shown], [one["high"] - one["median"] for one in shown]]
    peers = any("duralog" not in one["name"] for one in shown)
    colours = [_OURS if "duralog" in one["name"] or not peers else _PEERS for one in shown]
    bars = axes.barh([one["name"] for one in shown], medians, xerr=whiskers, color=colours, ecolor="#333333", capsize=3)
    axes.bar_label(bars, labels=[f"{median:.3g}" for median in medians], padding=6)
    better = "more is better" if job["is_rate"] else "less is better"
    axes.set_xlabel(f"{job['unit']} ({better})")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(results: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for job in json.loads(results.read_text())["jobs"]:
        if any("median" in one for one in job["contenders"]):
            plot(job, folder / f"{job['name']}.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
