"""The directory that a restore makes. It gets its name when it is complete, so half of one is never taken for all.

    .NAME.incomplete/             next to its place: hidden, so that no glob finds it
        .lock                     locked by the restore, from its beginning to its end
        duralog-restore           says what this is
        NAME/                     the directory, until it is complete
        coordinators/             scratch logs

The last step renames `NAME`, and then removes what is around it. If the machine dies before, the next restore to the
same place begins again. If it dies after, the directory is complete, and only the empty frame is left.
"""

from __future__ import annotations

import os

from duralog.errors import DuralogError, InvalidConfig
from duralog.format.filenames import LOCK
from duralog.operations.lock_holder import lock_holder_named
from duralog.scanning.locations import Location
from duralog.storage.disk.file_system import LocalFileSystem, disk_space
from duralog.storage.disk.log_directory import LogDirectory

_MARK = "duralog-restore"
_MARK_TEXT = b"duralog is restoring topics to this directory. It is not complete.\n"


class NewDirectory:
    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        parent, name = os.path.split(self.path)
        self._files = LocalFileSystem()
        self._frame = LogDirectory(self._files, os.path.join(parent, f".{name}.incomplete"))
        self.building = self._frame.path_of(name)
        self.scratch = self._frame.path_of("coordinators")

    def check(self, sources: list[Location]) -> None:
        """Raise if the directory cannot be made here."""
        if "://" in self.path or not os.path.basename(self.path):
            raise InvalidConfig(f"{self.path}: give the path of a new directory on this machine")
        if os.path.lexists(self.path):
            if not os.path.isdir(self.path) or os.path.islink(self.path):
                raise InvalidConfig(f"{self.path} exists and is not a directory: give the path of a new one")
            if os.listdir(self.path):
                is_done = os.path.exists(self._frame.path_of(_MARK)) and not os.path.exists(self.building)
                detail = ", and complete: the restore that made it was stopped after its last step" if is_done else ""
                raise InvalidConfig(f"{self.path} is not empty{detail}: give the path of a new directory")
            if os.path.ismount(self.path):
                raise InvalidConfig(f"{self.path} is where a disk is mounted: give a new directory in it")
        inside = [each.url for each in sources if not each.is_remote and _is_within(self.path, each.url)]
        if inside:
            raise InvalidConfig(f"{self.path} lies in {inside[0]}, which is read: give a place outside of it")

    def check_space(self, size_bytes: int) -> None:
        folder = os.path.dirname(self.path)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        usable = disk_space(folder).usable_bytes
        if usable < size_bytes:
            raise DuralogError(
                f"{self.path}: there is not enough space: {size_bytes:,} bytes are needed, and {usable:,} are free"
            )

    def begin(self) -> None:
        """An empty directory to build in. What an interrupted restore has left there is removed."""
        frame, files = self._frame, self._files
        if files.exists(frame.path):
            names = files.list_names(frame.path)
            if _MARK not in names and names - {LOCK}:
                raise InvalidConfig(f"{frame.path} is in the way, and was not made by a restore: move it away")
        with lock_holder_named(frame.path):
            frame.lock()
        # Without the mark, nothing may be in here that the next restore would have to remove.
        files.write(frame.path_of(_MARK), _MARK_TEXT, sync=True)
        files.sync_folder(frame.path)
        self._empty_frame()
        LogDirectory(files, self.building).make()

    def discard(self) -> None:
        self._empty_frame()
        self._remove_frame()

    def complete(self) -> None:
        """Give it its name. REQUIRES: all of its files are on disk."""
        self._files.sync_folder(self.building)
        # It takes the place of an empty directory.
        self._files.rename(self.building, self.path)
        self._files.sync_folder(os.path.dirname(self.path))
        self._remove_frame()

    def _empty_frame(self) -> None:
        for entry in self._files.list(self._frame.path):
            if entry.name not in (_MARK, LOCK):
                remove = self._files.remove_folder if entry.is_folder else self._files.remove
                remove(self._frame.path_of(entry.name))
        # The mark must not be gone before the rest.
        self._files.sync_folder(self._frame.path)

    def _remove_frame(self) -> None:
        """REQUIRES: nothing of value is in it."""
        self._files.remove_folder(self._frame.path)
        if self._frame.held_lock is not None:
            self._frame.held_lock.release()


def _is_within(path: str, directory: str) -> bool:
    real, other = os.path.realpath(path), os.path.realpath(directory)
    return os.path.commonpath([real, other]) == other
