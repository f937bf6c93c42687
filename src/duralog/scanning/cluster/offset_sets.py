"""Sets of offsets as ranges, each with its first and its last offset."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = list[tuple[int, int]]


def without(whole: tuple[int, int], holes: Iterable[tuple[int, int]]) -> Ranges:
    """What is left of a range."""
    left: Ranges = []
    first, last = whole
    for low, high in sorted(holes):
        if low > last:
            break
        if low > first:
            left.append((first, low - 1))
        first = max(first, high + 1)
    return [*left, (first, last)] if first <= last else left


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same offsets, in ranges that are sorted and do not touch."""
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def overlap(some: Ranges, others: Ranges) -> Ranges:
    """The offsets that are in both."""
    return [
        (max(first, low), min(last, high))
        for first, last in some
        for low, high in others
        if max(first, low) <= min(last, high)
    ]
