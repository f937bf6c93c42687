"""Puts the kernels' machine code into the wheel, where it can be made; a wheel without it depends on numba.

| `DURALOG_WHEEL` | |
|---|---|
| not set | machine code if there is a C compiler and Python's headers, else without |
| `machine-code` | machine code, or the build fails: for releases |
| `pure` | without |

Another value is refused. `DURALOG_KERNELS` is about running kernels, and has no effect here.

A wheel with machine code is for one kind of machine, and for every Python from 3.11 on (`duralog.kernels.compilation`).
An editable install has none, since an edit of a kernel would make it stale:
`python -m duralog.kernels.compilation` makes it in place.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NUMBA = "numba>=0.62"
_COMPILER = [_NUMBA, "cramjam>=2.14", "crc32c>=2.7", "numpy>=2.0"]
"""What importing the kernels takes."""
_CHOICES = ("", "machine-code", "pure")


def _choice() -> str:
    choice = os.environ.get("DURALOG_WHEEL", "")
    if choice not in _CHOICES:
        raise SystemExit(f"DURALOG_WHEEL={choice} is not known: set machine-code or pure, or unset it")
    return choice


class MachineCodeHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [] if self._why_not() else _COMPILER

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        why_not = "an editable install has none" if version == "editable" else self._why_not()
        if not why_not:
            why_not = self._build(build_data)
        if why_not:
            if _choice() == "machine-code":
                raise SystemExit(f"the machine code of the kernels cannot be made: {why_not}")
            self.app.display_warning(f"without machine code, numba compiles the kernels at their first use: {why_not}")
            build_data["dependencies"].append(_NUMBA)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        for made in build_data["force_include"]:
            Path(made).unlink(missing_ok=True)

    def _why_not(self) -> str:
        if _choice() == "pure":
            return "DURALOG_WHEEL=pure"
        building = self._building()
        try:
            building.compiler()
        except building.CannotBuild as error:
            return str(error)
        return ""

    def _building(self) -> Any:
        # It would choose code that is not made yet.
        os.environ.pop("DURALOG_KERNELS", None)
        sys.path.insert(0, str(Path(self.root, "src")))
        try:
            from duralog.kernels.compilation import building
        finally:
            del sys.path[0]
        return building

    def _build(self, build_data: dict[str, Any]) -> str:
        """Returns why it failed."""
        folder = Path(self.directory)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "duralog.kernels.compilation", "--all", str(folder)]
        # It runs in `src`: pip takes that folder off the path if the project is installed from it, too.
        source = Path(self.root, "src")
        searched = os.pathsep.join([str(source), *filter(None, sys.path)])
        done = subprocess.run(
            command, cwd=source, env={**os.environ, "PYTHONPATH": searched}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return done.stderr.strip()
        building = self._building()
        made = folder / building.FILE_NAME
        build_data["force_include"][str(made)] = f"duralog/kernels/compilation/{building.FILE_NAME}"
        build_data["pure_python"] = False
        build_data["tag"] = building.wheel_tag(made)
        return ""
