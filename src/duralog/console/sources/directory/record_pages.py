"""Pages of records: forward or backward from an offset or a time, bounded in records and in bytes.

A page covers a range of offsets: an offset of the range that is not on the page is a gap in the log. Records come in
the order of offsets, also on a page that was read backwards. Damage is reported in the note of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.console.facts.records import RecordKind, RecordPage, ShownRecord
from duralog.console.source import MOST_PAGE_RECORDS
from duralog.console.sources.directory.batch_steps import Step, steps_before, steps_from
from duralog.console.sources.directory.fresh_logs import Stability
from duralog.console.sources.shown_batches import Cut, shown_records
from duralog.errors import CorruptRecord
from duralog.storage.log.partition_log import PartitionLog

_MOST_READ_BYTES = 32 << 20
_WHOLE_FIELD_BYTES = 8 << 20
_MOST_HEADERS = 100_000
_MOST_REPORTED = 3


class PageReader:
    """Reads pages of one log, as it was when it was loaded."""

    def __init__(
        self, log: PartitionLog, stability: Callable[[], Stability], *, committed_only: bool, cut: Cut | None = None
    ) -> None:
        """`stability` is asked only where transactions matter."""
        self._log = log
        self._view = log.view
        self._ask_stability = stability
        self._stability: Stability | None = None
        self._committed_only = committed_only
        self._cut = cut or Cut()
        self._damage: list[CorruptRecord] = []
        self._notes: list[str] = []

    @property
    def damage(self) -> Sequence[CorruptRecord]:
        """The damage found so far."""
        return self._damage

    def page(self, *, offset: int | None, time_ms: int | None, limit: int, backwards: bool) -> RecordPage:
        limit = min(max(limit, 1), MOST_PAGE_RECORDS)
        start, end = self._view.start_offset, self._end()
        if time_ms is not None:
            offset, backwards = self._at_time(time_ms, end, backwards=backwards)
        elif offset is None:
            offset = end if backwards else start
        elif not start <= offset <= end:
            where = f"the log goes from {start:,} to {end:,}"
            self._notes.append(f"There is no offset {offset:,}: {where}.")
            backwards, offset = (True, end) if offset > end else (False, start)
        return self._backward(offset, limit) if backwards else self._forward(offset, end, limit)

    def tail(self, from_offset: int, limit: int) -> RecordPage:
        """Records from the offset on; the newest, if there are more than the limit."""
        limit = min(max(limit, 1), MOST_PAGE_RECORDS)
        start, end = self._view.start_offset, self._end()
        if from_offset > end:
            # The log was truncated, or the topic was created again: continue from its end.
            return self._page([], end, end)
        from_offset = max(from_offset, start)
        if end - from_offset <= limit:
            return self._forward(from_offset, end, limit)
        page = self._backward(end, limit)
        kept = tuple(record for record in page.records if record.offset >= from_offset)
        first = max(page.first_offset, from_offset)
        note = None if first == from_offset else f"Offsets {from_offset:,} to {first - 1:,} came too fast to be shown."
        return replace(page, records=kept, first_offset=first, note=" ".join(filter(None, (note, page.note))) or None)

    def one(self, offset: int) -> ShownRecord | None:
        if not self._view.start_offset <= offset < self._end():
            return None
        self._cut = Cut(_WHOLE_FIELD_BYTES, _MOST_HEADERS)
        for step in steps_from(self._view, offset, first_bytes=1):
            for record in self._records(step, offset, offset + 1):
                return record
            if step.next_offset > offset:
                break
        return None

    def _end(self) -> int:
        return self._stable().last_stable_offset if self._committed_only else self._view.end_offset

    def _stable(self) -> Stability:
        if self._stability is None:
            self._stability = self._ask_stability()
        return self._stability

    def _at_time(self, time_ms: int, end: int, *, backwards: bool) -> tuple[int, bool]:
        found = self._log.offset_for_timestamp(max(time_ms, 0))
        if found is None or found.offset >= end:
            self._notes.append(f"There is no record at {format_time(time_ms)} or later: these are the last ones.")
            return end, True
        return found.offset, backwards

    def _forward(self, offset: int, end: int, limit: int) -> RecordPage:
        found: list[ShownRecord] = []
        next_offset, read_bytes = offset, 0
        for step in steps_from(self._view, offset):
            found += sorted(self._records(step, offset, end), key=_offset)
            next_offset = max(next_offset, min(step.next_offset, end))
            read_bytes += step.read_bytes
            if len(found) >= limit or next_offset >= end:
                break
            if read_bytes >= _MOST_READ_BYTES:
                self._note_read(read_bytes)
                break
        else:
            next_offset = end
        if len(found) > limit:
            next_offset = found[limit].offset
        return self._page(found[:limit], offset, next_offset)

    def _backward(self, offset: int, limit: int) -> RecordPage:
        start = self._view.start_offset
        found: list[ShownRecord] = []
        first_offset, read_bytes = offset, 0
        for step in steps_before(self._view, offset):
            found = sorted(self._records(step, start, first_offset), key=_offset) + found
            # A compressed message of an old format has only its last offset: its records may begin earlier.
            lowest = min(step.first_offset, found[0].offset) if found else step.first_offset
            first_offset = max(min(first_offset, lowest), start)
            read_bytes += step.read_bytes
            if len(found) >= limit or first_offset <= start:
                break
            if read_bytes >= _MOST_READ_BYTES:
                self._note_read(read_bytes)
                break
        else:
            first_offset = start
        if len(found) > limit:
            first_offset = found[-limit - 1].offset + 1
        return self._page(found[-limit:], first_offset, offset)

    def _records(self, step: Step, start_offset: int, end_offset: int) -> Iterator[ShownRecord]:
        if step.damage is not None:
            self._damage.append(step.damage)
        for piece in step.pieces:
            for record in shown_records(
                piece,
                self._view,
                start_offset=start_offset,
                end_offset=end_offset,
                open_transactions=lambda: self._stable().open_transactions,
                on_damage=self._damage.append,
                cut=self._cut,
            ):
                if not self._committed_only or record.kind is RecordKind.DATA:
                    yield record

    def _note_read(self, read_bytes: int) -> None:
        self._notes.append(f"The page ends here: {read_bytes >> 20} MiB were read for it.")

    def _page(self, records: list[ShownRecord], first_offset: int, next_offset: int) -> RecordPage:
        damage = [f"Damage: {printable(str(error))}." for error in self._damage[:_MOST_REPORTED]]
        if len(self._damage) > _MOST_REPORTED:
            damage.append(f"And {len(self._damage) - _MOST_REPORTED:,} more places with damage.")
        start = self._view.start_offset
        return RecordPage(
            records=tuple(records),
            first_offset=first_offset,
            next_offset=next_offset,
            previous_offset=first_offset if first_offset > start else None,
            start_offset=start,
            end_offset=self._view.end_offset,
            last_stable_offset=None if self._stability is None else self._stability.last_stable_offset,
            note=" ".join([*self._notes, *damage]) or None,
        )


def _offset(record: ShownRecord) -> int:
    return record.offset
