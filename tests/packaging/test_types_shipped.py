"""Type checkers see the types of the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.packaging.clean_install import CleanInstall

USER = """
import duralog

with duralog.open("data") as store:
    reveal_type(store)
    log = store.partition("orders", 0)
    reveal_type(log.append([duralog.Record(value=b"v")]).base_offset)
    reveal_type([record.value for record in log.read(0)])
    log.append(17)
"""


def test_mypy_sees_types(installed: CleanInstall, tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text(USER)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed.python)),
            *("--config-file", "", "--cache-dir", str(tmp_path / "cache"), str(user)),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    lines = [line.partition("user.py:")[2] for line in done.stdout.splitlines()]
    assert any('Revealed type is "duralog.storage.store.Store"' in line for line in lines), done.stdout
    assert any('Revealed type is "int"' in line or "builtins.int" in line for line in lines), done.stdout
    assert any("list[" in line and "bytes" in line and "None" in line for line in lines), done.stdout
    assert [line for line in lines if "error" in line and "[arg-type]" in line]
    assert not [line for line in lines if "import-untyped" in line or "import-not-found" in line], done.stdout
