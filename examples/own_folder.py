"""The folder that an example writes to: made anew each time, unless there is something of its user in it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

_MARKER = "made-by-an-example"


def make_anew(folder: Path) -> None:
    """An empty folder in the place of an earlier run's; ends the process if what is there is not from one."""
    if folder.exists() and not (folder / _MARKER).exists() and (not folder.is_dir() or any(folder.iterdir())):
        sys.exit(f"{folder} is there already, and not from an earlier run: give a folder that is new")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARKER).touch()
