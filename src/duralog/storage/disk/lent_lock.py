"""The lock of a directory while the tasks of one job, each a process of its own, write to its partitions.

The one that lends locks the whole file `.lock`, which keeps Kafka and every store out, writes into it which job it is,
and from then on shares the first byte. A task locks bytes of the same file:

    bytes 0-31    the job's id           byte 0 shared: by the lender, and by every task as long as it works
                                         byte 1 exclusively: by the lender, as long as it is there
    byte 32       the end of the line    exclusively: by a task for the moment in which it changes a checkpoint
    byte 33+n     state of slot n        exclusively: by the task that has partition number n

What must always be true:
- Nobody else opens the directory for writing before the lender and all tasks are gone: that needs all bytes. So a
  lender that dies does not hand over a directory that its tasks still write to.
- A partition has one task at a time. Another one, be it a second attempt or a speculative one, waits for its byte.
- A task gets in only while its own job is there. One that comes late, or whose host has another disk under the
  directory's path, finds another id or none, or no lender, and is refused. An id alone does not tell: a lender that
  died has left it, and Kafka, which may have been there since, does not remove it.
- The state of a slot tells whether the task that had the partition last has given it back in order. One that died has
  not: the next one has to recover the partition.

Locks end with the process that has them, however it ends. A child that it forks does not have them
(`duralog.storage.disk.forks`). A loss of power takes the states, too, but then everything is
recovered anyway, since a lent directory does not count as closed in order.

All of it rests on POSIX locks, which local disks have, and NFS from version 4 on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import ClassVar

from duralog.errors import StorageError, StoreLocked
from duralog.storage.disk import forks
from duralog.storage.disk.local_files import LocalLock, check_in_place, identity_of, refusals

JOB_ID_BYTES = 32

_SHARED = 0
_LENDER = 1
_CHECKPOINTS = JOB_ID_BYTES
_FIRST_SLOT = _CHECKPOINTS + 1
_PAUSE_SECONDS = 0.1


class SlotState(IntEnum):
    """How a partition was left."""

    AS_FOUND = ord(".")
    """Nobody has had it in this job."""
    BORROWED = ord("b")
    """A task has it, or had it and died."""
    RETURNED = ord("r")
    """The last task that had it has closed it in order."""


class _LockFile:
    """A lent lock file as this process has it open: once, since closing any descriptor drops all locks."""

    by_identity: ClassVar[dict[tuple[int, int], _LockFile]] = {}
    """Guarded by `LocalLock.guard`."""

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self.descriptor = descriptor
        self.identity = identity
        self.process = forks.here
        self.users = 1
        self.slots: set[int] = set()
        """That somebody in this process has: a process does not keep itself out of what it has locked."""
        self.changing_checkpoints = threading.Lock()

    def read_job(self) -> bytes:
        return os.pread(self.descriptor, JOB_ID_BYTES, 0)


forks.call_in_child(_LockFile.by_identity.clear)


class LentLock:
    """The lender's side. REQUIRES: one thread uses it."""

    def __init__(self, lock: LocalLock, job: str, slots: int) -> None:
        """From now on, tasks of this job get in. `lock` is this object's to release, and nobody else's."""
        assert len(job) == JOB_ID_BYTES
        self._lock = lock
        self._slots = slots
        with LocalLock.guard, refusals("lend", lock.path):
            os.pwrite(lock.descriptor, job.encode() + b"\n" + bytes([SlotState.AS_FOUND]) * slots, 0)
            fcntl.lockf(lock.descriptor, fcntl.LOCK_SH, 1, _SHARED)
            fcntl.lockf(lock.descriptor, fcntl.LOCK_UN, 0, _LENDER + 1)
            self._file = _LockFile(lock.descriptor, lock.identity)
            _LockFile.by_identity[lock.identity] = self._file

    def states(self) -> list[SlotState]:
        self._lock.process.check(self._lock.path)
        with refusals("read", self._lock.path):
            return [SlotState(byte) for byte in os.pread(self._lock.descriptor, self._slots, _FIRST_SLOT)]

    def take_back(self, patience_seconds: float, wait: Callable[[float], object] = time.sleep) -> None:
        """Return when no task is at work any more, and none gets in. `StorageError` if one does not end in time."""
        self._lock.process.check(self._lock.path)
        end = time.monotonic() + patience_seconds
        while self._file.users > 1 or not _is_granted(self._lock.descriptor, fcntl.LOCK_EX, 0, 0):
            if time.monotonic() >= end:
                raise StorageError(
                    f"{self._lock.path}: tasks of this job are still at work after {patience_seconds:g} s: the"
                    " directory is theirs until they end, and is recovered when it is opened next"
                )
            wait(_PAUSE_SECONDS)

    def release(self) -> None:
        """Let nobody in any more. Tasks that are at work keep the directory locked. Does nothing in a forked child."""
        if self._lock.process is not forks.here:
            return
        with refusals("release", self._lock.path):
            os.ftruncate(self._lock.descriptor, 0)
        _leave(self._file)


class BorrowedLock:
    """A task's side: the lock of one partition. `borrowed` gives it."""

    def __init__(self, path: str, file: _LockFile, slot: int) -> None:
        self._path = path
        self._file = file
        self._slot = slot

    def check(self) -> None:
        """Raise `LockLost` if it does not keep others out any more."""
        self._file.process.check(self._path)
        check_in_place(self._path, self._file.identity)

    @property
    def state(self) -> SlotState:
        self._file.process.check(self._path)
        with refusals("read", self._path):
            return SlotState(os.pread(self._file.descriptor, 1, _FIRST_SLOT + self._slot)[0])

    def put_state(self, state: SlotState) -> None:
        self._file.process.check(self._path)
        with refusals("write", self._path):
            os.pwrite(self._file.descriptor, bytes([state]), _FIRST_SLOT + self._slot)

    @contextmanager
    def changing_checkpoints(self) -> Iterator[None]:
        """While it lasts, no other task of the job changes a checkpoint."""
        self._file.process.check(self._path)
        with self._file.changing_checkpoints, refusals("lock", self._path):
            fcntl.lockf(self._file.descriptor, fcntl.LOCK_EX, 1, _CHECKPOINTS)
            try:
                yield
            finally:
                fcntl.lockf(self._file.descriptor, fcntl.LOCK_UN, 1, _CHECKPOINTS)


@contextmanager
def borrowed(path: str, job: str, slot: int, wait: Callable[[float], object] = time.sleep) -> Iterator[BorrowedLock]:
    """Have partition number `slot` of the job's directory for oneself. Waits for another task that has it.

    Raises `StoreLocked` if the job is over, or never was at this directory.
    """
    while True:
        file = _join(path, job)
        try:
            if _take_slot(file, slot):
                try:
                    yield BorrowedLock(path, file, slot)
                finally:
                    _give_slot(file, slot)
                return
        finally:
            _leave(file)
        wait(_PAUSE_SECONDS)


@contextmanager
def joined(path: str, job: str) -> Iterator[None]:
    """Keep the directory locked, as a task that has no partition of its own.

    Raises `StoreLocked` if the job is over, or never was at this directory.
    """
    file = _join(path, job)
    try:
        yield
    finally:
        _leave(file)


def _join(path: str, job: str) -> _LockFile:
    with LocalLock.guard, refusals("join the job at", path):
        try:
            identity = identity_of(os.stat(path))
        except FileNotFoundError:
            raise StoreLocked(
                f"{path}: there is no such file on this host: a job that writes to a directory needs it on a disk that"
                " the driver and all executors share"
            ) from None
        file = _LockFile.by_identity.get(identity)
        if file is not None:
            file.users += 1
        elif identity in LocalLock.held:
            raise _not_of_the_job(path)
        else:
            file = _opened(path)
            _LockFile.by_identity[file.identity] = file
            LocalLock.held[file.identity] = file.descriptor
    if file.read_job() != job.encode():
        _leave(file)
        raise _not_of_the_job(path)
    return file


def _opened(path: str) -> _LockFile:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        is_joined = _is_granted(descriptor, fcntl.LOCK_SH, 1, _SHARED)
        if not is_joined or _is_granted(descriptor, fcntl.LOCK_SH, 1, _LENDER):
            raise _not_of_the_job(path)
        return _LockFile(descriptor, identity_of(os.fstat(descriptor)))
    except BaseException:
        os.close(descriptor)
        raise


def _leave(file: _LockFile) -> None:
    if file.process is not forks.here:
        return  # It is its parent's to leave.
    with LocalLock.guard:
        file.users -= 1
        if file.users == 0:
            del _LockFile.by_identity[file.identity]
            LocalLock.held.pop(file.identity, None)
            os.close(file.descriptor)


def _take_slot(file: _LockFile, slot: int) -> bool:
    with LocalLock.guard:
        if slot in file.slots or not _is_granted(file.descriptor, fcntl.LOCK_EX, 1, _FIRST_SLOT + slot):
            return False
        file.slots.add(slot)
        return True


def _give_slot(file: _LockFile, slot: int) -> None:
    if file.process is not forks.here:
        return
    with LocalLock.guard:
        file.slots.remove(slot)
        fcntl.lockf(file.descriptor, fcntl.LOCK_UN, 1, _FIRST_SLOT + slot)


def _is_granted(descriptor: int, kind: int, length: int, start: int) -> bool:
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, length, start)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _not_of_the_job(path: str) -> StoreLocked:
    return StoreLocked(
        f"{path}: the job that this task belongs to does not hold the directory: it is over, or this host has another"
        " disk at that path"
    )
