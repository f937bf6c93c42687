"""Counts the distinct keys of a partition, by prefix: exactly, by the digests of all keys.

A task has a map of the keys of a whole partition, with the number of its prefix as each key's mark. A partition whose
keys do not fit is shuffled by Spark, or read several times, a share of its keys at a time. Equal keys have the same
prefix, so any of their marks can be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch
from duralog.columnar.runs import Rows
from duralog.kernels.key_digests import digests_of
from duralog.kernels.offset_map import DEFAULT_LOAD_FACTOR, OffsetMap, map_bytes_for
from duralog.scanning.cluster.sound_slices import sound_slices
from duralog.scanning.cluster.sources import HealedRange
from duralog.scanning.executor import Advance, Executor, ignore_progress
from duralog.scanning.keyed_offsets import KeyedChunk, MapFull, Numbers, put_all, within
from duralog.scanning.slice_reading import read_slice_pieces
from duralog.scanning.slices import CorruptBytes, Slice
from duralog.statistics.key_popularity import KeyTally, Popularity
from duralog.statistics.key_prefixes import PrefixRule, prefixes_of
from duralog.statistics.record_counts import pass_over

KEYS_RUN = "stats: keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysTask:
    """All keys of one partition."""

    slices: tuple[Slice, ...]
    rule: PrefixRule | None
    numbers: Mapping[bytes | None, int]
    """Of the prefixes."""
    most_keys: int
    """There are not more records with a key."""
    map_bytes: int
    frequent: int = 0
    """How many of the most frequent keys are reported; with 0, frequencies are not counted."""
    share: int = 0
    """Which of the shares of its keys is counted."""
    shares: int = 1

    @property
    def size_bytes(self) -> int:
        return sum(found.size_bytes for found in self.slices)


@dataclass(slots=True)
class KeyCounts:
    by_number: dict[int, int] = field(default_factory=dict)
    """How many keys there are, by the number of their prefix."""
    popularity: Popularity | None = None

    def add(self, other: KeyCounts, frequent: int) -> None:
        for number, count in other.by_number.items():
            self.by_number[number] = self.by_number.get(number, 0) + count
        if other.popularity is not None:
            self.popularity = self.popularity or Popularity()
            self.popularity.add(other.popularity, frequent)


class NumberedKeys(NamedTuple):
    chunk: KeyedChunk
    offsets: Numbers


def count_keys(task: KeysTask, advance: Advance = ignore_progress) -> KeyCounts | None:
    """Count in one task. None if the keys do not fit."""
    offset_map = OffsetMap(min(task.map_bytes, map_bytes_for(max(1, task.most_keys), DEFAULT_LOAD_FACTOR)))
    tally = KeyTally() if task.frequent else None
    try:
        for chunk, offsets in numbered_keys(task, task.slices, advance):
            put_all(offset_map, chunk)
            if tally is not None:
                tally.add(chunk.digests, offsets)
    except MapFull:
        return None
    found, counts = np.unique(offset_map.offsets(), return_counts=True)
    by_number = dict(zip(found.tolist(), counts.tolist(), strict=True))
    if tally is None or not task.slices:
        return KeyCounts(by_number)
    return KeyCounts(by_number, tally.popularity(task.slices[0].partition, task.frequent))


def count_keys_in_shares(task: KeysTask, advance: Advance = ignore_progress) -> KeyCounts:
    """The same for any number of keys, with the memory of one map. Each share reads the whole partition."""
    total = KeyCounts()
    waiting = [task]
    while waiting:
        found = waiting.pop()
        counts = count_keys(found, advance)
        if counts is not None:
            total.add(counts, task.frequent)
            continue
        shares = found.shares * 2
        waiting += [replace(found, share=found.share + place * found.shares, shares=shares) for place in (1, 0)]
    return total


def count_keys_in_tasks(executor: Executor, tasks: Sequence[KeysTask]) -> list[KeyCounts]:
    """Of every task. A partition whose keys do not fit into the memory of a task is read several times."""
    return executor.run(tasks, count_keys_in_shares, weight=lambda task: task.size_bytes, name=KEYS_RUN)


def numbered_keys(
    task: KeysTask, slices: tuple[Slice, ...], advance: Advance = ignore_progress
) -> Iterator[NumberedKeys]:
    """The keys of the slices, with the numbers of their prefixes as marks."""
    for found in sound_slices(slices, _healed_before):
        yield from read_slice_pieces(
            found,
            partial(_numbered_piece, task, found, advance),
            on_corrupt=_counted_before,
            on_data_loss=pass_over,
        )


def _healed_before(_: HealedRange) -> None:
    """The first pass has logged it."""


def _counted_before(_: CorruptBytes) -> None:
    """The first pass reports damage (`record_counts`)."""


def _numbered_piece(
    task: KeysTask, found: Slice, advance: Advance, piece: Piece, rows: Rows | None, refuse: OnCorruptBatch
) -> Iterator[NumberedKeys]:
    for decoded in piece.decode(rows, on_corrupt=refuse):
        records = within(decoded, found)
        records = records.take(records.columns.key_length >= 0)
        columns = records.columns
        digests = digests_of(records.data, columns.key_position, columns.key_length)
        marks = np.zeros(len(records), np.int64)
        if task.rule is not None and len(records):
            prefixes = prefixes_of(records, task.rule)
            marks = np.array([task.numbers[prefix] for prefix in prefixes.values], np.int64)[prefixes.codes]
        offsets = columns.offset
        if task.shares > 1:
            chosen = digests[:, 1] % np.uint64(task.shares) == task.share
            digests, marks, offsets = np.ascontiguousarray(digests[chosen]), marks[chosen], offsets[chosen]
        yield NumberedKeys(KeyedChunk(digests, marks, len(marks), 0), offsets)
    advance(len(piece.data))
