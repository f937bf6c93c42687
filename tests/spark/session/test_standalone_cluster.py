"""Spark's stand-alone cluster, a master and two workers: other processes read and write what is planned here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import duralog
from duralog import Record
from tests.support.places import ROOT

pytestmark = pytest.mark.spark


def test_a_read_a_write_a_stream_and_a_job(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    with duralog.open(path, config={"log.index.interval.bytes": 256}) as store:
        store.create_topic("t", partitions=2)
        for partition in range(2):
            for first in range(0, 200, 10):
                records = [Record(key=b"k", value=b"%d" % (first + row)) for row in range(10)]
                store.partition("t", partition).append(records)
    command = [sys.executable, "-m", "tests.support.spark.standalone_process", str(path), str(tmp_path / "checkpoint")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    all_rows = [400, 2 * sum(range(200)), 2]
    assert found["rows"] == all_rows
    assert found["written"] == all_rows
    assert found["streamed"] == all_rows, "each record once, also after a restart"
    assert found["executors"] == 2, "both workers took part"
    assert found["master"].startswith("spark://127.0.0.1:")
    assert (found["verified"]["findings"], found["verified"]["partitions"]) == (0, 7)
