"""The machine that `duralog doctor` checks: everything that it asks of the operating system goes through `Machine`.

Tests pass machines of their own; `ThisMachine` is the real one. A fact that is missing or cannot be read is None, never
an error.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import NamedTuple, Protocol

from duralog.cli.doctor.compiled_kernels import KernelFacts, kernel_facts
from duralog.operations.lock_holder import lock_holder

LARGEST_READ_BYTES = 1 << 20
"""Files of /proc and /sys are small; a mount table of thousands of containers is not read beyond this."""
_LONGEST_RUN_SECONDS = 20.0
_LONGEST_SYNCS_SECONDS = 1.0
_SYNCED_BYTES = 4096


class Python(NamedTuple):
    implementation: str
    version: tuple[int, int, int]
    bits: int
    executable: str


class Space(NamedTuple):
    total_bytes: int
    usable_bytes: int
    inodes: int
    """0 if the file system creates them on demand."""
    free_inodes: int


class Machine(Protocol):
    @property
    def python(self) -> Python: ...

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def now_ms(self) -> int: ...

    def read(self, path: str) -> str | None:
        """The text of a small file."""

    def package_version(self, name: str) -> str | None:
        """The version of a package that is installed for this Python."""

    def requirements(self) -> Sequence[str]:
        """The requirements in the metadata of duralog's own package, including extras."""

    def find_program(self, name: str) -> str | None: ...

    def run(self, *command: str) -> str | None:
        """The standard output and standard error of a command; None if it fails."""

    def most_open_files(self) -> int | None:
        """The hard limit of this process; None for no limit."""

    def space(self, path: str, /) -> Space | None: ...

    def may_write(self, path: str, /) -> bool: ...

    def sync_seconds(self, path: str, count: int, /) -> Sequence[float] | None:
        """The time of each fsync of a page, on the disk of a folder."""

    def holder_of(self, lock: str, /) -> str | None:
        """The process that holds a file lock."""

    def kernels(self) -> KernelFacts | str:
        """Which are compiled; the error if they cannot be loaded."""


class ThisMachine:
    """The machine that the command runs on."""

    @property
    def python(self) -> Python:
        version = sys.version_info
        bits = 64 if sys.maxsize > 2**32 else 32
        release = (version.major, version.minor, version.micro)
        return Python(platform.python_implementation(), release, bits, sys.executable)

    @property
    def environment(self) -> Mapping[str, str]:
        return os.environ

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def read(self, path: str) -> str | None:
        try:
            with open(path, "rb") as file:
                return file.read(LARGEST_READ_BYTES).decode("utf-8", "replace")
        except OSError:
            return None

    def package_version(self, name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    def requirements(self) -> Sequence[str]:
        try:
            return metadata.requires("duralog") or ()
        except metadata.PackageNotFoundError:
            return ()

    def find_program(self, name: str) -> str | None:
        return shutil.which(name)

    def run(self, *command: str) -> str | None:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_LONGEST_RUN_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout[:LARGEST_READ_BYTES].decode("utf-8", "replace")

    def most_open_files(self) -> int | None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if hard == resource.RLIM_INFINITY else hard

    def space(self, path: str) -> Space | None:
        try:
            status = os.statvfs(path)
        except OSError:
            return None
        block = status.f_frsize
        return Space(status.f_blocks * block, status.f_bavail * block, status.f_files, status.f_favail)

    def may_write(self, path: str) -> bool:
        return os.access(path, os.W_OK | os.X_OK)

    def sync_seconds(self, path: str, count: int) -> Sequence[float] | None:
        try:
            # An unnamed file, if the system has them: nothing is left behind if the process is killed.
            with tempfile.TemporaryFile(dir=path, prefix=".duralog-doctor-") as file:
                return _synced(file.fileno(), count)
        except OSError:
            return None

    def holder_of(self, lock: str) -> str | None:
        return lock_holder(lock)

    def kernels(self) -> KernelFacts | str:
        try:
            return kernel_facts()
        except ImportError as error:
            return str(error)


def _synced(descriptor: int, count: int) -> Sequence[float]:
    page = os.urandom(_SYNCED_BYTES)
    taken: list[float] = []
    end = time.monotonic() + _LONGEST_SYNCS_SECONDS
    while len(taken) < count and (not taken or time.monotonic() < end):
        os.write(descriptor, page)
        began = time.perf_counter()
        os.fsync(descriptor)
        taken.append(time.perf_counter() - began)
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
    return taken
