"""Reads batches of a log from an offset on, or backwards from it, a few at a time, for pages of records.

Headers are scanned first, so that no batch is read that is too large to show. Damage does not end the reading: it is
returned instead of the batches, and the next segment is read. Memory is bounded by the largest batch that is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from duralog.columnar.pieces import PIECE_BYTES, Piece, read_pieces
from duralog.errors import CorruptRecord, Fault
from duralog.storage.log.view import LogView
from duralog.storage.segment.batch_walk import BatchHeader, walk
from duralog.storage.segment.segment import Segment

LARGEST_BATCH_BYTES = 64 << 20
_FIRST_BYTES = 64 << 10
_GROWTH = 4
_WINDOW_BYTES = 1 << 20


class Step(NamedTuple):
    pieces: Sequence[Piece]
    """Complete batches, in order; none if they cannot be read."""
    first_offset: int
    """The step covers the offsets from here up to, not including, `next_offset`."""
    next_offset: int
    read_bytes: int
    damage: CorruptRecord | None = None


def steps_from(view: LogView, offset: int, first_bytes: int = _FIRST_BYTES) -> Iterator[Step]:
    """From the batch that holds the offset to the end of the view. The first step is small, the next ones grow."""
    size = first_bytes
    for segment, end in view.segments_from(offset):
        following = view.segments.after(segment)
        next_base = view.end_offset if following is None else following.base_offset
        reached = max(offset, segment.base_offset)
        run: list[BatchHeader] = []
        damage: CorruptRecord | None = None
        try:
            first = segment.find_batch(offset, end)
            position = end if first is None else first.position
            for header in walk(segment.file, position, end):
                if run and position - run[0].position + header.size > size:
                    step = _read(segment, run, reached)
                    yield step
                    reached, run, size = step.next_offset, [], min(size * _GROWTH, PIECE_BYTES)
                run.append(header)
                position = header.position + header.size
            if position < end:
                damage = _half_batch(segment, position, end)
        except CorruptRecord as error:
            damage = error
        if run:
            step = _read(segment, run, reached)
            yield step
            reached = step.next_offset
        if reached < next_base:
            yield Step((), reached, next_base, 0, damage)
        segment.let_go()


def steps_before(view: LogView, offset: int) -> Iterator[Step]:
    """From the batch that holds the offset below this one, backwards to the start of the view."""
    reached = offset
    size = _FIRST_BYTES
    for segment in reversed(view.segments):
        if segment.base_offset >= reached:
            continue
        end = view.end_position if segment is view.segments.active else segment.size_bytes
        try:
            found = segment.find_batch(reached - 1, end)
            stop = end if found is None else found.position + found.size
            while stop > 0:
                headers = _window(segment, stop)
                begin = headers[0].position if headers else 0
                for run in _runs_backwards(headers, size):
                    step = _read(segment, run, max(run[0].first_offset, segment.base_offset))
                    yield step
                    reached = min(reached, step.first_offset)
                    size = min(size * _GROWTH, PIECE_BYTES)
                    if reached <= view.start_offset:
                        return
                stop = begin
        except CorruptRecord as error:
            yield Step((), segment.base_offset, reached, 0, error)
        reached = min(reached, segment.base_offset)
        segment.let_go()


def _window(segment: Segment, stop: int) -> list[BatchHeader]:
    """The headers of some batches before a position where one ends, by the index if that is right."""
    wanted = max(stop - _WINDOW_BYTES, 0)
    begin = segment.offset_index.lookup_position(wanted).position
    try:
        headers = list(walk(segment.file, begin, stop))
        if headers and headers[-1].position + headers[-1].size == stop:
            return headers
    except CorruptRecord:
        if not begin:
            raise
    # The index entry does not point to a batch, or the batches after it do not end at `stop`.
    return [header for header in walk(segment.file, 0, stop) if header.position + header.size > wanted]


def _runs_backwards(headers: Sequence[BatchHeader], size: int) -> Iterator[Sequence[BatchHeader]]:
    last = len(headers)
    while last > 0:
        first, taken = last - 1, headers[last - 1].size
        while first > 0 and taken + headers[first - 1].size <= size:
            first -= 1
            taken += headers[first].size
        yield headers[first:last]
        last, size = first, min(size * _GROWTH, PIECE_BYTES)


def _read(segment: Segment, run: Sequence[BatchHeader], reached: int) -> Step:
    """The batches of these headers, which follow each other."""
    begin, end = run[0].position, run[-1].position + run[-1].size
    next_offset = run[-1].last_offset + 1
    if end - begin > LARGEST_BATCH_BYTES:  # Then it is a single one.
        error = CorruptRecord(
            "a batch is too large to be shown",
            fault=Fault.TOO_LARGE,
            file=segment.file.name,
            position=begin,
            expected=f"at most {LARGEST_BATCH_BYTES} bytes",
            found=f"{end - begin} bytes",
        )
        return Step((), reached, next_offset, 0, error)
    pieces = list(read_pieces(segment.file, start=begin, end=end, piece_bytes=end - begin))
    damage = next((piece.fault for piece in pieces if piece.fault is not None), None)
    return Step(pieces, reached, next_offset, end - begin, damage)


def _half_batch(segment: Segment, position: int, end: int) -> CorruptRecord:
    return CorruptRecord(
        "a batch runs past the end of the log",
        fault=Fault.PARTIAL_BATCH,
        file=segment.file.name,
        position=position,
        expected=f"at most {end - position} bytes",
        found="more",
    )
