"""The command line starts at once: what it loads. `test_conventions` holds its commands to their rules."""

from __future__ import annotations

import subprocess
import sys


def test_the_command_line_loads_nothing_heavy() -> None:
    program = "import sys, duralog.command_line; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    heavy = {"numpy", "numba", "llvmlite", "pyarrow", "pyspark", "kio", "nicegui", "confluent_kafka", "rich.console"}
    assert heavy.isdisjoint(loaded.stdout.split())
