"""The log directories that the benchmarks of the store run on: made once by duralog, into `bench/data`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench import data
from bench.workers import make_store
from duralog.format.filenames import CLEAN_SHUTDOWN

TOPIC = "orders"
PARTITIONS_OF_SEGMENTS = 2
SEGMENTS_EACH = 10


def of_segments(segment: data.Segment) -> Path:
    """A directory closed well, with the same segment in each of two partitions."""
    return _made("segments", segment.path.parent.name, str(segment.path), str(PARTITIONS_OF_SEGMENTS))


def of_many_partitions(partitions: int) -> Path:
    """A directory closed well, of so many partitions with ten small segments each. Whoever opens it closes it well."""
    directory = _made("many", f"{partitions}", str(partitions), str(SEGMENTS_EACH))
    if not (directory / CLEAN_SHUTDOWN).exists():
        # A run was interrupted.
        shutil.rmtree(directory)
        return of_many_partitions(partitions)
    return directory


def _made(kind: str, name: str, *arguments: str) -> Path:
    version = hashlib.sha256(Path(make_store.__file__).read_bytes()).hexdigest()[:8]
    folder = data.FOLDER / f"store-{kind}-{name}-{version}"
    if folder.exists():
        return folder
    print(f"making a log directory: {folder.name}", file=sys.stderr)
    unfinished = folder.with_suffix(f".unfinished-{os.getpid()}")
    try:
        subprocess.run(
            [sys.executable, "-m", make_store.__name__, kind, str(unfinished), TOPIC, *arguments], check=True
        )
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def copied(directory: Path, target: Path, *, leave_out: tuple[str, ...] = ()) -> Path:
    """A copy that is on disk, so that nothing waits in the page cache to be written while a run is measured."""
    shutil.copytree(directory, target, ignore=shutil.ignore_patterns(*leave_out))
    os.sync()
    return target
