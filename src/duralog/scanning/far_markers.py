"""The markers of a log far after the slice of a task: scanned once per process, not once per task.

A transaction of many gigabytes is read by many tasks, and each has to find the marker that ends it. The headers up to
that marker are scanned by the first task in a worker process. The markers on the way are kept, a few bytes each, and
later tasks of the process continue from there.

What must always be true: kept markers are used only while the segments that they are from are the same files. Offsets
do not change, but a topic may be created again, and compaction removes markers. The active segment grows; if it is
smaller than when it was scanned, the log was truncated or is another one.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

import numpy as np

from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.format.layout import CONTROL_BIT
from duralog.scanning.slices import Slice
from duralog.storage.log.view import LogView

_MOST_LOGS = 16
_MOST_BYTES = 16 << 20
"""Of the markers of one log. A marker has 78 bytes."""

_log = logging.getLogger(__name__)

_Signature = tuple[tuple[int, int, int], ...]


class FarMarkers:
    """The markers of one log, from one offset up to another."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.next_offset = start_offset
        """All markers below it are known."""
        self.signature: _Signature = ()
        self.active_bytes = 0
        """The size of the active segment when markers of it were added."""
        self._markers: list[tuple[int, bytes]] = []
        self._size_bytes = 0
        self._lock = Lock()

    def pieces_from(self, offset: int, view: LogView) -> Iterator[Piece]:
        """Pieces with all markers from this offset on. Other batches may be missing in them."""
        with self._lock:
            known = b"".join(marker for at, marker in self._markers if at >= offset)
            following = max(offset, self.next_offset)
        if known:
            yield from read_pieces(MemorySource(known), check_crc=False)
        for piece in view.scanned_from(following):
            self._add(piece, following, view)
            yield piece
            following = int(piece.batches["last_offset"][-1]) + 1

    def _add(self, piece: Piece, start_offset: int, view: LogView) -> None:
        """Keep the markers of a piece that has all batches from `start_offset` on.

        Threads scan pieces of different sizes, so a part of a piece may be known already.
        """
        batches = piece.batches
        is_marker = (batches["attributes"] & CONTROL_BIT != 0) & (batches["producer_id"] >= 0)
        with self._lock:
            if start_offset > self.next_offset or self._size_bytes > _MOST_BYTES:
                return  # Markers before the piece are not known, or it is enough.
            is_new = batches["last_offset"] >= self.next_offset
            if not is_new.any():
                return
            for row in batches[np.flatnonzero(is_marker & is_new)]:
                begin = int(row["position"]) - piece.position
                marker = piece.data[begin : begin + int(row["size"])].tobytes()
                self._markers.append((int(row["base_offset"]), marker))
                self._size_bytes += len(marker)
            self.next_offset = int(batches["last_offset"][-1]) + 1
            self.signature = _signature(view, self.start_offset, self.next_offset)
            is_active_scanned = view.segments.active.base_offset < self.next_offset
            self.active_bytes = view.end_position if is_active_scanned else 0

    def are_of(self, view: LogView) -> bool:
        """Whether the log still has the files that were scanned."""
        with self._lock:
            is_same = self.signature == _signature(view, self.start_offset, self.next_offset)
            return is_same and self.active_bytes <= view.end_position


_known: OrderedDict[object, FarMarkers] = OrderedDict()
_known_lock = Lock()


def far_markers(found: Slice, topic_id: str | None, view: LogView, offset: int) -> FarMarkers:
    """The known markers of the slice's log from the offset on. `topic_id` and `view` are those of the current log."""
    key = found.location, found.topic, found.partition, topic_id
    with _known_lock:
        markers = _known.get(key)
        if markers is None or not markers.start_offset <= offset <= markers.next_offset or not markers.are_of(view):
            # Unbounded: the transaction may end at the end of the log, or never.
            _log.warning(
                "%s-%d: a transaction with records before offset %d does not end before offset %d:"
                " searching the rest of the log for its end",
                found.topic,
                found.partition,
                found.end_offset,
                offset,
            )
            markers = _known[key] = FarMarkers(offset)
        _known.move_to_end(key)
        if len(_known) > _MOST_LOGS:
            _known.popitem(last=False)
        return markers


def _signature(view: LogView, start_offset: int, end_offset: int) -> _Signature:
    """The files that hold these offsets. The active one grows, so it is compared by its name alone."""
    active = view.segments.active
    return tuple(
        (segment.base_offset, 0, 0)
        if segment is active
        else (segment.base_offset, segment.size_bytes, segment.modified_ms)
        for segment in view.segments.from_floor(start_offset)
        if segment.base_offset < end_offset
    )
