"""Every copy of a partition against the others: damage, holes, divergence. Nothing is decoded as long as copies agree.

A partition is compared in windows of offsets. Of each copy, the batches of the window are scanned and their checksums
verified. Two copies agree if their batches have the same offsets, leader epochs, sizes and checksums. Only where these
differ, records are compared: a cleaner has been at one of the copies, or they have diverged.

What must always be true: memory is bounded by the batches of a window, and a window can be compared by any process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.errors import StorageError
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.healed_batches import gaps
from duralog.scanning.cluster.offset_sets import Ranges, merged, overlap, without
from duralog.scanning.cluster.record_comparison import RecordComparison
from duralog.scanning.cluster.windows import ROW, CopyWindow, Finding, FindingKind, Window, compared_rows
from duralog.scanning.slice_reading import read_slice_pieces
from duralog.scanning.slices import CorruptBytes, DataLoss

_PLAIN = np.dtype((np.void, ROW.itemsize))


@dataclass(frozen=True, slots=True)
class Compared:
    """What a comparison of a window found."""

    partition: TopicPartition
    findings: tuple[Finding, ...]
    batches: tuple[int, ...]
    """Of each copy."""
    lost: Ranges
    """The offsets below the high watermark that no copy has without damage."""
    decoded: int
    """Records that were compared one by one."""


def compare(window: Window, advance: Callable[[int], None]) -> Compared:
    """Read a window from all copies and compare them."""
    read = [_read(number, copy, window, advance) for number, copy in enumerate(window.copies)]
    findings = [finding for found in read for finding in found.findings]
    order = sorted(range(len(read)), key=lambda number: number != window.chosen)
    decoded = 0
    # Each copy is compared with the chosen one and, where that is damaged, with the next one.
    scope: Ranges = [(window.start_offset, window.end_offset - 1)]
    for place, reference in enumerate(order):
        for number in order[place + 1 :]:
            shared = _shared(window, read, scope, reference, number)
            differing = _differing(read[reference].rows, read[number].rows, shared)
            if differing:
                details = RecordComparison(window, reference, number, differing)
                findings += details.findings
                decoded += details.decoded
                for finding in details.findings:
                    if finding.kind is FindingKind.HOLE:
                        read[finding.copy].bad.append((finding.first_offset, finding.last_offset))
        scope = overlap(scope, merged(read[reference].bad))
    return Compared(
        window.partition, tuple(findings), tuple(len(found.rows) for found in read), _lost(window, read), decoded
    )


def _shared(window: Window, read: Sequence[_Read], scope: Ranges, *numbers: int) -> Ranges:
    """The offsets that these copies should have in common."""
    low = max(window.copies[number].start_offset for number in numbers)
    high = min(window.copies[number].agreed_end for number in numbers) - 1
    bad = merged([each for number in numbers for each in read[number].bad])
    within = overlap(scope, [(low, high)]) if low <= high else []
    return [left for each in within for left in without(each, bad)]


@dataclass(slots=True)
class _Read:
    rows: NDArray[Any]
    bad: list[tuple[int, int]]
    """The offsets that are damaged."""
    findings: list[Finding]


def _read(number: int, copy: CopyWindow, window: Window, advance: Callable[[int], None]) -> _Read:
    damage: list[CorruptBytes | DataLoss] = []
    rows: list[NDArray[Any]] = []
    findings: list[Finding] = []
    bad: list[tuple[int, int]] = []
    for found in copy.slices:
        try:
            rows.extend(read_slice_pieces(found, compared_rows, on_corrupt=damage.append, on_data_loss=damage.append))
        except StorageError as error:
            first, last = found.start_offset, found.end_offset - 1
            findings.append(Finding(FindingKind.DAMAGE, number, first, last, str(error), found.path))
            bad.append((first, last))
        advance(found.size_bytes)
    for each in damage:
        if isinstance(each, DataLoss):
            text = f"changed while it was read: {each}"
            findings.append(Finding(FindingKind.DAMAGE, number, each.asked_start, each.asked_end - 1, text))
            bad.append((each.asked_start, each.asked_end - 1))
        else:
            findings.append(
                Finding(
                    FindingKind.DAMAGE,
                    number,
                    each.first_offset,
                    each.last_offset,
                    each.reason,
                    each.path,
                    each.position,
                )
            )
            bad.append((each.first_offset, each.last_offset))
    joined = np.concatenate(rows) if rows else np.empty(0, ROW)
    # A batch at the edge of two slices is in both.
    if len(joined) > 1:
        joined = joined[np.concatenate(([True], np.diff(joined["base_offset"]) > 0))]
    is_inside = (joined["last_offset"] >= window.start_offset) & (joined["base_offset"] < window.end_offset)
    return _Read(joined if is_inside.all() else joined[is_inside], bad, findings)


def _differing(reference: NDArray[Any], found: NDArray[Any], shared: Ranges) -> Ranges:
    """The offsets, among those that both should have, at which their batches differ."""
    if not shared:
        return []
    is_same = len(reference) == len(found) and reference.tobytes() == found.tobytes()
    if is_same:
        return []
    differing: list[tuple[int, int]] = []
    for mine, other in ((reference, found), (found, reference)):
        is_in = np.isin(mine.view(_PLAIN), other.view(_PLAIN)) if len(other) else np.zeros(len(mine), np.bool_)
        rows = mine[~is_in]
        for low, high in shared:
            touched = rows[(rows["last_offset"] >= low) & (rows["base_offset"] <= high)]
            firsts, lasts = np.maximum(touched["base_offset"], low), np.minimum(touched["last_offset"], high)
            differing += zip(firsts.tolist(), lasts.tolist(), strict=True)
    return merged(differing)


def _lost(window: Window, read: Sequence[_Read]) -> Ranges:
    """The offsets that consumers were served and that are bad in all copies that should have them."""
    high = min(window.end_offset, window.high_watermark) - 1
    low = max(window.start_offset, window.log_start)
    if low > high:
        return []
    lost: Ranges = [(low, high)]
    for found, copy in zip(read, window.copies, strict=True):
        there = (max(low, copy.start_offset), min(high, copy.agreed_end - 1))
        bad = merged([*found.bad, *_missing(found.rows, window, *there)])
        if there[0] <= there[1]:
            bad = merged([*bad, *without((low, high), [there])])
        else:
            bad = [(low, high)]
        lost = overlap(lost, bad)
    return lost


def _missing(rows: NDArray[Any], window: Window, low: int, high: int) -> Ranges:
    """The offsets that are in no batch and that no cleaner can have removed."""
    # Of compressed messages of an old format, only the last offset is known.
    if window.dense_from is None or (rows["magic"] < 2).any():
        return []
    return [(first, last) for first, last, _ in gaps(rows, max(low, window.dense_from), high)]
