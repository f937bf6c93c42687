"""The log directories that the benchmarks of the store and of Spark run on: made once by duralog, into `bench/data`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench import data
from duralog.format.filenames import CLEAN_SHUTDOWN

TOPIC = "orders"
PARTITIONS_OF_SEGMENTS = 2
SEGMENTS_EACH = 10
PARTITIONS_OF_WEEK = 4


def of_segments(segment: data.Segment) -> Path:
    """A cleanly closed directory with the same segment in each of two partitions."""
    return _made("make_store", "segments", segment.path.parent.name, str(segment.path), str(PARTITIONS_OF_SEGMENTS))


def of_many_partitions(partitions: int) -> Path:
    """A cleanly closed directory with ten small segments in each partition. The worker that opens it closes it."""
    directory = _made("make_store", "many", f"{partitions}", str(partitions), str(SEGMENTS_EACH))
    if not (directory / CLEAN_SHUTDOWN).exists():
        # A run was interrupted.
        shutil.rmtree(directory)
        return of_many_partitions(partitions)
    return directory


def of_copies(segment: data.Segment) -> Path:
    """The directories of three nodes, each with a copy of the partition that has the segment. They are only read."""
    return _made("make_cluster", "copies", segment.path.parent.name, str(of_segments(segment)))


def of_many_copies(partitions: int) -> Path:
    """The directories of three nodes with the same small partitions. They are only read."""
    return _made("make_cluster", "many", f"cluster-{partitions}", str(partitions), str(SEGMENTS_EACH))


def for_the_console(partitions: int) -> Path:
    """A cleanly closed directory with many topics and groups. It is only read."""
    return _made("console_store", "many", f"console-{partitions}", str(partitions), str(SEGMENTS_EACH))


def of_week(records: int) -> Path:
    """A cleanly closed directory with the events of a week in four partitions: about 200 bytes each."""
    return _made("make_events", "week", f"{records}", str(records), str(PARTITIONS_OF_WEEK))


def of_orders(records: int) -> Path:
    """A cleanly closed directory with Avro values of ten fields in four partitions, and their schema."""
    return _made("make_events", "orders", f"{records}", str(records), str(PARTITIONS_OF_WEEK))


def of_keyed(records: int, partitions: int) -> Path:
    """A cleanly closed directory with a compacted topic that has not been compacted yet."""
    return _made("make_events", "keyed", f"{records}", str(records), str(partitions))


def of_documents(records: int) -> Path:
    """A cleanly closed directory with JSON documents in four partitions: about 130 bytes each."""
    return _made("make_documents", "documents", f"{records}", str(records), str(PARTITIONS_OF_WEEK))


def of_changes(records: int, partitions: int) -> Path:
    """A cleanly closed directory with Debezium's change events of a table."""
    return _made("make_changes", "changes", f"{records}", str(records), str(partitions))


def _made(worker: str, kind: str, name: str, *arguments: str) -> Path:
    # Named, not imported: it needs libraries that would count for the memory of every measured process.
    source = Path(__file__).parent / "workers" / f"{worker}.py"
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
    folder = data.FOLDER / f"store-{kind}-{name}-{version}"
    if folder.exists():
        return folder
    print(f"making a log directory: {folder.name}", file=sys.stderr)
    unfinished = folder.with_suffix(f".unfinished-{os.getpid()}")
    try:
        command = [sys.executable, "-m", f"bench.workers.{worker}", kind, str(unfinished), TOPIC, *arguments]
        subprocess.run(command, check=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def copied(directory: Path, target: Path, *, leave_out: tuple[str, ...] = ()) -> Path:
    """A copy that is on disk, so that nothing waits in the page cache to be written while a run is measured."""
    shutil.copytree(directory, target, ignore=shutil.ignore_patterns(*leave_out))
    os.sync()
    return target
