"""The partitions of a directory that a job works on: which, how large they are, and how to read one that changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from typing import TypeVar

from duralog.errors import DuralogError, StorageError, UnknownTopic
from duralog.format.filenames import FileKind, FileState, parse_segment_file
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

Found = TypeVar("Found")

_ATTEMPTS = 4


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
    """The size of a partition's logs; 0 if they cannot be listed: opening them raises the error."""
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


def read_live(store: Store, partition: TopicPartition, read: Callable[[PartitionLog], Found]) -> Found:
    """The result of `read` on the log of a directory that its owner may change meanwhile.

    A read-only store knows the files that were there when it loaded the log. Retention and compaction remove or replace
    them: then the log is loaded again. An error that stays is raised. REQUIRES: the store is read-only, on local disk.
    """
    with ExitStack() as opened:
        for _ in range(_ATTEMPTS - 1):
            with suppress(DuralogError):
                return read(store.partition(*partition))
            store = opened.enter_context(Store(store.paths, config=store.config, read_only=True))
        return read(store.partition(*partition))
