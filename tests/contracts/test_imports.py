"""What importing duralog costs, and what it must not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numpy", "numba", "llvmlite", "pyarrow", "typer", "rich"}


def loaded_by(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import duralog").isdisjoint(HEAVY)


def test_the_formats_need_no_numpy() -> None:
    program = "import duralog.format.batches, duralog.format.index_entries, duralog.format.internal.internal_topics"
    assert loaded_by(program).isdisjoint(HEAVY)


def test_the_command_line_starts_without_kernels() -> None:
    assert loaded_by("import duralog.command_line").isdisjoint({"numpy", "numba", "llvmlite", "pyarrow"})


def test_the_kernels_do_load_numba_if_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the tests above: were loaded packages not seen, they could not fail."""
    monkeypatch.setenv("DURALOG_KERNELS", "numba")
    assert "numba" in loaded_by("import duralog.kernels.scan")
