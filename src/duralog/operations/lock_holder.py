"""The process that holds the lock of a directory, if the operating system reports it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from duralog.errors import StoreLocked
from duralog.format.filenames import LOCK

_LOCKS = "/proc/locks"


@contextmanager
def lock_holder_named(*directories: str) -> Iterator[None]:
    """Raise `StoreLocked` with the process that has one of the directories open, and what to do."""
    try:
        yield
    except StoreLocked as error:
        locked = [each for each in directories if os.path.join(each, LOCK) in str(error)]
        directory = (locked or directories)[0]
        holder = lock_holder(os.path.join(directory, LOCK)) or "another process"
        raise StoreLocked(
            f"{directory} is in use by {holder}: stop it first. Commands that only read, such as verify, work meanwhile"
        ) from None


def lock_holder(path: str) -> str | None:
    """`process 1234 (java)`; None if unknown, as outside of Linux."""
    try:
        status = os.stat(path)
        with open(_LOCKS) as locks:
            lines = locks.read().splitlines()
    except OSError:
        return None
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    # 1: POSIX  ADVISORY  WRITE 1234 fd:01:4711 0 EOF
    found = [line.split() for line in lines]
    pid = next((fields[4] for fields in found if len(fields) > 5 and fields[5] == place), "0")
    if not pid.isdecimal() or pid == "0":
        return None  # It runs outside of this container.
    try:
        with open(f"/proc/{pid}/comm") as name:
            return f"process {pid} ({name.read().strip()})"
    except OSError:
        return f"process {pid}"
