"""One log file on its own: checksums, offsets that rise and stay within their segment, and what follows the last batch.

Zeros to the end of the file are left by `preallocate`, and are allowed in the last segment; before another segment they
stop readers. Half a batch at the end is reported with its size, unless it is just being written. The checksum of a
batch does not cover its offsets: only their order shows that they are damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import ByteSource, Piece
from duralog.config.plurals import plural
from duralog.errors import CorruptRecord, Fault
from duralog.format.layout import ENTRY_PREFIX
from duralog.storage.checks.findings import OnFinding, TakeNote

_ZERO_CHECK_BYTES = 8 << 20
_INT32_MAX = 2**31 - 1


def end_of(piece: Piece) -> int:
    """The position after the piece's last batch."""
    if not len(piece.batches):
        return piece.position
    return int(piece.batches["position"][-1]) + int(piece.batches["size"][-1])


def report_wrong_checksums(piece: Piece, report: OnFinding, rows: NDArray[np.intp] | None = None) -> None:
    """Report the batches whose checksum is wrong, of all or of these rows."""
    wrong = np.flatnonzero(piece.batches["crc_ok"] == 0)
    if rows is not None:
        wrong = np.intersect1d(wrong, rows)
    if len(wrong):
        # A decoder refuses them, in its own words, and has nothing else to decode.
        for _ in piece.decode(wrong, on_corrupt=lambda error, _: report(error)):
            pass


class OffsetOrder:
    """Offsets must rise from batch to batch, from the segment's base on and below the next segment's."""

    def __init__(self, file: str, report: OnFinding, *, base_offset: int | None, next_base: int | None = None) -> None:
        self._file = file
        self._report = report
        self._largest_offset = None if base_offset is None else base_offset + _INT32_MAX
        self._next_base = next_base
        self.last_offset = None if base_offset is None else base_offset - 1
        """The largest so far."""

    def add(self, batches: NDArray[Any]) -> None:
        is_good = batches["crc_ok"] != 0
        good = batches if is_good.all() else batches[is_good]
        if not len(good):
            return
        ends = np.ascontiguousarray(good["last_offset"])
        # What a compressed v0 or v1 message begins with is known only to who unpacks it.
        starts = np.where((good["magic"] < 2) & (good["base_offset"] < 0), ends, good["base_offset"])
        reached = np.maximum.accumulate(ends)
        before = np.concatenate(([starts[0] - 1 if self.last_offset is None else self.last_offset], reached[:-1]))
        if self.last_offset is not None:
            before = np.maximum(before, self.last_offset)
        for row in np.flatnonzero((starts <= before) | (ends < starts)).tolist():
            self._wrong(
                "the batch's offset goes back" if starts[row] <= before[row] else "the batch ends before it starts",
                good[row],
                expected=f"an offset over {max(int(before[row]), int(starts[row]) - 1)}",
                found=int(starts[row]) if starts[row] <= before[row] else int(ends[row]),
            )
        self._check_largest(good, ends)
        self.last_offset = int(reached[-1]) if self.last_offset is None else max(self.last_offset, int(reached[-1]))

    def _check_largest(self, batches: NDArray[Any], ends: NDArray[np.int64]) -> None:
        if self._next_base is not None:
            for row in np.flatnonzero(ends >= self._next_base).tolist():
                self._wrong(
                    "the batch's offset lies in the next segment",
                    batches[row],
                    expected=f"below {self._next_base}",
                    found=int(ends[row]),
                )
        elif self._largest_offset is not None:
            for row in np.flatnonzero(ends > self._largest_offset).tolist():
                self._wrong(
                    "the batch's offset is too far from its segment's base for an index",
                    batches[row],
                    expected=f"at most {self._largest_offset}",
                    found=int(ends[row]),
                )

    def _wrong(self, reason: str, batch: Any, *, expected: str, found: int) -> None:
        self._report(
            CorruptRecord(
                reason,
                fault=Fault.FIELD_VALUE,
                file=self._file,
                position=int(batch["position"]),
                expected=expected,
                found=found,
            )
        )


def report_tail(
    source: ByteSource,
    piece: Piece,
    report: OnFinding,
    note: TakeNote,
    is_growing: Callable[[str, int], bool],
    *,
    ends_log: bool = True,
) -> int:
    """Report what follows the last batch of the last piece. Returns how many zeros, if it is all zeros.

    `ends_log`: no segment follows this one.
    """
    position = end_of(piece)
    left = source.size - position
    if not left or (piece.fault is None and not piece.tail_bytes):
        return 0
    is_zero = _is_zero(source, position)
    if is_zero and not ends_log:
        report(
            CorruptRecord(
                "zeros follow the last batch, and then another segment: readers stop at the zeros",
                fault=Fault.BATCH_LENGTH,
                file=source.name,
                position=position,
                expected="the end of the file",
                found=f"{plural(left, 'byte')} of zeros",
            )
        )
        return left
    if is_zero:
        note(
            source.name,
            f"zeros from position {position} to the end, {plural(left, 'byte')}: preallocated, not used yet",
            position=position,
            zero_bytes=left,
        )
        return left
    if piece.fault is not None:
        report(piece.fault)
        note(
            source.name,
            f"{plural(left, 'byte')} from position {position} on cannot be read",
            position=position,
            unread_bytes=left,
        )
        return 0
    if is_growing(source.name, source.size):
        note(
            source.name,
            f"a batch from position {position} on is being written, {plural(left, 'byte')} so far",
            position=position,
            unread_bytes=left,
        )
        return 0
    prefix = bytes(source.read(position, min(left, ENTRY_PREFIX.size)))
    expected = f"{ENTRY_PREFIX.size} bytes or more"
    if len(prefix) == ENTRY_PREFIX.size:
        expected = f"{ENTRY_PREFIX.size + ENTRY_PREFIX.unpack(prefix)[1]} bytes"
    report(
        CorruptRecord(
            "the file ends inside a batch",
            fault=Fault.PARTIAL_BATCH,
            file=source.name,
            position=position,
            expected=expected,
            found=f"{left} bytes",
        )
    )
    return 0


def _is_zero(source: ByteSource, position: int) -> bool:
    while position < source.size:
        size = min(_ZERO_CHECK_BYTES, source.size - position)
        if bytes(source.read(position, size)).count(0) != size:
            return False
        position += size
    return True
