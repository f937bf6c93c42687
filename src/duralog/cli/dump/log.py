"""A log file from its first batch to its last, or to where it cannot be read any further.

What is wrong on the way becomes a finding and the walk goes on as far as it can: past a batch whose checksum is wrong,
up to a length or a format version that cannot be.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from duralog.cli.common.output import Output
from duralog.cli.common.progress import Progress
from duralog.cli.dump.request import DumpRequest
from duralog.cli.dump.selection import Selection
from duralog.cli.dump.summary import Summary
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
    """What becomes of the batches of a log: lines, objects, a file, a verdict."""

    reports_crc: bool
    """Whether `show` itself tells of wrong checksums, in their place among the lines."""

    def begin(self, file: FoundFile, source: FileSource, report: OnFinding) -> None: ...
    def show(self, piece: Piece, rows: NDArray[np.intp]) -> int:
        """Show these batches of the piece. Returns how many records that are."""
        ...

    def end(self, log_end: int, *, is_sound: bool) -> None:
        """`log_end` is where the last batch ends; `is_sound` tells that nothing is wrong with the log itself."""


def walk_log(file: FoundFile, request: DumpRequest, sink: Sink, output: Output, progress: Progress) -> Summary:
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
    """Where the first selected offset can be, from the offset index. 0 where the index cannot be relied on.

    The entry must name the batch that really stands there: an index that does not fit its log is not followed.
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
    output.note(file.path, "its offset index does not fit: reading from the start (--verify tells more)")
    return 0


def lookup_position(file: FoundFile, offset: int) -> tuple[int, int] | None:
    """The last entry of the offset index that is at or before this offset: offset and position."""
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
    """What the batch says that this header is of, as far as it goes."""
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
