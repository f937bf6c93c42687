"""The machine as `duralog doctor` sees it: everything that the command asks of the operating system passes here.

A test gives the checks any machine it likes: `Machine` lists what they ask, `ThisMachine` is the real one. What is not
there, cannot be read or is not of this system is None, never an error: a doctor that falls ill helps nobody.
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
from datetime import datetime
from importlib import metadata
from typing import NamedTuple, Protocol

from duralog.cli.doctor.kernels import KernelFacts, kernel_facts
from duralog.operations.lock_holder import lock_holder

LARGEST_READ_BYTES = 1 << 20
"""Files of /proc and /sys are small; a mount table of thousands of containers is not read beyond this."""
_LONGEST_RUN_SECONDS = 20.0
_LONGEST_SYNCS_SECONDS = 1.0
_SYNCED_BYTES = 4096
_LIMITS = {"nofile": resource.RLIMIT_NOFILE, "core": resource.RLIMIT_CORE}


class Python(NamedTuple):
    implementation: str
    version: tuple[int, int, int]
    bits: int
    executable: str


class Space(NamedTuple):
    total_bytes: int
    usable_bytes: int
    inodes: int
    """0 where the file system makes them as it needs them."""
    free_inodes: int


class Limit(NamedTuple):
    """`None` is no limit."""

    soft: int | None
    hard: int | None


class Zone(NamedTuple):
    name: str
    offset_seconds: int


class Machine(Protocol):
    @property
    def system(self) -> str:
        """`Linux`, or what else it is."""

    @property
    def python(self) -> Python: ...

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def now_ms(self) -> int: ...

    @property
    def zone(self) -> Zone: ...

    def read(self, path: str) -> str | None:
        """The text of a small file."""

    def package_version(self, name: str) -> str | None:
        """Of a package that is installed for this Python."""

    def requirements(self) -> Sequence[str]:
        """What duralog's own package says that it needs, extras included."""

    def find_program(self, name: str) -> str | None: ...

    def run(self, *command: str) -> str | None:
        """What a command says, on standard output and standard error."""

    def limit(self, name: str) -> Limit | None:
        """Of this process: `nofile` or `core`."""

    def space(self, path: str, /) -> Space | None: ...

    def may_write(self, path: str, /) -> bool: ...

    def sync_seconds(self, path: str, count: int, /) -> Sequence[float] | None:
        """How long it took to bring a page to the disk that a folder is on, each time."""

    def holder_of(self, lock: str, /) -> str | None:
        """Which process has a file locked."""

    def kernels(self) -> KernelFacts | str:
        """Which are compiled; a sentence where they cannot even be loaded."""


class ThisMachine:
    """The one that the command runs on."""

    @property
    def system(self) -> str:
        return platform.system()

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

    @property
    def zone(self) -> Zone:
        now = datetime.now().astimezone()
        offset = now.utcoffset()
        return Zone(now.tzname() or "unknown", 0 if offset is None else int(offset.total_seconds()))

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

    def limit(self, name: str) -> Limit | None:
        soft, hard = resource.getrlimit(_LIMITS[name])
        return Limit(*(None if value == resource.RLIM_INFINITY else value for value in (soft, hard)))

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
            # Without a name from the start where the system can: nothing is left behind, whatever happens.
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
