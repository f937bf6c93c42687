"""Which offsets of a partition are read from which copy.

The chosen copy is read, and others where it ends too early or has lost segments: as far as plans can see that, without
reading records. What is damaged inside of segments is found by the readers (`healing`). Only of a compacted part, all
must come from one copy that is whole (`compacted_source`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise

from duralog.errors import DuralogError
from duralog.scanning.cluster.choice import Part
from duralog.scanning.cluster.cluster import Copies
from duralog.scanning.cluster.compacted.compacted_source import MixedPart, compacted_source, mixed_part
from duralog.scanning.cluster.directory import Copy
from duralog.scanning.cluster.offset_sets import Ranges, without
from duralog.scanning.cluster.problems import LOST_ADVICE
from duralog.scanning.offset_ranges import OffsetRange
from duralog.storage.log.isolation import Isolation

_logger = logging.getLogger(__name__)


def served_parts(copies: Copies, isolation: Isolation, *, to_end: bool = False) -> list[Part]:
    """What consumers of this isolation level were served, and from which copy it is read. Logs what no copy has."""
    for low, high in lost_ranges(copies):
        _warn_once(
            copies.chosen.log.folder,
            f"{copies.partition}: consumers were served offsets {low} to {high}, and no copy has them: they are not"
            f" read; duralog cluster verify shows what each copy lacks. {LOST_ADVICE}",
        )
    parts = _with_ends_of_transactions(copies, parts_of(copies, isolation, to_end=to_end), isolation)
    if not parts:
        return []
    last = parts[-1]
    end = copies.copies[last.copy].limit(isolation, last.end_offset)
    return clipped(parts, OffsetRange(parts[0].start_offset, end))


@lru_cache(maxsize=1024)
def _warn_once(_folder: str, text: str) -> None:
    """A stream opens the directories again for each of its batches. Those of another cluster may lack the same."""
    _logger.warning("%s", text)


def lost_ranges(copies: Copies) -> Ranges:
    """The offsets that consumers were served and that no copy has, as far as the ends of the copies show it."""
    choice = copies.choice
    if copies.dense_from is None:
        return [(choice.end_offset, choice.high_watermark - 1)] if choice.end_offset < choice.high_watermark else []
    there = choice.parts([copy.state for copy in copies.copies])
    served = (max(choice.start_offset, copies.dense_from), choice.high_watermark - 1)
    return without(served, [(part.start_offset, part.end_offset - 1) for part in there])


def parts_of(copies: Copies, isolation: Isolation, *, to_end: bool) -> list[Part]:
    states = [copy.state for copy in copies.copies]
    parts = _around_empty_segments(copies, copies.choice.parts(states, to_end=to_end))
    if isolation is Isolation.READ_COMMITTED and len(parts) > 1:
        # A transaction may begin in one part and end in another: a copy that has all of them knows it.
        start, end = parts[0].start_offset, parts[-1].end_offset
        whole = _other_copy(copies, copies.choice.copy, start, end)
        if whole is not None:
            return _around_empty_segments(copies, [Part(whole, start, end)])
    return parts


def _with_ends_of_transactions(copies: Copies, parts: list[Part], isolation: Isolation) -> list[Part]:
    """Read from a copy that has the end of each transaction, if the chosen one has lost a segment with one.

    A copy that has a transaction's first batch knows of it. If it is not open there, it has ended.
    """
    if isolation is not Isolation.READ_COMMITTED or len(parts) != 1:
        return parts
    (part,) = parts
    chosen = copies.copies[part.copy]
    if chosen.view.last_stable_offset >= part.end_offset:
        return parts
    firsts = [entry.transaction_first_offset for entry in chosen.log.producers() if entry.transaction_first_offset >= 0]
    for number, copy in enumerate(copies.copies):
        is_whole = copy.state.start_offset <= part.start_offset and copies.choice.agreed[number] >= part.end_offset
        if (
            is_whole
            and copy.view.last_stable_offset > chosen.view.last_stable_offset
            and all(_has_batch(copy, first) for first in firsts if first < part.end_offset)
        ):
            return _around_empty_segments(copies, [Part(number, part.start_offset, part.end_offset)])
    return parts


def _has_batch(copy: Copy, offset: int) -> bool:
    with suppress(DuralogError):  # That copy is damaged there.
        for piece in copy.view.scanned_from(offset):
            batches = piece.batches
            return bool(((batches["base_offset"] <= offset) & (batches["last_offset"] >= offset)).any())
    return False


def _of_whole_copy(
    copies: Copies, parts: list[Part], isolation: Isolation, on_mixed: Callable[[MixedPart], None]
) -> list[Part]:
    """The compacted part from one copy that has all of it, if the chosen one is damaged there."""
    dense_from = copies.dense_from
    if not parts or (dense_from is not None and dense_from <= parts[0].start_offset):
        return parts
    source = compacted_source(copies)
    if source is None:
        return parts
    start, end = parts[0].start_offset, parts[-1].end_offset
    upto = min(source.end_offset, end)
    if source.copy is None or copies.copies[source.copy].state.start_offset > start:
        on_mixed(mixed_part(copies.partition, start, upto))
        return parts
    if isolation is Isolation.READ_COMMITTED and copies.choice.agreed[source.copy] >= end:
        # A transaction may begin in one part and end in another.
        upto = end
    whole = clipped([Part(source.copy, start, upto)], OffsetRange(start, end))
    return [*whole, *clipped(parts, OffsetRange(max(start, upto), end))]


def clipped(parts: Iterable[Part], wanted: OffsetRange) -> list[Part]:
    clipped = (
        Part(part.copy, max(part.start_offset, wanted.start_offset), min(part.end_offset, wanted.end_offset))
        for part in parts
    )
    return [part for part in clipped if part.start_offset < part.end_offset]


def _around_empty_segments(copies: Copies, parts: Sequence[Part]) -> list[Part]:
    """An empty file that is not the last one has lost its batches: another copy has these."""
    found: list[Part] = []
    for part in parts:
        position = part.start_offset
        for start, end in _empty_segments(copies, part):
            other = _other_copy(copies, part.copy, start, end)
            if other is not None and position <= start:
                found += [Part(part.copy, position, start), Part(other, start, end)]
                position = end
        found.append(Part(part.copy, position, part.end_offset))
    return [part for part in found if part.start_offset < part.end_offset]


def _empty_segments(copies: Copies, part: Part) -> Iterable[tuple[int, int]]:
    if copies.dense_from is None:
        return
    for segment, following in pairwise(copies.copies[part.copy].view.segments.from_floor(part.start_offset)):
        if segment.base_offset >= part.end_offset:
            return
        start = max(segment.base_offset, part.start_offset, copies.dense_from)
        end = min(following.base_offset, part.end_offset)
        if not segment.size_bytes and start < end:
            yield start, end


def _other_copy(copies: Copies, damaged: int, start: int, end: int) -> int | None:
    able = [
        number
        for number, copy in enumerate(copies.copies)
        if number != damaged and copy.state.start_offset <= start and copies.choice.agreed[number] >= end
    ]
    return able[0] if able else None


def parts_to_read(
    copies: Copies, parts: list[Part], isolation: Isolation, on_mixed: Callable[[MixedPart], None]
) -> list[Part]:
    """These parts of `parts_of`, from copies that can be read in this way."""
    return _of_whole_copy(copies, _with_ends_of_transactions(copies, parts, isolation), isolation, on_mixed)
