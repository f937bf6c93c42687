"""Finds the batches of a damaged segment that can be kept.

A batch is valid if its length, its format version and its checksum are right. It is ordered if its offsets lie above
those of the batch before it and below the base offset of the next segment: offsets are not covered by the checksum, so
a valid batch may still be in the wrong place. Of the valid batches, the longest ordered sequence is kept. So one wrong
offset costs one batch, whether it is too low or too high.

After an invalid batch, the next one is only searched at the position that its length gives: the bytes of a record may
look like a batch. `find_batches` does search everywhere, to show what is left in bytes that were taken out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import ByteSource, read_pieces
from duralog.columnar.refusals import wrong_checksum
from duralog.errors import CorruptRecord, Fault
from duralog.format.checksum import crc32c
from duralog.format.layout import BATCH_V2, ENTRY_PREFIX, MAGIC_POSITION, MIN_BATCH_BYTES
from duralog.kernels.columns import BATCH_DTYPE

_PIECE_BYTES = 1 << 20
_SEARCH_BYTES = 1 << 20
_CLASSIFIED_BYTES = MAGIC_POSITION + 1
_NEWEST_MAGIC = 2
_LARGEST_MAGIC = 127
_KNOWN_ATTRIBUTES = 0x7F
_CHECKED_AT_MOST = 64
"""A search computes checksums over at most this many times the size of the searched bytes."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of a log file that cannot be kept, and what is wrong with its first batch."""

    start: int
    end: int
    reason: CorruptRecord
    is_foreign: bool = False
    """A complete batch with a right checksum and an unknown version: Kafka accepts it."""


@dataclass(frozen=True, slots=True)
class Examined:
    """Every byte of a log file is either in one of the kept batches or in one of the damaged ranges."""

    kept: NDArray[Any]
    """`BATCH_DTYPE` rows, in order of position and of offset."""
    damages: tuple[Damage, ...]
    """In order of position."""
    is_broken: bool
    """A reader that follows lengths and verifies checksums stops before the end of the file."""

    @property
    def kept_ranges(self) -> list[tuple[int, int]]:
        """The kept batches as ranges of positions. Adjacent batches are joined."""
        if not len(self.kept):
            return []
        starts = self.kept["position"]
        ends = starts + self.kept["size"]
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        first = np.concatenate(([0], breaks))
        last = np.concatenate((breaks, [len(starts)])) - 1
        return list(zip(starts[first].tolist(), ends[last].tolist(), strict=True))


def examine(
    source: ByteSource, *, base_offset: int, end: int, limit_offset: int | None = None, skip_broken: bool = False
) -> Examined:
    """Examine the first `end` bytes of a segment's log.

    `limit_offset` is the base offset of the next segment. The examination ends at a batch with a wrong checksum. With
    `skip_broken` it continues after such a batch, as long as the next batch can be found.
    """
    valid: list[NDArray[Any]] = []
    damages: list[Damage] = []
    is_broken = False
    position = 0
    while position < end:
        rows, position, reason = _run(source, position, end)
        valid.append(rows)
        if reason is None:
            break
        following = _claimed_end(source, position, end)
        is_foreign = following is not None and _is_foreign(source, position, following, reason)
        is_broken |= not is_foreign
        if not is_foreign and not (skip_broken and _leads_on(source, following, end)):
            following = None
        damages.append(Damage(position, following or end, reason, is_foreign))
        position = following or end
    batches = np.concatenate(valid) if valid else np.empty(0, BATCH_DTYPE)
    ordered = longest_ordered(batches, base_offset, limit_offset)
    is_kept = np.zeros(len(batches), np.bool_)
    is_kept[ordered] = True
    damages += [_out_of_order(source.name, batch, base_offset) for batch in batches[~is_kept]]
    return Examined(batches[is_kept], tuple(sorted(damages, key=lambda damage: damage.start)), is_broken)


def longest_ordered(batches: NDArray[Any], base_offset: int, limit_offset: int | None = None) -> list[int]:
    """The longest sequence of batches with rising offsets, from the base offset up to, not including, the limit.

    Returns row numbers. Of several equally long sequences it is the one with the lowest offsets.
    """
    first = np.where(batches["magic"] == _NEWEST_MAGIC, batches["base_offset"], batches["last_offset"])
    last = batches["last_offset"]
    is_possible = (first >= base_offset) & (first <= last)
    if limit_offset is not None:
        is_possible &= last < limit_offset
    if is_possible.all() and bool((first[1:] > last[:-1]).all()):
        return list(range(len(batches)))
    ends: list[int] = []
    """The lowest last offset of any sequence of 1, 2, 3, ... batches so far; `tails` has the row of its last batch."""
    tails: list[int] = []
    before: dict[int, int] = {}
    for row in np.flatnonzero(is_possible).tolist():
        length = bisect_left(ends, int(first[row]))
        before[row] = tails[length - 1] if length else -1
        if length == len(ends):
            ends.append(int(last[row]))
            tails.append(row)
        elif last[row] < ends[length]:
            ends[length] = int(last[row])
            tails[length] = row
    chosen: list[int] = []
    row = tails[-1] if tails else -1
    while row >= 0:
        chosen.append(row)
        row = before[row]
    return chosen[::-1]


def find_batches(source: ByteSource) -> Iterator[NDArray[Any]]:
    """Runs of valid batches anywhere in these bytes (`BATCH_DTYPE` rows), in order of position.

    If a length leads to no batch, the next v2 batch is searched by its checksum. It only counts if another batch or the
    end of the bytes follows: otherwise it may be the value of a record.
    """
    position = 0
    budget = _CHECKED_AT_MOST * source.size
    while position < source.size:
        rows, position, reason = _run(source, position, source.size)
        if len(rows):
            yield rows
        if reason is None:
            return
        following = _claimed_end(source, position, source.size)
        if not _leads_on(source, following, source.size):
            following, budget = _search(source, position + 1, budget)
        if following is None:
            return
        position = following


def resume(source: ByteSource, position: int, end: int, candidates: Iterable[int]) -> int | None:
    """The position where reading can continue after an invalid batch; None if it is not known.

    It is where that batch ends by its length, if a valid batch or the end of the file is there. Otherwise it is the
    first of the candidates, such as positions of an index, where a valid batch starts.
    """
    following = _claimed_end(source, position, end)
    if _leads_on(source, following, end):
        return following
    return next((found for found in candidates if position < found < end and _is_valid(source, found, end)), None)


def _run(source: ByteSource, position: int, end: int) -> tuple[NDArray[Any], int, CorruptRecord | None]:
    """The valid batches from `position` on: their rows, their end, and what is wrong there."""
    runs = [np.empty(0, BATCH_DTYPE)]
    reason: CorruptRecord | None = None
    for piece in read_pieces(source, start=position, end=end, piece_bytes=_PIECE_BYTES):
        bad = np.flatnonzero(piece.batches["crc_ok"] == 0)
        good = piece.batches[: bad[0]] if len(bad) else piece.batches
        if len(good):
            runs.append(good)
            position = int(good["position"][-1]) + int(good["size"][-1])
        if len(bad):
            batch = piece.batches[bad[0]]
            begin = position - piece.position
            reason = wrong_checksum(batch, piece.data[begin : begin + int(batch["size"])])
        elif piece.fault is not None:
            reason = piece.fault
        elif piece.tail_bytes:
            reason = CorruptRecord(
                "the file ends inside a batch",
                fault=Fault.PARTIAL_BATCH,
                expected="a whole batch",
                found=f"{piece.tail_bytes} bytes",
            )
        if reason is not None:
            reason.file, reason.position = source.name, position
            break
    return np.concatenate(runs), position, reason


def _claimed_end(source: ByteSource, position: int, end: int) -> int | None:
    """The end of the batch at `position` by its length; None if that is impossible."""
    if end - position < _CLASSIFIED_BYTES:
        return None
    prefix = bytes(source.read(position, _CLASSIFIED_BYTES))
    _, length = ENTRY_PREFIX.unpack(prefix)
    size = ENTRY_PREFIX.size + length
    smallest = MIN_BATCH_BYTES[min(prefix[MAGIC_POSITION], _NEWEST_MAGIC)]
    return position + size if smallest <= size <= end - position else None


def _is_foreign(source: ByteSource, start: int, end: int, reason: CorruptRecord) -> bool:
    """Whether only the version of the batch is wrong: Kafka does not check one above 2."""
    if reason.fault is not Fault.UNKNOWN_MAGIC:
        return False
    magic = source.read(start + MAGIC_POSITION, 1)[0]
    return magic <= _LARGEST_MAGIC and _has_v2_checksum(source, start, end)


def _leads_on(source: ByteSource, following: int | None, end: int) -> bool:
    """Whether a valid batch starts here, or the file ends here."""
    return following is not None and (following == end or _is_valid(source, following, end))


def _is_valid(source: ByteSource, position: int, end: int) -> bool:
    for piece in read_pieces(source, start=position, end=end, piece_bytes=_SEARCH_BYTES):
        return len(piece.batches) > 0 and int(piece.batches["crc_ok"][0]) == 1
    return False


def _has_v2_checksum(source: ByteSource, start: int, end: int) -> bool:
    batch = memoryview(source.read(start, end - start))
    crc = int.from_bytes(batch[BATCH_V2.at.crc : BATCH_V2.at.attributes])
    return crc32c(batch[BATCH_V2.at.attributes :]) == crc


def _search(source: ByteSource, position: int, budget: int) -> tuple[int | None, int]:
    """The position of the next valid v2 batch, and the rest of the budget in bytes."""
    while position + BATCH_V2.size <= source.size:
        size = min(_SEARCH_BYTES, source.size - position)
        data = np.frombuffer(source.read(position, size), np.uint8)
        for candidate, batch_size in _candidates(data, source.size - position):
            budget -= batch_size
            if budget < 0:
                return None, budget
            start, end = position + candidate, position + candidate + batch_size
            if _has_v2_checksum(source, start, end) and _leads_on(source, end, source.size):
                return start, budget
        if size == source.size - position:
            break
        position += size - BATCH_V2.size + 1
    return None, budget


def _candidates(data: NDArray[np.uint8], room: int) -> list[tuple[int, int]]:
    """Positions in the data that could be a v2 header, with the size of the batch."""
    places = len(data) - BATCH_V2.size + 1
    at = np.flatnonzero(data[MAGIC_POSITION : MAGIC_POSITION + places] == _NEWEST_MAGIC)
    # The sign bits of offset, last offset delta and record count, and the unused bits of the attributes.
    for field in (BATCH_V2.at.base_offset, BATCH_V2.at.last_offset_delta, BATCH_V2.at.record_count):
        at = at[data[at + field] < 0x80]
    at = at[(data[at + BATCH_V2.at.attributes] == 0) & (data[at + BATCH_V2.at.attributes + 1] <= _KNOWN_ATTRIBUTES)]
    length = np.zeros(len(at), np.int64)
    for byte in range(4):
        length = length << 8 | data[at + BATCH_V2.at.length + byte]
    size = length + ENTRY_PREFIX.size
    fits = (size >= BATCH_V2.size) & (size <= room - at)
    return list(zip(at[fits].tolist(), size[fits].tolist(), strict=True))


def _out_of_order(name: str, batch: Any, base_offset: int) -> Damage:
    position = int(batch["position"])
    reason = CorruptRecord(
        "a batch is out of order",
        fault=Fault.FIELD_VALUE,
        file=name,
        position=position,
        expected=f"offsets that rise from {base_offset} on",
        found=f"{int(batch['base_offset'])} to {int(batch['last_offset'])}",
    )
    return Damage(position, position + int(batch["size"]), reason)
