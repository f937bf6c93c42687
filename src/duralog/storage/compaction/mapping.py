"""The first pass of a compaction: the offset of the last record of each key in the dirty part of the log.

Several threads can read keys; the keys are put into the map in the order of the log, so that the last one wins. Data of
aborted transactions, control batches and damaged batches are not mapped: records that readers cannot see must not
supersede records that they can.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.key_reading import KeyedRecords, read_keys
from duralog.columnar.pieces import Piece
from duralog.storage.compaction.report import CompactionPhase
from duralog.storage.compaction.run import CompactionRun
from duralog.storage.compaction.transaction_cleaning import TransactionTracker
from duralog.storage.log.view import LogView
from duralog.storage.segment.source import SegmentBroken, SegmentSource, batch_bytes, check_crc

_MOST_BAD_CHECKSUMS = 10_000
"""The positions of more bad batches in a segment are not kept: the second pass checks its checksums again."""


class _Readable(NamedTuple):
    source: SegmentSource
    piece: Piece
    rows: NDArray[np.intp] | None
    """The batches with data to map; None for all."""


def map_keys(run: CompactionRun, view: LogView, sources: Sequence[SegmentSource], first_dirty_offset: int) -> None:
    """Fill the run's map from the first dirty offset on, to the end of the segments or until it is full.

    Afterwards the map holds all keys up to its `latest_offset`.
    """
    began = time.perf_counter()
    offset_map = run.offset_map
    offset_map.clear()
    offset_map.watch(first_dirty_offset, run.end)
    place = max((place for place, found in enumerate(sources) if found.base_offset <= first_dirty_offset), default=0)
    if not _map_sources(run, view, sources[place:], first_dirty_offset):
        offset_map.reach(run.end - 1)
    run.report.map_seconds += time.perf_counter() - began
    run.report.map_fill = max(run.report.map_fill, run.map_fill)


def _map_sources(run: CompactionRun, view: LogView, sources: Sequence[SegmentSource], first_dirty_offset: int) -> bool:
    """Whether the map became full before the end of these segments."""
    offset_map = run.offset_map
    starts = [source.segment.offset_index.lookup(first_dirty_offset).position for source in sources]
    run.begin_phase(CompactionPhase.MAPPING, sum(source.size_bytes for source in sources) - sum(starts))
    tracker = TransactionTracker()

    def readable() -> Iterator[_Readable]:
        for source, start in zip(sources, starts, strict=True):
            tracker.expect(run.aborted_transactions(view, source))
            try:
                for piece in source.pieces(start, piece_bytes=run.settings.piece_bytes, check_crc=False):
                    tracked = tracker.take(piece, has_checksums=False)
                    data = None if tracked is None else np.flatnonzero(~(tracked.is_control | tracked.may_go))
                    yield _Readable(source, piece, data)
            except SegmentBroken as broken:
                run.leave(broken)
                tracker.lose_sight()

    def read(readable: _Readable) -> list[KeyedRecords]:
        if (readable.piece.batches["crc_ok"] < 0).any():
            check_crc(readable.piece)
        return list(read_keys(readable.piece, readable.rows, first_offset=first_dirty_offset, on_corrupt=run.refuse))

    bad_checksums: dict[SegmentSource, set[int]] = {source: set() for source in sources}
    full_in: SegmentSource | None = None
    with closing(run.work.map(read, readable())) as results:
        for (source, piece, _), chunks in results:
            run.has_read(batch_bytes(piece))
            run.report.map_bytes += batch_bytes(piece)
            if source is not sources[0]:
                # There may be no record before this segment.
                offset_map.reach(source.base_offset - 1)
            is_bad = piece.batches["crc_ok"] == 0
            if len(bad := bad_checksums[source]) <= _MOST_BAD_CHECKSUMS and is_bad.any():
                bad.update(piece.batches["position"][is_bad].tolist())
            if not _put(run, piece, chunks, first_dirty_offset):
                full_in = source
                break
    for source, start in zip(sources, starts, strict=True):
        if source is full_in:
            return True
        if start == 0 and len(bad_checksums[source]) <= _MOST_BAD_CHECKSUMS:
            source.bad_checksums = bad_checksums[source]
    return False


def _put(run: CompactionRun, piece: Piece, chunks: Sequence[KeyedRecords], first_dirty_offset: int) -> bool:
    """Whether the map took all keys of a piece."""
    for keyed in chunks:
        taken = run.offset_map.put(keyed.digests, keyed.offsets)
        run.report.map_records += taken
        if taken < len(keyed):
            _reach(run, piece, keyed.row_of(taken), first_dirty_offset, is_whole=False)
            return False
    _reach(run, piece, len(piece.batches) - 1, first_dirty_offset, is_whole=True)
    return True


def _reach(run: CompactionRun, piece: Piece, row: int, first_dirty_offset: int, *, is_whole: bool) -> None:
    """The map has taken all batches before this one, and at least a part of this one."""
    last_offsets, offset_map = piece.batches["last_offset"], run.offset_map
    if is_whole or row > 0:
        offset_map.reach(max(int(last_offsets[row if is_whole else row - 1]), first_dirty_offset - 1))
    # A damaged record may claim an offset beyond its batch. It must not make other records count as mapped.
    offset_map.latest_offset = min(offset_map.latest_offset, max(int(last_offsets[row]), first_dirty_offset))
