"""The lock of a directory while the tasks of one job, each in its own process, write to its partitions.

The lender locks the whole file `.lock`, which keeps Kafka and every store out, writes the job's id into it, and from
then on shares the first byte. Tasks lock bytes of the same file:

    bytes 0-31    the job's id           byte 0 shared: by the lender, and by every task while it works
                                         byte 1 exclusively: by the lender
    byte 32       a line feed            exclusively: by a task while it changes a checkpoint
    byte 33+n     state of slot n        exclusively: by the task that has partition number n

What must always be true:
- No other process opens the directory for writing before the lender and all tasks have ended, since that needs all
  bytes. So a lender that dies does not release a directory that its tasks still write to.
- A partition has one task at a time. Another task, such as a retry or a speculative one, waits for its byte.
- A task gets in only while its own job holds the directory. A late task, or one whose host has another disk at the
  path, finds another id, no id or no lender, and is refused. The id alone is not enough: a lender that died leaves it
  in the file, and a Kafka that ran since does not remove it.
- The state of a slot says whether the last task of the partition has returned it cleanly. After a task that died, the
  next one has to recover the partition.

Locks end with their process, however it ends. A forked child does not have them (`duralog.storage.disk.forks`). A loss
of power also loses the states, but then everything is recovered anyway: a lent directory never counts as closed
cleanly.

This needs POSIX locks, which local disks have, and NFS from version 4 on.
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
from duralog.storage.disk.local_files import refusals
from duralog.storage.disk.local_lock import LocalLock, check_in_place, identity_of

JOB_ID_BYTES = 32

_SHARED = 0
_LENDER = 1
_CHECKPOINTS = JOB_ID_BYTES
_FIRST_SLOT = _CHECKPOINTS + 1
_PAUSE_SECONDS = 0.1


class SlotState(IntEnum):
    """How the last task left a partition."""

    AS_FOUND = ord(".")
    """No task of this job has had it."""
    BORROWED = ord("b")
    """A task has it, or died with it."""
    RETURNED = ord("r")
    """The last task has closed it cleanly."""


class _LockFile:
    """A lent lock file. A process opens it only once, since closing any descriptor drops all of its locks."""

    by_identity: ClassVar[dict[tuple[int, int], _LockFile]] = {}
    """Guarded by `LocalLock.guard`."""

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self.descriptor = descriptor
        self.identity = identity
        self.process = forks.here
        self.users = 1
        self.slots: set[int] = set()
        """The slots in use in this process. POSIX locks do not keep a process out of its own locks."""
        self.changing_checkpoints = threading.Lock()

    def read_job(self) -> bytes:
        return os.pread(self.descriptor, JOB_ID_BYTES, 0)


forks.call_in_child(_LockFile.by_identity.clear)


class LentLock:
    """The lender's side. REQUIRES: only one thread uses it."""

    def __init__(self, lock: LocalLock, job: str, slots: int) -> None:
        """Let tasks of this job in from now on. This object owns `lock` and releases it."""
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
        """Return when all tasks have ended and no new one gets in. Raises `StorageError` on a timeout."""
        self._lock.process.check(self._lock.path)
        end = time.monotonic() + patience_seconds
        while self._file.users > 1 or not _is_granted(self._lock.descriptor, fcntl.LOCK_EX, 0, 0):
            if time.monotonic() >= end:
                raise StorageError(
                    f"{self._lock.path}: tasks of this job are still running after {patience_seconds:g} s: they keep"
                    " the directory locked until they end, and the next open recovers it"
                )
            wait(_PAUSE_SECONDS)

    def release(self) -> None:
        """Let no more tasks in. Running tasks keep the directory locked. Does nothing in a forked child."""
        if self._lock.process is not forks.here:
            return
        with refusals("release", self._lock.path):
            os.ftruncate(self._lock.descriptor, 0)
        _leave(self._file)


class BorrowedLock:
    """A task's side: the lock of one partition, as `borrowed` returns it."""

    def __init__(self, path: str, file: _LockFile, slot: int) -> None:
        self._path = path
        self._file = file
        self._slot = slot

    def check(self) -> None:
        """Raise `LockLost` if it no longer keeps other processes out."""
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
        """Keep other tasks of the job from changing a checkpoint meanwhile."""
        self._file.process.check(self._path)
        with self._file.changing_checkpoints, refusals("lock", self._path):
            fcntl.lockf(self._file.descriptor, fcntl.LOCK_EX, 1, _CHECKPOINTS)
            try:
                yield
            finally:
                fcntl.lockf(self._file.descriptor, fcntl.LOCK_UN, 1, _CHECKPOINTS)


@contextmanager
def borrowed(path: str, job: str, slot: int, wait: Callable[[float], object] = time.sleep) -> Iterator[BorrowedLock]:
    """Lock partition number `slot` of the job's directory. Waits if another task has it.

    Raises `StoreLocked` if the job does not hold this directory, or no longer does.
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
    """Keep the directory locked for a task without a partition of its own.

    Raises `StoreLocked` if the job does not hold this directory, or no longer does.
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
                f"{path}: no such file on this host: a job that writes to a directory needs it on a disk that the"
                " driver and all executors share"
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
        return  # It belongs to the parent.
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
        f"{path}: the job of this task does not hold the directory: the job has ended, or this host has another disk at"
        " that path"
    )
