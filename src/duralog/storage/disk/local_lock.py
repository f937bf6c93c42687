"""The lock on a directory: a POSIX lock on its file `.lock`, as Kafka's broker takes it."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from typing import ClassVar

from duralog.errors import StorageError, StoreLocked
from duralog.storage.disk import forks
from duralog.storage.disk.local_files import FILE_MODE, refusals


class LockLost(StorageError):
    """A lock file was removed while it was locked: another process may have locked a new one."""


class LocalLock:
    """A POSIX lock, the same that Java's `FileLock` takes: Kafka and duralog keep each other out.

    Such a lock belongs to the process: a second one in the same process would be granted, and closing any descriptor of
    the file would drop all of them. So the process remembers which files it has locked and never opens them again. A
    forked child does not own the lock; its copies of the descriptors are closed at the fork.

    A shared lock keeps writers out, but not other readers. It changes nothing, so it also works on a read-only disk and
    without permission to write.

    The lock is on the file, not on its name. If the file is removed, another process can create and lock a new one:
    `check` detects that.

    The file is empty, unless a job has lent the directory to its tasks (`duralog.storage.disk.lent_lock`).
    """

    held: ClassVar[dict[tuple[int, int], int]] = {}
    """The lock files that this process has open, with their descriptors."""
    guard = threading.Lock()
    """Guards `held`."""

    def __init__(self, path: str, *, shared: bool = False) -> None:
        """Creates the file if it does not exist, unless the lock is shared."""
        self.path = path
        self.process = forks.here
        self._checked_path = os.path.abspath(path)  # The process may change its working directory.
        with self.guard, refusals("lock", path):
            while True:
                if os.path.exists(path) and identity_of(os.stat(path)) in self.held:
                    raise StoreLocked(f"{path}: this process has already opened it")
                self.descriptor = _locked(path, shared=shared)
                self.identity = identity_of(os.fstat(self.descriptor))
                if _identity_at(path) == self.identity:
                    break
                # The file was removed between opening and locking: other processes would lock a new one.
                os.close(self.descriptor)
            self.held[self.identity] = self.descriptor

    def check(self) -> None:
        """Raise `LockLost` if the file at the path is not the one that is locked."""
        self.process.check(self.path)
        check_in_place(self._checked_path, self.identity)

    def release(self) -> None:
        """Does nothing in a forked child: the lock belongs to the parent."""
        with self.guard:
            if self.process is forks.here and self.held.pop(self.identity, None) is not None:
                os.close(self.descriptor)

    @classmethod
    def let_go_of_inherited(cls) -> None:
        """Called in a forked child."""
        cls.guard = threading.Lock()
        for descriptor in cls.held.values():
            os.close(descriptor)
        cls.held.clear()


forks.call_in_child(LocalLock.let_go_of_inherited)


def _locked(path: str, *, shared: bool) -> int:
    """The descriptor of the file, opened and locked."""
    # Without O_NONBLOCK, opening a pipe without a writer would never return.
    access = os.O_RDONLY | os.O_NONBLOCK if shared else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, access | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.lockf(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if not shared:
            # An earlier job may have died: its tasks must not get in any more.
            os.ftruncate(descriptor, 0)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise StoreLocked(f"{path}: another process has it locked") from error
        raise
    return descriptor


def check_in_place(path: str, identity: tuple[int, int]) -> None:
    """Raise `LockLost` if the lock file is no longer at its path, so that other processes can lock another file."""
    with refusals("stat", path):
        found = _identity_at(path)
    if found != identity:
        happened = "was removed" if found is None else "was removed, and another process has created a new one"
        raise LockLost(
            f"{path}: the lock file {happened}, so other writers are no longer kept out: this process stops writing."
            " Make sure that only one process writes to the directory, then open it again"
        )


def _identity_at(path: str) -> tuple[int, int] | None:
    try:
        return identity_of(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Device and inode: they identify a file under any name."""
    return status.st_dev, status.st_ino
