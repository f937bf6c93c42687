"""The temporary directory of a broker: created at its start, removed at its end.

A killed broker cannot remove it. So each start removes abandoned directories: those of the same user with this prefix
that no process has locked. A running broker holds a lock on its directory, which ends with the process.

A forked child neither removes the directory nor keeps it locked.

Between the creation of a directory and its lock, another start may remove it as abandoned. `_make_held` checks for that
and creates another one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from duralog.broker.net.log_lines import error_text, logger, one_line
from duralog.storage.disk import forks

PREFIX = "duralog-ephemeral-"

_holding: set[int] = set()
"""The descriptors by which this process has its directories locked."""


def _let_go_in_child() -> None:
    for held in _holding:
        os.close(held)
    _holding.clear()


forks.call_in_child(_let_go_in_child)


@contextmanager
def ephemeral_folder() -> Iterator[str]:
    """A new directory under the system's temporary directory."""
    remove_left_behind(tempfile.gettempdir())
    process = forks.here
    path, held = _make_held()
    _holding.add(held)
    try:
        yield path
    finally:
        if process is forks.here:
            shutil.rmtree(path, ignore_errors=True)
            _holding.remove(held)
            os.close(held)


def remove_left_behind(parent: str) -> None:
    """Remove directories that no process has locked. One that cannot be removed is logged and kept."""
    with os.scandir(parent) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(PREFIX) and _is_own_folder(entry)]
    for path in left:
        try:
            held = _hold(path)
            if held is not None:
                try:
                    shutil.rmtree(path)
                finally:
                    os.close(held)
        except FileNotFoundError:
            continue  # Another start was quicker.
        except OSError as error:
            logger.warning("%s", one_line(f"{path} was left by a broker and cannot be removed: {error_text(error)}"))


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _make_held() -> tuple[str, int]:
    """A new directory, and the descriptor that locks it."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        try:
            held = _hold(path)
        except FileNotFoundError:
            continue
        if held is None:
            continue
        if os.path.isdir(path):
            return path, held
        os.close(held)


def _hold(path: str) -> int | None:
    """Lock a directory. Returns the descriptor that holds the lock; None if another process holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
