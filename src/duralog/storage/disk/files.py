"""The seam to the operating system: bytes of one file, and what a folder of a log directory holds.

Files are read with `pread`, not mapped: a file that another process truncates must end a read with an error, not
the process with a signal. Nothing here writes, locks or follows the contents of a file.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType

from duralog.errors import CorruptRecord, Fault
from duralog.format.filenames import (
    BOOTSTRAP_SNAPSHOT,
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    QUORUM_STATE,
    FileKind,
    FileState,
    PartitionFolder,
    parse_metadata_snapshot_file,
    parse_partition_folder,
    parse_segment_file,
)


class FileSource:
    """A regular file, open for reading at any position. `size` is what it was when the file was opened."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        # Without O_NONBLOCK, opening a pipe that nobody writes to would never return.
        self._descriptor = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise CorruptRecord("not a regular file", file=self.name)
        self.size = status.st_size

    def read(self, position: int, size: int) -> bytes:
        """Exactly `size` bytes, or an error that says where the file ended."""
        first = os.pread(self._descriptor, size, position)
        if len(first) == size:
            return first
        # One call gives at most 2 GiB; a file that was cut meanwhile gives nothing more.
        parts = [first]
        got = len(first)
        while got < size:
            part = os.pread(self._descriptor, size - got, position + got)
            if not part:
                raise CorruptRecord(
                    "the file became shorter while it was read",
                    fault=Fault.PARTIAL_BATCH,
                    file=self.name,
                    position=position,
                    expected=f"{size} bytes",
                    found=f"{got} bytes",
                )
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    def read_all(self, *, limit: int) -> bytes:
        """The whole file. A small file that is larger than `limit` is not what its name says."""
        check_small(self.name, self.size, limit)
        return self.read(0, self.size)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def size_of(path: str) -> int:
    """The size of a file that a listing had; 0 if it has gone meanwhile."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def is_growing(path: str, size: int) -> bool:
    """Whether somebody writes to the end of a file that had this size.

    A write of several pages shows page after page, and whoever writes may have to wait in the middle of it. So a file
    that was written to lately gets a moment to grow.
    """
    try:
        for _ in range(_GROWTH_LOOKS):
            status = os.stat(path)
            if status.st_size != size:
                return status.st_size > size
            if abs(time.time() - status.st_mtime) > _LATELY_SECONDS:
                return False
            time.sleep(_BETWEEN_LOOKS_SECONDS)
    except FileNotFoundError:
        pass
    return False


_LATELY_SECONDS = 2.0
_GROWTH_LOOKS = 25
_BETWEEN_LOOKS_SECONDS = 0.01

LARGEST_SMALL_FILE_BYTES = 1 << 30
"""An index of Kafka's default size has 10 MiB; a snapshot of 100,000 producers has 5 MB."""


def check_small(path: str, size: int, limit: int = LARGEST_SMALL_FILE_BYTES) -> None:
    """Before a file is read whole."""
    if size > limit:
        raise CorruptRecord(
            "the file is too large to be what its name says",
            fault=Fault.TOO_LARGE,
            file=path,
            expected=f"at most {limit} bytes",
            found=f"{size} bytes",
        )


_READ_ATTEMPTS = 3


def read_small(path: str) -> bytes | None:
    """All of a file that is no log; None if there is no such file.

    A broker cuts the unused end off an index when its segment is complete: a file that becomes shorter is read again.
    """
    attempts = _READ_ATTEMPTS
    while True:
        attempts -= 1
        try:
            with FileSource(path) as source:
                return source.read_all(limit=LARGEST_SMALL_FILE_BYTES)
        except FileNotFoundError:
            return None
        except CorruptRecord as error:
            if error.fault is not Fault.PARTIAL_BATCH or not attempts:
                raise


class Content(IntEnum):
    """What a file of a log directory holds, as its name tells. The order is the one in which a segment is listed."""

    META_PROPERTIES = 0
    OFFSET_CHECKPOINT = 1
    PARTITION_METADATA = 2
    LEADER_EPOCHS = 3
    JSON_STATE = 4
    METADATA_SNAPSHOT = 5
    LOG = 6
    OFFSET_INDEX = 7
    TIME_INDEX = 8
    TRANSACTION_INDEX = 9
    PRODUCER_SNAPSHOT = 10
    OTHER = 11


_BY_KIND = {
    FileKind.LOG: Content.LOG,
    FileKind.OFFSET_INDEX: Content.OFFSET_INDEX,
    FileKind.TIME_INDEX: Content.TIME_INDEX,
    FileKind.TRANSACTION_INDEX: Content.TRANSACTION_INDEX,
    FileKind.PRODUCER_SNAPSHOT: Content.PRODUCER_SNAPSHOT,
}
_BY_NAME = dict.fromkeys(OFFSET_CHECKPOINTS, Content.OFFSET_CHECKPOINT) | {
    LEADER_EPOCH_CHECKPOINT: Content.LEADER_EPOCHS,
    PARTITION_METADATA: Content.PARTITION_METADATA,
    META_PROPERTIES: Content.META_PROPERTIES,
    BOOTSTRAP_SNAPSHOT: Content.METADATA_SNAPSHOT,
    QUORUM_STATE: Content.JSON_STATE,
    CLEAN_SHUTDOWN: Content.JSON_STATE,
}
_BY_SUFFIX = {kind.value: content for kind, content in _BY_KIND.items()} | {".checkpoint": Content.METADATA_SNAPSHOT}
_STATE_SUFFIXES = tuple(state.value for state in FileState if state.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    path: str
    content: Content
    partition: PartitionFolder | None
    """From the name of the folder that the file is in."""
    offset: int | None = None
    """The offset in the file's name: of a segment its base offset, of a snapshot its end."""
    epoch: int | None = None
    """Of a KRaft snapshot."""
    state: FileState = FileState.LIVE

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    def sibling(self, kind: FileKind) -> str:
        """The path of another file of the same segment, in the same state. REQUIRES: the file is one of a segment."""
        stem = self.path.removesuffix(self.state.value)
        return f"{os.path.splitext(stem)[0]}{kind.value}{self.state.value}"


def identify(path: str) -> FoundFile:
    """What the file's name, and its folder's, say about it. The file is not opened."""
    name = os.path.basename(path)
    partition = parse_partition_folder(os.path.basename(os.path.dirname(os.path.abspath(path))))
    segment_file = parse_segment_file(name)
    if segment_file is not None:
        return FoundFile(
            path=path,
            content=_BY_KIND[segment_file.kind],
            partition=partition,
            offset=segment_file.offset,
            state=segment_file.state,
        )
    snapshot = parse_metadata_snapshot_file(name)
    if snapshot is not None:
        return FoundFile(
            path=path,
            content=Content.METADATA_SNAPSHOT,
            partition=partition,
            offset=snapshot.end_offset,
            epoch=snapshot.epoch,
        )
    if name in _BY_NAME:
        return FoundFile(path=path, content=_BY_NAME[name], partition=partition)
    return _by_suffix(path, partition)


def _by_suffix(path: str, partition: PartitionFolder | None) -> FoundFile:
    """A file that somebody has renamed, `saved.log` or so, tells its kind at least."""
    stem, state = path, FileState.LIVE
    for suffix in _STATE_SUFFIXES:
        if path.endswith(suffix):
            stem, state = path.removesuffix(suffix), FileState(suffix)
    content = _BY_SUFFIX.get(os.path.splitext(stem)[1], Content.OTHER)
    if content is Content.OTHER:
        state = FileState.LIVE
    return FoundFile(path=path, content=content, partition=partition, state=state)


def list_folder(folder: str, *, on_refusal: Callable[[OSError], None]) -> list[FoundFile]:
    """The files of a folder and of the folders in it: of one partition, or of a whole log directory.

    The folder's own files come first, then partition after partition; in each, by offset, then by kind. Folders in it
    that cannot be read are told to `on_refusal`, by their error.
    """
    found, folders = look_into(folder)
    for inner in folders:
        try:
            found += look_into(inner)[0]
        except OSError as error:
            on_refusal(error)
    return found


def look_into(folder: str) -> tuple[list[FoundFile], list[str]]:
    """The files of a folder, by offset, then by kind, and the paths of the folders in it, by topic and partition."""
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            (folders if entry.is_dir() else files).append(entry.path)
    return in_order(files, folders)


def in_order(files: Iterable[str], folders: Iterable[str]) -> tuple[list[FoundFile], list[str]]:
    """The paths of a folder's files and folders as `look_into` has them."""
    return sorted(map(identify, files), key=_order_in_folder), sorted(folders, key=_order_of_folders)


def _order_in_folder(file: FoundFile) -> tuple[int, int, int, str]:
    # What has no offset belongs to the folder as a whole and stands before its segments; unknown files stand last.
    unknown = int(file.content is Content.OTHER)
    return unknown, -1 if file.offset is None else file.offset, file.content, file.name


def _order_of_folders(folder: str) -> tuple[str, int, str]:
    name = os.path.basename(folder)
    partition = parse_partition_folder(name)
    return (name, -1, name) if partition is None else (partition.topic, partition.partition, name)


def directory_of(path: str) -> tuple[str, PartitionFolder | None]:
    """The log directory that a path means: itself, or the one that a partition's folder is in, with that partition."""
    normal = os.path.normpath(path)
    if normal in (os.curdir, os.pardir):
        normal = os.path.abspath(path)
    folder = parse_partition_folder(os.path.basename(normal))
    if folder is None:
        return path, None
    return os.path.dirname(normal) or os.curdir, folder
