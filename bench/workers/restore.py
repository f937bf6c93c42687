"""Restores a log directory to a new one, or copies its files and syncs them: `duralog` or `cp`, from, to, how often."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bench.workers.passes import timed
from duralog.operations.restore.report import RestoreRequest
from duralog.operations.restore.restore import restore


def _restored(source: str, target: Path) -> int:
    report = restore(RestoreRequest(paths=[source], target=str(target)))
    assert report.is_made
    return report.size_bytes


def _copied(source: str, target: Path) -> int:
    shutil.copytree(source, target)
    paths = [path for path in target.rglob("*") if path.is_file()]
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return sum(path.stat().st_size for path in paths if path.suffix == ".log" and "metadata" not in str(path))


def main(what: str, source: str, folder: str, passes: str) -> None:
    target = Path(folder) / "new"
    work = {"duralog": _restored, "cp": _copied}[what]
    timed(lambda: work(source, target), int(passes), before=lambda: shutil.rmtree(target, ignore_errors=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
