"""The directory that a restore makes. It gets its name when it is complete, so half of one is never taken for all.

Until then it is `.NAME.incomplete` in the same folder: hidden, so that no glob finds it. If the machine dies, the next
restore to the same place removes it and begins again.
"""

from __future__ import annotations

import os

from duralog.errors import DuralogError, InvalidConfig
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
        self.building = os.path.join(parent, f".{name}.incomplete")
        self._files = LocalFileSystem()

    def check(self, sources: list[Location]) -> None:
        """Raise if the directory cannot be made here."""
        if "://" in self.path or not os.path.basename(self.path):
            raise InvalidConfig(f"{self.path}: give the path of a new directory on this machine")
        if os.path.lexists(self.path):
            if not os.path.isdir(self.path) or os.path.islink(self.path):
                raise InvalidConfig(f"{self.path} exists and is not a directory: give the path of a new one")
            if os.listdir(self.path):
                raise InvalidConfig(f"{self.path} is not empty: give the path of a new directory")
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
        building = LogDirectory(self._files, self.building)
        mark = building.path_of(_MARK)
        if self._files.exists(self.building):
            if not self._files.exists(mark) and os.listdir(self.building):
                raise InvalidConfig(f"{self.building} is in the way, and was not made by a restore: move it away")
            with lock_holder_named(self.building):
                building.lock().release()
            self._files.remove_folder(self.building)
        building.make()
        self._files.write(mark, _MARK_TEXT, sync=True)

    def discard(self) -> None:
        self._files.remove_folder(self.building)

    def complete(self) -> None:
        """Give it its name. REQUIRES: all of its files are on disk."""
        self._files.remove(f"{self.building}/{_MARK}")
        self._files.sync_folder(self.building)
        # It takes the place of an empty directory.
        self._files.rename(self.building, self.path)
        self._files.sync_folder(os.path.dirname(self.path))


def _is_within(path: str, directory: str) -> bool:
    real, other = os.path.realpath(path), os.path.realpath(directory)
    return os.path.commonpath([real, other]) == other
