"""Removes data from a log: deletes segments, raises its start, truncates its end.

Readers first, then files: a view without the segments is published before their files are changed, so no reader starts
to read them, and running readers hold the files. Files are renamed to `.deleted` at once and removed later. A crash in
between leaves files that the next start removes, or finds below the log's start and deletes then. The same holds if a
rename fails: then the start is written to the checkpoint, or the segments would come back, with old values of keys
whose tombstones a compaction has dropped since.

Unlike in Kafka, the recovery point is not raised to a new start: a crash may bring back the old start or the names of
deleted segments, and with them records that were never synced. They must be recovered then.

REQUIRES of all functions: the writer's lock is held, and `check_writable` was called.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence

from duralog.errors import OffsetOutOfRange, StorageError
from duralog.format.filenames import FileState
from duralog.storage.log.view import LogView
from duralog.storage.log.writer import LogWriter
from duralog.storage.segment.segment import Segment

_log = logging.getLogger(__name__)


def delete_segments(writer: LogWriter, base_offsets: Iterable[int], reason: str) -> int:
    """Delete the segments with these base offsets. Returns the number; those that do not exist do not count.

    If the active segment is among them, the log is rolled first: its end stays, and it is empty if all are deleted.
    """
    wanted = set(base_offsets)
    if writer.view.segments.active.base_offset in wanted:
        writer.roll(writer.view.end_offset)
    view = writer.view
    # An empty active segment cannot be rolled, and stays.
    gone = [segment for segment in view.segments.inactive if segment.base_offset in wanted]
    if gone:
        kept = view.segments.removed(gone)
        start_offset = max(view.start_offset, kept.first.base_offset)
        writer.producers.advance_log_start(start_offset)
        writer.publish(kept, start_offset, view.end_offset)
        _log.info("%s: deleting %d segments: %s", writer.folder, len(gone), reason)
        try:
            # The remaining names first: if a crash lost them and these were gone, the log would start at 0 again.
            writer.file_system.sync_folder(writer.folder)
            discard(writer, gone)
        except StorageError:
            writer.has_left_files = True
            raise
        writer.epochs.truncate_from_start(start_offset)
    return len(gone)


def raise_start_offset(writer: LogWriter, start_offset: int) -> None:
    """Raise the start of the log. The next retention deletes whole segments below it."""
    view = writer.view
    if start_offset <= view.start_offset:
        return
    if start_offset > view.end_offset:
        raise OffsetOutOfRange(f"the log ends at offset {view.end_offset}: it cannot start at {start_offset}")
    writer.producers.advance_log_start(start_offset)
    writer.publish(view.segments, start_offset, view.end_offset)
    writer.epochs.truncate_from_start(start_offset)


def start_at(writer: LogWriter, offset: int) -> None:
    """Let an empty log start and end at this offset. A crash in between leaves the old start or the new one."""
    view = writer.view
    if view.segments.size_bytes or offset < view.end_offset:
        raise OffsetOutOfRange(
            f"{writer.folder}: only a log without records that ends at offset {offset} or before can start there:"
            f" this one has {view.segments.size_bytes} bytes and ends at {view.end_offset}"
        )
    writer.roll(offset)
    gone = list(writer.view.segments.inactive)
    kept = writer.view.segments.removed(gone)
    writer.producers.advance_log_start(offset)
    writer.publish(kept, offset, offset)
    # The new name first: if a crash lost it and the old one were gone, the log would start at offset 0 again.
    writer.file_system.sync_folder(writer.folder)
    discard(writer, gone)
    writer.epochs.truncate_from_start(offset)


def truncate_to(writer: LogWriter, offset: int) -> None:
    """Cut off the batch that holds the offset, and everything after it. The log ends with the batch before it."""
    view = writer.view
    if offset >= view.end_offset:
        return
    if offset < view.start_offset:
        raise OffsetOutOfRange(f"the log starts at offset {view.start_offset}: it cannot be cut at {offset}")
    gone = [segment for segment in view.segments if segment.base_offset > offset]
    kept = view.segments.removed(gone)
    cut = kept.active.find_batch(offset)
    with writer.flushing:
        try:
            position = kept.active.size_bytes if cut is None else cut.position
            stable = min(view.last_stable_offset, offset)
            writer.view = LogView(kept, view.start_offset, offset, position, stable, writer.abort_markers)
            writer.abort_markers.cut(offset)
            writer.follow(writer.config)
            # One by one, from the end: a crash in between leaves no gap.
            for segment in reversed(gone):
                discard(writer, [segment])
                writer.file_system.sync_folder(writer.folder)
            kept.active.truncate_to(offset)
            kept.active.flush()
            writer.has_new_names = True
            end_offset = max(kept.active.next_offset(), view.start_offset)
            writer.recovery_point = min(writer.recovery_point, end_offset)
            writer.publish(kept, view.start_offset, end_offset)
            writer.snapshots.remove_outside(view.start_offset, end_offset)
            writer.epochs.truncate_from_end(end_offset)
            writer.rebuild_producers()
            writer.publish(kept, view.start_offset, end_offset)
        except BaseException as error:
            writer.fail(error)
            raise


def discard(writer: LogWriter, segments: Sequence[Segment], *, replaced_by: int | None = None) -> None:
    """Rename the files of segments that are no longer in a view, and remove them later.

    The producer snapshots of their base offsets are removed too, except at the base offset of the replacing segment.
    """
    snapshots: list[str] = []
    failure: StorageError | None = None
    try:
        for segment in segments:
            try:
                segment.rename(FileState.DELETED)
                is_vacant = segment.base_offset != replaced_by
                snapshot = writer.snapshots.mark_deleted(segment.base_offset) if is_vacant else None
            except StorageError as error:
                failure = failure or error
            else:
                if snapshot is not None:
                    snapshots.append(snapshot)
    finally:
        writer.has_new_names = True

    waiting = deque(segments)

    def remove() -> None:
        failure: StorageError | None = None
        # Dropped one by one: the files of a segment stay open until its last reader drops them.
        while waiting:
            try:
                waiting.popleft().delete()
            except StorageError as error:
                failure = failure or error
        for path in snapshots:
            writer.file_system.remove(path)
        if failure is not None:
            raise failure

    writer.run_later(writer.config.file_delete_delay_ms, f"delete segments of {writer.folder}", remove)
    if failure is not None:
        raise failure
