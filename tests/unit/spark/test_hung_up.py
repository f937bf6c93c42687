"""A worker that Spark has hung up on ends without a traceback; other errors are printed as ever."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from duralog.spark.hung_up import end_quietly_when_hung_up


def raise_in(error: OSError, *modules: str) -> None:
    """Through functions of these modules, the first one calls the next."""
    call: Any = None
    for module in reversed(modules):
        scope = {"__name__": module, "error": error, "call": call}
        exec("def f():\n    if call is None:\n        raise error\n    call()", scope)
        call = scope["f"]
    call()


@pytest.mark.parametrize(
    ("error", "modules", "is_printed"),
    [
        (BrokenPipeError(32, "Broken pipe"), ["pyspark.daemon"], False),
        (BrokenPipeError(32, "Broken pipe"), ["pyspark.daemon", "pyspark.serializers", "pyarrow.lib", "socket"], False),
        (BrokenPipeError(32, "Broken pipe"), ["pyspark.daemon", "pyspark.worker", "users_own", "socket"], True),
        (OSError(5), ["pyspark.daemon"], True),
    ],
)
def test_only_a_closed_connection_is_not_printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OSError,
    modules: list[str],
    is_printed: bool,
) -> None:
    monkeypatch.setattr(traceback, "print_exc", traceback.print_exc)
    end_quietly_when_hung_up()
    end_quietly_when_hung_up()
    try:
        raise_in(error, *modules)
    except OSError:
        traceback.print_exc()
    assert ("Traceback" in capsys.readouterr().err) is is_printed


def test_a_worker_that_looks_for_sources_or_plans_ends_quietly(tmp_path: Path) -> None:
    """Its daemon is PySpark's own."""
    code = """
import traceback
before = traceback.print_exc
{}
assert traceback.print_exc is not before
"""
    found = "import pyspark_duralog"
    planned = (
        "from duralog.spark.data_source import DuralogDataSource\n"
        f"DuralogDataSource({{'path': {str(tmp_path)!r}}}).schema()"
    )
    for step in (found, planned):
        subprocess.run([sys.executable, "-c", code.format(step)], check=True)
