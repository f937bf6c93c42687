"""The producer state while a log is loaded: the newest snapshot plus the batches after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord
from duralog.format.index_entries import AbortedTransaction
from duralog.storage.append.producer_batch import reader_of
from duralog.storage.append.producer_snapshots import ProducerSnapshots
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.segment.segment import Segment


class ProducerRecovery:
    """`state` is moved forward segment by segment."""

    def __init__(
        self, fs: FileSystem, folder: str, snapshots: Iterable[int], *, now_ms: int, expiration_ms: int
    ) -> None:
        """`snapshots` are the offsets of the snapshots in the folder."""
        self._fs = fs
        self._folder = folder
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self._ready_for: int | None = None
        self._replayed_from = 0
        """The base offset of the first segment that was replayed in one run."""
        self._is_at_end = False
        """That run ends at the end of the log."""
        self.snapshots = ProducerSnapshots(fs, folder, snapshots)
        self.state = ProducerState(expiration_ms=expiration_ms)

    def bring_to(self, segments: Sequence[Segment], base_offset: int, log_start_offset: int) -> None:
        """Set the state to that at the start of the segment at `base_offset`, and write a snapshot of it.

        An existing snapshot at that offset is preferred to the batches before it: compaction or damage may have removed
        some of them, such as the end of a transaction.
        """
        if self._ready_for == base_offset and base_offset not in self.snapshots:
            self.state.update((), base_offset)
        else:
            self.read(segments, log_start_offset, base_offset)
            self._replayed_from = base_offset
        self.snapshots.take(self.state, sync=False, log_start_offset=log_start_offset)

    def is_ready_for(self, following: Segment | None) -> None:
        """The segment before this one, or the last one if None, was replayed to its end."""
        self._ready_for = None if following is None else following.base_offset
        self._is_at_end = following is None

    def reset_snapshots(self) -> None:
        """The segments have changed: list the snapshots again, and replay from one."""
        self._ready_for = None
        self._is_at_end = False
        self.snapshots = ProducerSnapshots(self._fs, self._folder)

    def read(self, segments: Sequence[Segment], start_offset: int, end_offset: int) -> None:
        """Set the state to that of a log with this start and end."""
        self.state = self.snapshots.load(
            start_offset, end_offset, now_ms=self._now_ms, expiration_ms=self._expiration_ms
        )
        begin = self.state.end_offset
        for place, segment in enumerate(segments):
            is_below = place + 1 < len(segments) and segments[place + 1].base_offset <= begin
            if begin >= end_offset or is_below:
                continue
            if segment.base_offset >= end_offset:
                break
            self._replay_segment(segment, begin, end_offset)
            if place + 1 < len(segments):
                segment.let_go()
        self.state.update((), end_offset)

    def _replay_segment(self, segment: Segment, begin: int, end_offset: int) -> None:
        position = 0
        if segment.base_offset < begin:
            try:
                found = segment.find_batch(begin)
            except CorruptRecord:
                pass  # Replay all valid batches before the damage.
            else:
                if found is None:
                    return
                position = found.position
        for piece in segment.batches_from(position):
            rows = piece.batches
            wanted = (rows["last_offset"] >= begin) & (rows["last_offset"] < end_offset) & (rows["crc_ok"] == 1)
            self.replay(piece if wanted.all() else dataclasses.replace(piece, batches=rows[wanted]))

    def replay(self, piece: Piece) -> list[AbortedTransaction]:
        """Add the next batches. Returns the new entries of their segment's transaction index."""
        return self.state.replay(piece.batches, reader_of(piece))

    def finish(self, segments: Sequence[Segment], start_offset: int, end_offset: int, *, is_as_closed: bool) -> None:
        """Remove snapshots without a segment, set the state to the end of the log, and write a snapshot of it."""
        self.snapshots.remove_stray(segment.base_offset for segment in segments)
        if is_as_closed and self.snapshots.latest_offset is None:
            # Kafka's rule for logs from before snapshots existed: no producer with an id has written to them.
            for offset in (*(segment.base_offset for segment in segments[-2:]), end_offset):
                self.state.clear(offset)
                self.snapshots.take(self.state, sync=False, log_start_offset=start_offset)
            return
        self.snapshots.remove_outside(start_offset, end_offset)
        if self._is_at_end and self.state.end_offset == end_offset and self._replayed_from >= start_offset:
            self.state.advance_high_watermark(end_offset)
        else:
            self.read(segments, start_offset, end_offset)
        self.snapshots.take(self.state, sync=True, log_start_offset=start_offset)
