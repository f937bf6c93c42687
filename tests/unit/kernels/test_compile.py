"""How kernels are compiled: not at import, once, with a notice, and even where nothing can be written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from numba import types

from duralog.kernels.compilation import just_in_time
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
    given = os.environ | {"DURALOG_CACHE_DIR": str(cache)} | environment
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
