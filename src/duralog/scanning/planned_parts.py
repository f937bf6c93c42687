"""Opens the planned files: each when it is needed, or on a remote store the next few while one is read.

Opening and fetching a small remote file takes two requests and little work, so a task with many small segments would
mostly wait. Read-ahead is bounded: `_AHEAD` files of `_SMALL_BYTES` at most.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice

from duralog.errors import CorruptRecord, StorageError
from duralog.format.filenames import PARTITION_METADATA
from duralog.format.properties import decode_partition_metadata
from duralog.scanning.part_reading import FilePart, NotAsExpected
from duralog.scanning.remote_file import RemoteFile
from duralog.scanning.slices import Slice
from duralog.storage.disk.file_system import FileSystem

_AHEAD = 8
_SMALL_BYTES = 2 << 20

OpenPart = Callable[[], FilePart]
"""Returns the planned bytes; raises `NotAsExpected` if they no longer exist."""


def open_planned(found: Slice, topic_ids: dict[str, str | None]) -> FilePart:
    """The planned file, if its size and its topic are still right. `topic_ids` has those of folders seen before."""
    files, _ = found.location.connect()
    try:
        file = files.open(found.path)
        folder = posixpath.dirname(found.path)
        if folder not in topic_ids:
            topic_ids[folder] = _topic_id(files, folder)
        if topic_ids[folder] not in (None, found.topic_id):
            raise NotAsExpected
    except (CorruptRecord, StorageError):
        # It is missing or unreadable: the current log decides.
        raise NotAsExpected from None
    is_right_size = file.size >= found.end_position if found.identity is None else file.size == found.identity.size
    if not is_right_size:
        raise NotAsExpected

    def is_same() -> bool:
        entry = files.entry(found.path)
        if entry is None:
            return False
        if found.identity is None:
            return entry.size >= found.end_position
        return (entry.size, entry.modified_ms) == found.identity

    return FilePart(
        files=files,
        file=file,
        path=found.path,
        base_offset=found.base_offset,
        position=found.position,
        end_position=found.end_position,
        ends_with_batch=found.end_position == file.size,
        is_same=is_same,
    )


def _topic_id(files: FileSystem, folder: str) -> str | None:
    """After a topic was deleted and created again, a file of the same name, size and offsets has other records."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        return decode_partition_metadata(files.read_all(path))
    except StorageError:
        if files.exists(path):
            raise
        return None  # Old logs have no such file.


def open_ahead(slices: Iterable[Slice]) -> Iterator[tuple[Slice, OpenPart]]:
    """Each slice, with a function that opens its file or waits until it is open."""
    remaining = iter(slices)
    topic_ids: dict[str, str | None] = {}
    first = list(islice(remaining, 2))
    if len(first) < 2 or not first[0].location.is_remote:
        for some in (first, remaining):
            yield from ((found, partial(open_planned, found, topic_ids)) for found in some)
        return
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="duralog-opening") as pool:
        waiting: deque[tuple[Slice, Future[FilePart]]] = deque()
        for some in (first, islice(remaining, _AHEAD - len(first))):
            waiting.extend((found, pool.submit(_open_and_fetch, found, topic_ids)) for found in some)
        while waiting:
            found, opening = waiting.popleft()
            yield found, opening.result
            for following in islice(remaining, 1):
                waiting.append((following, pool.submit(_open_and_fetch, following, topic_ids)))


def _open_and_fetch(found: Slice, topic_ids: dict[str, str | None]) -> FilePart:
    part = open_planned(found, topic_ids)
    if isinstance(part.file, RemoteFile) and found.size_bytes <= _SMALL_BYTES:
        try:
            part.file.bring(part.position, part.end_position)
        except (CorruptRecord, StorageError):
            raise NotAsExpected from None
    return part
