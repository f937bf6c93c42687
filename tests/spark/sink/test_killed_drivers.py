"""Exactly once: drivers are killed while they copy a growing log into every sink, and others take up their work.

`make spark-kills` does it with twenty drivers, and prints what the kills met.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import duralog
from duralog import Record
from tests.support.places import ROOT
from tests.support.spark.killed_driver import (
    OFFSETS_PER_TRIGGER,
    STREAMS,
    TOPIC,
    checkpoint_of,
    exporting,
    finish,
    has_started,
)
from tests.support.spark.lake_directory import FORMATS, rows_of

pytestmark = pytest.mark.spark

PARTITIONS = 2
WAIT_SECONDS = 300
AIM_SECONDS = 30
SINKS = (*STREAMS, *FORMATS)
Row = tuple[int, int, str]
"""Partition, offset, value: the value is the offset."""


def append(log: Path, count: int) -> None:
    with duralog.open(log) as store:
        for number in range(PARTITIONS):
            partition = store.partition(TOPIC, number)
            first = partition.end_offset
            partition.append([Record(key=b"k", value=b"%d" % (first + row)) for row in range(count)])


@contextmanager
def growing(log: Path) -> Iterator[None]:
    """Records keep coming: the driver always has something to copy."""
    is_over = Event()

    def grow() -> None:
        while not is_over.wait(0.2):
            append(log, OFFSETS_PER_TRIGGER // 4)

    thread = Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def numbers(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.glob("*") if file.name.isdigit()}


def under_way(targets: Path, process: int) -> list[str]:
    """The streams that are in the middle of a micro-batch, and the exports that have begun and not ended."""
    checkpoints = {stream: checkpoint_of(targets, stream) for stream in STREAMS}
    streams = [name for name, path in checkpoints.items() if numbers(path / "offsets") - numbers(path / "commits")]
    return streams + [name for name in FORMATS if exporting(targets, process, name).exists()]


def is_writing(targets: Path, sink: str) -> bool:
    """Whether a stream is in the middle of a micro-batch, or an export in the middle of a file."""
    if sink in FORMATS:
        return any((targets / sink).rglob("*.part"))
    path = checkpoint_of(targets, sink)
    return bool(numbers(path / "offsets") - numbers(path / "commits"))


def is_at_work(targets: Path, process: int) -> bool:
    """Whether both streams have done some batches, and all sinks are in the middle of more."""
    are_begun = all(len(numbers(checkpoint_of(targets, stream) / "commits")) > 1 for stream in STREAMS)
    return are_begun and len(under_way(targets, process)) == len(SINKS)


def killed(log: Path, targets: Path, sink: str, delay_seconds: float) -> tuple[list[str], list[str]]:
    """Start a driver, and kill it while it writes to the sink, with its JVM, which is of the same group.

    Returns all that was under way, and the exports that were writing a file: that takes a moment, and may be missed.
    """
    command = [sys.executable, "-m", "tests.support.spark.killed_driver", str(log), str(targets)]
    errors = targets / "errors.txt"
    with open(errors, "wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=file)

    def check_is_alive() -> None:
        assert process.poll() is None, f"the driver ended by itself: {errors.read_text()[-5000:]}"

    try:
        with growing(log):
            deadline = time.monotonic() + WAIT_SECONDS
            while not (has_started(targets, process.pid) and is_at_work(targets, process.pid)):
                check_is_alive()
                assert time.monotonic() < deadline, "the driver did not get to work"
                time.sleep(0.01)
            time.sleep(delay_seconds)
            deadline = time.monotonic() + AIM_SECONDS
            while not is_writing(targets, sink) and time.monotonic() < deadline:
                check_is_alive()
                time.sleep(0.001)
            writing = [name for name in FORMATS if is_writing(targets, name)]
            found = under_way(targets, process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return found, writing


def copied_rows(targets: Path, sink: str) -> list[Row]:
    if sink == "log":
        with duralog.open(targets / "log", read_only=True) as store:
            values = [
                (number, (record.value or b"").decode())
                for number in store.partitions(TOPIC)
                for record in store.partition(TOPIC, number).read(0)
            ]
        return sorted((number, int(value), value) for number, value in values)
    return [(row["partition"], row["offset"], row["value"].decode()) for row in rows_of(sink, targets / sink / TOPIC)]


def check_no_row_twice(targets: Path) -> None:
    """A killed driver may have left some rows out, but never one twice, nor a wrong one."""
    for sink in SINKS[1:]:
        if (targets / sink).exists() and (sink != "iceberg" or any((targets / sink).rglob("*.metadata.json"))):
            rows = copied_rows(targets, sink)
            assert len(rows) == len(set(rows)), sink
            assert all(value == str(offset) for _, offset, value in rows), sink


def streamed_rows(table: pa.Table) -> list[Row]:
    return sorted((row["partition"], row["offset"], row["value"]) for row in table.to_pylist())


def test_every_record_once_in_every_sink_though_drivers_are_killed(
    spark: SparkSession, tmp_path: Path, randomised: int
) -> None:
    log, targets = tmp_path / "source", tmp_path / "targets"
    targets.mkdir()
    with duralog.open(log) as store:
        store.create_topic(TOPIC, partitions=PARTITIONS)
    append(log, 2 * OFFSETS_PER_TRIGGER)

    chance, met, in_files = random.Random(randomised), Counter[str](), Counter[str]()
    for number in range(randomised):
        found, writing = killed(log, targets, SINKS[number % len(SINKS)], chance.uniform(0, 2) if number else 0)
        print(f"driver {number} killed in the middle of {', '.join(found) or 'nothing'}", flush=True)
        met.update(found)
        in_files.update(writing)
        if number:
            check_no_row_twice(targets)

    streamed = finish(spark, log, targets)
    with duralog.open(log, read_only=True) as store:
        ends = [store.partition(TOPIC, number).end_offset for number in range(PARTITIONS)]
    expected = [(number, offset, str(offset)) for number, end in enumerate(ends) for offset in range(end)]
    assert streamed_rows(streamed) == expected
    for sink in SINKS[1:]:
        assert copied_rows(targets, sink) == expected, sink
    print(f"{randomised} drivers killed, in the middle of: {dict(met)}; in the middle of a file: {dict(in_files)}")
    print(f"{len(expected)} records once in every sink")
