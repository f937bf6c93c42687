"""The segments of a healed copy, made from the batches that it should have.

A copy keeps its segments: one that has all of its batches is not touched, and one that lacks some is written again with
them. Whole segments that are missing come with the base offsets that they have in the other copy, so that a deleted
file comes back under its name. A segment never holds batches of two old ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duralog.config.plurals import plural
from duralog.format.checkpoints import EpochStart
from duralog.format.filenames import FileKind, SegmentFile
from duralog.scanning.cluster.batch_rows import CopyRows, DamagedRange
from duralog.scanning.cluster.directory import ClusterDirectory
from duralog.scanning.cluster.heal_plan import CopyPlan, Orphans, Part, PlannedSegment
from duralog.scanning.cluster.offset_sets import merged, without
from duralog.storage.recovery.quarantine import NO_OFFSET
from duralog.storage.repair.healed_log import Dropped, Truncation

_INT32_MAX = 2**31 - 1
_OTHER_HISTORY = "the log has other batches at these offsets"


class WindowParts(NamedTuple):
    """What a copy should have in a window of offsets, in order. It starts where any of the copies starts a segment."""

    start_offset: int
    parts: Sequence[Part]


class Orphan(NamedTuple):
    """A valid batch of a copy that is not part of the log."""

    first_offset: int
    last_offset: int
    is_acknowledged: bool
    """It is below the copy's high watermark, or that is not known."""
    is_shared: bool
    """Another copy has it, too, although the epoch is that of the log."""
    is_doubtful: bool = False
    """It is part of the log, and a cleaner of the other copies may have removed its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCopy:
    """What a copy has, and what it should have."""

    rows: CopyRows | None
    """None for a replica that has no folder."""
    windows: Sequence[WindowParts]
    damage: Sequence[DamagedRange]
    orphans: Sequence[Orphan]
    start_offset: int
    end_offset: int
    """Of the log."""
    had_offset: int | None
    """Where the copy ended."""
    epochs: tuple[EpochStart, ...]
    has_epochs: bool
    """Its own checkpoint of leader epochs is right."""
    first_base: int | None = None
    """Where its files should start, if a cleaner has been there: perhaps it has left nothing of the first segments."""
    other_topic: str | None = None
    """There is no copy, but a folder that belongs to the topic of this id."""

    @property
    def number(self) -> int | None:
        return None if self.rows is None else self.rows.number

    @property
    def bases(self) -> Sequence[int]:
        return () if self.rows is None else self.rows.bases

    def size(self, base_offset: int) -> int:
        return 0 if self.rows is None else self.rows.sizes[base_offset]


def copy_plan(directory: ClusterDirectory, kept: KeptCopy) -> CopyPlan | None:
    """What to change in a copy; None if it is as it should be."""
    segments = _segments(kept)
    own: dict[int, list[Part]] = {base: [] for base in kept.bases}
    for part in _own_parts(kept):
        own[part.segment].append(part)
    changed = [segment for segment in segments if not _is_whole(segment, kept)]
    is_kept_empty = kept.bases and not kept.size(kept.bases[-1]) and kept.bases[-1] == kept.end_offset
    staying = {segment.base_offset for segment in segments} - {segment.base_offset for segment in changed}
    if is_kept_empty:
        staying.add(kept.bases[-1])
    truncated = _truncation(kept)
    dropped = [each for base in kept.bases if base not in staying for each in _dropped(kept, base, own[base])]
    new_bases = {segment.base_offset for segment in changed}
    # A new segment takes the place of all that start among its offsets.
    covered = {base for base in kept.bases for new in changed if new.base_offset <= base < new.end_offset}
    removed = {base for base in kept.bases if base not in staying and base not in new_bases and base not in covered}
    if truncated is not None:
        removed |= {base for base in kept.bases if base > truncated.base_offset}
    elif kept.orphans and not any(own.values()):
        removed |= set(kept.bases)
    if not changed and not removed and not dropped and kept.has_epochs and kept.rows is not None:
        return None
    groups = _groups(changed, kept)
    first_changed = min(
        [
            *(_domain(kept.bases, segment.base_offset) for segment in changed),
            *removed,
            *([] if truncated is None else [truncated.base_offset]),
        ],
        default=kept.end_offset,
    )
    return CopyPlan(
        location=directory.location,
        node_id=directory.node_id,
        number=kept.number,
        findings=tuple(_findings(kept, changed)),
        replaced=tuple(groups),
        dropped=tuple(dropped),
        removed=tuple(sorted(removed)),
        truncated=truncated,
        first_changed=first_changed,
        epochs=tuple(entry for entry in kept.epochs if entry.start_offset < kept.end_offset),
        start_offset=kept.start_offset,
        end_offset=kept.end_offset,
        orphans=_orphans(kept),
        other_topic=kept.other_topic,
    )


def _own_parts(kept: KeptCopy) -> Iterator[Part]:
    for window in kept.windows:
        yield from (part for part in window.parts if part.copy == kept.number)


def _segments(kept: KeptCopy) -> list[PlannedSegment]:
    """All segments that the copy should have, those that stay as they are included."""
    bases = set(kept.bases)
    last_own: dict[int, int] = {}
    """By own segment: the last window with batches of it."""
    for window in kept.windows:
        for part in window.parts:
            if part.copy == kept.number:
                last_own[part.segment] = window.start_offset
    found: list[tuple[int, list[Part]]] = []
    empty: list[int] = []
    """Of those that a cleaner has left without batches. They stay."""
    size = 0
    pending: int | None = None
    for window in kept.windows:
        if window.start_offset in bases:
            is_free = not found or found[-1][1][-1].last_offset < (pending or 0)
            if pending is not None and is_free and not kept.size(pending):
                empty.append(pending)
            pending = window.start_offset
        own_base = _domain(kept.bases, window.start_offset)
        for part in window.parts:
            end = found[-1][1][-1].last_offset + 1 if found else 0
            begin = None if pending is None or part.first_offset < pending else max(pending, end)
            is_first = part.copy != kept.number and part.start == 0 and part.segment == window.start_offset
            # Of several copies, each may have a first batch of the segment: they share one.
            is_first = is_first and (not found or found[-1][0] < part.segment >= end)
            if begin is None and is_first and last_own.get(own_base, -1) < window.start_offset:
                begin = part.segment
            if begin is None:
                while empty and empty[-1] > (found[-1][0] if found else part.first_offset):
                    empty.pop()
            if not found and not empty:
                begin = _first_base(kept, part)
            elif not found and begin is None:
                begin = empty.pop()
            if begin is None:
                base = found[-1][0]
                if size + part.size_bytes > _INT32_MAX or part.last_offset - base > _INT32_MAX:
                    begin = part.first_offset
            if begin is not None:
                found.append((begin, []))
                size, pending = 0, None
            _append(found[-1][1], part)
            size += part.size_bytes
    segments = [PlannedSegment(base, tuple(parts)) for base, parts in found]
    ends = segments[-1].end_offset if segments else None
    segments = sorted([*segments, *(PlannedSegment(base, ()) for base in empty)], key=lambda each: each.base_offset)
    if kept.bases and kept.first_base is not None and segments and segments[0].base_offset > kept.first_base:
        segments.insert(0, PlannedSegment(kept.first_base, ()))
    has_empty = bool(kept.bases) and kept.bases[-1] == kept.end_offset and not kept.size(kept.bases[-1])
    if (ends is None or ends < kept.end_offset) and not has_empty:
        segments.append(PlannedSegment(kept.end_offset, ()))
    return segments


def _first_base(kept: KeptCopy, part: Part) -> int:
    """The log starts where it did, even if a cleaner has removed its first records."""
    if kept.bases and part.last_offset - kept.bases[0] <= _INT32_MAX and kept.bases[0] <= part.first_offset:
        return kept.bases[0]
    return part.segment if part.start == 0 else part.first_offset


def _append(parts: list[Part], part: Part) -> None:
    last = parts[-1] if parts else None
    if last is not None and (last.copy, last.segment, last.end) == (part.copy, part.segment, part.start):
        parts[-1] = Part(last.copy, last.segment, last.start, part.end, last.first_offset, part.last_offset)
    else:
        parts.append(part)


def _domain(bases: Sequence[int], offset: int) -> int:
    """The base of the own segment that would hold an offset, or the offset if there is none."""
    place = bisect_right(bases, offset)
    return bases[place - 1] if place else offset


def _is_whole(segment: PlannedSegment, kept: KeptCopy) -> bool:
    """Whether the copy has the segment like this."""
    if segment.base_offset not in kept.bases:
        return False
    if len(segment.parts) != 1:
        return not segment.parts and not kept.size(segment.base_offset)
    (part,) = segment.parts
    is_own = part.copy == kept.number and part.segment == segment.base_offset
    return is_own and part.start == 0 and part.end == kept.size(segment.base_offset)


def _groups(changed: Sequence[PlannedSegment], kept: KeptCopy) -> list[tuple[PlannedSegment, ...]]:
    """New segments that hold batches of the same old one take its place together."""
    groups: list[list[PlannedSegment]] = []
    for segment in changed:
        has_own = any(part.copy == kept.number for part in segment.parts)
        domain = _domain(kept.bases, segment.base_offset)
        if groups and has_own and segment.base_offset != domain and groups[-1][-1].end_offset > domain:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return [tuple(group) for group in groups]


def _truncation(kept: KeptCopy) -> Truncation | None:
    """Where the copy begins to be another log: after that, it has nothing of this one."""
    if not kept.orphans:
        return None
    last = None
    for part in _own_parts(kept):
        last = part
    if last is None or max(orphan.first_offset for orphan in kept.orphans) <= last.last_offset:
        return None
    return Truncation(last.last_offset + 1, last.segment, last.end)


def _dropped(kept: KeptCopy, base: int, parts: Sequence[Part]) -> Iterator[Dropped]:
    """The ranges of an own segment that do not stay."""
    size = kept.size(base)
    damage = [each for each in kept.damage if each.segment == base]
    for start, last in without((0, size - 1), [(part.start, part.end - 1) for part in parts]):
        before = max((part.last_offset for part in parts if part.end <= start), default=base - 1)
        after = min((part.first_offset for part in parts if part.start > last), default=NO_OFFSET)
        reasons = [each.reason for each in damage if each.start <= last and each.end > start]
        is_orphan = any(orphan.first_offset > before for orphan in kept.orphans) and not reasons
        if is_orphan and after == NO_OFFSET:
            # `repair --restore` must not put it back after the end of the log.
            after = before + 1
        yield Dropped(base, start, last + 1, reasons[0] if reasons else _OTHER_HISTORY, before, after)


def _orphans(kept: KeptCopy) -> Orphans | None:
    if not kept.orphans or kept.rows is None:
        return None
    return Orphans(
        first_offset=min(orphan.first_offset for orphan in kept.orphans),
        last_offset=max(orphan.last_offset for orphan in kept.orphans),
        batches=len(kept.orphans),
        high_watermark=kept.rows.copy.state.high_watermark,
        acknowledged=sum(orphan.is_acknowledged for orphan in kept.orphans),
        shared=sum(orphan.is_shared for orphan in kept.orphans),
    )


def _findings(kept: KeptCopy, changed: Sequence[PlannedSegment]) -> Iterator[str]:
    if kept.other_topic is not None:
        yield f"the folder belongs to another topic, with the id {kept.other_topic}"
        return
    if kept.rows is None:
        yield "the node has a replica by the cluster metadata, and no folder for it"
        return
    for each in kept.damage:
        name = SegmentFile(each.segment, FileKind.LOG).name
        yield f"{name}: position {each.start}: {each.reason}; {each.end - each.start:,} bytes are damaged"
    assert kept.had_offset is not None
    filled = merged(
        (part.first_offset, part.last_offset)
        for segment in changed
        for part in segment.parts
        if part.copy != kept.number
    )
    known = merged((each.first_offset, (each.next_offset or kept.end_offset) - 1) for each in kept.damage)
    known = merged([*known, *(orphan[:2] for orphan in kept.orphans)])
    end = min(kept.had_offset, max((part.last_offset + 1 for part in _own_parts(kept)), default=kept.had_offset))
    for first, last in filled:
        for low, high in without((first, last), known):
            if low < end:
                yield f"offsets {low} to {min(high, end - 1)} are missing"
    if kept.orphans:
        found = _orphans(kept)
        assert found is not None
        why = "that the log does not have: another leader wrote them, or the files are those of another partition"
        if all(orphan.is_doubtful for orphan in kept.orphans):
            why = "with records that no other copy has: damage hides why a cleaner may have removed them there"
        yield f"offsets {found.first_offset} to {found.last_offset}: {plural(found.batches, 'batch')} {why}"
    if end < kept.end_offset:
        yield f"the copy ends at offset {end}, and the log at {kept.end_offset}"
    elif not kept.has_epochs and not kept.orphans:
        yield "leader-epoch-checkpoint lacks epochs that the batches have"
