"""The files of a directory on an object store or HDFS, for checks. Paths are URLs, also in findings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from duralog.columnar.pieces import ByteSource
from duralog.scanning.locations import Location
from duralog.scanning.remote_file import ReadAhead, RemoteFile
from duralog.storage.checks.checked_files import LOCAL_FILES, CheckedFiles
from duralog.storage.disk.file_source import os_errors
from duralog.storage.disk.found_files import FoundFile, in_order


def files_at(location: Location) -> CheckedFiles:
    """The files of a location, to be checked; `location.url` is the path to begin with."""
    return RemoteFiles(location) if location.is_remote else LOCAL_FILES


class RemoteFiles:
    """Sizes are those of the last listing or opened file: getting a new one is a request. Logs are read ahead."""

    def __init__(self, location: Location) -> None:
        self._files, _ = location.connect()
        self._prefix = location.address().prefix
        self._sizes: dict[str, int] = {}

    def look_into(self, folder: str) -> tuple[list[FoundFile], list[str]]:
        with os_errors():
            entries = self._files.list(self._path(folder))
        found = {os.path.join(folder, entry.name): entry for entry in entries}
        self._sizes |= {url: entry.size for url, entry in found.items() if not entry.is_folder}
        return in_order(
            [url for url, entry in found.items() if not entry.is_folder],
            [url for url, entry in found.items() if entry.is_folder],
        )

    def read_small(self, path: str) -> bytes | None:
        try:
            with os_errors():
                return self._files.read_all(self._path(path))
        except FileNotFoundError:
            return None

    def size_of(self, path: str) -> int:
        return self._sizes.get(path, 0)

    def is_growing(self, path: str, size: int) -> bool:
        with os_errors():
            file = self._files.open(self._path(path))
            try:
                return file.size > size
            finally:
                file.close()

    @contextmanager
    def open(self, path: str) -> Iterator[ByteSource]:
        with os_errors():
            file = self._files.open(self._path(path))
            assert isinstance(file, RemoteFile)
            self._sizes[path] = file.size
            try:
                with ReadAhead(file, 0, file.size) as source:
                    yield source
            finally:
                file.close()

    def _path(self, url: str) -> str:
        return url.removeprefix(self._prefix)
