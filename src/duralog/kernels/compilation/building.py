"""Builds the extension module: compiles each level in a process of its own, all at once, and links.

    python -m duralog.kernels.compilation                  in place, for this machine's CPU, unless it is up to date
    python -m duralog.kernels.compilation --all FOLDER     for every level, as in a wheel

The file appears under its name when it is complete.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from duralog.kernels.compilation import machine_code
from duralog.kernels.compilation.levels import Level, levels_here
from duralog.kernels.compilation.sources import digest_of_sources
from duralog.kernels.compilation.wrappers import MODULE, module_source

FILE_NAME = f"{MODULE}.abi3.so"
_COMPILE_SECONDS = 1800
_OLDEST_GLIBC = 17
"""Of 2.17, the oldest that wheels name."""


class CannotBuild(Exception):
    """What is missing."""


def compiler() -> list[str]:
    """The command of the C compiler; raises if a module cannot be made with it."""
    command = os.environ.get("CC", "cc").split()
    if sys.platform != "linux" or not levels_here():
        raise CannotBuild(f"no machine code is made for {sys.platform} on {os.uname().machine}")
    if shutil.which(command[0]) is None:
        raise CannotBuild(f"there is no C compiler: {command[0]}")
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        raise CannotBuild(f"Python's headers are not installed: no Python.h in {headers}")
    return command


def supported_here(levels: Sequence[Level]) -> list[Level]:
    """Those levels that this machine's CPU can run, by asking the C compiler's library."""
    checks = "\n".join(f'    if ({level.supported}) puts("{level.name}");' for level in levels)
    source = f"#include <stdio.h>\nint main(void) {{\n{checks}\n    return 0;\n}}\n"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "levels")
        program.with_suffix(".c").write_text(source, encoding="ascii")
        _run([*compiler(), str(program.with_suffix(".c")), "-o", str(program)])
        names = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()
    return [level for level in levels if level.name in names]


def build(folder: Path, levels: Sequence[Level], kernels: Sequence[str] = ()) -> Path:
    """Make the module in a folder, of all kernels or of some."""
    command = compiler()
    with tempfile.TemporaryDirectory() as place:
        _compile(Path(place), levels, kernels)
        signatures = json.loads(Path(place, "signatures.json").read_text(encoding="utf-8"))
        source = Path(place, f"{MODULE}.c")
        source.write_text(module_source(signatures, levels, digest_of_sources()), encoding="ascii")
        made = folder / f".{FILE_NAME}.{os.getpid()}"
        objects = [str(Path(place, f"{level.c_name}.o")) for level in levels]
        include = f"-I{sysconfig.get_paths()['include']}"
        options = ["-O2", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wl,-z,noexecstack", "-s"]
        try:
            _run([*command, *options, include, str(source), *objects, "-o", str(made)])
            made.replace(folder / FILE_NAME)
        finally:
            made.unlink(missing_ok=True)
    return folder / FILE_NAME


def _compile(place: Path, levels: Sequence[Level], kernels: Sequence[str]) -> None:
    running = []
    for level in levels:
        arguments = ["-m", "duralog.kernels.compilation.objects", level.name, str(place), *kernels]
        environment = {
            **os.environ,
            "DURALOG_KERNELS": "numba",
            "NUMBA_CPU_NAME": level.name,
            "NUMBA_CPU_FEATURES": level.features,
            # The package that this module is of: when a wheel is built, it is not installed yet.
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)]),
        }
        running.append(subprocess.Popen([sys.executable, *arguments], env=environment))
    try:
        statuses = [process.wait(_COMPILE_SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    if any(statuses):
        raise CannotBuild("numba could not compile the kernels")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"{command[0]} failed: {done.stderr.strip()}")


def wheel_tag(module: Path) -> str:
    """By the newest glibc that the module names a symbol of; without glibc, a tag for this machine alone."""
    machine = os.uname().machine
    if platform.libc_ver()[0] != "glibc":
        return f"cp311-abi3-linux_{machine}"
    named = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", module.read_bytes())]
    return f"cp311-abi3-manylinux_2_{max([_OLDEST_GLIBC, *named])}_{machine}"


def main(arguments: list[str]) -> int:
    every = arguments[:1] == ["--all"]
    rest = arguments[1:] if every else arguments
    folder = Path(rest[0]) if rest else Path(__file__).parent
    if not rest and machine_code.LEVEL is not None:
        return 0
    try:
        levels = list(levels_here()) if every else supported_here(levels_here())[:1]
        made = build(folder, levels)
    except CannotBuild as error:
        sys.stderr.write(f"no machine code was made, numba compiles the kernels at their first use: {error}\n")
        return 1
    sys.stdout.write(f"{made} ({', '.join(level.name for level in levels)})\n")
    return 0
