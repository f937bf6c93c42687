"""Exactly once: a driver is killed in the middle of a micro-batch, and its query is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duralog
from duralog import Record
from tests.support.places import ROOT
from tests.support.spark.streaming_process import OFFSETS_PER_TRIGGER, start_query

pytestmark = pytest.mark.spark

RECORDS = 50 * OFFSETS_PER_TRIGGER
WAIT_SECONDS = 300


def write_log(path: Path) -> None:
    with duralog.open(path) as store:
        store.create_topic("t", partitions=2)
        for partition in range(2):
            log = store.partition("t", partition)
            for first in range(0, RECORDS // 2, 10):
                log.append([Record(key=b"k", value=b"%d" % (first + row)) for row in range(10)])


def batch_numbers(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.glob("*") if file.name.isdigit()}


def kill_in_the_middle_of_a_batch(process: subprocess.Popen[bytes], checkpoint: Path) -> None:
    """When some batches are done and another one has begun. Kills the JVM, too, which is of the same group."""
    for _ in range(WAIT_SECONDS * 100):
        assert process.poll() is None, "the query ended by itself"
        begun, done = batch_numbers(checkpoint / "offsets"), batch_numbers(checkpoint / "commits")
        if len(done) >= 3 and begun - done:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    pytest.fail("the query did not get to its third batch")


def test_every_record_exactly_once_though_the_driver_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    log, output, checkpoint = tmp_path / "log", tmp_path / "output", tmp_path / "checkpoint"
    write_log(log)
    command = [sys.executable, "-m", "tests.support.spark.streaming_process", str(log), str(output), str(checkpoint)]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)
    kill_in_the_middle_of_a_batch(process, checkpoint)
    assert len(batch_numbers(checkpoint / "commits")) < RECORDS // OFFSETS_PER_TRIGGER

    # Nothing about the batch that was begun may change, but what comes after it can.
    places = (str(log), str(output), str(checkpoint))
    start_query(spark, *places, limit=RECORDS, available_now=True).awaitTermination()
    found = spark.read.schema("partition int, offset long, value string").json(str(output)).collect()
    expected = [(partition, offset, str(offset)) for partition in range(2) for offset in range(RECORDS // 2)]
    assert sorted(map(tuple, found)) == expected
