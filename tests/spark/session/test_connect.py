"""Spark Connect, with a server on this machine: a process that has such a session cannot have another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import duralog
from duralog import Record
from tests.support.spark import connect_process

pytestmark = pytest.mark.spark


def test_reads_views_a_write_and_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    with duralog.open(path) as store:
        store.create_topic("t", partitions=2)
        for partition in range(2):
            store.partition("t", partition).append([Record(value=b"v")] * 3)
    command = [sys.executable, str(connect_process.__file__), str(path), str(tmp_path / "checkpoint")]
    # PySpark then takes a free port for the server.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == [6, 2, 6]
    assert found["views"] == [6, 2] * 2, "a view has what was there when it was created"
    assert found["loaded again"] == 11, "a frame that the server has forgotten is loaded again"
    assert (found["written"], found["streamed"]) == (11, 11)
    assert found["job"] == "jobs need a classic Spark session: Spark Connect cannot run them"
    assert "cannot list: No such file or directory" in found["error"]
