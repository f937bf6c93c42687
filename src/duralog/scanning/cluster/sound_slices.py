"""Which slices to read instead of one that is damaged: each offset from the first copy that has it without damage.

A check reads a slice without keeping its records. Where batches are corrupt, cut, missing, or of another history than
the log, the other copies are checked for these offsets. The result are slices of several copies, in the order of their
offsets; every offset is in one of them at most.

Offsets that a good copy does not have do not exist: its cleaner has removed them. Those that no cleaner has removed
by the cluster metadata, and that no copy has, can be reported (`OnMissing`). What no copy has without damage stays a
slice of the chosen copy: reading it fails at the damage, as in one directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch
from duralog.columnar.runs import Rows
from duralog.errors import CorruptRecord, DuralogError, StorageError
from duralog.format.layout import NO_LEADER_EPOCH
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.offset_sets import without
from duralog.scanning.cluster.sources import HealedRange
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.planning import plan
from duralog.scanning.slice_reading import read_slice_pieces
from duralog.scanning.slices import CorruptBytes, DataLoss, LogSources, Slice, Source

OnHealed = Callable[[HealedRange], None]
OnMissing = Callable[[DataLoss], None]

_GAP = "batches are missing"
NO_COPY = "no copy has them"
"""Why offsets are lost that no cleaner has removed."""

_ROW = np.dtype([(name, np.int64) for name in ("base_offset", "last_offset", "leader_epoch", "magic", "begin", "end")])
"""What is kept of a batch. Begin and end are positions in the file."""


@dataclass(frozen=True, slots=True)
class _Missing:
    """Offsets that a copy does not have, or not without damage."""

    first: int
    last: int
    path: str
    reason: str
    is_damage: bool
    """False if the offsets may just not exist."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """What is in a slice."""

    found: Slice
    rows: NDArray[Any]
    """The good batches."""
    missing: list[_Missing]
    """Apart from each other."""
    has_moved: bool = False
    """Whether another file was read than the planned one."""

    def part(self, first: int, last: int) -> Slice:
        """These offsets of the slice, without the bytes that are far from them."""
        found = replace(self.found, start_offset=first, end_offset=last + 1)
        if self.has_moved or not len(self.rows):
            return found
        before = int(np.searchsorted(self.rows["last_offset"], first)) - 1
        after = int(np.searchsorted(self.rows["last_offset"], last))
        # From the batch before: a reader expects that the first one does not reach above its first offset.
        begin = found.position if before < 0 else int(self.rows["begin"][before])
        end = found.end_position if after >= len(self.rows) else int(self.rows["end"][after])
        return replace(found, position=begin, end_position=end)

    def good_parts(self) -> Iterator[Slice]:
        whole = self.found.start_offset, self.found.end_offset - 1
        for first, last in without(whole, ((each.first, each.last) for each in self.missing)):
            yield self.part(first, last)


def sound_slices(slices: Iterable[Slice], on_healed: OnHealed, on_missing: OnMissing | None = None) -> Iterator[Slice]:
    """The slices, with damaged ones replaced. One that has no other copies stays as it is.

    For readers that cannot start again in the middle: every slice is read once before, without decoding its records.
    """
    for found in slices:
        if found.copies is None or not _check(found, found.copies, decodes=False).missing:
            yield found
        else:
            yield from sound_parts(found, on_healed, on_missing)


def sound_parts(found: Slice, on_healed: OnHealed, on_missing: OnMissing | None = None) -> list[Slice]:
    """What to read instead of this slice; the slice itself if nothing is wrong with it.

    `on_healed` is called with the offsets that come from other copies, `on_missing` with those that should exist, and
    that no copy has. REQUIRES: the slice has other copies.
    """
    assert found.copies is not None
    own = _check(found, found.copies)
    if not own.missing:
        return [found]
    others: list[Slice] = []
    replaced: list[tuple[int, int]] = []
    missing = own.missing
    for source in found.copies.sources:
        if source.location == found.location:
            continue
        left: list[_Missing] = []
        for each in missing:
            first, last = max(each.first, source.start_offset), min(each.last, source.end_offset - 1)
            if first > last:
                left.append(each)
                continue
            parts, bad = _check_source(source, found, found.copies, first, last)
            good = without((first, last), bad)
            if each.is_damage or parts:
                others += parts
                replaced += good
                for some in good:
                    on_healed(_healed(found, each, some, source))
            left += [replace(each, first=low, last=high) for low, high in without((each.first, each.last), good)]
        missing = left
    lost = [(gap.first, gap.last) for gap in missing if gap.is_damage]
    whole_from = found.copies.whole_from
    if on_missing is not None and whole_from is not None:
        for gap in missing:
            if gap.reason == _GAP and gap.last >= whole_from:
                partition = TopicPartition(found.topic, found.partition)
                on_missing(not_there(partition, max(gap.first, whole_from), gap.last))
    kept = without((found.start_offset, found.end_offset - 1), [*replaced, *lost])
    return sorted([*(own.part(*some) for some in [*kept, *lost]), *others], key=lambda part: part.start_offset)


def not_there(partition: TopicPartition, first: int, last: int) -> DataLoss:
    """The loss of offsets that no copy has."""
    return DataLoss(
        topic=partition.topic,
        partition=partition.partition,
        asked_start=first,
        asked_end=last,
        available_start=first,
        available_end=first,
        reason=NO_COPY,
    )


def missing_offsets(batches: NDArray[Any], reached: int) -> list[tuple[int, int]]:
    """Offsets between batches, and between `reached` and the first one."""
    last = batches["last_offset"]
    # Of a compressed message of an old format, only the last offset is known.
    first = np.where(batches["magic"] == 2, batches["base_offset"], 0)
    before = np.maximum.accumulate(np.concatenate(([reached], last)))[:-1]
    return [(int(before[row]) + 1, int(first[row]) - 1) for row in np.flatnonzero(first > before + 1)]


def _check(found: Slice, copies: LogSources, *, decodes: bool = True) -> _Checked:
    damage: list[CorruptBytes] = []
    losses: list[DataLoss] = []
    names: set[str] = set()

    def good_rows(piece: Piece, wanted: Rows | None, refuse: OnCorruptBatch) -> Iterator[NDArray[Any]]:
        names.add(piece.name)
        is_good = piece.batches["crc_ok"] == 1

        def note(error: CorruptRecord, row: int) -> None:
            is_good[row] = False
            refuse(error, row)

        rows = np.arange(len(is_good)) if wanted is None else wanted
        for _ in piece.decode(rows if decodes else rows[~is_good[rows]], on_corrupt=note):
            pass
        yield _rows_of(piece.batches[is_good])

    try:
        parts = list(read_slice_pieces(found, good_rows, on_corrupt=damage.append, on_data_loss=losses.append))
    except StorageError as error:
        whole = _Missing(found.start_offset, found.end_offset - 1, found.path, str(error), True)
        return _Checked(found, np.empty(0, _ROW), [whole])
    rows = np.concatenate([np.empty(0, _ROW), *parts])
    rows = rows[(rows["last_offset"] >= found.start_offset) & (rows["base_offset"] < found.end_offset)]
    missing = [_Missing(each.first_offset, each.last_offset, each.path, each.reason, True) for each in damage]
    for loss in losses:
        there = [(loss.available_start, loss.available_end - 1)] if loss.available_start < loss.available_end else []
        asked = loss.asked_start, max(loss.asked_start, loss.asked_end - 1)
        missing += [_Missing(*gone, found.path, str(loss), True) for gone in without(asked, there)]
    foreign = of_another_history(rows, copies) if decodes else np.zeros(len(rows), np.bool_)
    missing += [
        _Missing(
            max(int(row["base_offset"]), found.start_offset),
            min(int(row["last_offset"]), found.end_offset - 1),
            found.path,
            "a batch has another leader epoch than the log",
            False,
        )
        for row in rows[foreign]
    ]
    missing += [_Missing(*gap, found.path, _GAP, False) for gap in _gaps(found, copies, rows)]
    return _Checked(found, rows[~foreign], _apart(missing), has_moved=bool(names - {found.path}))


def _rows_of(batches: NDArray[Any]) -> NDArray[Any]:
    rows = np.empty(len(batches), _ROW)
    for name in ("base_offset", "last_offset", "leader_epoch", "magic"):
        rows[name] = batches[name]
    rows["begin"] = batches["position"]
    rows["end"] = rows["begin"] + batches["size"]
    return rows


def of_another_history(rows: NDArray[Any], copies: LogSources) -> NDArray[np.bool_]:
    """Whether each batch has another leader epoch than the log. Before its first epoch, any will do."""
    places = np.searchsorted([each.start_offset for each in copies.epochs], rows["base_offset"], side="right")
    expected = np.array([NO_LEADER_EPOCH, *(each.epoch for each in copies.epochs)])[places]
    is_foreign: NDArray[np.bool_] = (rows["leader_epoch"] >= 0) & (expected >= 0) & (rows["leader_epoch"] != expected)
    return is_foreign


def _gaps(found: Slice, copies: LogSources, rows: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """The missing offsets, without those that may be compacted."""
    if copies.dense_from is None:
        return
    reached = max(found.start_offset - 1, int(rows["last_offset"].max()) if len(rows) else -1)
    for low, high in [*missing_offsets(rows, found.start_offset - 1), (reached + 1, found.end_offset - 1)]:
        first, last = max(low, found.start_offset, copies.dense_from), min(high, found.end_offset - 1)
        if first <= last:
            yield first, last


def _apart(missing: Iterable[_Missing]) -> list[_Missing]:
    """Each offset once: the first reason counts."""
    apart: list[_Missing] = []
    for each in missing:
        known = [(other.first, other.last) for other in apart]
        apart += [replace(each, first=low, last=high) for low, high in without((each.first, each.last), known)]
    return sorted(apart, key=lambda each: each.first)


def _check_source(
    source: Source, found: Slice, copies: LogSources, first: int, last: int
) -> tuple[list[Slice], list[tuple[int, int]]]:
    """Slices of another copy with these offsets, and the offsets that are not good there either."""
    parts: list[Slice] = []
    bad: list[tuple[int, int]] = []
    reached = first
    try:
        with source.location.open_store() as store:
            wanted = {TopicPartition(found.topic, found.partition): OffsetRange(first, last + 1)}
            # The slice ends where committed records do. In a copy that is cut, more transactions seem to be open.
            planned = plan(store, wanted, on_data_loss=_ignore)
        for part in planned.slices:
            if part.start_offset > reached:
                bad.append((reached, part.start_offset - 1))
            reached = part.end_offset
            # What is aborted was planned with all copies: this one may have lost markers.
            alike = replace(part, copies=copies, isolation=found.isolation, aborted=found.aborted)
            checked = _check(alike, copies)
            parts += checked.good_parts()
            bad += [(each.first, each.last) for each in checked.missing]
    except DuralogError:
        return [], [(first, last)]
    if reached <= last:
        bad.append((reached, last))
    return parts, bad


def _ignore(_: object) -> None:
    """What is not planned is missing."""


def _healed(found: Slice, missing: _Missing, offsets: tuple[int, int], source: Source) -> HealedRange:
    return HealedRange(
        topic=found.topic,
        partition=found.partition,
        first_offset=offsets[0],
        last_offset=offsets[1],
        path=missing.path,
        reason=missing.reason,
        source=source.location.url,
    )
