"""Replaces segments by the segment that they were compacted to.

The steps, each durable before the next one begins:

1. The new files are complete and named `.cleaned`.
2. They are renamed to `.swap`. From here on the new segment counts.
3. The old files are renamed to `.deleted`.
4. The new files get their final names.

If the machine dies, the next start undoes an incomplete step 2, and otherwise finishes the rest
(`duralog.storage.recovery.leftovers`): so a log has either the old segments or the new one. Without the order between 3
and 4, old and new segments could both be found.

One exception: if no records of the last old segments survived, these segments may be found after a crash, since the
names do not say that the new segment covers them. Their records are superseded, and the next compaction drops them.

Readers see the new segment from step 2 on. Readers of an old segment read on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from duralog.errors import CompactionStopped
from duralog.format.filenames import FileKind, FileState, SegmentFile
from duralog.storage.log.trimming import discard
from duralog.storage.log.writer import LogWriter
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segment_files import KINDS
from duralog.storage.segment.source import SegmentSource


def swap_in(writer: LogWriter, old: Sequence[SegmentSource], new: Segment, check: Callable[[], None]) -> None:
    """Replace the old segments by the new one, whose `.cleaned` files are durable, with their names.

    `check` may raise to stop, before anything is changed. Raises `CompactionStopped` if the old segments have changed.
    If a rename fails half-way, the log accepts no more appends until it is opened again.

    REQUIRES: the writer's lock is held, and `check_writable` was called.
    """
    view = writer.view
    inactive = set(map(id, view.segments.inactive))
    for source in old:
        if id(source.segment) not in inactive or source.segment.size_bytes != source.size_bytes:
            raise CompactionStopped(f"{writer.folder}: the segment at {source.base_offset} was changed meanwhile")
    check()
    _open(new)
    fs = writer.file_system
    try:
        new.rename(FileState.SWAP)
        fs.sync_folder(writer.folder)
    except BaseException:
        _undo(writer, new)
        raise
    replaced = [source.segment for source in old]
    try:
        writer.publish(view.segments.replaced(replaced, [new]), view.start_offset, view.end_offset)
        discard(writer, replaced, replaced_by=new.base_offset)
        fs.sync_folder(writer.folder)
        new.rename(FileState.LIVE)
        fs.sync_folder(writer.folder)
    except BaseException as error:
        writer.fail(error)
        raise


def _open(segment: Segment) -> None:
    """Open all files, so that readers do not depend on names if renaming fails half-way."""
    _ = (
        segment.file,
        segment.offset_index.entry_count,
        segment.time_index.entry_count,
        segment.transaction_index.entries,
    )


def _undo(writer: LogWriter, new: Segment) -> None:
    """Remove the new files, some of which may be renamed to `.swap` already."""

    def path(kind: FileKind, state: FileState) -> str:
        return f"{writer.folder}/{SegmentFile(new.base_offset, kind, state).name}"

    fs = writer.file_system
    try:
        # `.swap` files do not count while there is a `.cleaned` file: so there must be one until they are gone.
        if fs.exists(path(FileKind.LOG, FileState.SWAP)):
            fs.rename(path(FileKind.LOG, FileState.SWAP), path(FileKind.LOG, FileState.CLEANED))
            fs.sync_folder(writer.folder)
        for state in (FileState.SWAP, FileState.CLEANED):
            for kind in reversed(KINDS):
                fs.remove(path(kind, state))
            fs.sync_folder(writer.folder)
    except BaseException as error:
        writer.fail(error)
