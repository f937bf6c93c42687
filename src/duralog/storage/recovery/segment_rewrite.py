"""Replacing a segment by others that hold some of its batches, or more than them.

The new logs are complete and on disk before anything else changes: they are written as `.cleaned`, renamed to `.swap`,
the highest first, and then take the place of the old segment. If the machine dies in between, the next start finishes
or undoes all of it: `duralog.storage.recovery.leftovers` tells how. Indexes are not written: a segment without one is
recovered when it is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from duralog.columnar.pieces import ByteSource
from duralog.format.filenames import FileKind, FileState, SegmentFile
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.recovery.leftovers import INDEX_KINDS, settle_leftovers

BeforeChange = Callable[[int], None]
"""Told the base offset of a segment before its log gets to hold anything else than it does, batches put back included.

That it was compacted must be forgotten, on disk, when this returns.
"""

_COPIED_AT_ONCE = 4 << 20


def never_compacted(_base_offset: int) -> None:
    """The `BeforeChange` of a log that was never compacted."""


class ByteRange(NamedTuple):
    """Whole batches of a file, or of bytes in memory."""

    file: ByteSource
    start: int
    end: int


class NewSegment(NamedTuple):
    base_offset: int
    ranges: Sequence[ByteRange]
    """What its log holds, in order."""


def rewrite_segment(
    fs: FileSystem, folder: str, base_offset: int, new: Sequence[NewSegment], *, modified_ms: int | None = None
) -> None:
    """Put `new` in the place of the segment at `base_offset`, if there is one.

    REQUIRES: the new segments rise, and cover no offset of another segment. `modified_ms` becomes their files' time,
    which stands for the time of records that have none.
    """
    for segment in new:
        path = _log_path(folder, segment.base_offset, FileState.CLEANED)
        _write(fs, path, segment.ranges)
        if modified_ms is not None:
            fs.set_modified_ms(path, modified_ms)
    fs.sync_folder(folder)
    for kind in INDEX_KINDS:
        # An empty log covers no offsets, so the indexes of the old one would stay with it.
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
    for file, start, end in ranges:
        for position in range(start, end, _COPIED_AT_ONCE):
            target.append(file.read(position, min(_COPIED_AT_ONCE, end - position)))
    target.truncate(target.size)
    target.sync()
    target.close()
