"""Reads and jobs on Spark's local cluster: what is planned here is read by executors in other processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import duralog
from duralog import Record
from tests.support.spark import local_cluster_process

pytestmark = pytest.mark.spark


def test_a_read_and_a_job_on_two_executors(tmp_path: Path) -> None:
    with duralog.open(tmp_path, config={"log.index.interval.bytes": 256}) as store:
        store.create_topic("t", partitions=2)
        for partition in range(2):
            for first in range(0, 200, 10):
                records = [Record(key=b"k", value=b"%d" % (first + row)) for row in range(10)]
                store.partition("t", partition).append(records)
    command = [sys.executable, str(local_cluster_process.__file__), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == [400, 2 * sum(range(200)), 2]
    assert found["daemons"] == 2, "each executor has a Python daemon of its own"
    assert found["host"] == "127.0.0.1"
    assert (found["verified"]["findings"], found["verified"]["partitions"]) == (0, 3)
