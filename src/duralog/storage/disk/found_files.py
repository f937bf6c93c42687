"""What the files of a log directory are, by their names: which partition, which segment, which kind of file.

No file is opened here. A link to a file that does not exist is listed too, so that a check can report it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

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
    has_partition_files,
    is_log_directory,
    parse_metadata_snapshot_file,
    parse_partition_folder,
    parse_segment_file,
)
from duralog.storage.disk.file_source import LOCAL, os_errors
from duralog.storage.disk.file_system import FileSystem


class Content(IntEnum):
    """The kind of a file, by its name. The files of a segment are listed in this order."""

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
    """By the name of the folder that the file is in."""
    offset: int | None = None
    """The offset in the file's name: the base offset of a segment, the end offset of a snapshot."""
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
        """The path of another file of the same segment, in the same state. REQUIRES: the file belongs to a segment."""
        stem = self.path.removesuffix(self.state.value)
        return f"{os.path.splitext(stem)[0]}{kind.value}{self.state.value}"


def identify(path: str) -> FoundFile:
    """What the names of the file and its folder say. The file is not opened."""
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
    """A renamed file, such as `saved.log`: at least its kind is known."""
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

    The folder's own files come first, then each partition's files by offset and kind. `on_refusal` is called with the
    error of a folder that cannot be read.
    """
    found, folders = look_into(folder)
    for inner in folders:
        try:
            found += look_into(inner)[0]
        except OSError as error:
            on_refusal(error)
    return found


def look_into(folder: str, fs: FileSystem = LOCAL) -> tuple[list[FoundFile], list[str]]:
    """The files of a folder by offset and kind, and the paths of its folders by topic and partition."""
    with os_errors():
        # Names first: a file that is created meanwhile is in the listing, and has its kind.
        names = fs.list_names(folder)
        entries = fs.list(folder)
    folders = {entry.name for entry in entries if entry.is_folder}
    files = names.union(entry.name for entry in entries) - folders
    return in_order((os.path.join(folder, name) for name in files), (os.path.join(folder, name) for name in folders))


def in_order(files: Iterable[str], folders: Iterable[str]) -> tuple[list[FoundFile], list[str]]:
    """Paths of files and folders in the order of `look_into`."""
    return sorted(map(identify, files), key=_order_in_folder), sorted(folders, key=_order_of_folders)


def _order_in_folder(file: FoundFile) -> tuple[int, int, int, str]:
    # Files without an offset belong to the folder as a whole and come before its segments. Unknown files come last.
    unknown = int(file.content is Content.OTHER)
    return unknown, -1 if file.offset is None else file.offset, file.content, file.name


def _order_of_folders(folder: str) -> tuple[str, int, str]:
    name = os.path.basename(folder)
    partition = parse_partition_folder(name)
    return (name, -1, name) if partition is None else (partition.topic, partition.partition, name)


def directory_of(path: str) -> tuple[str, PartitionFolder | None]:
    """The log directory of a path: the path itself, or of a partition's folder the one above it, with the partition."""
    normal = os.path.normpath(path)
    if normal in (os.curdir, os.pardir):
        normal = os.path.abspath(path)
    folder = parse_partition_folder(os.path.basename(normal))
    above = os.path.dirname(normal) or os.curdir
    # A log directory may be called `broker-1`, too.
    return (path, None) if folder is None or _is_log_directory(normal, above) else (above, folder)


def _is_log_directory(path: str, above: str) -> bool:
    """Whether a folder with a partition's name is a log directory, or can become one."""
    names = names_in(path)
    if is_log_directory(names, lambda name: names_in(os.path.join(path, name))):
        return True
    return not has_partition_files(names) and not os.path.exists(os.path.join(above, META_PROPERTIES))


def names_in(folder: str) -> list[str]:
    """Empty if it is a file, is not there, or cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
