"""The partitions of a directory that a job is to work on, and how much work each is."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from duralog.errors import StorageError, UnknownTopic
from duralog.format.filenames import FileKind, FileState, parse_segment_file
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.disk.log_directory import TopicPartition


def choose_partitions(
    found: Iterable[TopicPartition], topics: Collection[str] | None, partition: int | None, path: str
) -> list[TopicPartition]:
    """Those of the topics, or of all, or only those with the number. What is named must be there."""
    found = sorted(found)
    missing = sorted(set(topics or ()) - {known.topic for known in found})
    if missing:
        raise UnknownTopic(f"there is no topic {' or '.join(missing)} in {path}")
    chosen = [
        known for known in found if (topics is None or known.topic in topics) and partition in (None, known.partition)
    ]
    if partition is not None and not chosen:
        raise UnknownTopic(f"{path}: there is no partition {partition} of {' or '.join(topics or ['any topic'])}")
    return chosen


def log_bytes(folder: str, file_system: FileSystem | None = None) -> int:
    """The size of a partition's logs; 0 where they cannot be listed, which whoever opens them has to tell."""
    sizes = 0
    try:
        entries = (file_system or LocalFileSystem()).list(folder)
    except StorageError:
        return 0
    for entry in entries:
        file = parse_segment_file(entry.name)
        if file is not None and file.kind is FileKind.LOG and file.state is FileState.LIVE:
            sizes += entry.size
    return sizes
