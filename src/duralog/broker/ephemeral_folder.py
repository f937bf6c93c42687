"""The folder of a broker that keeps nothing: made at its start, removed at its end.

Who is killed cannot remove it. So each start removes what others have left: folders of the same user with this name
that nobody holds. A running broker holds its folder by a lock on it, which ends with its process, however that ends.

A forked child has no part in it: it neither removes the folder nor keeps it held.

Between the making of a folder and its lock, another start may take it for one that was left. Whoever makes a folder
looks for that, and makes another one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from duralog.broker.net.log_lines import error_text, one_line
from duralog.storage.disk import forks

PREFIX = "duralog-ephemeral-"

_logger = logging.getLogger("duralog.broker")
_holding: set[int] = set()
"""The descriptors that hold folders of this process."""


def _let_go_in_child() -> None:
    for held in _holding:
        os.close(held)
    _holding.clear()


forks.call_in_child(_let_go_in_child)


@contextmanager
def ephemeral_folder() -> Iterator[str]:
    """A new folder among the system's temporary ones."""
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
    """Remove the folders that nobody holds. What cannot be removed is told, and stays."""
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
            _logger.warning("%s", one_line(f"{path} was left by a broker and cannot be removed: {error_text(error)}"))


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _make_held() -> tuple[str, int]:
    """A new folder, and the descriptor that holds it."""
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
    """Lock a folder. Returns the descriptor that holds it; None if somebody else does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
