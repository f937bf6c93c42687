"""The right to write to a table: one run has it, and its tasks as long as they work.

On this machine's disks it is a lock file in the table's folder, `_duralog_<job>.lock`, lent to the tasks of the run
(`storage.disk.lent_lock`). What must always be true:
- A task that outlives its run, one that was interrupted or whose driver was killed, keeps other runs away until it has
  ended. So what the next run finds and removes is all that there is.
- One that begins, or begins again, after its run is over is refused, and writes nothing.

On some shared disks, hosts do not see the locks of each other. There, a task on another host than the driver's relies
on the id of the run alone, which is in the file: it is refused if another run has begun, or its own has ended in order.

An object store has no locks. There, the caller must start a run only after the previous one has ended, with all of its
tasks. Files have the id of their run in their names if another run would write files of the same name.
"""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from duralog.errors import StoreLocked
from duralog.spark.lake.tables import TableRefused
from duralog.spark.lake.targets import LakeTarget
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.lent_lock import LentLock, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingRight:
    """What a task shows to write to the table. It can be pickled."""

    run_id: str
    lock_path: str | None
    """None in an object store."""
    host: str = field(default_factory=platform.node)
    """The driver's."""

    @contextmanager
    def used(self) -> Iterator[None]:
        """While a task writes. Raises `StoreLocked` if its run is over, or this host has another disk there."""
        if self.lock_path is None:
            yield
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(joined(self.lock_path, self.run_id))
            except StoreLocked:
                if platform.node() == self.host or not _is_of(self.lock_path, self.run_id):
                    raise
            yield


def _is_of(lock_path: str, run_id: str) -> bool:
    try:
        with open(lock_path, "rb") as file:
            return file.read(len(run_id)) == run_id.encode()
    except FileNotFoundError:
        return False


@contextmanager
def only_writer(target: LakeTarget, job: str) -> Iterator[WritingRight]:
    """Keep other runs away from the table."""
    run_id = uuid.uuid4().hex
    if not target.is_local:
        yield WritingRight(run_id=run_id, lock_path=None)
        return
    os.makedirs(target.path(), exist_ok=True)
    path = target.path(f"_duralog_{job}.lock")
    try:
        lock = LocalFileSystem().lock(path)
    except StoreLocked as error:
        raise TableRefused(
            f"{target.location}: another run of job {job} writes to it, or a task of one that was interrupted: {error}"
        ) from error
    try:
        lent = LentLock(lock, run_id, 0)
    except BaseException:
        lock.release()
        raise
    try:
        yield WritingRight(run_id=run_id, lock_path=path)
    finally:
        lent.release()
