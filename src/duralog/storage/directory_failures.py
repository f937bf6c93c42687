"""What happens when the disk of a directory fails while the store is open. In Kafka: `LogDirFailureChannel`.

A store of several directories continues without one of them: its partitions are offline, and nothing in it is read or
written until the next start. Without the directory of the metadata log, or without any directory, the store cannot
continue: `failure` says why, and a broker stops. The directories that work are closed as always.

A disk that is full, or a process without descriptors or memory, does not take a directory offline if a checkpoint
cannot be written: the next one is, when there is room again.

In a store of one directory, a disk error only ends the log that it happens in (`duralog.storage.log.writer`).
"""

from __future__ import annotations

import errno
import logging
import os.path
from collections.abc import Callable
from contextlib import suppress

from duralog.errors import DuralogError, StorageError
from duralog.storage.compaction.cleaner import Cleaner
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.file_system import LockLost
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.open_logs import OpenLogs
from duralog.storage.opened_store import OpenedStore

_DISK_ERRORS = {
    getattr(errno, name)
    for name in ("EIO", "EROFS", "ENODEV", "ENXIO", "ESTALE", "EUCLEAN", "EREMOTEIO", "ENOTCONN", "EHOSTDOWN")
    if hasattr(errno, name)
}
_SHORTAGES = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}

_logger = logging.getLogger(__name__)


def is_disk_failure(error: BaseException) -> bool:
    """Whether the disk has failed, and not only this operation: not if it is full, or if a file is damaged."""
    return _errno(error) in _DISK_ERRORS


def _errno(error: BaseException) -> int | None:
    """Of the operating system's error that it was raised for."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError):
            return found.errno
        found = found.__cause__
    return None


class DirectoryFailures:
    """Any thread may report an error."""

    def __init__(
        self,
        opened: OpenedStore,
        logs: OpenLogs,
        cleaner: Cleaner,
        scheduler: Scheduler,
        on_offline: Callable[[LogDirectory], None],
    ) -> None:
        """`on_offline` is called with each directory that goes offline."""
        self._opened = opened
        self._directories = opened.directories
        self._logs = logs
        self._cleaner = cleaner
        self._scheduler = scheduler
        self._on_offline = on_offline
        self.failure: StorageError | None = None
        """Why the whole store has failed."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called when that is so."""
        self._directories.on_failure = self._report_checkpoint

    def check_loaded(self) -> None:
        """Take the directories offline whose disks failed while their partitions were loaded."""
        for partition, error in list(self._opened.offline.items()):
            directory = self._directories.directory_of(partition)
            if is_disk_failure(error) and directory is not self._directories.metadata:
                self._take_offline(directory, error)

    def report_log(self, folder: str, error: BaseException) -> None:
        """A log does not know what is on disk. Called under its lock."""
        for directory in self._directories.owned:
            is_in_it = os.path.normpath(os.path.dirname(folder)) == os.path.normpath(directory.path)
            if is_in_it and isinstance(error, Exception):
                self.report(directory, error)

    def _report_checkpoint(self, directory: LogDirectory, error: Exception) -> bool:
        """Whether the directory goes offline, because a checkpoint cannot be written."""
        if _errno(error) in _SHORTAGES or isinstance(error, LockLost):
            return False
        self.report(directory, error)
        return True

    def report(self, directory: LogDirectory, error: Exception) -> None:
        """A directory cannot be written. It goes offline on another thread, since this one may hold any lock."""
        if not isinstance(error, LockLost):
            name = f"taking {directory.path} offline"
            self._scheduler.after(0, name, lambda: self._take_offline(directory, error))

    def _take_offline(self, directory: LogDirectory, error: Exception) -> None:
        with self._logs.changing:
            if directory.failure is not None or self._logs.is_closed:
                return
            directory.failure = error
            reason = f"its directory {directory.path} is offline: {error}"
            _logger.error("%s is offline, and so are its partitions: %s", directory.path, error)
            held = self._directories.holding(directory)
            gone = [partition for partition in held if partition in self._logs.by_partition]
            self._opened.offline.update(
                (partition, StorageError(reason))
                for partition in held
                if partition in self._logs.by_partition or partition in self._opened.unloaded
            )
            self._opened.unloaded.difference_update(held)
            logs = self._logs.take(gone)
            metadata_log = self._opened.metadata.log
            if directory is self._directories.metadata and metadata_log is not None:
                logs.append(metadata_log)
            for log in logs:
                log.disown(reason)
        self._on_offline(directory)
        with self._cleaner.kept_away(gone, reason), suppress(DuralogError):
            for log in logs:
                log.close()
        if directory is self._directories.metadata:
            self._fail(f"{directory.path}: the directory of the metadata log is offline: {error}")
        elif not self._directories.online:
            self._fail(f"all log directories are offline, the last one is {directory.path}: {error}")

    def _fail(self, reason: str) -> None:
        self.failure = StorageError(reason)
        self._logs.loss = reason
        _logger.critical("the store has failed: %s", reason)
        self.on_failure()
