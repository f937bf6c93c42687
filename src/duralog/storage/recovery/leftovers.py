"""Cleans up the files that a crash leaves in a partition's folder.

Compaction and splitting write new segments as `.cleaned`, rename all of them to `.swap` once they are complete and
durable, the last one first, and only then remove the segments that they replace and give the new ones their final
names. So the names alone show how far that came:

- A `.cleaned` file is left: not all were renamed. The old segments count. Every `.swap` file at or above it belongs to
  the same unfinished work and is removed, then the `.cleaned` files.
- `.swap` files only: all are complete. They count, and everything in the range of offsets that they cover is removed.
- `.deleted` files were replaced or have expired. They are removed.
- An index without its log is left from a deletion. It is removed.
- The folder in which a job's tasks have written parts of a compaction is removed.

Each step is durable before the next one begins, and each is idempotent: after a crash in between, the next start
repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from duralog.columnar.pieces import read_pieces
from duralog.errors import StorageError
from duralog.format.filenames import FileKind, FileState, SegmentFile, parse_segment_file
from duralog.storage.disk.file_system import Entry, FileSystem

STAGING_FOLDER = f"duralog-compaction{FileState.CLEANED.value}"
"""In a partition's folder while tasks of a job compact the partition. Kafka ignores folders there."""

INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)

_INDEXES = tuple(kind.value for kind in INDEX_KINDS)
_UNFINISHED = tuple(state.value for state in FileState if state is not FileState.LIVE)


def settle_leftovers(fs: FileSystem, folder: str) -> list[Entry]:
    """Finish or undo what a crash has interrupted. Returns the new listing of the folder."""
    listing = fs.list(folder)
    _check_logs(fs, folder, listing)
    if not _has_leftovers({entry.name for entry in listing}):
        return listing
    if any(entry.name == STAGING_FOLDER for entry in listing):
        fs.remove_folder(os.path.join(folder, STAGING_FOLDER))
    parsed = (parse_segment_file(entry.name) for entry in listing if not entry.is_folder)
    files = [file for file in parsed if file is not None]

    unfinished = [file for file in files if file.state is FileState.CLEANED]
    swaps = [file for file in files if file.state is FileState.SWAP]
    gone = {file for file in files if file.state is FileState.DELETED}
    if unfinished:
        first = min(file.offset for file in unfinished)
        undone = {file for file in swaps if file.offset >= first}
        # Without the `.cleaned` files, a `.swap` file would count as complete: so it must be removed before them.
        _remove(fs, folder, undone)
        swaps = [file for file in swaps if file not in undone]
        gone |= {*unfinished}
    _remove(fs, folder, gone)

    live = {file for file in files if file.state is FileState.LIVE}
    if swaps:
        replaced = _replaced(fs, folder, swaps, live)
        doubtful = _doubtful_indexes(swaps, replaced)
        _remove(fs, folder, doubtful)
        _remove(fs, folder, replaced)
        live -= replaced
        swaps = [file for file in swaps if file not in doubtful]
        live |= _rename_swaps(fs, folder, swaps)
    _remove(fs, folder, _without_log(live))
    return fs.list(folder)


def _check_logs(fs: FileSystem, folder: str, listing: list[Entry]) -> None:
    """Refuse a folder with the name of a log, and a dangling link, as to a disk that is not mounted.

    If it were ignored, the log would begin after it, and retention would delete the segments before it.
    """
    for name in sorted(fs.list_names(folder).difference(entry.name for entry in listing if not entry.is_folder)):
        file = parse_segment_file(name)
        if file is not None and file.kind is FileKind.LOG and file.state is FileState.LIVE:
            raise StorageError(f"{folder}/{name}: cannot open: neither a regular file nor a link to one")


def has_unfinished_files(names: Iterable[str]) -> bool:
    """Whether a crash has left new segments that are not in place yet."""
    return any(name.endswith((FileState.CLEANED.value, FileState.SWAP.value)) for name in names)


def _has_leftovers(names: set[str]) -> bool:
    """Whether there may be leftovers, by the suffixes of names only: few of the many folders have any."""
    for name in names:
        if name.endswith(_UNFINISHED):
            return True
        if name.endswith(_INDEXES) and f"{name.partition('.')[0]}{FileKind.LOG.value}" not in names:
            return True
    return False


def _replaced(fs: FileSystem, folder: str, swaps: list[SegmentFile], live: set[SegmentFile]) -> set[SegmentFile]:
    """The live files in the range of offsets that the new segments cover, including producer snapshots."""
    logs = [file for file in swaps if file.kind is FileKind.LOG]
    if not logs:
        return set()
    first, last = min(file.offset for file in logs), max(file.offset for file in logs)
    # If no file comes after them, only the batches of the last one matter: reading all of it would take long.
    is_last = all(file.offset <= last for file in live)
    end = max(
        _end_offset(fs, os.path.join(folder, file.name), file.offset, is_last=is_last)
        for file in logs
        if not is_last or file.offset == last
    )
    # An empty log covers no offsets, but the indexes of the log that it replaces must not stay.
    bases = {file.offset for file in logs}
    return {file for file in live if first <= file.offset < end or (file.offset in bases and file.kind in INDEX_KINDS)}


def _doubtful_indexes(swaps: list[SegmentFile], replaced: set[SegmentFile]) -> set[SegmentFile]:
    """The new offset indexes of segments whose live transaction index is removed without a new one.

    The live one may be the new one, if power was lost while the files were renamed. Without its offset index, the
    segment is recovered, which writes both.
    """
    lost = {
        file.offset
        for file in replaced
        if file.kind is FileKind.TRANSACTION_INDEX and SegmentFile(file.offset, file.kind, FileState.SWAP) not in swaps
    }
    return {file for file in swaps if file.kind is FileKind.OFFSET_INDEX and file.offset in lost}


def _rename_swaps(fs: FileSystem, folder: str, swaps: list[SegmentFile]) -> set[SegmentFile]:
    """Give the new segments their final names, one after the other from the lowest.

    A live file at or above a `.log.swap` file would count as replaced. So a segment must not get its final name before
    those below it, and no index before its log.
    """
    renamed = set()
    for offset in sorted({file.offset for file in swaps}):
        of_segment = [file for file in swaps if file.offset == offset]
        logs = [file for file in of_segment if file.kind is FileKind.LOG]
        for files in (logs, [file for file in of_segment if file.kind is not FileKind.LOG]):
            for file in files:
                target = SegmentFile(offset, file.kind)
                fs.rename(os.path.join(folder, file.name), os.path.join(folder, target.name))
                renamed.add(target)
            if files:
                fs.sync_folder(folder)
    return renamed


def _end_offset(fs: FileSystem, path: str, base_offset: int, *, is_last: bool) -> int:
    """Of a log. If it is the last one, any offset after its first batch will do."""
    end = base_offset
    for piece in read_pieces(fs.open(path), check_crc=False):
        if len(piece.batches):
            end = int(piece.batches["last_offset"][-1]) + 1
            if is_last:
                break
    return end


def _without_log(live: Iterable[SegmentFile]) -> set[SegmentFile]:
    files = set(live)
    logs = {file.offset for file in files if file.kind is FileKind.LOG}
    return {file for file in files if file.kind in INDEX_KINDS and file.offset not in logs}


def _remove(fs: FileSystem, folder: str, files: set[SegmentFile]) -> None:
    for file in sorted(files, key=lambda file: file.name):
        fs.remove(os.path.join(folder, file.name))
    if files:
        fs.sync_folder(folder)
