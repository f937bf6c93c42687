"""Takes damage out of a log while it is loaded.

Three rules (see `docs/recovery.md`):

- If a crash may have ended the log here, it ends at the first damage, as in Kafka: the rest of the segment and all
  segments after it are removed.
- If the log has every offset, it also ends where offsets are missing before the next segment, or do not rise. Then the
  end of a segment never reached the disk, though it ends with a batch, or the sector with a batch's offset, which no
  checksum covers. The lost part may have held the end of a transaction, and without it a later commit would also cover
  aborted records.
- Otherwise only the damage is removed, and every valid batch in order stays: in a segment below the recovery point, at
  a batch that Kafka would accept or fail on, and if Kafka would delete the whole log because it ended before its start.

What must always be true: everything that is removed is in quarantine first, and the damage is removed last. Until then,
the next start finds it again, so a crash at any point repeats the work. Before that, the segment stops counting as
compacted, since the compaction did not see what follows the damage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from duralog.errors import CorruptRecord, Fault
from duralog.format.filenames import FileKind
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.recovery.quarantine import NO_OFFSET, Quarantine
from duralog.storage.recovery.segment_rewrite import BeforeChange, ByteRange, NewSegment, rewrite_segment
from duralog.storage.segment.damage import Damage, Examined, examine
from duralog.storage.segment.segment import RecoveredSegment, Segment

_log = logging.getLogger(__name__)

_INT32_MAX = 2**31 - 1
_CUTTING_FAULTS = (Fault.PARTIAL_BATCH, Fault.BATCH_LENGTH, Fault.CRC_MISMATCH)

_KAFKA_CUTS = "cuts the log off here and deletes the segments that follow"
_KAFKA_CUTS_SEGMENT = "cuts the segment off here and keeps the segments that follow"
_KAFKA_EMPTIES = "cuts the log off here, finds that it ends before its start, and deletes all of it"
_KAFKA_LEAVES_GAP = "ignores the missing offsets, and keeps the segment"
_KAFKA_KEEPS = "does not check the version of a batch whose checksum is right, and keeps it"
_KAFKA_MISPLACES = (
    "keeps the batch, or empties the segment and deletes those that follow if an index entry is due for it"
)

OpenSegment = Callable[[int, int], Segment]
"""Opens a segment of this base offset and size."""


class ExpectedLog(NamedTuple):
    """The expectations of the checkpoints and the configs for a log."""

    start_offset: int
    is_preallocated: bool
    dense_from: int | None
    """The log has every offset from here on, so a missing one was lost in a crash; None if that is not known."""


class SegmentRepair:
    """Repairs the files, and updates `segments`, the caller's list, to match."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        segments: list[Segment],
        *,
        open_segment: OpenSegment,
        before_change: BeforeChange,
        quarantine: Quarantine,
        expected: ExpectedLog,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._segments = segments
        self._open_segment = open_segment
        self._before_change = before_change
        self._quarantine = quarantine
        self._log_start = expected.start_offset
        self._is_preallocated = expected.is_preallocated
        self._dense_from = expected.dense_from

    def is_sound(self, place: int, recovered: RecoveredSegment) -> bool:
        """Whether all of a segment is valid, in order, and below the next one."""
        following = self._following(place)
        is_misplaced = following is not None and recovered.next_offset > following.base_offset
        return not recovered.cut_bytes and not is_misplaced

    def repair(self, place: int, recovered: RecoveredSegment, *, ends_log: bool) -> bool:
        """Remove the damage. False if the segment was replaced by one or two others, which must be recovered again.

        With `ends_log`, a crash may have ended the log here, so nothing after the damage is kept.
        """
        segment = self._segments[place]
        following = self._following(place)
        self._before_change(segment.base_offset)
        ends_log = ends_log or following is None
        empties = ends_log and recovered.next_offset < self._log_start
        reason = recovered.reason
        if ends_log and reason is not None:
            cuts = reason.fault in _CUTTING_FAULTS
            is_lost = self._is_dense(recovered.next_offset) and (cuts or reason.fault is Fault.FIELD_VALUE)
            if is_lost or (cuts and not empties):
                self._cut(place, recovered, reason)
                return True
        if not ends_log and recovered.is_blank and self._is_preallocated:
            segment.cut(recovered.valid_bytes)
            return True
        skips = empties or not ends_log
        examined = examine(
            segment.file,
            base_offset=segment.base_offset,
            end=segment.size_bytes,
            limit_offset=None if following is None else following.base_offset,
            skip_broken=skips,
        )
        if examined.damages:
            self._keep(
                segment, examined, _KAFKA_EMPTIES if empties else _KAFKA_CUTS if ends_log else _KAFKA_CUTS_SEGMENT
            )
            if examined.is_broken and not skips:
                self._remove_after(place, examined.damages[-1].reason, _last_offset(examined, segment))
            ranges = [ByteRange(segment.file, start, end) for start, end in examined.kept_ranges]
            self._replace(place, [NewSegment(segment.base_offset, ranges)])
        elif recovered.is_overflow:
            self._replace(place, _split(segment, examined, recovered.valid_bytes))
        else:
            raise AssertionError(f"{segment!r} was recovered as {recovered}, but nothing is wrong with it")
        return False

    def end_at_gap(self, place: int, next_offset: int) -> None:
        """End the log with this segment if offsets were lost before the next one."""
        following = self._following(place)
        first_needed = max(next_offset, self._log_start)
        if following is not None and first_needed < following.base_offset and self._is_dense(next_offset):
            reason = CorruptRecord(
                "the end of the segment before is missing",
                fault=Fault.FIELD_VALUE,
                expected=f"offset {next_offset} first",
                found=f"offset {following.base_offset}",
            )
            self._remove_after(place, reason, next_offset - 1, _KAFKA_LEAVES_GAP)

    def remove_all(self) -> None:
        """Remove all segments of a log that ends before its start."""
        reason = CorruptRecord(
            "the log ends before its start",
            fault=Fault.FIELD_VALUE,
            expected=f"offset {self._log_start} or more",
            found=self._segments[-1].next_offset(),
        )
        while self._segments:
            self._remove(self._segments.pop(), reason, NO_OFFSET, _KAFKA_EMPTIES)

    def _is_dense(self, offset: int) -> bool:
        return self._dense_from is not None and offset >= self._dense_from

    def _following(self, place: int) -> Segment | None:
        return self._segments[place + 1] if place + 1 < len(self._segments) else None

    def _cut(self, place: int, recovered: RecoveredSegment, reason: CorruptRecord) -> None:
        """End the log here."""
        segment = self._segments[place]
        start, end = recovered.valid_bytes, segment.size_bytes
        last_offset = recovered.next_offset - 1
        # A crash always leaves zeros in a preallocated log.
        if not (recovered.is_blank and self._is_preallocated):
            self._keep_range(segment, Damage(start, end, reason), last_offset, NO_OFFSET, _KAFKA_CUTS)
        # These first: once the damage is cut off, nothing shows that the log must end here.
        self._remove_after(place, reason, last_offset)
        segment.cut(start)

    def _keep(self, segment: Segment, examined: Examined, breaking: str) -> None:
        """Quarantine all damaged ranges. `breaking` is what Kafka does at damage that stops it."""
        positions = examined.kept["position"]
        for damage in examined.damages:
            kept_before = int(np.searchsorted(positions, damage.start))
            before, after = examined.kept[:kept_before], examined.kept[kept_before:]
            kafka = breaking
            if damage.reason.fault is Fault.FIELD_VALUE:
                kafka = _KAFKA_MISPLACES
            elif damage.is_foreign:
                kafka = _KAFKA_KEEPS
            self._keep_range(
                segment,
                damage,
                int(before["last_offset"][-1]) if len(before) else segment.base_offset - 1,
                int(after["base_offset"][0]) if len(after) else NO_OFFSET,
                kafka,
            )

    def _keep_range(self, segment: Segment, damage: Damage, offset_before: int, offset_after: int, kafka: str) -> None:
        _log.warning("%s; moving %d bytes to quarantine", damage.reason, damage.end - damage.start)
        self._quarantine.keep_range(
            segment.file,
            damage,
            base_offset=segment.base_offset,
            offset_before=offset_before,
            offset_after=offset_after,
            kafka=kafka,
        )

    def _remove_after(self, place: int, reason: CorruptRecord, last_offset: int, kafka: str = _KAFKA_CUTS) -> None:
        """Remove the segments after this one from the log, the last one first."""
        explained = CorruptRecord(
            f"the log ends before this segment: {reason.reason}",
            fault=reason.fault,
            expected=reason.expected,
            found=reason.found,
        )
        while len(self._segments) > place + 1:
            self._remove(self._segments.pop(), explained, last_offset, kafka)

    def _remove(self, segment: Segment, reason: CorruptRecord, last_offset: int, kafka: str) -> None:
        path = segment.path(FileKind.LOG)
        if segment.size_bytes:
            _log.warning("%s: %s; moving the whole file to quarantine", path, reason.reason)
            self._quarantine.keep_log(
                path,
                base_offset=segment.base_offset,
                size_bytes=segment.size_bytes,
                reason=reason,
                offset_before=last_offset,
                kafka=kafka,
            )
        segment.delete()
        self._fs.sync_folder(self._folder)

    def _replace(self, place: int, new: list[NewSegment]) -> None:
        old = self._segments[place]
        rewrite_segment(self._fs, self._folder, old.base_offset, new, modified_ms=old.modified_ms)
        self._segments[place : place + 1] = [
            self._open_segment(segment.base_offset, sum(end - start for _, start, end in segment.ranges))
            for segment in new
        ]


def _last_offset(examined: Examined, segment: Segment) -> int:
    return int(examined.kept["last_offset"][-1]) if len(examined.kept) else segment.base_offset - 1


def _split(segment: Segment, examined: Examined, position: int) -> list[NewSegment]:
    """Split the segment: the second one starts with the batch that is too far from the base offset of the first."""
    row = int(np.searchsorted(examined.kept["position"], position))
    batch = examined.kept[row]
    base_offset = int(batch["base_offset"])
    if batch["magic"] < 2:
        # The first offset of a compressed message is not known, but the last one before it is.
        before = int(examined.kept["last_offset"][row - 1]) if row else segment.base_offset - 1
        base_offset = max(before + 1, int(batch["last_offset"]) - _INT32_MAX)
    return [
        NewSegment(segment.base_offset, [ByteRange(segment.file, 0, position)]),
        NewSegment(base_offset, [ByteRange(segment.file, position, segment.size_bytes)]),
    ]
