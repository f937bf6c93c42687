"""Reads a log file from its first batch to its last, or as far as it can be read.

Each fault becomes a finding. Reading continues after a batch with a wrong checksum, and stops at an impossible length
or format version.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump.request import DumpRequest
from duralog.cli.dump.selection import Selection
from duralog.cli.dump.summary import Summary
from duralog.cli.voice.output import Output
from duralog.cli.voice.progress import CountingBar
from duralog.columnar.pieces import Piece, read_pieces
from duralog.errors import CorruptRecord
from duralog.format.filenames import FileKind
from duralog.format.layout import BATCH_V2, ENTRY_PREFIX, MAGIC_POSITION
from duralog.storage.checks.findings import OnFinding
from duralog.storage.checks.log import OffsetOrder, end_of, report_tail, report_wrong_checksums
from duralog.storage.disk.file_source import FileSource, is_growing
from duralog.storage.disk.found_files import Content, FoundFile

_LARGEST_INDEX_BYTES = 1 << 30


class Sink(Protocol):
    """The destination of the batches of a log: lines, objects, a file, or a check."""

    reports_crc: bool
    """Whether `show` itself reports wrong checksums, between its lines."""

    def begin(self, file: FoundFile, source: FileSource, report: OnFinding) -> None: ...
    def show(self, piece: Piece, rows: NDArray[np.intp]) -> int:
        """Show these batches of the piece. Returns their number of records."""
        ...

    def end(self, log_end: int, *, is_sound: bool) -> None:
        """`log_end` is where the last batch ends; `is_sound` is whether the log itself has no findings."""


def walk_log(file: FoundFile, request: DumpRequest, sink: Sink, output: Output, progress: CountingBar) -> Summary:
    """Show one file's selected batches; the summary counts them."""
    summary = Summary(files=1)
    is_sound = True

    def report(error: CorruptRecord) -> None:
        summary.findings += 1
        output.finding(error)

    def report_log(error: CorruptRecord) -> None:
        nonlocal is_sound
        is_sound = False
        report(error)

    selection = Selection.of(request)
    with FileSource(file.path) as source:
        summary.bytes = source.size
        sink.begin(file, source, report)
        start = _first_position(file, source, request, output)
        progress.advance(start)
        position = start
        base_offset = file.offset if file.content is Content.LOG and start == 0 else None
        order = OffsetOrder(file.path, report_log, base_offset=base_offset)
        for piece in read_pieces(source, start=start):
            rows = selection.batch_rows(piece.batches)
            if not sink.reports_crc:
                report_wrong_checksums(piece, report_log, rows)
            summary.shown += sink.show(piece, rows)
            summary.add(piece.batches[rows])
            order.add(piece.batches)
            end = end_of(piece)
            progress.advance(end - position)
            position = end
            if request.quota.is_used_up or selection.is_past(piece.batches):
                break
            if piece.fault is not None or piece.tail_bytes:
                summary.zero_bytes = report_tail(source, piece, report_log, output.note, is_growing)
                progress.advance(source.size - position)
        output.flush()
        sink.end(position, is_sound=is_sound)
    return summary


def _first_position(file: FoundFile, source: FileSource, request: DumpRequest, output: Output) -> int:
    """The position to start at, by the offset index; 0 if the index is missing or wrong.

    The entry must match the batch at its position: an index that does not fit its log is not used.
    """
    if request.offsets.start <= 0 or file.content is not Content.LOG or file.offset is None:
        return 0
    entry = lookup_position(file, request.offsets.start)
    if entry is None:
        return 0
    offset, position = entry
    if 0 <= position < source.size:
        header = source.read(position, min(BATCH_V2.size, source.size - position))
        if _last_offset_of(header) == offset:
            return position
    output.note(file.path, "its offset index does not fit: reading from the start (--verify shows more)")
    return 0


def lookup_position(file: FoundFile, offset: int) -> tuple[int, int] | None:
    """The last entry of the offset index at or before this offset: offset and position."""
    try:
        with FileSource(file.sibling(FileKind.OFFSET_INDEX)) as index:
            data = index.read_all(limit=_LARGEST_INDEX_BYTES)
    except (OSError, CorruptRecord):
        return None
    entries = np.frombuffer(data, ">i4", count=len(data) // 8 * 2).reshape(-1, 2)
    relative = entries[:, 0].astype(np.int64)
    used = int(np.count_nonzero(relative > 0))
    relative = relative[:used]
    if not used or (np.diff(relative) <= 0).any():
        return None
    row = int(np.searchsorted(relative, offset - (file.offset or 0), side="right")) - 1
    if row < 0:
        return None
    return int(relative[row]) + (file.offset or 0), int(entries[row, 1])


def _last_offset_of(header: bytes) -> int | None:
    """The last offset of the batch with this header; None if the header is incomplete or invalid."""
    if len(header) <= MAGIC_POSITION or header[MAGIC_POSITION] > 2:
        return None
    offset, length = ENTRY_PREFIX.unpack(header)
    if length < 0:
        return None
    if header[MAGIC_POSITION] < 2:
        return offset
    if len(header) < BATCH_V2.size:
        return None
    delta = int.from_bytes(header[BATCH_V2.at.last_offset_delta :][:4], "big", signed=True)
    return offset + delta
