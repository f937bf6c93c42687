"""The file of `--ready-file`: there as long as a server serves, with its address in it.

It appears whole, by a rename, and whoever wrote it holds a lock on it, which ends with the process, however that ends.
So a file that was left by a kill is told from that of a server that runs: the one is removed before anything else is
done, the other is left alone, and the start refused. At its end, a server removes its own file and nobody else's.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from duralog.errors import DuralogError


def remove_left_ready_file(path: str) -> None:
    """Remove what a kill has left. Raises DuralogError if a server that runs has it, or if it is no such file."""
    try:
        # Nothing is waited for where the path is that of a pipe.
        found = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise DuralogError(f"{path}: is no regular file: give --ready-file another name")
        if not _locked(found):
            raise DuralogError(f"{path}: a server that runs has this --ready-file: give another name, or stop it first")
        with suppress(FileNotFoundError):
            os.remove(path)
    finally:
        os.close(found)


@contextmanager
def ready_file(path: str, text: str) -> Iterator[None]:
    """Have the file, with this text in it, for the time of the block."""
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
    """Whether nobody else has the lock. A file system without locks has none to tell of."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
