"""The file of `--ready-file`: it exists while a server serves, and holds its address.

It is renamed into place when it is complete, and its process holds a lock on it, which ends with the process. So the
file of a killed server differs from that of a running one: the first is removed at the start, the second is an error. A
server only removes its own file.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from duralog.errors import DuralogError


def remove_left_ready_file(path: str) -> None:
    """Remove the file of a killed server. Raises `DuralogError` if a running server holds it, or it is not a file."""
    try:
        # Opening a pipe must not block.
        found = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise DuralogError(f"{path}: this is not a regular file: give --ready-file another name")
        if not _locked(found):
            raise DuralogError(f"{path}: a running server uses this --ready-file: give another name, or stop it first")
        with suppress(FileNotFoundError):
            os.remove(path)
    finally:
        os.close(found)


@contextmanager
def ready_file(path: str, text: str) -> Iterator[None]:
    """Have the file, with this text, during the block."""
    unfinished = f"{path}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.remove(unfinished)
    held = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            _locked(held)
            os.write(held, text.encode())
            os.replace(unfinished, path)
        except BaseException:
            os.remove(unfinished)
            raise
        yield
    finally:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(held)):
                os.remove(path)
        os.close(held)


def _locked(descriptor: int) -> bool:
    """Take the lock; False if another process holds it. On a file system without locks, always True."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
