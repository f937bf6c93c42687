"""Replaces a segment by new ones, which hold part of its batches or additional batches.

The new logs are complete and durable before anything else changes: they are written as `.cleaned`, renamed to `.swap`,
the highest first, and then replace the old segment. If the machine dies in between, the next start finishes or undoes
all of it (`duralog.storage.recovery.leftovers`). Indexes are not written: a segment without an index is recovered when
the log is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

from duralog.columnar.pieces import ByteSource
from duralog.format.filenames import FileKind, FileState, SegmentFile
from duralog.format.varint import Bytes
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.recovery.leftovers import INDEX_KINDS, settle_leftovers

BeforeChange = Callable[[int], None]
"""Called with the base offset of a segment before its log is changed, also before batches are put back.

When it returns, the cleaner's checkpoint on disk must no longer count the segment as compacted.
"""

_COPIED_AT_ONCE = 1 << 20
_WRITTEN_AHEAD = 8 << 20
"""What is written begins to go to disk after this many bytes: the sync at the end has less to wait for."""


def never_compacted(_base_offset: int) -> None:
    """The `BeforeChange` for a log that was never compacted: does nothing."""


class ByteRange(NamedTuple):
    """A range of complete batches in a file or in memory."""

    file: ByteSource
    start: int
    end: int


class NewSegment(NamedTuple):
    base_offset: int
    ranges: Sequence[ByteRange]
    """The contents of its log, in order."""


def rewrite_segment(
    fs: FileSystem, folder: str, base_offset: int, new: Sequence[NewSegment], *, modified_ms: int | None = None
) -> None:
    """Replace the segment at `base_offset`, if there is one, by `new`.

    REQUIRES: the new segments are in order, and cover no offset of another segment. `modified_ms` becomes the
    modification time of their files, which is used for records without a timestamp.
    """
    for segment in new:
        path = _log_path(folder, segment.base_offset, FileState.CLEANED)
        _write(fs, path, segment.ranges)
        if modified_ms is not None:
            fs.set_modified_ms(path, modified_ms)
    fs.sync_folder(folder)
    for kind in INDEX_KINDS:
        # An empty log covers no offsets, so the old indexes would stay.
        fs.remove(os.path.join(folder, SegmentFile(base_offset, kind).name))
    for segment in reversed(new):
        fs.rename(
            _log_path(folder, segment.base_offset, FileState.CLEANED),
            _log_path(folder, segment.base_offset, FileState.SWAP),
        )
        # One by one: a `.swap` counts once there is no `.cleaned` at or below it.
        fs.sync_folder(folder)
    settle_leftovers(fs, folder)


def _log_path(folder: str, base_offset: int, state: FileState) -> str:
    return os.path.join(folder, SegmentFile(base_offset, FileKind.LOG, state).name)


def _write(fs: FileSystem, path: str, ranges: Sequence[ByteRange]) -> None:
    fs.remove(path)
    target = fs.open(path, writable=True, create=True)
    begun = 0
    with closing(_read_ahead(ranges)) as pieces:
        for piece in pieces:
            target.append(piece)
            if target.size - begun >= _WRITTEN_AHEAD:
                target.begin_sync(begun)
                begun = target.size
    target.truncate(target.size)
    target.sync()
    target.close()


def _read_ahead(ranges: Sequence[ByteRange]) -> Generator[Bytes, None, None]:
    """The bytes of the ranges in order. The next piece is read while the caller writes one."""
    pieces = [
        (file, position, min(_COPIED_AT_ONCE, end - position))
        for file, start, end in ranges
        for position in range(start, end, _COPIED_AT_ONCE)
    ]
    if sum(size for _, _, size in pieces) <= _COPIED_AT_ONCE:
        yield from (file.read(position, size) for file, position, size in pieces)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="duralog-copy") as pool:
        reading: Future[Bytes] | None = None
        for file, position, size in pieces:
            piece = None if reading is None else reading.result()
            reading = pool.submit(file.read, position, size)
            if piece is not None:
                yield piece
        if reading is not None:
            yield reading.result()
