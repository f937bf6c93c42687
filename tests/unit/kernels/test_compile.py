"""How kernels are compiled: not at import, once, with a notice, and even where nothing can be written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from numba import types
from numba.core.errors import TypingError

from duralog.kernels import compile as compiling
from duralog.kernels.compilation import just_in_time, machine_code
from duralog.kernels.compile import kernel

PROGRAM = """
import duralog.kernels.compile as compiling
from duralog.kernels.compilation.just_in_time import CACHE_FOLDER
notices = []
compiling.on_compile = notices.append
import numpy as np
from duralog.kernels.gather import lay_out
assert not notices, "compiled at import"
lay_out(np.zeros(1, np.int32), np.zeros(2, np.int32))
lay_out(np.zeros(1, np.int32), np.zeros(2, np.int32))
print(*notices, CACHE_FOLDER.parent)
"""


def run(cache: Path, **environment: str) -> list[str]:
    given = os.environ | {"DURALOG_CACHE_DIR": str(cache), "DURALOG_KERNELS": "numba"} | environment
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=given, check=True, timeout=600, capture_output=True, text=True
    )
    return finished.stdout.split()


@pytest.mark.slow
def test_a_kernel_is_compiled_once_on_a_machine(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(cache) == ["lay_out", str(cache)]
    assert run(cache) == [str(cache)]
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    """The cache holds code that will run."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    home = tmp_path / "home"
    assert run(shared, XDG_CACHE_HOME=str(home))[-1] == str(home / "duralog")
    assert list(shared.iterdir()) == []


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "a file, not a folder"
    blocked.write_bytes(b"")
    monkeypatch.setattr(just_in_time, "CACHE_FOLDER", blocked / "kernels")

    @kernel(types.int64(types.int64))
    def doubled(value):
        return 2 * value

    assert doubled(21) == 42


def test_the_callers_setting_of_numba_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", "/somewhere/else")

    @kernel(types.int64(types.int64))
    def tripled(value):
        return 3 * value

    tripled.prepare()
    assert vars(numba.config)["CACHE_DIR"] == "/somewhere/else"
    assert tripled(2) == 6


@pytest.mark.slow
def test_several_processes_fill_one_cache_at_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    given = os.environ | {"DURALOG_CACHE_DIR": str(cache), "DURALOG_KERNELS": "numba"}
    processes = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], env=given, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert {process.communicate(timeout=600)[0].split()[-1] for process in processes} == {str(cache)}
    assert {process.returncode for process in processes} == {0}
    assert run(cache) == [str(cache)]


@pytest.mark.slow
def test_a_cache_of_another_cpu_is_not_used(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(cache, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == ["lay_out", str(cache)]
    assert run(cache) == ["lay_out", str(cache)]


@pytest.mark.slow
def test_damaged_files_in_the_cache_cost_time_only(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run(cache)
    damaged = [path for path in cache.rglob("*.nb*") if path.is_file()]
    assert damaged
    for path in damaged:
        path.write_bytes(b"torn")
    assert run(cache)[-1] == str(cache)


def test_a_kernel_that_does_not_compile_says_why() -> None:
    @kernel(types.int64(types.int64))
    def impossible(value):
        return value.nothing

    with pytest.raises(TypingError, match="nothing"):
        impossible(1)


def test_a_warning_names_the_reason_unless_numba_was_chosen(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiling, "on_compile", None)
    monkeypatch.setattr(compiling, "_has_warned", False)
    monkeypatch.setattr(machine_code, "WHY_NOT", "for a test")
    monkeypatch.setattr(machine_code, "IS_CHOSEN", True)
    compiling._announce("one")
    assert not caplog.records
    monkeypatch.setattr(machine_code, "IS_CHOSEN", False)
    for name in ("one", "two"):
        compiling._announce(name)
    assert [record.getMessage() for record in caplog.records] == [
        "compiling with numba, some seconds, once on this machine: for a test"
    ]
    assert caplog.records[0].levelname == "WARNING"
