"""`scripts/run_tests.py`: what fails once is told, what fails twice fails, and many failures are no chance.

And test files are compiled before the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.run_tests import _is_compiled
from tests.support.places import ROOT

UNSTEADY = """
from pathlib import Path

def test_unsteady():
    tried = Path("tried")
    if not tried.exists():
        tried.touch()
        raise AssertionError("by chance")
"""
WRONG = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_wrong(number):
    assert number < 0
"""


def run_tests(folder: Path, **files: str) -> tuple[int, str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "scripts.run_tests", "-n", "1", *(f"test_{name}.py" for name in files)]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    ran = subprocess.run(command, cwd=folder, env=alone | own, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout


def test_what_passes_on_the_second_try_is_reported(tmp_path: Path) -> None:
    status, said = run_tests(tmp_path, chance=UNSTEADY)
    assert status == 0
    assert "AssertionError: by chance" in said
    assert said.endswith("UNSTEADY, passed on the second try: test_chance.py::test_unsteady\n")


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    status, said = run_tests(tmp_path, chance=UNSTEADY, broken=WRONG.format(count=1))
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "UNSTEADY, passed on the second try: test_chance.py::test_unsteady" in said
    assert "FAILED TWICE: test_broken.py::test_wrong[0]" in said


def test_many_failures_are_no_chance(tmp_path: Path) -> None:
    status, said = run_tests(tmp_path, broken=WRONG.format(count=6))
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "second try" not in said


def test_a_test_file_is_compiled_until_it_is_edited(tmp_path: Path) -> None:
    file = tmp_path / "test_one.py"
    file.write_text("def test_one():\n    assert 1 < 2\n")
    assert not _is_compiled(file)
    code = f"from scripts.run_tests import _compile_tests; _compile_tests([{str(file)!r}])"
    own = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert _is_compiled(file)
    later = file.stat().st_mtime + 60
    os.utime(file, (later, later))
    assert not _is_compiled(file)
