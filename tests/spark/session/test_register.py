"""`duralog.spark.register`: for a session whose workers would run another Python, which does not have duralog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import duralog
from duralog import Record
from tests.support.spark import plain_session_process

pytestmark = pytest.mark.spark


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """A Python of the same version without any packages."""
    folder = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python3"


def test_a_plain_session_in_an_environment_that_is_not_activated(tmp_path: Path, other_python: Path) -> None:
    path = tmp_path / "logs"
    with duralog.open(path) as store:
        store.create_topic("t", partitions=2)
        for partition in range(2):
            store.partition("t", partition).append([Record(value=b"v")] * 3)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = f"{other_python.parent}:/usr/bin:/bin"
    command = [sys.executable, str(plain_session_process.__file__), str(path), str(other_python)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: duralog" in found["before"]
    for python in (str(other_python), "/no/such/python"):
        assert found[python] == (
            f"Spark runs its Python workers with {python}, which has no duralog: install it there,"
            f" or set PYSPARK_PYTHON to {sys.executable} before the session starts"
        )
    assert (found["rows"], found["written"], found["findings"]) == ([6, 4], 6, 0)
