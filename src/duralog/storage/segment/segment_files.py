"""The files of one segment: their names, the open log, and their states from `.cleaned` to `.deleted`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import NamedTuple

from duralog.config import TopicConfig
from duralog.errors import StorageError
from duralog.format.filenames import FileKind, FileState, segment_stem
from duralog.format.index_entries import DEFAULT_INTERVAL_BYTES
from duralog.storage.disk.file_system import File, FileSystem
from duralog.storage.segment.index_file import DEFAULT_MAX_BYTES

KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
"""The files of a segment. The log comes first: without it, the others are leftovers that the next start removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """What a topic's config says about its segments."""

    index_interval_bytes: int = DEFAULT_INTERVAL_BYTES
    index_max_bytes: int = DEFAULT_MAX_BYTES
    segment_bytes: int = 1 << 30
    """The size that a new log is preallocated to, with `preallocate`."""
    preallocate: bool = False


DEFAULT_OPTIONS = SegmentOptions()


def segment_options(config: TopicConfig) -> SegmentOptions:
    return SegmentOptions(
        index_interval_bytes=config.index_interval_bytes,
        index_max_bytes=config.segment_index_bytes,
        segment_bytes=config.segment_bytes,
        preallocate=config.preallocate,
    )


class Listed(NamedTuple):
    """The log file of a read-only segment as it was listed, to detect another file in its place."""

    file_id: int
    size_bytes: int | None
    """None for a file that may still grow, or lose its preallocated space."""


class SegmentFiles:
    """Names and opens the files. `opening` guards opening against renaming; a file that is open needs no lock."""

    __slots__ = (
        "_is_closed",
        "_listed",
        "_log",
        "_stem",
        "base_offset",
        "folder",
        "fs",
        "opening",
        "read_only",
        "state",
    )

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        base_offset: int,
        *,
        read_only: bool = False,
        state: FileState = FileState.LIVE,
        listed: Listed | None = None,
    ) -> None:
        """With `listed`, a log file that is opened must be the one that was listed."""
        self.fs = fs
        self.folder = folder
        self.base_offset = base_offset
        self.read_only = read_only
        self.state = state
        self._listed = listed
        self._stem = f"{folder}/{segment_stem(base_offset)}"
        self.opening = RLock()
        self._log: File | None = None
        self._is_closed = False

    def path(self, kind: FileKind) -> str:
        return f"{self._stem}{kind.value}{self.state.value}"

    @property
    def log(self) -> File:
        """The log, opened at its first use."""
        log = self._log
        return log if log is not None else self._open_log()

    def create_log(self, options: SegmentOptions) -> None:
        """Create an empty log, and remove leftover index files of its name."""
        for kind in KINDS[1:]:
            self.fs.remove(self.path(kind))
        path = self.path(FileKind.LOG)
        log = self.fs.open(path, writable=True, create=True)
        if log.size:
            raise StorageError(f"{path}: cannot create: a file with {log.size} bytes exists already")
        if options.preallocate:
            try:
                log.allocate(options.segment_bytes)
            except StorageError:
                self.fs.remove(path)
                raise
        self._log = log

    def rename(self, state: FileState) -> None:
        """Give every file that exists the suffix of this state."""
        with self.opening:
            before = [self.path(kind) for kind in KINDS]
            self.state = state
            for path, kind in zip(before, KINDS, strict=True):
                if kind is FileKind.LOG or self.fs.exists(path):
                    self.fs.rename(path, self.path(kind))

    def follow_folder(self, folder: str) -> None:
        """The folder was renamed. REQUIRES: `opening` is held since before that."""
        self.folder = folder
        self._stem = f"{folder}/{segment_stem(self.base_offset)}"

    def remove(self) -> None:
        """Remove all files. Readers of the segment can read on: the log is opened first if it was not open."""
        with self.opening:
            # If it is gone or closed, it has no readers.
            with suppress(StorageError):
                self._open_log()
            for kind in KINDS:
                self.fs.remove(self.path(kind))

    def let_go(self) -> None:
        """Close the log when its last reader drops it. It is opened again at its next use."""
        self._log = None

    def close(self) -> None:
        """Close the log for good, when its last reader drops it."""
        with self.opening:
            self._log = None
            self._is_closed = True

    def _open_log(self) -> File:
        with self.opening:
            if self._is_closed:
                raise StorageError(f"{self.path(FileKind.LOG)}: cannot open: the segment was closed")
            if self._log is None:
                path = self.path(FileKind.LOG)
                if self._listed is None:
                    self._log = self.fs.open(path, writable=not self.read_only)
                else:
                    self._log = self._open_listed(path, self._listed)
            return self._log

    def _open_listed(self, path: str, listed: Listed) -> File:
        """Open the file that was listed. If it was compacted since, it would not fit the other segments."""
        try:
            log = self.fs.open(path)
        except StorageError:
            if self.fs.exists(path):
                raise
            raise StorageError(
                f"{path}: the file was removed after the log was loaded, as by retention or compaction: open the"
                " directory again"
            ) from None
        is_same = listed.size_bytes in (None, log.size)
        if is_same and listed.file_id:
            entry = self.fs.entry(path)
            is_same = entry is not None and entry.file_id == listed.file_id
        if not is_same:
            raise StorageError(
                f"{path}: the file was replaced after the log was loaded, as by compaction: open the directory again"
            )
        return log
