"""Copies a log into another folder while records are appended to it, and switches over to the copy.

A copy is a log of its own, written like any other: the batches keep their bytes and offsets, and each of its segments
starts where one of the source starts. What is not in the batches comes at the end, while writers wait: the start of the
log, its producers (also those whose records retention has deleted) and its leader epochs.

Then the source continues with the files of the copy, as the same object. Readers that hold a view of the old files can
read them to their end, even after they are removed.

Batches can also come one by one (`append_copied`), from any number of logs that have the same history; `end_copy` gives
the copy what is not in them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from duralog.columnar.pieces import read_pieces
from duralog.errors import StorageError
from duralog.format.checkpoints import EpochStart
from duralog.format.varint import Bytes
from duralog.storage.append.batch_admission import Stamp
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.validation import validate
from duralog.storage.log.trimming import raise_start_offset, start_at
from duralog.storage.log.view import LogView
from duralog.storage.log.writer import LogWriter
from duralog.storage.segment.index_builder import half_a_batch

_PIECE_BYTES = 1 << 20
_COMPARED_BYTES = 61
"""The header of a batch, with its offset, time and checksum."""


def copy_new(view: LogView, copy: LogWriter, on_bytes: Callable[[int], None]) -> None:
    """Append to a copy the batches of a view that it does not have yet."""
    first = view.segments.first.base_offset
    if first > copy.view.end_offset and not copy.view.segments.size_bytes:
        with copy.lock:
            start_at(copy, first)
    for segment, end in view.segments_from(copy.view.end_offset):
        with copy.lock:
            if segment.base_offset > copy.view.segments.active.base_offset:
                copy.roll(segment.base_offset)
        found = segment.find_batch(copy.view.end_offset, end)
        if found is None:
            continue
        for piece in read_pieces(
            segment.file, start=found.position, end=end, check_crc=False, piece_bytes=_PIECE_BYTES
        ):
            if piece.fault is not None:
                raise piece.fault
            if piece.tail_bytes:
                raise half_a_batch(piece, end - piece.tail_bytes)
            last = piece.batches[-1]
            data = piece.data[: int(last["position"] + last["size"]) - piece.position]
            _append(copy, data.data)
            on_bytes(len(data))


def append_copied(copy: LogWriter, batches: Bytes, segment_base: int) -> None:
    """Append batches as they are, in a new segment if theirs begins at `segment_base` and they are the first of it."""
    with copy.lock:
        active = copy.view.segments.active
        if segment_base > active.base_offset and segment_base >= copy.view.end_offset and active.size_bytes:
            copy.roll(segment_base)
        _append(copy, batches)


def _append(copy: LogWriter, data: Bytes) -> None:
    with copy.lock:
        copy.check_writable()
        stamp = Stamp(copy.view.end_offset, copy.leader_epoch, copy.clock())
        batches = validate(data, config=copy.config, stamp=stamp, origin=AppendOrigin.AS_IS)
        copy.append(batches, origin=AppendOrigin.AS_IS)


def end_copy(copy: LogWriter, start_offset: int, end_offset: int, epochs: Sequence[EpochStart]) -> None:
    """Give a copy its history, and let it start and end where the log does: records may be compacted away there."""
    with copy.lock:
        if copy.view.end_offset < end_offset:
            if copy.view.segments.size_bytes:
                copy.roll(end_offset)
                copy.publish(copy.view.segments, copy.view.start_offset, end_offset)
            else:
                start_at(copy, end_offset)
        copy.epochs.take_over(tuple(entry for entry in epochs if entry.start_offset < copy.view.end_offset))
        raise_start_offset(copy, min(start_offset, copy.view.end_offset))


def is_beginning(copy: LogView, source: LogView) -> bool:
    """Whether a copy has the same files as the source, up to the end of the copy.

    It has not if the source was compacted, or cut and written again, since the copy was made; nor if the copy was
    rolled at other offsets, as Kafka does.
    """
    if not copy.segments.size_bytes:
        return True
    copied = {segment.base_offset: segment for segment in copy.segments}
    for segment, end in source.segments_from(source.segments.first.base_offset):
        if segment.base_offset >= copy.end_offset:
            break
        found = copied.get(segment.base_offset)
        if found is None or found.size_bytes > end:
            return False
        if found.size_bytes < end and found is not copy.segments.active:
            return False
    active = copy.segments.active
    original = source.segments.floor(active.base_offset)
    last = active.find_batch(copy.end_offset - 1)
    if last is None or original is None:
        return True  # An empty segment, or the source starts after it.
    if original.base_offset != active.base_offset:
        return False
    size = min(_COMPARED_BYTES, active.size_bytes - last.position)
    return bytes(active.file.read(last.position, size)) == bytes(original.file.read(last.position, size))


def complete(source: LogWriter, copy: LogWriter) -> None:
    """Give the copy what is left of the source, and close it durably. REQUIRES: the lock of the source is held."""
    view = source.view
    copy_new(view, copy, lambda _: None)
    with copy.lock:
        active = copy.view.segments.active
        if copy.view.end_offset < view.end_offset and active.base_offset == view.end_offset:
            # The last records before an empty segment were compacted away.
            copy.publish(copy.view.segments, copy.view.start_offset, view.end_offset)
        if copy.view.end_offset != view.end_offset:
            raise StorageError(
                f"{copy.folder}: the copy ends at offset {copy.view.end_offset}, and the log at {view.end_offset}:"
                " move the partition again"
            )
        if not is_beginning(copy.view, view):
            raise StorageError(f"{copy.folder}: the log was changed while it was copied: move the partition again")
        raise_start_offset(copy, view.start_offset)
        copy.producers = source.producers
        copy.epochs.take_over(source.epochs.entries)
        copy.close()


def change_over(writer: LogWriter, old_folder: str, rename: Callable[[], None], load: Callable[[], LogWriter]) -> None:
    """Rename the folder to `old_folder` with `rename`, and continue in the files of the log that `load` returns.

    The old files are removed after `file.delete.delay.ms`. REQUIRES: the lock is held.
    """
    old = deque(writer.view.segments)
    with writer.flushing:
        # Readers may be about to open a file.
        with ExitStack() as waiting:
            for segment in old:
                waiting.enter_context(segment.names_waiting())
            rename()
            for segment in old:
                segment.follow_folder(old_folder)
        writer.adopt(load())

    def remove() -> None:
        # One by one: the files of a segment stay open until its last reader drops them.
        while old:
            old.popleft().delete()
        writer.file_system.remove_folder(old_folder)

    writer.run_later(writer.config.file_delete_delay_ms, f"removing {old_folder}", remove)
