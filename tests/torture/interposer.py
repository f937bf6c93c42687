"""The library that lets system calls of the broker fail, and the memory by which the campaign steers it."""

from __future__ import annotations

import ctypes
import errno
import mmap
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.torture.journal import Journal

_SOURCE = Path(__file__).with_name("interposer.c")
KINDS = ("fsync", "write", "short write", "truncate", "rename", "unlink", "open", "read", "thread", "allocate")
_ALWAYS = 65_536


class _Control(ctypes.Structure):
    """As in the library."""

    _fields_: ClassVar = [
        ("clock_offset_ms", ctypes.c_int64),
        ("error", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("chance", ctypes.c_uint32 * len(KINDS)),
        ("failed", ctypes.c_uint32 * len(KINDS)),
    ]


def is_available() -> bool:
    return shutil.which("gcc") is not None


class Interposer:
    """For brokers on one directory. What they fail at is changed while they run."""

    def __init__(self, folder: Path, directory: Path, seed: int, journal: Journal) -> None:
        library, shared = folder / "interposer.so", folder / "interposer.control"
        command = ["gcc", "-O1", "-Wall", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        shared.write_bytes(bytes(ctypes.sizeof(_Control)))
        with shared.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._control = _Control.from_buffer(self._memory)
        self._control.seed = seed & 0xFFFFFFFF
        self._journal = journal
        self.environment = {
            "LD_PRELOAD": str(library),
            "DURALOG_TORTURE": str(shared),
            "DURALOG_TORTURE_DIR": f"{directory}/",
        }

    def fail(self, error: int, chances: dict[str, float]) -> None:
        """From now on, these calls fail with this error, each with its chance; all others work."""
        if chances:
            listed = ", ".join(f"{chance:.1%} of {kind}" for kind, chance in chances.items())
            self._journal.note(f"calls fail with {errno.errorcode[error]}: {listed}")
        self._control.error = error
        for number, kind in enumerate(KINDS):
            self._control.chance[number] = round(chances.get(kind, 0) * _ALWAYS)

    def work(self) -> None:
        """From now on, every call works, and the clock is right."""
        self._journal.note("all calls work")
        self.fail(0, {})
        self.set_clock(0)

    def set_clock(self, offset_ms: int) -> None:
        self._control.clock_offset_ms = offset_ms

    @property
    def failed(self) -> dict[str, int]:
        """How many calls have failed, by kind."""
        return {kind: self._control.failed[number] for number, kind in enumerate(KINDS) if self._control.failed[number]}
